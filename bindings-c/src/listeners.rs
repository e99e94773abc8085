//! The listeners of one lease: callbacks and a file descriptor. No callback runs after the lease was freed or the
//! callback was replaced.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use onelock::{ErrorKind, LossReason};

use crate::enums::loss_number;
use crate::error::Failure;
use crate::lease::onelock_lease;
use crate::signal::Signal;

/// Called once when a lease is lost, with an `ONELOCK_LOSS_` reason, on a thread for callbacks.
pub type onelock_lost_fn = Option<unsafe extern "C" fn(lease: *mut onelock_lease, reason: u32, user_data: *mut c_void)>;

/// Called when a renewal was missed while the lease is still valid, on a thread for callbacks.
pub type onelock_jeopardy_fn = Option<unsafe extern "C" fn(lease: *mut onelock_lease, user_data: *mut c_void)>;

/// A function of the program and its user data.
#[derive(Clone, Copy)]
pub(crate) struct Callback<F> {
    pub(crate) function: F,
    pub(crate) user_data: *mut c_void,
}

// SAFETY: the pointer is only passed back to the program, which promises that its callbacks may run on any thread.
unsafe impl<F: Send> Send for Callback<F> {}
// SAFETY: as above.
unsafe impl<F: Sync> Sync for Callback<F> {}

impl<F> Callback<Option<F>> {
    pub(crate) fn new(function: Option<F>, user_data: *mut c_void) -> Option<Callback<Option<F>>> {
        function.is_some().then_some(Callback { function, user_data })
    }
}

#[derive(Default)]
struct State {
    /// The loss callback, with its generation: events of an older generation do not call it.
    lost: Option<(u64, Callback<onelock_lost_fn>)>,
    jeopardy: Option<Callback<onelock_jeopardy_fn>>,
    generation: u64,
    reports_jeopardy: bool,
    /// The thread that runs a callback.
    running: Option<ThreadId>,
    signal: Option<Signal>,
    closed: bool,
}

pub(crate) struct Listeners {
    handle: usize,
    pid: u32,
    state: Mutex<State>,
    idle: Condvar,
}

impl Listeners {
    /// For the lease of this handle, which was granted to the process `pid`.
    pub(crate) fn new(handle: usize, pid: u32) -> Arc<Listeners> {
        Arc::new(Listeners { handle, pid, state: Mutex::default(), idle: Condvar::new() })
    }

    fn handle(&self) -> *mut onelock_lease {
        self.handle as *mut onelock_lease
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // nothing panics while it is locked
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it when no callback runs, except on this thread.
    fn lock_idle(&self) -> MutexGuard<'_, State> {
        let me = thread::current().id();
        let mut state = self.lock();
        while state.running.is_some_and(|running| running != me) {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// In a forked child the mutex may be locked for ever by a thread of the parent.
    fn check_here(&self, tried: &str) -> Result<(), Failure> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        Err(Failure::new(ErrorKind::Forked, tried, "this lease belongs to the parent process"))
    }

    fn run(&self, pick: impl FnOnce(&mut State) -> Option<Box<dyn FnOnce(*mut onelock_lease)>>) {
        let job = {
            let mut state = self.lock();
            let Some(job) = pick(&mut state) else { return };
            state.running = Some(thread::current().id());
            job
        };
        job(self.handle());
        self.lock().running = None;
        self.idle.notify_all();
    }

    fn lost(&self, generation: u64, reason: LossReason) {
        self.run(|state| {
            let (_, callback) = state.lost.take_if(|(set_in, _)| *set_in == generation)?;
            let function = callback.function?;
            let callback = callback.user_data;
            // SAFETY: the program set this function for this call, and has not removed it.
            Some(Box::new(move |lease| unsafe { function(lease, loss_number(Some(reason)), callback) }))
        });
    }

    fn jeopardy(&self) {
        self.run(|state| {
            let Callback { function, user_data } = state.jeopardy?;
            let function = function?;
            // SAFETY: as in `lost`.
            Some(Box::new(move |lease| unsafe { function(lease, user_data) }))
        });
    }

    /// Sets or removes the loss callback.
    pub(crate) fn on_lost(
        self: &Arc<Self>,
        lease: &onelock::blocking::Lease,
        callback: Option<Callback<onelock_lost_fn>>,
        tried: &str,
    ) -> Result<(), Failure> {
        self.check_here(tried)?;
        let generation = {
            let mut state = self.lock_idle();
            if state.closed {
                return Ok(());
            }
            state.generation += 1;
            state.lost = callback.map(|callback| (state.generation, callback));
            state.generation
        };
        if callback.is_some() {
            let listeners = self.clone();
            lease.on_lost(move |reason| listeners.lost(generation, reason));
        }
        Ok(())
    }

    /// Sets or removes the jeopardy callback.
    pub(crate) fn on_jeopardy(
        self: &Arc<Self>,
        lease: &onelock::blocking::Lease,
        callback: Option<Callback<onelock_jeopardy_fn>>,
        tried: &str,
    ) -> Result<(), Failure> {
        self.check_here(tried)?;
        let first = {
            let mut state = self.lock_idle();
            if state.closed {
                return Ok(());
            }
            state.jeopardy = callback;
            callback.is_some() && !std::mem::replace(&mut state.reports_jeopardy, true)
        };
        if first {
            let listeners = self.clone();
            lease.on_jeopardy(move || listeners.jeopardy());
        }
        Ok(())
    }

    /// The file descriptor that becomes readable at loss.
    pub(crate) fn lost_fd(self: &Arc<Self>, lease: &onelock::blocking::Lease, tried: &str) -> Result<RawFd, Failure> {
        self.check_here(tried)?;
        let fd = {
            let mut state = self.lock();
            if let Some(signal) = &state.signal {
                return Ok(signal.fd());
            }
            state.signal.insert(Signal::new(tried)?).fd()
        };
        let listeners = self.clone();
        lease.on_lost(move |_| {
            if let Some(signal) = &listeners.lock().signal {
                signal.raise();
            }
        });
        Ok(fd)
    }

    /// The lease was freed: no callback is called after this has returned (or, called from a callback, after that has
    /// returned).
    pub(crate) fn close(&self) {
        if self.check_here("free").is_err() {
            if let Ok(mut state) = self.state.try_lock() {
                state.signal = None;
            }
            return;
        }
        let mut state = self.lock_idle();
        state.closed = true;
        state.lost = None;
        state.jeopardy = None;
        state.signal = None;
    }
}
