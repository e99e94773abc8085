//! What the core needs of the operating system besides sockets: clocks, fork detection, random bytes. Below every room that
//! does I/O.
//!
//! | file | is |
//! |---|---|
//! | `clock` | reads the clocks |
//! | `fork_detect` | a number of this process that a forked child does not inherit |
//! | `fork` | the process that made a value; values that a forked child leaks |
//! | `fork_close` | file descriptors that a forked child does not keep |
//! | `random` | random bytes |
//! | `runtime` | the background runtime for callers without their own |
//! | `host` | the host's name |
//! | `sync` | locks a mutex whatever panicked |

pub(crate) mod clock;
pub(crate) mod fork;
#[cfg(all(feature = "file", unix))]
pub(crate) mod fork_close;
mod fork_detect;
mod host;
pub(crate) mod random;
pub(crate) mod runtime;
mod sync;

pub(crate) use self::host::host;
pub(crate) use self::sync::lock;
