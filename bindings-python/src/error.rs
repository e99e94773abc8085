//! Failures on their way to Python, where the exception classes are.

use onelock::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// `onelock.errors._make`.
static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

#[allow(clippy::too_many_arguments)] // the parts of one message
fn make(
    py: Python<'_>,
    kind: ErrorKind,
    message: &str,
    lock_name: Option<&str>,
    tried: &str,
    detail: &str,
    causes: &[String],
) -> PyErr {
    let made = MAKE.import(py, "onelock.errors", "_make").and_then(|make| {
        let causes = PyTuple::new(py, causes)?;
        make.call1((kind.name(), message, lock_name, tried, detail, causes))
    });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception for an error of the core.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    make(py, error.kind(), &error.to_string(), error.lock_name(), error.tried(), error.detail(), error.causes())
}

/// The exception for something that the binding itself refuses; the message has the shape of the core's.
pub(crate) fn refused(py: Python<'_>, kind: ErrorKind, tried: &str, detail: &str, name: Option<&[u8]>) -> PyErr {
    let name = name.map(|name| name.escape_ascii().to_string());
    let on = name.as_ref().map_or_else(String::new, |name| format!(" \"{name}\""));
    let message = format!("{tried}{on}: {detail} ({}: {})", kind.name(), kind.todo());
    make(py, kind, &message, name.as_deref(), tried, detail, &[])
}

/// What the core knows of every kind of error, for the test that compares it with the exception classes.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<(&'static str, u32, bool, bool)> {
    ErrorKind::ALL.map(|kind| (kind.name(), kind.number(), kind.is_not_acquired(), kind.is_retryable())).into()
}
