//! Redlock over real servers: three and five independent ones, that are stopped, killed, restarted empty, and cut off.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod attach;
mod basics;
mod clocks;
mod failures;
mod fencing;
mod late;
mod masters;
mod silence;
