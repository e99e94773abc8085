//! A thread without a runtime waits for a future that a background task completes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::line::{Patience, SLICE};

/// Wakes one thread.
struct Bell {
    thread: Thread,
    rung: AtomicBool,
}

impl Bell {
    fn was_rung(&self) -> bool {
        self.rung.swap(false, Ordering::Acquire)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

thread_local! {
    static BELL: Arc<Bell> = Arc::new(Bell { thread: thread::current(), rung: AtomicBool::new(false) });
}

/// The result of `work`, or why the caller gave up. The future is dropped then, and nothing else happens to it.
pub(crate) fn wait<T>(work: impl Future<Output = T>, patience: Patience<'_>) -> Result<T, &'static str> {
    // a thread that is ending has no bell any more
    let bell = BELL
        .try_with(Arc::clone)
        .unwrap_or_else(|_| Arc::new(Bell { thread: thread::current(), rung: AtomicBool::new(false) }));
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(result) = work.as_mut().poll(&mut context) {
            return Ok(result);
        }
        while !bell.was_rung() {
            let left = patience.check()?;
            thread::park_timeout(left.min(SLICE));
        }
    }
}
