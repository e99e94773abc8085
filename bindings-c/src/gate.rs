//! The check of fencing tokens at the resource.

use onelock::FenceGate;

use crate::boundary::{expose, free, peek, value};
use crate::object::exposed;

/// Remembers the highest fencing token and refuses every lower one. For a resource inside this process.
pub struct onelock_gate {
    _private: [u8; 0],
}

exposed!(FenceGate, Gate, onelock_gate, "gate");

/// A gate that continues from `highest`: 0 for a new one, or what the resource has stored. One gate is for one lock
/// name. `NULL` when there is no room for another handle. Free it with `onelock_gate_free`.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_gate_new(highest: u64) -> *mut onelock_gate {
    value(std::ptr::null_mut(), || expose(FenceGate::starting_at(highest), "make a gate").ok())
}

/// Whether the token is allowed: none higher was seen. False for a dead handle. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_gate_admit(gate: *const onelock_gate, token: u64) -> bool {
    value(false, || peek(gate, |gate: &FenceGate| gate.admit(token).is_ok()))
}

/// The highest token seen, 0 for none. Store it with the resource.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_gate_highest(gate: *const onelock_gate) -> u64 {
    value(0, || peek(gate, FenceGate::highest))
}

/// Frees the gate. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_gate_free(gate: *mut onelock_gate) {
    free::<FenceGate>(gate, |_| ());
}
