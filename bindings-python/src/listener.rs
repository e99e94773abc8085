//! Passes loss and jeopardy of a lease to Python: on the thread for callbacks, or through the pump of an event loop.
//!
//! It has only a weak reference to the lease: callbacks, which often refer to the lease, must not keep it from being
//! dropped and released.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::exit;
use crate::queue::Queue;

/// Calls `weak()._event(number, what)` if the lease behind `weak` is still there. For threads that are not Python's.
pub(crate) fn notify_thread(weak: &Py<PyAny>, number: u64, what: &'static str) {
    // at the end of the interpreter the event is dropped
    let _ = exit::attached(|py| {
        let told = weak.call0(py).and_then(|lease| {
            if lease.is_none(py) {
                return Ok(());
            }
            lease.call_method1(py, "_event", (number, what)).map(drop)
        });
        if let Err(error) = told {
            error.write_unraisable(py, None);
        }
    });
}

/// Queues the event for an event loop.
pub(crate) fn notify_loop(queue: &Arc<Queue>, id: u64, what: &'static str) {
    queue.push(id, Box::new(move |py| Ok(what.into_pyobject(py)?.into_any().unbind())));
}
