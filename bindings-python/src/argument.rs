//! Checks and converts arguments: names and durations.

use std::time::Duration;

use onelock::ErrorKind;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};

use crate::error::refused;

/// Above this a duration does not fit the type of the core, which accepts at most one year.
const MOST_SECONDS: f64 = 1e15;

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// A name or prefix: text or bytes.
pub(crate) fn bytes(value: &Bound<'_, PyAny>, what: &str, tried: &str) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        let Ok(text) = text.to_cow() else {
            let detail = format!("{what} has characters that UTF-8 cannot carry; pass bytes instead");
            return Err(refused(value.py(), ErrorKind::InvalidArgument, tried, &detail, None));
        };
        return Ok(text.as_bytes().to_vec());
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    Err(PyTypeError::new_err(format!("{what} must be str or bytes, not {}", type_name(value))))
}

/// A number of permits. The core knows its limits.
pub(crate) fn permits(value: &Bound<'_, PyAny>, tried: &str) -> PyResult<u32> {
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("permits must be int, not {}", type_name(value))));
    }
    value.extract::<u32>().map_err(|_| {
        // Python refuses to write very long numbers
        let shown = value.str().map_or_else(|_| "a longer number".to_owned(), |text| text.to_string());
        let detail = format!("permits must be between 1 and 1024, not {shown}");
        refused(value.py(), ErrorKind::InvalidArgument, tried, &detail, None)
    })
}

/// Seconds as a number or a `datetime.timedelta`.
pub(crate) fn duration(value: &Bound<'_, PyAny>, what: &str, tried: &str) -> PyResult<Duration> {
    let seconds = if let Ok(number) = value.cast::<PyFloat>() {
        number.value()
    } else if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        // an int too large for a float is no duration either
        value.extract::<f64>().unwrap_or(f64::INFINITY)
    } else if let Ok(method) = value.getattr("total_seconds") {
        method.call0()?.extract()?
    } else if !value.is_instance_of::<PyBool>() && value.hasattr("__float__")? && !value.is_instance_of::<PyString>() {
        // decimal.Decimal, fractions.Fraction, numbers of numpy; what is no float is no duration either
        value.extract().unwrap_or(f64::INFINITY)
    } else {
        let detail = format!("{what} must be a number of seconds or a timedelta, not {}", type_name(value));
        return Err(PyTypeError::new_err(detail));
    };
    if !(0.0..=MOST_SECONDS).contains(&seconds) {
        let detail = format!("{what} is {seconds} s; it must be between 0 and one year");
        return Err(refused(value.py(), ErrorKind::InvalidArgument, tried, &detail, None));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// The same for an argument that may be left out.
pub(crate) fn optional_duration(
    value: Option<&Bound<'_, PyAny>>,
    what: &str,
    tried: &str,
) -> PyResult<Option<Duration>> {
    value.map(|value| duration(value, what, tried)).transpose()
}

/// A duration in seconds, checked: for waiting in Python.
#[pyfunction]
pub(crate) fn seconds(value: &Bound<'_, PyAny>, what: &str, tried: &str) -> PyResult<f64> {
    Ok(duration(value, what, tried)?.as_secs_f64())
}
