//! Messages that tell of grants: how a client believes them by the library's rule, and by the rules of planted bugs.

use std::time::Duration;

use onelock::machine::{Answer, Claim, GrantNotice, Outcome, Reply, Route, Terms, Time};

use super::bug::Bug;
use super::plan::Fault;
use super::stats::Count;
use super::task::Stage;
use super::trace::Fate;
use super::world::{Event, World, note};

/// How long a place lasts that is not far behind.
const WINDOW: Duration = Duration::from_millis(600);
/// So late a message is at most.
const LATE: u64 = 4_000_000_000;

/// What is remembered of an acquire, for the planted bugs but for the last. They know the rule, but for one thing; and they look at no clock of the
/// server, which tells most old messages from new ones all by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrongBelief {
    asked_at: Option<Time>,
    answered_at: Option<Time>,
    first_horizon: Option<u64>,
    last_horizon: Option<u64>,
    /// The number of the subscription when the last request was sent.
    pub(super) heard_on: u64,
}

impl WrongBelief {
    /// A request is about to be sent.
    pub(super) fn sent(&mut self, now: Time, route: Route) {
        self.asked_at = Some(now);
        self.heard_on = route.subscription;
    }

    /// An answer came.
    pub(super) fn answered(&mut self, answer: &Answer) {
        if let Outcome::Applied(Reply::Queued { horizon: Some(horizon), .. }) = answer.outcome {
            self.first_horizon.get_or_insert(horizon);
            (self.last_horizon, self.answered_at) = (Some(horizon), Some(answer.sent_at));
        }
    }

    /// Until when a planted bug believes, and from when it counts.
    fn wrongly(self, bug: Option<Bug>, now: Time, notice: &GrantNotice, terms: &Terms) -> Option<(Time, Time)> {
        let (answered_at, last) = (self.answered_at?, self.last_horizon?);
        let (from, horizon) = match bug? {
            Bug::ToldFromArrival => (now, last),
            Bug::ToldFromSending => (self.asked_at?, last),
            Bug::HorizonIgnored => (answered_at, 0),
            Bug::AnswersMixed => (answered_at, self.first_horizon?),
            // the server's answer is wrong
            Bug::HorizonOfCounter => (answered_at, last),
            _ => return None,
        };
        let deadline = terms.deadline(from, WINDOW).min(terms.deadline(now, terms.ttl));
        let enough = now < deadline && deadline.since(now) >= terms.min_validity;
        let suits = terms.auto_renew && terms.lock_delay.is_zero() && terms.min_hold.is_zero();
        (suits && enough && notice.number > horizon).then_some((deadline, from))
    }
}

impl World {
    /// How a client hears of its grants now.
    pub(super) fn route(&self, client: usize, name: usize) -> Route {
        let process = &self.clients[client];
        let link = process.link.filter(|_| process.hearing[name].subscribed);
        Route { subscription: link.map_or(0, |link| u64::from(link.id) + 1), clock_jumps: process.clock_jumps }
    }

    /// A client is told of a grant: once, twice, late, or not at all.
    pub(super) fn tell(&mut self, link: u32, name: usize, claim: &Claim, number: u64, server_us: u64) {
        let told = self.notices.len() as u32;
        self.notices.push(GrantNotice { token: claim.token.clone(), number, server_us });
        self.mark_published(link, name, Some(told));
        if self.strikes(Fault::MessageLoss) {
            self.mark_notice(link, name, Some(told), Fate::Lost);
            return;
        }
        let mut at = self.now + self.delay();
        if self.strikes(Fault::LongDelay) {
            at += self.dice.below(LATE);
        }
        self.push(at, Event::Message(link, name as u8, Some(told)));
        if self.strikes(Fault::Duplicates) {
            let again = at + self.dice.below(LATE);
            self.push(again, Event::Message(link, name as u8, Some(told)));
            self.mark_published(link, name, Some(told));
        }
    }

    /// A message came to a waiting acquire: whether it told its grant, and is believed.
    pub(super) fn is_told(&mut self, task: usize) -> bool {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let (now, route) = (self.local(client), self.route(client, name));
        let Some(told) = self.clients[client].hearing[name].told else { return false };
        let notice = self.notices[told as usize].clone();
        let Some(call) = &mut self.tasks[task].call else { return false };
        let Some(deed) = call.deed.filter(|deed| self.deeds[*deed].claim.token == notice.token) else { return false };
        if let Some((deadline, from)) = call.belief.wrongly(self.bug, now, &notice, &self.deeds[deed].terms) {
            let stage = Stage::HandOver { deadline, fence: Some(notice.number), told: Some(from) };
            self.believed(client, name);
            self.enter_stage(task, stage, now);
            return true;
        }
        if !call.machine.told(now, &notice, &notice.token, route) {
            self.stats.add(Count::ToldDoubted);
            return false;
        }
        note!(self, "task {task}: believes that deed {deed} was granted, number {}", notice.number);
        self.stats.add(Count::ToldBelieved);
        self.believed(client, name);
        self.step(task);
        true
    }

    /// It is as good as an attempt that was granted.
    fn believed(&mut self, client: usize, name: usize) {
        self.clients[client].turns[name] = None;
        self.names[name].attempts += 1;
    }
}
