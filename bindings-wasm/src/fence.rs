//! The gates that check fencing tokens at the resource, by number.

use std::cell::RefCell;
use std::collections::HashMap;

use onelock::FenceGate;

use crate::memory::leave;

thread_local! {
    static GATES: RefCell<(HashMap<u32, FenceGate>, u32)> = RefCell::default();
}

/// A gate. Tokens are below 2^53, so numbers carry them exactly.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_gate(highest: f64) -> u32 {
    GATES.with_borrow_mut(|(gates, last)| {
        *last += 1;
        gates.insert(*last, FenceGate::starting_at(highest as u64));
        *last
    })
}

/// Whether the token may pass.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_gate_admit(gate: u32, token: f64) -> u32 {
    GATES.with_borrow(|(gates, _)| gates.get(&gate).is_some_and(|gate| gate.admit(token as u64).is_ok()).into())
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_gate_highest(gate: u32) -> f64 {
    GATES.with_borrow(|(gates, _)| gates.get(&gate).map_or(0.0, |gate| gate.highest() as f64))
}

#[unsafe(no_mangle)]
pub extern "C" fn onelock_gate_drop(gate: u32) {
    GATES.with_borrow_mut(|(gates, _)| gates.remove(&gate));
}

/// The script that checks tokens beside data on a server.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_fence_guard_script() -> i32 {
    leave(onelock::FENCE_GUARD_SCRIPT)
}
