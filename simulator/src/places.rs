//! Locks with a queue on the server: what a driver does about its place, and the properties of the queue.
//!
//! A grant that a client is told of is believed by the library's rule (`belief.rs`), and what is not believed is a reason to
//! ask. P11, a told grant is believed neither early nor late nor twice, is what P1, P3 and P5 check of every lease: who
//! believes has the lock on the server, for as long as it believes.
//!
//! | property | is checked by |
//! |---|---|
//! | P9 order: a place that is kept alive and heard is not passed over by a later one | `check_order` |
//! | P9 of one client: its number only grows when it was granted | `check_place` |
//! | P10 a dead waiter delays little: not granted when its connection is gone, and else no longer than its place lasts | `check_order`, `granted_directly` |
//! | P10, P4 after the last waiter no place is left | `check_places_left` |
//! | P12 no lost hand-over: a free lock is granted soon, though every message is lost | `place_limit`, `look_at_waiters` |
//! | P12 who is passed over although it lives learns it | `check_order` |
//! | P12 one message tells one client, which asks at once | `granted_directly`, `check_hand_over` |

use std::time::Duration;

use onelock::machine::model::DirectGrant;
use onelock::machine::{Answer, ClientTag, Op, Outcome, QueueEntry, Reply, Time};

use super::bug::Bug;
use super::stats::Count;
use super::task::Call;
use super::world::{World, nanos, note};

/// How long a queue that nobody comes to stays on the server, and a margin.
const QUEUE_IDLE: u64 = 11_000_000_000;
/// How long a client keeps away at most after it could not reach the server.
const BACKOFF: u64 = 1_300_000_000;
/// The time between two keeps, and a margin.
const KEEP: u64 = 250_000_000;
/// The shortest and the longest time of a direct grant, and the step of the keys' ends.
const SHORTEST_US: u64 = 200_000;
const LONGEST_US: u64 = 3_000_000;
const STEP_US: u64 = 2_000;

/// One place in a queue on the server, by the requests that were carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct TruePlace {
    deed: usize,
    client: ClientTag,
    number: u64,
    /// By the server's clock.
    alive_until_us: u64,
    /// It said that it listens.
    listens: bool,
    /// The request that kept it last.
    request: usize,
}

/// What became of a place that was passed over because nobody was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passing {
    passed: bool,
    /// The first request of it that was carried out after that: its answer says so.
    marked: Option<usize>,
    /// From this request on its client knows.
    told_from: Option<usize>,
    /// Its client knew that it does not listen when it sent these requests and those before.
    lied_in: Option<usize>,
}

impl World {
    /// The name of a client in its present life.
    fn tag(&self, client: usize) -> ClientTag {
        ClientTag(((client as u64) << 32) | u64::from(self.clients[client].epoch))
    }

    fn client_of_tag(&self, tag: ClientTag) -> Option<usize> {
        let client = (tag.0 >> 32) as usize;
        (self.tag(client) == tag).then_some(client)
    }

    /// Whether the server counts a subscriber.
    fn is_counted(&self, tag: ClientTag, name: usize) -> bool {
        let counted = |client| self.server.subscribers.iter().any(|(other, _, of)| (*other, *of) == (client, name));
        self.client_of_tag(tag).is_some_and(counted)
    }

    /// Lets the server see who is subscribed, which it looks up when it hands a lock over.
    pub(super) fn count_subscribers(&mut self, name: usize) {
        if !self.names[name].kind.row().queues {
            return;
        }
        let key = self.names[name].key.clone();
        for client in 0..self.clients.len() {
            for epoch in 1..=self.clients[client].epoch {
                let tag = ClientTag(((client as u64) << 32) | u64::from(epoch));
                let counted = self.is_counted(tag, name) || self.bug == Some(Bug::DeadGranted);
                self.server.model.listen(&key, tag, counted);
            }
        }
    }

    /// What the next request of an acquire says of its place.
    pub(super) fn queue_entry(&self, task: usize) -> QueueEntry {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let tag = self.tag(client);
        let Some(call) = &self.tasks[task].call else { return onelock::machine::Place::no_entry(tag) };
        let subscribed = call.watching && self.clients[client].hearing[name].subscribed;
        let listens = subscribed || self.bug == Some(Bug::ListensSaid);
        let mut entry = call.machine.queue_entry(tag, listens);
        if self.bug == Some(Bug::PlaceNumberForgotten) {
            entry.place = None;
        }
        entry
    }

    /// What was the head's is the next one's now: claim, place and subscription.
    pub(super) fn become_head_of_places(&mut self, task: usize) {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let now = self.local(client);
        let process = &mut self.clients[client];
        let (spacing, away_since) = (process.lines[name].spacing().for_a_place(), process.away_since);
        let hearing = process.hearing[name];
        let passed = process.passed[name].take();
        let (terms, deeds) = (self.tasks[task].terms.clone(), &mut self.deeds);
        let Some(call) = &mut self.tasks[task].call else { return };
        call.machine.set_spacing(spacing);
        call.machine.set_unreachable_since(away_since);
        if let Some((deed, place)) = passed {
            call.machine.take_place(place);
            call.deed = Some(deed);
            let deed = &mut deeds[deed];
            deed.lives = deed.server_ttl();
            (deed.ttl, deed.terms) = (terms.ttl, terms);
        }
        if call.watching {
            if hearing.subscribed {
                call.machine.watch_confirmed();
            }
            if call.heard != hearing.hints {
                call.machine.hint(now, &mut process.jitter);
            }
        }
        self.step(task);
    }

    /// A call that ends without a lease leaves what it has on the server to the next one in its line, if there is one.
    pub(super) fn pass_place_on(&mut self, task: usize, deed: usize) -> bool {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        if !self.names[name].kind.row().queues || self.deeds[deed].trail.uncertainty().is_none() {
            return false;
        }
        let Some(call) = &self.tasks[task].call else { return false };
        let place = call.machine.place();
        let alone = call.ticket.is_none() || self.clients[client].lines[name].len() < 2;
        if alone {
            self.clients[client].turns[name] = None;
            let behind = self.bug == Some(Bug::PlaceLeftBehind);
            self.deeds[deed].abandoned |= behind;
            return behind;
        }
        if self.bug == Some(Bug::PlaceNotPassedOn) {
            return false;
        }
        self.stats.add(Count::PlacesPassedOn);
        note!(self, "task {task}: leaves deed {deed} to the next one");
        let left = self.clients[client].passed[name].replace((deed, place));
        if let Some((other, _)) = left {
            self.give_up(other);
        }
        true
    }

    /// A subscription to a queue lasts as long as the local line does.
    pub(super) fn pass_subscription_on(&mut self, task: usize, call: &Call) -> bool {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        if !self.names[name].kind.row().queues {
            return false;
        }
        let next = self.clients[client].lines[name].waiters().find(|other| **other != task).copied();
        let Some(next) = next.and_then(|next| self.tasks[next].call.as_mut()) else { return false };
        (next.watching, next.heard) = (true, call.heard);
        true
    }

    /// An acquire has waited.
    pub(super) fn call_waits(&mut self, task: usize) {
        if let Some(call) = &mut self.tasks[task].call {
            call.moved = true;
        }
    }

    /// An answer to an acquire of a kind that queues.
    pub(super) fn check_place(&mut self, task: usize, deed: usize, request: usize, answer: &Answer) {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let Outcome::Applied(reply) = &answer.outcome else { return };
        let passing = &mut self.deeds[deed].passing;
        if passing.marked == Some(request) {
            passing.told_from = Some(self.requests.len());
        }
        let Reply::Queued { place, unheard, .. } = reply else {
            if !matches!(reply, Reply::Denied { .. }) {
                self.clients[client].turns[name] = None;
            }
            return;
        };
        self.stats.add(Count::Queued);
        if *unheard {
            self.stats.add(Count::Unheard);
        }
        // what was sent before and carried out later may have come as if anew
        let strays = self.deeds[deed].copied || self.deeds[deed].trail.is_open();
        let before = self.clients[client].turns[name].replace(*place).filter(|before| before < place);
        if let Some(before) = before.filter(|_| !strays) {
            let detail =
                format!("client {client} has waited without a grant, and its place went from {before} to {place}");
            self.violate("P9 order", detail);
        }
    }

    /// A request was carried out that may have changed a queue.
    pub(super) fn note_place(&mut self, id: usize, deed: usize, reply: &Reply) {
        let name = self.deeds[deed].name;
        if !self.names[name].kind.row().queues {
            return;
        }
        let us = self.server.clock.micros(self.now);
        match (&self.requests[id].op, reply) {
            (Op::Enter { entry, .. }, Reply::Queued { place, .. }) => {
                let entry = *entry;
                let before = self.names[name].places.iter().find(|other| other.deed == deed);
                let passing = &mut self.deeds[deed].passing;
                // the mark is gone with the place
                if std::mem::take(&mut passing.passed) && before.is_some_and(|place| place.alive_until_us > us) {
                    passing.marked = Some(id);
                }
                let lasts = before.map_or(0, |place| place.alive_until_us).max(us + entry.window_ms * 1000);
                let mut alive_until_us = lasts.min(us + LONGEST_US);
                if self.clock_was_set {
                    // one whose end was too far ahead for a while may have been forgotten then
                    alive_until_us = self.server.recorded_end_us(us, &self.deeds[deed].claim).unwrap_or(alive_until_us);
                }
                self.names[name].places.retain(|other| other.deed != deed);
                self.names[name].places.push(TruePlace {
                    deed,
                    client: entry.client,
                    number: *place,
                    alive_until_us,
                    listens: entry.listens,
                    request: id,
                });
            }
            // who was too slow to claim a grant comes back at the number that it had
            (Op::Enter { entry, .. }, Reply::Granted { again: false, .. }) => {
                self.check_order(name, deed, entry.place);
            }
            (Op::Release { .. } | Op::Undo { .. }, Reply::Released(false)) => {
                self.names[name].places.retain(|other| other.deed != deed);
            }
            _ => {}
        }
    }

    /// A lock with a queue was granted: everybody who stood before and is there was asked first.
    fn check_order(&mut self, name: usize, deed: usize, named: Option<u64>) {
        let us = self.server.clock.micros(self.now);
        let places = std::mem::take(&mut self.names[name].places);
        let place = places.iter().find(|place| place.deed == deed).map(|place| place.number);
        let number = place.or(named).unwrap_or(u64::MAX);
        for place in places.iter().filter(|place| place.number < number && place.deed != deed) {
            let alive = place.alive_until_us / 1000 > us / 1000;
            if !alive || self.clock_was_set || self.names[name].old_queue {
                continue;
            }
            let TruePlace { deed: passed, client, listens, request, .. } = *place;
            if !listens || self.is_counted(client, name) {
                let detail = format!("deed {deed} at {number} is granted before deed {passed} at {}", place.number);
                self.violate("P9 order", detail);
                continue;
            }
            self.stats.add(Count::PassedOver);
            let passing = &mut self.deeds[passed].passing;
            passing.passed = true;
            if passing.told_from.is_some_and(|from| request >= from) {
                let detail = format!("deed {passed} is passed over again, though its client was answered meanwhile");
                self.violate("P12 no lost hand-over", detail);
            } else if passing.lied_in == Some(request) {
                let detail = format!("deed {passed} is passed over: it said that it listens, and knew better");
                self.violate("P12 no lost hand-over", detail);
            }
        }
        self.names[name].places = places.into_iter().filter(|place| place.deed != deed).collect();
    }

    /// The client says in this request that it listens; does it think so?
    pub(super) fn note_listening(&mut self, id: usize, deed: usize) {
        let (client, name) = (self.requests[id].client, self.deeds[deed].name);
        if let Op::Enter { entry, .. } = &self.requests[id].op
            && entry.listens
            && !self.clients[client].hearing[name].subscribed
        {
            self.deeds[deed].passing.lied_in = Some(id);
        }
    }

    /// A script has handed a lock over to a client that waits, and tells it.
    pub(super) fn granted_directly(&mut self, grant: &DirectGrant) {
        let DirectGrant { client: tag, claim, fence } = grant;
        let deed = self.deeds.iter().rposition(|deed| deed.claim == *claim);
        let Some(deed) = deed else { return };
        let name = self.deeds[deed].name;
        self.stats.add(Count::DirectGrants);
        note!(self, "server: hands name {name} over to deed {deed}, fence {fence}");
        let place = self.names[name].places.iter().find(|place| place.deed == deed).copied();
        self.check_order(name, deed, None);
        self.check_new_grant(deed, *fence);
        let us = self.server.clock.micros(self.now);
        if let Some(place) = place.filter(|_| !self.names[name].old_queue) {
            let held_us = self.server.hold_ends_us(self.now, claim).unwrap_or(us).saturating_sub(us);
            let most_us = place.alive_until_us.saturating_sub(us).max(SHORTEST_US) + STEP_US;
            let longer = held_us > most_us && !self.clock_was_set;
            if longer || place.alive_until_us > us + LONGEST_US + STEP_US {
                let left_us = place.alive_until_us.cast_signed() - us.cast_signed();
                let detail = format!("deed {deed}, whose place lasts for {left_us} us, is granted for {held_us} us");
                self.violate("P10 a dead waiter delays little", detail);
            }
            if place.listens && !self.is_counted(*tag, name) {
                let detail = format!("deed {deed} is granted, and its connection is gone");
                self.violate("P10 a dead waiter delays little", detail);
            }
        }
        self.check_publication(name);
        for (client, link, of) in self.server.subscribers.clone() {
            if (of, Some(client)) == (name, self.client_of_tag(*tag)) {
                self.tell(link, name, claim, *fence, us);
            }
        }
    }

    /// Within this time of a lock's being free somebody who waits has it, once the server can be reached.
    pub(super) fn place_limit(&self) -> u64 {
        // a connection that is begun during the trouble is given up before the next one is made
        let connecting = nanos(self.plan.connect_timeout + self.plan.request_timeout);
        let limit = KEEP + self.prompt();
        if self.now < self.trouble_at + BACKOFF + connecting + limit { u64::MAX / 2 } else { limit }
    }

    /// Everybody is done: no place is left that may be granted.
    pub(super) fn check_places_left(&mut self) {
        let us = self.server.clock.micros(self.now);
        let places = self.names.iter().flat_map(|name| &name.places);
        let left = places.copied().find(|place| {
            let deed = &self.deeds[place.deed];
            // an enter, or a copy of one, may still be carried out after the leave
            let left = deed.release_executed || deed.undone_at.is_some() || deed.copied;
            place.alive_until_us > us && !left && !deed.gone && !deed.tainted && !self.clock_was_set
        });
        if let Some(place) = left {
            self.violate("P4 nothing is orphaned", format!("everybody is done, and a place is left: {place:?}"));
        }
    }

    /// How long queues may stay on the server after that.
    pub(super) fn queues_live(&self) -> u64 {
        if self.names.iter().any(|name| name.kind.row().queues) { QUEUE_IDLE } else { 0 }
    }

    /// One of the two keys of a queue is lost.
    pub(super) fn lose_queue(&mut self, name: usize) {
        use onelock::machine::naming::{queue_key, waiters_key};
        let us = self.server.clock.micros(self.now);
        let key = self.names[name].key.clone();
        if self.dice.chance(500) {
            self.server.model.del(us, &queue_key(&key));
            self.names[name].places.clear();
        } else {
            // numbers without records: dead, until they are kept again
            self.server.model.del(us, &waiters_key(&key));
            self.names[name].places.iter_mut().for_each(|place| place.alive_until_us = 0);
        }
    }

    /// The server forgets a client's subscriptions, and nobody says so.
    pub(super) fn deafen(&mut self, client: usize) {
        self.server.subscribers.retain(|(other, ..)| *other != client);
        self.links_changed_at = self.now;
    }

    /// When an acquire sleeps that does not keep its place.
    pub(super) fn without_keeps(&self, task: usize, until: Time) -> Time {
        let (now, name) = (self.local(self.tasks[task].plan.client), self.tasks[task].plan.name);
        match &self.tasks[task].call {
            Some(call) if self.names[name].kind.row().queues && until.since(now) > Duration::from_millis(100) => {
                call.machine.gives_up_at()
            }
            _ => until,
        }
    }
}
