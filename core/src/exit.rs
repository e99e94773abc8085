//! The end of the program: what clients on the library's own runtime still have to give back, they give back then, within
//! a second. For programs in Rust; bindings do so by the means of their language.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use crate::driver::engine::Engine;
use crate::driver::process::Stamp;

/// How long the end of the process waits.
const BOUND: Duration = Duration::from_secs(1);

/// Somebody else looks after the end.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);
static ENGINES: Mutex<Vec<(Stamp, Weak<Engine>)>> = Mutex::new(Vec::new());

/// The caller looks after the end of the program itself.
pub(crate) fn leave_to_caller() {
    ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Remembers an engine until it has ended, if it runs on the library's own runtime.
pub(crate) fn watch(engine: &Arc<Engine>, is_ours: bool) {
    if !is_ours || ELSEWHERE.load(Ordering::Relaxed) {
        return;
    }
    // nobody holds it for long, except for ever, in a child that was forked meanwhile
    let Ok(mut engines) = ENGINES.try_lock() else { return };
    engines.retain(|(stamp, engine)| stamp.is_here() && engine.strong_count() > 0);
    engines.push((engine.stamp, Arc::downgrade(engine)));
    drop(engines);
    if !ASKED.swap(true, Ordering::Relaxed) {
        ask();
    }
}

#[cfg(unix)]
fn ask() {
    // SAFETY: the function has the right type and does not unwind. Code that is unmapped before the end of the process
    // takes its handlers along.
    unsafe { libc::atexit(at_exit) };
}

#[cfg(not(unix))]
fn ask() {}

#[cfg(unix)]
extern "C" fn at_exit() {
    let _ = std::panic::catch_unwind(|| {
        if ELSEWHERE.load(Ordering::Relaxed) {
            return;
        }
        let Ok(engines) = ENGINES.try_lock() else { return };
        // a forked child gives back nothing of its parent's, and does not touch it
        let here = engines.iter().filter(|(stamp, _)| stamp.is_here());
        let busy: Vec<Arc<Engine>> = here.filter_map(|(_, engine)| engine.upgrade()).collect();
        drop(engines);
        let busy: Vec<_> = busy.into_iter().filter(|engine| engine.stats().is_busy()).collect();
        if busy.is_empty() {
            return;
        }
        // the thread that ends the process may have lost its thread-local values already: another one does the work
        let (sender, done) = sync_channel(1);
        let work = move || {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| close_all(&busy)));
            let _ = sender.send(());
        };
        if thread::Builder::new().name("onelock-exit".to_owned()).spawn(work).is_ok() {
            let _ = done.recv_timeout(BOUND);
        }
    });
}

#[cfg(unix)]
fn close_all(engines: &[Arc<Engine>]) {
    let (sender, done) = sync_channel::<()>(1);
    for engine in engines {
        let (worker, sender) = (engine.clone(), sender.clone());
        engine.runtime.spawn(async move {
            crate::driver::closing::close(&worker, crate::driver::closing::Telling::NoCallbacks).await;
            drop(sender);
        });
    }
    drop(sender);
    // until the last sender is gone
    let _ = done.recv_timeout(BOUND);
}
