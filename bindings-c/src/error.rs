//! Errors as objects: status, message, name of the lock, answers of servers.

use std::ffi::{CStr, CString, c_char};
use std::ptr::null;

use onelock::ErrorKind;

use crate::boundary::{free, peek, value};
use crate::object::exposed;
use crate::status::{ONELOCK_OK, onelock_status, onelock_status_name};
use crate::text::c_text;

/// An error. It belongs to the caller that passed the `error` pointer; free it with `onelock_error_free`.
pub struct onelock_error {
    _private: [u8; 0],
}

/// The parts of an error.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    message: CString,
    lock_name: Option<CString>,
    tried: CString,
    detail: CString,
    causes: Vec<CString>,
}

exposed!(Failure, Error, onelock_error, "error");

impl Failure {
    /// An error that the binding detects, worded like those of the core.
    pub(crate) fn new(kind: ErrorKind, tried: &str, detail: &str) -> Failure {
        Failure {
            kind,
            message: c_text(&format!("{tried}: {detail} ({}: {})", kind.name(), kind.todo())),
            lock_name: None,
            tried: c_text(tried),
            detail: c_text(detail),
            causes: Vec::new(),
        }
    }

    /// Names the lock (bytes that are not printable are escaped).
    pub(crate) fn on(mut self, name: &[u8]) -> Failure {
        let name = name.escape_ascii().to_string();
        let (tried, detail) = (self.tried.to_string_lossy(), self.detail.to_string_lossy());
        let message = format!("{tried} \"{name}\": {detail} ({}: {})", self.kind.name(), self.kind.todo());
        self.message = c_text(&message);
        self.lock_name = Some(c_text(&name));
        self
    }

    pub(crate) fn status(&self) -> onelock_status {
        self.kind.number()
    }

    #[cfg(test)]
    pub(crate) fn message(&self) -> std::borrow::Cow<'_, str> {
        self.message.to_string_lossy()
    }
}

impl From<onelock::Error> for Failure {
    fn from(error: onelock::Error) -> Failure {
        Failure {
            kind: error.kind(),
            message: c_text(&error.to_string()),
            lock_name: error.lock_name().map(c_text),
            tried: c_text(error.tried()),
            detail: c_text(error.detail()),
            causes: error.causes().iter().map(|cause| c_text(cause)).collect(),
        }
    }
}

fn borrowed(error: *const onelock_error, part: impl FnOnce(&Failure) -> Option<&CStr>) -> *const c_char {
    value(null(), || peek::<Failure, _>(error, |failure| part(failure).map(CStr::as_ptr))?)
}

/// The status that the call returned; `ONELOCK_OK` for NULL or a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_status(error: *const onelock_error) -> onelock_status {
    value(ONELOCK_OK, || peek(error, Failure::status))
}

/// The name of the kind of error, such as `Timeout`. Static text; `NULL` for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_kind(error: *const onelock_error) -> *const c_char {
    value(null(), || Some(onelock_status_name(peek(error, Failure::status)?)))
}

/// The message: the lock, the call, what was found, and what to do. It never contains a password. It belongs to the
/// error; `NULL` for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_message(error: *const onelock_error) -> *const c_char {
    borrowed(error, |failure| Some(&failure.message))
}

/// The name of the lock, unprintable bytes escaped; `NULL` when the error concerns no lock. It belongs to the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_lock_name(error: *const onelock_error) -> *const c_char {
    borrowed(error, |failure| failure.lock_name.as_deref())
}

/// The call that failed, in a few words: `acquire`, `extend`, `connect` ... It belongs to the error; `NULL` for a dead
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_tried(error: *const onelock_error) -> *const c_char {
    borrowed(error, |failure| Some(&failure.tried))
}

/// What was found, without the name of the lock and the hint. It belongs to the error; `NULL` for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_detail(error: *const onelock_error) -> *const c_char {
    borrowed(error, |failure| Some(&failure.detail))
}

/// The number of answers of servers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_cause_count(error: *const onelock_error) -> usize {
    value(0, || peek(error, |failure: &Failure| failure.causes.len()))
}

/// The answer of one server; `NULL` when `index` is too high. It belongs to the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_cause(error: *const onelock_error, index: usize) -> *const c_char {
    borrowed(error, |failure| failure.causes.get(index).map(CString::as_c_str))
}

/// Whether the same call may succeed later, without any change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_is_retryable(error: *const onelock_error) -> bool {
    value(false, || peek(error, |failure: &Failure| failure.kind.is_retryable()))
}

/// Frees the error and its texts. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_error_free(error: *mut onelock_error) {
    free::<Failure>(error, |_| ());
}
