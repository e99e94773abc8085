//! What every connection of one store needs to know.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;

use super::RedisOptions;
use super::endpoint::Endpoint;
use super::tls;
use crate::backend::StoreStats;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};

/// One server, how to speak to it, and what has been counted.
pub(crate) struct Shared {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) options: RedisOptions,
    tls: OnceLock<Result<Arc<ClientConfig>, Failure>>,
    commands_sent: AtomicU64,
    reconnects: AtomicU64,
    unheard: AtomicBool,
    closed: AtomicBool,
}

impl Shared {
    pub(crate) fn new(endpoint: Endpoint, options: RedisOptions) -> Shared {
        Shared {
            endpoint: Arc::new(endpoint),
            options,
            tls: OnceLock::new(),
            commands_sent: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            unheard: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// The TLS configuration, the same for every connection; `None` for plain text. Reads its files once.
    pub(crate) fn tls(&self) -> Result<Option<Arc<ClientConfig>>, Failure> {
        let Some(files) = &self.endpoint.tls else { return Ok(None) };
        self.tls.get_or_init(|| tls::config(files)).clone().map(Some)
    }

    /// The moment at which a request must be answered: the caller's own limit or the request's, whichever is first.
    pub(crate) fn reply_until(&self, until: Time, sent_at: Time) -> Time {
        until.min(sent_at + self.options.request_timeout)
    }

    pub(crate) fn count_command(&self) {
        self.commands_sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_reconnect(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> StoreStats {
        StoreStats {
            commands_sent: self.commands_sent.load(Ordering::Relaxed),
            reconnects: self.reconnects.load(Ordering::Relaxed),
        }
    }

    /// Says once that waiters are not woken.
    pub(crate) fn warn_unheard(&self) {
        if !self.unheard.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = %self.endpoint,
                "this user may not publish, so a release wakes nobody: waiters find out by polling; \
                 allow the channels listed in GUARANTEES.md under Permissions"
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
