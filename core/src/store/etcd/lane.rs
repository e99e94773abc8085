//! The one connection of a client, made anew when it ended, to another member if there is one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::timeout;

use super::ClusterClient;
use super::connection::ClusterConnection;
use crate::machine::{Failure, Time};
use crate::sys::fork::LeakAfterFork;
use crate::sys::{clock, lock};

/// What becomes of an attempt to connect, once it is known.
type ClusterAttempt = watch::Receiver<Option<Result<Arc<ClusterConnection>, Failure>>>;

#[derive(Default)]
pub(super) struct ClusterLane {
    present: Mutex<Option<Arc<ClusterConnection>>>,
    /// The next connection in the making, and since when. It goes on when whoever wanted it first has no time left.
    attempt: Mutex<Option<(Time, LeakAfterFork<ClusterAttempt>)>>,
    /// The member that is tried first.
    next_member: AtomicUsize,
    /// How many connections there have been.
    pub(super) made: AtomicU64,
}

impl ClusterLane {
    fn usable(&self) -> Option<Arc<ClusterConnection>> {
        lock(&self.present).as_ref().filter(|connection| connection.is_usable()).cloned()
    }

    pub(super) fn close(&self) {
        drop(lock(&self.present).take());
    }
}

impl ClusterClient {
    /// The present connection, or a new one. A member that failed is tried last.
    pub(super) async fn connected(self: &Arc<Self>, until: Time) -> Result<Arc<ClusterConnection>, Failure> {
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
                _ => return Err(self.silent("no answer in time")),
            }
        }
    }

    /// The present attempt to connect, or a new one: it has all the time that a connection may take, whoever waits for it.
    fn attempt(self: &Arc<Self>) -> ClusterAttempt {
        let now = clock::now();
        let mut present = lock(&self.lane.attempt);
        if let Some((since, attempt)) = &*present
            && attempt.has_changed().is_ok()
            && attempt.borrow().is_none()
            && now.since(*since) <= self.connector.limits.connect
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

    async fn connect(&self) -> Result<Arc<ClusterConnection>, Failure> {
        let until = clock::now() + self.connector.limits.connect;
        let first = self.lane.next_member.load(Ordering::Relaxed);
        let (connection, member) = self.connector.connect(first, until).await?;
        self.lane.next_member.store(member + 1, Ordering::Relaxed);
        self.lane.made.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(connection);
        *lock(&self.lane.present) = Some(connection.clone());
        if let Err(closed) = self.ready() {
            self.lane.close();
            return Err(closed);
        }
        Ok(connection)
    }
}
