//! The proof of a detached hold.

use std::ffi::{CString, c_char};
use std::ptr::null;

use crate::boundary::{free, peek, value};
use crate::object::exposed;

/// The proof of a detached hold, for `onelock_lock_attach`. The first attach with it gets the hold.
pub struct onelock_proof {
    _private: [u8; 0],
}

pub(crate) struct Proof(pub(crate) CString);

exposed!(Proof, Proof, onelock_proof, "proof");

/// The proof as text. It belongs to the proof; `NULL` for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_proof_text(proof: *const onelock_proof) -> *const c_char {
    value(null(), || peek(proof, |proof: &Proof| proof.0.as_ptr()))
}

/// Frees the proof and its text, not the hold. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_proof_free(proof: *mut onelock_proof) {
    free::<Proof>(proof, |_| ());
}
