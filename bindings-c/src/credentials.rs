//! Credentials of new connections, from a callback of the program.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use onelock::{Credentials, CredentialsProvider, CredentialsRequest, ErrorKind};

use crate::boundary::{expose, free, live, status};
use crate::client_options::{onelock_client_options, set};
use crate::error::{Failure, onelock_error};
use crate::handles::HANDLES;
use crate::listeners::Callback;
use crate::object::{Exposed, exposed};
use crate::status::{ONELOCK_OK, onelock_status};
use crate::text::{optional_text, text};

/// A connection that waits for credentials.
pub struct onelock_credentials_request {
    _private: [u8; 0],
}

/// Taken out by the answer.
pub(crate) struct RequestObject(Mutex<Option<CredentialsRequest>>);

exposed!(RequestObject, CredentialsRequest, onelock_credentials_request, "credentials_request");

/// Called for each new connection, on threads of its own, where it may block; on at most 16 threads at a time.
/// `request` belongs to the callback: end it with `onelock_credentials_request_answer`,
/// `onelock_credentials_request_fail` or `onelock_credentials_request_free`, now or later, from any thread.
pub type onelock_credentials_fn =
    Option<unsafe extern "C" fn(request: *mut onelock_credentials_request, user_data: *mut c_void)>;

/// Called once, when `user_data` is not used any more, on any thread. It must not call this library.
pub type onelock_destroy_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// The callback, for as long as options or connections may call it.
struct Provider {
    ask: Callback<onelock_credentials_fn>,
    destroy: onelock_destroy_fn,
}

impl CredentialsProvider for Provider {
    fn ask(&self, request: CredentialsRequest) {
        let Some(function) = self.ask.function else { return };
        let request = RequestObject(Mutex::new(Some(request)));
        let Ok(request) = expose(request, "ask for credentials") else { return };
        // SAFETY: the program gave this function for this call, and `user_data` was not destroyed: this is alive.
        unsafe { function(request, self.ask.user_data) };
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the program gave this function for this call, which is made once.
            unsafe { destroy(self.ask.user_data) };
        }
    }
}

/// A callback that gives user name and password of each new connection, for passwords that expire. Default: what the
/// address says; both at once are refused when a client is made.
///
/// It is called for every new connection to a server, and once more when the server refuses what it gave, which may have
/// been replaced meanwhile; not for open ones. Sentinels have `onelock_client_options_set_sentinel_password`. A connection waits for the answer within its time limit. Without an
/// answer, or when the request is failed or freed, the call returns `ONELOCK_ERR_UNAVAILABLE`, and the next connection
/// calls it again.
///
/// `callback` may be called until the options, every client made with them, and their locks and leases are freed and
/// the connections have ended. Then `destroy` is called with `user_data`, unless it is `NULL`; also when another
/// callback replaces it. It is not called when this function fails, at the end of the program, or in a forked child for
/// a callback of its parent. The callback must not use a client for which it gives credentials: that call would wait
/// for itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_credentials(
    options: *mut onelock_client_options,
    callback: onelock_credentials_fn,
    user_data: *mut c_void,
    destroy: onelock_destroy_fn,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "set credentials";
    set(options, error, TRIED, || {
        let Some(ask) = Callback::new(callback, user_data) else {
            return Err(Failure::new(ErrorKind::InvalidArgument, TRIED, "the callback is NULL"));
        };
        let provider = Arc::new(Provider { ask, destroy });
        Ok(Box::new(move |builder| builder.credentials(provider.clone())))
    })
}

/// Ends a request that is alive.
fn end(
    request: *mut onelock_credentials_request,
    error: *mut *mut onelock_error,
    tried: &str,
    given: impl FnOnce() -> Result<Result<Credentials, String>, Failure>,
) -> onelock_status {
    status(error, tried, || {
        let waiting = live::<RequestObject>(request, tried)?;
        let given = given()?;
        HANDLES.remove(request as usize, |object| RequestObject::of(object).is_some());
        // another thread may have ended it meanwhile
        let taken = waiting.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(taken) = taken else {
            return Err(Failure::new(ErrorKind::InvalidArgument, tried, "the request was ended before"));
        };
        taken.answer(given);
        Ok(ONELOCK_OK)
    })
}

/// Answers with a user name, `NULL` or empty for the server's default user, and a password, and frees the request. A
/// late answer is dropped. If an argument is refused, the request stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_credentials_request_answer(
    request: *mut onelock_credentials_request,
    username: *const c_char,
    password: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "answer with credentials";
    let get = || {
        let username = optional_text(username, "username", TRIED)?.unwrap_or_default();
        Ok(Ok(Credentials::new(username, text(password, "password", TRIED)?)))
    };
    end(request, error, TRIED, get)
}

/// Fails the request with a reason, which becomes part of the error of the call, and frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_credentials_request_fail(
    request: *mut onelock_credentials_request,
    reason: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "answer without credentials";
    let get = || Ok(Err(text(reason, "reason", TRIED)?.to_owned()));
    end(request, error, TRIED, get)
}

/// How long the connection still waits, in milliseconds; 0 when it does not wait any more, and for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_credentials_request_time_left_ms(request: *const onelock_credentials_request) -> i64 {
    crate::boundary::value(0, || {
        crate::boundary::peek(request, |request: &RequestObject| {
            let request = request.0.lock().unwrap_or_else(PoisonError::into_inner);
            request.as_ref().map_or(0, |request| request.time_left().as_millis() as i64)
        })
    })
}

/// Frees a request without an answer: the connection fails. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_credentials_request_free(request: *mut onelock_credentials_request) {
    free::<RequestObject>(request, |request| {
        drop(request.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    });
}
