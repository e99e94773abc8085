//! The engine of one client in one process: its store, renewal schedule, wait queues, cleanup and registry. A forked
//! child makes a new one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::background::{self, CleanupTask, DeadlineWaker};
use super::callbacks::Callbacks;
use super::hold::Hold;
use super::metrics::{Metrics, Stats, count};
use super::wait_queues::WaitQueues;
use crate::config::Options;
use crate::machine::{
    Anomaly, Answer, CleanupQueue, ClientTag, ClockWatch, Grade, Guarded, Jitter, LeaseId, LossReason, PendingUndo,
    Registry, Terms, Time, UndoId, Watchdog, token,
};
use crate::store::SharedStore;
use crate::sys::fork::{LeakAfterFork, ProcessStamp};
use crate::sys::host;
use crate::sys::random::random;
use crate::sys::task::{self, Handle};
use crate::sys::{clock, lock};
use crate::{Error, ErrorKind};

const GRADES: [Grade; 4] = [Grade::None, Grade::BestEffort, Grade::ClockBounded, Grade::Strict];

/// The renewal schedule and its holds, under one lock.
pub(crate) struct RenewalSchedule {
    pub(crate) watchdog: Watchdog,
    holds: HashMap<LeaseId, Arc<Hold>>,
}

/// The cleanup queue, and the engine itself while the queue is not empty: cleanup outlives the last handle.
pub(crate) struct CleanupState {
    pub(crate) queue: CleanupQueue,
    /// Holds that were dropped while they were held: the first answer tells whether they still were.
    pub(crate) believed: HashMap<UndoId, Arc<Hold>>,
    keep_alive: Option<Arc<Engine>>,
    /// The runtime has ended: no task cleans up, and what is left ends with its ttl.
    abandoned: bool,
}

impl CleanupState {
    /// Releases the engine once the queue is empty. The caller drops it outside the lock.
    pub(crate) fn release_engine(&mut self) -> Option<Arc<Engine>> {
        if self.queue.is_empty() { self.keep_alive.take() } else { None }
    }
}

/// The shared state behind a client and its leases.
///
/// A forked child may drop it, or any handle on it, at any time: what must not be dropped there (what holds sockets) is
/// guarded here, once, so that handles need not check the process each time they are cloned or dropped.
pub(crate) struct Engine {
    pub(crate) stamp: ProcessStamp,
    pub(crate) uuid: String,
    /// The first half of it: names this client in the channels of its grants.
    pub(crate) tag: ClientTag,
    pub(crate) host: String,
    pub(crate) options: Arc<Options>,
    pub(crate) store: LeakAfterFork<SharedStore>,
    pub(crate) runtime: LeakAfterFork<Handle>,
    pub(crate) renewals: Mutex<RenewalSchedule>,
    pub(crate) renewal_waker: Arc<DeadlineWaker>,
    pub(crate) cleanup: Mutex<CleanupState>,
    pub(crate) cleanup_waker: Arc<DeadlineWaker>,
    /// Notified whenever everything was undone, as far as the server can tell.
    pub(crate) cleanup_done: Notify,
    /// Requests in flight whose answer may leave something to undo, and those that keep a detached hold.
    pub(crate) claims_in_progress: AtomicU64,
    pub(crate) wait_queues: LeakAfterFork<WaitQueues>,
    pub(crate) registry: Mutex<Registry<Arc<Hold>>>,
    pub(crate) registry_changed: Notify,
    pub(crate) metrics: Metrics,
    callbacks: Arc<Callbacks>,
    clock_watch: Mutex<ClockWatch>,
    /// How often the server's clock was seen to jump.
    pub(crate) clock_jumps: AtomicU64,
    jitter: Mutex<Jitter>,
    next_lease: AtomicU64,
    closed: AtomicBool,
    /// Renewals go on while a caller computes: the runtime is the library's own, or has more than one thread.
    pub(crate) renews_beside_callers: bool,
    /// The runtime has ended, and with it all background work.
    runtime_ended: AtomicBool,
    /// How strong fencing tokens are, once the server was checked; 0 before.
    grade: AtomicU8,
    checking: AtomicBool,
    pub(crate) closing: Notify,
}

impl Engine {
    /// Starts an engine, with its background tasks `on` a runtime, the library's `own` or the caller's. Opens no socket.
    pub(crate) fn start(
        options: Arc<Options>,
        store: SharedStore,
        on: Handle,
        own: bool,
        metrics: Metrics,
    ) -> Result<Arc<Self>, Error> {
        let seed = random()?;
        let seeds = |from: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&seed[from..from + 8]);
            u64::from_le_bytes(bytes)
        };
        let watchdog = Watchdog::new(options.request_timeout, Jitter::new(seeds(0)));
        let stamp = ProcessStamp::here();
        let uuid = token::client_uuid(random()?);
        let engine = Arc::new(Engine {
            stamp,
            tag: ClientTag::of(&uuid),
            uuid,
            host: host(),
            renews_beside_callers: own || task::has_several_threads(&on),
            store: LeakAfterFork::new(store, stamp),
            runtime: LeakAfterFork::new(on, stamp),
            renewals: Mutex::new(RenewalSchedule { watchdog, holds: HashMap::new() }),
            renewal_waker: Arc::new(DeadlineWaker::new()),
            cleanup: Mutex::new(CleanupState {
                queue: CleanupQueue::new(Jitter::new(seeds(8))),
                believed: HashMap::new(),
                keep_alive: None,
                abandoned: false,
            }),
            cleanup_waker: Arc::new(DeadlineWaker::new()),
            cleanup_done: Notify::new(),
            claims_in_progress: AtomicU64::new(0),
            wait_queues: LeakAfterFork::new(WaitQueues::default(), stamp),
            registry: Mutex::default(),
            registry_changed: Notify::new(),
            metrics,
            callbacks: Arc::default(),
            clock_jumps: AtomicU64::new(0),
            clock_watch: Mutex::new(ClockWatch::new(options.terms.drift_factor)),
            jitter: Mutex::new(Jitter::new(seeds(0) ^ seeds(8))),
            next_lease: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            runtime_ended: AtomicBool::new(false),
            grade: AtomicU8::new(0),
            checking: AtomicBool::new(false),
            closing: Notify::new(),
            options,
        });
        engine.runtime.spawn(background::run_renewal(Arc::downgrade(&engine), engine.renewal_waker.clone()));
        engine
            .runtime
            .spawn(background::run_cleanup(CleanupTask(Arc::downgrade(&engine)), engine.cleanup_waker.clone()));
        Ok(engine)
    }

    /// Whether this is the process that made it; a forked child leaves all of it alone.
    pub(crate) fn is_here(&self) -> bool {
        self.stamp.is_here()
    }

    pub(crate) fn new_lease_id(&self) -> LeaseId {
        self.next_lease.fetch_add(1, Ordering::Relaxed)
    }

    /// A separate generator for one acquire.
    pub(crate) fn jitter(&self) -> Jitter {
        Jitter::new(lock(&self.jitter).next_u64())
    }

    /// How strong fencing tokens are; the weakest grade until the server was checked.
    pub(crate) fn grade(&self) -> Grade {
        match self.grade.load(Ordering::Relaxed) {
            0 => Grade::BestEffort,
            number => GRADES.get(usize::from(number) - 1).copied().unwrap_or_default(),
        }
    }

    /// Whether the server was checked.
    pub(crate) fn is_checked(&self) -> bool {
        self.grade.load(Ordering::Relaxed) != 0
    }

    /// True for the one caller that must check the server in the background.
    pub(crate) fn begin_check(&self) -> bool {
        !self.is_checked() && !self.checking.swap(true, Ordering::Relaxed)
    }

    /// The check in the background failed: the next acquire tries again.
    pub(crate) fn check_failed(&self) {
        self.checking.store(false, Ordering::Relaxed);
    }

    pub(crate) fn set_grade(&self, grade: Grade) {
        let index = GRADES.iter().position(|known| *known == grade).unwrap_or(0);
        self.grade.store(index as u8 + 1, Ordering::Relaxed);
    }

    /// Whether its background work has ended with its runtime: leases would not be renewed.
    pub(crate) fn is_runtime_ended(&self) -> bool {
        self.runtime_ended.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self, tried: &str) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, tried, "this client was closed"));
        }
        Ok(())
    }

    /// Adds a granted hold to the renewal schedule; if a message told it, its deadline rests on a request sent at `told`.
    pub(crate) fn arm(&self, hold: &Arc<Hold>, told: Option<Time>) {
        let guarded = Guarded {
            claim: hold.claim.clone(),
            state: hold.lease.clone(),
            terms: hold.terms().clone(),
            ttl: hold.terms().ttl,
        };
        let mut watch = lock(&self.renewals);
        let due = match told {
            None => watch.watchdog.arm(hold.granted_at, hold.id, guarded),
            Some(sent_at) => watch.watchdog.arm_told(hold.granted_at, hold.id, guarded, sent_at),
        };
        watch.holds.insert(hold.id, hold.clone());
        drop(watch);
        self.renewal_waker.wake_for(due);
    }

    /// Removes a hold from the schedule, before its release is sent. For the result see [`Watchdog::disarm`].
    pub(crate) fn disarm(&self, hold: &Hold) -> bool {
        let mut watch = lock(&self.renewals);
        let is_short = watch.watchdog.disarm(hold.id);
        let gone = watch.holds.remove(&hold.id);
        drop(watch);
        self.store.over(&hold.claim);
        if gone.is_some() {
            self.metrics.record_hold(hold);
        }
        is_short
    }

    /// A lease was extended.
    pub(crate) fn extended(&self, hold: &Hold, sent_at: Time, ttl: Duration) {
        let mut watch = lock(&self.renewals);
        watch.watchdog.extended(clock::now(), sent_at, hold.id, ttl);
        self.renewal_waker.wake_for(watch.watchdog.wake_at());
    }

    /// Other terms of a lease count from now on.
    pub(crate) fn set_terms(&self, hold: &Hold, terms: Arc<Terms>) {
        let now = clock::now();
        hold.set_terms(terms.clone(), now);
        let mut watch = lock(&self.renewals);
        watch.watchdog.set_terms(now, hold.id, terms);
        self.renewal_waker.wake_for(watch.watchdog.wake_at());
    }

    /// Every hold in the schedule.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        lock(&self.renewals).holds.values().cloned().collect()
    }

    /// A lease is lost: notifies its holder, once.
    pub(crate) fn notify_lost(&self, id: LeaseId, reason: LossReason) {
        let hold = {
            let mut watch = lock(&self.renewals);
            watch.watchdog.disarm(id);
            watch.holds.remove(&id)
        };
        let Some(hold) = hold else { return };
        self.store.over(&hold.claim);
        self.metrics.record_hold(&hold);
        self.notify_loss_of(&hold, reason);
    }

    /// A lease that is not in the schedule any more turned out to be lost: notifies its holder, once.
    pub(crate) fn notify_loss_of(&self, hold: &Hold, reason: LossReason) {
        count(&self.metrics.lost);
        hold.span.end("lost", Some(reason));
        tracing::warn!(lock = %hold.key().escape_ascii(), reason = reason.as_str(), "lock lost: {}", reason.explain());
        for callback in hold.take_loss_callbacks(reason, true) {
            self.run_callback(Box::new(move || callback(reason)));
        }
    }

    /// The client is closing: the lease is lost to its holder before it is released.
    pub(crate) fn lose_closed(&self, hold: &Hold, callbacks: bool) {
        if hold.lease.lapse(clock::now()) || !hold.lease.lose(LossReason::Closed) {
            if let Some(reason) = hold.lease.loss() {
                self.notify_lost(hold.id, reason);
            }
            return;
        }
        self.disarm(hold);
        count(&self.metrics.lost);
        hold.span.end("lost", Some(LossReason::Closed));
        tracing::info!(lock = %hold.key().escape_ascii(), "lock released: {}", LossReason::Closed.explain());
        for callback in hold.take_loss_callbacks(LossReason::Closed, callbacks) {
            if callbacks {
                self.run_callback(Box::new(move || callback(LossReason::Closed)));
            }
        }
    }

    /// A renewal round of a lease was missed: notifies its holder.
    pub(crate) fn notify_jeopardy(&self, id: LeaseId) {
        let Some(hold) = lock(&self.renewals).holds.get(&id).cloned() else { return };
        tracing::warn!(lock = %hold.key().escape_ascii(), "a renewal was missed; the lease is still valid");
        for callback in hold.jeopardy_listeners() {
            self.run_callback(Box::new(move || callback()));
        }
    }

    pub(crate) fn run_callback(&self, job: Box<dyn FnOnce() + Send>) {
        self.callbacks.run(&self.runtime, job);
    }

    /// Compares the server's clock with ours.
    pub(crate) fn observe_clock(self: &Arc<Self>, answer: &Answer) {
        let anomaly = lock(&self.clock_watch).observe(answer);
        if anomaly.is_some() {
            self.clock_jumps.fetch_add(1, Ordering::AcqRel);
        }
        match anomaly {
            None => {}
            Some(Anomaly::Backward(by)) => {
                tracing::warn!(?by, "clock anomaly: the server's clock fell behind; keys live longer than meant");
            }
            Some(Anomaly::Forward(by)) => {
                tracing::warn!(?by, "clock anomaly: the server's clock ran ahead; leases end early");
                let alarms = {
                    let mut watch = lock(&self.renewals);
                    let alarms = watch.watchdog.clock_jumped(clock::now(), answer, by);
                    self.renewal_waker.wake_for(watch.watchdog.wake_at());
                    alarms
                };
                background::apply_alarms(self, alarms);
            }
        }
    }

    /// Reserves memory for one more undo, so that a later `drop` cannot fail to record it.
    pub(crate) fn reserve_undo(&self) {
        lock(&self.cleanup).queue.reserve();
    }

    /// Queues an undo. Never blocks for I/O, needs no runtime context.
    pub(crate) fn take_undo(self: &Arc<Self>, undo: PendingUndo, believed: Option<Arc<Hold>>) {
        let now = clock::now();
        {
            let mut cleanup = lock(&self.cleanup);
            if cleanup.abandoned {
                return;
            }
            let id = cleanup.queue.take(now, undo);
            cleanup.believed.extend(believed.map(|hold| (id, hold)));
            cleanup.keep_alive.get_or_insert_with(|| self.clone());
        }
        self.cleanup_waker.wake_for(now);
    }

    /// The cleanup task has ended with its runtime: the queue is dropped.
    pub(crate) fn abandon_cleanup(&self) {
        self.runtime_ended.store(true, Ordering::Release);
        let mut cleanup = lock(&self.cleanup);
        cleanup.abandoned = true;
        cleanup.queue = CleanupQueue::new(self.jitter());
        let believed = std::mem::take(&mut cleanup.believed);
        let kept = cleanup.release_engine();
        drop(cleanup);
        self.cleanup_done.notify_waiters();
        drop((kept, believed));
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.metrics.snapshot();
        let store = self.store.stats();
        stats.held = lock(&self.renewals).holds.len() as u64;
        stats.cleaning = lock(&self.cleanup).queue.len() as u64;
        stats.commands_sent = store.commands_sent;
        stats.reconnects = store.reconnects;
        stats
    }

    /// A claim may have to be undone from here on, until [`Engine::claim_ended`].
    pub(crate) fn claim_began(&self) {
        self.claims_in_progress.fetch_add(1, Ordering::SeqCst);
    }

    /// The claim was granted, refused, or queued for cleanup.
    pub(crate) fn claim_ended(&self) {
        // only `close` waits for this, and it closes before it checks
        if self.claims_in_progress.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) {
            self.cleanup_done.notify_waiters();
        }
    }

    fn is_clean(&self) -> bool {
        // in this order: a claim is queued for cleanup before it ends
        self.claims_in_progress.load(Ordering::SeqCst) == 0 && lock(&self.cleanup).queue.is_answered()
    }

    /// Waits until everything was undone, as far as the server can tell, and no claim is in progress, or until `until`.
    pub(crate) async fn wait_for_cleanup(&self, until: Time) -> bool {
        loop {
            let clean = self.cleanup_done.notified();
            tokio::pin!(clean);
            clean.as_mut().enable();
            if self.is_clean() {
                return true;
            }
            tokio::select! {
                () = clean => {}
                () = crate::driver::sleep_until(until) => return self.is_clean(),
            }
        }
    }

    /// Grants no holds from here on; waiting acquires end. True for the one caller that did it.
    pub(crate) fn begin_close(&self) -> bool {
        let first = !self.closed.swap(true, Ordering::SeqCst);
        if first {
            self.closing.notify_waiters();
            self.registry_changed.notify_waiters();
            self.wait_queues.wake_all();
        }
        first
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.is_here() {
            // callbacks of the parent's holds may own anything
            let holds = self.renewals.get_mut().map(|watch| std::mem::take(&mut watch.holds));
            let believed = self.cleanup.get_mut().map(|cleanup| std::mem::take(&mut cleanup.believed));
            std::mem::forget((holds, believed));
            return;
        }
        // the tasks hold weak references: wake them, so that they end
        self.renewal_waker.wake();
        self.cleanup_waker.wake();
        self.store.close();
    }
}
