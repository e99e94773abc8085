//! The native module under the npm package `onelock`. Private: the API that people read is in `ts/`, and both are released
//! together. It holds no lock logic: it passes calls to the crate `onelock`, and returns their results.
//!
//! `bridge` holds what belongs to one JavaScript thread and starts calls; `pump` queues results, which JavaScript fetches in
//! batches with one wake-up of the event loop per batch; `records` encodes them as numbers; `uv_poll` lets the event loop
//! read sockets itself.

// For N-API functions that napi does not wrap. Each unsafe block says why it is sound.
#![allow(unsafe_code)]
// No Rust code imports what napi's attributes export; they take owned arguments, and ts/ documents them.
#![allow(unreachable_pub, missing_docs, clippy::needless_pass_by_value)]
// In a test build napi exports nothing.
#![cfg_attr(test, allow(dead_code))]

mod bridge;
mod client;
mod credentials;
mod data;
mod fence;
mod log;
mod options;
mod pump;
mod records;
mod uv_poll;
