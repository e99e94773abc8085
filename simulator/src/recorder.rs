//! Writes down what happens in a schedule, without having any part in it.

use std::collections::{BTreeMap, VecDeque};

use onelock::machine::Phase;

use super::Violation;
use super::trace::{Broken, Fate, Key, Lane, Lease, Message, Step, Stop, Trace, Way, Write};
use super::words;

/// How many things are written down at most.
const STEPS_MAX: usize = 6_000;

/// Which message: what it is, and a number that is one's own among those.
pub(super) type MessageId = (Way, u64);

/// A lease as it is at some moment.
pub(super) struct LeaseNow {
    pub(super) client: usize,
    pub(super) lock: usize,
    pub(super) claim: usize,
    pub(super) token: Option<u64>,
    pub(super) phase: Phase,
    /// In true time.
    pub(super) deadline: u64,
    pub(super) gone: bool,
    pub(super) reason: Option<&'static str>,
}

/// What stands under a name at some moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyNow {
    pub(super) claim: Option<usize>,
    pub(super) expires: Option<u64>,
}

pub(super) struct Recorder {
    pub(super) now: u64,
    /// What takes longer than this is late.
    pub(super) usual: u64,
    trace: Trace,
    under_way: BTreeMap<MessageId, VecDeque<usize>>,
    /// The lease of each claim.
    leases: BTreeMap<usize, usize>,
    keys: BTreeMap<(usize, usize), usize>,
    stops: Vec<(Lane, usize)>,
    ended: bool,
}

impl Recorder {
    pub(super) fn new(trace: Trace, usual: u64) -> Recorder {
        Recorder {
            now: 0,
            usual,
            trace,
            under_way: BTreeMap::new(),
            leases: BTreeMap::new(),
            keys: BTreeMap::new(),
            stops: Vec::new(),
            ended: false,
        }
    }

    fn is_over(&mut self) -> bool {
        if self.trace.steps.len() >= STEPS_MAX && !self.ended {
            (self.ended, self.trace.cut) = (true, true);
        }
        self.ended
    }

    /// Everybody is done: what follows is of no interest, unless something is violated.
    pub(super) fn end(&mut self) {
        if !self.ended {
            self.step(Lane::Network, "end", "everybody is done".to_owned());
            self.ended = true;
        }
    }

    /// Something that is no message and no lease.
    pub(super) fn step(&mut self, lane: Lane, what: &'static str, text: String) {
        if !self.is_over() {
            let at = self.now;
            self.trace.steps.push(Step { at, lane, what, text, message: None, lease: None });
        }
    }

    fn message_step(&mut self, message: usize, lane: Lane, what: &'static str, text: String) {
        self.step(lane, what, text);
        if let Some(step) = self.trace.steps.last_mut() {
            step.message = Some(message);
        }
    }

    fn lease_step(&mut self, lease: usize, lane: Lane, what: &'static str, text: String) {
        self.step(lane, what, text);
        if let Some(step) = self.trace.steps.last_mut() {
            step.lease = Some(lease);
        }
    }

    /// A message leaves.
    pub(super) fn sent(&mut self, id: MessageId, client: usize, server: usize, text: String) {
        if self.is_over() {
            return;
        }
        let index = self.trace.messages.len();
        let (way, sent) = (id.0, self.now);
        let (who, whom) = (words::client(client), self.server(server));
        let (lane, words) = match way {
            Way::Request => (Lane::Client(client), format!("{who} asks {whom}: {text}")),
            Way::Copy => (Lane::Network, format!("something on the way doubles: {text}")),
            Way::Reply => (Lane::Server(server), String::new()),
            Way::Notice => (Lane::Server(server), format!("{whom} tells {who}: {text}")),
        };
        self.trace.messages.push(Message {
            way,
            client,
            server,
            text,
            sent,
            end: None,
            fate: Fate::UnderWay,
            late: false,
        });
        self.under_way.entry(id).or_default().push_back(index);
        if !words.is_empty() {
            self.message_step(index, lane, "sent", words);
        }
    }

    /// A message comes to its end, or is lost.
    pub(super) fn came(&mut self, id: MessageId, fate: Fate) {
        if self.is_over() {
            return;
        }
        let Some(waiting) = self.under_way.get_mut(&id) else { return };
        let Some(index) = waiting.pop_front() else { return };
        if waiting.is_empty() {
            self.under_way.remove(&id);
        }
        let message = &mut self.trace.messages[index];
        (message.end, message.fate) = (Some(self.now), fate);
        message.late = fate == Fate::Arrived && self.now - message.sent > self.usual;
        let Message { way, client, server, text, late, .. } = message.clone();
        let (who, whom) = (words::client(client), self.server(server));
        let slowly = if late { ", late" } else { "" };
        let (lane, what, words) = match (way, fate) {
            (Way::Request | Way::Copy, Fate::Lost) => {
                (Lane::Network, "lost", format!("lost on the way to {whom}: {text}"))
            }
            (Way::Reply | Way::Notice, Fate::Lost) => {
                (Lane::Network, "lost", format!("lost on the way to {who}: {text}"))
            }
            (Way::Request | Way::Copy, Fate::Arrived) if late => {
                (Lane::Server(server), "arrived", format!("{whom} gets, late: {text}"))
            }
            // what is carried out is told then
            (Way::Request | Way::Copy, Fate::Arrived) | (_, Fate::UnderWay) => return,
            (Way::Reply | Way::Notice, Fate::Arrived) => {
                (Lane::Client(client), "heard", format!("{who} hears{slowly}: {text}"))
            }
        };
        self.message_step(index, lane, what, words);
    }

    /// A server carries a request out.
    pub(super) fn executed(&mut self, server: usize, text: &str) {
        let line = format!("{}: {text}", self.server(server));
        self.step(Lane::Server(server), "executed", line);
    }

    fn server(&self, index: usize) -> String {
        if self.trace.servers.len() == 1 { "the server".to_owned() } else { format!("server {}", index + 1) }
    }

    fn lock(&self, index: usize) -> String {
        if self.trace.locks.len() == 1 { "the lock".to_owned() } else { format!("lock {}", index + 1) }
    }

    /// A holder writes to the protected resource.
    pub(super) fn wrote(&mut self, write: Write) {
        if self.is_over() {
            return;
        }
        let who = words::client(write.client);
        let done = if write.admitted { "admitted" } else { "turned away: a higher token was seen" };
        let late = if write.late { ", which did not notice that it was stopped," } else { "" };
        let text = format!("{who}{late} writes with fencing token {}: {done}", write.token);
        self.step(Lane::Resource, if write.admitted { "write" } else { "refused" }, text);
        self.trace.writes.push(write);
    }

    /// A client or a server runs, or does not.
    pub(super) fn runs(&mut self, lane: Lane, stopped: Option<&'static str>) {
        let known = self.stops.iter().position(|(other, _)| *other == lane);
        let before = known.map(|known| self.trace.stops[self.stops[known].1].what);
        if before == stopped || self.is_over() {
            return;
        }
        if let Some(known) = known {
            let (_, stop) = self.stops.swap_remove(known);
            self.trace.stops[stop].until = Some(self.now);
        }
        let who = match lane {
            Lane::Client(client) => words::client(client),
            Lane::Server(server) => self.server(server),
            Lane::Resource | Lane::Network => return,
        };
        let text = match stopped {
            Some("frozen") => format!("{who} stands still"),
            Some(_) => format!("{who} is dead"),
            None if before == Some("frozen") => format!("{who} goes on"),
            None => format!("{who} is started again"),
        };
        self.step(lane, if stopped.is_some() { "stopped" } else { "goes on" }, text);
        if let Some(what) = stopped {
            self.stops.push((lane, self.trace.stops.len()));
            self.trace.stops.push(Stop { lane, what, from: self.now, until: None });
        }
    }

    /// Whether a lease of this claim may still change.
    pub(super) fn is_settled(&self, claim: usize) -> bool {
        self.leases.get(&claim).is_some_and(|lease| {
            let end = self.trace.leases[*lease].end.as_ref();
            end.is_some_and(|(_, how)| how != "its deadline has passed")
        })
    }

    /// How a lease is now.
    pub(super) fn lease(&mut self, lease: &LeaseNow) {
        if self.is_over() {
            return;
        }
        let LeaseNow { client, lock, claim, token, phase, deadline, gone, reason } = *lease;
        let (who, what) = (words::client(client), self.lock(lock));
        let Some(index) = self.leases.get(&claim).copied() else {
            if phase == Phase::Held {
                let index = self.trace.leases.len();
                self.leases.insert(claim, index);
                let (from, deadlines) = (self.now, vec![(self.now, deadline)]);
                self.trace.leases.push(Lease { client, lock, claim, token, from, deadlines, end: None });
                let fence = token.map_or(String::new(), |token| format!(", fencing token {token}"));
                let text = format!("{who} holds {what} by claim {claim} until {}{fence}", words::ms(deadline));
                self.lease_step(index, Lane::Client(client), "granted", text);
            }
            return;
        };
        let known = &self.trace.leases[index];
        let before = known.deadlines.last().map_or(0, |(_, deadline)| *deadline);
        let had_ended = known.end.is_some();
        if phase == Phase::Held && !gone && deadline != before && !had_ended {
            self.trace.leases[index].deadlines.push((self.now, deadline));
            let moved = if deadline > before { "lasts longer" } else { "is shortened" };
            let text = format!("the lease of {who} by claim {claim} {moved}: until {}", words::ms(deadline));
            self.lease_step(index, Lane::Client(client), "renewed", text);
        }
        let how = match phase {
            _ if gone => "its process was killed".to_owned(),
            Phase::Held if self.now >= deadline => "its deadline has passed".to_owned(),
            Phase::Held | Phase::Acquiring => return,
            Phase::Detached => "handed over".to_owned(),
            Phase::Lost => format!("lost: {}", reason.unwrap_or("unknown")),
            Phase::LostAndReleased if reason.is_some() => format!("lost: {}", reason.unwrap_or("unknown")),
            _ => "released".to_owned(),
        };
        let at = self.now.min(deadline.max(self.trace.leases[index].from));
        let known = &mut self.trace.leases[index];
        let kept = known.end.as_ref().map_or(at, |(at, _)| *at);
        if known.end.as_ref().is_some_and(|(_, known)| *known == how) {
            return;
        }
        known.end = Some((kept, how.clone()));
        let text = format!("the lease of {who} by claim {claim} is over: {how}");
        let what = if how == "released" || how == "handed over" { "released" } else { "over" };
        self.lease_step(index, Lane::Client(client), what, text);
    }

    /// What stands on a server under a name now.
    pub(super) fn key(&mut self, server: usize, lock: usize, now: Option<KeyNow>) {
        if self.is_over() {
            return;
        }
        let known = self.keys.get(&(server, lock)).copied();
        let before = known.map(|known| self.trace.keys[known].claim);
        if let (Some(index), Some(now)) = (known, now)
            && before == Some(now.claim)
        {
            self.trace.keys[index].expires = now.expires;
            return;
        }
        if let Some(index) = known {
            let key = &mut self.trace.keys[index];
            key.until = Some(key.expires.map_or(self.now, |expires| expires.min(self.now)).max(key.from));
            self.keys.remove(&(server, lock));
        }
        if let Some(KeyNow { claim, expires }) = now {
            self.keys.insert((server, lock), self.trace.keys.len());
            self.trace.keys.push(Key { server, lock, claim, from: self.now, until: None, expires });
        }
    }

    /// The schedule has ended.
    pub(super) fn finish(mut self, outcome: &Result<(), Violation>) -> Trace {
        if let Err(Violation { property, detail }) = outcome {
            let detail = detail.replace("deeds ", "claims ").replace("deed ", "claim ");
            let text = format!("violated: {property}: {detail}");
            let at = self.now;
            let step = Step { at, lane: Lane::Network, what: "violated", text, message: None, lease: None };
            self.trace.steps.push(step);
            self.trace.broken = Some(Broken { at, property, detail });
        }
        self.trace.end = self.trace.steps.last().map_or(self.now, |step| step.at);
        self.trace
    }
}
