//! Attach: takes over a hold that another process detached. Its token is exchanged for a new one, so that a proof that
//! is used twice makes one holder.

use std::sync::Arc;

use super::claim::fresh_claim;
use super::engine::Engine;
use super::enter::{self, OwnerReservation};
use super::extend;
use super::failures::{closed, failed};
use super::hold::Hold;
use super::lock_spec::LockSpec;
use super::release;
use super::undo_guard::UndoGuard;
use crate::error::invalid;
use crate::machine::{Answer, Failure, Kind, Op, Outcome, Reply, Time, token};
use crate::sys::clock;
use crate::{Error, ErrorKind};

/// How often the server is asked: once more when it did not answer, with the same token.
const MAX_ATTEMPTS: u32 = 2;

/// The result of an attach, as far as an answer tells.
enum AttachResult {
    /// Attached until this deadline, with this fencing token.
    Attached { deadline: Time, fence: Option<u64> },
    /// Not known; the failure if no better answer comes.
    Unknown(Failure),
}

/// The result that the answer tells; an error when it is final.
fn judge(engine: &Engine, spec: &LockSpec, answer: &Answer) -> Result<AttachResult, Error> {
    let over = |failure: &Failure| failed(engine, "attach", &spec.name, failure);
    match &answer.outcome {
        Outcome::Applied(Reply::Granted { fence, .. }) => {
            let deadline = spec.terms.deadline(answer.sent_at, spec.terms.ttl);
            let now = clock::now();
            if now >= deadline || deadline.since(now) < spec.terms.min_validity {
                return Err(lost_hold(spec, "the reply came too late"));
            }
            Ok(AttachResult::Attached { deadline, fence: *fence })
        }
        Outcome::Applied(Reply::Gone | Reply::Split { failure: None, .. }) => {
            Err(lost_hold(spec, "the hold has ended, or somebody has attached with this proof before"))
        }
        // the claim is the same for all attempts: nodes that were changed already stay so
        Outcome::Applied(Reply::Unconfirmed(failure) | Reply::Split { failure: Some(failure), .. })
            if failure.transient =>
        {
            Ok(AttachResult::Unknown(failure.clone()))
        }
        Outcome::Applied(Reply::Unconfirmed(failure) | Reply::Split { failure: Some(failure), .. })
        | Outcome::NotApplied(failure) => Err(over(failure)),
        Outcome::Applied(other) => {
            Err(over(&Failure::lasting(ErrorKind::Internal, format!("the store answered an attach with {other:?}"))))
        }
        Outcome::Indeterminate(_) => {
            Ok(AttachResult::Unknown(Failure::transient(ErrorKind::Unavailable, "no reply in time")))
        }
    }
}

fn lost_hold(spec: &LockSpec, detail: &str) -> Error {
    Error::new(ErrorKind::Lost, "attach", detail).on(&spec.name)
}

/// Reserves the lock for its owner, who must not hold it already.
fn reserve_owner(engine: &Arc<Engine>, spec: &LockSpec) -> Result<Option<OwnerReservation>, Error> {
    let Some(owner) = &spec.owner else { return Ok(None) };
    let reservation = enter::reserve_owner(engine, spec, owner);
    let taken = || invalid("attach", "this owner has the lock already, or is about to; pass another owner");
    reservation.map(Some).ok_or_else(|| taken().on(&spec.name))
}

/// Makes the attached hold and starts its renewal.
fn make_hold(
    engine: &Arc<Engine>,
    spec: &LockSpec,
    mut undo_guard: UndoGuard,
    deadline: Time,
    fence: Option<u64>,
) -> Result<Arc<Hold>, Error> {
    let claim = undo_guard.claim().clone();
    let uncertainty = undo_guard.settle();
    let hold = Arc::new(Hold::new(
        engine.new_lease_id(),
        claim,
        spec.terms.clone(),
        fence,
        clock::now(),
        uncertainty,
        spec.owner.clone(),
    ));
    hold.lease.grant(deadline);
    spec.listen(&hold);
    engine.arm(&hold, None);
    if engine.is_closed() {
        // closed since the last check: `close` may have missed it
        release::release_in_background(engine, &hold);
        return Err(failed(engine, "attach", &spec.name, &closed()));
    }
    Ok(hold)
}

/// Attaches from an async caller. Dropped at any point, it leaves nothing held.
pub(crate) async fn attach(engine: &Arc<Engine>, spec: &LockSpec, proof: &str) -> Result<Arc<Hold>, Error> {
    engine.check_open("attach").map_err(|error| error.on(&spec.name))?;
    if !token::is_well_formed(spec.kind, proof) {
        let detail = format!("this is no proof of a {} hold; pass the text that detach() returned", spec.kind.as_str());
        return Err(invalid("attach", detail).on(&spec.name));
    }
    // a hold of permits goes over whole
    let spec = &match token::parse_permits(proof) {
        Some((_, count)) if spec.kind == Kind::Semaphore => spec.with_count(u32::from(count)),
        _ => spec.clone(),
    };
    let reservation = reserve_owner(engine, spec)?;
    let (claim, info) = fresh_claim(engine, spec).map_err(|error| error.on(&spec.name))?;
    let ttl_ms = spec.terms.server_ttl_ms(spec.terms.ttl);
    let op = Op::Attach { claim: claim.clone(), from: proof.into(), ttl_ms, info };
    let mut undo_guard = UndoGuard::attaching(engine.clone(), claim, ttl_ms);
    let until = extend::limit(engine);
    let mut tries = 0;
    loop {
        undo_guard.sending(engine.store.connection());
        let answer = engine.store.call(op.clone(), until).await;
        engine.observe_clock(&answer);
        undo_guard.answered(&answer);
        tries += 1;
        match judge(engine, spec, &answer)? {
            AttachResult::Attached { deadline, fence } => {
                let hold = make_hold(engine, spec, undo_guard, deadline, fence)?;
                if let Some(reservation) = reservation {
                    reservation.granted(&hold);
                }
                return Ok(hold);
            }
            AttachResult::Unknown(failure) if tries == MAX_ATTEMPTS => {
                return Err(failed(engine, "attach", &spec.name, &failure));
            }
            AttachResult::Unknown(_) => {}
        }
    }
}
