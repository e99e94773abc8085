//! A detached hold of which a message told: it is renewed once, so that it stays for its ttl.

use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::hold::Hold;
use super::sleep_until;
use crate::machine::Op;
use crate::sys::clock;

/// A try does not give up sooner, unless the hold ends.
const TRY_MIN: Duration = Duration::from_millis(50);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// Counts as work that [`Engine::wait_for_cleanup`] waits for, until dropped.
struct InProgress(Arc<Engine>);

impl InProgress {
    fn new(engine: Arc<Engine>) -> InProgress {
        engine.claim_began();
        InProgress(engine)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.claim_ended();
    }
}

/// Renews it in the background. Nothing changes where another process has attached by now: the token is another one.
pub(super) fn keep_for_its_ttl(engine: &Arc<Engine>, hold: &Hold) {
    let terms = hold.terms();
    let renewal = Op::Renew { holds: vec![(hold.claim.clone(), terms.server_ttl_ms(terms.ttl))] };
    let ends_at = hold.lease.deadline();
    let work = InProgress::new(engine.clone());
    engine.runtime.spawn(async move {
        let engine = &work.0;
        loop {
            let now = clock::now();
            if now >= ends_at {
                return;
            }
            // so that one lost reply does not cost it
            let limit = (ends_at.since(now) / 2).max(TRY_MIN).min(engine.options.request_timeout);
            let answer = engine.store.call(renewal.clone(), now + limit).await;
            engine.observe_clock(&answer);
            if answer.outcome.failure().is_none() {
                return;
            }
            sleep_until(clock::now() + PAUSE).await;
        }
    });
}
