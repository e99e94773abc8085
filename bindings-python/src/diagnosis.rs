//! What a look at the servers found.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// One step of a diagnosis.
#[pyclass(frozen, get_all, module = "onelock")]
pub(crate) struct Finding {
    /// The server, without secrets; empty for what concerns all of them.
    server: String,
    /// What was tried.
    step: &'static str,
    /// How it ended: the text of a `Severity`.
    severity: &'static str,
    /// What was found, a sentence for people.
    detail: String,
    /// What to do about it; empty where nothing is to be done.
    todo: String,
    /// The kind of error that a call would end with, for what failed.
    error: Option<&'static str>,
    /// What was measured, by names that end with the unit.
    measured: Py<PyDict>,
}

impl Finding {
    fn new(py: Python<'_>, found: onelock::Finding) -> PyResult<Finding> {
        let measured = PyDict::new(py);
        for (name, value) in found.measured {
            measured.set_item(name, value)?;
        }
        Ok(Finding {
            server: found.server,
            step: found.step,
            severity: found.severity.as_str(),
            detail: found.detail,
            todo: found.todo,
            error: found.error.map(onelock::ErrorKind::name),
            measured: measured.unbind(),
        })
    }
}

#[pymethods]
impl Finding {
    fn __repr__(&self) -> String {
        let Finding { server, step, severity, detail, .. } = self;
        format!("Finding(server={server:?}, step={step:?}, severity={severity:?}, detail={detail:?})")
    }
}

/// What a look at the servers found.
#[pyclass(frozen, get_all, module = "onelock")]
pub(crate) struct Diagnosis {
    /// The gravest severity among the findings: the text of a `Severity`.
    severity: &'static str,
    /// The grade of fencing tokens: the text of a `Grade`.
    grade: &'static str,
    /// The steps, server by server, in the order in which they were tried.
    findings: Py<PyTuple>,
}

impl Diagnosis {
    pub(crate) fn new(py: Python<'_>, found: onelock::Diagnosis) -> PyResult<Diagnosis> {
        let (severity, grade) = (found.severity().as_str(), found.grade.as_str());
        let findings: Vec<_> =
            found.findings.into_iter().map(|finding| Finding::new(py, finding)).collect::<PyResult<_>>()?;
        Ok(Diagnosis { severity, grade, findings: PyTuple::new(py, findings)?.unbind() })
    }
}

#[pymethods]
impl Diagnosis {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let findings = self.findings.bind(py).repr()?;
        Ok(format!("Diagnosis(severity={:?}, grade={:?}, findings={findings})", self.severity, self.grade))
    }
}
