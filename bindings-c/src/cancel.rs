//! Cancel tokens, which end a waiting acquire from another thread or a signal handler.

use onelock::ErrorKind;

use crate::boundary::{free, value};
use crate::error::Failure;
use crate::handles::{Flag, HANDLES};
use crate::object::{Exposed, Object};

/// Cancels waiting acquires.
pub struct onelock_cancel {
    _private: [u8; 0],
}

/// A cancel token is only a flag in the handle table.
pub(crate) struct Token;

impl Exposed for Token {
    type Opaque = onelock_cancel;
    const NAME: &'static str = "cancel";
    fn of(object: &Object) -> Option<&Token> {
        matches!(object, Object::Cancel).then_some(&Token)
    }
    fn into_object(self) -> Object {
        Object::Cancel
    }
}

/// The flag of a token; `None` for NULL.
pub(crate) fn flag(token: *const onelock_cancel, tried: &str) -> Result<Option<Flag>, Failure> {
    if token.is_null() {
        return Ok(None);
    }
    crate::boundary::live::<Token>(token, tried)?;
    let flag = HANDLES.flag(token as usize);
    flag.map(Some).ok_or_else(|| Failure::new(ErrorKind::InvalidArgument, tried, "the cancel token was freed"))
}

/// A new token. `NULL` when there is no room for another handle. Free it with `onelock_cancel_free`.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_cancel_new() -> *mut onelock_cancel {
    value(std::ptr::null_mut(), || crate::boundary::expose(Token, "make a cancel token").ok())
}

/// Cancels every acquire with this token, within 50 ms, and every later one at once. False for a dead handle.
///
/// May be called from any thread and from a signal handler: it is one atomic operation, without locks, memory or I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_cancel_cancel(cancel: *const onelock_cancel) -> bool {
    value(false, || HANDLES.flag(cancel as usize).map(Flag::set))
}

/// Whether it was cancelled. May be called from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_cancel_is_cancelled(cancel: *const onelock_cancel) -> bool {
    value(false, || HANDLES.flag(cancel as usize).map(Flag::is_set))
}

/// Frees the token. An acquire with it continues, and can no longer be cancelled by it. Does nothing for NULL and dead
/// handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_cancel_free(cancel: *mut onelock_cancel) {
    free::<Token>(cancel, |_| ());
}
