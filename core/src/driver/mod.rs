//! The driver: runs the machines against a store, on tokio and for blocking callers.
//!
//! | file | does |
//! |---|---|
//! | `engine` | one client's life in one process: store, schedule, wait queues, registry |
//! | `lock_spec` | what a caller wants of a lock: kind, name, options |
//! | `acquire` | drives one acquire, from either kind of caller |
//! | `claim` | the token of an acquire or attach, and the inspection text |
//! | `undo_guard` | undoes what an acquire may have taken |
//! | `close` | closing a client |
//! | `gauge` | counts the waiting and the cancelled acquires |
//! | `hold` | one granted hold, shared by its handles and the watchdog |
//! | `release` | what a holder does to be rid of a lease: release, detach |
//! | `release_many` | the release of several holds at once |
//! | `release_retry` | whether a release is repeated, and what both answers mean |
//! | `detached` | a hold that is detached before its first renewal |
//! | `extend` | a renewal that the holder waits for |
//! | `downgrade` | a writer's lease becomes a reader's |
//! | `failures` | what an operation that failed tells its caller |
//! | `attach` | taking over a hold that another process detached |
//! | `enter`, `reentry` | re-entry of reentrant locks |
//! | `count_sync` | synchronises the server's hold count with the registry |
//! | `multi` | several holds that are one lease |
//! | `together` | taking several mutexes by one request |
//! | `wait_queues` | the local wait queues and their subscriptions |
//! | `background` | the background tasks: renewal and cleanup |
//! | `callbacks` | the one thread that runs the user's callbacks |
//! | `metrics` | counters and histograms |
//! | `durations/` | who is told each time waited and held: OpenTelemetry's histograms |
//! | `spans/` | spans of acquires, holds and releases, for tracing systems |

pub(crate) mod acquire;
pub(crate) mod attach;
pub(crate) mod background;
#[cfg_attr(target_family = "wasm", path = "callbacks_hosted.rs")]
pub(crate) mod callbacks;
pub(crate) mod claim;
pub(crate) mod close;
pub(crate) mod count_sync;
mod detached;
pub(crate) mod downgrade;
pub(crate) mod durations;
pub(crate) mod engine;
pub(crate) mod enter;
pub(crate) mod extend;
pub(crate) mod failures;
mod gauge;
pub(crate) mod hold;
pub(crate) mod lock_spec;
pub(crate) mod metrics;
pub(crate) mod multi;
pub(crate) mod reentry;
pub(crate) mod release;
pub(crate) mod release_many;
pub(crate) mod release_retry;
pub(crate) mod spans;
pub(crate) mod together;
pub(crate) mod undo_guard;
pub(crate) mod wait_queues;

use crate::sys::clock;
use crate::sys::task;

/// Sleeps until `time` on the boot clock; for ever if that is [`crate::machine::Time::MAX`].
pub(crate) async fn sleep_until(time: crate::machine::Time) {
    if time == crate::machine::Time::MAX {
        std::future::pending::<()>().await;
    }
    // a timer may be late (it does not count suspend), and a long one is set again every day
    loop {
        let left = time.since(clock::now());
        if left.is_zero() {
            return;
        }
        task::sleep(left.min(std::time::Duration::from_secs(24 * 3600))).await;
    }
}

#[cfg(test)]
mod shutdown_tests;
#[cfg(test)]
mod stress_tests;
