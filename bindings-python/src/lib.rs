//! The native half of the Python package `onelock`: what Python cannot do by itself, and nothing else. The classes that
//! people use, and their documentation, are in `python/onelock/`.
//!
//! | file | is |
//! |---|---|
//! | `client`, `client_options`, `lock`, `lease`, `owner`, `gate` | the core's objects |
//! | `pump`, `queue`, `wake`, `connection` | the way of results into an event loop |
//! | `waiting`, `cancel` | calls that wait: without the interpreter lock, and ended by Ctrl-C or by another thread |
//! | `listener` | loss and jeopardy, told to Python |
//! | `credentials` | who logs in, asked of Python |
//! | `argument`, `error`, `report` | values, failures and records across the boundary |
//! | `log` | the core's events on their way to `logging` |
//! | `exit`, `interpreter` | the end of the interpreter, and which one it is |
//!
//! **Threads.** Background work never enters Python: a runtime worker that waits for the interpreter would stop every
//! renewal. What it has to say goes into a queue, and a thread of Python's, or one kept for callbacks, takes it out.
//!
//! **The end.** Until Python 3.14, a thread that is in Python when the interpreter ends is unwound, which must not meet frames
//! of Rust. So what runs on the thread of an event loop calls nothing of Python: it hands out what there is to do, and
//! `_pumps.py` does it.
//!
//! **Safety.** This crate has no `unsafe` of its own but for the number of the interpreter.

mod argument;
mod cancel;
mod client;
mod client_options;
mod connection;
mod credentials;
mod error;
mod exit;
mod gate;
mod interpreter;
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
    interpreter::check(module.py())?;
    // `exit` does it, as long as there is an interpreter
    onelock::runtime::leave_exit_to_caller();
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
    module.add_class::<connection::Connection>()?;
    module.add_class::<credentials::CredentialsRequest>()?;
    module.add_class::<pump::Pump>()?;
    module.add_class::<pump::Reader>()?;
    module.add_class::<report::Facts>()?;
    module.add_class::<report::Inspection>()?;
    module.add_class::<report::OwnerInfo>()?;
    module.add_class::<report::Stats>()?;
    module.add_class::<report::Histogram>()?;
    module.add_function(wrap_pyfunction!(argument::seconds, module)?)?;
    module.add_function(wrap_pyfunction!(error::error_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(error::set_error_classes, module)?)?;
    module.add_function(wrap_pyfunction!(exit::give_back, module)?)?;
    module.add_function(wrap_pyfunction!(log::set_log_level, module)?)?;
    module.add_function(wrap_pyfunction!(log::take_log, module)?)?;
    Ok(())
}
