//! A majority of independent stores of several kinds, over real servers: Redis and PostgreSQL side by side. What a majority of
//! Redis servers does is the subject of the suite `redlock`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod basics;
mod contention;
mod failures;
mod fencing;
mod place;
mod quarantine;
#[allow(dead_code, reason = "what only the suite store_postgres looks at")]
#[path = "../store_postgres/wire.rs"]
mod wire;
