//! What a holder does with a lease: extend it, give it back, hand it to another process.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Interrupt;
use crate::driver::acquiring::failed;
use crate::driver::again;
use crate::driver::claiming::Claiming;
use crate::driver::engine::Engine;
use crate::driver::entering::lost;
use crate::driver::hold::Hold;
use crate::driver::recounting::recount;
use crate::driver::tally::count;
use crate::driver::{clock, lock, sleep_until};
use crate::lease::Release;
use crate::machine::{
    Answer, Failure, Giving, Leave, LossReason, Op, Outcome, Owner, Phase, Renewal, Reply, Time, terms,
};
use crate::options::invalid;
use crate::{Error, ErrorKind};

/// What giving a lease back takes next.
pub(crate) enum Step {
    /// Nothing has to be sent.
    Done(Release),
    /// Somebody of the same owner is in the middle of something: ask again when the registry has changed.
    Wait,
    /// Send this and judge the answer.
    Send(Sending),
}

/// A release under way. Dropped before its answer, the janitor sees to it.
pub(crate) struct Sending {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    what: What,
    /// It was lost before, or the answer says so.
    lost: bool,
}

enum What {
    Last(Claiming),
    Inner { owner: Owner, count: u64, answered: bool },
}

impl Drop for Sending {
    fn drop(&mut self) {
        match &self.what {
            What::Last(_) if self.lost => {}
            What::Last(_) => count(&self.engine.tally.released),
            What::Inner { owner, answered, .. } if self.engine.is_here() => {
                lock(&self.engine.registry).left(self.hold.key(), owner, self.hold.id);
                self.engine.registry_changed.notify_waiters();
                if !answered {
                    recount(&self.engine, &self.hold);
                }
            }
            What::Inner { .. } => {}
        }
    }
}

fn server_ttl_ms(hold: &Hold) -> u64 {
    hold.terms.server_ttl_ms(hold.terms.ttl)
}

/// Begins to give one handle back. From here on nothing believes in it.
pub(crate) fn release(engine: &Arc<Engine>, hold: &Arc<Hold>) -> Step {
    if !hold.cell.is_held(clock::now()) {
        return Step::Done(give_up(engine, hold));
    }
    let leave = hold.owner.as_ref().map_or(Leave::Last, |owner| {
        let leave = lock(&engine.registry).leave(hold.key(), owner, hold.id);
        if leave == Leave::Last {
            engine.registry_changed.notify_waiters();
        }
        leave
    });
    match (leave, &hold.owner) {
        (Leave::Wait, _) => Step::Wait,
        (Leave::Inner { count }, Some(owner)) => Step::Send(Sending {
            engine: engine.clone(),
            hold: hold.clone(),
            what: What::Inner { owner: owner.clone(), count, answered: false },
            lost: false,
        }),
        _ => release_last(engine, hold),
    }
}

fn release_last(engine: &Arc<Engine>, hold: &Arc<Hold>) -> Step {
    match hold.cell.begin_release(clock::now()) {
        Giving::Held => {
            engine.disarm(hold);
            let claiming = existing(engine, hold);
            Step::Send(Sending { engine: engine.clone(), hold: hold.clone(), what: What::Last(claiming), lost: false })
        }
        Giving::Lost => {
            clean_up(engine, hold);
            Step::Done(Release::AlreadyExpired)
        }
        Giving::Gone => Step::Done(Release::AlreadyReleased),
    }
}

/// Gives one handle of an ended hold back, or a handle that is dropped: nothing is awaited, the janitor does the rest.
pub(crate) fn give_up(engine: &Arc<Engine>, hold: &Arc<Hold>) -> Release {
    let last = hold.owner.as_ref().is_none_or(|owner| {
        let last = lock(&engine.registry).leave_silently(hold.key(), owner, hold.id);
        engine.registry_changed.notify_waiters();
        last
    });
    if !last {
        recount(engine, hold);
        return if hold.cell.loss().is_some() { Release::AlreadyExpired } else { Release::Released };
    }
    match hold.cell.begin_release(clock::now()) {
        Giving::Gone => Release::AlreadyReleased,
        Giving::Lost => {
            clean_up(engine, hold);
            Release::AlreadyExpired
        }
        Giving::Held => {
            engine.disarm(hold);
            count(&engine.tally.released);
            // nobody waits for the answer, but if it says that the hold was lost, somebody may want to know
            drop(existing(engine, hold).believed(hold.clone()));
            Release::Unconfirmed
        }
    }
}

/// The obligation to give back a hold.
fn existing(engine: &Arc<Engine>, hold: &Hold) -> Claiming {
    Claiming::existing(engine.clone(), hold)
}

/// A lost lease's key is compare-and-deleted by the janitor.
fn clean_up(engine: &Arc<Engine>, hold: &Hold) {
    drop(existing(engine, hold));
}

impl Sending {
    pub(crate) fn op(&self) -> Op {
        match &self.what {
            What::Last(claiming) => claiming.giving_back(clock::now()),
            What::Inner { count, .. } => {
                Op::SetCount { claim: self.hold.claim.clone(), count: *count, ttl_ms: server_ttl_ms(&self.hold) }
            }
        }
    }

    /// When the answer is waited for no longer.
    pub(crate) fn until(&self) -> Time {
        clock::now() + self.engine.options.request_timeout
    }

    /// What the answer says about the release.
    pub(crate) fn judge(mut self, answer: &Answer) -> Release {
        if let Some(failure) = answer.outcome.failure() {
            let name = self.hold.key().escape_ascii();
            tracing::warn!(lock = %name, cause = %failure.detail, "release not confirmed; clean-up goes on");
        }
        let found = match &answer.outcome {
            Outcome::Applied(Reply::Released(found) | Reply::PartlyReleased { found, .. } | Reply::Counted(found)) => {
                Some(*found)
            }
            _ => None,
        };
        if let What::Inner { answered, .. } = &mut self.what {
            *answered = found.is_some();
        }
        match (&self.what, found) {
            (_, None) => Release::Unconfirmed,
            (What::Inner { .. }, Some(true)) => {
                let deadline = self.hold.terms.deadline(answer.sent_at, self.hold.terms.ttl);
                self.hold.cell.confirm(clock::now(), deadline);
                Release::Released
            }
            (What::Inner { .. }, Some(false)) => {
                self.hold.cell.lose(LossReason::Taken);
                self.engine.tell_lost(self.hold.id, self.hold.cell.loss().unwrap_or(LossReason::Taken));
                Release::AlreadyExpired
            }
            (What::Last(_), Some(found)) => self.settle(found, answer),
        }
    }

    fn settle(mut self, found: bool, answer: &Answer) -> Release {
        if self.hold.cell.finish_release(found, answer.received_at) {
            self.lost = true;
            self.engine.tell_loss_of(&self.hold, LossReason::Taken);
        } else {
            tracing::debug!(lock = %self.hold.key().escape_ascii(), found, "lock released");
        }
        if let What::Last(claiming) = &mut self.what {
            match &answer.outcome {
                // given back, as far as others are concerned; the rest is the janitor's
                Outcome::Applied(Reply::PartlyReleased { owed, at_large, .. }) => claiming.settle_but(*owed, *at_large),
                _ => {
                    claiming.settle();
                }
            }
        }
        if found { Release::Released } else { Release::AlreadyExpired }
    }
}

/// A handle that is to be given back but has not begun to be. Dropped, it is given back in the background.
pub(crate) struct Leaving {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    begun: bool,
}

impl Leaving {
    pub(crate) fn new(engine: &Arc<Engine>, hold: &Arc<Hold>) -> Leaving {
        Leaving { engine: engine.clone(), hold: hold.clone(), begun: false }
    }

    fn begin(&mut self) -> Step {
        let step = release(&self.engine, &self.hold);
        self.begun = !matches!(step, Step::Wait);
        step
    }

    /// Whoever is busy may never go on: leaves without telling the server.
    fn out_of_patience(&mut self) -> Release {
        self.begun = true;
        match give_up(&self.engine, &self.hold) {
            Release::Released => Release::Unconfirmed,
            found => found,
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.begun && self.engine.is_here() {
            give_up(&self.engine, &self.hold);
        }
    }
}

/// Gives one handle back, from an async caller.
pub(crate) async fn release_async(mut leaving: Leaving) -> Release {
    let engine = leaving.engine.clone();
    let mut until = None;
    loop {
        let changed = engine.registry_changed.notified();
        tokio::pin!(changed);
        if leaving.hold.owner.is_some() {
            // only an owner can be told to wait; to listen takes a lock that all tasks of the client share
            changed.as_mut().enable();
        }
        match leaving.begin() {
            Step::Done(release) => return release,
            Step::Wait => {
                let until = *until.get_or_insert_with(|| clock::now() + engine.options.request_timeout);
                // boxed: it is rare, and every release would be large for it
                let mut over = Box::pin(sleep_until(until));
                tokio::select! {
                    () = changed => {}
                    () = &mut over => return leaving.out_of_patience(),
                }
            }
            Step::Send(sending) => {
                let until = sending.until();
                let mut answer = engine.store.call(sending.op(), until).await;
                engine.observe_clock(&answer);
                if again::is_worthwhile(&answer, until) {
                    // boxed: it is rare, and every release would be large for it
                    let again = Box::pin(engine.store.call(sending.op(), until)).await;
                    answer = again::after_doubt(again, answer);
                }
                return sending.judge(&answer);
            }
        }
    }
}

/// Gives a whole hold back, however often it was entered: the client is closing, and its holder was told.
pub(crate) async fn release_whole(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    if hold.cell.begin_release(clock::now()) != Giving::Gone {
        let what = What::Last(existing(engine, hold));
        let sending = Sending { engine: engine.clone(), hold: hold.clone(), what, lost: true };
        let answer = engine.store.call(sending.op(), sending.until()).await;
        sending.judge(&answer);
    }
}

/// Whether a lease of this length can be asked for; before any I/O.
pub(crate) fn check_extension(hold: &Hold, ttl: Duration, name: &[u8]) -> Result<(), Error> {
    terms::check_ttl(ttl)
        .and_then(|()| hold.terms.check_validity(ttl))
        .map_err(|detail| invalid("extend", detail).on(name))
}

/// The error for a handle that holds nothing.
pub(crate) fn not_held(hold: &Hold, name: &[u8]) -> Error {
    match hold.cell.phase() {
        Phase::Lost | Phase::LostAndReleased => lost(hold, name),
        Phase::Detached => Error::new(ErrorKind::NotHeld, "use the lease", "it was handed to another process").on(name),
        _ => Error::new(ErrorKind::NotHeld, "use the lease", "it was released").on(name),
    }
}

/// The request that renews one hold with a given length.
pub(crate) fn extension(hold: &Hold, ttl: Duration) -> Op {
    let ttl_ms = hold.terms.server_ttl_ms(ttl);
    hold.asked_ms(ttl_ms);
    Op::Renew { holds: vec![(hold.claim.clone(), ttl_ms)] }
}

/// What an extension's answer means: done, ask once more, or an error.
pub(crate) fn judge_extension(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    ttl: Duration,
    name: &[u8],
    answer: &Answer,
) -> Result<bool, Error> {
    let now = clock::now();
    match &answer.outcome {
        Outcome::Applied(Reply::Renewed(verdicts)) => match verdicts.first() {
            Some(Renewal::Renewed) => {
                if !hold.cell.confirm(now, hold.terms.deadline(answer.sent_at, ttl)) {
                    return Err(not_held(hold, name));
                }
                engine.extended(hold, answer.sent_at, ttl);
                Ok(true)
            }
            Some(Renewal::Failed(detail)) => {
                Err(failed(engine, "extend", name, &Failure::transient(ErrorKind::ServerRefused, detail.clone())))
            }
            Some(Renewal::NotMine) | None => {
                if hold.cell.lose(LossReason::Taken) {
                    engine.tell_lost(hold.id, LossReason::Taken);
                }
                Err(not_held(hold, name))
            }
        },
        Outcome::NotApplied(failure) => Err(failed(engine, "extend", name, failure)),
        Outcome::Applied(_) | Outcome::Indeterminate(_) => Ok(false),
    }
}

/// The time by which an extension returns.
pub(crate) fn extension_limit(engine: &Engine) -> Time {
    clock::now() + engine.options.connect_timeout + engine.options.request_timeout * 2
}

/// The error of an extension that nobody answered. The deadline stays where it was.
pub(crate) fn extension_unanswered(engine: &Engine, name: &[u8]) -> Error {
    failed(engine, "extend", name, &Failure::transient(ErrorKind::Unavailable, "no reply in time; the deadline stays"))
}

/// Extends from an async caller.
pub(crate) async fn extend_async(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    ttl: Duration,
    name: &[u8],
) -> Result<(), Error> {
    let until = extension_limit(engine);
    let ttl = hold.bounded(ttl, clock::now());
    for _ in 0..2 {
        let answer = engine.store.call(extension(hold, ttl), until).await;
        engine.observe_clock(&answer);
        if judge_extension(engine, hold, ttl, name, &answer)? {
            return Ok(());
        }
    }
    Err(extension_unanswered(engine, name))
}

/// Extends on the calling thread.
pub(crate) fn extend_on_thread(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    ttl: Duration,
    name: &[u8],
    interrupt: &dyn Interrupt,
) -> Result<(), Error> {
    let until = extension_limit(engine);
    let ttl = hold.bounded(ttl, clock::now());
    for _ in 0..2 {
        let (answer, left_over) = engine.store.renew_blocking(&extension(hold, ttl), until, interrupt);
        if let Some(work) = left_over {
            engine.runtime.spawn(work);
        }
        engine.observe_clock(&answer);
        if judge_extension(engine, hold, ttl, name, &answer)? {
            return Ok(());
        }
        if interrupt.interrupted() {
            break;
        }
    }
    Err(extension_unanswered(engine, name))
}

/// Stops believing in a hold without giving it back: its token goes to another process.
pub(crate) fn detach(engine: &Arc<Engine>, hold: &Arc<Hold>, name: &[u8]) -> Result<String, Error> {
    if let Some(owner) = &hold.owner {
        let count = lock(&engine.registry).count(hold.key(), owner, hold.id);
        if count > 1 {
            let detail = format!("it was entered {count} times; leave the inner holds first");
            return Err(invalid("detach", detail).on(name));
        }
    }
    if !hold.cell.detach(clock::now()) {
        return Err(not_held(hold, name));
    }
    engine.disarm(hold);
    if let Some(owner) = &hold.owner {
        lock(&engine.registry).leave_silently(hold.key(), owner, hold.id);
        engine.registry_changed.notify_waiters();
    }
    Ok(hold.claim.token.to_string())
}
