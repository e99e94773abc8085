//! The registry of engines that have to be closed when the program, or a part of it, ends: what they still hold is
//! released then, within a second.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use std::{mem, thread};

use arc_swap::ArcSwapOption;

use crate::driver::engine::Engine;
use crate::sys::fork::ProcessStamp;

/// How long the end of the process waits.
const BOUND: Duration = Duration::from_secs(1);

/// Set when the caller handles the end of the program itself.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// The engines that end together, each until it has ended. An engine that holds or cleans up something is kept by its
/// leases and by its clean-up, so no client has to be kept here.
pub(crate) struct EngineSet {
    stamp: ProcessStamp,
    engines: Mutex<Vec<Weak<Engine>>>,
}

impl EngineSet {
    pub(crate) fn new() -> EngineSet {
        EngineSet { stamp: ProcessStamp::here(), engines: Mutex::default() }
    }

    /// Remembers an engine until it has ended. Does nothing in a forked child: another thread of the parent may have had
    /// the list locked.
    pub(crate) fn add(&self, engine: &Arc<Engine>) {
        if !self.stamp.is_here() {
            return;
        }
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines.retain(|engine| engine.strong_count() > 0);
        engines.push(Arc::downgrade(engine));
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The engines that hold, wait for or clean up something.
    pub(crate) fn busy(&self) -> Vec<Arc<Engine>> {
        if !self.stamp.is_here() {
            return Vec::new();
        }
        let engines: Vec<_> = {
            let engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
            engines.iter().filter_map(Weak::upgrade).collect()
        };
        // a request in flight may be the one that keeps a detached hold
        let in_flight = |engine: &Engine| engine.claims_in_progress.load(Ordering::SeqCst) > 0;
        engines.into_iter().filter(|engine| engine.stats().is_busy() || in_flight(engine)).collect()
    }
}

/// The engines of the process on the library's own runtime. A forked child makes its own set.
static KNOWN: ArcSwapOption<EngineSet> = ArcSwapOption::const_empty();

fn known() -> Arc<EngineSet> {
    loop {
        let present = KNOWN.load_full();
        if let Some(known) = &present
            && known.stamp.is_here()
        {
            return known.clone();
        }
        let fresh = Arc::new(EngineSet::new());
        let _ = KNOWN.compare_and_swap(&present, Some(fresh));
        // what was inherited is never dropped here
        mem::forget(present);
    }
}

/// The caller handles the end of the program itself.
pub(crate) fn leave_to_caller() {
    ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Registers the exit handler of the process, once, unless the caller handles the end itself.
pub(crate) fn prepare() {
    if !ELSEWHERE.load(Ordering::Relaxed) && !ASKED.swap(true, Ordering::Relaxed) {
        ask();
    }
}

/// Remembers an engine until it has ended, if it runs on the library's own runtime.
pub(crate) fn watch(engine: &Arc<Engine>, is_ours: bool) {
    if is_ours {
        known().add(engine);
        prepare();
    }
}

/// The engines of this process on the library's own runtime that hold, wait for or clean up something.
pub(crate) fn busy() -> Vec<Arc<Engine>> {
    known().busy()
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
        // a forked child releases nothing of its parent's, and does not touch it
        let busy = busy();
        if busy.is_empty() {
            return;
        }
        // the thread that ends the process may have lost its thread-local values already: another one does the work
        let (sender, done) = sync_channel(1);
        let engines = busy.clone();
        let work = move || {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| close_all(&engines)));
            let _ = sender.send(());
        };
        if thread::Builder::new().name("onelock-exit".to_owned()).spawn(work).is_ok() {
            let _ = done.recv_timeout(BOUND);
        } else {
            // no thread is available
            close_all(&busy);
        }
    });
}

#[cfg(unix)]
fn close_all(engines: &[Arc<Engine>]) {
    let (sender, done) = sync_channel::<()>(1);
    for engine in engines {
        let (worker, sender) = (engine.clone(), sender.clone());
        engine.runtime.spawn(async move {
            crate::driver::close::close(&worker, crate::driver::close::LossCallbacks::Skip).await;
            drop(sender);
        });
    }
    drop(sender);
    // until the last sender is gone
    let _ = done.recv_timeout(BOUND);
}
