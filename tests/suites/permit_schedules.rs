//! Never more permits are believed held than there are, under lost, late and doubled requests, clocks that drift, a server
//! that loses the number, and permits that somebody deletes: random schedules of clients against the modelled server, with
//! the core's own arithmetic of deadlines. Each of the planted bugs has to be caught.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onelock::machine::model::{Model, ModelReply, Value};
use onelock::machine::{Claim, Jitter, Key, Kind, NodeSet, Op, Outcome, Renewal, Reply, Terms, Time, naming, token};

const PERMITS: u32 = 4;
const CLIENTS: usize = 5;
const NAME: &[u8] = b"x";
const STEPS: usize = 900;
const SEEDS: u64 = 400;

/// How the server answers; the last argument is how far the client's clock is ahead of the server's, in us.
type Answering = fn(&mut Model, u64, &Op, i64) -> ModelReply;

enum Event {
    /// A request arrives at the server; its answer goes to the client unless it is lost.
    Arrives { client: usize, op: Op, sent_at: u64, answer_delay: Option<u64> },
    /// An answer arrives.
    Answered { client: usize, op: Op, sent_at: u64, reply: Reply },
    /// A client does what is next.
    Acts { client: usize },
    /// The number of free permits is deleted.
    LosesCount,
    /// One permit of somebody's is deleted and freed.
    LosesPermit,
}

#[derive(Default)]
struct Client {
    claim: Option<Claim>,
    count: u32,
    /// Until when it believes that it holds.
    deadline: Option<u64>,
    releases_at: u64,
    /// When one of its permits was deleted.
    robbed_at: Option<u64>,
    ahead_us: i64,
}

struct World {
    model: Model,
    answering: Answering,
    terms: Terms,
    dice: Jitter,
    queue: BTreeMap<(u64, u64), Event>,
    number: u64,
    now: u64,
    clients: Vec<Client>,
    /// Drift of the server's clock, in thousandths.
    drift: i64,
    granted: u64,
}

impl World {
    fn new(seed: u64, answering: Answering) -> World {
        let mut dice = Jitter::new(seed);
        let terms = Terms { ttl: Duration::from_secs(1), ..Terms::default() };
        let drift = dice.below(17).cast_signed() - 8;
        let mut world = World {
            model: Model::new(),
            answering,
            terms,
            queue: BTreeMap::new(),
            number: 0,
            now: 0,
            clients: Vec::new(),
            drift,
            granted: 0,
            dice,
        };
        for client in 0..CLIENTS {
            let ahead_us = world.dice.below(4_000_000).cast_signed() - 2_000_000;
            world.clients.push(Client { ahead_us, ..Client::default() });
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

    fn fresh_claim(&mut self, count: u32) -> Claim {
        let random = (u128::from(self.dice.next_u64()) << 64 | u128::from(self.dice.next_u64())).to_be_bytes();
        Claim { kind: Kind::Semaphore, key: Key::from(NAME), token: token::permits(random, count as u16) }
    }

    fn acts(&mut self, client: usize) {
        let ttl_ms = self.terms.server_ttl_ms(self.terms.ttl);
        let now = self.now;
        let believes = self.clients[client].deadline.is_some_and(|deadline| now < deadline);
        let claim = self.clients[client].claim.clone();
        match claim {
            Some(claim) if believes && now < self.clients[client].releases_at => {
                self.send(client, &Op::Renew { holds: vec![(claim, ttl_ms)] });
            }
            // released, given up, or lost: what may be left is undone
            Some(claim) if self.clients[client].deadline.is_some() => {
                self.clients[client].deadline = None;
                self.clients[client].claim = None;
                self.clients[client].robbed_at = None;
                self.send(client, &Op::Undo { claim, nodes: NodeSet::ALL, quiet: false });
            }
            Some(claim) => {
                // no answer, or refused: the same token again, or given up
                if self.one_in(8) {
                    self.clients[client].claim = None;
                    self.send(client, &Op::Undo { claim, nodes: NodeSet::ALL, quiet: false });
                } else {
                    self.send(client, &Op::AcquirePermits { claim, total: Some(PERMITS), ttl_ms });
                }
            }
            None => {
                let count = 1 + self.dice.below(3) as u32;
                let claim = self.fresh_claim(count);
                self.clients[client].claim = Some(claim.clone());
                self.clients[client].count = count;
                self.send(client, &Op::AcquirePermits { claim, total: Some(PERMITS), ttl_ms });
            }
        }
        let pause = self.dice.below(400_000);
        self.after(pause, Event::Acts { client });
    }

    fn answered(&mut self, client: usize, op: &Op, sent_at: u64, reply: &Reply) {
        let deadline = self.terms.deadline(Time::from_nanos(sent_at * 1000), self.terms.ttl);
        let deadline = deadline.since(Time::ZERO).as_micros() as u64;
        let releases_at = self.now + self.dice.below(6_000_000);
        let now = self.now;
        let it = &mut self.clients[client];
        match (op, reply) {
            (Op::AcquirePermits { claim, .. }, Reply::Granted { .. })
                if it.claim.as_ref() == Some(claim) && it.deadline.is_none() && now < deadline =>
            {
                it.deadline = Some(deadline);
                it.releases_at = releases_at;
                self.granted += 1;
            }
            (Op::Renew { holds }, Reply::Renewed(verdicts)) if it.claim.as_ref() == Some(&holds[0].0) => {
                match (&verdicts[0], it.deadline) {
                    (Renewal::Renewed, Some(old)) if now < old => it.deadline = Some(old.max(deadline)),
                    (Renewal::NotMine, Some(old)) => it.deadline = Some(old.min(now)),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn loses_permit(&mut self) {
        let server_us = self.server_us();
        let believing: Vec<usize> = (0..CLIENTS)
            .filter(|at| self.clients[*at].count > 1 && self.clients[*at].deadline.is_some_and(|end| self.now < end))
            .collect();
        let Some(&client) = believing.first() else { return };
        let token = self.clients[client].claim.as_ref().unwrap().token.clone();
        let (prefix, _) = token::parse_permits(&token).unwrap();
        let permits: Key = naming::permits_key(NAME).into();
        let live = self.model.live(server_us).into_iter().find(|live| live.key == permits);
        let Some(Value::Sorted(mut held)) = live.map(|live| live.value) else { return };
        if held.remove(token::permit_id(prefix, 0).as_slice()).is_some() {
            self.model.set_foreign(server_us, &permits, Value::Sorted(held), Some(600_000));
            write_free(&mut self.model, server_us, 1);
            self.clients[client].robbed_at.get_or_insert(self.now);
        }
    }

    /// What is wrong now.
    fn violation(&mut self, after_script: bool) -> Option<String> {
        let now = self.now;
        let longest = 2 * self.terms.ttl.as_micros() as u64;
        for (number, client) in self.clients.iter().enumerate() {
            if client.deadline.is_some_and(|end| now < end) && client.robbed_at.is_some_and(|at| now > at + longest) {
                return Some(format!("client {number} goes on without one of its permits"));
            }
        }
        let holding = |client: &&Client| client.deadline.is_some_and(|end| now < end) && client.robbed_at.is_none();
        let believed: u32 = self.clients.iter().filter(holding).map(|client| client.count).sum();
        if believed > PERMITS {
            return Some(format!("{believed} permits are believed held"));
        }
        let (free, held) = state(&self.model, self.server_us());
        if after_script && free.is_some_and(|free| free + held != i64::from(PERMITS)) {
            return Some(format!("{free:?} are free and {held} held"));
        }
        None
    }

    fn run(mut self) -> Result<u64, String> {
        for step in 0..STEPS {
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            self.now = at;
            let mut after_script = false;
            match event {
                Event::Arrives { client, op, sent_at, answer_delay } => {
                    let (server_us, ahead_us) = (self.server_us(), self.clients[client].ahead_us);
                    let answer = (self.answering)(&mut self.model, server_us, &op, ahead_us);
                    after_script = true;
                    if let (Some(delay), Outcome::Applied(reply)) = (answer_delay, answer.outcome) {
                        self.after(delay, Event::Answered { client, op, sent_at, reply });
                    }
                }
                Event::Answered { client, op, sent_at, reply } => self.answered(client, &op, sent_at, &reply),
                Event::Acts { client } => self.acts(client),
                Event::LosesCount => {
                    let server_us = self.server_us();
                    self.model.del(server_us, NAME);
                }
                Event::LosesPermit => self.loses_permit(),
            }
            if let Some(what) = self.violation(after_script) {
                return Err(format!("step {step}, {} us: {what}", self.now));
            }
            if self.one_in(300) {
                self.after(0, Event::LosesCount);
            } else if self.one_in(250) {
                self.after(0, Event::LosesPermit);
            }
        }
        Ok(self.granted)
    }
}

/// The number of free permits, if it is there, and how many entries there are.
fn state(model: &Model, server_us: u64) -> (Option<i64>, i64) {
    let permits = naming::permits_key(NAME);
    let (mut free, mut held) = (None, 0);
    for live in model.live(server_us) {
        match live.value {
            Value::Text(text) if *live.key == *NAME => free = std::str::from_utf8(&text).unwrap().parse().ok(),
            Value::Sorted(entries) if *live.key == *permits => held = i64::try_from(entries.len()).unwrap(),
            _ => {}
        }
    }
    (free, held)
}

/// Changes the number of free permits as no script does.
fn write_free(model: &mut Model, server_us: u64, more: i64) {
    if let (Some(free), _) = state(model, server_us) {
        let text: Arc<[u8]> = (free + more).to_string().into_bytes().into();
        model.set_foreign(server_us, NAME, Value::Text(text), Some(600_000_000));
    }
}

fn count_of(op: &Op) -> i64 {
    match op {
        Op::AcquirePermits { claim, .. } | Op::Undo { claim, .. } => {
            i64::from(token::parse_permits(&claim.token).unwrap().1)
        }
        _ => 0,
    }
}

#[test]
fn never_more_are_believed_held_than_there_are() {
    let mut granted = 0;
    for seed in 0..SEEDS {
        granted += World::new(seed, |model, now_us, op, _| model.apply(now_us, op))
            .run()
            .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    assert!(granted > 10 * SEEDS, "only {granted} grants: these schedules look at too little");
}

const PLANTED: [(&str, Answering); 5] = [
    ("permits swept by the client's clock", |model, now_us, op, ahead_us| {
        model.apply(now_us.saturating_add_signed(ahead_us), op)
    }),
    ("a resent acquire takes again", |model, now_us, op, _| {
        let answer = model.apply(now_us, op);
        if matches!(answer.outcome, Outcome::Applied(Reply::Granted { again: true, .. })) {
            write_free(model, now_us, -count_of(op));
        }
        answer
    }),
    ("a release frees n though some had ended", |model, now_us, op, _| {
        let answer = model.apply(now_us, op);
        if matches!(answer.outcome, Outcome::Applied(Reply::Released(false))) {
            write_free(model, now_us, count_of(op));
        }
        answer
    }),
    ("a lost number is made anew without those that are held", |model, now_us, op, _| match op {
        Op::AcquirePermits { claim, ttl_ms, .. } if state(model, now_us).0.is_none() => {
            let text: Arc<[u8]> = PERMITS.to_string().into_bytes().into();
            model.set_foreign(now_us, NAME, Value::Text(text), Some(600_000_000));
            model.apply(now_us, &Op::AcquirePermits { claim: claim.clone(), total: None, ttl_ms: *ttl_ms })
        }
        op => model.apply(now_us, op),
    }),
    ("a lease goes on without one of its permits", |model, now_us, op, _| {
        let mut answer = model.apply(now_us, op);
        if let Outcome::Applied(Reply::Renewed(verdicts)) = &mut answer.outcome {
            verdicts.fill(Renewal::Renewed);
        }
        answer
    }),
];

#[test]
fn every_planted_bug_is_caught() {
    for (bug, answering) in PLANTED {
        let caught = (0..SEEDS).find_map(|seed| World::new(seed, answering).run().err());
        assert!(caught.is_some(), "{bug}: not caught in {SEEDS} schedules");
    }
}
