//! Credentials of new connections, from a function of the program. `_credentials.py` reads what it returns.

use std::sync::{Mutex, MutexGuard, PoisonError};

use onelock::{Credentials, CredentialsProvider, CredentialsRequest as Asked};
use pyo3::prelude::*;

use crate::exit;

/// A connection that waits for credentials. If the request is dropped without an answer, the connection fails.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct CredentialsRequest(Mutex<Option<Asked>>);

impl CredentialsRequest {
    fn asked(&self) -> MutexGuard<'_, Option<Asked>> {
        // nothing of Python runs while it is locked
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, given: Result<Credentials, String>) {
        let asked = self.asked().take();
        if let Some(asked) = asked {
            asked.answer(given);
        }
    }
}

#[pymethods]
impl CredentialsRequest {
    /// Answers; the first answer counts.
    fn answer(&self, username: Option<String>, password: String) {
        self.end(Ok(Credentials::new(username.unwrap_or_default(), password)));
    }

    /// Fails the request with a reason.
    fn fail(&self, reason: String) {
        self.end(Err(reason));
    }

    /// The seconds that the connection still waits.
    fn time_left(&self) -> f64 {
        self.asked().as_ref().map_or(0.0, |asked| asked.time_left().as_secs_f64())
    }
}

/// The callable for requests. The core calls it on threads of its own, not on that of the runtime.
pub(crate) struct Provider(Py<PyAny>);

impl Provider {
    pub(crate) fn new(ask: Bound<'_, PyAny>) -> Provider {
        Provider(ask.unbind())
    }
}

impl CredentialsProvider for Provider {
    fn ask(&self, request: Asked) {
        // at the end of the interpreter the request is dropped
        let _ = exit::attached(|py| {
            let request = Py::new(py, CredentialsRequest(Mutex::new(Some(request))));
            if let Err(error) = request.and_then(|request| self.0.call1(py, (request,))) {
                error.write_unraisable(py, None);
            }
        });
    }
}
