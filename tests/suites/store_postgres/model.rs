//! The modelled server answers as PostgreSQL does: the same random operations are done to both.

use onelock::machine::model::Model;
use onelock::machine::quorum::NodeSet;
use onelock::machine::{Claim, Kind, Op, Outcome, Reply, Time, TokenForm};
use onelock::store::Uninterrupted;
use onelock_tests::face::block_on;
use onelock_tests::stage::unhurried;

use crate::place::Table;

const SEQUENCES: u64 = 20;
const STEPS: usize = 100;
const TTL: u64 = 600_000;
/// Times to live may differ by what a busy machine puts between two lines.
const SLACK_MS: u64 = 5_000;

/// Draws numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: u64) -> u64 {
        // xorshift
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % count
    }

    fn claim(&mut self) -> Claim {
        let kind = if self.below(3) == 0 { Kind::Reentrant } else { Kind::Mutex };
        let number = self.below(3);
        let token = match kind.row().token {
            TokenForm::Owner => format!("ffffffff-ffff-4fff-bfff-ffffffffffff:{number}"),
            _ => format!("onelock1:{number:032x}"),
        };
        Claim { kind, key: self.key(), token: token.into() }
    }

    fn key(&mut self) -> onelock::machine::Key {
        let keys: [&[u8]; 2] = [b"a", b"\0b\xff'"];
        keys[self.below(2) as usize].into()
    }

    fn op(&mut self) -> Op {
        let claim = self.claim();
        let ttl_ms = TTL + self.below(TTL);
        match self.below(16) {
            0..=4 => Op::Acquire { claim, ttl_ms, fence_ttl_ms: Some(TTL * 1000), info: None },
            5 | 6 => Op::Release { claim },
            7 => Op::Undo { claim, nodes: NodeSet::ALL, quiet: self.below(2) == 0 },
            8 => Op::Retain { claim, nodes: NodeSet::ALL, rest_ms: TTL },
            9 if claim.kind == Kind::Reentrant => Op::SetCount { claim, count: 1 + self.below(4), ttl_ms },
            10 => Op::ForceRelease { key: claim.key, foreign: false },
            11 => {
                let from = Claim { kind: claim.kind, ..self.claim() }.token;
                Op::Attach { claim, from, ttl_ms, info: None }
            }
            12 => Op::Renew { holds: (0..=self.below(4)).map(|_| (self.claim(), ttl_ms)).collect() },
            _ => Op::Inspect { key: claim.key },
        }
    }
}

/// What is compared of a reply, and its time to live.
fn shape(outcome: &Outcome<Reply>) -> (String, Option<u64>) {
    match outcome.clone() {
        Outcome::Applied(Reply::Denied { ttl_left_ms, .. }) => ("denied".to_owned(), ttl_left_ms),
        // what stands there is called by the types of another server
        Outcome::Applied(Reply::WrongKind { .. }) => ("wrong kind".to_owned(), None),
        Outcome::Applied(Reply::Inspected(Some(mut seen))) => {
            let left = seen.ttl_left_ms.take();
            (format!("{seen:?}"), left)
        }
        Outcome::Applied(Reply::ReleasedToWaiters) => (format!("{:?}", Reply::Released(true)), None),
        other => (format!("{other:?}"), None),
    }
}

#[test]
fn the_model_answers_as_the_server() {
    let seed = std::env::var("ONELOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut met = std::collections::BTreeSet::new();
    for number in seed.map_or(1..=SEQUENCES, |seed: u64| seed..=seed) {
        let table = Table::new();
        let store = unhurried().open_store(&table.url()).unwrap();
        let (mut model, mut draw) = (Model::new(), Draw(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        for step in 0..STEPS {
            let op = draw.op();
            let answer = if step % 2 == 0 {
                block_on(async { store.call(op.clone(), Time::MAX).await })
            } else {
                store.call_blocking(&op, Time::MAX, &Uninterrupted)
            };
            let now_us = answer.server_time_us.unwrap_or_else(|| panic!("seed {number}, step {step}: {answer:?}"));
            let modelled = model.apply(now_us, &op);
            let ((real, real_left), (expected, left)) = (shape(&answer.outcome), shape(&modelled.outcome));
            assert_eq!(real, expected, "seed {number}, step {step}: {op:?}");
            assert_eq!(real_left.is_some(), left.is_some(), "seed {number}, step {step}: {op:?}");
            assert!(real_left.unwrap_or(0).abs_diff(left.unwrap_or(0)) < SLACK_MS, "{real_left:?} {left:?}: {op:?}");
            let word: String = real.chars().filter(char::is_ascii_alphabetic).take(24).collect();
            met.insert(format!("{} {word}", op.name()));
        }
        store.close();
    }
    // operations that never meet anything would prove nothing
    assert!(seed.is_some() || met.len() > 20, "{met:?}");
}
