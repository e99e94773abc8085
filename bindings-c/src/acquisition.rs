//! An acquire in the background: start, wait for readiness, finish or cancel.

use std::ffi::{c_int, c_void};
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use onelock::ErrorKind;
use tokio::task::AbortHandle;

use crate::boundary::{expose, find, free, live, output, status, value};
use crate::error::{Failure, onelock_error};
use crate::lease::{LeaseObject, LeaseOrigin, onelock_lease};
use crate::listeners::Callback;
use crate::object::exposed;
use crate::signal::Signal;
use crate::status::{ONELOCK_OK, ONELOCK_PENDING, onelock_status};

/// An acquire in the background.
pub struct onelock_acquisition {
    _private: [u8; 0],
}

/// Called once when an acquisition can be finished, on a thread for callbacks.
pub type onelock_ready_fn = Option<unsafe extern "C" fn(acquisition: *mut onelock_acquisition, user_data: *mut c_void)>;

enum Phase {
    Running(Option<AbortHandle>),
    Ended(Result<onelock::Lease, onelock::Error>),
    Cancelled,
    Finished,
}

struct State {
    phase: Phase,
    signal: Option<Signal>,
    on_ready: Option<Callback<onelock_ready_fn>>,
    running: Option<ThreadId>,
    handle: usize,
}

struct Shared {
    pid: u32,
    origin: LeaseOrigin,
    state: Mutex<State>,
    idle: Condvar,
}

/// The object of the handle; a forked child must not use it.
pub(crate) struct Acquisition {
    shared: mem::ManuallyDrop<Arc<Shared>>,
    name: Box<[u8]>,
}

exposed!(Acquisition, Acquisition, onelock_acquisition, "acquisition");

impl Drop for Acquisition {
    fn drop(&mut self) {
        if self.shared.pid == std::process::id() {
            // SAFETY: dropped nowhere else, and not used after this. A forked child leaks it: the task belongs to the
            // parent's runtime.
            unsafe { mem::ManuallyDrop::drop(&mut self.shared) };
        }
    }
}

/// What the task of an acquisition does.
pub(crate) type Acquiring = Pin<Box<dyn Future<Output = Result<onelock::Lease, onelock::Error>> + Send>>;

/// The same for a future of any type.
pub(crate) fn boxed(
    acquiring: impl Future<Output = Result<onelock::Lease, onelock::Error>> + Send + 'static,
) -> Acquiring {
    Box::pin(acquiring)
}

/// Starts to acquire on the background runtime.
pub(crate) fn start(
    acquiring: Acquiring,
    name: &[u8],
    origin: LeaseOrigin,
) -> Result<*mut onelock_acquisition, Failure> {
    let runtime = onelock::runtime::handle()?;
    let state = State { phase: Phase::Running(None), signal: None, on_ready: None, running: None, handle: 0 };
    let shared = Arc::new(Shared { pid: std::process::id(), origin, state: Mutex::new(state), idle: Condvar::new() });
    let acquisition = Acquisition { shared: mem::ManuallyDrop::new(shared.clone()), name: name.into() };
    let handle = expose(acquisition, "acquire")?;
    let mut state = shared.lock();
    state.handle = handle as usize;
    let worker = shared.clone();
    let task = runtime.spawn(async move {
        let ended = acquiring.await;
        worker.end(Phase::Ended(ended));
    });
    state.phase = Phase::Running(Some(task.abort_handle()));
    drop(state);
    Ok(handle)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // nothing panics while it is locked
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_here(&self, tried: &str) -> Result<(), Failure> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        Err(Failure::new(ErrorKind::Forked, tried, "this acquire belongs to the parent process"))
    }

    /// Ends it. Only the first end counts.
    fn end(self: &Arc<Self>, end: Phase) {
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Running(_)) {
            drop(state);
            // a late lease is released, outside the mutex
            drop(end);
            return;
        }
        let before = mem::replace(&mut state.phase, end);
        if let (Phase::Running(Some(task)), Phase::Cancelled) = (before, &state.phase) {
            task.abort();
        }
        if let Some(signal) = &state.signal {
            signal.raise();
        }
        let call = state.on_ready.is_some();
        drop(state);
        if call {
            self.call_later();
        }
    }

    fn call_later(self: &Arc<Self>) {
        let shared = self.clone();
        let Some(client) = self.origin.clients.first() else { return };
        if let Err(error) = client.client.run_callback(move || shared.call()) {
            tracing::error!(%error, "the callback of an acquisition was not run");
        }
    }

    fn call(&self) {
        let (callback, handle) = {
            let mut state = self.lock();
            let Some(callback) = state.on_ready.take() else { return };
            state.running = Some(thread::current().id());
            (callback, state.handle as *mut onelock_acquisition)
        };
        if let Some(function) = callback.function {
            // SAFETY: the program set this function for this call, and has not removed it.
            unsafe { function(handle, callback.user_data) };
        }
        self.lock().running = None;
        self.idle.notify_all();
    }

    /// Removes the callback, after it has ended (unless it runs on this thread).
    fn without_callback(&self) -> MutexGuard<'_, State> {
        let me = thread::current().id();
        let mut state = self.lock();
        while state.running.is_some_and(|running| running != me) {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.on_ready = None;
        state
    }
}

/// A file descriptor that becomes readable when the acquisition can be finished, for `poll` and similar functions. It
/// is always the same one.
///
/// It belongs to the acquisition: do not read, write or close it, and stop watching it before you free the acquisition.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_acquisition_fd(
    acquisition: *const onelock_acquisition,
    fd: *mut c_int,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "acquisition_fd";
    status(error, TRIED, || {
        let object = live::<Acquisition>(acquisition, TRIED)?;
        let fd = output(fd, "fd", TRIED)?;
        object.shared.check_here(TRIED)?;
        let mut state = object.shared.lock();
        if state.signal.is_none() {
            let signal = Signal::new(TRIED)?;
            if !matches!(state.phase, Phase::Running(_)) {
                signal.raise();
            }
            state.signal = Some(signal);
        }
        let found = state.signal.as_ref().map_or(-1, Signal::fd);
        drop(state);
        fd.put(found)
    })
}

/// Sets the callback for when the acquisition can be finished; `NULL` removes it. It is called once (at once if it is
/// ready already), on a thread for callbacks. It may finish and free the acquisition.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_acquisition_on_ready(
    acquisition: *const onelock_acquisition,
    callback: onelock_ready_fn,
    user_data: *mut c_void,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "on_ready";
    status(error, TRIED, || {
        let object = live::<Acquisition>(acquisition, TRIED)?;
        object.shared.check_here(TRIED)?;
        let mut state = object.shared.without_callback();
        state.on_ready = Callback::new(callback, user_data);
        let call = state.on_ready.is_some() && !matches!(state.phase, Phase::Running(_));
        drop(state);
        if call {
            object.shared.call_later();
        }
        Ok(ONELOCK_OK)
    })
}

/// Whether it can be finished. False for a dead handle, and in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_acquisition_is_ready(acquisition: *const onelock_acquisition) -> bool {
    value(false, || {
        let object = find::<Acquisition>(acquisition)?;
        object.shared.check_here("").ok()?;
        Some(!matches!(object.shared.lock().phase, Phase::Running(_)))
    })
}

/// Takes the result: the lease, or the error that `onelock_lock_acquire` would have returned. Never waits:
/// `ONELOCK_PENDING` (without an error object) until it has ended. The result can be taken once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_acquisition_finish(
    acquisition: *const onelock_acquisition,
    lease: *mut *mut onelock_lease,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "acquire";
    status(error, TRIED, || {
        let object = live::<Acquisition>(acquisition, TRIED)?;
        let lease = output(lease, "lease", TRIED)?;
        object.shared.check_here(TRIED)?;
        let mut state = object.shared.lock();
        if let Phase::Running(_) = state.phase {
            return Ok(ONELOCK_PENDING);
        }
        let phase = mem::replace(&mut state.phase, Phase::Finished);
        drop(state);
        let granted = match phase {
            Phase::Ended(ended) => ended?,
            Phase::Cancelled => {
                return Err(Failure::new(ErrorKind::Cancelled, TRIED, "the acquisition was cancelled").on(&object.name));
            }
            _ => {
                let detail = "the result of this acquisition was taken before";
                return Err(Failure::new(ErrorKind::InvalidArgument, TRIED, detail));
            }
        };
        let granted = onelock::blocking::Lease::from(granted);
        lease.put(LeaseObject::expose(granted, object.shared.origin.clone(), TRIED)?)
    })
}

/// Cancels it: from now on it can be finished, with `ONELOCK_ERR_CANCELLED`, and nothing is left held. If it had ended
/// before, it keeps its result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_acquisition_cancel(
    acquisition: *const onelock_acquisition,
    error: *mut *mut onelock_error,
) -> onelock_status {
    status(error, "cancel", || {
        let object = live::<Acquisition>(acquisition, "cancel")?;
        object.shared.check_here("cancel")?;
        object.shared.end(Phase::Cancelled);
        Ok(ONELOCK_OK)
    })
}

/// Frees the acquisition. If it has not ended it is cancelled; a lease that was granted and not taken is released in
/// the background. Waits for a running callback, as `onelock_lease_free`. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_acquisition_free(acquisition: *mut onelock_acquisition) {
    free::<Acquisition>(acquisition, |object| {
        if object.shared.check_here("free").is_err() {
            return;
        }
        drop(object.shared.without_callback());
        object.shared.end(Phase::Cancelled);
        let mut state = object.shared.lock();
        state.signal = None;
        let rest = mem::replace(&mut state.phase, Phase::Finished);
        drop(state);
        drop(rest);
    });
}
