//! Time limits without wake-ups. A time limit that is set from outside the runtime wakes it, if it ends before everything
//! else that the runtime is waiting for. So while there are requests, the runtime never waits for long.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// Shorter than the time limits of requests are by default; longer than would be noticed as work.
const BEAT: Duration = Duration::from_millis(100);

/// Nobody beats.
const AT_REST: u8 = 0;
/// There was no request since the last beat.
const UNUSED: u8 = 1;
/// There was one.
const USED: u8 = 2;

/// Beats while there are requests.
#[derive(Default)]
pub(crate) struct Pace {
    state: AtomicU8,
    quickened: Notify,
}

impl Pace {
    /// There is a request. Wakes the runtime only after a rest.
    pub(crate) fn quicken(&self) {
        if self.state.load(Ordering::Relaxed) != USED && self.state.swap(USED, Ordering::AcqRel) == AT_REST {
            self.quickened.notify_one();
        }
    }

    /// Beats for ever; rests when there was no request between two beats.
    pub(crate) async fn keep(&self) {
        loop {
            self.quickened.notified().await;
            loop {
                sleep(BEAT).await;
                if self.state.swap(UNUSED, Ordering::AcqRel) == USED {
                    continue;
                }
                if self.state.compare_exchange(UNUSED, AT_REST, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    break;
                }
            }
        }
    }
}
