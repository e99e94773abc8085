//! Locks on several servers that belong together: a group behind Sentinels, a cluster, replicas that are waited for.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cluster;
mod handover;
mod moving_slots;
mod replicas;
mod sentinel;
mod silent;
