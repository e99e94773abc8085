//! Futures of the core, polled by a thread of another language.

use std::future::poll_fn;
use std::pin::pin;

use crate::error::NativeError;

/// Enters the library's own runtime at each poll. Dropping it drops the work, at any moment and on any thread.
pub(crate) async fn entered<T>(work: impl Future<Output = T>) -> Result<T, NativeError> {
    let runtime = onelock::runtime::handle()?;
    let mut work = pin!(work);
    let done = poll_fn(|context| {
        let _inside = runtime.enter();
        work.as_mut().poll(context)
    });
    Ok(done.await)
}

/// Waits on this thread, which is outside of any runtime.
pub(crate) fn waited<T>(work: impl Future<Output = T>) -> Result<T, NativeError> {
    Ok(onelock::runtime::handle()?.block_on(work))
}
