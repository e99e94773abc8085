//! Converts errors to the exception classes of Python.

use onelock::{Error, ErrorKind};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

/// The exception class of each kind, from `errors.py`.
static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Sets the exception class of each kind of error. Called once, by `errors.py`.
#[pyfunction]
pub(crate) fn set_error_classes(py: Python<'_>, classes: Py<PyDict>) {
    // called again when the module is imported once more: programs know the first classes
    let _ = CLASSES.set(py, classes);
}

/// The parts of an error.
struct Parts<'a> {
    kind: ErrorKind,
    message: &'a str,
    lock_name: Option<&'a str>,
    tried: &'a str,
    detail: &'a str,
    causes: &'a [String],
}

/// Makes the exception. No Python code runs: the thread may be that of an event loop, see `pump`.
fn make(py: Python<'_>, parts: &Parts<'_>) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let classes = CLASSES.get(py).map(|classes| classes.bind(py));
        let class = classes.map(|classes| classes.get_item(parts.kind.name())).transpose()?.flatten();
        let Some(class) = class else {
            return Ok(PyRuntimeError::new_err(parts.message.to_owned()));
        };
        let exception = class.call1((parts.message,))?;
        exception.setattr(intern!(py, "lock_name"), parts.lock_name)?;
        exception.setattr(intern!(py, "tried"), parts.tried)?;
        exception.setattr(intern!(py, "detail"), parts.detail)?;
        exception.setattr(intern!(py, "causes"), PyTuple::new(py, parts.causes)?)?;
        Ok(PyErr::from_value(exception))
    };
    made().unwrap_or_else(|error| error)
}

/// The exception for an error of the core.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let parts = Parts {
        kind: error.kind(),
        message: &error.to_string(),
        lock_name: error.lock_name(),
        tried: error.tried(),
        detail: error.detail(),
        causes: error.causes(),
    };
    make(py, &parts)
}

/// The exception for an argument that the binding refuses, worded like those of the core.
pub(crate) fn refused(py: Python<'_>, kind: ErrorKind, tried: &str, detail: &str, name: Option<&[u8]>) -> PyErr {
    let name = name.map(|name| name.escape_ascii().to_string());
    let on = name.as_ref().map_or_else(String::new, |name| format!(" \"{name}\""));
    let message = format!("{tried}{on}: {detail} ({}: {})", kind.name(), kind.todo());
    make(py, &Parts { kind, message: &message, lock_name: name.as_deref(), tried, detail, causes: &[] })
}

/// The table of errors of the core, for the test that compares it with the exception classes.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<(&'static str, u32, bool, bool)> {
    ErrorKind::ALL.map(|kind| (kind.name(), kind.number(), kind.is_not_acquired(), kind.is_retryable())).into()
}
