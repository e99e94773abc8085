//! What a client has done so far: counters and histograms, all atomic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::durations::Durations;
use super::hold::Hold;
use crate::ErrorKind;
use crate::machine::Kind;
use crate::sys::clock;

const BUCKETS: usize = 32;

/// A histogram of durations in powers of two of a microsecond.
///
/// Bucket `i` counts durations below `2^i` microseconds and not below `2^(i-1)`; the last takes everything longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The counts.
    pub buckets: [u64; BUCKETS],
    /// How many durations were recorded.
    pub count: u64,
    /// Their sum in microseconds.
    pub sum_us: u64,
}

impl Histogram {
    /// An upper bound of the given quantile (0.0 to 1.0), at most twice too high; zero when nothing was recorded.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// # client.lock("a").acquire().await?.release().await?;
    /// let wait = client.stats().wait;
    /// println!("{} acquires, half of them within {:?}", wait.count, wait.quantile(0.5));
    /// # Ok(()) }
    /// ```
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (self.count as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && rank > 0 {
                return Duration::from_micros(1 << index);
            }
        }
        Duration::ZERO
    }
}

/// A snapshot of what a client has done since it was made, from [`Client::stats`](crate::Client::stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Leases held now.
    pub held: u64,
    /// Acquires waiting now.
    pub waiting: u64,
    /// Acquires that were granted, re-entries included.
    pub acquired: u64,
    /// Tries that found the lock busy.
    pub busy: u64,
    /// Acquires whose wait was used up.
    pub timeouts: u64,
    /// Acquires that were abandoned by their caller.
    pub cancelled: u64,
    /// Acquires that failed for another reason.
    pub failed: u64,
    /// Leases released by their holder.
    pub released: u64,
    /// Leases lost: also those that their release found gone before the deadline, and those that were held when the client
    /// was closed. One that was dropped counts as released first.
    pub lost: u64,
    /// Renewals that were confirmed, one per lease and round.
    pub renewals: u64,
    /// Renewal rounds of a lease that were missed.
    pub renewals_missed: u64,
    /// Cleanups that are not finished yet.
    pub cleaning: u64,
    /// Connections made after the first one.
    pub reconnects: u64,
    /// Requests sent to the server.
    pub commands_sent: u64,
    /// Time from the call to the grant.
    pub wait: Histogram,
    /// Time from the grant to the end of the hold.
    pub hold: Histogram,
}

impl Stats {
    /// Whether there is something that closing the client would release or end: a lease, a waiting acquire, cleanup.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.lock("orders:42").acquire().await?;
    /// assert!(client.stats().is_busy());
    /// lease.release().await?;
    /// assert!(!client.stats().is_busy());
    /// # Ok(()) }
    /// ```
    pub fn is_busy(&self) -> bool {
        self.held + self.waiting + self.cleaning > 0
    }
}

#[derive(Debug, Default)]
pub(crate) struct LiveHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl LiveHistogram {
    pub(crate) fn record(&self, span: Duration) {
        let us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let index = (64 - us.leading_zeros() as usize).min(BUCKETS - 1);
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    fn snapshot(&self) -> Histogram {
        let mut histogram = Histogram { sum_us: self.sum_us.load(Ordering::Relaxed), ..Histogram::default() };
        for (to, from) in histogram.buckets.iter_mut().zip(&self.buckets) {
            *to = from.load(Ordering::Relaxed);
            histogram.count += *to;
        }
        histogram
    }
}

/// The live counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) waiting: AtomicU64,
    pub(crate) acquired: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) renewals: AtomicU64,
    pub(crate) renewals_missed: AtomicU64,
    wait: LiveHistogram,
    hold: LiveHistogram,
    durations: Arc<Durations>,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Metrics {
    /// Nothing was counted so far; each time waited and held is told there, too.
    pub(crate) fn new(durations: Arc<Durations>) -> Metrics {
        Metrics { durations, ..Metrics::default() }
    }

    /// An acquire was granted: how long it waited.
    pub(crate) fn record_wait(&self, kind: Kind, span: Duration) {
        self.wait.record(span);
        self.durations.waited(kind, span);
    }

    /// A hold is over: for how long it was held.
    pub(crate) fn record_hold(&self, hold: &Hold) {
        let span = clock::now().since(hold.granted_at);
        self.hold.record(span);
        self.durations.held(hold.kind(), span);
        hold.span.stop(span);
    }

    /// One acquire failed.
    pub(crate) fn failed(&self, kind: ErrorKind) {
        count(match kind {
            ErrorKind::Busy => &self.busy,
            ErrorKind::Timeout => &self.timeouts,
            ErrorKind::Cancelled => &self.cancelled,
            _ => &self.failed,
        });
    }

    /// The counters; what lives elsewhere is filled in by the engine.
    pub(crate) fn snapshot(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            waiting: read(&self.waiting),
            acquired: read(&self.acquired),
            busy: read(&self.busy),
            timeouts: read(&self.timeouts),
            cancelled: read(&self.cancelled),
            failed: read(&self.failed),
            released: read(&self.released),
            lost: read(&self.lost),
            renewals: read(&self.renewals),
            renewals_missed: read(&self.renewals_missed),
            wait: self.wait.snapshot(),
            hold: self.hold.snapshot(),
            ..Stats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds() {
        let live = LiveHistogram::default();
        for us in [0, 1, 3, 100, 5000] {
            live.record(Duration::from_micros(us));
        }
        let histogram = live.snapshot();
        assert_eq!((histogram.count, histogram.sum_us), (5, 5104));
        assert_eq!(histogram.quantile(0.5), Duration::from_micros(4));
        assert_eq!(histogram.quantile(1.0), Duration::from_micros(8192));
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }
}
