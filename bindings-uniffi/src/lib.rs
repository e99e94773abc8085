//! The native library under the Kotlin package `onelock`. Private: the API that people read is in `kotlin/`, and both are released
//! together. It holds no lock logic: it passes calls to the crate `onelock`, and returns their results.
//!
//! uniffi generates the Kotlin side of what is exported here. Every call exists for threads (`..._blocking`) and as a future,
//! which is polled inside the library's own runtime: there is no second one. Durations are whole milliseconds, -1 is none.
//! What is told unasked (losses, requests for credentials) is queued, and fetched by one thread of the other language, since
//! a callback would start a thread there for each call. A panic becomes an error of the other language.

// uniffi's attributes export functions by name.
#![allow(unsafe_code)]
// No Rust code imports what they export; they take owned arguments, and kotlin/ documents them.
#![allow(unreachable_pub, missing_docs, clippy::needless_pass_by_value)]
// The JVM has no unsigned numbers; counters, tokens and times fit into 63 bits.
#![allow(clippy::cast_possible_wrap)]

mod cancel;
mod client;
mod credentials;
mod entered;
mod error;
mod events;
mod lease;
mod lock;
mod options;
mod records;
mod stats;
#[cfg(test)]
mod tests;
mod words;

uniffi::setup_scaffolding!();

/// The version of this library, to be compared with the package's.
#[uniffi::export]
pub fn native_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}
