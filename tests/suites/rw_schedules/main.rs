//! Readers and writers under lost, late and doubled requests, clients that die, handovers and clocks that drift: random
//! schedules of clients against the modelled server, with the core's own arithmetic of deadlines. Each of the planted bugs
//! has to be caught.
//!
//! | variable | does |
//! |---|---|
//! | `ONELOCK_SIM_RW_SEED` | runs this one schedule instead |
//! | `ONELOCK_SIM_SCHEDULES` | how many schedules are run; half of them then have fresh seeds |

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that fails should stop at once, with its message")]

mod planted;
mod watch;
mod world;

use std::time::{SystemTime, UNIX_EPOCH};

use onelock::machine::Op;
use onelock::machine::model::{Model, ModelReply};

use crate::planted::PLANTED;
use crate::world::{Counts, World};

const SEEDS: u64 = 1_500;
/// How many schedules a bug may survive.
const LIMIT: u64 = 1_500;

/// How the server answers; the last argument is a number at random.
type Answering = fn(&mut Model, u64, &Op, u64) -> ModelReply;

fn honest(model: &mut Model, now_us: u64, op: &Op, _: u64) -> ModelReply {
    model.apply(now_us, op)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number")))
}

fn sweep(first: u64, count: u64) -> Counts {
    let mut counts = Counts::default();
    for seed in first..first + count {
        match World::new(seed, honest).run() {
            Ok(more) => counts.add(&more),
            Err(what) => panic!("{what}\nrepeat it with ONELOCK_SIM_RW_SEED={seed}"),
        }
    }
    counts
}

#[test]
fn no_schedule_violates_a_property() {
    if let Some(seed) = number("ONELOCK_SIM_RW_SEED") {
        println!("{:#?}", sweep(seed, 1));
        return;
    }
    let asked = number("ONELOCK_SIM_SCHEDULES");
    let counts = sweep(0, asked.map_or(SEEDS, |asked| asked / 2));
    println!("{counts:#?}");
    if asked.is_none() {
        for (what, often) in counts.each() {
            assert!(often >= SEEDS / 10, "{what} happened {often} times only");
        }
        return;
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    sweep((clock.as_nanos() as u64) >> 8 << 20, asked.unwrap_or(SEEDS) / 2);
}

#[test]
fn every_planted_bug_is_caught() {
    for (bug, says, answering) in PLANTED {
        let caught = (0..LIMIT).find_map(|seed| World::new(seed, *answering).run().err());
        let what = caught.unwrap_or_else(|| panic!("{bug}: not caught in {LIMIT} schedules"));
        println!("{bug}: {what}");
        assert!(what.contains(says), "{bug}: caught for another reason, {what}");
    }
}
