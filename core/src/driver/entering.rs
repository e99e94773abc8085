//! Entering a lock: straight to the server, or through the registry when a reentrant lock has an owner.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Interrupt;
use crate::driver::acquiring::{Acquiring, cancelled, failed};
use crate::driver::engine::Engine;
use crate::driver::hold::Hold;
use crate::driver::tally::count;
use crate::driver::{clock, lock, sleep_until};
use crate::lock::Description;
use crate::machine::{Answer, Enter, Failure, LossReason, Op, Outcome, Owner, Reply, Time};
use crate::{Error, ErrorKind};

/// What entering takes next.
pub(crate) enum Way {
    /// The lock has to be acquired first. The place keeps others of the same owner waiting.
    First(Option<Place>),
    /// The hold is there: tell the server the new count.
    Again(Reentering),
    /// Somebody of the same owner is in the middle of something.
    Wait,
}

/// The registry's promise that nobody else acquires for this owner meanwhile.
pub(crate) struct Place {
    engine: Arc<Engine>,
    lock: Description,
    owner: Owner,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.engine.is_here() {
            lock(&self.engine.registry).abandoned(&self.lock.key, &self.owner);
            self.engine.registry_changed.notify_waiters();
        }
    }
}

impl Place {
    /// The first acquire was granted: others of this owner may enter.
    pub(crate) fn granted(self, hold: &Arc<Hold>) {
        lock(&self.engine.registry).granted(&self.lock.key, &self.owner, hold.id, hold.clone());
        // dropping `self` abandons nothing now, and wakes whoever waited
    }
}

/// A re-entry under way. Dropped before its answer, it has not happened.
pub(crate) struct Reentering {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    owner: Owner,
    count: u64,
    inside: bool,
}

impl Drop for Reentering {
    fn drop(&mut self) {
        if self.engine.is_here() {
            lock(&self.engine.registry).entered(self.hold.key(), &self.owner, self.hold.id, self.inside);
            self.engine.registry_changed.notify_waiters();
        }
    }
}

/// Which way this acquire goes.
pub(crate) fn way(engine: &Arc<Engine>, what: &Description) -> Result<Way, Error> {
    let Some(owner) = &what.owner else { return Ok(Way::First(None)) };
    let now = clock::now();
    let found = lock(&engine.registry).enter(&what.key, owner, |hold: &Arc<Hold>| hold.cell.is_held(now));
    Ok(match found {
        Enter::First => Way::First(Some(Place { engine: engine.clone(), lock: what.clone(), owner: owner.clone() })),
        Enter::Again { hold, count } => {
            Way::Again(Reentering { engine: engine.clone(), hold, owner: owner.clone(), count, inside: false })
        }
        Enter::Wait => Way::Wait,
        Enter::Lost(hold) => return Err(lost(&hold, &what.name)),
    })
}

/// The error for a hold that was lost.
pub(crate) fn lost(hold: &Hold, name: &[u8]) -> Error {
    let why = hold.cell.loss().map_or("it ended", LossReason::explain);
    Error::new(ErrorKind::Lost, "use the lease", format!("the lease was lost: {why}")).on(name)
}

impl Reentering {
    fn op(&self) -> Op {
        let ttl_ms = self.hold.terms.server_ttl_ms(self.hold.terms.ttl);
        Op::SetCount { claim: self.hold.claim.clone(), count: self.count, ttl_ms }
    }

    /// What the answer means: inside, ask once more, or an error.
    fn judge(&mut self, what: &Description, answer: &Answer) -> Result<bool, Error> {
        let now = clock::now();
        match &answer.outcome {
            Outcome::Applied(Reply::Counted(true)) => {
                let deadline = self.hold.terms.deadline(answer.sent_at, self.hold.terms.ttl);
                if !self.hold.cell.confirm(now, deadline) {
                    return Err(lost(&self.hold, &what.name));
                }
                self.inside = true;
                count(&self.engine.tally.acquired);
                Ok(true)
            }
            Outcome::Applied(_) => {
                self.hold.cell.lose(LossReason::Taken);
                self.engine.tell_lost(self.hold.id, self.hold.cell.loss().unwrap_or(LossReason::Taken));
                Err(lost(&self.hold, &what.name))
            }
            Outcome::NotApplied(failure) => Err(failed(&self.engine, "re-enter", &what.name, failure)),
            Outcome::Indeterminate(_) => Ok(false),
        }
    }
}

fn limits(engine: &Engine) -> (Time, Time) {
    let now = clock::now();
    let options = &engine.options;
    (now + options.request_timeout, now + options.connect_timeout + options.request_timeout * 2)
}

fn unanswered(engine: &Engine, what: &Description) -> Error {
    let failure = Failure::transient(ErrorKind::Unavailable, "no reply in time");
    failed(engine, "re-enter", &what.name, &failure)
}

/// Acquires or re-enters, from an async caller.
pub(crate) async fn enter(engine: Arc<Engine>, what: &Description, wait: Option<Duration>) -> Result<Arc<Hold>, Error> {
    let give_up_at = wait.map_or(Time::MAX, |wait| clock::now() + wait);
    loop {
        engine.check_open("acquire").map_err(|error| error.on(&what.name))?;
        let changed = engine.registry_changed.notified();
        tokio::pin!(changed);
        if what.owner.is_some() {
            // only an owner can be told to wait; to listen takes a lock that all tasks of the client share
            changed.as_mut().enable();
        }
        match way(&engine, what)? {
            Way::First(place) => {
                let mut acquiring = Acquiring::new(engine.clone(), what, remaining(wait, give_up_at));
                let hold = acquiring.run().await?;
                if let Some(place) = place {
                    place.granted(&hold);
                }
                return Ok(hold);
            }
            Way::Again(mut reentering) => {
                let (_, hard) = limits(&engine);
                for _ in 0..2 {
                    let answer = engine.store.call(reentering.op(), hard).await;
                    engine.observe_clock(&answer);
                    if reentering.judge(what, &answer)? {
                        return Ok(reentering.hold.clone());
                    }
                }
                return Err(unanswered(&engine, what));
            }
            Way::Wait => {
                // boxed: it is rare, and every acquire would be large for it
                let mut over = Box::pin(sleep_until(give_up_at));
                tokio::select! {
                    () = changed => {}
                    () = &mut over => {
                        let detail = "the same owner is in the middle of an acquire or a release";
                        let kind = if wait == Some(Duration::ZERO) { ErrorKind::Busy } else { ErrorKind::Timeout };
                        engine.tally.failed(kind);
                        return Err(Error::new(kind, "acquire", detail).on(&what.name));
                    }
                }
            }
        }
    }
}

fn remaining(wait: Option<Duration>, give_up_at: Time) -> Option<Duration> {
    // what is left of a bounded wait is never a mere try
    wait.map(|wait| give_up_at.since(clock::now()).max(wait.min(Duration::from_millis(1))))
}

/// Acquires or re-enters as far as the calling thread can: `None` when it has to wait, with what was begun.
pub(crate) fn enter_on_thread(
    engine: &Arc<Engine>,
    what: &Description,
    wait: Option<Duration>,
    interrupt: &dyn Interrupt,
) -> Result<OnThread, Error> {
    engine.check_open("acquire").map_err(|error| error.on(&what.name))?;
    match way(engine, what)? {
        Way::First(place) => {
            let mut acquiring = Acquiring::new(engine.clone(), what, wait);
            match acquiring.run_on_thread(interrupt) {
                Some(result) => {
                    let hold = result?;
                    if let Some(place) = place {
                        place.granted(&hold);
                    }
                    Ok(OnThread::Held(hold))
                }
                None => Ok(OnThread::Continue(Box::new(acquiring), place)),
            }
        }
        Way::Again(mut reentering) => {
            let (_, hard) = limits(engine);
            for _ in 0..2 {
                let answer = engine.store.call_blocking(&reentering.op(), hard, interrupt);
                if reentering.judge(what, &answer)? {
                    return Ok(OnThread::Held(reentering.hold.clone()));
                }
                if interrupt.interrupted() {
                    return Err(failed(engine, "re-enter", &what.name, &cancelled()));
                }
            }
            Err(unanswered(engine, what))
        }
        Way::Wait => Ok(OnThread::Queue),
    }
}

/// How far a calling thread got by itself.
pub(crate) enum OnThread {
    /// All the way.
    Held(Arc<Hold>),
    /// It has to wait: the rest runs on the runtime.
    Continue(Box<Acquiring>, Option<Place>),
    /// Somebody of the same owner is busy: start over on the runtime.
    Queue,
}

/// The rest of an acquire that a calling thread began.
pub(crate) async fn go_on(acquiring: Box<Acquiring>, place: Option<Place>) -> Result<Arc<Hold>, Error> {
    // its seat in the line is given up before the place
    let mut acquiring = acquiring;
    let hold = acquiring.run().await?;
    if let Some(place) = place {
        place.granted(&hold);
    }
    Ok(hold)
}
