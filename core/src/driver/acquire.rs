//! Runs one acquire: does what the machine says, and reports the result. The first attempt of a blocking caller goes over
//! the caller's own connection; what waits runs on the runtime, except a thread that reads its own subscription.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::claim::{fresh_claim, info_now};
use super::engine::Engine;
use super::failures::{cancelled, closed, failed};
use super::gauge::WaitGauge;
use super::hold::Hold;
use super::lock_spec::LockSpec;
use super::metrics::count;
use super::release;
use super::sleep_until;
use super::undo_guard::UndoGuard;
use super::wait_queues::QueuePosition;
use crate::Error;
use crate::machine::{Acquire, AcquireLimits, Answer, Failure, Jitter, Kind, Op, Outcome, Step, Time, Verdict};
use crate::machine::{Token, naming};
use crate::store::{BlockingSubscription, Interrupt, Notification, SubscriptionState};
use crate::sys::clock;

mod place;

/// A longer wait is logged.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// One acquire in progress. Dropping it at any point leaves nothing held.
pub(crate) struct Acquiring {
    engine: Arc<Engine>,
    lock: LockSpec,
    queues: bool,
    machine: Acquire,
    jitter: Jitter,
    undo_guard: Option<UndoGuard>,
    position: Option<QueuePosition>,
    subscription: Option<watch::Receiver<SubscriptionState>>,
    /// The generation of the subscription at the last attempt.
    seen_generation: Option<u64>,
    info: Option<Arc<str>>,
    started: Time,
    /// Whether the long wait was logged.
    long_wait_logged: bool,
    /// Counted as cancelled if it is dropped before it has ended.
    gauge: WaitGauge,
}

impl Acquiring {
    pub(crate) fn new(engine: Arc<Engine>, lock: &LockSpec, wait: Option<Duration>) -> Acquiring {
        let now = clock::now();
        // also what a place is kept for: the requests ask for no more
        let lock = lock.bounded();
        let limits = AcquireLimits {
            wait,
            connect_timeout: engine.options.connect_timeout,
            request_timeout: engine.options.request_timeout,
            unreachable_limit: engine.options.unreachable_limit,
            look_every: lock.look_every(),
            // whoever hands it over does not wait for replicas, and what it tells of has to be renewed at once
            believes_messages: engine.options.min_replicas == 0 && engine.renews_beside_callers,
            place_for: place::place_for(&engine, &lock),
        };
        let mut machine = Acquire::new((*lock.terms).clone(), limits, now);
        let position = (!machine.is_try()).then(|| QueuePosition::join(engine.clone(), lock.kind, &lock.key));
        if position.as_ref().is_some_and(QueuePosition::yields) {
            machine.yield_first(now);
        }
        Acquiring {
            queues: lock.kind.row().queues || engine.store.capabilities().place_min.is_some(),
            lock,
            machine,
            jitter: engine.jitter(),
            undo_guard: None,
            position,
            subscription: None,
            seen_generation: None,
            info: None,
            started: now,
            long_wait_logged: false,
            gauge: WaitGauge { engine: engine.clone(), ended: false, waiting: false },
            engine,
        }
    }

    /// Runs it to the end, on the runtime.
    pub(crate) async fn run(&mut self) -> Result<Arc<Hold>, Error> {
        if let Some(verdict) = self.wait_for_turn().await {
            return self.finish(verdict);
        }
        loop {
            if self.engine.is_closed() {
                return self.finish(Verdict::Failed(closed()));
            }
            match self.machine.next(clock::now()) {
                Step::Attempt { until } => self.attempt(until).await?,
                // boxed, so that the future of an acquire without waiting is small
                Step::Watch { until } => Box::pin(self.watch(until)).await,
                Step::Sleep { until } => Box::pin(self.sleep(until)).await,
                Step::Done(verdict) => {
                    if let Some(result) = self.deliver(verdict) {
                        return result;
                    }
                }
            }
        }
    }

    /// Runs it on the calling thread, to the end or until it has to wait for a message that the thread cannot read itself.
    pub(crate) fn run_blocking(&mut self, interrupt: &dyn Interrupt) -> Option<Result<Arc<Hold>, Error>> {
        if self.position.as_ref().is_some_and(|position| !position.is_head()) {
            return None;
        }
        self.become_head();
        let mut subscription: Option<Box<dyn BlockingSubscription>> = None;
        loop {
            match self.machine.next(clock::now()) {
                Step::Attempt { until } => {
                    let op = match self.prepare() {
                        Ok(op) => op,
                        Err(error) => return Some(Err(error)),
                    };
                    if let Some(undo_guard) = &mut self.undo_guard {
                        undo_guard.sending(0);
                    }
                    let answer = self.engine.store.call_blocking(&op, until, interrupt);
                    self.engine.observe_clock(&answer);
                    self.answered(&answer);
                    if !matches!(answer.outcome, Outcome::Applied(_)) && subscription.take().is_some() {
                        // an unreachable server sends no messages
                        self.machine.watch_lost();
                    }
                }
                // one with a queue on the server needs a subscription that outlives its head: that of the runtime
                Step::Watch { until } if self.subscription.is_none() && !self.queues => {
                    self.note_waiting();
                    subscription = self.engine.store.subscribe_blocking(
                        self.lock.kind,
                        &self.lock.key,
                        self.engine.tag,
                        until,
                        interrupt,
                    );
                    subscription.as_ref()?;
                    self.machine.watch_confirmed();
                }
                Step::Watch { .. } => return None,
                Step::Sleep { until } if self.machine.is_yielding() => {
                    thread::park_timeout(until.since(clock::now()));
                }
                Step::Sleep { until } => {
                    let Some(subscription) = &mut subscription else { return None };
                    self.set_herd_backoff();
                    let answering = self.machine.is_answering();
                    let end = if answering { until } else { self.machine.away_until().min(until) };
                    let pause = end.since(clock::now());
                    if !pause.is_zero() {
                        thread::park_timeout(pause);
                        if answering {
                            // the next attempt answers this message too
                            subscription.drain();
                        }
                        continue;
                    }
                    match subscription.recv(until, interrupt) {
                        Notification::Message => self.machine.hint(clock::now(), &mut self.jitter),
                        Notification::TimedOut => {}
                        Notification::Lost => {
                            // the shared subscription knows how long to pause between attempts to connect
                            self.machine.watch_lost();
                            return None;
                        }
                    }
                }
                Step::Done(verdict) => {
                    if let Some(result) = self.deliver(verdict) {
                        return Some(result);
                    }
                }
            }
            if self.gauge.waiting && self.engine.is_closed() {
                return Some(self.finish(Verdict::Failed(closed())));
            }
            if interrupt.interrupted() {
                return Some(self.finish(Verdict::Failed(cancelled())));
            }
        }
    }

    async fn wait_for_turn(&mut self) -> Option<Verdict> {
        loop {
            match &self.position {
                None => return None,
                Some(position) if position.is_head() => {
                    self.become_head();
                    return None;
                }
                Some(_) => {}
            }
            self.note_waiting();
            let Some(position) = &self.position else { return None };
            let mut over = Box::pin(sleep_until(self.machine.gives_up_at()));
            let out_of_patience = tokio::select! {
                () = position.notified() => false,
                () = &mut over => true,
            };
            if self.engine.is_closed() {
                return Some(Verdict::Failed(closed()));
            }
            if out_of_patience && let Step::Done(verdict) = self.machine.give_up_waiting() {
                return Some(verdict);
            }
        }
    }

    fn set_herd_backoff(&mut self) {
        if let Some(position) = &self.position {
            self.machine.set_herd_backoff(position.herd_backoff());
        }
    }

    fn note_waiting(&mut self) {
        if !self.gauge.waiting {
            self.gauge.waiting = true;
            // before an answer stores what this acquire knows of the contention
            self.set_herd_backoff();
            count(&self.engine.metrics.waiting);
        }
    }

    /// The request with the present token, or with a fresh one if that is dead.
    fn prepare(&mut self) -> Result<Op, Error> {
        let ttl_ms = self.lock.terms.server_ttl_ms(self.lock.terms.ttl);
        if self.engine.options.inspectable && self.undo_guard.as_ref().is_some_and(UndoGuard::is_clean) {
            // refused before: `since` in a new token is the time of this attempt, not the start of the wait
            self.undo_guard = None;
        }
        let claim = if let Some(undo_guard) = &self.undo_guard {
            undo_guard.claim().clone()
        } else {
            let (claim, info) = fresh_claim(&self.engine, &self.lock).map_err(|error| error.on(&self.lock.name))?;
            self.info = info;
            self.undo_guard = Some(UndoGuard::new(self.engine.clone(), claim.clone(), ttl_ms));
            claim
        };
        let subscribed = self.subscription.as_ref().is_some_and(|subscription| subscription.borrow().subscribed);
        self.machine.set_route(self.route());
        let entry = self.machine.queue_entry(self.engine.tag, subscribed);
        if claim.kind == Kind::Semaphore {
            let (total, info) = (self.lock.permits, info_now(&self.engine));
            return Ok(Op::AcquirePermits { claim, total, ttl_ms, info, entry });
        }
        if self.queues || self.lock.kind == Kind::Read {
            self.info = info_now(&self.engine).or(self.info.take());
            let (fence_ttl_ms, info) = (naming::fence_ttl_ms(ttl_ms), self.info.clone());
            return Ok(Op::Enter { claim, ttl_ms, fence_ttl_ms, info, entry });
        }
        let fence_ttl_ms = self.lock.fencing.then(|| naming::fence_ttl_ms(ttl_ms));
        Ok(Op::Acquire { claim, ttl_ms, fence_ttl_ms, info: self.info.clone() })
    }

    async fn attempt(&mut self, until: Time) -> Result<(), Error> {
        let op = self.prepare()?;
        if let Some(subscription) = &mut self.subscription {
            // this attempt answers every message before it
            self.seen_generation = Some(subscription.borrow_and_update().generation);
        }
        let connection = self.engine.store.connection();
        if let Some(undo_guard) = &mut self.undo_guard {
            undo_guard.sending(connection);
        }
        let answer = self.engine.store.call(op, until).await;
        self.engine.observe_clock(&answer);
        self.answered(&answer);
        Ok(())
    }

    fn answered(&mut self, answer: &Answer) {
        if let Some(undo_guard) = &mut self.undo_guard {
            undo_guard.answered(answer);
        }
        let now = clock::now();
        if self.machine.answered(now, answer, &mut self.jitter) == Token::Retire {
            // granted too late: its undo is queued, and the next attempt has a token of its own
            self.undo_guard = None;
        }
        if self.gauge.waiting && !self.long_wait_logged && now.since(self.started) >= LONG_WAIT {
            self.long_wait_logged = true;
            let (lock, waited) = (self.lock.name.escape_ascii(), now.since(self.started));
            let why = answer.outcome.failure().map_or("somebody else has it", |failure| &failure.detail);
            tracing::info!(%lock, ?waited, why, "onelock: still waiting for a lock");
        }
        if let Some(position) = &mut self.position {
            position.set_handover(self.machine.spacing(), self.machine.unreachable_since(), self.seen_generation);
            if self.gauge.waiting {
                position.set_herd_backoff(self.machine.herd_backoff());
            }
        }
    }

    async fn watch(&mut self, until: Time) {
        self.note_waiting();
        let Some(position) = &self.position else {
            self.machine.watch_failed();
            return;
        };
        let mut subscription = position.subscribe(&**self.engine.store);
        let ready = async {
            subscription.wait_for(|heard| heard.subscribed || heard.refused).await.is_ok_and(|heard| heard.subscribed)
        };
        let confirmed = tokio::select! {
            confirmed = ready => confirmed,
            () = sleep_until(until) => false,
        };
        if confirmed {
            self.machine.watch_confirmed();
        } else {
            self.machine.watch_failed();
        }
        self.subscription = Some(subscription);
    }

    async fn sleep(&mut self, until: Time) {
        self.note_waiting();
        self.set_herd_backoff();
        let closing = self.engine.closing.notified();
        if self.engine.is_closed() {
            return;
        }
        let heard = async {
            let alive = match &mut self.subscription {
                Some(subscription) => subscription.changed().await.is_ok(),
                None => false,
            };
            if !alive {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = heard => {}
            () = sleep_until(until) => return,
            () = closing => return,
        }
        if !self.is_told() {
            self.machine.hint(clock::now(), &mut self.jitter);
        }
    }

    /// Returns the verdict, after a last look at the clock; `None` when the grant has expired by now.
    fn deliver(&mut self, verdict: Verdict) -> Option<Result<Arc<Hold>, Error>> {
        let now = clock::now();
        if let Verdict::Granted { deadline, .. } = &verdict
            && !self.machine.is_worth_handing_out(now, *deadline)
        {
            self.undo_guard = None;
            self.machine.too_late(now, &mut self.jitter);
            return None;
        }
        Some(self.finish(verdict))
    }

    fn finish(&mut self, verdict: Verdict) -> Result<Arc<Hold>, Error> {
        self.gauge.ended = true;
        if matches!(verdict, Verdict::Failed(_)) {
            self.pass_on();
        }
        // dropping the guard queues the undo that is still due; a closed client grants nothing
        let (deadline, fence, told, mut undo_guard) = match (verdict, self.undo_guard.take()) {
            (Verdict::Granted { deadline, fence, told }, Some(undo_guard)) if !self.engine.is_closed() => {
                (deadline, fence, told, undo_guard)
            }
            (Verdict::Granted { .. }, _) => return Err(self.fail(&closed())),
            (Verdict::Failed(failure), _) => return Err(self.fail(&failure)),
        };
        let now = clock::now();
        let (claim, uncertainty) = (undo_guard.claim().clone(), undo_guard.settle());
        let hold = Arc::new(Hold::new(
            self.engine.new_lease_id(),
            claim,
            self.lock.terms.clone(),
            fence.filter(|_| self.lock.fencing),
            now,
            uncertainty,
            self.lock.owner.clone(),
        ));
        hold.lease.grant(deadline);
        self.lock.listen(&hold);
        self.engine.arm(&hold, told);
        if self.engine.is_closed() {
            // closed since the last check: `close` may have missed this hold
            release::release_in_background(&self.engine, &hold);
            return Err(self.fail(&closed()));
        }
        if self.gauge.waiting
            && let Some(position) = &self.position
        {
            position.got_after_waiting();
        }
        self.engine.metrics.record_wait(hold.kind(), now.since(self.started));
        count(&self.engine.metrics.acquired);
        if self.long_wait_logged {
            let waited = now.since(self.started);
            tracing::info!(lock = %self.lock.name.escape_ascii(), ?waited, "onelock: lock acquired after a long wait");
        }
        tracing::debug!(lock = %self.lock.name.escape_ascii(), fence, "lock acquired");
        Ok(hold)
    }

    fn fail(&self, failure: &Failure) -> Error {
        self.engine.metrics.failed(failure.kind);
        tracing::debug!(lock = %self.lock.name.escape_ascii(), cause = %failure.detail, "lock not acquired");
        failed(&self.engine, if self.machine.is_try() { "try_acquire" } else { "acquire" }, &self.lock.name, failure)
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.pass_on();
    }
}
