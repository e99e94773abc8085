//! Repeating a release whose answer did not arrive although there was time.

use crate::ErrorKind;
use crate::machine::{Answer, Outcome, Reply, Time};
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
