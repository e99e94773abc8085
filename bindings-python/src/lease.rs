//! The base class of leases. `lease.py` and `alease.py` derive the public classes from it.

use std::sync::{Arc, Mutex, PoisonError};

use onelock::{ErrorKind, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::argument::{bytes, duration};
use crate::error::{raise, refused};
use crate::listener::{notify_loop, notify_thread};
use crate::pump::{Pump, Started};
use crate::queue::Finish;
use crate::waiting::{detached, interruptible};

/// The two kinds of lease: for threads, and for event loops.
pub(crate) enum Api {
    Blocking(blocking::Lease),
    Async(Arc<onelock::Lease>),
}

/// A grant that is on its way from the core to a `Lease` object.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct Granted(Mutex<Option<Lease>>);

/// One granted hold. Dropping it releases the lock in the background.
#[pyclass(frozen, subclass, module = "onelock._onelock")]
pub(crate) struct Lease {
    api: Api,
    /// As the program passed it; of several locks the tuple of their names.
    name: Py<PyAny>,
}

static LEASE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A grant for a lease object. If it is dropped before, it is released.
pub(crate) fn grant(py: Python<'_>, api: Api, name: Py<PyAny>) -> PyResult<Py<Granted>> {
    Py::new(py, Granted(Mutex::new(Some(Lease { api, name }))))
}

/// The Python object of a grant. No Python code runs between the grant and the object: when a signal handler raises,
/// there is either no lease, or one that is released with its object.
pub(crate) fn make(py: Python<'_>, lease: blocking::Lease, name: Py<PyAny>) -> PyResult<Py<PyAny>> {
    let class = LEASE.import(py, "onelock.lease", "Lease")?;
    let granted = grant(py, Api::Blocking(lease), name)?;
    Ok(class.call1((granted,))?.unbind())
}

/// A name for messages.
fn readable(name: &[u8]) -> String {
    std::str::from_utf8(name).map_or_else(|_| name.escape_ascii().to_string(), str::to_owned)
}

macro_rules! on_either {
    ($lease:expr, $name:ident => $value:expr) => {
        match &$lease.api {
            Api::Blocking($name) => $value,
            Api::Async($name) => $value,
        }
    };
}

impl Lease {
    fn blocking(&self) -> PyResult<&blocking::Lease> {
        match &self.api {
            Api::Blocking(lease) => Ok(lease),
            Api::Async(_) => Err(PyTypeError::new_err("a lease of an AsyncClient does not block")),
        }
    }

    /// The names of the locks, if there are several.
    fn several<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyTuple>> {
        self.name.bind(py).cast::<PyTuple>().ok().cloned()
    }

    fn shared(&self) -> PyResult<Arc<onelock::Lease>> {
        match &self.api {
            Api::Async(lease) => Ok(lease.clone()),
            Api::Blocking(_) => Err(PyTypeError::new_err("a lease of a Client has no event loop")),
        }
    }
}

#[pymethods]
impl Lease {
    #[new]
    fn new(granted: &Bound<'_, PyAny>) -> PyResult<Lease> {
        let taken = granted
            .cast::<Granted>()
            .ok()
            .and_then(|granted| granted.get().0.lock().unwrap_or_else(PoisonError::into_inner).take());
        taken.ok_or_else(|| PyTypeError::new_err("leases are made by acquiring a lock: client.lock(name).acquire()"))
    }

    /// The name of the lock, without the prefix; of several locks all names in one text, for messages.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.several(py).is_none() {
            return Ok(self.name.clone_ref(py));
        }
        let names = on_either!(self, lease => lease.names().iter().map(|name| readable(name)).collect::<Vec<_>>());
        Ok(names.join(", ").into_pyobject(py)?.into_any().unbind())
    }

    /// The names of the locks that are held together, without the prefix; one for a lease of one lock.
    #[getter]
    fn names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match self.several(py) {
            // one that was named twice is held once
            Some(names) if names.len() == on_either!(self, lease => lease.names().len()) => Ok(names),
            Some(names) => {
                let unique = PyDict::new(py);
                for name in names {
                    unique.set_item(name, py.None())?;
                }
                Ok(PyTuple::new(py, unique.keys())?)
            }
            None => PyTuple::new(py, [self.name.clone_ref(py)]),
        }
    }

    /// The fencing token of each lock by its name; see `fencing_token`.
    #[getter]
    fn fencing_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tokens = PyDict::new(py);
        for name in self.names(py)? {
            let key = bytes(&name, "name", "look at a lease")?;
            tokens.set_item(name, on_either!(self, lease => lease.fencing_token_of(key)))?;
        }
        Ok(tokens)
    }

    /// The kind of lock: `lock`, `reentrant_lock`, `fair_lock`, `read_lock`, `write_lock` or `semaphore`; `multi_lock` for several that are held
    /// together.
    #[getter]
    fn kind(&self, py: Python<'_>) -> &'static str {
        if self.several(py).is_some() { "multi_lock" } else { on_either!(self, lease => lease.kind()).as_str() }
    }

    /// The fencing token, a number that the protected resource compares; `None` when fencing is off, and for a lease of
    /// several locks, each of which has its own: `fencing_tokens`.
    ///
    /// It grows with every grant of the name, but not by one; it is below 2**53. It stays the same while the lease is
    /// held, and readable after.
    #[getter]
    fn fencing_token(&self) -> Option<u64> {
        on_either!(self, lease => lease.fencing_token())
    }

    /// The owner token of this hold, as stored on the server. It allows to end the hold: keep it secret. Empty for a
    /// lease of several locks.
    #[getter]
    fn token(&self) -> &str {
        on_either!(self, lease => lease.token())
    }

    /// Whether this lease holds the lock now: not released, not lost, same process, before the deadline. No I/O.
    ///
    /// It is computed at the call and always correct; events may come late. A process that was stopped past the
    /// deadline reads `False` when it continues.
    #[getter]
    fn held(&self) -> bool {
        on_either!(self, lease => lease.is_held())
    }

    /// Seconds until the deadline, without further renewals; 0 when it is not held. No I/O.
    #[getter]
    fn remaining(&self) -> f64 {
        on_either!(self, lease => lease.remaining()).as_secs_f64()
    }

    /// The hold count of the owner; 1 for a lock that is not reentrant, 0 when it is not held. No I/O.
    #[getter]
    fn hold_count(&self) -> u64 {
        on_either!(self, lease => lease.hold_count())
    }

    /// Detaches the hold for another process: the returned text is the proof for `Lock.attach`, and this lease holds
    /// nothing from now on. No I/O.
    ///
    /// Attach before the ttl has passed; the hold is not renewed meanwhile. The first attach with the text gets the
    /// lock, and every later one `LockLost`: keep the text secret. A release of this lease sends nothing and returns
    /// `ALREADY_RELEASED`. Raises `LockLost` or `LockNotHeld` when the lease is not held, `InvalidArgument` when it was
    /// entered more than once. Of several locks it is one proof a line, in the order of `names`; attach with each to its
    /// lock.
    fn detach(&self, py: Python<'_>) -> PyResult<String> {
        on_either!(self, lease => lease.detach()).map_err(|error| raise(py, &error))
    }

    #[getter]
    fn _fencing_grade(&self) -> &'static str {
        on_either!(self, lease => lease.fencing_grade()).as_str()
    }

    #[getter]
    fn _loss(&self) -> Option<&'static str> {
        on_either!(self, lease => lease.loss()).map(onelock::LossReason::as_str)
    }

    /// The exception of its loss, if it was lost.
    fn _lost_error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let reason = on_either!(self, lease => lease.loss())?;
        let name = on_either!(self, lease => lease.name());
        let detail = format!("the lease was lost: {}", reason.explain());
        let error = refused(py, ErrorKind::Lost, "hold", &detail, Some(name));
        Some(error.into_value(py).into_any())
    }

    // ---- threads ---------------------------------------------------------------------------------------------------

    fn _release(&self, py: Python<'_>) -> PyResult<&'static str> {
        let lease = self.blocking()?;
        match detached(py, || lease.release()) {
            Ok(found) => Ok(found.as_str()),
            Err(error) => Err(raise(py, &error)),
        }
    }

    fn _extend(&self, py: Python<'_>, ttl: &Bound<'_, PyAny>) -> PyResult<()> {
        let lease = self.blocking()?;
        let ttl = duration(ttl, "ttl", "extend")?;
        interruptible(py, || lease.extend(ttl))
    }

    fn _downgrade(&self, py: Python<'_>) -> PyResult<()> {
        let lease = self.blocking()?;
        interruptible(py, || lease.downgrade())
    }

    /// Calls `weak()._event(number, reason)` at loss, on the thread kept for callbacks.
    fn _on_lost(&self, weak: Py<PyAny>, number: u64) {
        on_either!(self, lease => lease.on_lost(move |reason| notify_thread(&weak, number, reason.as_str())));
    }

    /// Calls `weak()._event(number, "jeopardy")` at every renewal that was missed.
    fn _on_jeopardy(&self, weak: Py<PyAny>, number: u64) {
        on_either!(self, lease => lease.on_jeopardy(move || notify_thread(&weak, number, "jeopardy")));
    }

    // ---- event loops -----------------------------------------------------------------------------------------------

    /// `release` in the background; the result goes to the future.
    fn _start_release(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>) -> PyResult<Started> {
        let lease = self.shared()?;
        Pump::start(pump, future, async move {
            let found = lease.release().await;
            let finish: Finish = Box::new(move |py| match found {
                Ok(found) => Ok(found.as_str().into_pyobject(py)?.into_any().unbind()),
                Err(error) => Err(raise(py, &error)),
            });
            finish
        })
    }

    /// `release` in the background, without a result. The lease is not held from here on.
    fn _release_later(&self, py: Python<'_>) -> PyResult<()> {
        let lease = self.shared()?;
        let begun = onelock::event_loop::begin(async move {
            let _ = lease.release().await;
        });
        begun.map(drop).map_err(|error| raise(py, &error))
    }

    /// `extend` in the background.
    fn _start_extend(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>, ttl: &Bound<'_, PyAny>) -> PyResult<Started> {
        let lease = self.shared()?;
        let ttl = duration(ttl, "ttl", "extend")?;
        Pump::start(pump, future, async move {
            let extended = lease.extend(ttl).await;
            let finish: Finish = Box::new(move |py| match extended {
                Ok(()) => Ok(py.None()),
                Err(error) => Err(raise(py, &error)),
            });
            finish
        })
    }

    /// `downgrade` in the background.
    fn _start_downgrade(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>) -> PyResult<Started> {
        let lease = self.shared()?;
        Pump::start(pump, future, async move {
            let downgraded = lease.downgrade().await;
            let finish: Finish = Box::new(move |py| match downgraded {
                Ok(()) => Ok(py.None()),
                Err(error) => Err(raise(py, &error)),
            });
            finish
        })
    }

    /// Waits in the background for the loss; the reason goes to the future.
    fn _start_lost(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>) -> PyResult<Started> {
        let lost = self.shared()?.lost();
        Pump::start(pump, future, async move {
            let reason = lost.await;
            let finish: Finish = Box::new(move |py| Ok(reason.as_str().into_pyobject(py)?.into_any().unbind()));
            finish
        })
    }

    /// Calls `callback(reason)` on the loop at loss. The number is for `Pump.forget`.
    fn _listen_lost(&self, pump: &Bound<'_, Pump>, callback: Py<PyAny>) -> u64 {
        let (id, queue) = pump.get().listen(callback);
        on_either!(self, lease => lease.on_lost(move |reason| notify_loop(&queue, id, reason.as_str())));
        id
    }

    /// Calls `callback("jeopardy")` on the loop at every renewal that was missed.
    fn _listen_jeopardy(&self, pump: &Bound<'_, Pump>, callback: Py<PyAny>) -> u64 {
        let (id, queue) = pump.get().listen(callback);
        on_either!(self, lease => lease.on_jeopardy(move || notify_loop(&queue, id, "jeopardy")));
        id
    }
}
