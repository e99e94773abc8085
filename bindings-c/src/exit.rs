//! The end of the process: what is held is given back, within one second.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use onelock::blocking::Client;

use crate::client::ClientShare;
use crate::handles::HANDLES;
use crate::object::Object;

/// How long the end of the process waits.
const BOUND: Duration = Duration::from_secs(1);

/// Clients without a handle that still clean up.
static LINGERING: Mutex<Vec<Client>> = Mutex::new(Vec::new());

/// Asks to be told of the end of the process, once.
pub(crate) fn watch() {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if !WATCHING.swap(true, Ordering::Relaxed) {
        onelock::runtime::leave_exit_to_caller();
        // SAFETY: the function has the right type, catches panics, and the library is never unmapped (-z nodelete).
        unsafe { libc::atexit(at_exit) };
    }
}

/// The last share of a client goes: what it still cleans up is waited for at the end of the process.
pub(crate) fn let_linger(client: &Client) {
    // nobody holds it for long, except for ever, in a child that was forked meanwhile
    let Ok(mut lingering) = LINGERING.try_lock() else { return };
    lingering.retain(|client| client.stats().is_busy());
    if client.stats().is_busy() {
        lingering.push(client.clone());
    }
}

extern "C" fn at_exit() {
    let _ = catch_unwind(|| {
        // The thread that ends the process may have lost its thread-local values already: another one does the work.
        let done = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = done.clone();
        let work = move || {
            let _ = catch_unwind(close_all);
            *theirs.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            theirs.1.notify_all();
        };
        if std::thread::Builder::new().name("onelock-exit".to_owned()).spawn(work).is_err() {
            // no thread to be had: this one, then
            return close_all();
        }
        let is_done = done.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = done.1.wait_timeout_while(is_done, BOUND, |is_done| !*is_done);
    });
}

/// Every client that something is left of.
fn clients() -> Vec<Client> {
    let mut shares: Vec<Arc<ClientShare>> = Vec::new();
    for object in HANDLES.all() {
        let share = match &*object {
            Object::Client(client) => &client.0,
            Object::Lease(lease) => &lease.client,
            Object::Lock(lock) => lock.client(),
            Object::Acquisition(acquisition) => acquisition.client(),
            _ => continue,
        };
        if !shares.iter().any(|known| Arc::ptr_eq(known, share)) {
            shares.push(share.clone());
        }
    }
    let mut clients: Vec<Client> = shares.iter().map(|share| share.client.clone()).collect();
    match LINGERING.try_lock() {
        Ok(lingering) => clients.extend(lingering.iter().cloned()),
        Err(TryLockError::Poisoned(poisoned)) => clients.extend(poisoned.into_inner().iter().cloned()),
        Err(TryLockError::WouldBlock) => {}
    }
    clients
}

fn close_all() {
    onelock::runtime::close_all(clients().iter().map(Client::to_async), BOUND);
}
