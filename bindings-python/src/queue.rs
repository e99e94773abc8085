//! What background work has to tell one event loop: results and events in order, with a wake-up only when the loop would
//! not look by itself.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, mem};

use onelock::event_loop::is_cancelled;
use pyo3::prelude::*;

use crate::wake::Wake;

/// Makes the Python value of a result, on the loop's thread, and runs nothing of Python. Dropping it undoes what it stands
/// for: an undelivered lease is given back.
pub(crate) type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// To whom, and what.
pub(crate) type Item = (u64, Finish);

#[derive(Default)]
struct State {
    items: Vec<Item>,
    /// The loop looks soon by itself.
    attended: bool,
    /// Nobody takes anything out any more.
    closed: bool,
}

pub(crate) struct Queue {
    wake: Wake,
    state: Mutex<State>,
}

impl Queue {
    pub(crate) fn new() -> io::Result<Queue> {
        Ok(Queue { wake: Wake::new()?, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // nothing panics while it is locked
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fd(&self) -> i32 {
        self.wake.fd()
    }

    /// Adds a result; from any thread. What nobody will take is dropped at once, however long the loop stays away.
    pub(crate) fn push(&self, id: u64, finish: Finish) {
        let mut state = self.lock();
        if state.closed || is_cancelled() {
            drop(state);
            drop(finish);
            return;
        }
        let unnoticed = state.items.is_empty() && !state.attended;
        state.items.push((id, finish));
        drop(state);
        if unnoticed {
            self.wake.raise();
        }
    }

    /// Nobody will take this any more: it is dropped. The work that may still come to a result was ended before.
    pub(crate) fn withdraw(&self, id: u64) {
        let mut state = self.lock();
        let at = state.items.iter().position(|(known, _)| *known == id);
        let withdrawn = at.map(|at| state.items.remove(at));
        drop(state);
        drop(withdrawn);
    }

    /// Takes out everything that has come.
    pub(crate) fn take(&self) -> Vec<Item> {
        // in this order: what comes in between wakes the loop once more
        self.wake.take();
        mem::take(&mut self.lock().items)
    }

    /// The loop is about to take everything out: nothing has to wake it until then.
    pub(crate) fn attend(&self) {
        self.lock().attended = true;
    }

    /// Takes out everything that has come, after `attend`.
    pub(crate) fn take_attended(&self) -> Vec<Item> {
        let mut state = self.lock();
        state.attended = false;
        mem::take(&mut state.items)
    }

    /// The loop has ended. What it did not take is undone.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let rest = mem::take(&mut state.items);
        drop(state);
        drop(rest);
    }
}
