//! Synchronises the server's hold count with the registry's, in the background, after an answer that never arrived or a
//! dropped handle.

use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::hold::Hold;
use super::sleep_until;
use crate::machine::{Op, Outcome, Owner, Reply};
use crate::sys::{clock, lock};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Sets the server's count of this hold to the registry's, as long as it is held.
pub(crate) fn sync_count(engine: &Arc<Engine>, hold: &Arc<Hold>) {
    let Some(owner) = hold.owner.clone() else { return };
    if engine.is_closed() || !hold.begin_recount() {
        return;
    }
    let (worker, hold) = (engine.clone(), hold.clone());
    engine.runtime.spawn(async move { sync_until_equal(&worker, &hold, &owner).await });
}

/// The registry's count; `None` while a call of the owner is in progress, which tells the server itself.
fn settled_count(engine: &Engine, hold: &Hold, owner: &Owner) -> Option<u64> {
    lock(&engine.registry).settled_count(hold.key(), owner, hold.id)
}

async fn sync_until_equal(engine: &Engine, hold: &Hold, owner: &Owner) {
    let mut pause = PAUSE_MIN;
    while hold.lease.is_held(clock::now()) && !engine.is_closed() {
        let Some(count) = settled_count(engine, hold, owner) else {
            sleep_until(clock::now() + PAUSE_MIN).await;
            continue;
        };
        if count == 0 {
            break;
        }
        let ttl_ms = hold.terms().server_ttl_ms(hold.terms().ttl);
        let op = Op::SetCount { claim: hold.claim.clone(), count, ttl_ms };
        let answer = engine.store.call(op, clock::now() + engine.options.request_timeout).await;
        match &answer.outcome {
            Outcome::Applied(Reply::Counted(true)) => {
                hold.end_recount();
                if settled_count(engine, hold, owner) == Some(count) || !hold.begin_recount() {
                    return;
                }
            }
            // the next renewal finds the same, and reports it
            Outcome::Applied(_) => break,
            Outcome::NotApplied(failure) if !failure.transient => break,
            Outcome::NotApplied(_) | Outcome::Indeterminate(_) => {
                sleep_until(clock::now() + pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
    hold.end_recount();
}
