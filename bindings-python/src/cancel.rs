//! Cancels the waits of other threads.

use onelock::blocking::{self, Interrupt};
use pyo3::prelude::*;

use crate::waiting::Signals;

/// Cancels waiting acquires of other threads: pass it as `cancel=` to `Lock.acquire`, and call `cancel()` from any
/// thread.
///
/// The acquire raises `LockCancelled` within 50 ms, and nothing is left held. It stays cancelled: a later acquire with
/// it ends at once. Acquires may share one. In asyncio, cancel the task instead.
#[pyclass(frozen, module = "onelock")]
pub(crate) struct Cancel {
    flag: blocking::Cancel,
}

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Cancel {
        Cancel { flag: blocking::Cancel::new() }
    }

    /// Ends every acquire with this token. It never waits, and is safe in a signal handler; it may be called again.
    fn cancel(&self) {
        self.flag.cancel();
    }

    /// Whether it was cancelled.
    #[getter]
    fn cancelled(&self) -> bool {
        self.flag.interrupted()
    }

    fn __repr__(&self) -> &'static str {
        if self.cancelled() { "<Cancel: cancelled>" } else { "<Cancel>" }
    }
}

/// Ends a wait by a cancel token or by a signal.
pub(crate) struct CancelOrSignals(blocking::Cancel);

impl CancelOrSignals {
    pub(crate) fn new(cancel: &Cancel) -> CancelOrSignals {
        CancelOrSignals(cancel.flag.clone())
    }
}

impl Interrupt for CancelOrSignals {
    fn interrupted(&self) -> bool {
        self.0.interrupted() || Signals.interrupted()
    }
}
