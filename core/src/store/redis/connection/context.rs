//! What all connections of a node share: its server, its options, and the state of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[cfg(not(target_family = "wasm"))]
use rustls::ClientConfig;

#[cfg(not(target_family = "wasm"))]
use super::deadline::Deadline;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::StoreStats;
use crate::store::redis::address::endpoint::Endpoint;
#[cfg(not(target_family = "wasm"))]
use crate::store::redis::address::endpoint::TlsFiles;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::topology::sentinel::SentinelResolver;
#[cfg(not(target_family = "wasm"))]
use crate::store::tls_configs::TlsConfigs;
use crate::sys::clock;

/// A new connection in place of a lost one is logged this often at most.
const RECONNECT_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// After a server refused `WAIT`, it is tried again after this time.
const WAIT_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What all nodes of one store share: counters, what was logged, and whether the store was closed.
#[derive(Default)]
pub(crate) struct StoreState {
    #[cfg(not(target_family = "wasm"))]
    tls_configs: TlsConfigs,
    commands_sent: AtomicU64,
    reconnects: AtomicU64,
    /// When a reconnect was logged last; 0 for never.
    reconnect_logged_at: AtomicU64,
    publish_refusal_logged: AtomicBool,
    /// When the server refused `WAIT` last; 0 for never.
    wait_refused_at: AtomicU64,
    /// Whether that was logged.
    wait_refusal_logged: AtomicBool,
    closed: AtomicBool,
}

impl StoreState {
    /// The TLS configuration for a new connection; `None` for plain text.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn tls(&self, files: Option<&TlsFiles>) -> Result<Option<Arc<ClientConfig>>, Failure> {
        let Some(files) = files else { return Ok(None) };
        self.tls_configs.config(files).map(Some)
    }

    pub(crate) fn count_command(&self) {
        self.commands_sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that replaces a lost one, and logs it now and then: many break together.
    pub(crate) fn note_reconnect(&self, server: &str) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
        let (now, before) = (clock::now().as_nanos(), self.reconnect_logged_at.load(Ordering::Relaxed));
        let again = before == 0 || now.saturating_sub(before) > RECONNECT_LOG_INTERVAL.as_nanos() as u64;
        if again && self.reconnect_logged_at.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            tracing::info!(server, "onelock: connected again");
        }
    }

    pub(crate) fn stats(&self) -> StoreStats {
        StoreStats {
            commands_sent: self.commands_sent.load(Ordering::Relaxed),
            reconnects: self.reconnects.load(Ordering::Relaxed),
        }
    }

    /// Logs once that releases are not announced.
    pub(crate) fn warn_publish_refused(&self, server: &str) {
        if !self.publish_refusal_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server,
                "this user may not publish, so a release wakes nobody: waiters find out by polling; \
                 allow the channels listed in GUARANTEES.md under Permissions"
            );
        }
    }

    /// Whether the server offers `WAIT`, as far as is known. A refusal is forgotten after a while: permissions or the
    /// server may have changed.
    pub(crate) fn has_wait(&self) -> bool {
        let since = self.wait_refused_at.load(Ordering::Relaxed);
        since == 0 || clock::now().since(Time::from_nanos(since)) > WAIT_RETRY_AFTER
    }

    /// Logs once that replicas are not waited for.
    pub(crate) fn warn_wait_refused(&self, server: &str, said: &str) {
        self.wait_refused_at.store(clock::now().as_nanos(), Ordering::Relaxed);
        if !self.wait_refusal_logged.swap(true, Ordering::Relaxed) {
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

    /// The failure of every call after `close`.
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Failure::lasting(ErrorKind::Closed, "the client was closed"));
        }
        Ok(())
    }
}

/// Which server the connections of a node go to.
pub(crate) enum Locator {
    /// Always this one.
    Fixed(Arc<Endpoint>),
    /// The present master, according to Sentinels.
    Sentinel(Arc<SentinelResolver>),
}

/// One node: its address, its options, and the state it shares with others.
pub(crate) struct NodeContext {
    pub(crate) locator: Locator,
    pub(crate) options: RedisOptions,
    pub(crate) store_state: Arc<StoreState>,
    /// Where it is, for messages.
    pub(crate) name: String,
}

impl NodeContext {
    pub(crate) fn new(endpoint: Endpoint, options: RedisOptions, store_state: Arc<StoreState>) -> NodeContext {
        let name = endpoint.to_string();
        NodeContext { locator: Locator::Fixed(Arc::new(endpoint)), options, store_state, name }
    }

    pub(crate) fn with_sentinels(resolver: SentinelResolver, options: RedisOptions) -> NodeContext {
        let (name, store_state) = (resolver.to_string(), resolver.store_state.clone());
        NodeContext { locator: Locator::Sentinel(Arc::new(resolver)), options, store_state, name }
    }

    /// The server to connect to now.
    pub(crate) async fn locate(&self) -> Result<Arc<Endpoint>, Failure> {
        match &self.locator {
            Locator::Fixed(endpoint) => Ok(endpoint.clone()),
            Locator::Sentinel(resolver) => resolver.locate().await,
        }
    }

    /// The same from a thread.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn locate_blocking(&self, deadline: Deadline<'_>) -> Result<Arc<Endpoint>, Failure> {
        match &self.locator {
            Locator::Fixed(endpoint) => Ok(endpoint.clone()),
            Locator::Sentinel(resolver) => resolver.locate_blocking(deadline),
        }
    }

    /// The server located in this epoch is not a master that answers: the Sentinel that named it is asked last next
    /// time, and earlier connections are not used again.
    pub(crate) fn mark_stale(&self, epoch: u64) {
        if let Locator::Sentinel(resolver) = &self.locator {
            resolver.mark_stale(epoch);
        }
    }

    /// Grows when earlier connections must not be used again.
    pub(crate) fn epoch(&self) -> u64 {
        match &self.locator {
            Locator::Fixed(_) => 0,
            Locator::Sentinel(resolver) => resolver.epoch(),
        }
    }

    /// When a request must be answered: at the caller's limit or the request's, whichever is first.
    pub(crate) fn reply_until(&self, until: Time, sent_at: Time) -> Time {
        until.min(sent_at + self.options.request_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_wait_is_asked_for_again_some_day() {
        let store_state = StoreState::default();
        assert!(store_state.has_wait());
        store_state.warn_wait_refused("redis://h", "NOPERM");
        assert!(!store_state.has_wait());
        let long_ago =
            clock::now().as_nanos().saturating_sub((WAIT_RETRY_AFTER + Duration::from_secs(1)).as_nanos() as u64);
        store_state.wait_refused_at.store(long_ago.max(1), Ordering::Relaxed);
        // a machine that has just started has no time so long ago
        assert_eq!(store_state.has_wait(), long_ago > 0);
    }
}
