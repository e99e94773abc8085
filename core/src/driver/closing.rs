//! The end of a client: holders are told, what is held is given back, clean-up is waited for.

use std::sync::Arc;

use crate::driver::engine::Engine;
use crate::driver::{clock, giving, sleep_until};

/// Who hears, when a client is closed, that what he held is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    /// Everybody.
    All,
    /// At the end of the program callbacks are not called: what they use may be gone.
    NoCallbacks,
}

/// Tells every holder, releases everything that is held, and waits for clean-up, at most `close_timeout`.
pub(crate) async fn close(engine: &Arc<Engine>, telling: Telling) {
    let until = clock::now() + engine.options.close_timeout;
    if !engine.begin_close() {
        // somebody else is at it, or was
        engine.cleaned(until).await;
        return;
    }
    let mut releases: Vec<_> = Vec::new();
    for hold in engine.holds() {
        // whoever works under it is told before anybody else can have the lock
        engine.lose_closed(&hold, telling == Telling::All);
        let engine = engine.clone();
        releases.push(tokio::spawn(async move { giving::release_whole(&engine, &hold).await }));
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
    if !engine.cleaned(until).await {
        tracing::warn!("closed before everything was given back; the rest ends with its ttl");
    }
    engine.store.close();
}
