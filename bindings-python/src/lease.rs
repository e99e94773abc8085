//! One granted hold. The classes that Python programs see are made from this one in `lease.py` and `alease.py`.

use std::sync::{Arc, Mutex, PoisonError};

use onelock::{ErrorKind, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::argument::duration;
use crate::error::{raise, refused};
use crate::listener::{send, tell};
use crate::pump::{Pump, Started};
use crate::queue::Finish;
use crate::waiting::{detached, interruptible};

/// The two faces of a hold: for threads, and for event loops.
pub(crate) enum Face {
    Blocking(blocking::Lease),
    Async(Arc<onelock::Lease>),
}

/// What a lease is made of: a grant on its way from the core into an object, once.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct Granted(Mutex<Option<Lease>>);

/// One granted hold. Dropping it gives the lock back in the background.
#[pyclass(frozen, subclass, module = "onelock._onelock")]
pub(crate) struct Lease {
    face: Face,
    /// As the program gave it.
    name: Py<PyAny>,
}

static LEASE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A grant, of which a lease can be made. Dropped without, it is given back.
pub(crate) fn grant(py: Python<'_>, face: Face, name: Py<PyAny>) -> PyResult<Py<Granted>> {
    Py::new(py, Granted(Mutex::new(Some(Lease { face, name }))))
}

/// The Python object of a grant. No code of Python runs between the grant and the object: a signal handler that raises
/// finds either nothing or a lease that is given back when the object goes.
pub(crate) fn make(py: Python<'_>, lease: blocking::Lease, name: Py<PyAny>) -> PyResult<Py<PyAny>> {
    let class = LEASE.import(py, "onelock.lease", "Lease")?;
    let granted = grant(py, Face::Blocking(lease), name)?;
    Ok(class.call1((granted,))?.unbind())
}

macro_rules! on_either {
    ($lease:expr, $name:ident => $value:expr) => {
        match &$lease.face {
            Face::Blocking($name) => $value,
            Face::Async($name) => $value,
        }
    };
}

impl Lease {
    fn blocking(&self) -> PyResult<&blocking::Lease> {
        match &self.face {
            Face::Blocking(lease) => Ok(lease),
            Face::Async(_) => Err(PyTypeError::new_err("a lease of an AsyncClient does not block")),
        }
    }

    fn shared(&self) -> PyResult<Arc<onelock::Lease>> {
        match &self.face {
            Face::Async(lease) => Ok(lease.clone()),
            Face::Blocking(_) => Err(PyTypeError::new_err("a lease of a Client has no event loop")),
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

    /// The name that is locked, as it was given (without the prefix).
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.name.clone_ref(py)
    }

    /// The kind of lock: `lock` or `reentrant_lock`.
    #[getter]
    fn kind(&self) -> &'static str {
        on_either!(self, lease => lease.kind()).as_str()
    }

    /// A number for the protected resource, which refuses a lower one than it has seen; `None` when fencing is off.
    ///
    /// Grows with every grant of the name, but not by one; below 2**53. Stays the same for as long as the lease is held,
    /// and is still readable after.
    #[getter]
    fn fencing_token(&self) -> Option<u64> {
        on_either!(self, lease => lease.fencing_token())
    }

    /// The owner token: the proof of this hold, as it stands on the server. Whoever has it can end the hold: keep it secret.
    #[getter]
    fn token(&self) -> &str {
        on_either!(self, lease => lease.token())
    }

    /// Whether this lease holds the lock right now: not released, not lost, same process, deadline ahead. No I/O.
    ///
    /// This is the truth; events of loss are a courtesy that may come late. A process that was stopped sees `False` on its
    /// first look after waking.
    #[getter]
    fn held(&self) -> bool {
        on_either!(self, lease => lease.is_held())
    }

    /// Seconds until the deadline if nothing more is renewed; 0 when it is not held. No I/O.
    #[getter]
    fn remaining(&self) -> f64 {
        on_either!(self, lease => lease.remaining()).as_secs_f64()
    }

    /// How often the owner has entered; 1 for a lock that is not reentrant, 0 when it is not held. No I/O.
    #[getter]
    fn hold_count(&self) -> u64 {
        on_either!(self, lease => lease.hold_count())
    }

    /// Hands the lease to another process: the returned text is the proof for `Lock.attach`, and this lease holds nothing
    /// from now on. No I/O.
    ///
    /// Attach within what is left of the ttl; nobody renews meanwhile. Whoever attaches first with the text has the lock, and
    /// anybody after that gets `LockLost`: keep it secret. A release of this lease sends nothing and says
    /// `ALREADY_RELEASED`. Raises `LockLost` or `LockNotHeld` when there is nothing to hand over, `InvalidArgument` when it was entered more
    /// than once.
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

    /// The exception that says that it was lost, if it was.
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

    /// Calls `weak()._event(number, reason)` at loss, on the thread kept for callbacks.
    fn _on_lost(&self, weak: Py<PyAny>, number: u64) {
        on_either!(self, lease => lease.on_lost(move |reason| tell(&weak, number, reason.as_str())));
    }

    /// Calls `weak()._event(number, "jeopardy")` at every renewal that was missed.
    fn _on_jeopardy(&self, weak: Py<PyAny>, number: u64) {
        on_either!(self, lease => lease.on_jeopardy(move || tell(&weak, number, "jeopardy")));
    }

    // ---- event loops -----------------------------------------------------------------------------------------------

    /// `release` in the background; the future will have the outcome.
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

    /// `release` in the background, and nobody waits for it. Not held from here on.
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

    /// Waits in the background for the loss; the future will have the reason.
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
        on_either!(self, lease => lease.on_lost(move |reason| send(&queue, id, reason.as_str())));
        id
    }

    /// Calls `callback("jeopardy")` on the loop at every renewal that was missed.
    fn _listen_jeopardy(&self, pump: &Bound<'_, Pump>, callback: Py<PyAny>) -> u64 {
        let (id, queue) = pump.get().listen(callback);
        on_either!(self, lease => lease.on_jeopardy(move || send(&queue, id, "jeopardy")));
        id
    }
}
