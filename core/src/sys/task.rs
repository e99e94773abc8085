//! Tasks, timers and time limits: those of tokio, or of a host that is an event loop and has neither threads nor sockets
//! for this code (`hosted/`).

#[cfg_attr(not(feature = "redis"), allow(unused_imports, reason = "what only stores with servers use"))]
#[cfg(not(target_family = "wasm"))]
mod on_tokio {
    pub(crate) use tokio::runtime::Handle;
    pub(crate) use tokio::spawn;
    pub(crate) use tokio::task::AbortHandle;
    pub(crate) use tokio::time::{Instant, sleep, sleep_until, timeout};

    /// Whether tasks go on while one of them computes.
    pub(crate) fn has_several_threads(handle: &Handle) -> bool {
        handle.metrics().num_workers() > 1
    }
}

#[cfg_attr(not(feature = "redis"), allow(unused_imports, reason = "what only stores with servers use"))]
#[cfg(not(target_family = "wasm"))]
pub(crate) use self::on_tokio::*;
#[cfg(target_family = "wasm")]
pub(crate) use super::hosted::executor::{AbortHandle, Handle, has_several_threads, spawn};
#[cfg(target_family = "wasm")]
pub(crate) use super::hosted::timers::{Instant, sleep, sleep_until, timeout};
