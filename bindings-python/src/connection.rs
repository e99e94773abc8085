//! A connection whose replies an event loop reads.

use onelock::port::Socket;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use crate::pump::Pump;

/// What a loop watches. The loop owns it, through `add_reader`: the socket is closed when the loop lets go of it.
#[pyclass(frozen, module = "onelock._onelock")]
pub(crate) struct Connection {
    pump: Py<Pump>,
    socket: Socket,
}

impl Connection {
    /// From now on `event_loop` reads what comes.
    pub(crate) fn watch(pump: &Bound<'_, Pump>, event_loop: &Bound<'_, PyAny>, socket: Socket) -> PyResult<()> {
        let py = pump.py();
        let fd = socket.fd();
        let connection = Bound::new(py, Connection { pump: pump.clone().unbind(), socket })?;
        let ready = connection.getattr(intern!(py, "ready"))?;
        event_loop.call_method1(intern!(py, "add_reader"), (fd, ready))?;
        Ok(())
    }
}

#[pymethods]
impl Connection {
    /// Takes in what has come. The loop calls it when there is something.
    fn ready(&self, py: Python<'_>) -> PyResult<()> {
        if !self.pump.get().ready(py, &self.socket) {
            let running = py.import(intern!(py, "asyncio"))?.call_method0(intern!(py, "get_running_loop"))?;
            running.call_method1(intern!(py, "remove_reader"), (self.socket.fd(),))?;
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.pump)
    }
}
