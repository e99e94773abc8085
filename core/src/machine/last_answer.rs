//! What an acquire was last told, and the failure that it ends with when the wait is over.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::machine::Failure;

/// What the last attempt came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LastAnswer {
    Nothing,
    Denied { ttl_left_ms: Option<u64> },
    Queued,
    Tied,
    Failed(Failure),
}

impl LastAnswer {
    /// Why the acquire failed after this `wait`; `ahead`: how many places were before its own.
    pub(crate) fn failure(&self, wait: Option<Duration>, ahead: u64) -> Failure {
        let is_try = wait == Some(Duration::ZERO);
        // rounded up to milliseconds, since a little of it passed before it came here
        let waited = Duration::from_millis(wait.unwrap_or_default().as_micros().div_ceil(1000) as u64);
        match self {
            LastAnswer::Failed(failure) => failure.clone(),
            LastAnswer::Denied { ttl_left_ms } if is_try => {
                Failure::transient(ErrorKind::Busy, format!("held by somebody else{}", left(*ttl_left_ms)))
            }
            LastAnswer::Denied { ttl_left_ms } => Failure::transient(
                ErrorKind::Timeout,
                format!("not free within {:?}; held by somebody else{}", waited, left(*ttl_left_ms)),
            ),
            LastAnswer::Queued => Failure::transient(
                ErrorKind::Timeout,
                format!("not free within {waited:?}; {ahead} others waited before it"),
            ),
            LastAnswer::Tied if is_try => {
                Failure::transient(ErrorKind::Busy, "others were at it at the same time, and nobody got a majority")
            }
            LastAnswer::Tied => Failure::transient(
                ErrorKind::Timeout,
                format!("not got within {waited:?}; others were at it at the same time"),
            ),
            LastAnswer::Nothing => Failure::transient(
                ErrorKind::Timeout,
                format!("others of this process were before it for all of {waited:?}"),
            ),
        }
    }
}

fn left(ttl_left_ms: Option<u64>) -> String {
    ttl_left_ms.map_or_else(|| " with no time limit".to_owned(), |ms| format!(" for another {ms} ms unless renewed"))
}
