//! One thread, made when the first callback is due, that runs the user's callbacks in order: never the renewal task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use crate::driver::lock;
use crate::driver::process::Stamp;

type Job = Box<dyn FnOnce() + Send>;

/// One client's way to the callback thread. Ends with the client, after what was queued has run.
#[derive(Default)]
pub(crate) struct Callbacks {
    thread: Mutex<Option<(Stamp, Sender<Job>)>>,
}

impl Callbacks {
    /// Queues a callback. A panic in it is logged and harms nothing.
    pub(crate) fn run(&self, job: Job) {
        let mut slot = lock(&self.thread);
        let job = match &*slot {
            Some((stamp, sender)) if stamp.is_here() => match sender.send(job) {
                Ok(()) => return,
                Err(refused) => refused.0,
            },
            _ => job,
        };
        let (sender, jobs) = channel::<Job>();
        let _ = sender.send(job);
        let spawned = std::thread::Builder::new().name("onelock-callback".to_owned()).spawn(move || {
            for job in jobs {
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a callback panicked; renewal and other callbacks go on");
                }
            }
        });
        match spawned {
            Ok(_) => *slot = Some((Stamp::here(), sender)),
            Err(error) => tracing::error!(%error, "no thread for callbacks; a loss callback was not run"),
        }
    }
}
