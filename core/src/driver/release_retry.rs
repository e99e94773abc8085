//! Repeating a release whose answer did not arrive although there was time.

use std::sync::Arc;

use super::engine::Engine;
use super::release::ReleaseRequest;
use crate::ErrorKind;
use crate::machine::Release;
use crate::machine::{Answer, Outcome, Reply, Time};
use crate::store::Uninterrupted;
use crate::sys::clock;

/// Whether to repeat it: the connection broke, as one does that the server had closed while it was idle, and there is
/// time left.
pub(crate) fn is_worth_repeating(answer: &Answer, until: Time) -> bool {
    let broken = answer.outcome.failure().is_some_and(|failure| failure.kind == ErrorKind::Unavailable);
    broken && matches!(answer.outcome, Outcome::Indeterminate(_)) && clock::now() < until
}

/// Combines both answers: when the second request finds nothing, the first one may have released the hold.
pub(crate) fn combine(again: Answer, first: Answer) -> Answer {
    let found = matches!(
        again.outcome,
        Outcome::Applied(
            Reply::Released(true)
                | Reply::ReleasedToWaiters
                | Reply::PartlyReleased { found: true, .. }
                | Reply::Counted(_)
        )
    );
    if found { again } else { first }
}

/// Sends a release from the calling thread, and judges the answer.
pub(crate) fn send_blocking(engine: &Arc<Engine>, sending: ReleaseRequest) -> Release {
    let until = sending.until();
    let mut answer = engine.store.call_blocking(&sending.op(), until, &Uninterrupted);
    engine.observe_clock(&answer);
    if is_worth_repeating(&answer, until) {
        let again = engine.store.call_blocking(&sending.op(), until, &Uninterrupted);
        answer = combine(again, answer);
    }
    sending.judge(&answer)
}
