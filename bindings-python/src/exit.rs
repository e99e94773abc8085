//! The end of the interpreter: it releases what is held, and keeps threads from entering the interpreter after that.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{process, thread};

use pyo3::prelude::*;

/// The process that is about to end.
static EXITING: AtomicU32 = AtomicU32::new(0);

/// The process, and how many threads of this module are attached to its interpreter or about to be. A forked child
/// begins at 0.
static ATTACHED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread ends the process: then it may still attach.
    static ENDS_PROCESS: Cell<bool> = const { Cell::new(false) };
}

fn count_attached(change: impl Fn(u32) -> u32) -> u32 {
    let pid = process::id();
    let counted = |packed: u64| if (packed >> 32) as u32 == pid { packed as u32 } else { 0 };
    let next = |packed| Some(u64::from(pid) << 32 | u64::from(change(counted(packed))));
    ATTACHED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).map_or(0, counted)
}

/// Attaches a thread to the interpreter; `None` once the end has begun. The interpreter would end a late thread in the
/// middle of code that does not survive that.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            count_attached(|inside| inside.saturating_sub(1));
        }
    }
    count_attached(|inside| inside + 1);
    let _inside = Inside;
    if EXITING.load(Ordering::SeqCst) == process::id() && !ENDS_PROCESS.get() {
        return None;
    }
    Python::try_attach(work)
}

/// Waits until no thread of this module is attached; none attaches any more.
fn wait_until_detached(limit: Duration) {
    let end = Instant::now() + limit;
    while count_attached(|inside| inside) > 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Parks a thread whose call was ended by the end of the process: it would return to an interpreter that is shutting
/// down, with an error that cannot be handled.
pub(crate) fn park_at_exit() {
    if EXITING.load(Ordering::Acquire) == process::id() && !ENDS_PROCESS.get() {
        loop {
            thread::park();
        }
    }
}

/// Releases what is held, within `limit` seconds: by every client, and by leases whose client is gone. For `atexit`.
#[pyfunction]
pub(crate) fn release_all(py: Python<'_>, limit: f64) {
    EXITING.store(process::id(), Ordering::SeqCst);
    ENDS_PROCESS.set(true);
    let limit = Duration::try_from_secs_f64(limit).unwrap_or(Duration::from_secs(1));
    py.detach(|| wait_until_detached(limit));
    py.detach(|| onelock::runtime::close_process(limit));
}
