//! The three outcomes of a request. Never treat the third as one of the others.

use crate::error::ErrorKind;
use crate::machine::Time;
use crate::machine::failure::Failure;
use crate::machine::op::Reply;

/// How one request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The server answered on the request's own connection.
    Applied(T),
    /// The server refused before its first write, or no byte left this process. Nothing happened.
    NotApplied(Failure),
    /// Bytes may have left and no usable reply came. It may have happened, or may still happen later.
    Indeterminate(Failure),
}

impl<T> Outcome<T> {
    /// The failure, unless the request was applied.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Applied(_) => None,
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => Some(failure),
        }
    }
}

/// A finished request: what came of it, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Read just before the request was handed to the connection. Deadlines count from here.
    pub sent_at: Time,
    /// Read when the reply (or the failure) was seen.
    pub received_at: Time,
    /// Which connection carried it. Two requests with the same number were executed in the order they were sent;
    /// 0 promises nothing.
    pub connection: u64,
    /// The server's wall clock in microseconds, from the same reply.
    pub server_time_us: Option<u64>,
    /// What came of it.
    pub outcome: Outcome<Reply>,
}

impl Answer {
    /// The answer to a request for several claims, as that to the claim at this place alone.
    #[must_use]
    pub fn of_member(&self, index: usize) -> Answer {
        let outcome = match &self.outcome {
            Outcome::Applied(Reply::Many(replies)) => {
                let failure = || Failure::transient(ErrorKind::Unavailable, "the reply tells nothing of this lock");
                replies
                    .get(index)
                    .map_or_else(|| Outcome::Indeterminate(failure()), |reply| Outcome::Applied(reply.clone()))
            }
            // nothing was taken
            Outcome::Applied(Reply::RefusedAt { reply, .. }) => Outcome::Applied((**reply).clone()),
            other => other.clone(),
        };
        Answer { outcome, ..*self }
    }
}
