//! The thread that runs the user's callbacks in order, started when the first one is due; never the renewal task.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::sys::fork::ProcessStamp;
use crate::sys::lock;
use crate::sys::task::{self, Handle};

type Job = Box<dyn FnOnce() + Send>;

/// After the system gave no thread, it is asked again after this time.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The callback thread of one client. Ends with the client, after the queued callbacks have run.
#[derive(Default)]
pub(crate) struct Callbacks(Mutex<CallbackThread>);

#[derive(Default)]
struct CallbackThread {
    thread: Option<(ProcessStamp, Sender<Job>)>,
    /// Callbacks for which there is no thread yet.
    waiting: VecDeque<Job>,
    /// A task asks the system again for a thread.
    retried: bool,
}

impl Callbacks {
    /// Queues a callback. A panic in it is logged and harms nothing. Where the system gives no thread, a task on
    /// `runtime` asks again until it does.
    pub(crate) fn run(self: &Arc<Self>, runtime: &Handle, job: Job) {
        let mut way = lock(&self.0);
        way.waiting.push_back(job);
        if way.hand_over() || way.retried {
            return;
        }
        way.retried = true;
        drop(way);
        let callbacks = self.clone();
        runtime.spawn(async move {
            while !callbacks.retry() {
                task::sleep(RETRY_AFTER).await;
            }
        });
    }

    fn retry(&self) -> bool {
        let mut way = lock(&self.0);
        way.retried = !way.hand_over();
        !way.retried
    }
}

impl CallbackThread {
    /// Passes the waiting callbacks to the thread; false when there is none.
    fn hand_over(&mut self) -> bool {
        if !self.thread.as_ref().is_some_and(|(stamp, _)| stamp.is_here()) {
            match start() {
                Ok(sender) => self.thread = Some((ProcessStamp::here(), sender)),
                Err(error) => {
                    if !self.retried {
                        tracing::error!(%error, "this machine gave no thread for callbacks; they run when it does");
                    }
                    return false;
                }
            }
        }
        if let Some((_, sender)) = &self.thread {
            for job in self.waiting.drain(..) {
                // the thread lives as long as this sender
                let _ = sender.send(job);
            }
        }
        true
    }
}

fn start() -> std::io::Result<Sender<Job>> {
    let (sender, jobs) = channel::<Job>();
    std::thread::Builder::new().name("onelock-callback".to_owned()).spawn(move || {
        for job in jobs {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a callback panicked; renewal and other callbacks go on");
            }
        }
    })?;
    Ok(sender)
}
