//! A call under way. Its first step is taken on the calling thread, so that a request leaves without waiting for another
//! thread; the rest runs on the runtime.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::runtime::Handle;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs its future to the end, or until it is cancelled.
pub(crate) struct Task {
    work: Mutex<Option<Work>>,
    /// What to do when the future panics, which is a defect.
    broken: Box<dyn Fn() + Send + Sync>,
    scheduled: AtomicBool,
    runtime: Handle,
}

impl Task {
    /// Begins at once, on this thread.
    pub(crate) fn start(
        runtime: Handle,
        work: impl Future<Output = ()> + Send + 'static,
        broken: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Task> {
        let task = Arc::new(Task {
            work: Mutex::new(Some(Box::pin(work))),
            broken: Box::new(broken),
            scheduled: AtomicBool::new(false),
            runtime,
        });
        let _entered = task.runtime.enter();
        task.step();
        task.clone()
    }

    /// Drops what is left of the future; the core undoes what it had begun.
    pub(crate) fn cancel(&self) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _entered = self.runtime.enter();
        drop(work);
    }

    fn step(self: &Arc<Self>) {
        let mut slot = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        // before the poll: who wakes it from here on wants another step
        self.scheduled.store(false, Ordering::SeqCst);
        let Some(work) = slot.as_mut() else { return };
        let waker = Waker::from(self.clone());
        let stepped =
            catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()));
        if !matches!(stepped, Ok(false)) {
            let finished = slot.take();
            drop(slot);
            drop(finished);
            if stepped.is_err() {
                (self.broken)();
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.scheduled.swap(true, Ordering::SeqCst) {
            let task = self.clone();
            self.runtime.spawn(async move { task.step() });
        }
    }
}
