//! Background work that begins on the caller's thread. It becomes a task of the runtime only when something that it waits
//! for has come: a request is then on its way without a switch to another thread.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

type Going = Pin<Box<dyn Future<Output = ()> + Send>>;

enum State {
    /// The caller's thread is at it; whether it was woken meanwhile.
    Beginning { woken: bool },
    /// It waits, and nobody runs it.
    Parked(Going),
    /// It is a task.
    Spawned(AbortHandle),
    /// It has ended.
    Ended,
}

/// Work under way.
pub(crate) struct Work {
    runtime: Handle,
    state: Mutex<State>,
}

impl Work {
    /// Begins `work` on this thread, up to where it has to wait.
    pub(crate) fn begin(runtime: Handle, work: impl Future<Output = ()> + Send + 'static) -> Arc<Work> {
        let mut going: Going = Box::pin(work);
        let work = Arc::new(Work { runtime, state: Mutex::new(State::Beginning { woken: false }) });
        let begun = {
            let _context = work.runtime.enter();
            going.as_mut().poll(&mut Context::from_waker(&Waker::from(work.clone())))
        };
        let mut state = work.lock();
        *state = match (begun, &*state) {
            (Poll::Ready(()), _) => State::Ended,
            (Poll::Pending, State::Beginning { woken: true }) => work.spawn(going),
            (Poll::Pending, _) => State::Parked(going),
        };
        drop(state);
        work
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // nothing panics while it is locked
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, going: Going) -> State {
        State::Spawned(self.runtime.spawn(going).abort_handle())
    }

    /// Ends it wherever it is: what it has done is undone as whenever its future is dropped.
    pub(crate) fn abort(&self) {
        let state = mem::replace(&mut *self.lock(), State::Ended);
        match state {
            State::Spawned(task) => task.abort(),
            State::Parked(going) => {
                let _context = self.runtime.enter();
                drop(going);
            }
            State::Beginning { .. } | State::Ended => {}
        }
    }
}

impl Wake for Work {
    fn wake(self: Arc<Self>) {
        let mut state = self.lock();
        *state = match mem::replace(&mut *state, State::Ended) {
            State::Beginning { .. } => State::Beginning { woken: true },
            // from here on it has the runtime's waker
            State::Parked(going) => self.spawn(going),
            other => other,
        };
    }
}
