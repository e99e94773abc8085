//! Log lines of the library, passed to a callback of the program.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use onelock::{ErrorKind, log};

use crate::boundary::{is_logging, status, while_logging};
use crate::error::{Failure, onelock_error};
use crate::listeners::Callback;
use crate::status::{ONELOCK_OK, onelock_status};
use crate::text::c_text;

/// Nothing.
pub const ONELOCK_LOG_OFF: u32 = 0;
/// Defects of this library.
pub const ONELOCK_LOG_ERROR: u32 = 1;
/// Losses, missed renewals, settings of servers that can break locks.
pub const ONELOCK_LOG_WARN: u32 = 2;
/// Events of normal use, such as a connection.
pub const ONELOCK_LOG_INFO: u32 = 3;
/// Connections, retries.
pub const ONELOCK_LOG_DEBUG: u32 = 4;
/// Everything.
pub const ONELOCK_LOG_TRACE: u32 = 5;

/// Called for every log line, from any thread: those of the library and those of the program. `message` is
/// NUL-terminated UTF-8 and valid during the call.
///
/// It must be quick, and no function that returns an `onelock_status` can be called from it.
pub type onelock_log_fn = Option<unsafe extern "C" fn(level: u32, message: *const c_char, user_data: *mut c_void)>;

// the numbers in the header are the core's
const _: () = assert!(
    ONELOCK_LOG_ERROR == log::ERROR
        && ONELOCK_LOG_WARN == log::WARN
        && ONELOCK_LOG_INFO == log::INFO
        && ONELOCK_LOG_DEBUG == log::DEBUG
        && ONELOCK_LOG_TRACE == log::TRACE
);

struct Logger {
    callback: Callback<onelock_log_fn>,
    pid: u32,
    running: AtomicUsize,
}

static LOGGER: ArcSwapOption<Logger> = ArcSwapOption::const_empty();

fn say(level: u32, line: &str) {
    if is_logging() {
        return;
    }
    let Some(logger) = LOGGER.load_full() else { return };
    logger.running.fetch_add(1, Ordering::SeqCst);
    // a thread that replaced it meanwhile may not have seen that it runs
    let current = LOGGER.load_full().is_some_and(|current| Arc::ptr_eq(&current, &logger));
    if current && let Some(function) = logger.callback.function {
        let line = c_text(line);
        // SAFETY: the program set this function for this call, and has not removed it.
        while_logging(|| unsafe { function(level, line.as_ptr(), logger.callback.user_data) });
    }
    logger.running.fetch_sub(1, Ordering::SeqCst);
}

/// Sets the function of the process that takes log lines, up to this `ONELOCK_LOG_` level, in place of the one before;
/// `NULL` removes it.
///
/// Waits for a running call, so that the former function is never called after this has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_log_set(
    level: u32,
    callback: onelock_log_fn,
    user_data: *mut c_void,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "set the log callback";
    status(error, TRIED, || {
        if level > ONELOCK_LOG_TRACE {
            let detail = format!("{level} is no level; use an ONELOCK_LOG_ constant");
            return Err(Failure::new(ErrorKind::InvalidArgument, TRIED, &detail));
        }
        let callback = Callback::new(callback, user_data);
        let logger = callback
            .map(|callback| Arc::new(Logger { callback, pid: std::process::id(), running: AtomicUsize::new(0) }));
        let level = if logger.is_some() { level } else { ONELOCK_LOG_OFF };
        let before = LOGGER.swap(logger);
        log::forward(level, say);
        if let Some(before) = before {
            // in a forked child the threads that were inside it are not there
            while before.pid == std::process::id() && before.running.load(Ordering::SeqCst) > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(ONELOCK_OK)
    })
}
