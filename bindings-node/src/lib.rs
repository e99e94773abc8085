//! The native module under the npm package `onelock`. Private: the API that people read is in `ts/`, and both are released
//! together. No lock logic lives here: calls are handed to the crate `onelock`, and their results are carried back.
//!
//! `session` is what one JavaScript thread has, and the way in; `task` runs a call, beginning on the calling thread; `pump`
//! is the way back: results are queued and fetched in batches, with one wake-up of the event loop per batch; `records` is
//! how they are written down.

// The N-API functions that napi has no safe face for. Each unsafe block says why it is sound.
#![allow(unsafe_code)]
// napi's attributes export what nothing in Rust imports, take owned arguments, and document themselves in ts/.
#![allow(unreachable_pub, missing_docs, clippy::needless_pass_by_value)]
// In a test build napi exports nothing.
#![cfg_attr(test, allow(dead_code))]

mod client;
mod credentials;
mod data;
mod exit;
mod fence;
mod log;
mod options;
mod pump;
mod records;
mod session;
mod watch;
