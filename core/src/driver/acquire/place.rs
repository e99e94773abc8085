//! The place of an acquire in the queue of its client and in one on the server: it goes from one head to the next, and a
//! message may tell that it became a hold.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Acquiring;
use crate::driver::engine::Engine;
use crate::driver::lock_spec::LockSpec;
use crate::driver::wait_queues::PassedClaim;
use crate::machine::Route;
use crate::sys::clock;

/// How long the server keeps a place in the queue of this lock, where the store keeps it as it keeps a hold.
pub(super) fn place_for(engine: &Engine, lock: &LockSpec) -> Option<Duration> {
    let span = Duration::from_millis(lock.terms.server_ttl_ms(lock.terms.ttl));
    engine.store.capabilities().place_min.map(|least| span.max(least))
}

impl Acquiring {
    /// Goes on where the head before it has ended.
    pub(super) fn become_head(&mut self) {
        let Some(position) = &self.position else { return };
        let (spacing, away_since, heard) = position.inheritance();
        let spacing = if self.queues { spacing.for_a_place() } else { spacing };
        self.machine.set_spacing(spacing);
        self.machine.set_unreachable_since(away_since);
        // where a place lasts as a hold does, one for another time is given up
        let place_for = place_for(&self.engine, &self.lock);
        let fits = |claim: &PassedClaim| place_for.is_none_or(|place_for| claim.undo_guard.server_ttl() == place_for);
        if let Some(claim) = position.take_claim().filter(fits) {
            self.machine.take_place(claim.place);
            self.undo_guard = claim.for_heir(self.lock.count, self.lock.terms.server_ttl_ms(self.lock.terms.ttl));
        }
        if let Some(mut subscription) = position.subscription_state() {
            // the queue has been subscribed all along: the acquire may sleep after a refusal
            let (subscribed, generation) = {
                let now = subscription.borrow_and_update();
                (now.subscribed, now.generation)
            };
            if subscribed {
                self.machine.watch_confirmed();
            }
            if heard.is_some_and(|heard| heard != generation) {
                // a message came after the last attempt of the previous head
                self.machine.hint(clock::now(), &mut self.jitter);
            }
            self.subscription = Some(subscription);
        }
    }

    /// Leaves a place on the server to the next waiter of this client. With the last one it is given up.
    pub(super) fn pass_on(&mut self) {
        if self.queues
            && self.engine.is_here()
            && let Some(position) = &self.position
            && let Some(undo_guard) = self.undo_guard.take()
            && !undo_guard.is_clean()
        {
            drop(position.pass_on(PassedClaim { undo_guard, place: self.machine.place() }));
        }
    }

    /// How it hears of grants now.
    pub(super) fn route(&self) -> Route {
        let subscription = self.subscription.as_ref().map_or(0, |subscription| subscription.borrow().connection);
        Route { subscription, clock_jumps: self.engine.clock_jumps.load(Ordering::Acquire) }
    }

    /// Whether the last message told its grant, and is believed.
    pub(super) fn is_told(&mut self) -> bool {
        let heard = self.subscription.as_ref().map(|subscription| subscription.borrow().clone());
        let (granted, generation) = heard.map_or((None, None), |heard| (heard.granted, Some(heard.generation)));
        let (Some(notice), Some(undo_guard)) = (granted, &self.undo_guard) else { return false };
        let route = self.route();
        let told = self.machine.told(clock::now(), &notice, &undo_guard.claim().token, route);
        if told && let Some(position) = &mut self.position {
            position.set_handover(self.machine.spacing(), None, generation);
        }
        told
    }
}
