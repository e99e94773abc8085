//! Futures of the core, polled by a thread of another language.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::task::{Context, Wake, Waker};

use crate::error::NativeError;

/// The process ends.
static ENDING: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> i32;
}

extern "C" fn ending() {
    ENDING.store(true, Ordering::SeqCst);
}

/// The JVM begins to end. A thread that enters it after its end waits for ever: from now on that is none of this library's own,
/// which has to release what is held when the process ends.
#[uniffi::export]
pub fn process_ends() {
    ending();
}

/// The same for an end of which the JVM does not tell.
pub(crate) fn watch_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function of the C library; what it is given may be called at any time. Without memory it registers nothing.
        unsafe { atexit(ending) };
    });
}

/// Wakes a coroutine, which enters the JVM.
struct EnteringWaker(Waker);

impl Wake for EnteringWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if ENDING.load(Ordering::SeqCst) {
            let waker = self.0.clone();
            // without a thread it is not woken: it ends anyway
            let _ = std::thread::Builder::new().name("onelock-exit".to_owned()).spawn(move || waker.wake());
        } else {
            self.0.wake_by_ref();
        }
    }
}

/// Enters the library's own runtime at each poll. Dropping it drops the work, at any moment and on any thread.
pub(crate) async fn entered<T>(work: impl Future<Output = T>) -> Result<T, NativeError> {
    let runtime = onelock::runtime::handle()?;
    let mut work = pin!(work);
    let done = poll_fn(|context| {
        let _inside = runtime.enter();
        let waker = Waker::from(Arc::new(EnteringWaker(context.waker().clone())));
        work.as_mut().poll(&mut Context::from_waker(&waker))
    });
    Ok(done.await)
}

/// Waits on this thread, which is outside of any runtime.
pub(crate) fn waited<T>(work: impl Future<Output = T>) -> Result<T, NativeError> {
    Ok(onelock::runtime::handle()?.block_on(work))
}
