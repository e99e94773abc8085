//! Several locks that are held together: the description.

use std::time::Duration;

use onelock::blocking;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::argument::optional_duration;
use crate::cancel::{Cancel, CancelOrSignals};
use crate::error::raise;
use crate::lease;
use crate::lock::{Api, Lock, granted, wrong_api};
use crate::owner::Owner;
use crate::pump::{Pump, Started};
use crate::queue::Finish;
use crate::waiting::{Signals, interruptible};

/// Several locks as one, all of threads or all of event loops.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct MultiLock {
    members: Vec<Py<Lock>>,
    /// The names as the program passed them.
    names: Py<PyTuple>,
}

/// The owner of each member, in the same order.
type Owners<'py> = Vec<Option<Bound<'py, Owner>>>;

impl MultiLock {
    fn members<'a, 'py: 'a>(
        &'a self,
        owners: Owners<'py>,
    ) -> impl Iterator<Item = (&'a Api, Option<Bound<'py, Owner>>)> {
        let owners = owners.into_iter().chain(std::iter::repeat_with(|| None));
        self.members.iter().map(|member| &member.get().api).zip(owners)
    }

    fn blocking(&self, owners: Owners<'_>) -> PyResult<blocking::MultiLock> {
        let locks = self.members(owners).map(|(api, owner)| match (api, owner) {
            (Api::Blocking(lock), Some(owner)) => Ok(lock.clone().owner(&owner.get().owner)),
            (Api::Blocking(lock), None) => Ok(lock.clone()),
            (Api::Async(_), _) => Err(wrong_api("a lock of an AsyncClient does not block")),
        });
        Ok(blocking::MultiLock::new(locks.collect::<PyResult<Vec<_>>>()?).interrupt(Signals))
    }

    fn shared(&self, owners: Owners<'_>) -> PyResult<onelock::MultiLock> {
        let locks = self.members(owners).map(|(api, owner)| match (api, owner) {
            (Api::Async(lock), Some(owner)) => Ok(lock.clone().owner(&owner.get().owner)),
            (Api::Async(lock), None) => Ok(lock.clone()),
            (Api::Blocking(_), _) => Err(wrong_api("a lock of a Client has no event loop")),
        });
        Ok(onelock::MultiLock::new(locks.collect::<PyResult<Vec<_>>>()?))
    }

    fn wait(&self, py: Python<'_>, lock: &blocking::MultiLock, wait: Option<Duration>) -> PyResult<Py<PyAny>> {
        let lease = interruptible(py, || match wait {
            None => lock.acquire(),
            Some(wait) => lock.acquire_within(wait),
        })?;
        lease::make(py, lease, self.given(py))
    }

    fn given(&self, py: Python<'_>) -> Py<PyAny> {
        self.names.clone_ref(py).into_any()
    }
}

#[pymethods]
impl MultiLock {
    #[new]
    fn new(py: Python<'_>, members: Vec<Py<Lock>>) -> PyResult<MultiLock> {
        let names = PyTuple::new(py, members.iter().map(|member| member.get().name.clone_ref(py)))?.unbind();
        Ok(MultiLock { members, names })
    }

    #[getter]
    fn names(&self, py: Python<'_>) -> Py<PyTuple> {
        self.names.clone_ref(py)
    }

    /// Whether the members, the time-out and the owners make sense together. No I/O.
    fn check(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>, owners: Owners<'_>) -> PyResult<()> {
        optional_duration(timeout, "timeout", "describe locks")?;
        let checked = match self.members.first().map(|member| &member.get().api) {
            Some(Api::Async(_)) => self.shared(owners)?.validate(),
            _ => self.blocking(owners)?.validate(),
        };
        checked.map_err(|error| raise(py, &error))
    }

    // ---- threads ---------------------------------------------------------------------------------------------------

    fn acquire(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>, owners: Owners<'_>) -> PyResult<Py<PyAny>> {
        let wait = optional_duration(timeout, "timeout", "acquire")?;
        self.wait(py, &self.blocking(owners)?, wait)
    }

    /// The same, with a wait that other threads may cancel.
    fn acquire_unless(
        &self,
        py: Python<'_>,
        timeout: Option<&Bound<'_, PyAny>>,
        owners: Owners<'_>,
        cancel: &Bound<'_, Cancel>,
    ) -> PyResult<Py<PyAny>> {
        let wait = optional_duration(timeout, "timeout", "acquire")?;
        self.wait(py, &self.blocking(owners)?.interrupt(CancelOrSignals::new(cancel.get())), wait)
    }

    fn try_acquire(&self, py: Python<'_>, owners: Owners<'_>) -> PyResult<Option<Py<PyAny>>> {
        let lock = self.blocking(owners)?;
        let lease = interruptible(py, || lock.try_acquire())?;
        lease.map(|lease| lease::make(py, lease, self.given(py))).transpose()
    }

    fn is_locked(&self, py: Python<'_>) -> PyResult<bool> {
        let lock = self.blocking(Vec::new())?;
        interruptible(py, || lock.is_locked())
    }

    // ---- event loops -----------------------------------------------------------------------------------------------

    fn start_acquire(
        &self,
        pump: &Bound<'_, Pump>,
        future: Py<PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
        owners: Owners<'_>,
    ) -> PyResult<Started> {
        let wait = optional_duration(timeout, "timeout", "acquire")?;
        let (lock, names) = (self.shared(owners)?, self.given(pump.py()));
        Pump::start(pump, future, async move {
            let result = match wait {
                None => lock.acquire().await,
                Some(wait) => lock.acquire_within(wait).await,
            };
            granted(result, names)
        })
    }

    /// The lease goes to the future, or `None` when one of the locks is held.
    fn start_try_acquire(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>, owners: Owners<'_>) -> PyResult<Started> {
        let (lock, names) = (self.shared(owners)?, self.given(pump.py()));
        Pump::start(pump, future, async move {
            match lock.try_acquire().await {
                Ok(Some(lease)) => granted(Ok(lease), names),
                Ok(None) => Box::new(|py: Python<'_>| Ok(py.None())) as Finish,
                Err(error) => granted(Err(error), names),
            }
        })
    }
}
