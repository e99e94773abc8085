//! The same kind of simulator for Redlock: several clients, three or five independent servers, and the network between
//! each two of them. The clients run the library's own machines: the rounds of a quorum, acquire, watchdog and cleanup.
//!
//! | file | is |
//! |---|---|
//! | `plan` | a schedule as drawn from its seed, and the bugs that can be planted |
//! | `world` | everything that takes part, and the queue of events |
//! | `net` | connections, requests, and the servers that carry them out |
//! | `client` | rounds, renewal, clean-up: what the store and the driver do with the machines |
//! | `late` | what goes on after a renewal was concluded |
//! | `task`, `handing` | one user of the lock; one who goes on with a hold that was handed over |
//! | `checks` | the properties |
//! | `watch` | what is written down for whoever draws it |

mod checks;
mod client;
mod handing;
mod late;
mod net;
mod plan;
mod story;
mod task;
mod watch;
mod world;

pub use plan::Bug;
pub(crate) use story::{play, run_story};

use std::sync::atomic::{AtomicU64, Ordering};

use super::Violation;
use world::World;

/// What happened, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Leases handed out.
    pub leases: u64,
    /// Acquires that took a second round trip, because the fencing counters did not agree.
    pub write_backs: u64,
    /// Acquires of which no majority came.
    pub splits: u64,
    /// Those of them in which nobody had a majority.
    pub ties: u64,
    /// Holds given again to a node that had lost them.
    pub seeds: u64,
    /// Keys of holds that were deleted on one node.
    pub forgotten: u64,
    /// Answers to renewals whose callers had gone on.
    pub late: u64,
    /// Holds given again because of such an answer.
    pub late_seeds: u64,
    /// Restarts of a server without its data.
    pub amnesias: u64,
    /// Answers of servers that did not vote.
    pub barred: u64,
    /// Renewals confirmed.
    pub renewals: u64,
    /// Leases lost.
    pub losses: u64,
    /// Releases of which some nodes still owed an answer.
    pub owed: u64,
    /// Acquires cancelled.
    pub cancels: u64,
    /// Holds gone on with.
    pub attached: u64,
    /// Attaches without a hold.
    pub attached_in_vain: u64,
    /// Clocks that were set while the process was running.
    pub set_clocks: u64,
}

impl Tally {
    fn merge(&mut self, other: &Tally) {
        self.leases += other.leases;
        self.write_backs += other.write_backs;
        self.splits += other.splits;
        self.ties += other.ties;
        self.seeds += other.seeds;
        self.forgotten += other.forgotten;
        self.late += other.late;
        self.late_seeds += other.late_seeds;
        self.amnesias += other.amnesias;
        self.barred += other.barred;
        self.renewals += other.renewals;
        self.losses += other.losses;
        self.owed += other.owed;
        self.cancels += other.cancels;
        self.attached += other.attached;
        self.attached_in_vain += other.attached_in_vain;
        self.set_clocks += other.set_clocks;
    }

    /// The least of the counts: a sweep that never meets the rare cases proves nothing about them.
    pub fn rarest(&self) -> u64 {
        [
            self.leases,
            self.write_backs,
            self.splits,
            self.ties,
            self.seeds,
            self.forgotten,
            self.late,
            self.late_seeds,
            self.amnesias,
            self.barred,
            self.renewals,
            self.losses,
            self.owed,
            self.cancels,
            self.attached,
            self.attached_in_vain,
            self.set_clocks,
        ]
        .into_iter()
        .min()
        .unwrap_or(0)
    }
}

/// Runs one schedule, honestly or with a planted bug.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<Tally, Violation> {
    let mut world = World::new(seed, bug, false);
    world.run()?;
    Ok(world.tally)
}

/// Runs one schedule again and tells what happened.
pub fn explain(seed: u64, bug: Option<Bug>) -> String {
    use std::fmt::Write as _;
    let mut world = World::new(seed, bug, true);
    let outcome = world.run();
    let mut text = format!("seed {seed}, bug {bug:?}\n{:#?}\n", world.plan);
    for line in world.trace.iter().flatten() {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "{outcome:?}");
    text
}

/// Runs the schedules of `count` seeds from `first` on, until one fails: what happened in all of them, and the first
/// failure.
pub fn sweep(first: u64, count: u64, bug: Option<Bug>) -> (Tally, Option<(u64, Violation)>) {
    // the lowest seed that failed: what comes after it is of no interest to either half
    let lowest = AtomicU64::new(u64::MAX);
    let half = |part: u64| {
        let mut whole = Tally::default();
        let seeds = (first..first + count).skip(part as usize).step_by(2);
        for seed in seeds.take_while(|seed| *seed < lowest.load(Ordering::Relaxed)) {
            match run(seed, bug) {
                Ok(tally) => whole.merge(&tally),
                Err(violation) => {
                    lowest.fetch_min(seed, Ordering::Relaxed);
                    return (whole, Some((seed, violation)));
                }
            }
        }
        (whole, None)
    };
    let (mut one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        (half(0), other.join().expect("a schedule does not panic"))
    });
    one.0.merge(&other.0);
    let failure = match (one.1, other.1) {
        (Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
        (one, other) => one.or(other),
    };
    (one.0, failure)
}
