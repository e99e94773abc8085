//! `memcached://`: what sets a cache apart from other stores. What it shares with them is held by `store_contract` and the
//! scenarios.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod access;
mod breaks;
mod items;
mod losses;
mod place;
