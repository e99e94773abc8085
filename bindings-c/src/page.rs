//! Some of the locks of a server.

use std::ffi::{CString, c_char};
use std::ptr::null;

use onelock::{ErrorKind, LockEntry, LockPage};

use crate::boundary::{expose, free, live, output, peek, put_if_wanted, status, value};
use crate::error::{Failure, onelock_error};
use crate::inspection::{InspectionObject, onelock_inspection};
use crate::object::exposed;
use crate::status::onelock_status;
use crate::text::c_text;

/// What `onelock_client_list` found: locks, numbered from 0, and where to go on.
pub struct onelock_page {
    _private: [u8; 0],
}

pub(crate) struct PageObject {
    entries: Vec<LockEntry>,
    next: Option<CString>,
}

exposed!(PageObject, Page, onelock_page, "page");

impl PageObject {
    pub(crate) fn new(page: LockPage) -> PageObject {
        PageObject { entries: page.entries, next: page.next.map(|next| c_text(&next)) }
    }
}

/// How many locks the page has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_page_count(page: *const onelock_page) -> usize {
    value(0, || peek(page, |page: &PageObject| page.entries.len()))
}

/// The name of one of them, any bytes, without the client's prefix and without a NUL at its end. Belongs to the page.
///
/// `length` may be `NULL`. `NULL` and length 0 when `index` is too high.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_page_name(
    page: *const onelock_page,
    index: usize,
    length: *mut usize,
) -> *const c_char {
    value(null(), || {
        put_if_wanted(length, 0);
        let (name, size) = peek(page, |page: &PageObject| {
            page.entries.get(index).map(|entry| (entry.name.as_ptr().cast(), entry.name.len()))
        })??;
        put_if_wanted(length, size);
        Some(name)
    })
}

/// What stands under the name of one of them. Free the result with `onelock_inspection_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_page_inspection(
    page: *const onelock_page,
    index: usize,
    inspection: *mut *mut onelock_inspection,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "list";
    status(error, TRIED, || {
        let page = live::<PageObject>(page, TRIED)?;
        let inspection = output(inspection, "inspection", TRIED)?;
        let entry = page.entries.get(index).ok_or_else(|| {
            let detail = format!("there is no lock {index} on this page; it has {}", page.entries.len());
            Failure::new(ErrorKind::InvalidArgument, TRIED, &detail)
        })?;
        inspection.put(expose(InspectionObject::new(entry.inspection.clone()), TRIED)?)
    })
}

/// How many processes wait for one of them; -1 when that cannot be told, or `index` is too high.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_page_waiting(page: *const onelock_page, index: usize) -> i64 {
    value(-1, || {
        let waiting = peek(page, |page: &PageObject| page.entries.get(index).and_then(|entry| entry.waiting))??;
        i64::try_from(waiting).ok()
    })
}

/// What to give as `cursor` for the next page; `NULL` on the last one. Belongs to the page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_page_next(page: *const onelock_page) -> *const c_char {
    value(null(), || peek(page, |page: &PageObject| page.next.as_ref().map(|next| next.as_ptr()))?)
}

/// Frees the page, its names and its cursor. NULL and dead handles are left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_page_free(page: *mut onelock_page) {
    free::<PageObject>(page, |_| ());
}
