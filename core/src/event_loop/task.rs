//! A task that was started on an event loop's thread.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::{CURRENT_LOOP, CURRENT_TASK, LoopState};
use crate::Error;
use crate::sys::runtime;

/// When a task is cancelled, the reply to its request is polled for in place of the loop, first after this time ...
const FIRST_POLL: Duration = Duration::from_millis(1);
/// ... and later at least this often.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(50);

type TaskWork = Pin<Box<dyn Future<Output = ()> + Send>>;

enum TaskState {
    /// The loop's thread polls it; whether it was woken meanwhile.
    Polling { woken: bool },
    /// It waits to be woken.
    Waiting(TaskWork),
    /// It is polled before the loop's thread returns to the loop.
    Queued(TaskWork),
    /// It runs on the background runtime.
    Spawned(AbortHandle),
    /// It has ended.
    Done,
}

/// A task that was started on an event loop's thread, by [`EventLoop::start`](crate::event_loop::EventLoop::start). It
/// continues without this handle.
pub struct Task {
    runtime: Handle,
    event_loop: Option<Arc<LoopState>>,
    state: Mutex<TaskState>,
    /// It has a request in flight on a connection of the loop, wherever it runs now.
    pub(crate) request_in_flight: AtomicBool,
    /// It was cancelled: it ends when the reply to its request has arrived.
    cancelled: AtomicBool,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

/// Starts `work` on this thread, which need not be that of a loop, and runs it until it has to wait; it continues on
/// the background runtime. Fails when there is none (`SystemLimit`).
pub fn begin(work: impl Future<Output = ()> + Send + 'static) -> Result<Arc<Task>, Error> {
    let task = Task::new(None, work)?;
    task.poll();
    Ok(task)
}

/// Whether the task on this thread was cancelled: its result is to be dropped where it would be delivered, and so
/// undone. A binding asks this before it queues a result, and removes what it has queued after [`Task::abort`].
pub fn is_cancelled() -> bool {
    CURRENT_TASK.with_borrow(|task| task.as_ref().is_some_and(|task| task.cancelled.load(Ordering::Acquire)))
}

impl Task {
    pub(crate) fn new(
        event_loop: Option<Arc<LoopState>>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Arc<Task>, Error> {
        let state = Mutex::new(TaskState::Waiting(Box::pin(work)));
        let (runtime, request_in_flight, cancelled) =
            (runtime::handle()?, AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(Task { runtime, event_loop, state, request_in_flight, cancelled }))
    }

    fn lock(&self) -> MutexGuard<'_, TaskState> {
        // no code panics while it is locked
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls it once on this thread.
    pub(crate) fn poll(self: &Arc<Self>) {
        let mut state = self.lock();
        let mut work = match mem::replace(&mut *state, TaskState::Polling { woken: false }) {
            TaskState::Waiting(work) | TaskState::Queued(work) => work,
            other => {
                *state = other;
                return;
            }
        };
        drop(state);
        let context = self.runtime.enter();
        let current = CURRENT_TASK.replace(Some(self.clone()));
        let polled = work.as_mut().poll(&mut Context::from_waker(&Waker::from(self.clone())));
        CURRENT_TASK.set(current);
        let mut state = self.lock();
        match (polled, &*state) {
            (Poll::Ready(()), _) => *state = TaskState::Done,
            (Poll::Pending, TaskState::Polling { .. }) if self.should_stop() => {
                *state = TaskState::Done;
                drop(state);
                drop(work);
            }
            (Poll::Pending, TaskState::Polling { woken: false }) => *state = TaskState::Waiting(work),
            (Poll::Pending, TaskState::Polling { woken: true }) => *state = self.spawn(work),
            // aborted meanwhile
            (Poll::Pending, _) => {
                drop(state);
                drop(work);
            }
        }
        drop(context);
    }

    /// Whether it must not continue: it was cancelled, and no request is in flight whose reply tells what to undo.
    fn should_stop(&self) -> bool {
        self.cancelled.load(Ordering::Acquire) && !self.request_in_flight.load(Ordering::Acquire)
    }

    fn spawn(self: &Arc<Self>, mut work: TaskWork) -> TaskState {
        let task = self.clone();
        let poll = move |context: &mut Context<'_>| {
            let current = CURRENT_TASK.replace(Some(task.clone()));
            let polled = work.as_mut().poll(context);
            CURRENT_TASK.set(current);
            if polled.is_pending() {
                // under the lock: `abort` either sees that no request is in flight any more, or is seen here
                let _state = task.lock();
                if task.should_stop() {
                    return Poll::Ready(());
                }
            }
            polled
        };
        TaskState::Spawned(self.runtime.spawn(poll_fn(poll)).abort_handle())
    }

    /// Cancels it: what it has done is undone as whenever a future is dropped. If it has a request in flight on a
    /// connection of the loop, it ends after the reply, which tells what to undo; that does not depend on the loop.
    pub fn abort(self: &Arc<Self>) {
        let first = !self.cancelled.swap(true, Ordering::AcqRel);
        let mut state = self.lock();
        if matches!(*state, TaskState::Waiting(_) | TaskState::Queued(_) | TaskState::Spawned(_)) && !self.should_stop()
        {
            drop(state);
            if first {
                self.poll_for_reply();
            }
            return;
        }
        let ended = mem::replace(&mut *state, TaskState::Done);
        // dropping the future may wake this very task
        drop(state);
        match ended {
            TaskState::Spawned(task) => task.abort(),
            TaskState::Waiting(work) | TaskState::Queued(work) => {
                let _context = self.runtime.enter();
                drop(work);
            }
            TaskState::Polling { .. } | TaskState::Done => {}
        }
    }

    /// Polls for the reply without the loop, which may be blocked: what has to be undone must not stay held, and be
    /// renewed, meanwhile.
    fn poll_for_reply(self: &Arc<Self>) {
        let Some(event_loop) = self.event_loop.clone() else { return };
        let task = self.clone();
        self.runtime.spawn(async move {
            let mut pause = FIRST_POLL;
            while task.request_in_flight.load(Ordering::Acquire) {
                tokio::time::sleep(pause).await;
                // what else is in flight is the loop's to read
                event_loop.read_available(&|| task.request_in_flight.load(Ordering::Acquire));
                pause = (pause * 2).min(POLL_INTERVAL_MAX);
            }
        });
    }

    /// The event loop of this task, if it runs on this thread.
    fn current_loop(&self) -> Option<&LoopState> {
        let event_loop = self.event_loop.as_ref()?;
        CURRENT_LOOP
            .with_borrow(|current| current.as_ref().is_some_and(|current| Arc::ptr_eq(current, event_loop)))
            .then_some(event_loop)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut state = self.lock();
        *state = match mem::replace(&mut *state, TaskState::Done) {
            TaskState::Polling { .. } => TaskState::Polling { woken: true },
            TaskState::Waiting(work) => match self.current_loop() {
                // on the loop's own thread, which polls its run queue next
                Some(event_loop) => {
                    event_loop.run_queue().push_back(self.clone());
                    TaskState::Queued(work)
                }
                // from here on the runtime wakes it
                None => self.spawn(work),
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
    use crate::event_loop::{EventLoop, InFlightMark};

    /// A request over a connection of the loop: it counts as in flight until its reply has arrived, and then there is
    /// more to do.
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
        let (theirs, mut request_in_flight) = (request.clone(), None);
        let work = poll_fn(move |context| {
            let mut request = theirs.lock().unwrap();
            if request.polls == 0 {
                request_in_flight = Some(InFlightMark::begin());
            }
            request.polls += 1;
            request.waker = Some(context.waker().clone());
            if request.replied && request_in_flight.take().is_some() {
                heard.send(()).unwrap();
            }
            Poll::<()>::Pending
        });
        let event_loop = EventLoop::new();
        let task = event_loop.start(work).unwrap();
        let wake = || request.lock().unwrap().waker.take().unwrap().wake();
        let polled = |times| {
            while request.lock().unwrap().polls < times {
                std::thread::yield_now();
            }
        };
        // not on the loop: it continues as a task of the runtime
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
        // and it does nothing else
        assert_eq!(replies.recv_timeout(Duration::from_secs(20)), Err(RecvTimeoutError::Disconnected));
    }
}
