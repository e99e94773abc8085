//! The native half of the Python package `onelock`: what Python cannot do by itself, and nothing else. The classes that
//! people use, and their documentation, are in `python/onelock/`.
//!
//! | file | is |
//! |---|---|
//! | `client`, `client_options`, `lock`, `lease`, `owner`, `gate` | the core's objects |
//! | `pump`, `queue`, `wake`, `connection` | the way of results into an event loop |
//! | `waiting`, `cancel` | calls that wait: without the interpreter lock, and ended by Ctrl-C or by another thread |
//! | `listener` | loss and jeopardy, told to Python |
//! | `argument`, `error`, `report` | values, failures and records across the boundary |
//! | `log` | the core's events on their way to `logging` |
//! | `exit` | the end of the interpreter |
//!
//! **Threads.** Background work never enters Python: a runtime worker that waits for the interpreter would stop every
//! renewal. What it has to say goes into a queue, and a thread of Python's, or one kept for callbacks, takes it out.
//!
//! **Safety.** This crate has no `unsafe` of its own.

mod argument;
mod cancel;
mod client;
mod client_options;
mod connection;
mod error;
mod exit;
mod gate;
mod lease;
mod listener;
mod lock;
mod log;
mod owner;
mod pump;
mod queue;
mod report;
mod waiting;
mod wake;

use pyo3::prelude::*;

/// The native module. Its classes hold nothing that needs the interpreter lock, so that a free-threaded interpreter may
/// do without one.
#[pymodule(name = "_onelock", gil_used = false)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("FENCE_GUARD_SCRIPT", onelock::FENCE_GUARD_SCRIPT)?;
    module.add("URL_VARIABLE", onelock::URL_VARIABLE)?;
    module.add_class::<client::Client>()?;
    module.add_class::<lock::Lock>()?;
    module.add_class::<lease::Lease>()?;
    module.add_class::<lease::Granted>()?;
    module.add_class::<owner::Owner>()?;
    module.add_class::<cancel::Cancel>()?;
    module.add_class::<gate::FenceGate>()?;
    module.add_class::<pump::Pump>()?;
    module.add_class::<pump::Reader>()?;
    module.add_class::<report::Facts>()?;
    module.add_class::<report::Inspection>()?;
    module.add_class::<report::OwnerInfo>()?;
    module.add_class::<report::Stats>()?;
    module.add_class::<report::Histogram>()?;
    module.add_function(wrap_pyfunction!(argument::seconds, module)?)?;
    module.add_function(wrap_pyfunction!(error::error_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(exit::give_back, module)?)?;
    module.add_function(wrap_pyfunction!(log::set_log_level, module)?)?;
    module.add_function(wrap_pyfunction!(log::take_log, module)?)?;
    Ok(())
}
