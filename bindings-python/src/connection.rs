//! A connection whose replies an event loop reads.

use onelock::event_loop::Socket;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::pump::{Pump, Told};

/// What a loop watches. The loop owns it, through `add_reader`: the socket is closed when the loop lets go of it.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct Connection {
    pump: Py<Pump>,
    socket: Socket,
}

impl Connection {
    pub(crate) fn new(pump: &Bound<'_, Pump>, socket: Socket) -> PyResult<Py<Connection>> {
        Py::new(pump.py(), Connection { pump: pump.clone().unbind(), socket })
    }
}

#[pymethods]
impl Connection {
    /// What the loop is to watch.
    fn fileno(&self) -> i32 {
        self.socket.fd()
    }

    /// Takes in what can be read: whether it is to be watched on, and what came of it.
    fn ready(&self, py: Python<'_>) -> (bool, Vec<Told>) {
        self.pump.get().ready(py, &self.socket)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.pump)
    }
}
