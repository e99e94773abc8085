//! Work that was begun on an event loop's thread.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::{CURRENT, Inner, STEPPING};
use crate::{Error, runtime};

/// The reply to a request that nobody wants any more is looked for in place of the loop, first after this time ...
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// ... and later at least this often.
const LAST_LOOKS: Duration = Duration::from_millis(50);

type Going = Pin<Box<dyn Future<Output = ()> + Send>>;

enum State {
    /// The loop's thread is at it; whether it was woken meanwhile.
    Stepping { woken: bool },
    /// It waits, and nobody runs it.
    Parked(Going),
    /// It goes on before the loop's thread leaves the port.
    Queued(Going),
    /// It is a task of the runtime.
    Spawned(AbortHandle),
    /// It has ended.
    Ended,
}

/// Work that was begun on an event loop's thread, from [`Port::start`](crate::port::Port::start). It goes on without this handle.
pub struct Task {
    runtime: Handle,
    port: Option<Arc<Inner>>,
    state: Mutex<State>,
    /// A request of it is on its way over a connection of the loop, whoever runs it meanwhile.
    pub(super) asking: AtomicBool,
    /// Nobody wants it any more: it ends when the request under way has come back.
    unwanted: AtomicBool,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

/// Begins `work` on this thread, which need not be that of a loop, up to where it has to wait; it ends on the background
/// runtime. Fails when there is none (`SystemLimit`).
pub fn begin(work: impl Future<Output = ()> + Send + 'static) -> Result<Arc<Task>, Error> {
    let task = Task::new(None, work)?;
    task.step();
    Ok(task)
}

/// Whether this thread is at work that nobody wants any more: what comes of it is to be dropped where it would be handed
/// to whoever waits, and so undone. A binding asks this before it queues a result, and takes back what it has queued after
/// [`Task::abort`].
pub fn is_unwanted() -> bool {
    STEPPING.with_borrow(|task| task.as_ref().is_some_and(|task| task.unwanted.load(Ordering::Acquire)))
}

impl Task {
    pub(super) fn new(
        port: Option<Arc<Inner>>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Arc<Task>, Error> {
        let state = Mutex::new(State::Parked(Box::pin(work)));
        let (runtime, asking, unwanted) = (runtime::handle()?, AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(Task { runtime, port, state, asking, unwanted }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // nothing panics while it is locked
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it as far as it comes on this thread.
    pub(super) fn step(self: &Arc<Self>) {
        let mut state = self.lock();
        let mut going = match mem::replace(&mut *state, State::Stepping { woken: false }) {
            State::Parked(going) | State::Queued(going) => going,
            other => {
                *state = other;
                return;
            }
        };
        drop(state);
        let context = self.runtime.enter();
        let stepping = STEPPING.replace(Some(self.clone()));
        let stepped = going.as_mut().poll(&mut Context::from_waker(&Waker::from(self.clone())));
        STEPPING.set(stepping);
        let mut state = self.lock();
        match (stepped, &*state) {
            (Poll::Ready(()), _) => *state = State::Ended,
            (Poll::Pending, State::Stepping { .. }) if self.is_over() => {
                *state = State::Ended;
                drop(state);
                drop(going);
            }
            (Poll::Pending, State::Stepping { woken: false }) => *state = State::Parked(going),
            (Poll::Pending, State::Stepping { woken: true }) => *state = self.spawn(going),
            // ended by somebody else meanwhile
            (Poll::Pending, _) => {
                drop(state);
                drop(going);
            }
        }
        drop(context);
    }

    /// Whether it is not to go on: nobody wants it, and no request is under way whose reply says what is to be undone.
    fn is_over(&self) -> bool {
        self.unwanted.load(Ordering::Acquire) && !self.asking.load(Ordering::Acquire)
    }

    fn spawn(self: &Arc<Self>, mut going: Going) -> State {
        let task = self.clone();
        let poll = move |context: &mut Context<'_>| {
            let stepping = STEPPING.replace(Some(task.clone()));
            let polled = going.as_mut().poll(context);
            STEPPING.set(stepping);
            if polled.is_pending() {
                // under the lock: `abort` either sees that no request is under way any more, or is seen here
                let _state = task.lock();
                if task.is_over() {
                    return Poll::Ready(());
                }
            }
            polled
        };
        State::Spawned(self.runtime.spawn(poll_fn(poll)).abort_handle())
    }

    /// Ends it wherever it is: what it has done is undone as whenever its future is dropped. If a request of it is under way
    /// on a connection of the loop, it ends when that has been answered, for then it is known what there is to undo; the
    /// loop need not come by for that.
    pub fn abort(self: &Arc<Self>) {
        let first = !self.unwanted.swap(true, Ordering::AcqRel);
        let mut state = self.lock();
        if matches!(*state, State::Parked(_) | State::Queued(_) | State::Spawned(_)) && !self.is_over() {
            drop(state);
            if first {
                self.look_for_the_reply();
            }
            return;
        }
        let ended = mem::replace(&mut *state, State::Ended);
        // what is dropped may wake this very task
        drop(state);
        match ended {
            State::Spawned(task) => task.abort(),
            State::Parked(going) | State::Queued(going) => {
                let _context = self.runtime.enter();
                drop(going);
            }
            State::Stepping { .. } | State::Ended => {}
        }
    }

    /// Waits for the reply without the loop, which may be blocked for as long as it likes: what there is to undo must not
    /// stay held, and be renewed, meanwhile.
    fn look_for_the_reply(self: &Arc<Self>) {
        let Some(port) = self.port.clone() else { return };
        let task = self.clone();
        self.runtime.spawn(async move {
            let mut pause = FIRST_LOOK;
            while task.asking.load(Ordering::Acquire) {
                tokio::time::sleep(pause).await;
                port.relieve();
                pause = (pause * 2).min(LAST_LOOKS);
            }
        });
    }

    /// The port of this task, if this thread is at it.
    fn port_here(&self) -> Option<&Inner> {
        let port = self.port.as_ref()?;
        CURRENT
            .with_borrow(|current| current.as_ref().is_some_and(|current| Arc::ptr_eq(current, port)))
            .then_some(port)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut state = self.lock();
        *state = match mem::replace(&mut *state, State::Ended) {
            State::Stepping { .. } => State::Stepping { woken: true },
            State::Parked(going) => match self.port_here() {
                // the loop's own thread, which is about to look
                Some(port) => {
                    port.going_on().push_back(self.clone());
                    State::Queued(going)
                }
                // from here on it has the runtime's waker
                None => self.spawn(going),
            },
            other => other,
        };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;
    use crate::port::{Asking, Port};

    /// A request over a connection of the loop: it is asked for until its reply has come, and then there is more to do.
    #[derive(Default)]
    struct Request {
        waker: Option<Waker>,
        replied: bool,
        polls: u32,
    }

    #[test]
    fn what_a_request_came_to_is_heard_though_its_work_was_woken_by_something_else_before_it_was_aborted() {
        let request = Arc::new(Mutex::new(Request::default()));
        let (heard, replies) = channel();
        let (theirs, mut asking) = (request.clone(), None);
        let work = poll_fn(move |context| {
            let mut request = theirs.lock().unwrap();
            if request.polls == 0 {
                asking = Some(Asking::begin());
            }
            request.polls += 1;
            request.waker = Some(context.waker().clone());
            if request.replied && asking.take().is_some() {
                heard.send(()).unwrap();
            }
            Poll::<()>::Pending
        });
        let port = Port::new();
        let task = port.start(work).unwrap();
        let wake = || request.lock().unwrap().waker.take().unwrap().wake();
        let polled = |times| {
            while request.lock().unwrap().polls < times {
                std::thread::yield_now();
            }
        };
        // not by the loop: it goes on as a task of the runtime
        wake();
        polled(2);
        task.abort();
        assert_eq!(
            replies.recv_timeout(Duration::from_millis(100)),
            Err(RecvTimeoutError::Timeout),
            "it has not ended"
        );
        request.lock().unwrap().replied = true;
        wake();
        assert_eq!(replies.recv_timeout(Duration::from_secs(20)), Ok(()));
        // and that is all that it does
        assert_eq!(replies.recv_timeout(Duration::from_secs(20)), Err(RecvTimeoutError::Disconnected));
    }
}
