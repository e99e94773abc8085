//! The client.

use onelock::blocking;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::argument::bytes;
use crate::client_options::{async_lock, blocking_lock, builder};
use crate::diagnosis::Diagnosis;
use crate::error::raise;
use crate::lock::{self, Api, Lock};
use crate::pump::{Pump, Started};
use crate::queue::Finish;
use crate::report::{Facts, Inspection, LockPage, Stats};
use crate::waiting::{Signals, detached, interruptible};

/// A client of a lock store, for threads and for event loops.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct Client(blocking::Client);

impl Client {
    fn client(&self) -> &blocking::Client {
        &self.0
    }
}

fn inspected(result: Result<Option<onelock::Inspection>, onelock::Error>) -> Finish {
    Box::new(move |py| match result {
        Ok(None) => Ok(py.None()),
        Ok(Some(found)) => Ok(Py::new(py, Inspection::from(found))?.into_any()),
        Err(error) => Err(raise(py, &error)),
    })
}

/// The core says what is wrong with one that is too low or too high.
fn page_limit(limit: i64) -> u32 {
    u32::try_from(limit.max(0)).unwrap_or(u32::MAX)
}

fn listed(result: Result<onelock::LockPage, onelock::Error>) -> Finish {
    Box::new(move |py| match result {
        Ok(page) => Ok(Py::new(py, LockPage::new(py, page)?)?.into_any()),
        Err(error) => Err(raise(py, &error)),
    })
}

fn diagnosed(result: Result<onelock::Diagnosis, onelock::Error>) -> Finish {
    Box::new(move |py| match result {
        Ok(found) => Ok(Py::new(py, Diagnosis::new(py, found)?)?.into_any()),
        Err(error) => Err(raise(py, &error)),
    })
}

#[pymethods]
impl Client {
    #[new]
    fn new(url: &str, options: &Bound<'_, PyDict>) -> PyResult<Client> {
        let client = builder(options)?.build_blocking(url).map_err(|error| raise(options.py(), &error))?;
        Ok(Client(client))
    }

    /// A lock, for threads or (`asynchronous`) for event loops.
    #[pyo3(signature = (asynchronous, kind, name, **options))]
    fn lock(
        &self,
        asynchronous: bool,
        kind: &str,
        name: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Lock> {
        let kind = lock::kind(name.py(), kind)?;
        let given = name.clone().unbind();
        let name = bytes(name, "name", "make a lock")?;
        if asynchronous {
            let lock = self.client().to_async().lock_of(kind, name);
            return Ok(Lock { api: Api::Async(async_lock(lock, options)?), name: given });
        }
        let lock = self.client().lock_of(kind, name);
        Ok(Lock { api: Api::Blocking(blocking_lock(lock, options)?.interrupt(Signals)), name: given })
    }

    fn stats(&self) -> Stats {
        self.client().stats().into()
    }

    // ---- threads ---------------------------------------------------------------------------------------------------

    fn check(&self, py: Python<'_>) -> PyResult<Facts> {
        Ok(interruptible(py, || self.client().check())?.into())
    }

    fn diagnose(&self, name: &Bound<'_, PyAny>) -> PyResult<Diagnosis> {
        let py = name.py();
        let name = bytes(name, "name", "diagnose")?;
        Diagnosis::new(py, interruptible(py, || self.client().diagnose(name))?)
    }

    fn inspect(&self, name: &Bound<'_, PyAny>) -> PyResult<Option<Inspection>> {
        let py = name.py();
        let name = bytes(name, "name", "inspect")?;
        Ok(interruptible(py, || self.client().inspect(name))?.map(Inspection::from))
    }

    fn list(&self, pattern: &Bound<'_, PyAny>, limit: i64, cursor: Option<&str>) -> PyResult<LockPage> {
        let py = pattern.py();
        let (pattern, limit) = (bytes(pattern, "pattern", "list")?, page_limit(limit));
        LockPage::new(py, interruptible(py, || self.client().list(pattern, limit, cursor))?)
    }

    fn force_release(&self, name: &Bound<'_, PyAny>, foreign: bool) -> PyResult<bool> {
        let py = name.py();
        let name = bytes(name, "name", "force_release")?;
        interruptible(py, || {
            if foreign { self.client().force_release_foreign(name) } else { self.client().force_release(name) }
        })
    }

    fn close(&self, py: Python<'_>) {
        detached(py, || self.client().close());
    }

    // ---- event loops -----------------------------------------------------------------------------------------------

    fn start_check(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>) -> PyResult<Started> {
        let client = self.client().to_async();
        Pump::start(pump, future, async move {
            let found = client.check().await;
            let finish: Finish = Box::new(move |py| match found {
                Ok(facts) => Ok(Py::new(py, Facts::from(facts))?.into_any()),
                Err(error) => Err(raise(py, &error)),
            });
            finish
        })
    }

    fn start_diagnose(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>, name: &Bound<'_, PyAny>) -> PyResult<Started> {
        let client = self.client().to_async();
        let name = bytes(name, "name", "diagnose")?;
        Pump::start(pump, future, async move { diagnosed(client.diagnose(name).await) })
    }

    fn start_inspect(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>, name: &Bound<'_, PyAny>) -> PyResult<Started> {
        let client = self.client().to_async();
        let name = bytes(name, "name", "inspect")?;
        Pump::start(pump, future, async move { inspected(client.inspect(name).await) })
    }

    fn start_list(
        &self,
        pump: &Bound<'_, Pump>,
        future: Py<PyAny>,
        pattern: &Bound<'_, PyAny>,
        limit: i64,
        cursor: Option<String>,
    ) -> PyResult<Started> {
        let client = self.client().to_async();
        let (pattern, limit) = (bytes(pattern, "pattern", "list")?, page_limit(limit));
        Pump::start(pump, future, async move { listed(client.list(pattern, limit, cursor.as_deref()).await) })
    }

    fn start_force_release(
        &self,
        pump: &Bound<'_, Pump>,
        future: Py<PyAny>,
        name: &Bound<'_, PyAny>,
        foreign: bool,
    ) -> PyResult<Started> {
        let client = self.client().to_async();
        let name = bytes(name, "name", "force_release")?;
        Pump::start(pump, future, async move {
            let found =
                if foreign { client.force_release_foreign(name).await } else { client.force_release(name).await };
            let finish: Finish = Box::new(move |py| match found {
                Ok(found) => Ok(found.into_pyobject(py)?.to_owned().into_any().unbind()),
                Err(error) => Err(raise(py, &error)),
            });
            finish
        })
    }

    fn start_close(&self, pump: &Bound<'_, Pump>, future: Py<PyAny>) -> PyResult<Started> {
        let client = self.client().to_async();
        Pump::start(pump, future, async move {
            client.close().await;
            let finish: Finish = Box::new(|py| Ok(py.None()));
            finish
        })
    }
}
