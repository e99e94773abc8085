//! The machine room: every decision of the library, and no I/O.
//!
//! Each file is one noun. Time and randomness are arguments; what is to be done comes out as data. The same code runs
//! in production (driven by [`crate::driver`](../index.html)), in the simulator and in the model checker.
//!
//! | file | decides |
//! |---|---|
//! | `op`, `outcome` | what is asked of a store, and the three ways it can end |
//! | `token` | the proof of a hold, and its text form |
//! | `fence` | the fencing token's grade, and the gate on the resource's side |
//! | `time`, `random` | the two arguments that everything else takes |

mod fence;
pub mod naming;
mod op;
mod outcome;
mod random;
mod time;
pub mod token;

pub use fence::{FenceGate, Grade, Stale};
pub use op::{Claim, Key, Kind, Op, Renewal, Reply, Standing};
pub use outcome::{Answer, Failure, Outcome};
pub use random::Jitter;
pub use time::Time;
pub use token::OwnerInfo;
