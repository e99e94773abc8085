//! An acquire with a place in a queue on the server.

use super::{Acquire, AcquireState};
use crate::machine::{ClientTag, GrantNotice, Place, QueueEntry, Route, Time, Verdict};

impl Acquire {
    /// Its place in a queue on the server.
    pub fn place(&self) -> Place {
        self.place
    }

    /// What the next request says of that place.
    pub fn queue_entry(&self, client: ClientTag, listens: bool) -> QueueEntry {
        if self.is_try() { Place::no_entry(client) } else { self.place.entry(client, listens) }
    }

    /// Goes on at the place of its predecessor in the wait queue, with the predecessor's token. What that was answered
    /// counts no more: it asks itself at once.
    pub fn take_place(&mut self, place: Place) {
        self.place = place;
        self.place.forget_answer();
    }

    /// How it hears of grants, as it is before the next request is sent.
    pub fn set_route(&mut self, route: Route) {
        self.route = route;
    }

    /// A message said that a place became a hold; `token` is its own, `route` how it hears now. `true` when it is believed:
    /// the acquire is over. Else [`Acquire::hint`] follows. Not while a request is under way: its answer comes first.
    pub fn told(&mut self, now: Time, notice: &GrantNotice, token: &str, route: Route) -> bool {
        let waits = !matches!(self.state, AcquireState::Over(_)) && self.limits.believes_messages;
        if !waits || *notice.token != *token {
            return false;
        }
        let Some(grant) = self.place.told(now, notice, &self.terms, route) else { return false };
        if !self.is_worth_handing_out(now, grant.deadline) {
            return false;
        }
        self.place.forget_answer();
        self.unreachable_since = None;
        self.spacing.granted(now);
        let fence = Some(notice.number);
        self.over(Verdict::Granted { deadline: grant.deadline, fence, told: Some(grant.sent_at) });
        true
    }
}
