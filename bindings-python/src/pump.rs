//! One event loop's share of background work: starts it, and hands out its results in batches on the loop's own thread.
//! What calls into the loop, its futures and listeners is `_pumps.py`.
//!
//! The loop owns the reader of the pump (through `add_reader`) and nobody else does. When the loop is closed it lets go of
//! the reader, and with that what is still under way is cancelled, and what was not delivered is undone, whoever keeps
//! tasks or the pump.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, process, thread};

use futures_util::FutureExt;
use onelock::ErrorKind;
use onelock::event_loop::{EventLoop, Socket, Task};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::connection::Connection;
use crate::error::{raise, refused};
use crate::queue::{Finish, Item, Queue};

/// Who waits for a result.
struct Waiter {
    future: Py<PyAny>,
    work: Arc<Task>,
}

#[derive(Default)]
struct Waiters {
    results: HashMap<u64, Waiter>,
    /// Who hears of events: called, not resolved.
    events: HashMap<u64, Py<PyAny>>,
}

/// The way of results into one event loop.
#[pyclass(frozen, weakref, module = "onelock._onelock")]
pub(crate) struct Pump {
    event_loop: EventLoop,
    queue: Arc<Queue>,
    waiters: Mutex<Waiters>,
    next: AtomicU64,
    /// The loop will call `flush`.
    called: AtomicBool,
    pid: u32,
}

/// Tells the waiter even if the work panicked.
struct Report {
    /// Until it has told.
    queue: Option<Arc<Queue>>,
    id: u64,
}

impl Report {
    fn done(mut self, finish: Finish) {
        if let Some(queue) = self.queue.take() {
            queue.push(self.id, finish);
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take()
            && thread::panicking()
        {
            let finish =
                |py: Python<'_>| Err(refused(py, ErrorKind::Internal, "run background work", "it panicked", None));
            queue.push(self.id, Box::new(finish));
        }
    }
}

/// What the loop has to do after something was started: the connections that it is to watch from now on, and whether it is
/// to call `flush` when it has gone round.
pub(crate) type Chores = (Vec<Py<Connection>>, bool);

/// Something that was started: its number, and most of the time nothing else.
pub(crate) type Started = (u64, Option<Chores>);

/// What has come: for a future its result (0) or its error (1), or what a listener is to be called with (2).
pub(crate) type Told = (Py<PyAny>, u8, Py<PyAny>);

impl Pump {
    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        // held for a look-up only: nothing panics and nothing of Python runs meanwhile
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts `work` in the background. Its result goes to `future`.
    pub(crate) fn start(
        pump: &Bound<'_, Pump>,
        future: Py<PyAny>,
        work: impl Future<Output = Finish> + Send + 'static,
    ) -> PyResult<Started> {
        let (py, this) = (pump.py(), pump.get());
        let id = this.number();
        let report = Report { queue: Some(this.queue.clone()), id };
        let started = this.event_loop.start(work.map(move |finish| report.done(finish)));
        let work = started.map_err(|error| raise(py, &error))?;
        this.waiters().results.insert(id, Waiter { future, work });
        let fresh = this.event_loop.new_sockets();
        let flush = this.event_loop.needs_flush() && !this.called.swap(true, Ordering::Relaxed);
        if fresh.is_empty() && !flush {
            return Ok((id, None));
        }
        let connections = fresh.into_iter().map(|socket| Connection::new(pump, socket));
        Ok((id, Some((connections.collect::<PyResult<_>>()?, flush))))
    }

    /// The number under which `callback` is called, and what calls it.
    pub(crate) fn listen(&self, callback: Py<PyAny>) -> (u64, Arc<Queue>) {
        let id = self.number();
        self.waiters().events.insert(id, callback);
        (id, self.queue.clone())
    }

    /// What this socket has is taken in; what came of it, and whether it is to be watched on.
    pub(crate) fn ready(&self, py: Python<'_>, socket: &Socket) -> (bool, Vec<Told>) {
        self.queue.attend();
        let goes_on = self.event_loop.ready(socket);
        (goes_on, self.tell(py, self.queue.take_attended()))
    }

    /// What has come, for whom. To be told in Python: nothing of Python runs in here, for a thread that the interpreter
    /// ends while it is in Python must have nothing native of ours below it.
    fn tell(&self, py: Python<'_>, items: Vec<Item>) -> Vec<Told> {
        let tell = |(id, finish): Item| {
            let waiter = self.waiters().results.remove(&id);
            let (target, event) = if let Some(waiter) = waiter {
                (waiter.future, false)
            } else {
                // nobody waits any more: the result is dropped, and so undone
                let callback = self.waiters().events.get(&id)?.clone_ref(py);
                (callback, true)
            };
            Some(match finish(py) {
                Ok(value) => (target, if event { 2 } else { 0 }, value),
                Err(error) => (target, 1, error.into_value(py).into_any()),
            })
        };
        items.into_iter().filter_map(tell).collect()
    }
}

#[pymethods]
impl Pump {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Pump> {
        let queue = Queue::new().map_err(|error| {
            let detail = format!("no file descriptor to wake it by: {error}");
            refused(py, ErrorKind::SystemLimit, "serve an event loop", &detail, None)
        })?;
        let (waiters, next) = (Mutex::default(), AtomicU64::new(0));
        let called = AtomicBool::new(false);
        Ok(Pump { event_loop: EventLoop::new(), queue: Arc::new(queue), waiters, next, called, pid: process::id() })
    }

    /// Sends the requests that came together. The loop calls it when it has gone round, and tells what has come.
    fn flush(&self, py: Python<'_>) -> Vec<Told> {
        self.called.store(false, Ordering::Relaxed);
        self.queue.attend();
        self.event_loop.flush();
        self.tell(py, self.queue.take_attended())
    }

    /// What has come.
    fn drain(&self, py: Python<'_>) -> Vec<Told> {
        self.tell(py, self.queue.take())
    }

    /// Nobody waits for this result any more: the work is cancelled, and what it got is given back. Returns the future.
    fn abandon(&self, id: u64) -> Option<Py<PyAny>> {
        let waiter = self.waiters().results.remove(&id)?;
        waiter.work.abort();
        self.queue.withdraw(id);
        Some(waiter.future)
    }

    /// Nobody hears these events any more. Returns who did.
    fn forget(&self, id: u64) -> Option<Py<PyAny>> {
        self.waiters().events.remove(&id)
    }

    /// How many results and events are waited for; for tests.
    fn pending(&self) -> (usize, usize) {
        let waiters = self.waiters();
        (waiters.results.len(), waiters.events.len())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(waiters) = self.waiters.try_lock() else { return Ok(()) };
        for waiter in waiters.results.values() {
            visit.call(&waiter.future)?;
        }
        for callback in waiters.events.values() {
            visit.call(callback)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        self.end();
    }
}

impl Pump {
    fn end(&self) {
        // tasks and leases that a forked child inherited are its parent's: it touches none
        if self.pid != process::id() {
            mem::forget(mem::take(&mut *self.waiters()));
            return;
        }
        self.queue.close();
        let waiters = mem::take(&mut *self.waiters());
        for waiter in waiters.results.values() {
            waiter.work.abort();
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a loop watches, and by which it owns its pump.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct Reader(Py<Pump>);

#[pymethods]
impl Reader {
    #[new]
    fn new(pump: Py<Pump>) -> Reader {
        Reader(pump)
    }

    /// What the loop is to watch.
    fn fileno(&self) -> i32 {
        self.0.get().queue.fd()
    }

    /// What has come. The loop calls it when `fileno()` is readable.
    fn drain(&self, py: Python<'_>) -> Vec<Told> {
        self.0.get().drain(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.0)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.get().end();
    }
}
