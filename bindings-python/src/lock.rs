//! A lock: the description of what to acquire.

use std::sync::Arc;
use std::time::Duration;

use onelock::{ErrorKind, blocking};
use pyo3::prelude::*;

use crate::argument::{optional_duration, permits};
use crate::cancel::{Cancel, CancelOrSignals};
use crate::error::raise;
use crate::lease;
use crate::owner::Owner;
use crate::pump::{Pump, Started};
use crate::queue::Finish;
use crate::report::Permits;
use crate::waiting::interruptible;

/// The two kinds of lock: for threads, and for event loops.
#[derive(Clone)]
pub(crate) enum Api {
    Blocking(blocking::Lock),
    Async(onelock::Lock),
}

/// A lock by name.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct Lock {
    pub(crate) api: Api,
    /// As the program passed it.
    pub(crate) name: Py<PyAny>,
}

pub(crate) fn wrong_api(what: &str) -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(what.to_owned())
}

impl Lock {
    fn blocking(&self) -> PyResult<&blocking::Lock> {
        match &self.api {
            Api::Blocking(lock) => Ok(lock),
            Api::Async(_) => Err(wrong_api("a lock of an AsyncClient does not block")),
        }
    }

    fn shared(&self, owner: Option<&Bound<'_, Owner>>) -> PyResult<onelock::Lock> {
        match &self.api {
            Api::Async(lock) => {
                let lock = lock.clone();
                Ok(match owner {
                    Some(owner) => lock.owner(&owner.get().owner),
                    None => lock,
                })
            }
            Api::Blocking(_) => Err(wrong_api("a lock of a Client has no event loop")),
        }
    }

    fn lease(&self, py: Python<'_>, lease: blocking::Lease) -> PyResult<Py<PyAny>> {
        lease::make(py, lease, self.name.clone_ref(py))
    }

    /// A blocking call with the caller's owner.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        owner: Option<&Bound<'_, Owner>>,
        call: impl FnOnce(&blocking::Lock) -> Result<T, onelock::Error> + Send,
    ) -> PyResult<T> {
        let lock = self.blocking()?;
        match owner {
            None => interruptible(py, || call(lock)),
            Some(owner) => {
                let lock = lock.clone().owner(&owner.get().owner);
                interruptible(py, move || call(&lock))
            }
        }
    }
}

pub(crate) fn granted(result: Result<onelock::Lease, onelock::Error>, name: Py<PyAny>) -> Finish {
    Box::new(move |py| match result {
        Ok(lease) => Ok(lease::grant(py, lease::Api::Async(Arc::new(lease)), name)?.into_any()),
        Err(error) => Err(raise(py, &error)),
    })
}

fn counted(result: Result<Option<onelock::Permits>, onelock::Error>) -> Finish {
    Box::new(move |py| match result {
        Ok(None) => Ok(py.None()),
        Ok(Some(found)) => Ok(Py::new(py, Permits::from(found))?.into_any()),
        Err(error) => Err(raise(py, &error)),
    })
}

async fn acquired(lock: onelock::Lock, wait: Option<Duration>, name: Py<PyAny>) -> Finish {
    let result = match wait {
        None => lock.acquire().await,
        Some(wait) => lock.acquire_within(wait).await,
    };
    granted(result, name)
}

#[pymethods]
impl Lock {
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        self.name.clone_ref(py)
    }

    #[getter]
    fn kind(&self) -> &'static str {
        match &self.api {
            Api::Blocking(lock) => lock.kind(),
            Api::Async(lock) => lock.kind(),
        }
        .as_str()
    }

    /// Whether name, options, time-out and owner make sense together. No I/O.
    fn check(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, Owner>>,
    ) -> PyResult<()> {
        optional_duration(timeout, "timeout", "describe a lock")?;
        let checked = match (&self.api, owner) {
            (Api::Blocking(lock), None) => lock.validate(),
            (Api::Blocking(lock), Some(owner)) => lock.clone().owner(&owner.get().owner).validate(),
            (Api::Async(lock), None) => lock.validate(),
            (Api::Async(lock), Some(owner)) => lock.clone().owner(&owner.get().owner).validate(),
        };
        checked.map_err(|error| raise(py, &error))
    }

    /// The same semaphore for acquires of so many permits.
    fn taking(&self, py: Python<'_>, count: &Bound<'_, PyAny>) -> PyResult<Lock> {
        let count = permits(count, "describe a lock")?;
        let api = match &self.api {
            Api::Blocking(lock) => Api::Blocking(lock.clone().count(count)),
            Api::Async(lock) => Api::Async(lock.clone().count(count)),
        };
        Ok(Lock { api, name: self.name.clone_ref(py) })
    }

    // ---- threads ---------------------------------------------------------------------------------------------------

    fn acquire(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, Owner>>,
    ) -> PyResult<Py<PyAny>> {
        let wait = optional_duration(timeout, "timeout", "acquire")?;
        let lease = self.call(py, owner, |lock| match wait {
            None => lock.acquire(),
            Some(wait) => lock.acquire_within(wait),
        })?;
        self.lease(py, lease)
    }

    /// The same, with a wait that other threads may cancel.
    fn acquire_unless(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, Owner>>,
        cancel: &Bound<'_, Cancel>,
    ) -> PyResult<Py<PyAny>> {
        let lock = self.blocking()?.clone().interrupt(CancelOrSignals::new(cancel.get()));
        let lock = Lock { api: Api::Blocking(lock), name: self.name.clone_ref(py) };
        lock.acquire(py, timeout, owner)
    }

    fn try_acquire(&self, py: Python<'_>, owner: Option<&Bound<'_, Owner>>) -> PyResult<Option<Py<PyAny>>> {
        self.call(py, owner, blocking::Lock::try_acquire)?.map(|lease| self.lease(py, lease)).transpose()
    }

    fn attach(&self, py: Python<'_>, proof: &str, owner: Option<&Bound<'_, Owner>>) -> PyResult<Py<PyAny>> {
        let lease = self.call(py, owner, |lock| lock.attach(proof))?;
        self.lease(py, lease)
    }

    fn is_locked(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, None, blocking::Lock::is_locked)
    }

    fn permits(&self, py: Python<'_>) -> PyResult<Option<Permits>> {
        Ok(self.call(py, None, blocking::Lock::permits)?.map(Permits::from))
    }

    fn set_permits(&self, py: Python<'_>, total: &Bound<'_, PyAny>) -> PyResult<Permits> {
        let total = permits(total, "set_permits")?;
        Ok(self.call(py, None, |lock| lock.set_permits(total))?.into())
    }

    // ---- event loops -----------------------------------------------------------------------------------------------

    fn start_acquire(
        &self,
        pump: &Bound<'_, Pump>,
        future: Py<PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, Owner>>,
    ) -> PyResult<Started> {
        let wait = optional_duration(timeout, "timeout", "acquire")?;
        let name = self.name.clone_ref(pump.py());
        Pump::start(pump, future, acquired(self.shared(owner)?, wait, name))
    }

    /// The lease goes to the future, or `None` when the lock is held.
    fn start_try_acquire(
        &self,
        pump: &Bound<'_, Pump>,
        future: Py<PyAny>,
        owner: Option<&Bound<'_, Owner>>,
    ) -> PyResult<Started> {
        let (lock, name) = (self.shared(owner)?, self.name.clone_ref(pump.py()));
        Pump::start(pump, future, async move {
            match lock.try_acquire().await {
                Ok(Some(lease)) => granted(Ok(lease), name),
                Ok(None) => Box::new(|py: Python<'_>| Ok(py.None())),
                Err(error) => granted(Err(error), name),
            }
        })
    }

    fn start_attach(
        &self,
        pump: &Bound<'_, Pump>,
        future: Py<PyAny>,
        proof: String,
        owner: Option<&Bound<'_, Owner>>,
    ) -> PyResult<Started> {
        let (lock, name) = (self.shared(owner)?, self.name.clone_ref(pump.py()));
        Pump::start(pump, future, async move { granted(lock.attach(&proof).await, name) })
    }

    fn start_permits(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>) -> PyResult<Started> {
        let lock = self.shared(None)?;
        Pump::start(pump, future, async move { counted(lock.permits().await) })
    }

    fn start_set_permits(
        &self,
        pump: &Bound<'_, Pump>,
        future: Py<PyAny>,
        total: &Bound<'_, PyAny>,
    ) -> PyResult<Started> {
        let (lock, total) = (self.shared(None)?, permits(total, "set_permits")?);
        Pump::start(pump, future, async move { counted(lock.set_permits(total).await.map(Some)) })
    }

    fn start_is_locked(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>) -> PyResult<Started> {
        let lock = self.shared(None)?;
        Pump::start(pump, future, async move {
            let found = lock.is_locked().await;
            let finish: Finish = Box::new(move |py| match found {
                Ok(found) => Ok(found.into_pyobject(py)?.to_owned().into_any().unbind()),
                Err(error) => Err(raise(py, &error)),
            });
            finish
        })
    }
}

/// The kind of lock of this name.
pub(crate) fn kind(py: Python<'_>, name: &str) -> PyResult<onelock::Kind> {
    onelock::Kind::named(name).ok_or_else(|| {
        let detail = format!("{name} is no kind of lock");
        crate::error::refused(py, ErrorKind::InvalidArgument, "make a lock", &detail, None)
    })
}
