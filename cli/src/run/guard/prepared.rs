//! The command, as the system wants it: made before the guard is, which asks for no memory.

use std::env;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::run::Environment;

pub(crate) struct Prepared {
    words: Vec<CString>,
    variables: Vec<CString>,
    word_pointers: Vec<*const c_char>,
    variable_pointers: Vec<*const c_char>,
}

impl Prepared {
    /// `changes`: what the command finds in its environment beside, or instead of, what is in ours.
    pub(crate) fn new(words: &[&OsStr], changes: &Environment) -> io::Result<Prepared> {
        let words = words.iter().map(|word| c_string(word.as_bytes())).collect::<io::Result<Vec<_>>>()?;
        let is_ours = |(name, _): &(OsString, OsString)| changes.iter().all(|(other, _)| name != other);
        let ours = env::vars_os().filter(is_ours);
        let added = changes.iter().filter_map(|(name, value)| Some((OsString::from(*name), value.clone()?)));
        let variable =
            |(name, value): (OsString, OsString)| c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat());
        let variables = ours.chain(added).map(variable).collect::<io::Result<Vec<_>>>()?;
        let (word_pointers, variable_pointers) = (pointers(&words), pointers(&variables));
        Ok(Prepared { words, variables, word_pointers, variable_pointers })
    }

    /// Becomes the command. Comes back only with an error.
    ///
    /// # Safety
    /// Only for a process that was just forked and has one thread.
    pub(super) unsafe fn become_it(&self) -> io::Error {
        debug_assert!(!self.words.is_empty() && self.variable_pointers.len() == self.variables.len() + 1);
        // SAFETY: texts and lists that end with a null, and live as long as this process, or until it is another program.
        unsafe {
            *environment() = self.variable_pointers.as_ptr();
            libc::execvp(self.word_pointers[0], self.word_pointers.as_ptr());
        }
        io::Error::last_os_error()
    }
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Where the list of variables stands that the next program gets.
#[cfg(not(target_vendor = "apple"))]
fn environment() -> *mut *const *const c_char {
    unsafe extern "C" {
        static mut environ: *const *const c_char;
    }
    &raw mut environ
}

/// Where the list of variables stands that the next program gets.
#[cfg(target_vendor = "apple")]
fn environment() -> *mut *const *const c_char {
    // SAFETY: tells a place.
    unsafe { libc::_NSGetEnviron().cast() }
}
