//! What every store is held to, whatever it is made of. The capabilities of a store choose the cases: what it has must
//! work, and what it lacks must be `Unsupported`.
//!
//! A new store is a row in `place.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod asker;
mod clients;
mod lacking;
mod operations;
mod place;
mod wake_ups;
