//! What users of lock libraries have run into, each as a test that a library with that defect fails.
//!
//! Not here: r16 (several locks at once), and what concerns other topologies and languages: r32, r34 to r39, r43 to r47,
//! r51, r53 to r55. Of r22, r23, r28 and r31 the half that the core answers for: a loss is told once, by an event, and
//! renewal needs no thread of the caller's.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]

mod features;
mod leases;
mod losses;
mod memory;
mod releasing;
mod waiting;
