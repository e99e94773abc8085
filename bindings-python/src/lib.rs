//! The native module of the Python package `onelock`. The public classes and their documentation are in
//! `python/onelock/`.
//!
//! | file | is |
//! |---|---|
//! | `client`, `client_options`, `lock`, `multi_lock`, `lease`, `owner`, `gate` | the core's objects |
//! | `pump`, `queue`, `connection` | results for event loops |
//! | `waiting`, `cancel` | calls that wait without the interpreter lock, until Ctrl-C or another thread ends them |
//! | `listener` | events of loss and jeopardy |
//! | `credentials` | credentials from a Python function |
//! | `argument`, `error`, `report`, `diagnosis` | conversion of values, errors and records |
//! | `log` | log lines for `logging` |
//! | `exit`, `interpreter` | the end of the interpreter, and the check for the main one |
//!
//! **Threads.** Background work never enters Python: a runtime worker that waits for the interpreter would stop every
//! renewal. Results and events go into a queue, which a Python thread or the thread for callbacks reads.
//!
//! **The end.** Before Python 3.14, a thread that is in Python when the interpreter ends is unwound, which must not
//! cross frames of Rust. So native code on the thread of an event loop does not call Python: it returns what there is
//! to do, and `_pumps.py` does it.
//!
//! **Safety.** This crate has no `unsafe` of its own but for the number of the interpreter.

mod argument;
mod cancel;
mod client;
mod client_options;
mod connection;
mod credentials;
mod diagnosis;
mod error;
mod exit;
mod gate;
mod interpreter;
mod lease;
mod listener;
mod lock;
mod log;
mod multi_lock;
mod owner;
mod pump;
mod queue;
mod report;
mod waiting;
mod wake;

use pyo3::prelude::*;

/// The native module. Its classes do not need the interpreter lock, so it supports free-threaded interpreters.
#[pymodule(name = "_onelock", gil_used = false)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::check(module.py())?;
    // `exit` closes clients while there is an interpreter
    onelock::runtime::leave_exit_to_caller();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("FENCE_GUARD_SCRIPT", onelock::FENCE_GUARD_SCRIPT)?;
    module.add("URL_VARIABLE", onelock::URL_VARIABLE)?;
    module.add_class::<client::Client>()?;
    module.add_class::<lock::Lock>()?;
    module.add_class::<multi_lock::MultiLock>()?;
    module.add_class::<lease::Lease>()?;
    module.add_class::<lease::Granted>()?;
    module.add_class::<owner::Owner>()?;
    module.add_class::<cancel::Cancel>()?;
    module.add_class::<gate::FenceGate>()?;
    module.add_class::<connection::Connection>()?;
    module.add_class::<credentials::CredentialsRequest>()?;
    module.add_class::<pump::Pump>()?;
    module.add_class::<pump::Reader>()?;
    module.add_class::<diagnosis::Diagnosis>()?;
    module.add_class::<diagnosis::Finding>()?;
    module.add_class::<report::Facts>()?;
    module.add_class::<report::Inspection>()?;
    module.add_class::<report::Waiter>()?;
    module.add_class::<report::LockEntry>()?;
    module.add_class::<report::LockPage>()?;
    module.add_class::<report::OwnerInfo>()?;
    module.add_class::<report::Permits>()?;
    module.add_class::<report::Stats>()?;
    module.add_class::<report::Histogram>()?;
    module.add_function(wrap_pyfunction!(argument::seconds, module)?)?;
    module.add_function(wrap_pyfunction!(error::error_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(error::set_error_classes, module)?)?;
    module.add_function(wrap_pyfunction!(exit::release_all, module)?)?;
    module.add_function(wrap_pyfunction!(log::set_log_level, module)?)?;
    module.add_function(wrap_pyfunction!(log::take_log, module)?)?;
    Ok(())
}
