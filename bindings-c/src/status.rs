//! Status numbers: those of the error table that all languages share, and the two that only C has.

#![allow(dead_code)] // most of these constants are for C only

use std::ffi::{CString, c_char};
use std::ptr::null;

use once_cell::race::OnceBox;
use onelock::ErrorKind;

use crate::boundary::value;

/// The status of a call: `ONELOCK_OK`, or the kind of error. Numbers are never reused.
pub type onelock_status = u32;

/// Success.
pub const ONELOCK_OK: onelock_status = 0;

// The lock was not acquired, but nothing failed.

/// A single try was refused: the lock is held.
pub const ONELOCK_ERR_BUSY: onelock_status = 1;
/// The time-out passed while the lock was held.
pub const ONELOCK_ERR_TIMEOUT: onelock_status = 2;
/// The wait was cancelled; nothing is held.
pub const ONELOCK_ERR_CANCELLED: onelock_status = 3;

// About a lease.

/// The lease ended without a release.
pub const ONELOCK_ERR_LOST: onelock_status = 10;
/// The lease was released or detached before.
pub const ONELOCK_ERR_NOT_HELD: onelock_status = 11;

// About servers.

/// No server could be reached in time.
pub const ONELOCK_ERR_UNAVAILABLE: onelock_status = 20;
/// Too few of several independent servers answered in time.
pub const ONELOCK_ERR_NO_QUORUM: onelock_status = 21;
/// User name or password were refused.
pub const ONELOCK_ERR_AUTH_FAILED: onelock_status = 22;
/// The user lacks the permission for a command or a key.
pub const ONELOCK_ERR_NOT_PERMITTED: onelock_status = 23;
/// The server is a replica.
pub const ONELOCK_ERR_READ_ONLY: onelock_status = 24;
/// The server is up but refuses to write.
pub const ONELOCK_ERR_SERVER_REFUSED: onelock_status = 25;

// About the call.

/// The key is another kind of lock, or not a lock.
pub const ONELOCK_ERR_WRONG_KIND: onelock_status = 30;
/// An argument was refused before any I/O: NULL, a dead handle, a value out of its limits.
pub const ONELOCK_ERR_INVALID_ARGUMENT: onelock_status = 31;
/// The store, or this place in the program, cannot do what was asked.
pub const ONELOCK_ERR_UNSUPPORTED: onelock_status = 32;
/// The owner of a read lease asks for the write lock of the same name: it would wait for itself.
pub const ONELOCK_ERR_WOULD_DEADLOCK: onelock_status = 33;
/// A semaphore has another number of permits than was said, or none is set.
pub const ONELOCK_ERR_PERMITS_MISMATCH: onelock_status = 34;

// About the life of a client or process.

/// The client was closed.
pub const ONELOCK_ERR_CLOSED: onelock_status = 40;
/// The lease belongs to the parent process.
pub const ONELOCK_ERR_FORKED: onelock_status = 41;

/// The machine has no thread, file descriptor or memory left; the same call may succeed later.
pub const ONELOCK_ERR_SYSTEM_LIMIT: onelock_status = 42;

// Defects.

/// A defect of this library.
pub const ONELOCK_ERR_INTERNAL: onelock_status = 50;

// Of C alone, from 1000 on.

/// Not an error: a background acquire has not ended. No error object is made for it.
pub const ONELOCK_PENDING: onelock_status = 1000;

struct Row {
    kind: ErrorKind,
    name: CString,
    hint: CString,
}

/// Without a mutex, which a forked child may find locked.
static ROWS: OnceBox<Vec<Row>> = OnceBox::new();

fn rows() -> Vec<Row> {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    ErrorKind::ALL.iter().map(|kind| Row { kind: *kind, name: text(kind.name()), hint: text(kind.todo()) }).collect()
}

fn row(status: onelock_status) -> Option<&'static Row> {
    ROWS.get_or_init(|| Box::new(rows())).iter().find(|row| row.kind.number() == status)
}

/// The name of a status, such as `Busy` or `Ok`; `NULL` for another number. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_status_name(status: onelock_status) -> *const c_char {
    value(null(), || {
        Some(match status {
            ONELOCK_OK => c"Ok".as_ptr(),
            ONELOCK_PENDING => c"Pending".as_ptr(),
            _ => row(status)?.name.as_ptr(),
        })
    })
}

/// What to do about an error, as one sentence; `NULL` for a status that is not an error. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_status_hint(status: onelock_status) -> *const c_char {
    value(null(), || Some(row(status)?.hint.as_ptr()))
}

/// Whether the same call may succeed later, without any change.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_status_is_retryable(status: onelock_status) -> bool {
    value(false, || Some(row(status)?.kind.is_retryable()))
}

/// Whether the lock was not acquired, but nothing failed: busy, timeout, cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_status_is_not_acquired(status: onelock_status) -> bool {
    value(false, || Some(row(status)?.kind.is_not_acquired()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_those_of_the_table() {
        let constants: &[(&str, onelock_status)] = &[
            ("ONELOCK_ERR_BUSY", ONELOCK_ERR_BUSY),
            ("ONELOCK_ERR_TIMEOUT", ONELOCK_ERR_TIMEOUT),
            ("ONELOCK_ERR_CANCELLED", ONELOCK_ERR_CANCELLED),
            ("ONELOCK_ERR_LOST", ONELOCK_ERR_LOST),
            ("ONELOCK_ERR_NOT_HELD", ONELOCK_ERR_NOT_HELD),
            ("ONELOCK_ERR_UNAVAILABLE", ONELOCK_ERR_UNAVAILABLE),
            ("ONELOCK_ERR_NO_QUORUM", ONELOCK_ERR_NO_QUORUM),
            ("ONELOCK_ERR_AUTH_FAILED", ONELOCK_ERR_AUTH_FAILED),
            ("ONELOCK_ERR_NOT_PERMITTED", ONELOCK_ERR_NOT_PERMITTED),
            ("ONELOCK_ERR_READ_ONLY", ONELOCK_ERR_READ_ONLY),
            ("ONELOCK_ERR_SERVER_REFUSED", ONELOCK_ERR_SERVER_REFUSED),
            ("ONELOCK_ERR_WRONG_KIND", ONELOCK_ERR_WRONG_KIND),
            ("ONELOCK_ERR_INVALID_ARGUMENT", ONELOCK_ERR_INVALID_ARGUMENT),
            ("ONELOCK_ERR_UNSUPPORTED", ONELOCK_ERR_UNSUPPORTED),
            ("ONELOCK_ERR_WOULD_DEADLOCK", ONELOCK_ERR_WOULD_DEADLOCK),
            ("ONELOCK_ERR_PERMITS_MISMATCH", ONELOCK_ERR_PERMITS_MISMATCH),
            ("ONELOCK_ERR_CLOSED", ONELOCK_ERR_CLOSED),
            ("ONELOCK_ERR_FORKED", ONELOCK_ERR_FORKED),
            ("ONELOCK_ERR_SYSTEM_LIMIT", ONELOCK_ERR_SYSTEM_LIMIT),
            ("ONELOCK_ERR_INTERNAL", ONELOCK_ERR_INTERNAL),
        ];
        let table: toml::Table = include_str!("../../tests/spec/errors.toml").parse().unwrap();
        let rows = table["error"].as_array().unwrap();
        assert_eq!(rows.len(), constants.len());
        for (row, (name, number)) in rows.iter().zip(constants) {
            assert_eq!(row["c"].as_str().unwrap(), *name);
            assert_eq!(row["number"].as_integer().unwrap(), i64::from(*number), "{name}");
        }
    }
}
