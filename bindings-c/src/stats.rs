//! Counters and histograms of a client.

use onelock::{Histogram, Stats};

use crate::boundary::{free, peek, value};
use crate::object::exposed;

/// Counters and histograms of a client since it was made.
pub struct onelock_stats {
    _private: [u8; 0],
}

/// Boxed, because it is much larger than other objects.
pub(crate) struct StatsObject(pub(crate) Box<Stats>);

exposed!(StatsObject, Stats, onelock_stats, "stats");

/// Leases held now.
pub const ONELOCK_STATS_HELD: u32 = 1;
/// Acquires waiting now.
pub const ONELOCK_STATS_WAITING: u32 = 2;
/// Acquires that were granted, re-entries included.
pub const ONELOCK_STATS_ACQUIRED: u32 = 3;
/// Tries that found the lock busy.
pub const ONELOCK_STATS_BUSY: u32 = 4;
/// Acquires that timed out.
pub const ONELOCK_STATS_TIMEOUTS: u32 = 5;
/// Acquires that their caller cancelled.
pub const ONELOCK_STATS_CANCELLED: u32 = 6;
/// Acquires that failed for another reason.
pub const ONELOCK_STATS_FAILED: u32 = 7;
/// Leases that their holder released.
pub const ONELOCK_STATS_RELEASED: u32 = 8;
/// Leases lost.
pub const ONELOCK_STATS_LOST: u32 = 9;
/// Renewals that were confirmed, one per lease and round.
pub const ONELOCK_STATS_RENEWALS: u32 = 10;
/// Renewal rounds of a lease that were missed.
pub const ONELOCK_STATS_RENEWALS_MISSED: u32 = 11;
/// Clean-ups that are not finished yet.
pub const ONELOCK_STATS_CLEANING: u32 = 12;
/// Connections made after the first one.
pub const ONELOCK_STATS_RECONNECTS: u32 = 13;
/// Requests sent to the server.
pub const ONELOCK_STATS_COMMANDS_SENT: u32 = 14;

/// The histogram of the time from the call to the grant.
pub const ONELOCK_HISTOGRAM_WAIT: u32 = 1;
/// The histogram of the time from the grant to the end of the hold.
pub const ONELOCK_HISTOGRAM_HOLD: u32 = 2;

impl StatsObject {
    fn counter(&self, which: u32) -> Option<u64> {
        let stats = &self.0;
        Some(match which {
            ONELOCK_STATS_HELD => stats.held,
            ONELOCK_STATS_WAITING => stats.waiting,
            ONELOCK_STATS_ACQUIRED => stats.acquired,
            ONELOCK_STATS_BUSY => stats.busy,
            ONELOCK_STATS_TIMEOUTS => stats.timeouts,
            ONELOCK_STATS_CANCELLED => stats.cancelled,
            ONELOCK_STATS_FAILED => stats.failed,
            ONELOCK_STATS_RELEASED => stats.released,
            ONELOCK_STATS_LOST => stats.lost,
            ONELOCK_STATS_RENEWALS => stats.renewals,
            ONELOCK_STATS_RENEWALS_MISSED => stats.renewals_missed,
            ONELOCK_STATS_CLEANING => stats.cleaning,
            ONELOCK_STATS_RECONNECTS => stats.reconnects,
            ONELOCK_STATS_COMMANDS_SENT => stats.commands_sent,
            _ => return None,
        })
    }

    fn histogram(&self, which: u32) -> Option<&Histogram> {
        match which {
            ONELOCK_HISTOGRAM_WAIT => Some(&self.0.wait),
            ONELOCK_HISTOGRAM_HOLD => Some(&self.0.hold),
            _ => None,
        }
    }
}

/// One counter, an `ONELOCK_STATS_` from `HELD` to `COMMANDS_SENT`; 0 for another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_stats_counter(stats: *const onelock_stats, counter: u32) -> u64 {
    value(0, || peek(stats, |stats: &StatsObject| stats.counter(counter))?)
}

/// The number of times in a histogram, `ONELOCK_HISTOGRAM_WAIT` or `ONELOCK_HISTOGRAM_HOLD`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_stats_histogram_count(stats: *const onelock_stats, histogram: u32) -> u64 {
    value(0, || peek(stats, |stats: &StatsObject| Some(stats.histogram(histogram)?.count))?)
}

/// The sum of the times of a histogram, in microseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_stats_histogram_sum_us(stats: *const onelock_stats, histogram: u32) -> u64 {
    value(0, || peek(stats, |stats: &StatsObject| Some(stats.histogram(histogram)?.sum_us))?)
}

/// One count of a histogram: bucket `i` counts times below `2^i` microseconds and not below `2^(i-1)`; there are 32,
/// and the last one counts all longer times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_stats_histogram_bucket(
    stats: *const onelock_stats,
    histogram: u32,
    bucket: usize,
) -> u64 {
    value(0, || peek(stats, |stats: &StatsObject| stats.histogram(histogram)?.buckets.get(bucket).copied())?)
}

/// An upper bound of a quantile (0.0 to 1.0) of a histogram, in microseconds; 0 when nothing was recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_stats_histogram_quantile_us(
    stats: *const onelock_stats,
    histogram: u32,
    quantile: f64,
) -> u64 {
    value(0, || {
        peek(stats, |stats: &StatsObject| Some(stats.histogram(histogram)?.quantile(quantile).as_micros() as u64))?
    })
}

/// Frees the snapshot. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_stats_free(stats: *mut onelock_stats) {
    free::<StatsObject>(stats, |_| ());
}
