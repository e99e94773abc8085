//! The work of a connection. A task does it, but a caller may take a step of it on its own thread: then its request leaves
//! at once, instead of when another thread has woken up.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::watch;
use tokio::task::AbortHandle;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A background task of a connection: it ends with this handle, and its end is noticed.
pub(crate) struct Background {
    shared: Arc<Shared>,
    task: AbortHandle,
    gone: watch::Receiver<()>,
    /// The task is as good as gone: it ends when the runtime gets to it.
    stopped: AtomicBool,
}

/// What the task and its helpers have in common.
struct Shared {
    work: Mutex<Option<Work>>,
    bell: Arc<Bell>,
}

/// Wakes the task, unless a caller is about to do what it would be woken for.
#[derive(Default)]
struct Bell {
    task: OnceLock<Waker>,
    held: AtomicBool,
    rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    /// Keeps it from ringing; false when somebody else does, or when there is no task to ring for yet.
    fn hold(&self) -> bool {
        self.task.get().is_some() && self.held.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Lets it ring again, and makes up for what came meanwhile.
    fn release(&self) {
        self.held.store(false, Ordering::SeqCst);
        if self.rung.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.held.load(Ordering::SeqCst) {
            self.rung.store(true, Ordering::SeqCst);
            // whoever holds it looks at `rung` after letting go; if that was before, it is for us to ring
            if self.held.load(Ordering::SeqCst) || !self.rung.swap(false, Ordering::SeqCst) {
                return;
            }
        }
        self.ring();
    }
}

impl Shared {
    fn step(&self, work: &mut Option<Work>) -> Poll<()> {
        let Some(future) = work else { return Poll::Ready(()) };
        let waker = Waker::from(self.bell.clone());
        let stepped = future.as_mut().poll(&mut Context::from_waker(&waker));
        if stepped.is_ready() {
            *work = None;
        }
        stepped
    }
}

/// The work ends with its task, however that ends: also with the runtime.
struct Owned(Arc<Shared>);

impl Drop for Owned {
    fn drop(&mut self) {
        let work = self.0.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(work);
    }
}

impl Background {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Background {
        let (alive, gone) = watch::channel(());
        let work = async move {
            // dropped with the work
            let _alive = alive;
            work.await;
        };
        let shared = Arc::new(Shared { work: Mutex::new(Some(Box::pin(work))), bell: Arc::default() });
        let owned = Owned(shared.clone());
        let task = tokio::spawn(std::future::poll_fn(move |context| {
            let Owned(shared) = &owned;
            let _ = shared.bell.task.set(context.waker().clone());
            shared.step(&mut shared.work.lock().unwrap_or_else(PoisonError::into_inner))
        }));
        Background { shared, task: task.abort_handle(), gone, stopped: AtomicBool::new(false) }
    }

    /// Runs `hand_in`, which gives the task something to do, and does that on this thread if the task is not at it.
    pub(crate) fn assisted<T>(&self, hand_in: impl FnOnce() -> T) -> T {
        let bell = &self.shared.bell;
        if !bell.hold() {
            return hand_in();
        }
        let held = Held(bell);
        let result = hand_in();
        match self.shared.work.try_lock() {
            Ok(mut work) => {
                // the step sees everything that was rung for until here
                bell.rung.store(false, Ordering::SeqCst);
                if self.shared.step(&mut work).is_ready() {
                    // the task is to find out
                    bell.rung.store(true, Ordering::SeqCst);
                }
            }
            // the task is at it, or it panicked and will find out
            Err(_) => bell.rung.store(true, Ordering::SeqCst),
        }
        drop(held);
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
        // nothing is ever sent: this ends when the sender does
        let _ = self.gone.clone().changed().await;
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lets the bell ring again, also when something panics.
struct Held<'a>(&'a Bell);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
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

    /// Work that answers every errand with the thread that it ran on.
    fn answering() -> (mpsc::UnboundedSender<Errand>, Background) {
        let (sender, mut errands) = mpsc::unbounded_channel::<Errand>();
        let background = Background::spawn(async move {
            while let Some(errand) = errands.recv().await {
                let _ = errand.send(thread::current().id());
            }
        });
        (sender, background)
    }

    async fn ready(background: &Background) {
        while background.shared.bell.task.get().is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_caller_does_its_own_errand_on_its_own_thread() {
        let (sender, background) = answering();
        ready(&background).await;
        let background = Arc::new(background);
        let ours = thread::spawn(move || {
            let (answer, mut answered) = oneshot::channel();
            background.assisted(|| sender.send(answer)).unwrap();
            (answered.try_recv().unwrap(), thread::current().id())
        });
        let (done_on, asked_on) = ours.join().unwrap();
        assert_eq!(done_on, asked_on);
    }

    /// Whatever comes at the same time, nothing is left lying.
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn no_errand_is_left_lying() {
        for _ in 0..20 {
            let (sender, background) = answering();
            let background = Arc::new(background);
            let callers = (0..4).map(|_| {
                let (sender, background) = (sender.clone(), background.clone());
                tokio::spawn(async move {
                    for round in 0..2000 {
                        let (answer, answered) = oneshot::channel();
                        if round % 3 == 0 {
                            sender.send(answer).unwrap();
                        } else {
                            background.assisted(|| sender.send(answer)).unwrap();
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
        let (sender, background) = answering();
        ready(&background).await;
        assert!(!background.is_gone());
        // by itself, in a step that a caller takes
        background.assisted(|| drop(sender));
        timeout(Duration::from_secs(20), background.gone()).await.unwrap();
        assert!(background.is_gone());
        background.assisted(|| ());

        let (sender, background) = answering();
        ready(&background).await;
        background.stop();
        assert!(background.is_gone());
        timeout(Duration::from_secs(20), sender.closed()).await.unwrap();
    }

    #[test]
    fn it_ends_with_its_runtime() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (sender, background) = runtime.block_on(async { answering() });
        drop(runtime);
        assert!(background.is_gone());
        assert!(sender.is_closed());
        background.assisted(|| ());
    }
}
