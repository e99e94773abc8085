//! What every connection of one store needs to know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustls::ClientConfig;

use super::RedisOptions;
use super::certificates::Certificates;
use super::endpoint::{Endpoint, TlsFiles};
use super::line::Patience;
use super::scout::Scout;
use crate::backend::StoreStats;
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};

/// That there is a new connection in place of one that was lost is said this often at most.
const TOLD_AGAIN: Duration = Duration::from_secs(10);

/// A server that refused `WAIT` is asked again after so long.
const ASKED_AGAIN: Duration = Duration::from_secs(60);

/// What all nodes of one store have in common: what has been counted and said, and whether it was closed.
#[derive(Default)]
pub(crate) struct Common {
    certificates: Certificates,
    commands_sent: AtomicU64,
    reconnects: AtomicU64,
    /// When it was last said that there is a new connection; 0 for never.
    told_at: AtomicU64,
    unheard: AtomicBool,
    /// When the server refused `WAIT` last; 0 for never.
    without_wait_since: AtomicU64,
    /// Whether that was said.
    without_wait: AtomicBool,
    closed: AtomicBool,
}

impl Common {
    /// The TLS configuration for a new connection; `None` for plain text.
    pub(crate) fn tls(&self, files: Option<&TlsFiles>) -> Result<Option<Arc<ClientConfig>>, Failure> {
        let Some(files) = files else { return Ok(None) };
        self.certificates.config(files).map(Some)
    }

    pub(crate) fn count_command(&self) {
        self.commands_sent.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection replaces one that was lost. Said now and then only: many break together.
    pub(crate) fn reconnected(&self, server: &str) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
        let (now, before) = (clock::now().as_nanos(), self.told_at.load(Ordering::Relaxed));
        let again = before == 0 || now.saturating_sub(before) > TOLD_AGAIN.as_nanos() as u64;
        if again && self.told_at.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::info!(server, "onelock: connected again");
        }
    }

    pub(crate) fn stats(&self) -> StoreStats {
        StoreStats {
            commands_sent: self.commands_sent.load(Ordering::Relaxed),
            reconnects: self.reconnects.load(Ordering::Relaxed),
        }
    }

    /// Says once that waiters are not woken.
    pub(crate) fn warn_unheard(&self, server: &str) {
        if !self.unheard.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server,
                "this user may not publish, so a release wakes nobody: waiters find out by polling; \
                 allow the channels listed in GUARANTEES.md under Permissions"
            );
        }
    }

    /// Whether replicas can be waited for, as far as is known. A refusal is not remembered for ever: the user may be allowed
    /// to by now, or the server another one.
    pub(crate) fn has_wait(&self) -> bool {
        let since = self.without_wait_since.load(Ordering::Relaxed);
        since == 0 || clock::now().since(Time::from_nanos(since)) > ASKED_AGAIN
    }

    /// Says once that replicas are not waited for.
    pub(crate) fn warn_without_wait(&self, server: &str, said: &str) {
        self.without_wait_since.store(clock::now().as_nanos(), Ordering::Relaxed);
        if !self.without_wait.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server,
                said,
                "replicas cannot be waited for here, so min_replicas is without effect: the server has no WAIT, or this \
                 user may not use it"
            );
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The refusal of every call after `close`.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Failure::lasting(ErrorKind::Closed, "the client was closed"));
        }
        Ok(())
    }
}

/// Which server the connections of a node go to.
pub(crate) enum Target {
    /// Always this one.
    Fixed(Arc<Endpoint>),
    /// The present master, which Sentinels know.
    Watched(Arc<Scout>),
}

/// One node: where it is, how to speak to it, and what it shares with the others.
pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) options: RedisOptions,
    pub(crate) common: Arc<Common>,
    /// Where it is, for messages.
    pub(crate) name: String,
}

impl Shared {
    pub(crate) fn new(endpoint: Endpoint, options: RedisOptions, common: Arc<Common>) -> Shared {
        let name = endpoint.to_string();
        Shared { target: Target::Fixed(Arc::new(endpoint)), options, common, name }
    }

    pub(crate) fn watched(scout: Scout, options: RedisOptions) -> Shared {
        let (name, common) = (scout.to_string(), scout.common.clone());
        Shared { target: Target::Watched(Arc::new(scout)), options, common, name }
    }

    /// The server to connect to now.
    pub(crate) async fn locate(&self) -> Result<Arc<Endpoint>, Failure> {
        match &self.target {
            Target::Fixed(endpoint) => Ok(endpoint.clone()),
            Target::Watched(scout) => scout.locate().await,
        }
    }

    /// The same from a thread.
    pub(crate) fn locate_blocking(&self, patience: Patience<'_>) -> Result<Arc<Endpoint>, Failure> {
        match &self.target {
            Target::Fixed(endpoint) => Ok(endpoint.clone()),
            Target::Watched(scout) => scout.locate_blocking(patience),
        }
    }

    /// What was located in this epoch did not answer as a master does: whoever named it is asked last next time, and
    /// connections made before are not used again.
    pub(crate) fn missed(&self, epoch: u64) {
        if let Target::Watched(scout) = &self.target {
            scout.missed(epoch);
        }
    }

    /// Grows when connections made before are not to be used again.
    pub(crate) fn epoch(&self) -> u64 {
        match &self.target {
            Target::Fixed(_) => 0,
            Target::Watched(scout) => scout.epoch(),
        }
    }

    /// The moment at which a request must be answered: the caller's own limit or the request's, whichever is first.
    pub(crate) fn reply_until(&self, until: Time, sent_at: Time) -> Time {
        until.min(sent_at + self.options.request_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_wait_is_asked_for_again_some_day() {
        let common = Common::default();
        assert!(common.has_wait());
        common.warn_without_wait("redis://h", "NOPERM");
        assert!(!common.has_wait());
        let long_ago = clock::now().as_nanos().saturating_sub((ASKED_AGAIN + Duration::from_secs(1)).as_nanos() as u64);
        common.without_wait_since.store(long_ago.max(1), Ordering::Relaxed);
        // a machine that was started a moment ago has no time that is long ago
        assert_eq!(common.has_wait(), long_ago > 0);
    }
}
