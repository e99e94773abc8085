//! Going on with a hold that another process gave away.

use std::sync::Arc;

use crate::driver::acquiring::{closed, failed};
use crate::driver::engine::Engine;
use crate::driver::giving;
use crate::driver::hold::Hold;
use crate::driver::{clock, lock};
use crate::lock::Description;
use crate::machine::{Answer, Claim, Enter, Failure, Op, Outcome, Renewal, Reply, Time, token};
use crate::options::invalid;
use crate::{Error, ErrorKind};

/// The claim behind a proof, checked for its form.
pub(crate) fn claim(what: &Description, proof: &str) -> Result<Claim, Error> {
    if !token::is_well_formed(what.kind, proof) {
        let detail = format!("this is no proof of a {} hold; pass the text that detach() returned", what.kind.as_str());
        return Err(invalid("attach", detail).on(&what.name));
    }
    Ok(Claim { kind: what.kind, key: what.key.clone(), token: proof.into() })
}

/// The requests of an attach: a renewal that proves the hold, then a look for its fencing token.
pub(crate) fn renewal(what: &Description, claim: &Claim) -> Op {
    giving::adoption(claim, what.terms.server_ttl_ms(what.terms.ttl))
}

/// The deadline that a renewal proved, or `None` to ask once more.
pub(crate) fn judge(engine: &Engine, what: &Description, answer: &Answer) -> Result<Option<Time>, Error> {
    match &answer.outcome {
        Outcome::Applied(Reply::Renewed(verdicts)) => match verdicts.first() {
            Some(Renewal::Renewed) => {
                let deadline = what.terms.deadline(answer.sent_at, what.terms.ttl);
                if clock::now() >= deadline {
                    return Err(gone(what, "the reply came too late"));
                }
                Ok(Some(deadline))
            }
            Some(Renewal::Failed(detail)) => {
                let failure = Failure::transient(ErrorKind::ServerRefused, detail.clone());
                Err(failed(engine, "attach", &what.name, &failure))
            }
            Some(Renewal::NotMine) | None => Err(gone(what, "the server no longer knows this hold")),
        },
        Outcome::NotApplied(failure) => Err(failed(engine, "attach", &what.name, failure)),
        Outcome::Applied(_) | Outcome::Indeterminate(_) => Ok(None),
    }
}

fn gone(what: &Description, detail: &str) -> Error {
    Error::new(ErrorKind::Lost, "attach", detail).on(&what.name)
}

/// The error when nobody answered.
pub(crate) fn unanswered(engine: &Engine, what: &Description) -> Error {
    failed(engine, "attach", &what.name, &Failure::transient(ErrorKind::Unavailable, "no reply in time"))
}

/// The fencing token that a look found. Never that of another hold: it would let two holders pass as one.
pub(crate) fn fence(engine: &Engine, what: &Description, claim: &Claim, answer: &Answer) -> Result<Option<u64>, Error> {
    match &answer.outcome {
        Outcome::Applied(Reply::Inspected(Some(standing))) if standing.holder == claim.token.as_bytes() => {
            Ok(standing.fence)
        }
        Outcome::Applied(_) => Err(gone(what, "the server no longer knows this hold")),
        Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => {
            Err(failed(engine, "attach", &what.name, failure))
        }
    }
}

/// Makes the adopted hold and puts it under guard.
pub(crate) fn adopt(
    engine: &Arc<Engine>,
    what: &Description,
    claim: Claim,
    deadline: Time,
    fence: Option<u64>,
) -> Result<Arc<Hold>, Error> {
    if let Some(owner) = &what.owner {
        let found = lock(&engine.registry).enter(&what.key, owner, |_| true);
        match found {
            Enter::First => {}
            Enter::Again { hold, .. } => {
                lock(&engine.registry).entered(&what.key, owner, hold.id, false);
                // whoever of this owner came just now was told to wait
                engine.registry_changed.notify_waiters();
                return Err(invalid("attach", "this owner holds the lock already; pass another owner").on(&what.name));
            }
            _ => return Err(invalid("attach", "this owner is busy with the lock; pass another owner").on(&what.name)),
        }
    }
    let hold = Arc::new(Hold::new(
        engine.new_lease_id(),
        claim,
        what.terms.clone(),
        fence,
        clock::now(),
        giving::ADOPTED,
        what.owner.clone(),
    ));
    hold.cell.grant(deadline);
    what.listen(&hold);
    engine.arm(&hold);
    if let Some(owner) = &what.owner {
        lock(&engine.registry).granted(&what.key, owner, hold.id, hold.clone());
        engine.registry_changed.notify_waiters();
    }
    if engine.is_closed() {
        // closed since the last look: `close` may have missed it
        giving::give_up(engine, &hold);
        return Err(failed(engine, "attach", &what.name, &closed()));
    }
    Ok(hold)
}

/// Attaches from an async caller.
pub(crate) async fn attach(engine: &Arc<Engine>, what: &Description, proof: &str) -> Result<Arc<Hold>, Error> {
    engine.check_open("attach").map_err(|error| error.on(&what.name))?;
    let claim = claim(what, proof)?;
    let until = giving::extension_limit(engine);
    for _ in 0..2 {
        let answer = engine.store.call(renewal(what, &claim), until).await;
        engine.observe_clock(&answer);
        if let Some(deadline) = judge(engine, what, &answer)? {
            let look = engine.store.call(Op::Inspect { key: what.key.clone() }, until).await;
            let fence = fence(engine, what, &claim, &look)?;
            return adopt(engine, what, claim, deadline, fence);
        }
    }
    Err(unanswered(engine, what))
}
