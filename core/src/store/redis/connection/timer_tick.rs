//! A timer that ticks while requests are in flight, so that setting a time limit needs no wake-up.
//!
//! A time limit set from outside the runtime wakes it, if it ends before everything else that the runtime waits for.
//! With this tick the runtime never waits for longer than a time limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::sys::task::{self, AbortHandle, sleep};

/// Shorter than the default time limits of requests; rare enough not to be noticed as work.
const TICK: Duration = Duration::from_millis(100);

/// The timer is stopped.
const IDLE: u8 = 0;
/// There was no request since the last tick.
const UNUSED: u8 = 1;
/// There was a request since the last tick.
const USED: u8 = 2;

/// Ticks on the runtime on which it was started while there are requests, until it is dropped.
pub(crate) struct TimerTick {
    timer: Arc<Timer>,
    task: AbortHandle,
}

#[derive(Default)]
struct Timer {
    state: AtomicU8,
    activity: Notify,
}

impl TimerTick {
    pub(crate) fn start() -> TimerTick {
        let timer = Arc::new(Timer::default());
        let running = timer.clone();
        let task = task::spawn(async move { running.run().await }).abort_handle();
        TimerTick { timer, task }
    }

    /// There is a request. Wakes the runtime only if the timer was stopped.
    pub(crate) fn note_activity(&self) {
        let Timer { state, activity } = &*self.timer;
        if state.load(Ordering::Relaxed) != USED && state.swap(USED, Ordering::AcqRel) == IDLE {
            activity.notify_one();
        }
    }
}

impl Drop for TimerTick {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Timer {
    /// Runs for ever; the timer stops when there was no request between two ticks.
    async fn run(&self) {
        loop {
            self.activity.notified().await;
            loop {
                sleep(TICK).await;
                if self.state.swap(UNUSED, Ordering::AcqRel) == USED {
                    continue;
                }
                if self.state.compare_exchange(UNUSED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    break;
                }
            }
        }
    }
}
