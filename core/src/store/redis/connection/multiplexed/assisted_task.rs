//! A background task of which a caller may do a step on its own thread: its request is sent at once, instead of after a
//! switch to another thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::watch;
use tokio::task::AbortHandle;

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A background task of a connection: it ends with this handle, and its end is noticed.
pub(crate) struct AssistedTask {
    state: Arc<AssistedState>,
    task: AbortHandle,
    gone: watch::Receiver<()>,
    /// Whether it was stopped: the task ends when the runtime polls it.
    stopped: AtomicBool,
}

/// What the task and its callers share.
struct AssistedState {
    future: Mutex<Option<TaskFuture>>,
    gate: Arc<GatedWaker>,
}

/// Wakes the task, unless a caller is about to poll the future itself.
#[derive(Default)]
struct GatedWaker {
    waker: OnceLock<Waker>,
    closed: AtomicBool,
    missed: AtomicBool,
}

impl GatedWaker {
    fn wake_task(&self) {
        if let Some(task) = self.waker.get() {
            task.wake_by_ref();
        }
    }

    /// Closes the gate; false when another caller has closed it, or when the task was not polled yet.
    fn close(&self) -> bool {
        self.waker.get().is_some()
            && self.closed.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Opens the gate, and wakes the task if a wake-up was missed.
    fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        if self.missed.swap(false, Ordering::SeqCst) {
            self.wake_task();
        }
    }
}

impl Wake for GatedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.closed.load(Ordering::SeqCst) {
            self.missed.store(true, Ordering::SeqCst);
            // the caller that closed the gate checks `missed` after opening it; if that was before, the task is woken
            // here
            if self.closed.load(Ordering::SeqCst) || !self.missed.swap(false, Ordering::SeqCst) {
                return;
            }
        }
        self.wake_task();
    }
}

impl AssistedState {
    fn poll_once(&self, slot: &mut Option<TaskFuture>) -> Poll<()> {
        let Some(future) = slot else { return Poll::Ready(()) };
        let waker = Waker::from(self.gate.clone());
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            *slot = None;
        }
        polled
    }
}

/// Drops the future with its task, also when the runtime ends.
struct FutureOwner(Arc<AssistedState>);

impl Drop for FutureOwner {
    fn drop(&mut self) {
        let future = self.0.future.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(future);
    }
}

impl AssistedTask {
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> AssistedTask {
        let (alive, gone) = watch::channel(());
        let future = async move {
            // dropped with the future
            let _alive = alive;
            future.await;
        };
        let shared = Arc::new(AssistedState { future: Mutex::new(Some(Box::pin(future))), gate: Arc::default() });
        let owner = FutureOwner(shared.clone());
        let task = tokio::spawn(std::future::poll_fn(move |context| {
            let FutureOwner(shared) = &owner;
            let _ = shared.gate.waker.set(context.waker().clone());
            shared.poll_once(&mut shared.future.lock().unwrap_or_else(PoisonError::into_inner))
        }));
        AssistedTask { state: shared, task: task.abort_handle(), gone, stopped: AtomicBool::new(false) }
    }

    /// Runs `submit`, which gives the task something to do, and polls the future on this thread unless the task does.
    pub(crate) fn poll_inline<T>(&self, submit: impl FnOnce() -> T) -> T {
        let gate = &self.state.gate;
        if !gate.close() {
            return submit();
        }
        let guard = GateGuard(gate);
        let result = submit();
        match self.state.future.try_lock() {
            Ok(mut future) => {
                // this poll sees everything that was signalled until here
                gate.missed.store(false, Ordering::SeqCst);
                if self.state.poll_once(&mut future).is_ready() {
                    // the task must notice the end
                    gate.missed.store(true, Ordering::SeqCst);
                }
            }
            // the task is polling, or it panicked and notices that
            Err(_) => gate.missed.store(true, Ordering::SeqCst),
        }
        drop(guard);
        result
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.task.abort();
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.gone.has_changed().is_err()
    }

    pub(crate) async fn gone(&self) {
        // no value is ever sent: this ends when the sender is dropped
        let _ = self.gone.clone().changed().await;
    }
}

impl Drop for AssistedTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens the gate again, also after a panic.
struct GateGuard<'a>(&'a GatedWaker);

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use tokio::sync::{mpsc, oneshot};
    use tokio::time::timeout;

    use super::*;

    type Errand = oneshot::Sender<ThreadId>;

    /// A task that answers every message with the thread that it ran on.
    fn answering() -> (mpsc::UnboundedSender<Errand>, AssistedTask) {
        let (sender, mut errands) = mpsc::unbounded_channel::<Errand>();
        let task = AssistedTask::spawn(async move {
            while let Some(errand) = errands.recv().await {
                let _ = errand.send(thread::current().id());
            }
        });
        (sender, task)
    }

    async fn ready(task: &AssistedTask) {
        while task.state.gate.waker.get().is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_caller_does_its_own_errand_on_its_own_thread() {
        let (sender, task) = answering();
        ready(&task).await;
        let task = Arc::new(task);
        let ours = thread::spawn(move || {
            let (answer, mut answered) = oneshot::channel();
            task.poll_inline(|| sender.send(answer)).unwrap();
            (answered.try_recv().unwrap(), thread::current().id())
        });
        let (done_on, asked_on) = ours.join().unwrap();
        assert_eq!(done_on, asked_on);
    }

    /// No message is lost, whatever happens concurrently.
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn no_errand_is_left_lying() {
        for _ in 0..20 {
            let (sender, task) = answering();
            let task = Arc::new(task);
            let callers = (0..4).map(|_| {
                let (sender, task) = (sender.clone(), task.clone());
                tokio::spawn(async move {
                    for round in 0..2000 {
                        let (answer, answered) = oneshot::channel();
                        if round % 3 == 0 {
                            sender.send(answer).unwrap();
                        } else {
                            task.poll_inline(|| sender.send(answer)).unwrap();
                        }
                        timeout(Duration::from_secs(20), answered).await.expect("an errand was left lying").unwrap();
                    }
                })
            });
            for caller in callers.collect::<Vec<_>>() {
                caller.await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn the_end_is_noticed_however_it_comes() {
        let (sender, task) = answering();
        ready(&task).await;
        assert!(!task.is_gone());
        // by itself, in a step on the caller's thread
        task.poll_inline(|| drop(sender));
        timeout(Duration::from_secs(20), task.gone()).await.unwrap();
        assert!(task.is_gone());
        task.poll_inline(|| ());

        let (sender, task) = answering();
        ready(&task).await;
        task.stop();
        assert!(task.is_gone());
        timeout(Duration::from_secs(20), sender.closed()).await.unwrap();
    }

    #[test]
    fn it_ends_with_its_runtime() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (sender, task) = runtime.block_on(async { answering() });
        drop(runtime);
        assert!(task.is_gone());
        assert!(sender.is_closed());
        task.poll_inline(|| ());
    }
}
