//! Clients that read and write, and the network between them and the modelled server.

use std::collections::BTreeMap;
use std::time::Duration;

use onelock::machine::model::Model;
use onelock::machine::{
    Claim, ClientTag, Jitter, Key, Kind, NodeSet, Op, Outcome, QueueEntry, Renewal, Reply, Terms, Time, token,
};

use crate::Answering;
use crate::watch::{Watch, look};

pub(crate) const NAME: &[u8] = b"x";
const CLIENTS: usize = 5;
const STEPS: usize = 700;
const UUID: &str = "3f0e9a51-6a0e-4d2c-9b7e-1c2d3e4f5a6";

enum Event {
    /// A request arrives at the server; its answer goes to the client unless it is lost.
    Arrives { client: usize, op: Op, sent_at: u64, answer_delay: Option<u64> },
    /// An answer arrives.
    Answered { client: usize, op: Op, sent_at: u64, reply: Reply },
    /// A client does what is next.
    Acts { client: usize },
    /// A client that waits was told that it is its turn.
    Told { token: String },
}

/// What happened, so that a run that looks at nothing is noticed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) downgrades: u64,
    pub(crate) handovers: u64,
    pub(crate) kept: u64,
    pub(crate) deaths: u64,
    pub(crate) told: u64,
    /// Several were believed to read at once.
    pub(crate) together: u64,
}

impl Counts {
    pub(crate) fn each(&self) -> [(&'static str, u64); 8] {
        let Counts { reads, writes, downgrades, handovers, kept, deaths, told, together } = *self;
        [
            ("a read", reads),
            ("a write", writes),
            ("a downgrade", downgrades),
            ("a handover", handovers),
            ("a release that keeps the key", kept),
            ("a death", deaths),
            ("a direct grant", told),
            ("reading together", together),
        ]
    }

    pub(crate) fn add(&mut self, more: &Counts) {
        self.reads += more.reads;
        self.writes += more.writes;
        self.downgrades += more.downgrades;
        self.handovers += more.handovers;
        self.kept += more.kept;
        self.deaths += more.deaths;
        self.told += more.told;
        self.together += more.together;
    }
}

#[derive(Default)]
pub(crate) struct Client {
    claim: Option<Claim>,
    /// The token that it was handed, until the answer is there.
    from: Option<String>,
    /// It may write. False from the moment at which a downgrade is sent.
    pub(crate) writes: bool,
    downgrading: bool,
    /// Until when it believes that it holds.
    pub(crate) deadline: Option<u64>,
    releases_at: u64,
    place: Option<u64>,
    is_try: bool,
}

pub(crate) struct World {
    model: Model,
    answering: Answering,
    terms: Terms,
    dice: Jitter,
    queue: BTreeMap<(u64, u64), Event>,
    number: u64,
    pub(crate) now: u64,
    pub(crate) clients: Vec<Client>,
    /// Drift of the server's clock, in thousandths.
    drift: i64,
    counts: Counts,
}

impl World {
    pub(crate) fn new(seed: u64, answering: Answering) -> World {
        let mut dice = Jitter::new(seed);
        let drift = dice.below(17).cast_signed() - 8;
        let mut world = World {
            model: Model::new(),
            answering,
            terms: Terms { ttl: Duration::from_secs(1), ..Terms::default() },
            dice,
            queue: BTreeMap::new(),
            number: 0,
            now: 0,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            drift,
            counts: Counts::default(),
        };
        for client in 0..CLIENTS {
            world.model.listen(&Key::from(NAME), ClientTag(client as u64), true);
            world.after(client as u64, Event::Acts { client });
        }
        world
    }

    /// In microseconds from now.
    fn after(&mut self, delay_us: u64, event: Event) {
        self.number += 1;
        self.queue.insert((self.now + delay_us, self.number), event);
    }

    fn server_us(&self) -> u64 {
        let drifted = self.now.cast_signed() + self.now.cast_signed() * self.drift / 1000;
        1_700_000_000_000_000 + drifted.cast_unsigned()
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.dice.below(chances) == 0
    }

    /// Sends a request: it may be lost, late, or arrive twice, and so may its answer.
    fn send(&mut self, client: usize, op: &Op) {
        let sent_at = self.now;
        let copies = if self.one_in(6) { 2 } else { 1 };
        for _ in 0..copies {
            if self.one_in(12) {
                continue;
            }
            let delay = if self.one_in(10) { self.dice.below(3_000_000) } else { self.dice.below(20_000) };
            let answer_delay = if self.one_in(10) { None } else { Some(self.dice.below(60_000)) };
            self.after(delay, Event::Arrives { client, op: op.clone(), sent_at, answer_delay });
        }
    }

    fn fresh_claim(&mut self, client: usize, kind: Kind) -> Claim {
        let token = token::field(&format!("{UUID}{client:x}"), self.dice.next_u64());
        Claim { kind, key: Key::from(NAME), token }
    }

    fn ttl_ms(&self) -> u64 {
        self.terms.server_ttl_ms(self.terms.ttl)
    }

    /// Asks for what it wants, or claims a grant that it was told of.
    fn asks(&mut self, client: usize) {
        let ttl_ms = self.ttl_ms();
        let it = &self.clients[client];
        let Some(claim) = it.claim.clone() else { return };
        let op = if let Some(from) = &it.from {
            Op::Attach { claim, from: from.as_str().into(), ttl_ms, info: None }
        } else {
            let window_ms = if it.is_try { 0 } else { 1500 };
            let entry = QueueEntry { client: ClientTag(client as u64), window_ms, place: it.place, listens: true };
            Op::Enter { claim, ttl_ms, fence_ttl_ms: 60_000, info: None, entry }
        };
        self.send(client, &op);
    }

    fn begins(&mut self, client: usize) {
        let kind = if self.one_in(3) { Kind::Write } else { Kind::Read };
        let claim = self.fresh_claim(client, kind);
        let is_try = self.one_in(3);
        self.clients[client] = Client { claim: Some(claim), writes: kind == Kind::Write, is_try, ..Client::default() };
        self.asks(client);
    }

    /// Ends what it has: released, kept for its shortest time, handed over, or just dead.
    fn ends(&mut self, client: usize) {
        let Client { claim, writes, deadline, .. } = std::mem::take(&mut self.clients[client]);
        let Some(claim) = claim else { return };
        let believes = deadline.is_some_and(|deadline| self.now < deadline);
        match self.dice.below(if believes { 8 } else { 4 }) {
            0 => self.counts.deaths += 1,
            1..=3 => self.send(client, &Op::Undo { claim, nodes: NodeSet::ALL, quiet: false }),
            4 | 5 => self.send(client, &Op::Release { claim }),
            6 => {
                self.counts.kept += 1;
                let rest_ms = 1 + self.dice.below(500);
                self.send(client, &Op::Retain { claim, nodes: NodeSet::ALL, rest_ms });
            }
            _ => {
                let other = self.dice.below(CLIENTS as u64) as usize;
                if self.clients[other].claim.is_none() {
                    let kind = if writes { Kind::Write } else { Kind::Read };
                    let fresh = self.fresh_claim(other, kind);
                    let from = Some(claim.token.to_string());
                    self.clients[other] = Client { claim: Some(fresh), from, writes, ..Client::default() };
                    self.asks(other);
                }
            }
        }
    }

    fn acts(&mut self, client: usize) {
        let (now, ttl_ms) = (self.now, self.ttl_ms());
        let it = &self.clients[client];
        let believes = it.deadline.is_some_and(|deadline| now < deadline);
        let over = it.deadline.is_some() && (!believes || now >= it.releases_at);
        match it.claim.clone() {
            None => self.begins(client),
            Some(_) if over || !believes && self.one_in(8) => self.ends(client),
            Some(claim) if believes => {
                if (self.clients[client].writes && self.one_in(4)) || self.clients[client].downgrading {
                    self.clients[client].writes = false;
                    self.clients[client].downgrading = true;
                    let claim = Claim { kind: Kind::Write, ..claim };
                    self.send(client, &Op::Downgrade { claim, ttl_ms, fence_ttl_ms: 60_000, info: None });
                } else if self.one_in(6) {
                    self.send(client, &Op::SetCount { claim, count: 2, ttl_ms });
                } else {
                    self.send(client, &Op::Renew { holds: vec![(claim, ttl_ms)] });
                }
            }
            // no answer, or refused: once more
            Some(_) => self.asks(client),
        }
        let pause = self.dice.below(400_000);
        self.after(pause, Event::Acts { client });
    }

    fn answered(&mut self, client: usize, op: &Op, sent_at: u64, reply: &Reply) {
        let deadline = self.terms.deadline(Time::from_nanos(sent_at * 1000), self.terms.ttl);
        let deadline = deadline.since(Time::ZERO).as_micros() as u64;
        let (now, releases_at) = (self.now, self.now + self.dice.below(4_000_000));
        let it = &mut self.clients[client];
        let (Op::Enter { claim, .. }
        | Op::Attach { claim, .. }
        | Op::Downgrade { claim, .. }
        | Op::SetCount { claim, .. }) = op
        else {
            let (Op::Renew { holds }, Reply::Renewed(verdicts)) = (op, reply) else { return };
            if it.claim.as_ref().is_some_and(|claim| claim.token == holds[0].0.token) {
                it.renewed(now, deadline, verdicts[0] == Renewal::Renewed);
            }
            return;
        };
        if it.claim.as_ref().is_none_or(|own| own.token != claim.token) {
            return;
        }
        match (op, reply) {
            (Op::Enter { .. } | Op::Attach { .. }, Reply::Granted { .. })
                if it.deadline.is_none() && now < deadline =>
            {
                it.deadline = Some(deadline);
                it.releases_at = releases_at;
                let counts = &mut self.counts;
                let count = if it.writes { &mut counts.writes } else { &mut counts.reads };
                *count += 1;
                counts.handovers += u64::from(it.from.is_some());
            }
            (Op::Enter { .. }, Reply::Queued { place, .. }) => it.place = Some(*place),
            (Op::Downgrade { .. }, Reply::Granted { .. }) => {
                self.counts.downgrades += u64::from(it.downgrading);
                it.downgrading = false;
                it.renewed(now, deadline, true);
            }
            (Op::Downgrade { .. }, _) => it.renewed(now, deadline, false),
            (Op::SetCount { .. }, Reply::Counted(there)) => it.renewed(now, deadline, *there),
            _ => {}
        }
    }

    fn arrives(
        &mut self,
        watch: &mut Watch,
        client: usize,
        op: Op,
        sent_at: u64,
        answer_delay: Option<u64>,
    ) -> Result<(), String> {
        let (server_us, dice) = (self.server_us(), self.dice.next_u64());
        let before = look(&self.model, server_us);
        let answer = (self.answering)(&mut self.model, server_us, &op, dice);
        watch.answered(&self.model, server_us, &before, &op, &answer)?;
        for grant in answer.granted {
            self.counts.told += 1;
            if !self.one_in(5) {
                let delay = self.dice.below(60_000);
                self.after(delay, Event::Told { token: grant.claim.token.to_string() });
            }
        }
        if let (Some(delay), Outcome::Applied(reply)) = (answer_delay, answer.outcome) {
            self.after(delay, Event::Answered { client, op, sent_at, reply });
        }
        Ok(())
    }

    /// What is wrong with what is believed now.
    fn believed(&mut self) -> Result<(), String> {
        let holding = self.clients.iter().filter(|client| client.deadline.is_some_and(|end| self.now < end));
        let (writing, reading): (Vec<_>, Vec<_>) = holding.partition(|client| client.writes);
        if writing.len() > 1 || !writing.is_empty() && !reading.is_empty() {
            return Err(format!("{} believe that they write and {} that they read", writing.len(), reading.len()));
        }
        self.counts.together += u64::from(reading.len() > 1);
        Ok(())
    }

    pub(crate) fn run(mut self) -> Result<Counts, String> {
        let mut watch = Watch::default();
        for step in 0..STEPS {
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            self.now = at;
            let done = match event {
                Event::Arrives { client, op, sent_at, answer_delay } => {
                    self.arrives(&mut watch, client, op, sent_at, answer_delay)
                }
                Event::Answered { client, op, sent_at, reply } => {
                    self.answered(client, &op, sent_at, &reply);
                    Ok(())
                }
                Event::Acts { client } => {
                    self.acts(client);
                    Ok(())
                }
                Event::Told { token } => {
                    let of = |claim: &Claim| *claim.token == *token;
                    if let Some(client) = self.clients.iter().position(|it| it.claim.as_ref().is_some_and(of)) {
                        self.asks(client);
                    }
                    Ok(())
                }
            };
            done.and_then(|()| self.believed()).map_err(|what| format!("step {step}, {} us: {what}", self.now))?;
        }
        Ok(self.counts)
    }
}

impl Client {
    fn renewed(&mut self, now: u64, deadline: u64, there: bool) {
        match self.deadline {
            Some(old) if now < old => self.deadline = Some(if there { old.max(deadline) } else { now }),
            _ => {}
        }
    }
}
