//! One granted hold, shared by its handles, the registry and the watchdog.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::spans::HoldSpan;
use crate::machine::{Claim, Key, Kind, LeaseId, LeaseState, LossReason, Owner, Terms, Time, Uncertainty};
use crate::sys::lock;

/// Called once, with the reason, when a lease is lost.
pub(crate) type OnLost = Box<dyn FnOnce(LossReason) + Send>;
/// Called once, with the reason and whether callbacks of the user run, on the task that finds a loss.
pub(crate) type OnLostAtOnce = Box<dyn FnOnce(LossReason, bool) + Send>;
/// Called at every missed renewal round while the lease is still valid.
pub(crate) type OnJeopardy = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Listeners {
    lost: Vec<OnLost>,
    /// They run before the others, on the task that found the loss; each with the number by which it is removed.
    at_once: Vec<(usize, OnLostAtOnce)>,
    jeopardy: Vec<OnJeopardy>,
    told: bool,
}

/// The shared part of one outermost acquisition.
pub(crate) struct Hold {
    pub(crate) id: LeaseId,
    pub(crate) claim: Claim,
    pub(crate) lease: Arc<LeaseState>,
    first_terms: Arc<Terms>,
    /// The terms that count from a later moment on than the grant.
    later_terms: OnceLock<(Arc<Terms>, Time)>,
    fence: Option<u64>,
    /// A writer's that was asked to become a reader's.
    downgraded: AtomicBool,
    /// The fencing token of the reader that it became.
    read_fence: OnceLock<u64>,
    pub(crate) granted_at: Time,
    /// The longest time to live that was requested from the server, in milliseconds; grows with `extend`.
    longest_ms: AtomicU64,
    /// Which requests of the acquire may still arrive.
    pub(crate) uncertainty: Uncertainty,
    /// The owner under which it is registered, for a reentrant lock with an owner.
    pub(crate) owner: Option<Owner>,
    /// A task is setting the server's count.
    recounting: AtomicBool,
    pub(crate) span: HoldSpan,
    lost: Notify,
    listeners: Mutex<Listeners>,
}

impl Hold {
    pub(crate) fn new(
        id: LeaseId,
        claim: Claim,
        terms: Arc<Terms>,
        fence: Option<u64>,
        granted_at: Time,
        uncertainty: Uncertainty,
        owner: Option<Owner>,
    ) -> Hold {
        Hold {
            id,
            claim,
            lease: Arc::new(LeaseState::new()),
            longest_ms: AtomicU64::new(terms.server_ttl_ms(terms.ttl)),
            first_terms: terms,
            later_terms: OnceLock::new(),
            fence,
            downgraded: AtomicBool::new(false),
            read_fence: OnceLock::new(),
            granted_at,
            uncertainty,
            owner,
            recounting: AtomicBool::new(false),
            span: HoldSpan::default(),
            lost: Notify::new(),
            listeners: Mutex::default(),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.claim.key
    }

    /// The kind of its claim; of a writer's that is being downgraded, or was, the reader's.
    pub(crate) fn kind(&self) -> Kind {
        if self.downgraded.load(Ordering::Acquire) { Kind::Read } else { self.claim.kind }
    }

    /// It does not count as a writer's from now on.
    pub(crate) fn begin_downgrade(&self) {
        self.downgraded.store(true, Ordering::Release);
    }

    /// The server says that it is a reader's, with this fencing token.
    pub(crate) fn downgraded(&self, fence: Option<u64>) {
        if let Some(fence) = fence {
            let _ = self.read_fence.set(fence);
        }
    }

    /// Whether the server has said that it is a reader's.
    pub(crate) fn is_downgraded(&self) -> bool {
        self.claim.kind == Kind::Read || self.read_fence.get().is_some()
    }

    /// The fencing token; `None` when the description wants none.
    pub(crate) fn fence(&self) -> Option<u64> {
        self.fence.map(|fence| self.read_fence.get().copied().unwrap_or(fence))
    }

    pub(crate) fn terms(&self) -> &Arc<Terms> {
        self.later_terms.get().map_or(&self.first_terms, |(terms, _)| terms)
    }

    /// Other terms count from now on. Only once.
    pub(crate) fn set_terms(&self, terms: Arc<Terms>, now: Time) {
        let _ = self.later_terms.set((terms, now));
    }

    /// From when on its limits count: the grant, or later.
    fn began_at(&self) -> Time {
        self.later_terms.get().map_or(self.granted_at, |(_, from)| *from)
    }

    /// Until when its key has to stay, however early it is released.
    pub(crate) fn stays_until(&self) -> Time {
        self.terms().stays_until(self.began_at())
    }

    /// `ttl`, or the part of it that `max_hold` leaves.
    pub(crate) fn bounded(&self, ttl: Duration, now: Time) -> Duration {
        match self.terms().max_hold {
            Some(most) => self.terms().bounded(ttl, (self.began_at() + most).since(now)),
            None => ttl,
        }
    }

    /// Notes that the server is asked to keep the key this long.
    pub(crate) fn note_requested_ttl_ms(&self, ttl_ms: u64) {
        self.longest_ms.fetch_max(ttl_ms, Ordering::AcqRel);
    }

    /// How long the key may live on the server if nobody removes it, in milliseconds.
    pub(crate) fn longest_ttl_ms(&self) -> u64 {
        self.longest_ms.load(Ordering::Acquire)
    }

    /// True for the one caller that must set the server's count from now on.
    pub(crate) fn begin_recount(&self) -> bool {
        !self.recounting.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_recount(&self) {
        self.recounting.store(false, Ordering::Release);
    }

    /// Waits until the lease is lost; for ever if it never is.
    pub(crate) async fn lost(&self) -> LossReason {
        loop {
            let told = self.lost.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if let Some(reason) = self.lease.loss() {
                return reason;
            }
            told.await;
        }
    }

    /// Wakes the callers that await the loss, runs what has to run at once, and returns the callbacks, once.
    pub(crate) fn take_loss_callbacks(&self, reason: LossReason, tell: bool) -> Vec<OnLost> {
        let (at_once, callbacks) = {
            let mut listeners = lock(&self.listeners);
            listeners.told = true;
            listeners.jeopardy = Vec::new();
            (std::mem::take(&mut listeners.at_once), std::mem::take(&mut listeners.lost))
        };
        self.lost.notify_waiters();
        for (_, callback) in at_once {
            callback(reason, tell);
        }
        callbacks
    }

    /// Has this run on the task that finds the loss, before the callbacks. Not for a hold that is lost already.
    pub(crate) fn on_lost_at_once(&self, number: usize, callback: OnLostAtOnce) {
        lock(&self.listeners).at_once.push((number, callback));
    }

    /// Removes what was to run at once under this number.
    pub(crate) fn forget_at_once(&self, number: usize) {
        let gone: Vec<_> = lock(&self.listeners).at_once.extract_if(.., |(of, _)| *of == number).collect();
        // what it owns goes outside the lock
        drop(gone);
    }

    pub(crate) fn jeopardy_listeners(&self) -> Vec<OnJeopardy> {
        lock(&self.listeners).jeopardy.clone()
    }

    /// Adds a loss callback; returns it, with the reason, when the loss was notified before.
    pub(crate) fn on_lost(&self, callback: OnLost) -> Option<(OnLost, LossReason)> {
        let mut listeners = lock(&self.listeners);
        if listeners.told
            && let Some(reason) = self.lease.loss()
        {
            return Some((callback, reason));
        }
        listeners.lost.push(callback);
        None
    }

    pub(crate) fn on_jeopardy(&self, callback: OnJeopardy) {
        lock(&self.listeners).jeopardy.push(callback);
    }
}
