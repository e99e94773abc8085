//! What the driver of an acquire is to do next, and how the acquire ended.

use crate::machine::{Failure, Time};

/// What the driver is to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Send the acquire with the present token; be back by `until`.
    Attempt {
        /// The end of this request, connecting included.
        until: Time,
    },
    /// Subscribe to the lock's channel and report when it is confirmed or `until` has come.
    Watch {
        /// When to go on without it.
        until: Time,
    },
    /// Nothing until a hint arrives or `until` has come.
    Sleep {
        /// When to ask again.
        until: Time,
    },
    /// It is over.
    Done(Verdict),
}

/// How an acquire ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Held until `deadline`, with this fencing token.
    Granted {
        /// The local instant after which the lease must be treated as gone.
        deadline: Time,
        /// The fencing token, if fencing is on.
        fence: Option<u64>,
        /// A message told it: when the request was sent on which the deadline rests. The server keeps the hold only a
        /// little longer, so it is renewed soon.
        told: Option<Time>,
    },
    /// Not held; the failure says why.
    Failed(Failure),
}
