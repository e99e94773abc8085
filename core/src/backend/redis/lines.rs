//! The pool of blocking connections: one per concurrent caller, a handful kept for later.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::line::{Line, Patience};
use super::login;
use super::shared::Shared;
use crate::driver::clock;
use crate::machine::{Failure, Time};

/// How many idle connections are kept.
const KEPT: usize = 16;

/// The idle connections. The lock is held for a push or a pop, never while anything waits.
pub(crate) struct Lines {
    shared: Arc<Shared>,
    idle: Mutex<Vec<Line>>,
    closed: AtomicBool,
    /// Connections that broke and were not replaced yet.
    broken: AtomicU64,
}

impl Lines {
    pub(crate) fn new(shared: Arc<Shared>) -> Lines {
        let (closed, broken) = (AtomicBool::new(false), AtomicU64::new(0));
        Lines { shared, idle: Mutex::new(Vec::new()), closed, broken }
    }

    /// A pooled connection, if there is one that still works.
    pub(crate) fn pooled(&self, now: Time) -> Option<Line> {
        loop {
            let line = self.idle().pop()?;
            if line.epoch == self.shared.epoch() && line.is_usable(now) {
                return Some(line);
            }
            self.lose(line);
        }
    }

    /// A new connection.
    pub(crate) fn open(&self, patience: Patience<'_>) -> Result<Line, Failure> {
        let Shared { options, common, .. } = &*self.shared;
        let (own, before) = (clock::now() + options.connect_timeout, self.shared.epoch());
        let hurried = patience.until < own;
        let patience = Patience { until: patience.until.min(own), ..patience };
        let line = self.shared.locate_blocking(patience).and_then(|endpoint| {
            let config = common.tls(endpoint.tls.as_ref())?;
            // read after it was located: whatever made the lines before obsolete is known by now
            let epoch = self.shared.epoch();
            Line::open(endpoint, epoch, config, options, patience)
        });
        let line = line.inspect_err(|failure| {
            // a caller that would not wait says nothing about the server
            if !(login::is_at_fault(failure)
                || patience.interrupt.interrupted()
                || (hurried && clock::now() >= patience.until))
            {
                self.shared.missed(before);
            }
        })?;
        let replaces = self.broken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |broken| broken.checked_sub(1));
        if replaces.is_ok() {
            common.reconnected(&self.shared.name);
        }
        Ok(line)
    }

    /// Takes a connection back after a reply.
    pub(crate) fn give(&self, mut line: Line, now: Time) {
        if line.is_spoilt() {
            return self.lose(line);
        }
        line.rest(now);
        let mut idle = self.idle();
        // asked under the lock, so that `close` misses none
        if idle.len() < KEPT && !self.closed.load(Ordering::Acquire) {
            idle.push(line);
        }
    }

    /// Drops a connection that is not to be used again.
    pub(crate) fn lose(&self, line: Line) {
        drop(line);
        self.mourn();
    }

    /// A connection that was not of this pool is lost: the next one replaces it.
    pub(crate) fn mourn(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes what is idle; what is in use is closed when it comes back.
    pub(crate) fn close(&self) {
        let mut idle = self.idle();
        self.closed.store(true, Ordering::Release);
        let lines = std::mem::take(&mut *idle);
        drop(idle);
        drop(lines);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Line>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::backend::redis::scout::Scout;
    use crate::backend::redis::{RedisOptions, Sentinels};
    use crate::backend::{Interrupt, Uninterrupted};

    struct Interrupted;

    impl Interrupt for Interrupted {
        fn interrupted(&self) -> bool {
            true
        }
    }

    fn lines(port: u16) -> Lines {
        let options = RedisOptions { connect_timeout: Duration::from_secs(20), ..RedisOptions::default() };
        let group = Sentinels::parse(&format!("redis+sentinel://127.0.0.1:{port}/g"), &options).unwrap();
        Lines::new(Arc::new(Shared::watched(Scout::new(group, options.clone()), options)))
    }

    #[test]
    fn only_the_servers_failure_makes_connections_obsolete() {
        // it lets everybody in and says nothing
        let hole = TcpListener::bind("127.0.0.1:0").unwrap();
        let lines_of_silence = lines(hole.local_addr().unwrap().port());
        let until = clock::now() + Duration::from_millis(20);
        assert!(lines_of_silence.open(Patience { until, interrupt: &Uninterrupted }).is_err());
        assert_eq!(lines_of_silence.shared.epoch(), 0, "a caller in a hurry");
        let until = clock::now() + Duration::from_secs(60);
        assert!(lines_of_silence.open(Patience { until, interrupt: &Interrupted }).is_err());
        assert_eq!(lines_of_silence.shared.epoch(), 0, "a caller that was interrupted");
        let port = hole.local_addr().unwrap().port();
        drop(hole);
        let lines_to_nobody = lines(port);
        assert!(lines_to_nobody.open(Patience { until, interrupt: &Uninterrupted }).is_err());
        assert_eq!(lines_to_nobody.shared.epoch(), 1, "nobody listens");
    }
}
