//! The Redis and Valkey store against real servers, asked every way.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod asker;
mod blocking;
mod connecting;
mod impatient;
mod listening;
mod model;
mod operations;
mod refusals;
mod rotation;
