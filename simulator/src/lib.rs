//! A simulator: many clients, one server and the network between them, in one thread and in virtual time.
//!
//! The clients run the library's own machines the way a driver does; the server is the library's own model of a server.
//! One seed is one schedule, and repeats exactly: who takes part, what goes wrong and when, every delay and every choice
//! of a task. The properties are checked at every step against what no real client can see: the true time, and the
//! truth on the server.
//!
//! | file | is |
//! |---|---|
//! | `plan`, `plan_kinds` | a schedule as drawn from its seed, and the faults there are |
//! | `world`, `truth` | everything that takes part, and the queue of events; what is really so |
//! | `wire` | connections and requests |
//! | `server`, `faults` | the server with its faults; everything else that goes wrong |
//! | `process`, `task`, `acquiring`, `ending`, `holding`, `handing`, `hearing`, `trail` | a client: what a driver does with the machines |
//! | `checks` | the properties |
//! | `groups`, `groups_at_once`, `group_losses`, `group_checks` | several locks at once, and their properties |
//! | `places`, `server_queue` | locks with a queue on the server: their properties, and bugs planted in their scripts |
//! | `belief` | messages that tell of grants, and how a client believes them, rightly and wrongly |
//! | `quorum` | the same for several servers at once |
//! | `story`, `cast` | schedules with one theme, for people who look at them; who takes part |
//! | `watch`, `recorder`, `words`, `trace`, `json` | what happened, written down for whoever draws it |
//! | `abi` | what a page calls when this crate is compiled to WebAssembly |
//! | `bug` | bugs planted on purpose, to see that the checks find them |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "this crate is test code: a fixture that fails should stop the test at once, with its message"
)]

#[cfg(target_family = "wasm")]
pub mod abi;
mod acquiring;
mod belief;
mod bug;
mod cast;
mod checks;
mod clock;
mod dice;
mod ending;
mod faults;
mod group_checks;
mod group_losses;
mod groups;
mod groups_at_once;
mod handing;
mod hearing;
mod holding;
mod json;
mod places;
mod plan;
mod plan_kinds;
mod process;
pub mod quorum;
mod recorder;
mod server;
mod server_queue;
mod stats;
mod stay;
mod storm;
pub mod story;
mod task;
pub mod trace;
mod trail;
mod truth;
mod watch;
mod wire;
mod words;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

pub use bug::Bug;
pub use plan::{Fault, FaultSet};
pub use stats::{Count, Stats};
pub use world::Violation;
use world::World;

/// Which kinds of locks a schedule has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Mutexes and reentrant locks.
    Plain,
    /// Fair locks, and perhaps others beside them.
    Queues,
    /// Several locks at once, of any kinds, and single ones beside them.
    Several,
}

/// Runs one schedule, honestly or with a planted bug.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<Stats, Violation> {
    run_in(Scope::Plain, seed, bug)
}

/// The same with these kinds of locks.
pub fn run_in(scope: Scope, seed: u64, bug: Option<Bug>) -> Result<Stats, Violation> {
    let mut world = World::new(scope, seed, bug, false);
    world.run()?;
    Ok(world.stats)
}

/// Runs one schedule again and tells what happened: its faults, the last events and the outcome.
pub fn explain(seed: u64, bug: Option<Bug>) -> String {
    explain_in(Scope::Plain, seed, bug)
}

/// The same with these kinds of locks.
pub fn explain_in(scope: Scope, seed: u64, bug: Option<Bug>) -> String {
    use std::fmt::Write as _;
    let mut world = World::new(scope, seed, bug, true);
    let outcome = world.run();
    let plan = &world.plan;
    let mut text = format!("seed {seed}, bug {bug:?}, faults {:?}\n", plan.faults);
    let _ = writeln!(
        text,
        "ttl {:?}, request_timeout {:?}, drift_factor {}, names {:?}, delay {:?} ns, faults stop at {} ms",
        plan.ttl,
        plan.request_timeout,
        plan.drift_factor,
        plan.names,
        plan.delay,
        plan.calm_at / 1_000_000
    );
    for (index, client) in plan.clients.iter().enumerate() {
        let _ = writeln!(text, "client {index}: {client:?}");
    }
    for (index, task) in plan.tasks.iter().enumerate() {
        let _ = writeln!(text, "task {index}: {task:?}");
    }
    for (index, group) in plan.groups.iter().enumerate() {
        let _ = writeln!(text, "group {index}: {group:?}");
    }
    for line in world.trace.iter().flatten() {
        let _ = writeln!(text, "{line}");
    }
    match outcome {
        Ok(()) => text.push_str("no violation\n"),
        Err(Violation { property, detail }) => {
            let _ = writeln!(text, "{property}: {detail}");
        }
    }
    text
}

/// What came of many schedules.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Everything that happened in those without a violation.
    pub stats: Stats,
    /// How many were run.
    pub schedules: u64,
    /// The violation with the lowest seed, if there was one.
    pub failure: Option<(u64, Violation)>,
}

/// Runs the schedules of `count` seeds from `first` on, on so many threads, until one fails.
pub fn sweep(first: u64, count: u64, bug: Option<Bug>, threads: usize) -> Sweep {
    sweep_in(Scope::Plain, first, count, bug, threads)
}

/// The same with these kinds of locks.
pub fn sweep_in(scope: Scope, first: u64, count: u64, bug: Option<Bug>, threads: usize) -> Sweep {
    let failed = AtomicU64::new(count);
    let next = AtomicU64::new(0);
    let work = || {
        let mut sweep = Sweep::default();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= failed.load(Ordering::Relaxed) {
                return sweep;
            }
            let seed = first.wrapping_add(index);
            sweep.schedules += 1;
            match run_in(scope, seed, bug) {
                Ok(stats) => sweep.stats.merge(&stats),
                Err(violation) => {
                    // every lower index is under way or done already, so the lowest failure is found for sure
                    failed.fetch_min(index, Ordering::Relaxed);
                    sweep.failure = Some((seed, violation));
                    return sweep;
                }
            }
        }
    };
    let parts: Vec<Sweep> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a schedule does not panic")).collect()
    });
    let mut whole = Sweep::default();
    for part in parts {
        whole.stats.merge(&part.stats);
        whole.schedules += part.schedules;
        whole.failure = match (whole.failure.take(), part.failure) {
            (Some(one), Some(other)) => {
                Some(if other.0.wrapping_sub(first) < one.0.wrapping_sub(first) { other } else { one })
            }
            (one, other) => one.or(other),
        };
    }
    whole
}
