//! Closing a client: holders are notified, holds are released, cleanup is waited for.

use std::sync::Arc;

use super::engine::Engine;
use super::{release, sleep_until};
use crate::sys::clock;
use crate::sys::task;

/// Whether closing a client runs the callbacks for lost leases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossCallbacks {
    /// They run.
    Run,
    /// They do not run: at the end of the program, what they use may be gone.
    Skip,
}

/// Notifies every holder, releases every hold, and waits for cleanup, at most `close_timeout`.
pub(crate) async fn close(engine: &Arc<Engine>, telling: LossCallbacks) {
    let until = clock::now() + engine.options.close_timeout;
    if !engine.begin_close() {
        // another call closes it, or did
        engine.wait_for_cleanup(until).await;
        return;
    }
    let mut releases: Vec<_> = Vec::new();
    for hold in engine.holds() {
        // the holder is notified before anybody else can get the lock
        engine.lose_closed(&hold, telling == LossCallbacks::Run);
        let engine = engine.clone();
        releases.push(task::spawn(async move { release::release_whole(&engine, &hold).await }));
    }
    let all = async {
        for release in releases {
            let _ = release.await;
        }
    };
    tokio::select! {
        () = all => {}
        () = sleep_until(until) => {}
    }
    if !engine.wait_for_cleanup(until).await {
        tracing::warn!("closed before everything was released; the rest ends with its ttl");
    }
    engine.store.close();
}
