//! The state of a lock on the server.

use std::ffi::{CString, c_char};
use std::ptr::null;

use onelock::{Inspection, OwnerInfo, Waiter};

use crate::boundary::{free, peek, value};
use crate::enums::{kind_number, ms, origin_number};
use crate::object::exposed;
use crate::text::c_text;

/// The state of a lock, from `onelock_client_inspect` or `onelock_client_list`.
pub struct onelock_inspection {
    _private: [u8; 0],
}

struct OwnerTexts {
    label: CString,
    host: CString,
}

impl OwnerTexts {
    fn new(owner: &OwnerInfo) -> OwnerTexts {
        OwnerTexts { label: c_text(&owner.label), host: c_text(&owner.host) }
    }
}

pub(crate) struct InspectionObject {
    found: Inspection,
    texts: Option<OwnerTexts>,
    foreign_holder: Option<CString>,
    waiters: Vec<Option<OwnerTexts>>,
}

exposed!(InspectionObject, Inspection, onelock_inspection, "inspection");

impl InspectionObject {
    pub(crate) fn new(found: Inspection) -> InspectionObject {
        let texts = found.owner.as_ref().map(OwnerTexts::new);
        let waiters = found.waiters.iter().map(|waiter| waiter.client.as_ref().map(OwnerTexts::new)).collect();
        let foreign_holder = found.foreign_holder.as_deref().map(c_text);
        InspectionObject { found, texts, foreign_holder, waiters }
    }
}

fn get<T>(inspection: *const onelock_inspection, otherwise: T, part: impl FnOnce(&InspectionObject) -> Option<T>) -> T {
    value(otherwise, || peek(inspection, part)?)
}

/// The kind of lock, an `ONELOCK_KIND_`; 0 for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_kind(inspection: *const onelock_inspection) -> u32 {
    get(inspection, 0, |found| Some(kind_number(found.found.kind)))
}

/// Which client's lock it is, as far as can be told: an `ONELOCK_ORIGIN_`; 0 for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_origin(inspection: *const onelock_inspection) -> u32 {
    get(inspection, 0, |found| Some(origin_number(found.found.origin)))
}

/// Of a holder that is no client of this library: as much of what it wrote as tells people who it is, and is no proof or
/// secret. `NULL` where nothing of it can be shown. Belongs to the inspection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_foreign_holder(inspection: *const onelock_inspection) -> *const c_char {
    get(inspection, null(), |found| found.foreign_holder.as_ref().map(|text| text.as_ptr()))
}

/// The hold count of the holder; of a semaphore, how many permits are held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_hold_count(inspection: *const onelock_inspection) -> u64 {
    get(inspection, 0, |found| Some(found.found.hold_count))
}

/// Time to live of the key on the server, in milliseconds; -1 for a foreign key without one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_ttl_left_ms(inspection: *const onelock_inspection) -> i64 {
    get(inspection, -1, |found| found.found.ttl_left.map(ms))
}

/// The fencing token of the present hold; 0 for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_fencing_token(inspection: *const onelock_inspection) -> u64 {
    get(inspection, 0, |found| found.found.fencing_token)
}

/// Whether the holder is known: it is a client of this library with `inspectable` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_has_owner(inspection: *const onelock_inspection) -> bool {
    get(inspection, false, |found| Some(found.texts.is_some()))
}

/// The label of the holder's client; `NULL` when it is not known. It belongs to the inspection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_owner_label(inspection: *const onelock_inspection) -> *const c_char {
    get(inspection, null(), |found| Some(found.texts.as_ref()?.label.as_ptr()))
}

/// The name of the holder's host; `NULL` when it is not known. It belongs to the inspection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_owner_host(inspection: *const onelock_inspection) -> *const c_char {
    get(inspection, null(), |found| Some(found.texts.as_ref()?.host.as_ptr()))
}

/// The holder's process id; 0 when it is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_owner_pid(inspection: *const onelock_inspection) -> u32 {
    get(inspection, 0, |found| Some(found.found.owner.as_ref()?.pid))
}

/// When it was granted: wall clock, milliseconds since 1970; 0 when it is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_owner_since_ms(inspection: *const onelock_inspection) -> u64 {
    get(inspection, 0, |found| Some(found.found.owner.as_ref()?.since_ms))
}

/// Of a semaphore, how many permits there are in all; -1 for any other lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_permits(inspection: *const onelock_inspection) -> i64 {
    get(inspection, -1, |found| number(found.found.permits))
}

/// Of a semaphore, how many permits are free; -1 for any other lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_free_permits(inspection: *const onelock_inspection) -> i64 {
    get(inspection, -1, |found| number(found.found.free))
}

/// How many processes wait for it, by listening or in its queue; -1 where the server doesn't tell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_waiting(inspection: *const onelock_inspection) -> i64 {
    get(inspection, -1, |found| number(found.found.waiting))
}

/// How many of those that wait can be asked about, by their places from 0 on: the first 16 that have a place in the queue on
/// the server, the head first. These are who waits for a fair lock, for permits of a semaphore, or to write; who waits for any
/// other lock, or to read, has told the server no name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_waiters(inspection: *const onelock_inspection) -> usize {
    get(inspection, 0, |found| Some(found.found.waiters.len()))
}

/// The label of a client that waits; `NULL` when it is not `inspectable`. It belongs to the inspection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_waiter_label(
    inspection: *const onelock_inspection,
    index: usize,
) -> *const c_char {
    get(inspection, null(), |found| Some(found.waiters.get(index)?.as_ref()?.label.as_ptr()))
}

/// The name of the host of a client that waits; `NULL` when it is not `inspectable`. It belongs to the inspection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_waiter_host(
    inspection: *const onelock_inspection,
    index: usize,
) -> *const c_char {
    get(inspection, null(), |found| Some(found.waiters.get(index)?.as_ref()?.host.as_ptr()))
}

/// The process id of a client that waits; 0 when it is not `inspectable`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_waiter_pid(inspection: *const onelock_inspection, index: usize) -> u32 {
    get(inspection, 0, |found| Some(waiter(found, index)?.client.as_ref()?.pid))
}

/// Since when a client that waits has its place: the server's wall clock, milliseconds since 1970; 0 for no such place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_waiter_since_ms(
    inspection: *const onelock_inspection,
    index: usize,
) -> u64 {
    get(inspection, 0, |found| Some(waiter(found, index)?.since_ms))
}

fn waiter(found: &InspectionObject, index: usize) -> Option<&Waiter> {
    found.found.waiters.get(index)
}

fn number(of: Option<u64>) -> Option<i64> {
    of.and_then(|number| i64::try_from(number).ok())
}

/// Frees the inspection and its texts. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_inspection_free(inspection: *mut onelock_inspection) {
    free::<InspectionObject>(inspection, |_| ());
}
