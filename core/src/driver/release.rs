//! What a holder does to be rid of a lease: release, detach.

use std::sync::Arc;

use super::count_sync::sync_count;
use super::detached;
use super::engine::Engine;
use super::failures::not_held;
use super::hold::Hold;
use super::metrics::count;
use super::release_retry;
use super::sleep_until;
use super::spans::ReleaseSpan;
use super::undo_guard::UndoGuard;
use crate::Error;
use crate::error::invalid;
use crate::machine::Release;
use crate::machine::{Answer, BeginRelease, Kind, Leave, LossReason, Op, Outcome, Owner, Reply, Time};
use crate::store::Uninterrupted;
use crate::sys::{clock, lock};

/// What a release requires.
pub(crate) enum ReleaseStep {
    /// Nothing has to be sent.
    Done(Release),
    /// Another call of the same owner is in progress: ask again when the registry has changed.
    Wait,
    /// Send this and judge the answer.
    Send(ReleaseRequest),
}

/// A release in progress. Dropped before its answer, it is queued for cleanup.
pub(crate) struct ReleaseRequest {
    pub(super) engine: Arc<Engine>,
    pub(super) hold: Arc<Hold>,
    kind: ReleaseKind,
    /// It was lost before, or the answer says so.
    lost: bool,
}

enum ReleaseKind {
    Whole(UndoGuard),
    Inner { owner: Owner, count: u64, answered: bool },
}

impl Drop for ReleaseRequest {
    fn drop(&mut self) {
        match &self.kind {
            ReleaseKind::Whole(_) if self.lost => {}
            ReleaseKind::Whole(_) => {
                count(&self.engine.metrics.released);
                self.hold.span.end("released", None);
            }
            ReleaseKind::Inner { owner, answered, .. } if self.engine.is_here() => {
                lock(&self.engine.registry).left(self.hold.key(), owner, self.hold.id);
                self.engine.registry_changed.notify_waiters();
                if !answered {
                    sync_count(&self.engine, &self.hold);
                }
            }
            ReleaseKind::Inner { .. } => {}
        }
    }
}

fn server_ttl_ms(hold: &Hold) -> u64 {
    hold.terms().server_ttl_ms(hold.terms().ttl)
}

/// Begins to release one handle. It does not count as held from here on.
pub(crate) fn release(engine: &Arc<Engine>, hold: &Arc<Hold>) -> ReleaseStep {
    if !hold.lease.is_held(clock::now()) {
        return ReleaseStep::Done(release_in_background(engine, hold));
    }
    let leave = hold.owner.as_ref().map_or(Leave::Last, |owner| {
        let leave = lock(&engine.registry).leave(hold.key(), owner, hold.id);
        if leave == Leave::Last {
            engine.registry_changed.notify_waiters();
        }
        leave
    });
    match (leave, &hold.owner) {
        (Leave::Wait, _) => ReleaseStep::Wait,
        (Leave::Inner { count }, Some(owner)) => ReleaseStep::Send(ReleaseRequest {
            engine: engine.clone(),
            hold: hold.clone(),
            kind: ReleaseKind::Inner { owner: owner.clone(), count, answered: false },
            lost: false,
        }),
        _ => release_last(engine, hold),
    }
}

fn release_last(engine: &Arc<Engine>, hold: &Arc<Hold>) -> ReleaseStep {
    match hold.lease.begin_release(clock::now()) {
        BeginRelease::Held => {
            engine.disarm(hold);
            let undo_guard = undo_guard(engine, hold);
            ReleaseStep::Send(ReleaseRequest {
                engine: engine.clone(),
                hold: hold.clone(),
                kind: ReleaseKind::Whole(undo_guard),
                lost: false,
            })
        }
        BeginRelease::Lost => {
            undo_in_background(engine, hold);
            ReleaseStep::Done(Release::AlreadyExpired)
        }
        BeginRelease::NotHeld => ReleaseStep::Done(Release::AlreadyReleased),
    }
}

/// Releases a handle of an ended hold, or one that is dropped: in the background, nothing is awaited.
pub(crate) fn release_in_background(engine: &Arc<Engine>, hold: &Arc<Hold>) -> Release {
    let last = hold.owner.as_ref().is_none_or(|owner| {
        let last = lock(&engine.registry).leave_silently(hold.key(), owner, hold.id);
        engine.registry_changed.notify_waiters();
        last
    });
    if !last {
        sync_count(engine, hold);
        return if hold.lease.loss().is_some() { Release::AlreadyExpired } else { Release::Released };
    }
    match hold.lease.begin_release(clock::now()) {
        BeginRelease::NotHeld => Release::AlreadyReleased,
        BeginRelease::Lost => {
            undo_in_background(engine, hold);
            Release::AlreadyExpired
        }
        BeginRelease::Held => {
            engine.disarm(hold);
            count(&engine.metrics.released);
            hold.span.end("released", None);
            // no caller waits for the answer, but its loss callbacks run if it says that the hold was lost
            drop(undo_guard(engine, hold).believed_hold(hold.clone()));
            Release::Unconfirmed
        }
    }
}

/// The undo guard of a hold.
fn undo_guard(engine: &Arc<Engine>, hold: &Hold) -> UndoGuard {
    UndoGuard::existing(engine.clone(), hold)
}

/// Deletes a lost lease's key in the background, by compare-and-delete.
fn undo_in_background(engine: &Arc<Engine>, hold: &Hold) {
    drop(undo_guard(engine, hold));
}

impl ReleaseRequest {
    pub(crate) fn op(&self) -> Op {
        match &self.kind {
            ReleaseKind::Whole(undo_guard) => undo_guard.release_op(clock::now()),
            ReleaseKind::Inner { count, .. } => {
                Op::SetCount { claim: self.hold.claim.clone(), count: *count, ttl_ms: server_ttl_ms(&self.hold) }
            }
        }
    }

    /// When the answer is not waited for any more.
    pub(crate) fn until(&self) -> Time {
        clock::now() + self.engine.options.request_timeout
    }

    /// The result that the answer means.
    pub(crate) fn judge(mut self, answer: &Answer) -> Release {
        if let Some(failure) = answer.outcome.failure() {
            let name = self.hold.key().escape_ascii();
            tracing::warn!(lock = %name, cause = %failure.detail, "release not confirmed; clean-up goes on");
        }
        let found = match &answer.outcome {
            Outcome::Applied(Reply::Released(found) | Reply::PartlyReleased { found, .. } | Reply::Counted(found)) => {
                Some(*found)
            }
            Outcome::Applied(Reply::ReleasedToWaiters) => Some(true),
            _ => None,
        };
        if let ReleaseKind::Inner { answered, .. } = &mut self.kind {
            *answered = found.is_some();
        }
        match (&self.kind, found) {
            (_, None) => Release::Unconfirmed,
            (ReleaseKind::Inner { .. }, Some(true)) => {
                let deadline = self.hold.terms().deadline(answer.sent_at, self.hold.terms().ttl);
                self.hold.lease.confirm(clock::now(), deadline);
                Release::Released
            }
            (ReleaseKind::Inner { .. }, Some(false)) => {
                self.hold.lease.lose(LossReason::Taken);
                self.engine.notify_lost(self.hold.id, self.hold.lease.loss().unwrap_or(LossReason::Taken));
                Release::AlreadyExpired
            }
            (ReleaseKind::Whole(_), Some(found)) => self.settle(found, answer),
        }
    }

    fn settle(mut self, found: bool, answer: &Answer) -> Release {
        if self.hold.lease.finish_release(found, answer.received_at) {
            self.lost = true;
            self.engine.notify_loss_of(&self.hold, LossReason::Taken);
        } else {
            tracing::debug!(lock = %self.hold.key().escape_ascii(), found, "lock released");
        }
        if answer.outcome == Outcome::Applied(Reply::ReleasedToWaiters) {
            self.engine.wait_queues.released_to_waiters(&self.hold.claim);
        }
        if let ReleaseKind::Whole(undo_guard) = &mut self.kind {
            match &answer.outcome {
                // released, as far as other clients are concerned; the cleanup queue does the rest
                Outcome::Applied(Reply::PartlyReleased { outstanding, may_still_arrive, .. }) => {
                    undo_guard.settle_except(*outstanding, *may_still_arrive);
                }
                _ => {
                    undo_guard.settle();
                }
            }
        }
        if found { Release::Released } else { Release::AlreadyExpired }
    }
}

/// Sends it from an async caller, and judges the answer.
pub(super) async fn send_async(request: ReleaseRequest) -> Release {
    let engine = request.engine.clone();
    let until = request.until();
    let mut answer = engine.store.call(request.op(), until).await;
    engine.observe_clock(&answer);
    if release_retry::is_worth_repeating(&answer, until) {
        // boxed: it is rare, and would make the future of every release larger
        let again = Box::pin(engine.store.call(request.op(), until)).await;
        answer = release_retry::combine(again, answer);
    }
    request.judge(&answer)
}

/// A handle whose release has not begun. Dropped, it is released in the background.
pub(crate) struct PendingRelease {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    begun: bool,
    span: Option<ReleaseSpan>,
}

impl PendingRelease {
    pub(crate) fn new(engine: &Arc<Engine>, hold: &Arc<Hold>, span: ReleaseSpan) -> PendingRelease {
        PendingRelease { engine: engine.clone(), hold: hold.clone(), begun: false, span: Some(span) }
    }

    fn begin(&mut self) -> ReleaseStep {
        let step = release(&self.engine, &self.hold);
        self.begun = !matches!(step, ReleaseStep::Wait);
        step
    }

    /// The other call may never end: releases without telling the server.
    fn give_up_waiting(&mut self) -> Release {
        self.begun = true;
        match release_in_background(&self.engine, &self.hold) {
            Release::Released => Release::Unconfirmed,
            found => found,
        }
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        if !self.begun && self.engine.is_here() {
            release_in_background(&self.engine, &self.hold);
        }
    }
}

/// Releases one handle, from an async caller.
pub(crate) async fn release_async(mut pending: PendingRelease) -> Release {
    let span = pending.span.take();
    let outcome = release_pending(pending).await;
    span.map_or(outcome, |span| span.end(outcome))
}

async fn release_pending(mut pending: PendingRelease) -> Release {
    let engine = pending.engine.clone();
    let mut until = None;
    loop {
        let changed = engine.registry_changed.notified();
        tokio::pin!(changed);
        if pending.hold.owner.is_some() {
            // only an owner can be told to wait; listening takes a lock that all tasks of the client share
            changed.as_mut().enable();
        }
        match pending.begin() {
            ReleaseStep::Done(release) => return release,
            ReleaseStep::Wait => {
                let until = *until.get_or_insert_with(|| clock::now() + engine.options.request_timeout);
                // boxed: it is rare, and would make the future of every release larger
                let mut over = Box::pin(sleep_until(until));
                tokio::select! {
                    () = changed => {}
                    () = &mut over => return pending.give_up_waiting(),
                }
            }
            ReleaseStep::Send(request) => {
                return send_async(request).await;
            }
        }
    }
}

/// Releases a whole hold, however often it was entered: the client is closing, and its holder was notified.
pub(crate) async fn release_whole(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    if hold.lease.begin_release(clock::now()) != BeginRelease::NotHeld {
        let kind = ReleaseKind::Whole(undo_guard(engine, hold));
        let request = ReleaseRequest { engine: engine.clone(), hold: hold.clone(), kind, lost: true };
        let answer = engine.store.call(request.op(), request.until()).await;
        request.judge(&answer);
    }
}

/// Sends a release from the calling thread, and judges the answer.
pub(crate) fn send_blocking(engine: &Arc<Engine>, sending: ReleaseRequest) -> Release {
    let until = sending.until();
    let mut answer = engine.store.call_blocking(&sending.op(), until, &Uninterrupted);
    engine.observe_clock(&answer);
    if release_retry::is_worth_repeating(&answer, until) {
        let again = engine.store.call_blocking(&sending.op(), until, &Uninterrupted);
        answer = release_retry::combine(again, answer);
    }
    sending.judge(&answer)
}

/// Detaches a hold without releasing it: its token goes to another process.
pub(crate) fn detach(engine: &Arc<Engine>, hold: &Arc<Hold>, name: &[u8]) -> Result<String, Error> {
    check_detach(engine, hold, name)?;
    if !hold.lease.detach(clock::now()) {
        return Err(not_held(hold, name));
    }
    if engine.disarm(hold) {
        detached::keep_for_its_ttl(engine, hold);
    }
    hold.span.end("detached", None);
    if let Some(owner) = &hold.owner {
        lock(&engine.registry).leave_silently(hold.key(), owner, hold.id);
        engine.registry_changed.notify_waiters();
    }
    Ok(hold.claim.token.to_string())
}

/// Whether the token of a hold can go to another process: the store can, and it is entered once only.
pub(crate) fn check_detach(engine: &Engine, hold: &Hold, name: &[u8]) -> Result<(), Error> {
    engine.store.capabilities().require("attach", "detach").map_err(|error| error.on(name))?;
    if hold.kind() == Kind::Read && !hold.is_downgraded() {
        // the server may have it as either, and each is attached as what it is
        return Err(invalid("detach", "its downgrade was not answered; call downgrade() again first").on(name));
    }
    if let Some(owner) = &hold.owner {
        let count = lock(&engine.registry).count(hold.key(), owner, hold.id);
        if count > 1 {
            let detail = format!("it was entered {count} times; leave the inner holds first");
            return Err(invalid("detach", detail).on(name));
        }
    }
    Ok(())
}
