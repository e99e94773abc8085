//! The machines: every decision of the library, and no I/O. For simulators, stores and tests; **no promise of stability**.
//! What users need of it is exported at the root of the crate.
//!
//! Each file is one noun. Time and randomness are arguments; what is to be done comes out as data. The same code runs
//! in production (run by the driver, the private other half), in the simulator and in the model checker.
//!
//! | file | decides |
//! |---|---|
//! | `acquire` | one acquire from the call to the grant or the end of its limits |
//! | `last_answer` | why an acquire failed when its wait is over |
//! | `step` | what such an acquire wants done next, and how it can end |
//! | `limits` | the time limits of an acquire |
//! | `lease` | phase and deadline of one hold, in one atomic word |
//! | `reentry` | who re-enters, and the count |
//! | `release` | the result of a release |
//! | `watchdog` | when to renew, retry, warn and give up |
//! | `cleanup` | undoing what ended without a lease |
//! | `wait_queue` | the local queue of waiters |
//! | `place`, `grant_notice` | the place of a waiting acquire in a queue on the server, and the message that it became a hold |
//! | `session` | from when a server certainly counts the time of a lease that it ends by itself |
//! | `spacing` | the distance between the attempts of waiters |
//! | `contention` | backoff when many clients are woken by one release |
//! | `multi` | several locks, all or none: their order, and when to begin anew |
//! | `quorum` | Redlock: the result of the answers of several servers |
//! | `terms`, `clockwatch` | deadline arithmetic; whether the server's clock agrees |
//! | `kind` | what sets one kind of lock apart from the others |
//! | `op`, `outcome`, `failure` | what is asked of a store, the three ways it can end, and why it failed |
//! | `token`, `naming`, `words` | the proof of a hold in its text form; keys and channels, and the fixed words in them |
//! | `glob` | patterns of names |
//! | `fence` | the fencing token's grade, and the gate on the resource's side |
//! | `model` | a whole lock server in memory, for the simulator and for `memory://` |
//! | `time`, `random` | the two arguments that everything else takes |
//! | `atomic` | the atomics of `lease`, in whose place a model checker puts its own |

mod acquire;
mod atomic;
mod cleanup;
mod clockwatch;
mod contention;
mod failure;
mod fence;
pub mod glob;
mod grant_notice;
mod kind;
mod last_answer;
mod lease;
#[cfg(test)]
mod lease_tests;
mod limits;
pub mod model;
pub mod multi;
pub mod naming;
mod op;
mod outcome;
mod place;
pub mod quorum;
mod random;
mod reentry;
mod release;
mod session;
mod spacing;
mod step;
pub mod terms;
mod time;
pub mod token;
mod wait_queue;
mod watchdog;
mod words;

pub use acquire::{Acquire, Token};
pub use cleanup::{CleanupQueue, PendingUndo, Uncertainty, UndoId, release_op};
pub use clockwatch::{Anomaly, ClockWatch};
pub(crate) use contention::WakeRace;
pub use contention::{HerdBackoff, RETAKEN_MAX, YIELD};
pub use failure::Failure;
pub(crate) use fence::stored_token;
pub use fence::{FENCE_GUARD_SCRIPT, FenceGate, Grade, Stale};
pub use grant_notice::GrantNotice;
pub use kind::{HoldLayout, Kind, KindRow, Reacquire, TokenForm};
pub use lease::{BeginRelease, LeaseState, LossReason, Phase};
pub use limits::AcquireLimits;
pub use op::{Claim, InspectedKey, Key, Op, PermitCount, Proposal, QueueEntry, QueuePlace, QueueSight, Renewal, Reply};
pub use outcome::{Answer, Outcome};
pub use place::{FAR_FROM, PLACE_MAX, Place, Route, ToldGrant};
pub use quorum::NodeSet;
pub use random::Jitter;
pub use reentry::{Enter, Leave, Owner, Registry};
pub use release::Release;
pub use session::{KeptAlive, SessionState, session_length, whole_seconds};
pub use spacing::{ATTEMPT_SPACING, PROMPT_ANSWERS, Spacing};
pub use step::{Step, Verdict};
pub use terms::Terms;
pub use time::Time;
pub use token::{ClientTag, Origin, OwnerInfo};
pub use wait_queue::{WaitQueue, WaiterId};
pub use watchdog::{Alarm, Guarded, LeaseId, RenewalRound, Watchdog};
