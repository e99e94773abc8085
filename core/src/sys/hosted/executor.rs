//! Tasks, run one after the other when the host gives this code a turn. There is one thread, so no task waits for another
//! to leave a lock.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::oneshot;

use super::host;
use crate::sys::lock;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Runnable {
    /// None while it is polled, and when it has ended.
    work: Mutex<Option<Work>>,
    queued: AtomicBool,
    ended: AtomicBool,
}

static READY: Mutex<VecDeque<Arc<Runnable>>> = Mutex::new(VecDeque::new());
/// Tasks are being run: whatever becomes ready meanwhile is run too.
static RUNNING: AtomicBool = AtomicBool::new(false);
/// The host was asked for a turn.
static ASKED: AtomicBool = AtomicBool::new(false);

impl Wake for Runnable {
    fn wake(self: Arc<Self>) {
        if self.ended.load(Ordering::Acquire) || self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        lock(&READY).push_back(self);
        if !RUNNING.load(Ordering::Acquire) && !ASKED.swap(true, Ordering::AcqRel) {
            host().ask_for_turn();
        }
    }
}

impl Runnable {
    fn poll(self: Arc<Self>) {
        self.queued.store(false, Ordering::Release);
        let Some(mut work) = lock(&self.work).take() else { return };
        let waker = Waker::from(self.clone());
        let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
        // aborted meanwhile: dropped
        if polled.is_pending() && !self.ended.load(Ordering::Acquire) {
            *lock(&self.work) = Some(work);
        } else {
            self.ended.store(true, Ordering::Release);
        }
    }

    fn abort(&self) {
        self.ended.store(true, Ordering::Release);
        // dropped outside the lock: it may wake others
        let work = lock(&self.work).take();
        drop(work);
    }
}

/// Runs tasks until none is ready.
pub(crate) fn run() {
    if RUNNING.swap(true, Ordering::AcqRel) {
        return;
    }
    ASKED.store(false, Ordering::Release);
    loop {
        let next = lock(&READY).pop_front();
        let Some(task) = next else { break };
        task.poll();
    }
    RUNNING.store(false, Ordering::Release);
}

/// Starts tasks.
#[derive(Clone, Debug)]
pub(crate) struct Handle;

impl Handle {
    /// There is always one.
    pub(crate) fn try_current() -> Result<Handle, std::convert::Infallible> {
        Ok(Handle)
    }

    /// As [`spawn`].
    #[allow(clippy::unused_self)] // as tokio's
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn(future)
    }
}

/// Whether tasks go on while one of them computes: a host has one thread.
pub(crate) fn has_several_threads(_: &Handle) -> bool {
    false
}

/// Starts a task, which goes on without the handle.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (sender, result) = oneshot::channel();
    let work: Work = Box::pin(async move {
        let _ = sender.send(future.await);
    });
    let (queued, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let task = Arc::new(Runnable { work: Mutex::new(Some(work)), queued, ended });
    task.clone().wake();
    JoinHandle { task, result }
}

/// The result of a task.
pub(crate) struct JoinHandle<T> {
    task: Arc<Runnable>,
    result: oneshot::Receiver<T>,
}

impl<T> JoinHandle<T> {
    /// Ends the task when it is asked to.
    pub(crate) fn abort_handle(&self) -> AbortHandle {
        AbortHandle(self.task.clone())
    }
}

impl<T> Future for JoinHandle<T> {
    /// An error when the task was aborted.
    type Output = Result<T, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(context)
    }
}

/// Ends a task.
pub(crate) struct AbortHandle(Arc<Runnable>);

impl std::fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AbortHandle").field("finished", &self.is_finished()).finish()
    }
}

impl AbortHandle {
    /// Drops what the task still has to do.
    pub(crate) fn abort(&self) {
        self.0.abort();
    }

    /// Whether it has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }
}
