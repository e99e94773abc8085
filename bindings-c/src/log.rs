//! What the library has to say, given to a function of the program.

use std::ffi::{c_char, c_void};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use onelock::ErrorKind;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::boundary::{is_logging, status, while_logging};
use crate::error::{Failure, onelock_error};
use crate::listeners::Callback;
use crate::status::{ONELOCK_OK, onelock_status};
use crate::text::c_text;

/// Nothing.
pub const ONELOCK_LOG_OFF: u32 = 0;
/// Defects.
pub const ONELOCK_LOG_ERROR: u32 = 1;
/// What somebody should look at: losses, missed renewals, servers that break locks.
pub const ONELOCK_LOG_WARN: u32 = 2;
/// What is worth a line in normal use.
pub const ONELOCK_LOG_INFO: u32 = 3;
/// Connections, retries.
pub const ONELOCK_LOG_DEBUG: u32 = 4;
/// Everything.
pub const ONELOCK_LOG_TRACE: u32 = 5;

/// Called for every line that is logged, from any thread, the library's own and the caller's. `message` is
/// NUL-terminated UTF-8 and valid during the call.
///
/// It must be quick, and no function that returns an `onelock_status` can be called from it.
pub type onelock_log_fn = Option<unsafe extern "C" fn(level: u32, message: *const c_char, user_data: *mut c_void)>;

struct Logger {
    callback: Callback<onelock_log_fn>,
    pid: u32,
    running: AtomicUsize,
}

static LOGGER: ArcSwapOption<Logger> = ArcSwapOption::const_empty();
static LEVEL: AtomicU32 = AtomicU32::new(ONELOCK_LOG_OFF);

fn number(level: Level) -> u32 {
    match level {
        Level::ERROR => ONELOCK_LOG_ERROR,
        Level::WARN => ONELOCK_LOG_WARN,
        Level::INFO => ONELOCK_LOG_INFO,
        Level::DEBUG => ONELOCK_LOG_DEBUG,
        Level::TRACE => ONELOCK_LOG_TRACE,
    }
}

fn filter(level: u32) -> Option<LevelFilter> {
    Some(match level {
        ONELOCK_LOG_OFF => LevelFilter::OFF,
        ONELOCK_LOG_ERROR => LevelFilter::ERROR,
        ONELOCK_LOG_WARN => LevelFilter::WARN,
        ONELOCK_LOG_INFO => LevelFilter::INFO,
        ONELOCK_LOG_DEBUG => LevelFilter::DEBUG,
        ONELOCK_LOG_TRACE => LevelFilter::TRACE,
        _ => return None,
    })
}

/// Hands the events of this library's crates on. No spans: a line says all that it has to say.
struct ToCallback;

impl Subscriber for ToCallback {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.is_event() { Interest::sometimes() } else { Interest::never() }
    }
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("onelock")
            && number(*metadata.level()) <= LEVEL.load(Ordering::Relaxed)
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        filter(LEVEL.load(Ordering::Relaxed))
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        say(number(*event.metadata().level()), &(line.message + &line.fields));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

fn say(level: u32, line: &str) {
    if is_logging() {
        return;
    }
    let Some(logger) = LOGGER.load_full() else { return };
    logger.running.fetch_add(1, Ordering::SeqCst);
    // whoever replaced it meanwhile may not have seen that it runs
    let current = LOGGER.load_full().is_some_and(|current| Arc::ptr_eq(&current, &logger));
    if current && let Some(function) = logger.callback.function {
        let line = c_text(line);
        // SAFETY: the program gave this function for this call, and it was not taken back.
        while_logging(|| unsafe { function(level, line.as_ptr(), logger.callback.user_data) });
    }
    logger.running.fetch_sub(1, Ordering::SeqCst);
}

/// Sets the one function of the process that is given what the library logs, up to this `ONELOCK_LOG_` level, in place
/// of the one before; `NULL` takes it away.
///
/// Waits for a call that is running, so that the old function is never called after this has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_log_set(
    level: u32,
    callback: onelock_log_fn,
    user_data: *mut c_void,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "set the log callback";
    status(error, TRIED, || {
        if filter(level).is_none() {
            let detail = format!("{level} is no level; use an ONELOCK_LOG_ constant");
            return Err(Failure::new(ErrorKind::InvalidArgument, TRIED, &detail));
        }
        let callback = Callback::new(callback, user_data);
        let logger = callback
            .map(|callback| Arc::new(Logger { callback, pid: std::process::id(), running: AtomicUsize::new(0) }));
        LEVEL.store(if logger.is_some() { level } else { ONELOCK_LOG_OFF }, Ordering::Relaxed);
        let before = LOGGER.swap(logger);
        // only the first time; another subscriber of the same library copy cannot be there
        let _ = tracing::subscriber::set_global_default(ToCallback);
        tracing_core::callsite::rebuild_interest_cache();
        if let Some(before) = before {
            // in a forked child the threads that were inside it are not there
            while before.pid == std::process::id() && before.running.load(Ordering::SeqCst) > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(ONELOCK_OK)
    })
}
