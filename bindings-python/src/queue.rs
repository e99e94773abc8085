//! The queue of results and events for one event loop, with a wake-up only when the loop would not look by itself.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, mem};

use onelock::event_loop::is_cancelled;
use pyo3::prelude::*;

use crate::wake::Wake;

/// Makes the Python value of a result, on the loop's thread, without running Python code. Dropping it releases a lease
/// in it.
pub(crate) type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// The number of a call or callback, and its result.
pub(crate) type Item = (u64, Finish);

#[derive(Default)]
struct State {
    items: Vec<Item>,
    /// The loop is going to look by itself.
    in_batch: bool,
    /// The loop has ended.
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

    /// Adds a result, from any thread. A result that is not wanted any more is dropped at once, even if the loop is
    /// blocked.
    pub(crate) fn push(&self, id: u64, finish: Finish) {
        let mut state = self.lock();
        if state.closed || is_cancelled() {
            drop(state);
            drop(finish);
            return;
        }
        let unnoticed = state.items.is_empty() && !state.in_batch;
        state.items.push((id, finish));
        drop(state);
        if unnoticed {
            self.wake.raise();
        }
    }

    /// Drops a result that is not wanted any more. Its work was ended before.
    pub(crate) fn withdraw(&self, id: u64) {
        let mut state = self.lock();
        let at = state.items.iter().position(|(known, _)| *known == id);
        let withdrawn = at.map(|at| state.items.remove(at));
        drop(state);
        drop(withdrawn);
    }

    /// Takes all results.
    pub(crate) fn take(&self) -> Vec<Item> {
        // in this order: a result in between wakes the loop once more
        self.wake.take();
        mem::take(&mut self.lock().items)
    }

    /// The loop is about to take all results: until then it needs no wake-up.
    pub(crate) fn begin_batch(&self) {
        self.lock().in_batch = true;
    }

    /// Takes all results, after `begin_batch`.
    pub(crate) fn take_batch(&self) -> Vec<Item> {
        let mut state = self.lock();
        state.in_batch = false;
        mem::take(&mut state.items)
    }

    /// The loop has ended: drops its results, and those that come later.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let rest = mem::take(&mut state.items);
        drop(state);
        drop(rest);
    }
}
