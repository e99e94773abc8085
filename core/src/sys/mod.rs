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
//! | `task` | tasks and timers, of tokio or of a host |
//! | `hosted/` | WebAssembly: a host that is an event loop brings clocks, random bytes, a timer and byte streams |
//! | `host` | the host's name |
//! | `host_clock` | one clock made of the two that a host has |
//! | `sync` | locks a mutex whatever panicked |

pub(crate) mod clock;
pub(crate) mod fork;
#[cfg(all(feature = "file", unix))]
pub(crate) mod fork_close;
mod fork_detect;
mod host;
#[cfg(any(test, target_family = "wasm"))]
mod host_clock;
#[cfg(target_family = "wasm")]
pub(crate) mod hosted;
pub(crate) mod random;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod runtime;
#[cfg(target_family = "wasm")]
#[path = "hosted/runtime.rs"]
pub(crate) mod runtime;
mod sync;
pub(crate) mod task;

pub(crate) use self::host::host;
pub(crate) use self::sync::lock;
