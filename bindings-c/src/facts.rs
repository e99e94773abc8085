//! Facts about a server, from a check.

use std::ffi::{CString, c_char};
use std::ptr::null;

use crate::boundary::{free, peek, value};
use crate::enums::grade_number;
use crate::object::exposed;
use crate::text::c_text;

/// Facts about the server, from `onelock_client_check`.
pub struct onelock_facts {
    _private: [u8; 0],
}

pub(crate) struct FactsObject {
    grade: u32,
    server: CString,
    warnings: Vec<CString>,
}

exposed!(FactsObject, Facts, onelock_facts, "facts");

impl FactsObject {
    pub(crate) fn new(facts: &onelock::Facts) -> FactsObject {
        FactsObject {
            grade: grade_number(facts.grade),
            server: c_text(&facts.server),
            warnings: facts.warnings.iter().map(|warning| c_text(warning)).collect(),
        }
    }
}

/// The grade of fencing tokens of this server: an `ONELOCK_GRADE_`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_facts_grade(facts: *const onelock_facts) -> u32 {
    value(0, || peek(facts, |facts: &FactsObject| facts.grade))
}

/// The server's name and version, such as `valkey 9.1.0`. It belongs to the facts; `NULL` for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_facts_server(facts: *const onelock_facts) -> *const c_char {
    value(null(), || peek(facts, |facts: &FactsObject| facts.server.as_ptr()))
}

/// The number of settings of this server that can break locks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_facts_warning_count(facts: *const onelock_facts) -> usize {
    value(0, || peek(facts, |facts: &FactsObject| facts.warnings.len()))
}

/// One of them, as a sentence; `NULL` when `index` is too high. It belongs to the facts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_facts_warning(facts: *const onelock_facts, index: usize) -> *const c_char {
    value(null(), || peek(facts, |facts: &FactsObject| facts.warnings.get(index).map(|text| text.as_ptr()))?)
}

/// Frees the facts and their texts. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_facts_free(facts: *mut onelock_facts) {
    free::<FactsObject>(facts, |_| ());
}
