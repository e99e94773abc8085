//! Extending a lease: one renewal that the holder waits for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::engine::Engine;
use super::failures::{failed, not_held};
use super::hold::Hold;
use crate::error::invalid;
use crate::machine::{Answer, Failure, LossReason, Op, Outcome, Renewal, Reply, Time, terms};
use crate::store::Interrupt;
use crate::sys::clock;
use crate::{Error, ErrorKind};

/// Whether this ttl is valid for an extension; before any I/O.
pub(crate) fn check(engine: &Engine, hold: &Hold, ttl: Duration, name: &[u8]) -> Result<(), Error> {
    terms::check_ttl(ttl)
        .and_then(|()| hold.terms().check_validity(ttl))
        .map_err(|detail| invalid("extend", detail))
        .and_then(|()| engine.store.capabilities().check_ttl(ttl, "extend"))
        .map_err(|error| error.on(name))
}

/// The request that renews one hold with this ttl.
pub(crate) fn request(hold: &Hold, ttl: Duration) -> Op {
    let ttl_ms = hold.terms().server_ttl_ms(ttl);
    hold.note_requested_ttl_ms(ttl_ms);
    Op::Renew { holds: vec![(hold.claim.clone(), ttl_ms)] }
}

/// What the answer to an extension means: done, repeat, or an error.
pub(crate) fn judge(
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
                if !hold.lease.confirm(now, hold.terms().deadline(answer.sent_at, ttl)) {
                    return Err(not_held(hold, name));
                }
                engine.extended(hold, answer.sent_at, ttl);
                Ok(true)
            }
            Some(Renewal::Failed(detail)) => {
                Err(failed(engine, "extend", name, &Failure::transient(ErrorKind::ServerRefused, detail.clone())))
            }
            Some(Renewal::NotMine) | None => {
                if hold.lease.lose(LossReason::Taken) {
                    engine.notify_lost(hold.id, LossReason::Taken);
                }
                Err(not_held(hold, name))
            }
        },
        Outcome::NotApplied(failure) => Err(failed(engine, "extend", name, failure)),
        Outcome::Applied(_) | Outcome::Indeterminate(_) => Ok(false),
    }
}

/// When an extension returns at the latest.
pub(crate) fn limit(engine: &Engine) -> Time {
    clock::now() + engine.options.connect_timeout + engine.options.request_timeout * 2
}

/// The error of an extension without an answer. The deadline stays.
pub(crate) fn timed_out(engine: &Engine, name: &[u8]) -> Error {
    failed(engine, "extend", name, &Failure::transient(ErrorKind::Unavailable, "no reply in time; the deadline stays"))
}

/// Extends from an async caller.
pub(crate) async fn extend_async(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    ttl: Duration,
    name: &[u8],
) -> Result<(), Error> {
    let until = limit(engine);
    let ttl = hold.bounded(ttl, clock::now());
    for _ in 0..2 {
        let answer = engine.store.call(request(hold, ttl), until).await;
        engine.observe_clock(&answer);
        if judge(engine, hold, ttl, name, &answer)? {
            return Ok(());
        }
    }
    Err(timed_out(engine, name))
}

/// One of several extensions.
pub(crate) struct Extension {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) name: Arc<[u8]>,
    pub(crate) ttl: Duration,
}

/// Extends all at once, so that it takes no longer than one.
pub(crate) async fn extend_together(all: Vec<Extension>) -> Vec<Result<(), Error>> {
    join_all(all.iter().map(|one| Box::pin(extend_async(&one.engine, &one.hold, one.ttl, &one.name)))).await
}

/// Extends on the calling thread.
pub(crate) fn extend_blocking(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    ttl: Duration,
    name: &[u8],
    interrupt: &dyn Interrupt,
) -> Result<(), Error> {
    let until = limit(engine);
    let ttl = hold.bounded(ttl, clock::now());
    for _ in 0..2 {
        let (answer, left_over) = engine.store.renew_blocking(&request(hold, ttl), until, interrupt);
        if let Some(work) = left_over {
            engine.runtime.spawn(work);
        }
        engine.observe_clock(&answer);
        if judge(engine, hold, ttl, name, &answer)? {
            return Ok(());
        }
        if interrupt.interrupted() {
            break;
        }
    }
    Err(timed_out(engine, name))
}
