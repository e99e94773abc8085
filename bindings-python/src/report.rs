//! Records that calls return.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

/// Facts about the server.
#[pyclass(frozen, eq, get_all, module = "onelock")]
#[derive(PartialEq)]
pub(crate) struct Facts {
    /// The grade of its fencing tokens: the text of a `Grade`.
    grade: &'static str,
    /// Settings of the server that can break locks, each as a sentence that names the setting to change.
    warnings: Vec<String>,
    /// The warnings that endanger exclusion while the server runs and were not accepted: they are logged as a warning.
    dangers: Vec<String>,
    /// The server's name and version.
    server: String,
}

impl From<onelock::Facts> for Facts {
    fn from(facts: onelock::Facts) -> Facts {
        let onelock::Facts { grade, warnings, dangers, server } = facts;
        Facts { grade: grade.as_str(), warnings, dangers, server }
    }
}

#[pymethods]
impl Facts {
    fn __repr__(&self) -> String {
        format!("Facts(server={:?}, grade={:?}, warnings={:?})", self.server, self.grade, self.warnings)
    }
}

/// The holder of a lock.
#[pyclass(frozen, eq, get_all, module = "onelock")]
#[derive(Clone, PartialEq)]
pub(crate) struct OwnerInfo {
    /// The client's label.
    label: String,
    /// The process id.
    pid: u32,
    /// The host's name.
    host: String,
    /// When it was granted: seconds since 1970, as `time.time()`.
    since: f64,
}

#[pymethods]
impl OwnerInfo {
    fn __repr__(&self) -> String {
        format!("OwnerInfo(label={:?}, pid={}, host={:?}, since={})", self.label, self.pid, self.host, self.since)
    }
}

/// A client that waits for a lock with a place in its queue.
#[pyclass(frozen, eq, get_all, module = "onelock")]
#[derive(Clone, PartialEq)]
pub(crate) struct Waiter {
    /// The client, if it is an `inspectable` one of this library; else `None`. Its `since` is when it asked last.
    client: Option<OwnerInfo>,
    /// Since when it has its place: seconds since 1970 by the server's clock.
    since: f64,
}

#[pymethods]
impl Waiter {
    fn __repr__(&self) -> String {
        let client = self.client.as_ref().map_or_else(|| "None".to_owned(), OwnerInfo::__repr__);
        format!("Waiter(client={client}, since={})", self.since)
    }
}

/// The state of a lock.
#[pyclass(frozen, eq, module = "onelock")]
#[derive(PartialEq)]
pub(crate) struct Inspection {
    /// The kind of lock: `lock`, `reentrant_lock`, `fair_lock`, `read_lock`, `write_lock` or `semaphore`.
    #[pyo3(get)]
    kind: &'static str,
    /// Which client's it is, as far as can be told: `onelock`, `redisson` or `other`.
    #[pyo3(get)]
    origin: &'static str,
    /// The holder, if it is an `inspectable` client of this library; else `None`.
    #[pyo3(get)]
    owner: Option<OwnerInfo>,
    /// Of a holder that is no client of this library: what tells who it is, and is no proof or secret.
    #[pyo3(get)]
    foreign_holder: Option<String>,
    /// The hold count of the holder; of a semaphore, how many permits are held.
    #[pyo3(get)]
    hold_count: u64,
    /// Time to live of the key on the server, in seconds; `None` for a foreign key without one.
    #[pyo3(get)]
    ttl_left: Option<f64>,
    /// The fencing token of the present hold; `None` for a holder without one.
    #[pyo3(get)]
    fencing_token: Option<u64>,
    /// Of a semaphore, how many permits there are in all; else `None`.
    #[pyo3(get)]
    permits: Option<u64>,
    /// Of a semaphore, how many permits are free; else `None`.
    #[pyo3(get)]
    free: Option<u64>,
    /// How many processes wait for it; `None` where that cannot be told.
    #[pyo3(get)]
    waiting: Option<u64>,
    waiters: Vec<Waiter>,
}

impl From<onelock::OwnerInfo> for OwnerInfo {
    fn from(owner: onelock::OwnerInfo) -> OwnerInfo {
        let onelock::OwnerInfo { label, pid, host, since_ms } = owner;
        OwnerInfo { label, pid, host, since: since_ms as f64 / 1e3 }
    }
}

impl From<onelock::Waiter> for Waiter {
    fn from(waiter: onelock::Waiter) -> Waiter {
        Waiter { client: waiter.client.map(OwnerInfo::from), since: waiter.since_ms as f64 / 1e3 }
    }
}

impl From<onelock::Inspection> for Inspection {
    fn from(found: onelock::Inspection) -> Inspection {
        Inspection {
            kind: found.kind.as_str(),
            origin: found.origin.as_str(),
            owner: found.owner.map(OwnerInfo::from),
            foreign_holder: found.foreign_holder,
            hold_count: found.hold_count,
            ttl_left: found.ttl_left.map(|left| left.as_secs_f64()),
            fencing_token: found.fencing_token,
            permits: found.permits,
            free: found.free,
            waiting: found.waiting,
            waiters: found.waiters.into_iter().map(Waiter::from).collect(),
        }
    }
}

#[pymethods]
impl Inspection {
    /// Those that wait with a place in the queue on the server, the first 16, the head first.
    #[getter]
    fn waiters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.waiters.clone())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let owner = self.owner.clone().map(|owner| Py::new(py, owner)).transpose()?;
        let shown = |value: &Bound<'_, PyAny>| value.repr().map(|text| text.to_string());
        Ok(format!(
            "Inspection(kind={:?}, origin={:?}, owner={}, foreign_holder={}, hold_count={}, ttl_left={}, fencing_token={}, \
             permits={}, free={}, waiting={}, waiters=[{}])",
            self.kind,
            self.origin,
            shown(owner.into_pyobject(py)?.as_any())?,
            shown(self.foreign_holder.clone().into_pyobject(py)?.as_any())?,
            self.hold_count,
            shown(self.ttl_left.into_pyobject(py)?.as_any())?,
            shown(self.fencing_token.into_pyobject(py)?.as_any())?,
            shown(self.permits.into_pyobject(py)?.as_any())?,
            shown(self.free.into_pyobject(py)?.as_any())?,
            shown(self.waiting.into_pyobject(py)?.as_any())?,
            self.waiters.iter().map(Waiter::__repr__).collect::<Vec<_>>().join(", "),
        ))
    }
}

/// The permits of a semaphore at one moment.
#[pyclass(frozen, eq, get_all, module = "onelock")]
#[derive(PartialEq)]
pub(crate) struct Permits {
    /// How many there are in all.
    total: u64,
    /// How many are held.
    held: u64,
    /// How many are free.
    free: u64,
}

impl From<onelock::Permits> for Permits {
    fn from(found: onelock::Permits) -> Permits {
        Permits { total: found.total, held: found.held, free: found.free }
    }
}

#[pymethods]
impl Permits {
    fn __repr__(&self) -> String {
        format!("Permits(total={}, held={}, free={})", self.total, self.held, self.free)
    }
}

/// A lock that stands on the server.
#[pyclass(frozen, get_all, module = "onelock")]
pub(crate) struct LockEntry {
    /// The lock's name without the client's prefix: text, or bytes that are no UTF-8.
    name: Py<PyAny>,
    /// What stands under the name.
    inspection: Py<Inspection>,
    /// How many processes wait for it; `None` where that cannot be told.
    waiting: Option<u64>,
}

impl LockEntry {
    fn new(py: Python<'_>, entry: onelock::LockEntry) -> PyResult<LockEntry> {
        let name = match std::str::from_utf8(&entry.name) {
            Ok(text) => PyString::new(py, text).into_any().unbind(),
            Err(_) => PyBytes::new(py, &entry.name).into_any().unbind(),
        };
        Ok(LockEntry { name, inspection: Py::new(py, Inspection::from(entry.inspection))?, waiting: entry.waiting })
    }
}

#[pymethods]
impl LockEntry {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let waiting = self.waiting.map_or_else(|| "None".to_owned(), |number| number.to_string());
        let inspection = self.inspection.get().__repr__(py)?;
        Ok(format!("LockEntry(name={}, inspection={inspection}, waiting={waiting})", self.name.bind(py).repr()?))
    }
}

/// Some of the locks of a server.
#[pyclass(frozen, get_all, module = "onelock")]
pub(crate) struct LockPage {
    /// The locks, in no order.
    entries: Py<PyTuple>,
    /// What to give as `cursor` for the next page; `None` on the last one.
    next: Option<String>,
}

impl LockPage {
    pub(crate) fn new(py: Python<'_>, page: onelock::LockPage) -> PyResult<LockPage> {
        let entries: Vec<_> =
            page.entries.into_iter().map(|entry| LockEntry::new(py, entry)).collect::<PyResult<_>>()?;
        Ok(LockPage { entries: PyTuple::new(py, entries)?.unbind(), next: page.next })
    }
}

#[pymethods]
impl LockPage {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let next = self.next.as_ref().map_or_else(|| "None".to_owned(), |next| format!("{next:?}"));
        Ok(format!("LockPage(entries={}, next={next})", self.entries.bind(py).repr()?))
    }
}

/// A histogram of durations in powers of two of a microsecond.
#[pyclass(frozen, eq, module = "onelock")]
#[derive(PartialEq)]
pub(crate) struct Histogram(onelock::Histogram);

#[pymethods]
impl Histogram {
    /// The counts: bucket `i` has the durations below `2**i` microseconds and not below `2**(i-1)`.
    #[getter]
    fn buckets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.buckets)
    }

    /// The number of durations.
    #[getter]
    fn count(&self) -> u64 {
        self.0.count
    }

    /// Their sum in seconds.
    #[getter]
    fn sum(&self) -> f64 {
        self.0.sum_us as f64 / 1e6
    }

    /// An upper bound of the given quantile (0.0 to 1.0) in seconds, at most twice too high; 0 when nothing was recorded.
    fn quantile(&self, quantile: f64) -> f64 {
        self.0.quantile(quantile).as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("Histogram(count={}, sum={})", self.0.count, self.sum())
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a client since it was made.
        #[pyclass(frozen, eq, module = "onelock")]
        #[derive(PartialEq)]
        pub(crate) struct Stats(onelock::Stats);

        #[pymethods]
        impl Stats {
            $($(#[$doc])* #[getter] fn $name(&self) -> u64 { self.0.$name })*

            /// Time from the call to the grant.
            #[getter]
            fn wait(&self) -> Histogram {
                Histogram(self.0.wait.clone())
            }

            /// Time from the grant to the end of the hold.
            #[getter]
            fn hold(&self) -> Histogram {
                Histogram(self.0.hold.clone())
            }

            /// The counters by name, for a metrics system.
            fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                let counters = PyDict::new(py);
                $(counters.set_item(stringify!($name), self.0.$name)?;)*
                Ok(counters)
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                Ok(format!("Stats({})", self.as_dict(py)?.repr()?))
            }
        }
    };
}

stats! {
    /// Leases held now.
    held,
    /// Acquires waiting now.
    waiting,
    /// Acquires that were granted, re-entries included.
    acquired,
    /// Tries that found the lock busy.
    busy,
    /// Acquires that timed out.
    timeouts,
    /// Acquires that their caller cancelled.
    cancelled,
    /// Acquires that failed for another reason.
    failed,
    /// Leases that their holder released.
    released,
    /// Leases lost.
    lost,
    /// Renewals that were confirmed, one per lease and round.
    renewals,
    /// Renewal rounds of a lease that were missed.
    renewals_missed,
    /// Clean-ups that are not finished yet.
    cleaning,
    /// Connections made after the first one.
    reconnects,
    /// Requests sent to the server.
    commands_sent,
}

impl From<onelock::Stats> for Stats {
    fn from(stats: onelock::Stats) -> Stats {
        Stats(stats)
    }
}
