//! Starts calls for one event loop, and returns their results in batches on the loop's thread. `_pumps.py` delivers
//! them to futures and listeners.
//!
//! Only the loop owns the reader of the pump (through `add_reader`). When the loop is closed it drops the reader, which
//! cancels the calls in progress and releases leases that were not delivered, even if tasks or the pump are still
//! referenced.

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

/// A future that waits for a result.
struct Waiter {
    future: Py<PyAny>,
    work: Arc<Task>,
}

#[derive(Default)]
struct Waiters {
    results: HashMap<u64, Waiter>,
    /// Callbacks of events.
    events: HashMap<u64, Py<PyAny>>,
}

/// Delivers results to one event loop.
#[pyclass(frozen, weakref, module = "onelock._onelock")]
pub(crate) struct Pump {
    event_loop: EventLoop,
    queue: Arc<Queue>,
    waiters: Mutex<Waiters>,
    next: AtomicU64,
    /// Whether the loop is going to call `flush`.
    called: AtomicBool,
    pid: u32,
}

/// Reports a result, also if the work panicked.
struct Report {
    /// `None` once it has reported.
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

/// What the loop has to do after a call was started: the connections to watch, and whether to call `flush` in its next
/// iteration.
pub(crate) type LoopActions = (Vec<Py<Connection>>, bool);

/// The number of a call that was started, and what the loop has to do, which is mostly nothing.
pub(crate) type Started = (u64, Option<LoopActions>);

/// A future with its result (0) or its error (1), or a listener with the argument of its call (2).
pub(crate) type Delivery = (Py<PyAny>, u8, Py<PyAny>);

impl Pump {
    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        // held for a look-up only: nothing panics and no Python code runs meanwhile
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

    /// Registers a callback. Returns its number, and the queue for its events.
    pub(crate) fn listen(&self, callback: Py<PyAny>) -> (u64, Arc<Queue>) {
        let id = self.number();
        self.waiters().events.insert(id, callback);
        (id, self.queue.clone())
    }

    /// Reads from a socket. Returns whether to keep watching it, and what to deliver.
    pub(crate) fn ready(&self, py: Python<'_>, socket: &Socket) -> (bool, Vec<Delivery>) {
        self.queue.begin_batch();
        let keep_watching = self.event_loop.ready(socket);
        (keep_watching, self.deliveries(py, self.queue.take_batch()))
    }

    /// Matches results with their futures and listeners. Python delivers them: no Python code runs in here, because a
    /// thread that the interpreter ends while it is in Python must not have native frames of this module.
    fn deliveries(&self, py: Python<'_>, items: Vec<Item>) -> Vec<Delivery> {
        let deliver = |(id, finish): Item| {
            let waiter = self.waiters().results.remove(&id);
            let (target, event) = if let Some(waiter) = waiter {
                (waiter.future, false)
            } else {
                // no longer wanted: the result is dropped, which releases a lease in it
                let callback = self.waiters().events.get(&id)?.clone_ref(py);
                (callback, true)
            };
            Some(match finish(py) {
                Ok(value) => (target, if event { 2 } else { 0 }, value),
                Err(error) => (target, 1, error.into_value(py).into_any()),
            })
        };
        items.into_iter().filter_map(deliver).collect()
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

    /// Sends the batched requests, and returns what to deliver. The loop calls it in its next iteration.
    fn flush(&self, py: Python<'_>) -> Vec<Delivery> {
        self.called.store(false, Ordering::Relaxed);
        self.queue.begin_batch();
        self.event_loop.flush();
        self.deliveries(py, self.queue.take_batch())
    }

    /// What to deliver.
    fn drain(&self, py: Python<'_>) -> Vec<Delivery> {
        self.deliveries(py, self.queue.take())
    }

    /// Cancels a call: a lease that it acquired is released. Returns the future.
    fn abandon(&self, id: u64) -> Option<Py<PyAny>> {
        let waiter = self.waiters().results.remove(&id)?;
        waiter.work.abort();
        self.queue.withdraw(id);
        Some(waiter.future)
    }

    /// Removes a callback of events, and returns it.
    fn forget(&self, id: u64) -> Option<Py<PyAny>> {
        self.waiters().events.remove(&id)
    }

    /// The numbers of futures and callbacks; for tests.
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
        // tasks and leases that a forked child inherited belong to its parent
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

/// The object that a loop watches, and through which it owns its pump.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct Reader(Py<Pump>);

#[pymethods]
impl Reader {
    #[new]
    fn new(pump: Py<Pump>) -> Reader {
        Reader(pump)
    }

    /// The file descriptor to watch.
    fn fileno(&self) -> i32 {
        self.0.get().queue.fd()
    }

    /// What to deliver. The loop calls it when `fileno()` is readable.
    fn drain(&self, py: Python<'_>) -> Vec<Delivery> {
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
