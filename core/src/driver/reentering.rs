//! One re-entry of a hold: the server is asked to set the new count, as often as the caller's wait allows.

use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::entering::lost;
use super::failures::{cancelled, failed};
use super::hold::Hold;
use super::recounting::recount;
use super::sleep_until;
use super::tally::count;
use crate::error::Error;
use crate::lock::Description;
use crate::machine::{
    Acquire, AcquireLimits, Answer, Jitter, LossReason, Op, Outcome, Owner, Reply, Step, Time, Verdict,
};
use crate::store::Interrupt;
use crate::sys::{clock, lock};

/// A re-entry in progress. Dropped before its answer, it has not happened.
pub(crate) struct Reentering {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    owner: Owner,
    count: u64,
    /// When to ask again and when to give up, as for any acquire.
    pace: Acquire,
    jitter: Jitter,
    /// The registry was told how it ended.
    told: bool,
    /// The server may have set the count, or may still do so.
    doubtful: bool,
}

/// The result of a re-entry.
pub(crate) enum Turn {
    /// Entered.
    Inside(Arc<Hold>),
    /// The hold was released meanwhile: start again.
    Anew,
}

enum Next {
    Send(Time),
    Pause(Time),
    Anew,
}

impl Drop for Reentering {
    fn drop(&mut self) {
        if self.told || !self.engine.is_here() {
            return;
        }
        lock(&self.engine.registry).entered(self.hold.key(), &self.owner, self.hold.id, false);
        self.engine.registry_changed.notify_waiters();
        if self.doubtful {
            recount(&self.engine, &self.hold);
        }
    }
}

impl Reentering {
    pub(crate) fn new(engine: &Arc<Engine>, hold: Arc<Hold>, owner: &Owner, count: u64) -> Reentering {
        let pace = Acquire::new((*hold.terms).clone(), AcquireLimits::default(), clock::now());
        let (engine, owner, jitter) = (engine.clone(), owner.clone(), engine.jitter());
        Reentering { engine, hold, owner, count, pace, jitter, told: false, doubtful: false }
    }

    /// Limits how long the server may be asked.
    pub(crate) fn within(mut self, wait: Option<Duration>) -> Reentering {
        let options = &self.engine.options;
        let patience = AcquireLimits {
            wait,
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            unreachable_limit: options.unreachable_limit,
        };
        self.pace = Acquire::new((*self.hold.terms).clone(), patience, clock::now());
        self
    }

    fn op(&mut self) -> Op {
        let ttl_ms = self.hold.terms.server_ttl_ms(self.hold.terms.ttl);
        self.doubtful = true;
        Op::SetCount { claim: self.hold.claim.clone(), count: self.count, ttl_ms }
    }

    /// Whether the hold was released (dropped, detached) since: then no call is inside any more.
    fn is_given_back(&self) -> bool {
        lock(&self.engine.registry).count(self.hold.key(), &self.owner, self.hold.id) == 0
    }

    fn next(&mut self, what: &Description) -> Result<Next, Error> {
        self.engine.check_open("acquire").map_err(|error| error.on(&what.name))?;
        if self.is_given_back() {
            return Ok(Next::Anew);
        }
        let now = clock::now();
        if !self.hold.cell.is_held(now) {
            return Err(lost(&self.hold, &what.name));
        }
        match self.pace.next(now) {
            Step::Attempt { until } => Ok(Next::Send(until)),
            Step::Watch { until } | Step::Sleep { until } => Ok(Next::Pause(until)),
            Step::Done(Verdict::Failed(failure)) => Err(failed(&self.engine, "re-enter", &what.name, &failure)),
            Step::Done(Verdict::Granted { .. }) => Ok(Next::Anew),
        }
    }

    /// What the answer means; `None`: ask once more.
    fn answered(&mut self, what: &Description, answer: &Answer) -> Result<Option<Turn>, Error> {
        let now = clock::now();
        match &answer.outcome {
            Outcome::Applied(Reply::Counted(true)) => {
                let deadline = self.hold.terms.deadline(answer.sent_at, self.hold.terms.ttl);
                let confirmed = self.hold.cell.confirm(now, deadline);
                if !confirmed && !self.is_given_back() {
                    return Err(lost(&self.hold, &what.name));
                }
                self.told = true;
                // the registry decides: a later leave counts this entry
                let inside = lock(&self.engine.registry).entered(self.hold.key(), &self.owner, self.hold.id, confirmed);
                self.engine.registry_changed.notify_waiters();
                if !inside {
                    return Ok(Some(Turn::Anew));
                }
                count(&self.engine.tally.acquired);
                Ok(Some(Turn::Inside(self.hold.clone())))
            }
            Outcome::Applied(_) => {
                self.doubtful = false;
                if self.is_given_back() {
                    return Ok(Some(Turn::Anew));
                }
                self.hold.cell.lose(LossReason::Taken);
                self.engine.tell_lost(self.hold.id, self.hold.cell.loss().unwrap_or(LossReason::Taken));
                Err(lost(&self.hold, &what.name))
            }
            Outcome::NotApplied(_) | Outcome::Indeterminate(_) => {
                self.pace.answered(now, answer, &mut self.jitter);
                Ok(None)
            }
        }
    }

    /// Runs to the end, on the runtime.
    pub(crate) async fn run(&mut self, what: &Description) -> Result<Turn, Error> {
        loop {
            match self.next(what)? {
                Next::Anew => return Ok(Turn::Anew),
                Next::Pause(until) => {
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
                Next::Send(until) => {
                    let op = self.op();
                    let answer = self.engine.store.call(op, until).await;
                    self.engine.observe_clock(&answer);
                    if let Some(turn) = self.answered(what, &answer)? {
                        return Ok(turn);
                    }
                }
            }
        }
    }

    /// Runs as far as the calling thread can: `None` when it has to wait.
    pub(crate) fn run_on_thread(
        &mut self,
        what: &Description,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Turn>, Error> {
        loop {
            match self.next(what)? {
                Next::Anew => return Ok(Some(Turn::Anew)),
                Next::Pause(_) => return Ok(None),
                Next::Send(until) => {
                    let op = self.op();
                    let answer = self.engine.store.call_blocking(&op, until, interrupt);
                    self.engine.observe_clock(&answer);
                    if let Some(turn) = self.answered(what, &answer)? {
                        return Ok(Some(turn));
                    }
                    if interrupt.interrupted() {
                        return Err(failed(&self.engine, "re-enter", &what.name, &cancelled()));
                    }
                }
            }
        }
    }
}
