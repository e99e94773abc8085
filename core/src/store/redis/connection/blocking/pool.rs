//! The pool of idle blocking connections, one for each concurrent caller.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection::BlockingConnection;
use crate::machine::{Failure, Time};
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::connection::login;
use crate::sys::clock;

/// How many idle connections are kept.
const MAX_IDLE: usize = 16;

/// The idle connections. The mutex is held for a push or a pop, never while a caller waits.
pub(crate) struct ConnectionPool {
    shared: Arc<NodeContext>,
    idle: Mutex<Vec<BlockingConnection>>,
    closed: AtomicBool,
    /// Connections that broke and were not replaced yet.
    broken: AtomicU64,
}

impl ConnectionPool {
    pub(crate) fn new(shared: Arc<NodeContext>) -> ConnectionPool {
        let (closed, broken) = (AtomicBool::new(false), AtomicU64::new(0));
        ConnectionPool { shared, idle: Mutex::new(Vec::new()), closed, broken }
    }

    /// An idle connection that still works, if there is one.
    pub(crate) fn get_idle(&self, now: Time) -> Option<BlockingConnection> {
        loop {
            let mut connection = self.idle().pop()?;
            if connection.socket.epoch == self.shared.epoch() && connection.is_usable(now) {
                return Some(connection);
            }
            self.discard(connection);
        }
    }

    /// A new connection.
    pub(crate) fn open(&self, deadline: Deadline<'_>) -> Result<BlockingConnection, Failure> {
        let NodeContext { options, store_state: common, .. } = &*self.shared;
        let (own, before) = (clock::now() + options.connect_timeout, self.shared.epoch());
        let hurried = deadline.until < own;
        let deadline = Deadline { until: deadline.until.min(own), ..deadline };
        let connection = self.shared.locate_blocking(deadline).and_then(|endpoint| {
            let config = common.tls(endpoint.tls.as_ref())?;
            // read after the server was located, so that it includes what made earlier connections stale
            let epoch = self.shared.epoch();
            BlockingConnection::open(endpoint, epoch, config, options, deadline)
        });
        let connection = connection.inspect_err(|failure| {
            // a caller that ran out of time or was interrupted says nothing about the server
            if !(login::is_provider_failure(failure)
                || deadline.interrupt.interrupted()
                || (hurried && clock::now() >= deadline.until))
            {
                self.shared.mark_stale(before);
            }
        })?;
        let replaces = self.broken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |broken| broken.checked_sub(1));
        if replaces.is_ok() {
            common.note_reconnect(&self.shared.name);
        }
        Ok(connection)
    }

    /// Takes a connection back after a reply.
    pub(crate) fn put(&self, mut connection: BlockingConnection, now: Time) {
        if !connection.is_reusable() {
            return self.discard(connection);
        }
        connection.socket.mark_idle(now);
        let mut idle = self.idle();
        // checked under the lock, so that `close` misses none
        if idle.len() < MAX_IDLE && !self.closed.load(Ordering::Acquire) {
            idle.push(connection);
        }
    }

    /// Drops a connection that is not to be used again.
    pub(crate) fn discard(&self, connection: BlockingConnection) {
        drop(connection);
        self.note_broken();
    }

    /// Counts a broken connection, so that the next one opened counts as a reconnect.
    pub(crate) fn note_broken(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the idle connections; the others are closed when they are put back.
    pub(crate) fn close(&self) {
        let mut idle = self.idle();
        self.closed.store(true, Ordering::Release);
        let connections = std::mem::take(&mut *idle);
        drop(idle);
        drop(connections);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<BlockingConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::store::redis::address::multi::SentinelConfig;
    use crate::store::redis::options::RedisOptions;
    use crate::store::redis::topology::sentinel::SentinelResolver;
    use crate::store::{Interrupt, Uninterrupted};

    struct Interrupted;

    impl Interrupt for Interrupted {
        fn interrupted(&self) -> bool {
            true
        }
    }

    fn pool(port: u16) -> ConnectionPool {
        let options = RedisOptions { connect_timeout: Duration::from_secs(20), ..RedisOptions::default() };
        let group = SentinelConfig::parse(&format!("redis+sentinel://127.0.0.1:{port}/g"), &options).unwrap();
        ConnectionPool::new(Arc::new(NodeContext::with_sentinels(
            SentinelResolver::new(group, options.clone()),
            options,
        )))
    }

    #[test]
    fn only_the_servers_failure_makes_connections_obsolete() {
        // accepts connections and never answers
        let hole = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent_pool = pool(hole.local_addr().unwrap().port());
        let until = clock::now() + Duration::from_millis(20);
        assert!(silent_pool.open(Deadline { until, interrupt: &Uninterrupted }).is_err());
        assert_eq!(silent_pool.shared.epoch(), 0, "a caller in a hurry");
        let until = clock::now() + Duration::from_secs(60);
        assert!(silent_pool.open(Deadline { until, interrupt: &Interrupted }).is_err());
        assert_eq!(silent_pool.shared.epoch(), 0, "a caller that was interrupted");
        let port = hole.local_addr().unwrap().port();
        drop(hole);
        let closed_port_pool = pool(port);
        assert!(closed_port_pool.open(Deadline { until, interrupt: &Uninterrupted }).is_err());
        assert_eq!(closed_port_pool.shared.epoch(), 1, "nobody listens");
    }
}
