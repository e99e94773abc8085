//! The resource's half of fencing.

use pyo3::prelude::*;

/// The resource's half of fencing, for a resource inside this process: remembers the highest token seen and turns away
/// every lower one. An equal token is the same holder and passes.
///
/// One gate guards one lock name: tokens of different names don't compare. Any number of threads may use it.
#[pyclass(frozen, module = "onelock")]
pub(crate) struct FenceGate(onelock::FenceGate);

#[pymethods]
impl FenceGate {
    /// `highest` is where a resource goes on that remembers it across restarts.
    #[new]
    #[pyo3(signature = (highest=0))]
    fn new(highest: u64) -> FenceGate {
        FenceGate(onelock::FenceGate::starting_at(highest))
    }

    /// Whether a write with this token may go through. False: a later holder has been here already, so the caller has
    /// lost its lock and must stop.
    fn admit(&self, token: u64) -> bool {
        self.0.admit(token).is_ok()
    }

    /// The highest token seen, 0 for none: to be stored beside the resource.
    #[getter]
    fn highest(&self) -> u64 {
        self.0.highest()
    }

    fn __repr__(&self) -> String {
        format!("FenceGate({})", self.0.highest())
    }
}
