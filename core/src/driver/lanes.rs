//! The local lines of waiters, one per lock, each with its subscription while anybody waits.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, watch};

use crate::backend::{Hearing, Store, Subscription};
use crate::driver::engine::Engine;
use crate::driver::lock;
use crate::machine::{Key, Kind, Line, Rivalry, Spacing, Ticket, Time};

type Name = (Kind, Key);

#[derive(Default)]
struct Lane {
    line: Line<Arc<Notify>>,
    subscription: Option<Subscription>,
    away_since: Option<Time>,
    /// How much had been heard when the last head made its last attempt.
    heard: Option<u64>,
}

/// All lines of one client.
pub(crate) struct Lanes {
    lanes: Mutex<HashMap<Name, Lane>>,
    /// What is expected of the race for a lock. It outlives the line: several locks share a place, which costs one of them
    /// a moment at worst.
    rivalries: [AtomicU8; 256],
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { lanes: Mutex::default(), rivalries: [const { AtomicU8::new(0) }; 256] }
    }
}

impl Lanes {
    /// How many locks somebody waits for. Zero at rest.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.lanes).len()
    }

    /// Wakes every waiter, so that it sees that the client was closed.
    pub(crate) fn wake_all(&self) {
        for lane in lock(&self.lanes).values() {
            for waiter in lane.line.waiters() {
                waiter.notify_one();
            }
        }
    }

    fn rivalry(&self, name: &Name) -> &AtomicU8 {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        &self.rivalries[hasher.finish() as usize % self.rivalries.len()]
    }
}

/// One waiter's place in a line. Dropping it leaves the line and moves the next one up.
pub(crate) struct Seat {
    engine: Arc<Engine>,
    name: Name,
    ticket: Ticket,
    moved_up: Arc<Notify>,
    /// There was no line: it is the head for good, and there is nothing to inherit. The usual case takes no more locks.
    alone_at_first: bool,
    word: Option<Word>,
}

/// What a head has to tell the next one.
#[derive(Clone, Copy)]
struct Word {
    spacing: Spacing,
    away_since: Option<Time>,
    heard: Option<u64>,
}

impl Seat {
    /// Joins the line of this lock.
    pub(crate) fn take(engine: Arc<Engine>, kind: Kind, key: &Key) -> Seat {
        let name = (kind, key.clone());
        let moved_up = Arc::new(Notify::new());
        let (ticket, alone_at_first) = {
            let mut lanes = lock(&engine.lanes.lanes);
            let line = &mut lanes.entry(name.clone()).or_default().line;
            let alone = line.is_empty();
            (line.join(moved_up.clone()), alone)
        };
        Seat { engine, name, ticket, moved_up, alone_at_first, word: None }
    }

    fn with<R>(&self, look: impl FnOnce(&mut Lane) -> R) -> Option<R> {
        lock(&self.engine.lanes.lanes).get_mut(&self.name).map(look)
    }

    /// Whether this waiter is the one that talks to the server.
    pub(crate) fn is_head(&self) -> bool {
        self.alone_at_first || self.with(|lane| lane.line.is_head(self.ticket)).unwrap_or(true)
    }

    /// Waits for a reason to look whether it moved up (or the client was closed).
    pub(crate) async fn nudged(&self) {
        self.moved_up.notified().await;
    }

    /// The distance that this head has to keep after the one before, since when the server has been away, and how much had
    /// been heard at the last attempt.
    pub(crate) fn inheritance(&self) -> (Spacing, Option<Time>, Option<u64>) {
        if self.alone_at_first {
            return (Spacing::default(), None, None);
        }
        self.with(|lane| (lane.line.spacing(), lane.away_since, lane.heard)).unwrap_or_default()
    }

    /// Leaves word for the next head, who hears it when this seat becomes free.
    pub(crate) fn leave_word(&mut self, spacing: Spacing, away_since: Option<Time>, heard: Option<u64>) {
        self.word = Some(Word { spacing, away_since, heard });
    }

    /// What this client knows of its rivals for the lock.
    pub(crate) fn rivalry(&self) -> Rivalry {
        Rivalry::from_steps(self.engine.lanes.rivalry(&self.name).load(Ordering::Relaxed))
    }

    /// What it has learned.
    pub(crate) fn note_rivalry(&self, rivalry: Rivalry) {
        self.engine.lanes.rivalry(&self.name).store(rivalry.steps(), Ordering::Relaxed);
    }

    /// The line's subscription if there is one already.
    pub(crate) fn hearing(&self) -> Option<watch::Receiver<Hearing>> {
        self.with(|lane| lane.subscription.as_ref().map(|subscription| subscription.hearing.clone())).flatten()
    }

    /// Subscribes, once for the whole line. Only the head does.
    pub(crate) fn subscribe(&self, store: &dyn Store) -> watch::Receiver<Hearing> {
        if let Some(hearing) = self.hearing() {
            return hearing;
        }
        let subscription = store.subscribe(self.name.0, &self.name.1);
        let hearing = subscription.hearing.clone();
        let replaced = self.with(|lane| lane.subscription.replace(subscription));
        drop(replaced); // outside the lock: its guard unsubscribes
        hearing
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.engine.is_here() {
            return;
        }
        let mut lanes = lock(&self.engine.lanes.lanes);
        let Some(lane) = lanes.get_mut(&self.name) else { return };
        if let Some(word) = self.word {
            lane.away_since = word.away_since;
            lane.heard = word.heard;
            lane.line.keep(word.spacing);
        }
        if let Some(next) = lane.line.leave(self.ticket) {
            next.notify_one();
        }
        let empty = if lane.line.is_empty() { lanes.remove(&self.name) } else { None };
        drop(lanes);
        drop(empty); // outside the lock: its subscription ends here
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[tokio::test]
    async fn inspection_tells_when_it_was_granted_not_when_the_wait_began() {
        let client = crate::Client::builder().inspectable(true).connect("memory://").await.unwrap();
        for lock in [client.lock("a"), client.reentrant_lock("b")] {
            let lease = lock.acquire().await.unwrap();
            let waiter = {
                let lock = lock.clone();
                tokio::spawn(async move { lock.acquire().await })
            };
            while client.stats().waiting == 0 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
            let freed_ms = crate::driver::clock::wall_us() / 1000;
            lease.release().await.unwrap();
            let lease = waiter.await.unwrap().unwrap();
            let owner = client.inspect(lock.name()).await.unwrap().unwrap().owner.unwrap();
            assert!(owner.since_ms >= freed_ms, "{} < {freed_ms}", owner.since_ms);
            lease.release().await.unwrap();
        }
    }

    #[tokio::test]
    async fn after_the_last_waiter_nothing_is_left() {
        let client = crate::Client::connect("memory://").await.unwrap();
        let lease = client.lock("a").acquire().await.unwrap();
        let waiter = {
            let client = client.clone();
            tokio::spawn(async move { client.lock("a").acquire().await })
        };
        let engine = client.engine().unwrap();
        while client.stats().waiting == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(engine.lanes.len(), 1);
        assert_eq!(
            client.lock("a").acquire_within(Duration::from_millis(5)).await.unwrap_err().kind(),
            crate::ErrorKind::Timeout
        );
        lease.release().await.unwrap();
        let lease = waiter.await.unwrap().unwrap();
        assert!(lease.is_held());
        assert_eq!(engine.lanes.len(), 0);
        assert_eq!(client.stats().waiting, 0);
    }
}
