//! The end of the interpreter: what is held is given back, and threads that would come back to find nothing stay away.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use std::{mem, process, thread};

use arc_swap::ArcSwapOption;
use onelock::blocking::Client;
use pyo3::prelude::*;

use crate::client::ClientShare;

/// The clients of one process. A forked child makes its own: another thread may have had its parent's locked.
struct Known {
    pid: u32,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    living: Vec<Weak<ClientShare>>,
    /// Clients that nobody has any more and that still clean up.
    lingering: Vec<Client>,
}

static KNOWN: ArcSwapOption<Known> = ArcSwapOption::const_empty();

/// The process that is about to end.
static EXITING: AtomicU32 = AtomicU32::new(0);

/// The process, and how many threads of ours are in its interpreter or on their way in. A forked child begins at 0.
static ATTACHED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread ends the process: it goes on.
    static ENDS_PROCESS: Cell<bool> = const { Cell::new(false) };
}

fn known() -> Arc<Known> {
    loop {
        let present = KNOWN.load_full();
        if let Some(known) = &present
            && known.pid == process::id()
        {
            return known.clone();
        }
        let inherited =
            present.as_ref().and_then(|known| known.clients.try_lock().ok().map(|clients| clients.living.clone()));
        let clients = Clients { living: inherited.unwrap_or_default(), lingering: Vec::new() };
        let fresh = Arc::new(Known { pid: process::id(), clients: Mutex::new(clients) });
        let _ = KNOWN.compare_and_swap(&present, Some(fresh));
        // what was inherited is never dropped here
        mem::forget(present);
    }
}

fn with_clients<T>(work: impl FnOnce(&mut Clients) -> T) -> T {
    let known = known();
    let mut clients = known.clients.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    work(&mut clients)
}

/// Remembers a client.
pub(crate) fn watch(share: &Arc<ClientShare>) {
    with_clients(|clients| {
        if clients.living.len() == clients.living.capacity() {
            clients.living.retain(|client| client.strong_count() > 0);
        }
        clients.living.push(Arc::downgrade(share));
    });
}

/// The last share of a client goes: what it still cleans up is waited for at the end.
pub(crate) fn let_linger(client: &Client) {
    if !client.stats().is_busy() {
        return;
    }
    let client = client.clone();
    let gone = with_clients(|clients| {
        let (busy, gone): (Vec<_>, Vec<_>) =
            mem::take(&mut clients.lingering).into_iter().partition(|client| client.stats().is_busy());
        clients.lingering = busy;
        clients.lingering.push(client);
        gone
    });
    drop(gone);
}

fn count_attached(change: impl Fn(u32) -> u32) -> u32 {
    let pid = process::id();
    let counted = |packed: u64| if (packed >> 32) as u32 == pid { packed as u32 } else { 0 };
    let next = |packed| Some(u64::from(pid) << 32 | u64::from(change(counted(packed))));
    ATTACHED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).map_or(0, counted)
}

/// Goes into the interpreter from a thread that waits or that is not Python's; `None` once the end has begun. A thread
/// that came too late would be ended by the interpreter, in the middle of code that cannot be ended like that.
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

/// Waits until no thread of ours is in the interpreter; none goes in any more.
fn empty(limit: Duration) {
    let end = Instant::now() + limit;
    while count_attached(|inside| inside) > 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Parks a thread whose call was ended by the end of the process: it would come back into an interpreter that is being
/// taken down, with an error that nobody can do anything about.
pub(crate) fn park_at_exit() {
    if EXITING.load(Ordering::Acquire) == process::id() && !ENDS_PROCESS.get() {
        loop {
            thread::park();
        }
    }
}

/// Gives back what is held, within `limit` seconds: by every client, and by leases whose client is gone. For `atexit`.
#[pyfunction]
pub(crate) fn release_all(py: Python<'_>, limit: f64) {
    EXITING.store(process::id(), Ordering::SeqCst);
    ENDS_PROCESS.set(true);
    let limit = Duration::try_from_secs_f64(limit).unwrap_or(Duration::from_secs(1));
    py.detach(|| empty(limit));
    let clients = with_clients(|clients| {
        let mut all = mem::take(&mut clients.lingering);
        all.extend(clients.living.iter().filter_map(Weak::upgrade).map(|share| share.client.clone()));
        all
    });
    py.detach(|| onelock::runtime::close_process(clients.iter().map(Client::to_async), limit));
}
