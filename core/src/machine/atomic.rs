//! The atomics that `lease` is made of. A model checker compiles that file with its own in their place
//! (`tests/suites/loom_lease.rs`).

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
