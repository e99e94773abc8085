//! `postgres://`: what sets a table apart from other stores. What it shares with them is held by `store_contract` and the
//! scenarios.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod access;
mod breaks;
mod encryption;
mod forks;
mod lanes;
mod model;
mod place;
mod rows;
mod waiting;
mod wire;
