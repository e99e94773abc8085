//! Entering a lock: an acquire, or a re-entry through the registry when a reentrant lock has an owner.

use std::sync::Arc;
use std::time::Duration;

use super::acquiring::Acquiring;
use super::engine::Engine;
use super::hold::Hold;
use super::reentering::{Reentering, Turn};
use super::sleep_until;
use crate::lock::Description;
use crate::machine::{Enter, LossReason, Owner, Time};
use crate::store::Interrupt;
use crate::sys::{clock, lock};
use crate::{Error, ErrorKind};

/// What entering requires.
pub(crate) enum Way {
    /// The lock has to be acquired. The reservation keeps other calls of the same owner waiting.
    First(Option<Place>),
    /// The hold exists: send the new count to the server.
    Again(Box<Reentering>),
    /// Another call of the same owner is in progress.
    Wait,
}

/// Reserves a lock for an owner: no other call acquires for this owner meanwhile.
pub(crate) struct Place {
    engine: Arc<Engine>,
    lock: Description,
    owner: Owner,
}

/// The reservation of an owner that does not hold the lock and has no call in progress.
pub(crate) fn place(engine: &Arc<Engine>, what: &Description, owner: &Owner) -> Option<Place> {
    let found = lock(&engine.registry).enter(&what.key, owner, |_: &Arc<Hold>| false);
    matches!(found, Enter::First).then(|| Place { engine: engine.clone(), lock: what.clone(), owner: owner.clone() })
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
    /// The acquire was granted: other calls of this owner may enter.
    pub(crate) fn granted(self, hold: &Arc<Hold>) {
        lock(&self.engine.registry).granted(&self.lock.key, &self.owner, hold.id, hold.clone());
        // dropping `self` abandons nothing now, and wakes the waiting calls
    }
}

/// What this acquire requires.
pub(crate) fn way(engine: &Arc<Engine>, what: &Description) -> Result<Way, Error> {
    let Some(owner) = &what.owner else { return Ok(Way::First(None)) };
    let now = clock::now();
    let found = lock(&engine.registry).enter(&what.key, owner, |hold: &Arc<Hold>| hold.cell.is_held(now));
    Ok(match found {
        Enter::First => Way::First(Some(Place { engine: engine.clone(), lock: what.clone(), owner: owner.clone() })),
        Enter::Again { hold, count } => Way::Again(Box::new(Reentering::new(engine, hold, owner, count))),
        Enter::Wait => Way::Wait,
        Enter::Lost(hold) => return Err(lost(&hold, &what.name)),
    })
}

/// The error for a hold that was lost.
pub(crate) fn lost(hold: &Hold, name: &[u8]) -> Error {
    let why = hold.cell.loss().map_or("it ended", LossReason::explain);
    Error::new(ErrorKind::Lost, "use the lease", format!("the lease was lost: {why}")).on(name)
}

/// Acquires or re-enters, from an async caller.
pub(crate) async fn enter(engine: Arc<Engine>, what: &Description, wait: Option<Duration>) -> Result<Arc<Hold>, Error> {
    enter_until(engine, what, wait, wait.map_or(Time::MAX, |wait| clock::now() + wait)).await
}

async fn enter_until(
    engine: Arc<Engine>,
    what: &Description,
    wait: Option<Duration>,
    give_up_at: Time,
) -> Result<Arc<Hold>, Error> {
    loop {
        engine.check_open("acquire").map_err(|error| error.on(&what.name))?;
        let changed = engine.registry_changed.notified();
        tokio::pin!(changed);
        if what.owner.is_some() {
            // only an owner can be told to wait; listening takes a lock that all tasks of the client share
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
            Way::Again(reentering) => {
                let mut reentering = reentering.within(remaining(wait, give_up_at));
                if let Turn::Inside(hold) = Box::pin(reentering.run(what)).await? {
                    return Ok(hold);
                }
            }
            Way::Wait => {
                // boxed: it is rare, and would make the future of every acquire larger
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
    // the rest of a bounded wait never becomes a single try
    wait.map(|wait| give_up_at.since(clock::now()).max(wait.min(Duration::from_millis(1))))
}

/// Acquires or re-enters as far as the calling thread can: the remaining steps when it has to wait.
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
                None => Ok(OnThread::Continue(Rest::Acquiring(Box::new(acquiring), place))),
            }
        }
        Way::Again(reentering) => {
            let give_up_at = wait.map_or(Time::MAX, |wait| clock::now() + wait);
            let mut reentering = reentering.within(wait);
            Ok(match reentering.run_on_thread(what, interrupt)? {
                Some(Turn::Inside(hold)) => OnThread::Held(hold),
                Some(Turn::Anew) => OnThread::Continue(Rest::Anew(wait, give_up_at)),
                None => OnThread::Continue(Rest::Reentering(Box::new(reentering), wait, give_up_at)),
            })
        }
        Way::Wait => {
            let give_up_at = wait.map_or(Time::MAX, |wait| clock::now() + wait);
            Ok(OnThread::Continue(Rest::Anew(wait, give_up_at)))
        }
    }
}

/// How far a calling thread got.
pub(crate) enum OnThread {
    /// It has the hold.
    Held(Arc<Hold>),
    /// It has to wait: the remaining steps run on the runtime.
    Continue(Rest),
}

/// The remaining steps of an acquire that a thread began.
pub(crate) enum Rest {
    /// Waiting for the lock.
    Acquiring(Box<Acquiring>, Option<Place>),
    /// Repeating a re-entry.
    Reentering(Box<Reentering>, Option<Duration>, Time),
    /// All of it: another call of the same owner is in progress, or the hold was released meanwhile.
    Anew(Option<Duration>, Time),
}

/// Completes an acquire that a thread began.
pub(crate) async fn go_on(engine: Arc<Engine>, what: &Description, rest: Rest) -> Result<Arc<Hold>, Error> {
    let (wait, give_up_at) = match rest {
        Rest::Acquiring(acquiring, place) => {
            // dropped before the reservation, so that it leaves the queue first
            let mut acquiring = acquiring;
            let hold = acquiring.run().await?;
            if let Some(place) = place {
                place.granted(&hold);
            }
            return Ok(hold);
        }
        Rest::Reentering(mut reentering, wait, give_up_at) => {
            if let Turn::Inside(hold) = reentering.run(what).await? {
                return Ok(hold);
            }
            (wait, give_up_at)
        }
        Rest::Anew(wait, give_up_at) => (wait, give_up_at),
    };
    enter_until(engine, what, wait, give_up_at).await
}
