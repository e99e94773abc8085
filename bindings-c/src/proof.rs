//! The proof of a hold, on its way to another process.

use std::ffi::{CString, c_char};
use std::ptr::null;

use crate::boundary::{free, peek, value};
use crate::object::exposed;

/// The proof of a hold that was handed away, for `onelock_lock_attach`. Whoever attaches first with it goes on with the hold.
pub struct onelock_proof {
    _private: [u8; 0],
}

pub(crate) struct Proof(pub(crate) CString);

exposed!(Proof, Proof, onelock_proof, "proof");

/// The proof as text. Belongs to the proof; `NULL` for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_proof_text(proof: *const onelock_proof) -> *const c_char {
    value(null(), || peek(proof, |proof: &Proof| proof.0.as_ptr()))
}

/// Frees the proof and its text. The hold itself is not touched. NULL and dead handles are left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_proof_free(proof: *mut onelock_proof) {
    free::<Proof>(proof, |_| ());
}
