//! What is done to both sides: operations of ours, and what other clients and operators do. Drawn from a seed, and
//! independent of any reply, so that a failing sequence can be cut down and run again.

use std::sync::Arc;

use onelock::Kind;
use onelock::machine::model::Value;
use onelock::machine::{Claim, ClientTag, Jitter, Key, NodeSet, Op, Proposal, QueueEntry, naming};

/// This client listens for its grants, the others don't.
pub(crate) const LISTENER: ClientTag = ClientTag(1);

/// The keys of all locks.
pub(crate) fn keys() -> [Key; 5] {
    let long = [b'n'; 512];
    [&b"orders"[..], b"{tag}:42", b"half{open", b"\x00\xff\r\n \x80*", &long].map(Key::from)
}

/// One thing that is done to both sides.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// One of our operations.
    Ask(Op),
    /// Another client writes a key, over whatever stands there; with or without time to live.
    Write { key: Key, value: Value, ttl_ms: Option<u64> },
    /// `DEL` of a lock or of a counter.
    Del(Key),
    /// `FLUSHALL`.
    Flush,
    /// `SCRIPT FLUSH`: the next operation must bring its script along.
    ScriptFlush,
}

/// Times to live that nothing outlives by accident. Far apart, so that a wrong one is far off.
const LONG_MS: [u64; 3] = [600_000, 1_200_000, 6_000_000];
/// Times to live whose end is waited for before the next step.
const SHORT_MS: [u64; 3] = [1, 4, 15];

/// A thread of Redisson's.
const JAVA: &str = "d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:57";
const UUID: &str = "6f1d2c8e-0b1a-4c55-9e11-2a7f3b9c0d42";

fn token(kind: Kind, number: u64) -> Arc<str> {
    match kind {
        Kind::Mutex if number == 2 => format!("onelock1:{number:032x}:label%2C,7,host,12").into(),
        Kind::Mutex | Kind::Fair => format!("onelock1:{number:032x}").into(),
        // of one, two and three permits
        Kind::Semaphore => format!("{number:028x}:{}", number + 1).into(),
        _ => format!("{UUID}:{number}").into(),
    }
}

/// Draws steps. Every fourth sequence is mostly about the permits of one name, since it takes many that wait for them to meet.
/// What is looked at in between, and what waiters tell of themselves, is drawn apart.
pub(crate) struct Draw(Jitter, bool, Jitter);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(Jitter::new(seed), seed.is_multiple_of(4), Jitter::new(!seed))
    }

    pub(crate) fn steps(&mut self, count: usize) -> Vec<Step> {
        // these sequences seldom look at what is no lock: once at the beginning
        let key = keys()[3].clone();
        let look = [Step::Write { key: key.clone(), value: Value::List, ttl_ms: None }, Step::Ask(Op::Inspect { key })];
        let first = if self.1 { look.to_vec() } else { Vec::new() };
        let queue = if self.2.below(16) == 0 { self.long_queue() } else { Vec::new() };
        first.into_iter().chain(queue).chain((0..count).flat_map(|_| self.step_and_look())).collect()
    }

    /// A step, and sometimes a look at the queue that it changed.
    fn step_and_look(&mut self) -> Vec<Step> {
        let step = self.step();
        let key = match &step {
            Step::Ask(
                Op::Enter { claim, .. }
                | Op::AcquirePermits { claim, .. }
                | Op::Release { claim }
                | Op::Acquire { claim, .. },
            ) => claim.key.clone(),
            _ => keys()[0].clone(),
        };
        let look = (self.2.below(8) == 0).then_some(Step::Ask(Op::InspectQueue { key }));
        [step].into_iter().chain(look).collect()
    }

    /// More places than are looked at, some of them dead, one of them first.
    fn long_queue(&mut self) -> Vec<Step> {
        let key = keys()[0].clone();
        let mut enter = |number: u64| {
            let token = format!("onelock1:{number:032x}").into();
            let claim = Claim { kind: Kind::Fair, key: key.clone(), token };
            let window_ms = if number % 5 == 1 { 1 } else { 3_000 };
            let entry = QueueEntry { client: ClientTag(1), window_ms, place: None, listens: false };
            let info = (self.2.below(2) == 0).then(|| format!("onelock1:00:label,{number},host,12").into());
            Step::Ask(Op::Enter { claim, ttl_ms: 600_000, fence_ttl_ms: 600_000, info, entry })
        };
        let mut steps: Vec<Step> = (100..180).map(&mut enter).collect();
        steps.push(Step::Ask(Op::InspectQueue { key: keys()[0].clone() }));
        steps
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.0.below(chances) == 0
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.0.below(choices.len() as u64) as usize].clone()
    }

    fn step(&mut self) -> Step {
        match self.0.below(40) {
            0..=2 => Step::Write { key: self.key(), value: self.foreign_lock(), ttl_ms: self.foreign_ttl() },
            3 => Step::Write { key: self.counter_key(), value: self.counter(), ttl_ms: self.foreign_ttl() },
            4 => Step::Del(self.key()),
            5 if self.one_in(2) => Step::Del(naming::permits_key(&self.key()).into()),
            5 => Step::Del(self.counter_key()),
            7 if self.one_in(3) => Step::Del(naming::readers_key(&keys()[0]).into()),
            // a reader of Redisson's with two holds, and ours that was evicted
            8 if self.one_in(2) => {
                let mut name = naming::timeout_key(&keys()[0], JAVA);
                name.pop();
                name.push(self.pick(b"12"));
                Step::Write { key: name.into(), value: Value::Text(Key::from(&b"1"[..])), ttl_ms: Some(self.ttl()) }
            }
            8 if self.one_in(2) => Step::Del(naming::timeout_key(&keys()[0], &format!("{UUID}:1")).into()),
            7 if self.one_in(2) => Step::Write {
                key: naming::permits_key(&self.key()).into(),
                value: self.permits(),
                ttl_ms: self.foreign_ttl(),
            },
            6 => self.pick(&[Step::Flush, Step::ScriptFlush]),
            _ if self.one_in(16) => Step::Ask(self.many()),
            _ => Step::Ask(self.op()),
        }
    }

    fn op(&mut self) -> Op {
        if self.1 && !self.one_in(5) {
            return self.permits_op();
        }
        match self.0.below(100) {
            0..=3 => Op::Acquire {
                claim: self.free_for_all(),
                ttl_ms: self.ttl(),
                fence_ttl_ms: if self.one_in(6) { None } else { Some(self.ttl()) },
                info: if self.one_in(3) { Some("onelock1:00:label%2C,7,host,12".into()) } else { None },
            },
            4..=6 => {
                let count = 1 + self.0.below(4);
                Op::Renew { holds: (0..count).map(|_| (self.any_claim(), self.ttl())).collect() }
            }
            7..=8 => Op::SetCount { claim: self.free_for_all(), count: 1 + self.0.below(5), ttl_ms: self.ttl() },
            9..=10 => Op::Release { claim: self.any_claim() },
            11 | 98 => Op::Inspect { key: self.key() },
            12..=14 => {
                // what is proposed comes from another clock, or from none
                let base = self.pick(&[1, 7, 1_500_000_000_000_000]);
                let fence = (!self.one_in(6)).then(|| Proposal { base, ttl_ms: self.ttl() });
                Op::Vote { claim: self.free_for_all(), ttl_ms: self.ttl(), fence, info: None }
            }
            15 => {
                let fence = self.pick(&[3, 1_500_000_000_000_000, 4_000_000_000_000_000]);
                Op::WriteBack { claim: self.free_for_all(), fence, fence_ttl_ms: self.ttl() }
            }
            16 => Op::Undo { claim: self.any_claim(), nodes: NodeSet::ALL, quiet: self.one_in(2) },
            17..=18 => Op::Retain { claim: self.any_claim(), nodes: NodeSet::ALL, rest_ms: self.ttl() },
            19..=20 | 56..=61 => {
                let claim = self.any_claim();
                let number = self.0.below(3);
                let info = self.one_in(3).then(|| "onelock1:00:label%2C,7,host,13".into());
                Op::Attach { from: token(claim.kind, number), claim, ttl_ms: self.ttl(), info }
            }
            21..=25 | 29..=32 => self.acquire_permits(),
            26 => Op::InspectPermits { key: self.key() },
            27 => Op::SetPermits { key: self.key(), total: self.pick(&[4, 3, 1]) },
            28 if self.one_in(2) => Op::ForceReleasePermits { key: self.key() },
            33..=44 => self.enter(),
            45..=46 => Op::Release { claim: self.permits_claim() },
            // who gives up a place, or hands the lock over
            47..=54 => Op::Release { claim: self.fair() },
            62..=80 => self.share(),
            81..=90 => Op::Release { claim: self.shared() },
            91..=92 => {
                let info = self.one_in(3).then(|| "onelock1:00:label%2C,7,host,12".into());
                let claim = Claim { kind: Kind::Write, ..self.shared() };
                Op::Downgrade { claim, ttl_ms: self.ttl(), fence_ttl_ms: self.ttl(), info }
            }
            93 => Op::Renew { holds: vec![(self.any_claim(), self.ttl())] },
            94 => Op::Renew { holds: vec![(self.shared(), self.ttl()), (self.shared(), self.ttl())] },
            95 => Op::SetCount { claim: self.shared(), count: 2, ttl_ms: self.ttl() },
            96 => Op::Retain { claim: self.shared(), nodes: NodeSet::ALL, rest_ms: self.ttl() },
            97 => {
                let claim = self.shared();
                let from = token(claim.kind, self.0.below(3));
                Op::Attach { from, claim, ttl_ms: self.ttl(), info: self.one_in(3).then(|| "onelock1:x".into()) }
            }

            _ => Op::ForceRelease { key: self.key(), foreign: self.one_in(2) },
        }
    }

    /// Mostly of one key, since it takes several waiters of one lock to meet.
    fn fair(&mut self) -> Claim {
        let number = self.0.below(4);
        let key = if self.one_in(4) { self.key() } else { keys()[0].clone() };
        Claim { kind: Kind::Fair, key, token: token(Kind::Fair, number) }
    }

    /// Mostly of one key, too; a reader and a writer may be one owner.
    fn shared(&mut self) -> Claim {
        let kind = self.pick(&[Kind::Read, Kind::Write]);
        let key = if self.one_in(4) { self.key() } else { keys()[0].clone() };
        Claim { kind, key, token: token(kind, self.0.below(4)) }
    }

    fn share(&mut self) -> Op {
        match self.enter() {
            Op::Enter { ttl_ms, fence_ttl_ms, info, entry, .. } => {
                Op::Enter { claim: self.shared(), ttl_ms, fence_ttl_ms, info, entry }
            }
            other => other,
        }
    }

    fn permits_op(&mut self) -> Op {
        let claim = self.permits_claim();
        match self.0.below(16) {
            0..=8 => self.acquire_permits(),
            9..=12 => Op::Release { claim },
            13 => Op::Undo { claim, nodes: NodeSet::ALL, quiet: self.one_in(2) },
            14 if self.one_in(2) => Op::Retain { claim, nodes: NodeSet::ALL, rest_ms: self.ttl() },
            14 => Op::ForceReleasePermits { key: claim.key },
            _ => Op::SetPermits { key: claim.key, total: self.pick(&[4, 4, 3, 5]) },
        }
    }

    /// Mostly of one key, too, and none that the other kinds use much.
    fn permits_claim(&mut self) -> Claim {
        let key = if self.one_in(4) { self.key() } else { keys()[2].clone() };
        Claim { kind: Kind::Semaphore, key, token: token(Kind::Semaphore, self.0.below(4)) }
    }

    fn acquire_permits(&mut self) -> Op {
        let total = if self.one_in(4) { None } else { Some(self.pick(&[4, 4, 4, 3])) };
        let info = (self.2.below(3) == 0).then(|| "onelock1:00:label%2C,7,host,14".into());
        Op::AcquirePermits { claim: self.permits_claim(), total, ttl_ms: self.ttl(), info, entry: self.entry() }
    }

    fn entry(&mut self) -> QueueEntry {
        QueueEntry {
            client: ClientTag(self.0.below(3)),
            window_ms: self.pick(&[0, 1, 20, 600, 3_000, 3_000]),
            place: if self.one_in(4) {
                Some(self.pick(&[1, 1_500_000_000_000_000, 4_000_000_000_000_000]))
            } else {
                None
            },
            listens: self.one_in(2),
        }
    }

    fn enter(&mut self) -> Op {
        let entry = self.entry();
        let claim = self.fair();
        let info = self.one_in(3).then(|| "onelock1:00:label%2C,7,host,12".into());
        Op::Enter { claim, ttl_ms: self.ttl(), fence_ttl_ms: self.ttl(), info, entry }
    }

    /// Several mutexes at once; most of those that are taken are the first two, and none twice.
    fn many(&mut self) -> Op {
        let count = 1 + self.0.below(3);
        if self.one_in(3) {
            return Op::ReleaseMany { claims: (0..count).map(|_| self.claim_of(Kind::Mutex)).collect() };
        }
        let mut keys = keys().to_vec();
        let mut claims = Vec::new();
        for _ in 0..count {
            let upto = if self.one_in(3) { keys.len() as u64 } else { 2 };
            let key = keys.remove(self.0.below(upto) as usize);
            let token = token(Kind::Mutex, self.0.below(3));
            claims.push((Claim { kind: Kind::Mutex, key, token }, self.ttl()));
        }
        Op::AcquireMany { claims, fenced: !self.one_in(4) }
    }

    fn key(&mut self) -> Key {
        let keys = keys();
        // mostly the first two, so that steps meet
        let upto = if self.one_in(3) { keys.len() } else { 2 };
        self.pick(&keys[..upto])
    }

    fn counter_key(&mut self) -> Key {
        naming::fence_key(&self.key()).into()
    }

    /// Of a kind that is free to whoever comes first.
    fn free_for_all(&mut self) -> Claim {
        let kind = self.pick(&[Kind::Mutex, Kind::Reentrant]);
        self.claim_of(kind)
    }

    /// One of any kind, for operations that all have.
    fn any_claim(&mut self) -> Claim {
        let kind = self.pick(&[Kind::Mutex, Kind::Reentrant, Kind::Fair, Kind::Semaphore, Kind::Semaphore]);
        self.claim_of(kind)
    }

    fn claim_of(&mut self, kind: Kind) -> Claim {
        let number = self.0.below(3);
        Claim { kind, key: self.key(), token: token(kind, number) }
    }

    fn ttl(&mut self) -> u64 {
        if self.one_in(12) { self.pick(&SHORT_MS) } else { self.pick(&LONG_MS) }
    }

    fn foreign_ttl(&mut self) -> Option<u64> {
        if self.one_in(4) { None } else { Some(self.ttl()) }
    }

    /// What other clients keep under the name of a lock, and what looks like a hold of ours but came by another way.
    fn foreign_lock(&mut self) -> Value {
        let text = |text: &[u8]| Key::from(text);
        let (ours, owner, other) = (format!("onelock1:{:032x}", 0), format!("{UUID}:0"), format!("{UUID}:9"));
        let choices = [
            Value::Text(text(b"0f8a41c29d3b4e21a7d3f2b15c6e9a04")),
            Value::Text(text(b"")),
            Value::Text(text(&[b'x'; 5_000])),
            Value::Text(text(ours.as_bytes())),
            Value::Hash(vec![(text(b"d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:57"), text(b"2"))]),
            Value::Hash(vec![(text(owner.as_bytes()), text(b"3"))]),
            Value::Hash(vec![(text(owner.as_bytes()), text(b"1")), (text(b"onelock_fence"), text(b"none"))]),
            Value::Hash(vec![(text(b"onelock_fence"), text(b"5")), (text(owner.as_bytes()), text(b"1"))]),
            Value::Hash(vec![(text(b"mode"), text(b"read")), (text(owner.as_bytes()), text(b"1"))]),
            Value::Hash(vec![(text(b"mode"), text(b"write")), (text(b"java:1:write"), text(b"1"))]),
            Value::Hash(vec![(text(b"mode"), text(b"read")), (text(JAVA.as_bytes()), text(b"2"))]),
            Value::Hash(vec![(text(b"mode"), text(b"write")), (text(format!("{JAVA}:write").as_bytes()), text(b"1"))]),
            Value::Hash(vec![
                (text(b"mode"), text(b"read")),
                (text(JAVA.as_bytes()), text(b"2")),
                (text(owner.as_bytes()), text(b"1")),
                (text(b"onelock_fence"), text(b"t4000000000000000")),
            ]),
            // hashes that are no locks: no owner's field, one too many, more than a lock has, a giant
            Value::Hash(vec![(text(b"sku"), text(b"5"))]),
            Value::Hash(vec![(text(b"java:1"), text(b"1"))]),
            Value::Hash(vec![(text(owner.as_bytes()), text(b"1")), (text(other.as_bytes()), text(b"1"))]),
            Value::Hash(vec![(text(owner.as_bytes()), text(b"1")), (text(b"sku"), text(b"5"))]),
            // numbers: free permits, or what a server cannot count on
            Value::Text(text(b"4")),
            Value::Text(text(b"-1")),
            Value::Text(text(b"007")),
            Value::Text(text(b"12345678901")),
            Value::Hash((0..600).map(|n| (text(format!("field {n}").as_bytes()), text(b"1"))).collect()),
            Value::List,
        ];
        self.pick(&choices)
    }

    /// Permits as Redisson leaves them: long ended, without an end, and one of ours among them.
    fn permits(&mut self) -> Value {
        let permit = |number: u8, end: u64| (Key::from([number; 16].as_slice()), end);
        let ours = (Key::from([0; 16].as_slice()), 4_000_000_000_000);
        let never = permit(7, 922_337_203_685_477);
        let sets = [vec![permit(9, 1_000)], vec![never.clone()], vec![ours, never, permit(8, 3_000_000_000_000)]];
        if self.one_in(7) { Value::List } else { Value::Sorted(self.pick(&sets).into_iter().collect()) }
    }

    /// Counters as nobody of ours leaves them: from the future, at the end of exact numbers, or no number at all.
    fn counter(&mut self) -> Value {
        let texts: [&[u8]; 7] =
            [b"4000000000000000", b"9007199254740990", b"9007199254740991", b"17", b"0", b"garbage", b"semaphore"];
        if self.one_in(7) { Value::List } else { Value::Text(self.pick(&texts).into()) }
    }
}
