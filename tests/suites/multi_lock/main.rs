//! Several locks at once: all or none, one lease, and no circle of waiters.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop at once, with its message")]

mod acquiring;
mod at_once;
mod ending;
mod philosophers;
mod places;
