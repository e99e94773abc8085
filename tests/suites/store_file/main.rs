//! Locks in files: what the kernel does when a holder ends or stops, what happens to files and directories, other programs
//! that lock the same file, and forked children.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]

mod disk;
mod forks;
mod place;
mod processes;
mod programs;
