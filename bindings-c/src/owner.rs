//! Owners of reentrant locks.

use std::ffi::c_char;

use onelock::Owner;

use crate::boundary::{expose, free, output, status, value};
use crate::error::onelock_error;
use crate::object::exposed;
use crate::status::onelock_status;
use crate::text::bytes;

/// An owner: acquires of a reentrant lock with equal owners share one hold.
pub struct onelock_owner {
    _private: [u8; 0],
}

exposed!(Owner, Owner, onelock_owner, "owner");

/// An owner that is equal only to itself. `NULL` when there is no room for another handle. Free it with
/// `onelock_owner_free`.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_owner_new() -> *mut onelock_owner {
    value(std::ptr::null_mut(), || expose(Owner::new(), "make an owner").ok())
}

/// The owner of this name: equal to every owner with the same name in one client. Free it with `onelock_owner_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_owner_named(
    name: *const c_char,
    name_length: usize,
    owner: *mut *mut onelock_owner,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "make an owner";
    status(error, TRIED, || {
        let owner = output(owner, "owner", TRIED)?;
        let name = bytes(name, name_length, "name", TRIED)?;
        owner.put(expose(Owner::named(name), TRIED)?)
    })
}

/// Frees the owner. Locks and options keep it. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_owner_free(owner: *mut onelock_owner) {
    free::<Owner>(owner, |_| ());
}
