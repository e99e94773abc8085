//! onelock: a distributed lock.

pub mod machine;

#[cfg(feature = "client")]
pub mod backend;
#[cfg(feature = "client")]
mod driver;
mod error;

pub use error::{Error, ErrorKind};
pub use machine::{FenceGate, Grade, Kind, LossReason, Owner, OwnerInfo, Stale};
