//! Refuses other interpreters than the main one. A process may have several (`mod_wsgi` with two sites,
//! `Py_NewInterpreter`); statics and callback threads belong to the main one.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

const ELSEWHERE: &str = "onelock works in the main interpreter of a process only, and this is another one. \
                         Give each application a process of its own; with mod_wsgi: \
                         WSGIDaemonProcess, WSGIProcessGroup, and WSGIApplicationGroup %{GLOBAL}";

/// Refuses every interpreter but the main one.
pub(crate) fn check(_: Python<'_>) -> PyResult<()> {
    // SAFETY: both need an attached thread, which the argument stands for; the present interpreter outlives the call
    #[allow(unsafe_code)] // the interface has no other way to tell interpreters apart
    let id = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if id == 0 { Ok(()) } else { Err(PyImportError::new_err(ELSEWHERE)) }
}
