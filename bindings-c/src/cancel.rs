//! Cancel tokens: how a waiting acquire is ended from another thread, or from a signal handler.

use onelock::ErrorKind;

use crate::boundary::{free, value};
use crate::error::Failure;
use crate::object::{Exposed, Object};
use crate::table::{Flag, TABLE};

/// Ends waiting acquires from outside.
pub struct onelock_cancel {
    _private: [u8; 0],
}

/// Everything about a cancel token is its flag in the table.
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
    let flag = TABLE.flag(token as usize);
    flag.map(Some).ok_or_else(|| Failure::new(ErrorKind::InvalidArgument, tried, "the cancel token was freed"))
}

/// A token that was not used yet. `NULL` when there is no room for another handle. Free it with `onelock_cancel_free`.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_cancel_new() -> *mut onelock_cancel {
    value(std::ptr::null_mut(), || crate::boundary::expose(Token, "make a cancel token").ok())
}

/// Ends every acquire that was given this token, within 50 ms, and every later one at once. True unless the handle is
/// dead.
///
/// May be called from any thread and from a signal handler: it does one atomic operation, no lock, no memory, no I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_cancel_cancel(cancel: *const onelock_cancel) -> bool {
    value(false, || TABLE.flag(cancel as usize).map(Flag::set))
}

/// Whether it was used. May be called from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_cancel_is_cancelled(cancel: *const onelock_cancel) -> bool {
    value(false, || TABLE.flag(cancel as usize).map(Flag::is_set))
}

/// Frees the token. An acquire that was given it goes on, and can no longer be ended by it. NULL and dead handles are
/// left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_cancel_free(cancel: *mut onelock_cancel) {
    free::<Token>(cancel, |_| ());
}
