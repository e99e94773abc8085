//! Checks and converts text and bytes from C, and text for C.

use std::ffi::{CString, c_char};

use onelock::ErrorKind;

use crate::error::Failure;

/// The longest NUL-terminated argument that is read.
const TEXT_MAX: usize = 64 * 1024;
/// The longest argument with a length that is read; the core's own limits are lower and give the better message.
const BYTES_MAX: usize = 64 * 1024;

fn refuse(tried: &str, detail: &str) -> Failure {
    Failure::new(ErrorKind::InvalidArgument, tried, detail)
}

/// `length` bytes at `pointer`. NULL is allowed for no bytes at all.
pub(crate) fn bytes<'a>(pointer: *const c_char, length: usize, what: &str, tried: &str) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(refuse(tried, &format!("the {what} is NULL")));
    }
    if length > BYTES_MAX {
        return Err(refuse(tried, &format!("the {what} has {length} bytes, which is too long")));
    }
    // SAFETY: not NULL, and the caller promises that this many bytes can be read; the result is used within the call.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
}

/// The bytes at `pointer` up to a NUL.
pub(crate) fn terminated<'a>(pointer: *const c_char, what: &str, tried: &str) -> Result<&'a [u8], Failure> {
    if pointer.is_null() {
        return Err(refuse(tried, &format!("the {what} is NULL")));
    }
    // SAFETY: not NULL, and the caller promises a NUL; no more is read than up to it, and never more than TEXT_MAX.
    let length = unsafe { libc::strnlen(pointer, TEXT_MAX) };
    bytes(pointer, length, what, tried)
}

/// The NUL-terminated text at `pointer`; `None` for NULL.
pub(crate) fn optional_text<'a>(pointer: *const c_char, what: &str, tried: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, and the caller promises a NUL; no more is read than up to it, and never more than TEXT_MAX.
    let length = unsafe { libc::strnlen(pointer, TEXT_MAX) };
    if length == TEXT_MAX {
        return Err(refuse(tried, &format!("the {what} has no end within {TEXT_MAX} bytes")));
    }
    // SAFETY: `length` bytes were read just now.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) };
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(refuse(tried, &format!("the {what} is not UTF-8"))),
    }
}

/// The NUL-terminated text at `pointer`.
pub(crate) fn text<'a>(pointer: *const c_char, what: &str, tried: &str) -> Result<&'a str, Failure> {
    optional_text(pointer, what, tried)?.ok_or_else(|| refuse(tried, &format!("the {what} is NULL")))
}

/// Text for C; a NUL inside it is shown.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text).or_else(|_| CString::new(text.replace('\0', "\\0"))).unwrap_or_default()
}
