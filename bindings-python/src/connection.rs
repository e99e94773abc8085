//! A connection whose replies an event loop reads.

use onelock::event_loop::Socket;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::pump::{Delivery, Pump};

/// The object that a loop watches. The loop owns it, through `add_reader`: the socket is closed when the loop drops it.
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
    /// The file descriptor to watch.
    fn fileno(&self) -> i32 {
        self.socket.fd()
    }

    /// Reads what is there. Returns whether to keep watching, and what to deliver.
    fn ready(&self, py: Python<'_>) -> (bool, Vec<Delivery>) {
        self.pump.get().ready(py, &self.socket)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.pump)
    }
}
