//! The check of fencing tokens at the resource.

use pyo3::prelude::*;

/// Checks fencing tokens for a resource inside this process: it remembers the highest token and refuses every lower
/// one. An equal token belongs to the same holder and passes.
///
/// One gate is for one lock name: tokens of different names cannot be compared. Threads may share it.
#[pyclass(frozen, module = "onelock")]
pub(crate) struct FenceGate(onelock::FenceGate);

#[pymethods]
impl FenceGate {
    /// `highest` is the token to begin with, for a resource that stores it across restarts.
    #[new]
    #[pyo3(signature = (highest=0))]
    fn new(highest: u64) -> FenceGate {
        FenceGate(onelock::FenceGate::starting_at(highest))
    }

    /// Whether a write with this token is allowed. False: there was a later holder, so the caller has lost its lock and
    /// must stop.
    fn admit(&self, token: u64) -> bool {
        self.0.admit(token).is_ok()
    }

    /// The highest token seen, 0 for none. Store it with the resource.
    #[getter]
    fn highest(&self) -> u64 {
        self.0.highest()
    }

    fn __repr__(&self) -> String {
        format!("FenceGate({})", self.0.highest())
    }
}
