//! onelock: a distributed lock.

pub mod machine;

#[cfg(feature = "client")]
pub mod backend;
mod error;

pub use error::{Error, ErrorKind};
pub use machine::{FenceGate, Grade, Kind, Stale};
