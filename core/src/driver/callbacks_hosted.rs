//! Runs the user's callbacks in order, each in a task of its own: a host that is an event loop has one thread.

use std::sync::Arc;

use crate::sys::task::Handle;

type Job = Box<dyn FnOnce() + Send>;

/// The callbacks of one client.
#[derive(Default)]
pub(crate) struct Callbacks;

impl Callbacks {
    /// Queues a callback.
    #[allow(clippy::unused_self)] // as where there is a thread for them
    pub(crate) fn run(self: &Arc<Self>, runtime: &Handle, job: Job) {
        // tasks start in the order in which they were spawned
        runtime.spawn(async move { job() });
    }
}
