//! The options of a client and of a lock, as they come from Python: left out means the default.

use onelock::{ClientBuilder, Grade, Notify};
use onelock::{ErrorKind, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::argument::{bytes, duration};
use crate::credentials::Provider;
use crate::error::refused;

const TRIED: &str = "make a client";

fn grade(py: Python<'_>, name: &str) -> PyResult<Grade> {
    [Grade::None, Grade::BestEffort, Grade::ClockBounded, Grade::Strict]
        .into_iter()
        .find(|grade| grade.as_str() == name)
        .ok_or_else(|| {
            let detail = format!("min_fencing_grade is {name:?}; use a member of onelock.Grade");
            refused(py, ErrorKind::InvalidArgument, TRIED, &detail, None)
        })
}

fn notify(py: Python<'_>, name: &str) -> PyResult<Notify> {
    Notify::ALL.into_iter().find(|notify| notify.as_str() == name).ok_or_else(|| {
        let detail = format!("notify is {name:?}; it is one of {}", Notify::ALL.map(Notify::as_str).join(", "));
        refused(py, ErrorKind::InvalidArgument, TRIED, &detail, None)
    })
}

fn path(value: &Bound<'_, PyAny>, what: &str) -> PyResult<std::path::PathBuf> {
    value.extract().map_err(|_| PyTypeError::new_err(format!("{what} must be a path")))
}

fn text(value: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    value
        .extract()
        .map_err(|_| PyTypeError::new_err(format!("{what} must be a str of characters that UTF-8 can carry")))
}

fn number(value: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    value.extract().map_err(|_| PyTypeError::new_err(format!("{what} must be a number")))
}

pub(crate) fn truth(value: &Bound<'_, PyAny>, what: &str) -> PyResult<bool> {
    value.extract().map_err(|_| PyTypeError::new_err(format!("{what} must be True or False")))
}

/// A builder with everything in `options` that is not `None`.
pub(crate) fn builder(options: &Bound<'_, PyDict>) -> PyResult<ClientBuilder> {
    let py = options.py();
    let mut builder = blocking::Client::builder();
    let mut certificate = (None, None);
    for (key, value) in options {
        if value.is_none() {
            continue;
        }
        let key: String = key.extract()?;
        let key = key.as_str();
        let span = |value| duration(value, key, TRIED);
        builder = match key {
            "prefix" => builder.prefix(bytes(&value, key, TRIED)?),
            "ttl" => builder.ttl(span(&value)?),
            "auto_renew" => builder.auto_renew(truth(&value, key)?),
            "min_hold" => builder.min_hold(span(&value)?),
            "max_hold" => builder.max_hold(span(&value)?),
            "drift_factor" => builder.drift_factor(number(&value, key)?),
            "lock_delay" => builder.lock_delay(span(&value)?),
            "min_validity" => builder.min_validity(span(&value)?),
            "fencing" => builder.fencing(truth(&value, key)?),
            "min_fencing_grade" => builder.min_fencing_grade(grade(py, &text(&value, key)?)?),
            "connect_timeout" => builder.connect_timeout(span(&value)?),
            "request_timeout" => builder.request_timeout(span(&value)?),
            "close_timeout" => builder.close_timeout(span(&value)?),
            "unreachable_limit" => builder.unreachable_limit(span(&value)?),
            "label" => builder.label(text(&value, key)?),
            "inspectable" => builder.inspectable(truth(&value, key)?),
            "accepted_warnings" => builder.accepted_warnings(text(&value, key)?),
            "min_replicas" => {
                let count =
                    value.extract().map_err(|_| PyTypeError::new_err("min_replicas must be a number of replicas"));
                builder.min_replicas(count?)
            }
            "replica_timeout" => builder.replica_timeout(span(&value)?),
            "node_timeout" => builder.node_timeout(span(&value)?),
            "quarantine" => builder.quarantine(span(&value)?),
            "notify" => builder.notify(notify(py, &text(&value, key)?)?),
            "sentinel_username" => builder.sentinel_username(text(&value, key)?),
            "sentinel_password" => builder.sentinel_password(text(&value, key)?),
            "sentinel_tls" => builder.sentinel_tls(truth(&value, key)?),
            "credentials" => builder.credentials(Provider::new(value)),
            "ca_file" => builder.ca_file(path(&value, key)?),
            "cert_file" => {
                certificate.0 = Some(path(&value, key)?);
                builder
            }
            "key_file" => {
                certificate.1 = Some(path(&value, key)?);
                builder
            }
            "tls_insecure" => builder.tls_insecure(truth(&value, key)?),
            other => return Err(PyTypeError::new_err(format!("a client has no option {other}"))),
        };
    }
    match certificate {
        (None, None) => Ok(builder),
        (Some(cert), Some(key)) => Ok(builder.client_certificate(cert, key)),
        _ => {
            let detail = "cert_file and key_file belong together; pass both";
            Err(refused(py, ErrorKind::InvalidArgument, TRIED, detail, None))
        }
    }
}

/// The options of a lock that are not `None`.
pub(crate) struct LockOptions<'a, 'py> {
    pub(crate) ttl: Option<&'a Bound<'py, PyAny>>,
    pub(crate) auto_renew: Option<&'a Bound<'py, PyAny>>,
    pub(crate) min_hold: Option<&'a Bound<'py, PyAny>>,
    pub(crate) max_hold: Option<&'a Bound<'py, PyAny>>,
    pub(crate) lock_delay: Option<&'a Bound<'py, PyAny>>,
    pub(crate) min_validity: Option<&'a Bound<'py, PyAny>>,
    pub(crate) fencing: Option<&'a Bound<'py, PyAny>>,
}

/// Sets them on a lock of either face, which have the same setters.
macro_rules! configure {
    ($lock:expr, $options:expr) => {{
        let (mut lock, options) = ($lock, $options);
        let span = |value: &Bound<'_, PyAny>, what: &str| crate::argument::duration(value, what, "make a lock");
        if let Some(ttl) = options.ttl {
            lock = lock.ttl(span(ttl, "ttl")?);
        }
        if let Some(auto_renew) = options.auto_renew {
            lock = lock.auto_renew($crate::client_options::truth(auto_renew, "auto_renew")?);
        }
        if let Some(min_hold) = options.min_hold {
            lock = lock.min_hold(span(min_hold, "min_hold")?);
        }
        if let Some(max_hold) = options.max_hold {
            lock = lock.max_hold(span(max_hold, "max_hold")?);
        }
        if let Some(lock_delay) = options.lock_delay {
            lock = lock.lock_delay(span(lock_delay, "lock_delay")?);
        }
        if let Some(min_validity) = options.min_validity {
            lock = lock.min_validity(span(min_validity, "min_validity")?);
        }
        if let Some(fencing) = options.fencing {
            lock = lock.fencing($crate::client_options::truth(fencing, "fencing")?);
        }
        lock
    }};
}
pub(crate) use configure;
