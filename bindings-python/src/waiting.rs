//! Calls that wait: they release the interpreter lock, and a signal (Ctrl-C) ends them.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use onelock::blocking::Interrupt;
use onelock::{Error, ErrorKind};
use pyo3::intern;
use pyo3::prelude::*;

use crate::error::raise;
use crate::exit;

/// How often a waiting call attaches to the interpreter to check for signals.
const LOOK_EVERY: Duration = Duration::from_millis(45);

/// One call of this thread.
struct Watch {
    next_look: Instant,
    /// Set for other threads than the main one, which alone handles signals.
    deaf: bool,
    raised: Option<PyErr>,
}

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Ends a waiting call when a signal's handler raises, as Python's own blocking calls do.
pub(crate) struct Signals;

impl Interrupt for Signals {
    fn interrupted(&self) -> bool {
        let due = WATCH.with_borrow(|watch| {
            watch
                .as_ref()
                .is_some_and(|watch| !watch.deaf && watch.raised.is_none() && Instant::now() >= watch.next_look)
        });
        if !due {
            return WATCH.with_borrow(|watch| watch.as_ref().is_some_and(|watch| watch.raised.is_some()));
        }
        // handlers may call this module, so nothing is borrowed while they run
        let outer = WATCH.take();
        // asking for the thread runs Python code, where a handler may be called and raise as well
        let looked = exit::attached(|py| py.check_signals().and_then(|()| is_main_thread(py)));
        let (main, raised) = match looked {
            None => (false, None),
            Some(Ok(main)) => (main, None),
            Some(Err(raised)) => (true, Some(raised)),
        };
        let interrupted = raised.is_some();
        let next_look = Instant::now() + LOOK_EVERY;
        WATCH.set(outer.map(|watch| Watch { next_look, deaf: !main, raised: watch.raised.or(raised) }));
        interrupted
    }
}

/// Whether this is the thread that handles signals.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let main = py.import(intern!(py, "threading"))?.call_method0(intern!(py, "main_thread"))?;
    // `ident` is that of the system; a monkey-patched `get_ident` would be a greenlet's
    let ident: u64 = main.getattr(intern!(py, "ident"))?.extract()?;
    let mine: u64 = py.import(intern!(py, "_thread"))?.call_method0(intern!(py, "get_ident"))?.extract()?;
    Ok(ident == mine)
}

/// Runs a call that may wait for long. Signal handlers run meanwhile; their exception is raised here, and a lease that
/// the call acquired is released.
pub(crate) fn interruptible<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    let before = WATCH.replace(Some(Watch { next_look: Instant::now() + LOOK_EVERY, deaf: false, raised: None }));
    let result = py.detach(|| {
        let result = call();
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Closed) {
            exit::park_at_exit();
        }
        result
    });
    let watch = WATCH.replace(before);
    if let Some(raised) = watch.and_then(|watch| watch.raised) {
        drop(result);
        return Err(raised);
    }
    result.map_err(|error| raise(py, &error))
}

/// Runs a call that takes at most one round trip.
pub(crate) fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    py.detach(call)
}
