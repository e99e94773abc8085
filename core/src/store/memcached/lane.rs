//! The one connection of a client, made anew when it ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::timeout;

use super::ServerClient;
use super::connection::CacheConnection;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::sys::fork::LeakAfterFork;
use crate::sys::{clock, lock};

/// What becomes of an attempt to connect, once it is known.
type CacheAttempt = watch::Receiver<Option<Result<Arc<CacheConnection>, Failure>>>;

#[derive(Default)]
pub(super) struct CacheLane {
    present: Mutex<Option<Arc<CacheConnection>>>,
    /// The next connection in the making, and since when. It goes on when whoever wanted it first has no time left.
    attempt: Mutex<Option<(Time, LeakAfterFork<CacheAttempt>)>>,
    /// How many connections there have been.
    numbers: AtomicU64,
}

impl CacheLane {
    fn usable(&self) -> Option<Arc<CacheConnection>> {
        lock(&self.present).as_ref().filter(|connection| connection.is_usable()).cloned()
    }

    /// The number of the present connection, or of the next one.
    pub(super) fn number(&self) -> u64 {
        self.usable().map_or_else(|| self.numbers.load(Ordering::Relaxed) + 1, |connection| connection.number)
    }

    pub(super) fn close(&self) {
        drop(lock(&self.present).take());
    }
}

impl ServerClient {
    pub(super) async fn connected(self: &Arc<Self>, until: Time) -> Result<Arc<CacheConnection>, Failure> {
        loop {
            self.ready()?;
            if let Some(connection) = self.lane.usable() {
                return Ok(connection);
            }
            let left = until.since(clock::now());
            let mut attempt = self.attempt();
            let made = timeout(left, attempt.wait_for(Option::is_some)).await;
            match made.map(|made| made.ok().and_then(|made| made.clone())) {
                Ok(Some(made)) => return made,
                // the runtime that it was made on has ended
                Ok(None) if !left.is_zero() => {}
                _ => {
                    let detail = format!("{}: no answer in time", self.connector.place);
                    return Err(Failure::transient(ErrorKind::Unavailable, detail));
                }
            }
        }
    }

    /// The present attempt to connect, or a new one: it has all the time that a connection may take, whoever waits for it.
    fn attempt(self: &Arc<Self>) -> CacheAttempt {
        let now = clock::now();
        let mut present = lock(&self.lane.attempt);
        if let Some((since, attempt)) = &*present
            && attempt.has_changed().is_ok()
            && attempt.borrow().is_none()
            && now.since(*since) <= self.connector.connect_timeout
        {
            return (**attempt).clone();
        }
        let (sender, attempt) = watch::channel(None);
        *present = Some((now, LeakAfterFork::new(attempt.clone(), self.connector.stamp)));
        drop(present);
        let shared = self.clone();
        tokio::spawn(async move {
            let made = shared.connect().await;
            let _ = sender.send(Some(made));
            // whoever waits has it; nothing else may keep the connection
            let mut present = lock(&shared.lane.attempt);
            if present.as_ref().is_some_and(|(since, _)| *since == now) {
                *present = None;
            }
        });
        attempt
    }

    async fn connect(&self) -> Result<Arc<CacheConnection>, Failure> {
        let number = self.lane.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let until = clock::now() + self.connector.connect_timeout;
        let connection = Arc::new(self.connector.connect(number, until).await?);
        if number > 1 {
            self.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        *lock(&self.lane.present) = Some(connection.clone());
        if let Err(closed) = self.ready() {
            self.lane.close();
            return Err(closed);
        }
        Ok(connection)
    }
}
