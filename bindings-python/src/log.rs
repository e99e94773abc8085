//! Log lines of the core for `logging`. They come from any thread, also that of renewal, so they are queued, and a
//! thread of its own passes them to the interpreter.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{mem, process, thread};

use arc_swap::ArcSwapOption;
use onelock::log;
use pyo3::prelude::*;

use crate::exit;

/// The longest queue; then the oldest lines are dropped.
const ROOM: usize = 4096;

/// A line: Python's number for its level, and the text.
type Line = (u8, String);

#[derive(Default)]
struct State {
    lines: VecDeque<Line>,
    dropped: u64,
    carrier: bool,
}

/// The lines of one process; a forked child has its own.
struct Log {
    pid: u32,
    state: Mutex<State>,
    filled: Condvar,
}

static LOG: ArcSwapOption<Log> = ArcSwapOption::const_empty();
static LEVEL: AtomicU8 = AtomicU8::new(u8::MAX);

/// Python's number for a level of ours.
fn number(level: u32) -> u8 {
    match level {
        log::ERROR => 40,
        log::WARN => 30,
        log::INFO => 20,
        log::DEBUG => 10,
        _ => 5,
    }
}

/// The highest of our levels that is wanted when Python's is `level`.
fn wanted(level: u8) -> u32 {
    (1..=log::TRACE).rev().find(|ours| number(*ours) >= level).unwrap_or(0)
}

fn say(level: u32, line: &str) {
    Log::here().add((number(level), line.to_owned()));
}

impl Log {
    fn here() -> Arc<Log> {
        loop {
            let present = LOG.load_full();
            if let Some(log) = &present
                && log.pid == process::id()
            {
                return log.clone();
            }
            let fresh = Arc::new(Log { pid: process::id(), state: Mutex::default(), filled: Condvar::new() });
            let _ = LOG.compare_and_swap(&present, Some(fresh));
            // a thread of the parent may have had it locked
            mem::forget(present);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(self: &Arc<Self>, line: Line) {
        let mut state = self.lock();
        if state.lines.len() == ROOM {
            state.lines.pop_front();
            state.dropped += 1;
        }
        state.lines.push_back(line);
        let start = !mem::replace(&mut state.carrier, true);
        drop(state);
        self.filled.notify_one();
        if start {
            let log = self.clone();
            let spawned = thread::Builder::new().name("onelock-log".to_owned()).spawn(move || log.carry());
            if spawned.is_err() {
                // the lines wait for the next one, which tries again, or for the end
                self.lock().carrier = false;
            }
        }
    }

    /// Passes lines to the interpreter until it ends.
    fn carry(&self) {
        loop {
            let mut state = self.lock();
            while state.lines.is_empty() {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            let carried = exit::attached(|py| {
                let deliver = py.import("onelock._logging").and_then(|module| module.getattr("deliver"));
                // taken only now: other lines are delivered at the end
                if let Err(error) = deliver.and_then(|deliver| deliver.call1((self.take(),))) {
                    error.write_unraisable(py, None);
                }
            });
            if carried.is_none() {
                return;
            }
        }
    }

    fn take(&self) -> Vec<Line> {
        let mut state = self.lock();
        let mut lines: Vec<Line> = mem::take(&mut state.lines).into();
        let dropped = mem::take(&mut state.dropped);
        drop(state);
        if dropped > 0 {
            lines.insert(
                0,
                (30, format!("{dropped} lines of log were dropped: they came faster than they were handled")),
            );
        }
        lines
    }
}

/// Sets the lowest level of Python for which lines are wanted.
#[pyfunction]
pub(crate) fn set_log_level(level: u8) {
    if LEVEL.swap(level, Ordering::Relaxed) != level {
        log::forward(wanted(level), say);
    }
}

/// Takes the lines that were not passed yet, for the end of the interpreter.
#[pyfunction]
pub(crate) fn take_log() -> Vec<Line> {
    Log::here().take()
}
