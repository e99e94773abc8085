//! What a look at the servers found.

use std::ffi::{CString, c_char};
use std::ptr::null;

use onelock::{Diagnosis, Finding};

use crate::boundary::{free, peek, value};
use crate::enums::{grade_number, severity_number};
use crate::object::exposed;
use crate::status::{ONELOCK_OK, onelock_status};
use crate::text::c_text;

/// What `onelock_client_diagnose` found: findings, numbered from 0, in the order in which the steps were tried.
pub struct onelock_diagnosis {
    _private: [u8; 0],
}

struct Row {
    server: CString,
    step: CString,
    severity: u32,
    detail: CString,
    todo: CString,
    error: onelock_status,
    measured: Vec<(CString, f64)>,
}

pub(crate) struct DiagnosisObject {
    severity: u32,
    grade: u32,
    rows: Vec<Row>,
}

exposed!(DiagnosisObject, Diagnosis, onelock_diagnosis, "diagnosis");

impl DiagnosisObject {
    pub(crate) fn new(found: &Diagnosis) -> DiagnosisObject {
        let row = |finding: &Finding| Row {
            server: c_text(&finding.server),
            step: c_text(finding.step),
            severity: severity_number(finding.severity),
            detail: c_text(&finding.detail),
            todo: c_text(&finding.todo),
            error: finding.error.map_or(ONELOCK_OK, onelock::ErrorKind::number),
            measured: finding.measured.iter().map(|(name, number)| (c_text(name), *number)).collect(),
        };
        DiagnosisObject {
            severity: severity_number(found.severity()),
            grade: grade_number(found.grade),
            rows: found.findings.iter().map(row).collect(),
        }
    }
}

/// A part of one of the findings.
fn get<T>(diagnosis: *const onelock_diagnosis, index: usize, otherwise: T, part: impl FnOnce(&Row) -> Option<T>) -> T {
    value(otherwise, || peek(diagnosis, |found: &DiagnosisObject| found.rows.get(index).and_then(part))?)
}

/// The gravest severity among the findings: an `ONELOCK_SEVERITY_`; 0 for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_severity(diagnosis: *const onelock_diagnosis) -> u32 {
    value(0, || peek(diagnosis, |found: &DiagnosisObject| found.severity))
}

/// The grade of fencing tokens there: an `ONELOCK_GRADE_`. `ONELOCK_GRADE_NONE` if that could not be found out, and
/// without fencing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_grade(diagnosis: *const onelock_diagnosis) -> u32 {
    value(0, || peek(diagnosis, |found: &DiagnosisObject| found.grade))
}

/// How many findings there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_count(diagnosis: *const onelock_diagnosis) -> usize {
    value(0, || peek(diagnosis, |found: &DiagnosisObject| found.rows.len()))
}

/// The server that one of them is about, without secrets; empty for what concerns all of them. `NULL` when `index` is too
/// high. Belongs to the diagnosis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_server(diagnosis: *const onelock_diagnosis, index: usize) -> *const c_char {
    get(diagnosis, index, null(), |row| Some(row.server.as_ptr()))
}

/// What was tried: `name`, `tcp`, `tls`, `user`, `role`, `permission` ... `NULL` when `index` is too high. Belongs to the
/// diagnosis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_step(diagnosis: *const onelock_diagnosis, index: usize) -> *const c_char {
    get(diagnosis, index, null(), |row| Some(row.step.as_ptr()))
}

/// How it ended: an `ONELOCK_SEVERITY_`; 0 when `index` is too high.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_step_severity(diagnosis: *const onelock_diagnosis, index: usize) -> u32 {
    get(diagnosis, index, 0, |row| Some(row.severity))
}

/// What was found, a sentence for people. `NULL` when `index` is too high. Belongs to the diagnosis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_detail(diagnosis: *const onelock_diagnosis, index: usize) -> *const c_char {
    get(diagnosis, index, null(), |row| Some(row.detail.as_ptr()))
}

/// What to do about it; empty where nothing is to be done. `NULL` when `index` is too high. Belongs to the diagnosis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_todo(diagnosis: *const onelock_diagnosis, index: usize) -> *const c_char {
    get(diagnosis, index, null(), |row| Some(row.todo.as_ptr()))
}

/// The status that a call would end with because of it, if the step failed; otherwise `ONELOCK_OK`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_error(diagnosis: *const onelock_diagnosis, index: usize) -> onelock_status {
    get(diagnosis, index, ONELOCK_OK, |row| Some(row.error))
}

/// How many values were measured at that step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_measured_count(diagnosis: *const onelock_diagnosis, index: usize) -> usize {
    get(diagnosis, index, 0, |row| Some(row.measured.len()))
}

/// The name of one of these values, which ends with its unit: `median_us`. `NULL` when an index is too high. Belongs to the
/// diagnosis.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_measured_name(
    diagnosis: *const onelock_diagnosis,
    index: usize,
    number: usize,
) -> *const c_char {
    get(diagnosis, index, null(), |row| row.measured.get(number).map(|(name, _)| name.as_ptr()))
}

/// One of these values; 0 when an index is too high.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_measured(
    diagnosis: *const onelock_diagnosis,
    index: usize,
    number: usize,
) -> f64 {
    get(diagnosis, index, 0.0, |row| row.measured.get(number).map(|(_, value)| *value))
}

/// Frees the diagnosis and its texts. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_diagnosis_free(diagnosis: *mut onelock_diagnosis) {
    free::<DiagnosisObject>(diagnosis, |_| ());
}
