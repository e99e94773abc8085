//! The options of a client and of a lock, as they come from Python: left out means the default.

use onelock::{ClientBuilder, Grade, Notify};
use onelock::{ErrorKind, blocking};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::argument::{bytes, duration, permits};
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

fn count(value: &Bound<'_, PyAny>, what: &str) -> PyResult<u32> {
    value.extract().map_err(|_| PyTypeError::new_err(format!("{what} must be a whole number, 0 or more")))
}

fn truth(value: &Bound<'_, PyAny>, what: &str) -> PyResult<bool> {
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
        builder = match key {
            // written by tools/options.py: client
            "ttl" => builder.ttl(duration(&value, key, TRIED)?),
            "auto_renew" => builder.auto_renew(truth(&value, key)?),
            "min_hold" => builder.min_hold(duration(&value, key, TRIED)?),
            "max_hold" => builder.max_hold(duration(&value, key, TRIED)?),
            "lock_delay" => builder.lock_delay(duration(&value, key, TRIED)?),
            "min_validity" => builder.min_validity(duration(&value, key, TRIED)?),
            "fencing" => builder.fencing(truth(&value, key)?),
            "drift_factor" => builder.drift_factor(number(&value, key)?),
            "prefix" => builder.prefix(bytes(&value, key, TRIED)?),
            "min_fencing_grade" => builder.min_fencing_grade(grade(py, &text(&value, key)?)?),
            "label" => builder.label(text(&value, key)?),
            "inspectable" => builder.inspectable(truth(&value, key)?),
            "accepted_warnings" => builder.accepted_warnings(text(&value, key)?),
            "connect_timeout" => builder.connect_timeout(duration(&value, key, TRIED)?),
            "request_timeout" => builder.request_timeout(duration(&value, key, TRIED)?),
            "close_timeout" => builder.close_timeout(duration(&value, key, TRIED)?),
            "unreachable_limit" => builder.unreachable_limit(duration(&value, key, TRIED)?),
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
            "notify" => builder.notify(notify(py, &text(&value, key)?)?),
            "min_replicas" => builder.min_replicas(count(&value, key)?),
            "replica_timeout" => builder.replica_timeout(duration(&value, key, TRIED)?),
            "sentinel_username" => builder.sentinel_username(text(&value, key)?),
            "sentinel_password" => builder.sentinel_password(text(&value, key)?),
            "sentinel_tls" => builder.sentinel_tls(truth(&value, key)?),
            "node_timeout" => builder.node_timeout(duration(&value, key, TRIED)?),
            "quarantine" => builder.quarantine(duration(&value, key, TRIED)?),
            // end of client
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

/// Sets the options that are not `None` on a lock, of threads or of an event loop: both have the same setters.
macro_rules! configure {
    ($lock:expr, $options:expr) => {{
        let mut lock = $lock;
        for (key, value) in $options.into_iter().flatten() {
            if value.is_none() {
                continue;
            }
            let key: String = key.extract()?;
            let key = key.as_str();
            lock = match key {
                // written by tools/options.py: lock
                "ttl" => lock.ttl(duration(&value, key, TRIED)?),
                "auto_renew" => lock.auto_renew(truth(&value, key)?),
                "min_hold" => lock.min_hold(duration(&value, key, TRIED)?),
                "max_hold" => lock.max_hold(duration(&value, key, TRIED)?),
                "lock_delay" => lock.lock_delay(duration(&value, key, TRIED)?),
                "min_validity" => lock.min_validity(duration(&value, key, TRIED)?),
                "fencing" => lock.fencing(truth(&value, key)?),
                // end of lock
                // how many a semaphore has
                "permits" => lock.total_permits(permits(&value, "describe a lock")?),
                other => return Err(PyTypeError::new_err(format!("a lock has no option {other}"))),
            };
        }
        lock
    }};
}

/// A lock for threads with the options that are given.
pub(crate) fn blocking_lock(lock: blocking::Lock, options: Option<&Bound<'_, PyDict>>) -> PyResult<blocking::Lock> {
    const TRIED: &str = "make a lock";
    Ok(configure!(lock, options))
}

/// A lock for event loops with the options that are given.
pub(crate) fn async_lock(lock: onelock::Lock, options: Option<&Bound<'_, PyDict>>) -> PyResult<onelock::Lock> {
    const TRIED: &str = "make a lock";
    Ok(configure!(lock, options))
}
