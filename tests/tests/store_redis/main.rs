//! The Redis and Valkey store against real servers, asked both ways.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod asker;
mod model;
mod operations;
