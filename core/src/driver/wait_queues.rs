//! The local wait queues, one per lock, each with its subscription while a caller waits.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, watch};

use super::engine::Engine;
use super::undo_guard::UndoGuard;
use crate::machine::token::parse_permits;
use crate::machine::{Claim, HerdBackoff, Key, Kind, Place, RETAKEN_MAX, Spacing, Time, WaitQueue, WaiterId};
use crate::store::{Store, Subscription, SubscriptionState};
use crate::sys::lock;

type Name = (Kind, Key);

#[derive(Default)]
struct LockQueue {
    queue: WaitQueue<Arc<Notify>>,
    subscription: Option<Subscription>,
    unreachable_since: Option<Time>,
    /// The generation of the subscription at the last attempt of the previous head.
    seen_generation: Option<u64>,
    /// What the previous head left in a queue on the server: the next head goes on with it, and with the last waiter it is
    /// undone.
    claim: Option<PassedClaim>,
}

/// A claim with a place in a queue on the server that passes from one waiter to the next.
pub(crate) struct PassedClaim {
    pub(crate) undo_guard: UndoGuard,
    pub(crate) place: Place,
}

impl PassedClaim {
    /// What is left of it for a waiter that wants so many permits (one, of other kinds). A claim for another number is given up;
    /// the waiter then enters where it stood.
    pub(crate) fn for_heir(mut self, count: u32, server_ttl_ms: u64) -> Option<UndoGuard> {
        if parse_permits(&self.undo_guard.claim().token).is_some_and(|(_, other)| u32::from(other) != count) {
            return None;
        }
        self.undo_guard.passed_on(server_ttl_ms);
        Some(self.undo_guard)
    }
}

/// All wait queues of one client.
pub(crate) struct WaitQueues {
    by_lock: Mutex<HashMap<Name, LockQueue>>,
    /// The herd backoff of each lock. It outlives the queue; locks with the same hash share an entry, which costs one
    /// of them a short pause at worst.
    herd_backoffs: [AtomicU8; 256],
    /// How often in a row this client released a lock for which others waited, and got it again without having waited.
    /// Locks with the same hash share an entry, as above.
    retaken: [AtomicU8; 256],
}

impl Default for WaitQueues {
    fn default() -> WaitQueues {
        WaitQueues {
            by_lock: Mutex::default(),
            herd_backoffs: [const { AtomicU8::new(0) }; 256],
            retaken: [const { AtomicU8::new(0) }; 256],
        }
    }
}

impl WaitQueues {
    /// How many locks have waiters. Zero at rest.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.by_lock).len()
    }

    /// Wakes every waiter, so that it sees that the client was closed.
    pub(crate) fn wake_all(&self) {
        for queue in lock(&self.by_lock).values() {
            for waiter in queue.queue.waiters() {
                waiter.notify_one();
            }
        }
    }

    fn herd_backoff(&self, name: &Name) -> &AtomicU8 {
        &self.herd_backoffs[place(name.0, &name.1)]
    }

    /// Whether an acquire of this lock is better off in the queue: others of this client are there, or it has to leave the
    /// lock to others first.
    pub(crate) fn is_contended(&self, kind: Kind, key: &Key) -> bool {
        self.retaken[place(kind, key)].load(Ordering::Relaxed) >= RETAKEN_MAX
            || lock(&self.by_lock).contains_key(&(kind, key.clone()))
    }

    /// A lock was released for which others wait.
    pub(crate) fn released_to_waiters(&self, claim: &Claim) {
        let retaken = &self.retaken[place(claim.kind, &claim.key)];
        retaken.store(retaken.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }
}

fn place(kind: Kind, key: &Key) -> usize {
    let mut hasher = DefaultHasher::new();
    (kind, key).hash(&mut hasher);
    hasher.finish() as usize % 256
}

/// One waiter's position in a queue. Dropping it leaves the queue and makes the next one the head.
pub(crate) struct QueuePosition {
    engine: Arc<Engine>,
    name: Name,
    waiter: WaiterId,
    became_head: Arc<Notify>,
    /// The queue was empty: it is the head for good, and inherits nothing. The usual case takes no more locks.
    alone_at_first: bool,
    handover: Option<Handover>,
}

/// What a head passes on to the next one.
#[derive(Clone, Copy)]
struct Handover {
    spacing: Spacing,
    away_since: Option<Time>,
    heard: Option<u64>,
}

impl QueuePosition {
    /// Joins the queue of this lock.
    pub(crate) fn join(engine: Arc<Engine>, kind: Kind, key: &Key) -> QueuePosition {
        let name = (kind, key.clone());
        let moved_up = Arc::new(Notify::new());
        let (waiter, alone_at_first) = {
            let mut queues = lock(&engine.wait_queues.by_lock);
            let queue = &mut queues.entry(name.clone()).or_default().queue;
            let alone = queue.is_empty();
            (queue.join(moved_up.clone()), alone)
        };
        QueuePosition { engine, name, waiter, became_head: moved_up, alone_at_first, handover: None }
    }

    fn with<R>(&self, look: impl FnOnce(&mut LockQueue) -> R) -> Option<R> {
        lock(&self.engine.wait_queues.by_lock).get_mut(&self.name).map(look)
    }

    /// Whether this waiter is the head, which talks to the server.
    pub(crate) fn is_head(&self) -> bool {
        self.alone_at_first || self.with(|queue| queue.queue.is_head(self.waiter)).unwrap_or(true)
    }

    /// Waits for a reason to check whether it became the head (or the client was closed).
    pub(crate) async fn notified(&self) {
        self.became_head.notified().await;
    }

    /// What the previous head passed on: the spacing to keep, since when the server has been unreachable, and the
    /// generation of the subscription at the last attempt.
    pub(crate) fn inheritance(&self) -> (Spacing, Option<Time>, Option<u64>) {
        if self.alone_at_first {
            return (Spacing::default(), None, None);
        }
        self.with(|queue| (queue.queue.spacing(), queue.unreachable_since, queue.seen_generation)).unwrap_or_default()
    }

    /// Stores what the next head gets when this position becomes free.
    pub(crate) fn set_handover(&mut self, spacing: Spacing, away_since: Option<Time>, heard: Option<u64>) {
        self.handover = Some(Handover { spacing, away_since, heard });
    }

    /// What this client knows of the contention for the lock.
    pub(crate) fn herd_backoff(&self) -> HerdBackoff {
        HerdBackoff::from_steps(self.engine.wait_queues.herd_backoff(&self.name).load(Ordering::Relaxed))
    }

    /// Whether this acquire first leaves the lock to others, since this client took it [`RETAKEN_MAX`] times in a row.
    pub(crate) fn yields(&self) -> bool {
        let retaken = &self.engine.wait_queues.retaken[place(self.name.0, &self.name.1)];
        let yields = self.alone_at_first && retaken.load(Ordering::Relaxed) >= RETAKEN_MAX;
        if yields {
            retaken.store(0, Ordering::Relaxed);
        }
        yields
    }

    /// Somebody else had the lock meanwhile.
    pub(crate) fn got_after_waiting(&self) {
        self.engine.wait_queues.retaken[place(self.name.0, &self.name.1)].store(0, Ordering::Relaxed);
    }

    /// Stores what it has learned.
    pub(crate) fn set_herd_backoff(&self, backoff: HerdBackoff) {
        self.engine.wait_queues.herd_backoff(&self.name).store(backoff.steps(), Ordering::Relaxed);
    }

    /// Leaves a claim to the next waiter. Returns it when nobody else waits.
    pub(crate) fn pass_on(&self, claim: PassedClaim) -> Option<PassedClaim> {
        let mut queues = lock(&self.engine.wait_queues.by_lock);
        match queues.get_mut(&self.name) {
            Some(queue) if queue.queue.waiters().count() > 1 => queue.claim.replace(claim),
            _ => Some(claim),
        }
    }

    /// The claim that the previous head left.
    pub(crate) fn take_claim(&self) -> Option<PassedClaim> {
        if self.alone_at_first { None } else { self.with(|queue| queue.claim.take()).flatten() }
    }

    /// The queue's subscription if there is one already.
    pub(crate) fn subscription_state(&self) -> Option<watch::Receiver<SubscriptionState>> {
        self.with(|queue| queue.subscription.as_ref().map(|subscription| subscription.state.clone())).flatten()
    }

    /// Subscribes, once for the whole queue. Only the head does.
    pub(crate) fn subscribe(&self, store: &dyn Store) -> watch::Receiver<SubscriptionState> {
        if let Some(state) = self.subscription_state() {
            return state;
        }
        let subscription = store.subscribe(self.name.0, &self.name.1, self.engine.tag);
        let state = subscription.state.clone();
        let replaced = self.with(|queue| queue.subscription.replace(subscription));
        drop(replaced); // outside the lock: its guard unsubscribes
        state
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        if !self.engine.is_here() {
            return;
        }
        let mut queues = lock(&self.engine.wait_queues.by_lock);
        let Some(queue) = queues.get_mut(&self.name) else { return };
        if let Some(handover) = self.handover {
            queue.unreachable_since = handover.away_since;
            queue.seen_generation = handover.heard;
            queue.queue.set_spacing(handover.spacing);
        }
        if let Some(next) = queue.queue.leave(self.waiter) {
            next.notify_one();
        }
        let empty = if queue.queue.is_empty() { queues.remove(&self.name) } else { None };
        drop(queues);
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
            let freed_ms = crate::sys::clock::wall_us() / 1000;
            lease.release().await.unwrap();
            let lease = waiter.await.unwrap().unwrap();
            let owner = client.inspect(lock.name()).await.unwrap().unwrap().owner.unwrap();
            assert!(owner.since_ms >= freed_ms, "{} < {freed_ms}", owner.since_ms);
            lease.release().await.unwrap();
        }
    }

    /// One task takes the lock again as soon as it has released it, another client's waits.
    #[tokio::test]
    async fn a_client_that_takes_a_lock_again_and_again_leaves_it_to_others() {
        let greedy = crate::Client::connect("memory://retaken").await.unwrap();
        let patient = crate::Client::connect("memory://retaken").await.unwrap();
        for _ in 0..20 {
            let mut lease = greedy.lock("a").acquire().await.unwrap();
            let waiter = {
                let patient = patient.clone();
                tokio::spawn(async move { patient.lock("a").acquire().await.unwrap().release().await.unwrap() })
            };
            while patient.stats().waiting == 0 {
                tokio::task::yield_now().await;
            }
            let mut taken = 0;
            // the store in memory answers at once: nothing else lets the waiter run
            while !waiter.is_finished() {
                lease.release().await.unwrap();
                lease = greedy.lock("a").acquire().await.unwrap();
                taken += 1;
                assert!(taken <= u32::from(crate::machine::RETAKEN_MAX) * 4, "taken {taken} times in a row");
            }
            lease.release().await.unwrap();
            waiter.await.unwrap();
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
        assert_eq!(engine.wait_queues.len(), 1);
        assert_eq!(
            client.lock("a").acquire_within(Duration::from_millis(5)).await.unwrap_err().kind(),
            crate::ErrorKind::Timeout
        );
        lease.release().await.unwrap();
        let lease = waiter.await.unwrap().unwrap();
        assert!(lease.is_held());
        assert_eq!(engine.wait_queues.len(), 0);
        assert_eq!(client.stats().waiting, 0);
    }
}
