//! One re-entry of a hold: the server is asked to set the new count, as often as the caller's wait allows.

use std::sync::Arc;
use std::time::Duration;

use super::count_sync::sync_count;
use super::engine::Engine;
use super::failures::lost;
use super::failures::{cancelled, failed};
use super::hold::Hold;
use super::lock_spec::LockSpec;
use super::metrics::count;
use super::sleep_until;
use crate::error::Error;
use crate::machine::{
    Acquire, AcquireLimits, Answer, Jitter, LossReason, Op, Outcome, Owner, Reply, Step, Time, Verdict,
};
use crate::store::Interrupt;
use crate::sys::{clock, lock};

/// A re-entry in progress. Dropped before its answer, it has not happened.
pub(crate) struct Reentry {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    owner: Owner,
    count: u64,
    /// When to ask again and when to give up, as for any acquire.
    acquire: Acquire,
    jitter: Jitter,
    /// The registry was told how it ended.
    settled: bool,
    /// The server may have set the count, or may still do so.
    may_be_set: bool,
}

/// The result of a re-entry.
pub(crate) enum ReentryResult {
    /// Entered.
    Inside(Arc<Hold>),
    /// The hold was released meanwhile: start again.
    Restart,
}

enum ReentryStep {
    Send(Time),
    Pause(Time),
    Restart,
}

impl Drop for Reentry {
    fn drop(&mut self) {
        if self.settled || !self.engine.is_here() {
            return;
        }
        lock(&self.engine.registry).entered(self.hold.key(), &self.owner, self.hold.id, false);
        self.engine.registry_changed.notify_waiters();
        if self.may_be_set {
            sync_count(&self.engine, &self.hold);
        }
    }
}

impl Reentry {
    pub(crate) fn new(engine: &Arc<Engine>, hold: Arc<Hold>, owner: &Owner, count: u64) -> Reentry {
        let pace = Acquire::new((**hold.terms()).clone(), AcquireLimits::default(), clock::now());
        let (engine, owner, jitter) = (engine.clone(), owner.clone(), engine.jitter());
        Reentry { engine, hold, owner, count, acquire: pace, jitter, settled: false, may_be_set: false }
    }

    /// Limits how long the server may be asked.
    pub(crate) fn within(mut self, wait: Option<Duration>) -> Reentry {
        let options = &self.engine.options;
        let patience = AcquireLimits {
            wait,
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            unreachable_limit: options.unreachable_limit,
            look_every: None,
            believes_messages: false,
            place_for: None,
        };
        self.acquire = Acquire::new((**self.hold.terms()).clone(), patience, clock::now());
        self
    }

    fn op(&mut self) -> Op {
        let ttl_ms = self.hold.terms().server_ttl_ms(self.hold.terms().ttl);
        self.may_be_set = true;
        Op::SetCount { claim: self.hold.claim.clone(), count: self.count, ttl_ms }
    }

    /// Whether the hold was released (dropped, detached) since: then no call is inside any more.
    fn is_released(&self) -> bool {
        lock(&self.engine.registry).count(self.hold.key(), &self.owner, self.hold.id) == 0
    }

    fn next(&mut self, spec: &LockSpec) -> Result<ReentryStep, Error> {
        self.engine.check_open("acquire").map_err(|error| error.on(&spec.name))?;
        if self.is_released() {
            return Ok(ReentryStep::Restart);
        }
        let now = clock::now();
        if !self.hold.lease.is_held(now) {
            return Err(lost(&self.hold, &spec.name));
        }
        match self.acquire.next(now) {
            Step::Attempt { until } => Ok(ReentryStep::Send(until)),
            Step::Watch { until } | Step::Sleep { until } => Ok(ReentryStep::Pause(until)),
            Step::Done(Verdict::Failed(failure)) => Err(failed(&self.engine, "re-enter", &spec.name, &failure)),
            Step::Done(Verdict::Granted { .. }) => Ok(ReentryStep::Restart),
        }
    }

    /// What the answer means; `None`: ask once more.
    fn answered(&mut self, spec: &LockSpec, answer: &Answer) -> Result<Option<ReentryResult>, Error> {
        let now = clock::now();
        match &answer.outcome {
            Outcome::Applied(Reply::Counted(true)) => {
                let deadline = self.hold.terms().deadline(answer.sent_at, self.hold.terms().ttl);
                let confirmed = self.hold.lease.confirm(now, deadline);
                if !confirmed && !self.is_released() {
                    return Err(lost(&self.hold, &spec.name));
                }
                self.settled = true;
                // the registry decides: a later leave counts this entry
                let inside = lock(&self.engine.registry).entered(self.hold.key(), &self.owner, self.hold.id, confirmed);
                self.engine.registry_changed.notify_waiters();
                if !inside {
                    return Ok(Some(ReentryResult::Restart));
                }
                count(&self.engine.metrics.acquired);
                Ok(Some(ReentryResult::Inside(self.hold.clone())))
            }
            Outcome::Applied(_) => {
                self.may_be_set = false;
                if self.is_released() {
                    return Ok(Some(ReentryResult::Restart));
                }
                self.hold.lease.lose(LossReason::Taken);
                self.engine.notify_lost(self.hold.id, self.hold.lease.loss().unwrap_or(LossReason::Taken));
                Err(lost(&self.hold, &spec.name))
            }
            Outcome::NotApplied(_) | Outcome::Indeterminate(_) => {
                self.acquire.answered(now, answer, &mut self.jitter);
                Ok(None)
            }
        }
    }

    /// Runs to the end, on the runtime.
    pub(crate) async fn run(&mut self, spec: &LockSpec) -> Result<ReentryResult, Error> {
        loop {
            match self.next(spec)? {
                ReentryStep::Restart => return Ok(ReentryResult::Restart),
                ReentryStep::Pause(until) => {
                    let engine = self.engine.clone();
                    let closing = engine.closing.notified();
                    if !engine.is_closed() {
                        // boxed: it is rare, and would make the future of every acquire larger
                        let mut over = Box::pin(sleep_until(until));
                        tokio::select! {
                            () = &mut over => {}
                            () = closing => {}
                        }
                    }
                }
                ReentryStep::Send(until) => {
                    let op = self.op();
                    let answer = self.engine.store.call(op, until).await;
                    self.engine.observe_clock(&answer);
                    if let Some(turn) = self.answered(spec, &answer)? {
                        return Ok(turn);
                    }
                }
            }
        }
    }

    /// Runs as far as the calling thread can: `None` when it has to wait.
    pub(crate) fn run_blocking(
        &mut self,
        spec: &LockSpec,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<ReentryResult>, Error> {
        loop {
            match self.next(spec)? {
                ReentryStep::Restart => return Ok(Some(ReentryResult::Restart)),
                ReentryStep::Pause(_) => return Ok(None),
                ReentryStep::Send(until) => {
                    let op = self.op();
                    let answer = self.engine.store.call_blocking(&op, until, interrupt);
                    self.engine.observe_clock(&answer);
                    if let Some(turn) = self.answered(spec, &answer)? {
                        return Ok(Some(turn));
                    }
                    if interrupt.interrupted() {
                        return Err(failed(&self.engine, "re-enter", &spec.name, &cancelled()));
                    }
                }
            }
        }
    }
}
