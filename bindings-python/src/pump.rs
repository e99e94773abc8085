//! One event loop's share of background work: starts it, and delivers its results in batches on the loop's own thread.
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
use onelock::port::{Port, Socket, Task};
use pyo3::exceptions::PyOSError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
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
    port: Port,
    queue: Arc<Queue>,
    waiters: Mutex<Waiters>,
    next: AtomicU64,
    /// The loop will call `flush`.
    called: AtomicBool,
    pid: u32,
}

/// Tells the waiter even if the work panicked.
struct Report {
    queue: Arc<Queue>,
    id: u64,
}

impl Report {
    fn done(self, finish: Finish) {
        self.queue.push(self.id, finish);
        mem::forget(self);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if thread::panicking() {
            let finish =
                |py: Python<'_>| Err(refused(py, ErrorKind::Internal, "run background work", "it panicked", None));
            self.queue.push(self.id, Box::new(finish));
        }
    }
}

/// Something that was started: its number, and the future that will have its result.
pub(crate) type Started<'py> = (u64, Bound<'py, PyAny>);

impl Pump {
    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        // held for a look-up only: nothing panics and nothing of Python runs meanwhile
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts `work` in the background. Its result goes to a new future of `event_loop`.
    pub(crate) fn start<'py>(
        pump: &Bound<'py, Pump>,
        event_loop: &Bound<'py, PyAny>,
        work: impl Future<Output = Finish> + Send + 'static,
    ) -> PyResult<Started<'py>> {
        let (py, this) = (event_loop.py(), pump.get());
        let future = event_loop.call_method0(intern!(py, "create_future"))?;
        let id = this.number();
        let queue = this.queue.clone();
        let report = Report { queue, id };
        let started = this.port.start(work.map(move |finish| report.done(finish)));
        let work = started.map_err(|error| raise(py, &error))?;
        let waiter = Waiter { future: future.clone().unbind(), work };
        this.waiters().results.insert(id, waiter);
        for socket in this.port.fresh() {
            Connection::watch(pump, event_loop, socket)?;
        }
        if this.port.is_owing() && !this.called.swap(true, Ordering::Relaxed) {
            let flush = pump.getattr(intern!(py, "flush"))?;
            event_loop.call_method1(intern!(py, "call_soon"), (flush,))?;
        }
        Ok((id, future))
    }

    /// The number under which `callback` is called, and what calls it.
    pub(crate) fn listen(&self, callback: Py<PyAny>) -> (u64, Arc<Queue>) {
        let id = self.number();
        self.waiters().events.insert(id, callback);
        (id, self.queue.clone())
    }
}

impl Pump {
    /// What this socket has is taken in, and what came of it delivered. False when it is not to be watched any more.
    pub(crate) fn ready(&self, py: Python<'_>, socket: &Socket) -> bool {
        self.queue.attend();
        let goes_on = self.port.ready(socket);
        self.deliver(py, self.queue.take_attended());
        goes_on
    }

    fn deliver(&self, py: Python<'_>, items: Vec<Item>) {
        for (id, finish) in items {
            let waiter = self.waiters().results.remove(&id);
            let delivered = if let Some(waiter) = waiter {
                deliver(waiter.future.bind(py), finish)
            } else {
                let callback = self.waiters().events.get(&id).map(|callback| callback.clone_ref(py));
                // nobody waits any more: the result is dropped, and so undone
                let Some(callback) = callback else { continue };
                finish(py).and_then(|event| callback.call1(py, (event,))).map(drop)
            };
            if let Err(error) = delivered {
                error.write_unraisable(py, None);
            }
        }
    }
}

#[pymethods]
impl Pump {
    #[new]
    fn new() -> PyResult<Pump> {
        let queue = Queue::new().map_err(|error| PyOSError::new_err(error.to_string()))?;
        let (waiters, next) = (Mutex::default(), AtomicU64::new(0));
        let called = AtomicBool::new(false);
        Ok(Pump { port: Port::new(), queue: Arc::new(queue), waiters, next, called, pid: process::id() })
    }

    /// Sends the requests that came together. The loop calls it when it has gone round.
    fn flush(&self, py: Python<'_>) {
        self.called.store(false, Ordering::Relaxed);
        self.queue.attend();
        self.port.flush();
        self.deliver(py, self.queue.take_attended());
    }

    /// Delivers what has come.
    fn drain(&self, py: Python<'_>) {
        self.deliver(py, self.queue.take());
    }

    /// Nobody waits for this result any more: the work is cancelled, and what it got is given back.
    fn abandon(&self, id: u64) {
        let waiter = self.waiters().results.remove(&id);
        if let Some(waiter) = waiter {
            waiter.work.abort();
        }
    }

    /// Nobody hears these events any more.
    fn forget(&self, id: u64) {
        let callback = self.waiters().events.remove(&id);
        drop(callback);
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

    /// Delivers what has come. The loop calls it when `fileno()` is readable.
    fn drain(&self, py: Python<'_>) {
        self.0.get().drain(py);
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

fn deliver(future: &Bound<'_, PyAny>, finish: Finish) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        // cancelled meanwhile: dropping the result undoes it
        return Ok(());
    }
    match finish(py) {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(error) => future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?,
    };
    Ok(())
}
