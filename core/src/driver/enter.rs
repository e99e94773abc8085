//! Entering a lock: an acquire, or a re-entry through the registry when a reentrant lock has an owner.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::Acquiring;
use super::engine::Engine;
use super::failures::lost;
use super::hold::Hold;
use super::lock_spec::LockSpec;
use super::reentry::{Reentry, ReentryResult};
use super::sleep_until;
use crate::machine::{Enter, Owner, Reacquire, Time};
use crate::store::Interrupt;
use crate::sys::{clock, lock};
use crate::{Error, ErrorKind};

/// What entering requires.
pub(crate) enum EntryPath {
    /// The lock has to be acquired. The reservation keeps other calls of the same owner waiting.
    First(Option<OwnerReservation>),
    /// The hold exists: send the new count to the server.
    Again(Box<Reentry>),
    /// Another call of the same owner is in progress.
    Wait,
}

/// Reserves a lock for an owner: no other call acquires for this owner meanwhile.
pub(crate) struct OwnerReservation {
    engine: Arc<Engine>,
    lock: LockSpec,
    owner: Owner,
}

/// The reservation of an owner that does not hold the lock and has no call in progress.
pub(crate) fn reserve_owner(engine: &Arc<Engine>, spec: &LockSpec, owner: &Owner) -> Option<OwnerReservation> {
    let found = lock(&engine.registry).enter(&spec.key, owner, |_: &Arc<Hold>| false);
    matches!(found, Enter::First).then(|| OwnerReservation {
        engine: engine.clone(),
        lock: spec.clone(),
        owner: owner.clone(),
    })
}

impl Drop for OwnerReservation {
    fn drop(&mut self) {
        if self.engine.is_here() {
            lock(&self.engine.registry).abandoned(&self.lock.key, &self.owner);
            self.engine.registry_changed.notify_waiters();
        }
    }
}

impl OwnerReservation {
    /// The acquire was granted: other calls of this owner may enter.
    pub(crate) fn granted(self, hold: &Arc<Hold>) {
        lock(&self.engine.registry).granted(&self.lock.key, &self.owner, hold.id, hold.clone());
        // dropping `self` abandons nothing now, and wakes the waiting calls
    }
}

/// What this acquire requires.
pub(crate) fn entry_path(engine: &Arc<Engine>, spec: &LockSpec) -> Result<EntryPath, Error> {
    let Some(owner) = &spec.owner else { return Ok(EntryPath::First(None)) };
    let now = clock::now();
    let found = lock(&engine.registry).enter(&spec.key, owner, |hold: &Arc<Hold>| hold.lease.is_held(now));
    Ok(match found {
        Enter::First => EntryPath::First(Some(OwnerReservation {
            engine: engine.clone(),
            lock: spec.clone(),
            owner: owner.clone(),
        })),
        Enter::Again { hold, count } => {
            let refusal = match spec.kind.entry_of(hold.kind()) {
                Reacquire::Again => return Ok(EntryPath::Again(Box::new(Reentry::new(engine, hold, owner, count)))),
                Reacquire::Deadlock => Error::new(
                    ErrorKind::WouldDeadlock,
                    "acquire",
                    "this owner reads, and a writer waits until nobody does",
                ),
                Reacquire::Other => {
                    let detail = format!("this owner holds a {} under this name", hold.kind().as_str());
                    Error::new(ErrorKind::WrongKind, "acquire", detail)
                }
            };
            lock(&engine.registry).entered(hold.key(), owner, hold.id, false);
            engine.registry_changed.notify_waiters();
            return Err(refusal.on(&spec.name));
        }
        Enter::Wait => EntryPath::Wait,
        Enter::Lost(hold) => return Err(lost(&hold, &spec.name)),
    })
}

/// Acquires or re-enters, from an async caller.
pub(crate) async fn enter(engine: Arc<Engine>, spec: &LockSpec, wait: Option<Duration>) -> Result<Arc<Hold>, Error> {
    enter_until(engine, spec, wait, wait.map_or(Time::MAX, |wait| clock::now() + wait)).await
}

async fn enter_until(
    engine: Arc<Engine>,
    spec: &LockSpec,
    wait: Option<Duration>,
    give_up_at: Time,
) -> Result<Arc<Hold>, Error> {
    loop {
        engine.check_open("acquire").map_err(|error| error.on(&spec.name))?;
        let changed = engine.registry_changed.notified();
        tokio::pin!(changed);
        if spec.owner.is_some() {
            // only an owner can be told to wait; listening takes a lock that all tasks of the client share
            changed.as_mut().enable();
        }
        match entry_path(&engine, spec)? {
            EntryPath::First(reservation) => {
                let mut acquiring = Acquiring::new(engine.clone(), spec, remaining(wait, give_up_at));
                let hold = acquiring.run().await?;
                if let Some(reservation) = reservation {
                    reservation.granted(&hold);
                }
                return Ok(hold);
            }
            EntryPath::Again(reentering) => {
                let mut reentering = reentering.within(remaining(wait, give_up_at));
                if let ReentryResult::Inside(hold) = Box::pin(reentering.run(spec)).await? {
                    return Ok(hold);
                }
            }
            EntryPath::Wait => {
                // boxed: it is rare, and would make the future of every acquire larger
                let mut over = Box::pin(sleep_until(give_up_at));
                tokio::select! {
                    () = changed => {}
                    () = &mut over => {
                        let detail = "the same owner is in the middle of an acquire or a release";
                        let kind = if wait == Some(Duration::ZERO) { ErrorKind::Busy } else { ErrorKind::Timeout };
                        engine.metrics.failed(kind);
                        return Err(Error::new(kind, "acquire", detail).on(&spec.name));
                    }
                }
            }
        }
    }
}

fn remaining(wait: Option<Duration>, give_up_at: Time) -> Option<Duration> {
    // the rest of a bounded wait never becomes a single try
    wait.map(|wait| give_up_at.since(clock::now()).max(wait.min(Duration::from_millis(1))))
}

/// Acquires or re-enters as far as the calling thread can: the remaining steps when it has to wait.
pub(crate) fn enter_blocking(
    engine: &Arc<Engine>,
    spec: &LockSpec,
    wait: Option<Duration>,
    interrupt: &dyn Interrupt,
) -> Result<BlockingProgress, Error> {
    engine.check_open("acquire").map_err(|error| error.on(&spec.name))?;
    match entry_path(engine, spec)? {
        EntryPath::First(reservation) => {
            let mut acquiring = Acquiring::new(engine.clone(), spec, wait);
            match acquiring.run_blocking(interrupt) {
                Some(result) => {
                    let hold = result?;
                    if let Some(reservation) = reservation {
                        reservation.granted(&hold);
                    }
                    Ok(BlockingProgress::Held(hold))
                }
                None => Ok(BlockingProgress::Continue(RemainingSteps::Acquiring(Box::new(acquiring), reservation))),
            }
        }
        EntryPath::Again(reentering) => {
            let give_up_at = wait.map_or(Time::MAX, |wait| clock::now() + wait);
            let mut reentering = reentering.within(wait);
            Ok(match reentering.run_blocking(spec, interrupt)? {
                Some(ReentryResult::Inside(hold)) => BlockingProgress::Held(hold),
                Some(ReentryResult::Restart) => BlockingProgress::Continue(RemainingSteps::Restart(wait, give_up_at)),
                None => BlockingProgress::Continue(RemainingSteps::Reentering(Box::new(reentering), wait, give_up_at)),
            })
        }
        EntryPath::Wait => {
            let give_up_at = wait.map_or(Time::MAX, |wait| clock::now() + wait);
            Ok(BlockingProgress::Continue(RemainingSteps::Restart(wait, give_up_at)))
        }
    }
}

/// How far a calling thread got.
pub(crate) enum BlockingProgress {
    /// It has the hold.
    Held(Arc<Hold>),
    /// It has to wait: the remaining steps run on the runtime.
    Continue(RemainingSteps),
}

/// The remaining steps of an acquire that a thread began.
pub(crate) enum RemainingSteps {
    /// Waiting for the lock.
    Acquiring(Box<Acquiring>, Option<OwnerReservation>),
    /// Repeating a re-entry.
    Reentering(Box<Reentry>, Option<Duration>, Time),
    /// All of it: another call of the same owner is in progress, or the hold was released meanwhile.
    Restart(Option<Duration>, Time),
}

/// Completes an acquire that a thread began.
pub(crate) async fn continue_async(
    engine: Arc<Engine>,
    spec: &LockSpec,
    rest: RemainingSteps,
) -> Result<Arc<Hold>, Error> {
    let (wait, give_up_at) = match rest {
        RemainingSteps::Acquiring(acquiring, reservation) => {
            // dropped before the reservation, so that it leaves the queue first
            let mut acquiring = acquiring;
            let hold = acquiring.run().await?;
            if let Some(reservation) = reservation {
                reservation.granted(&hold);
            }
            return Ok(hold);
        }
        RemainingSteps::Reentering(mut reentering, wait, give_up_at) => {
            if let ReentryResult::Inside(hold) = reentering.run(spec).await? {
                return Ok(hold);
            }
            (wait, give_up_at)
        }
        RemainingSteps::Restart(wait, give_up_at) => (wait, give_up_at),
    };
    enter_until(engine, spec, wait, give_up_at).await
}
