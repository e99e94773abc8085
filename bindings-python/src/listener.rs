//! Loss and jeopardy of a lease, told to Python: on the thread kept for callbacks, or through the pump of an event loop.
//!
//! What is kept here is a weak reference to the lease: a lease that nobody has any more must be given back, and its own
//! callbacks (which often mention it) must not keep it alive.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::exit;
use crate::queue::Queue;

/// Calls `weak()._event(number, what)` if the lease behind `weak` is still there. For threads that are not Python's.
pub(crate) fn tell(weak: &Py<PyAny>, number: u64, what: &'static str) {
    // at the end of the interpreter there is nobody to tell
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

/// Hands the event to an event loop.
pub(crate) fn send(queue: &Arc<Queue>, id: u64, what: &'static str) {
    queue.push(id, Box::new(move |py| Ok(what.into_pyobject(py)?.into_any().unbind())));
}
