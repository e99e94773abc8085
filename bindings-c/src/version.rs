//! The version of the library.

use std::ffi::{CStr, c_char};

use crate::boundary::value;

/// Counts the incompatible changes of this interface. A program compiled for another number must not use the library.
pub const ONELOCK_ABI_VERSION: u32 = 1;

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// The version of the loaded library, such as `0.1.0`; compare with `ONELOCK_VERSION`. Static text.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_version() -> *const c_char {
    value(c"".as_ptr(), || Some(VERSION.as_ptr()))
}

/// The interface of the loaded library; compare with `ONELOCK_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_abi_version() -> u32 {
    value(0, || Some(ONELOCK_ABI_VERSION))
}
