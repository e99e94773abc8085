//! Attach: takes over a hold that another process detached. Its token is exchanged for a new one, so that a proof that
//! is used twice makes one holder.

use std::sync::Arc;

use super::acquiring::fresh_claim;
use super::claiming::Claiming;
use super::engine::Engine;
use super::entering::{self, Place};
use super::failures::{closed, failed};
use super::giving;
use super::hold::Hold;
use crate::lock::Description;
use crate::machine::{Answer, Failure, Op, Outcome, Reply, Time, token};
use crate::options::invalid;
use crate::sys::clock;
use crate::{Error, ErrorKind};

/// How often the server is asked: once more when it did not answer, with the same token.
const TRIES: u32 = 2;

/// The result of an attach, as far as an answer tells.
enum Verdict {
    /// Attached until this deadline, with this fencing token.
    Ours { deadline: Time, fence: Option<u64> },
    /// Not known; the failure if no better answer comes.
    Open(Failure),
}

/// The result that the answer tells; an error when it is final.
fn judge(engine: &Engine, what: &Description, answer: &Answer) -> Result<Verdict, Error> {
    let over = |failure: &Failure| failed(engine, "attach", &what.name, failure);
    match &answer.outcome {
        Outcome::Applied(Reply::Granted { fence, .. }) => {
            let deadline = what.terms.deadline(answer.sent_at, what.terms.ttl);
            let now = clock::now();
            if now >= deadline || deadline.since(now) < what.terms.min_validity {
                return Err(gone(what, "the reply came too late"));
            }
            Ok(Verdict::Ours { deadline, fence: *fence })
        }
        Outcome::Applied(Reply::Gone | Reply::Split { failure: None, .. }) => {
            Err(gone(what, "the hold has ended, or somebody has attached with this proof before"))
        }
        // the claim is the same for all attempts: nodes that were changed already stay so
        Outcome::Applied(Reply::Unconfirmed(failure) | Reply::Split { failure: Some(failure), .. })
            if failure.transient =>
        {
            Ok(Verdict::Open(failure.clone()))
        }
        Outcome::Applied(Reply::Unconfirmed(failure) | Reply::Split { failure: Some(failure), .. })
        | Outcome::NotApplied(failure) => Err(over(failure)),
        Outcome::Applied(other) => {
            Err(over(&Failure::lasting(ErrorKind::Internal, format!("the store answered an attach with {other:?}"))))
        }
        Outcome::Indeterminate(_) => Ok(Verdict::Open(Failure::transient(ErrorKind::Unavailable, "no reply in time"))),
    }
}

fn gone(what: &Description, detail: &str) -> Error {
    Error::new(ErrorKind::Lost, "attach", detail).on(&what.name)
}

/// Reserves the lock for its owner, who must not hold it already.
fn place(engine: &Arc<Engine>, what: &Description) -> Result<Option<Place>, Error> {
    let Some(owner) = &what.owner else { return Ok(None) };
    let place = entering::place(engine, what, owner);
    let taken = || invalid("attach", "this owner has the lock already, or is about to; pass another owner");
    place.map(Some).ok_or_else(|| taken().on(&what.name))
}

/// Makes the attached hold and starts its renewal.
fn adopt(
    engine: &Arc<Engine>,
    what: &Description,
    mut claiming: Claiming,
    deadline: Time,
    fence: Option<u64>,
) -> Result<Arc<Hold>, Error> {
    let claim = claiming.claim().clone();
    let doubt = claiming.settle();
    let hold = Arc::new(Hold::new(
        engine.new_lease_id(),
        claim,
        what.terms.clone(),
        fence,
        clock::now(),
        doubt,
        what.owner.clone(),
    ));
    hold.cell.grant(deadline);
    what.listen(&hold);
    engine.arm(&hold);
    if engine.is_closed() {
        // closed since the last check: `close` may have missed it
        giving::give_up(engine, &hold);
        return Err(failed(engine, "attach", &what.name, &closed()));
    }
    Ok(hold)
}

/// Attaches from an async caller. Dropped at any point, it leaves nothing held.
pub(crate) async fn attach(engine: &Arc<Engine>, what: &Description, proof: &str) -> Result<Arc<Hold>, Error> {
    engine.check_open("attach").map_err(|error| error.on(&what.name))?;
    if !token::is_well_formed(what.kind, proof) {
        let detail = format!("this is no proof of a {} hold; pass the text that detach() returned", what.kind.as_str());
        return Err(invalid("attach", detail).on(&what.name));
    }
    let place = place(engine, what)?;
    let (claim, info) = fresh_claim(engine, what).map_err(|error| error.on(&what.name))?;
    let ttl_ms = what.terms.server_ttl_ms(what.terms.ttl);
    let op = Op::Attach { claim: claim.clone(), from: proof.into(), ttl_ms, info };
    let mut claiming = Claiming::attaching(engine.clone(), claim, ttl_ms);
    let until = giving::extension_limit(engine);
    let mut tries = 0;
    loop {
        claiming.sending(engine.store.connection());
        let answer = engine.store.call(op.clone(), until).await;
        engine.observe_clock(&answer);
        claiming.answered(&answer);
        tries += 1;
        match judge(engine, what, &answer)? {
            Verdict::Ours { deadline, fence } => {
                let hold = adopt(engine, what, claiming, deadline, fence)?;
                if let Some(place) = place {
                    place.granted(&hold);
                }
                return Ok(hold);
            }
            Verdict::Open(failure) if tries == TRIES => return Err(failed(engine, "attach", &what.name, &failure)),
            Verdict::Open(_) => {}
        }
    }
}
