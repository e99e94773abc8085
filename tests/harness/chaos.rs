//! Many processes contend for few locks while a nemesis breaks what it can; then the history of the run is checked.
//!
//! The workers are threads of the supervisor, each with a driver process: a language takes part as soon as it stands in
//! `tests/drivers/drivers.toml`. Every answer of a driver carries the instants of its call, so the history is exact
//! although it is written here.

mod dice;
mod ground;
mod nemesis;
mod resource;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::clock::boot_ns;
use crate::history::{Check, Limits, Record, Report, check};
use crate::scenario::leftovers;
use crate::servers::Server;
use crate::supervisor::{Driver, kinds};

use ground::Ground;

pub use dice::Dice;
pub use ground::Place;
pub use resource::{Resource, Verdict};

/// The length of every lease.
pub const TTL: Duration = Duration::from_secs(1);
/// How soon every worker has had every lock once the faults have stopped.
pub const RECOVERY: Duration = TTL.saturating_add(Duration::from_secs(2));
/// The locks, and of which kind each is.
const LOCKS: [(&str, &str); 3] =
    [("chaos:mutex", "lock"), ("chaos:reentrant", "reentrant_lock"), ("chaos:fair", "fair_lock")];
/// How many processes there are at least: every kind of driver is one of them.
const WORKERS: usize = 6;

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// On what kind of servers.
    pub place: Place,
    /// Chooses everything that is left to chance (but not the timing of the machine).
    pub seed: u64,
    /// How long the nemesis is at work.
    pub faults: Duration,
    /// Whether it may make the server lose data: then leases of one lock may overlap, and nothing else may go wrong.
    pub loses_data: bool,
    /// A planted defect: the workers go on believing in leases that say that they are not held.
    pub believes_for_ever: bool,
}

impl Plan {
    /// The locks that are used. Several independent servers have no queue.
    fn locks(self) -> &'static [(&'static str, &'static str)] {
        if self.place == Place::Redlock { &LOCKS[..2] } else { &LOCKS }
    }
}

/// What the threads of a run share.
struct Shared {
    plan: Plan,
    ground: Ground,
    resource: Resource,
    /// The driver processes that live, by worker.
    slots: Vec<Mutex<Option<Arc<Driver>>>>,
    /// The processes' names in the history, by worker.
    names: Vec<Mutex<String>>,
    /// Which workers believe that they hold something.
    holding: Vec<AtomicBool>,
    /// The nemesis has stopped and everything works again, since this instant; 0 before.
    calm_since_ns: AtomicU64,
}

impl Shared {
    fn is_calm(&self) -> bool {
        self.calm_since_ns.load(Ordering::Acquire) != 0
    }
}

/// Calms the run when dropped, so that the workers come to an end also when the nemesis has failed.
struct Calm<'a>(&'a Shared);

impl Drop for Calm<'_> {
    fn drop(&mut self) {
        self.0.calm_since_ns.store(boot_ns(), Ordering::Release);
    }
}

/// What a run has shown.
pub struct Outcome {
    /// What the history checker found.
    pub report: Report,
    /// The history itself.
    pub records: Vec<Record>,
    /// What the nemesis did, in order.
    pub faults: Vec<String>,
    /// Everything that went wrong and is no matter of the history.
    pub problems: Vec<String>,
    /// How long after the faults every worker had had every lock.
    pub recovered_in: Duration,
    /// Increments of the unguarded counters, and what the files say.
    pub counted: (u64, u64),
}

/// Runs it.
///
/// # Panics
/// When the machinery itself fails.
pub fn run(plan: Plan) -> Outcome {
    let kinds = kinds();
    let count = WORKERS.max(kinds.len());
    let shared = Shared {
        plan,
        ground: Ground::start(plan.place, plan.loses_data),
        resource: Resource::new(plan.locks().iter().map(|(name, _)| *name)),
        slots: (0..count).map(|_| Mutex::default()).collect(),
        names: (0..count).map(|_| Mutex::default()).collect(),
        holding: (0..count).map(|_| AtomicBool::new(false)).collect(),
        calm_since_ns: AtomicU64::new(0),
    };
    let (mut records, mut problems, mut faults, mut recovered_in) =
        (Vec::new(), Vec::new(), Vec::new(), Duration::ZERO);
    std::thread::scope(|scope| {
        let shared = &shared;
        let workers: Vec<_> = (0..count)
            .map(|number| {
                let kind = &kinds[number % kinds.len()];
                scope.spawn(move || worker::run(shared, number, kind))
            })
            .collect();
        let calm = Calm(shared);
        let (pauses, done) = nemesis::run(shared);
        faults = done;
        drop(calm);
        for worker in workers {
            let worker = worker.join().expect("a worker does not panic");
            records.extend(worker.records);
            problems.extend(worker.problems);
            recovered_in = recovered_in.max(worker.recovered_in);
        }
        records.extend(pauses);
    });
    problems.extend(shared.resource.problems(!plan.loses_data));
    for server in shared.ground.servers() {
        problems.extend(left_behind(server));
    }
    let limits = Limits { loss_told: Duration::from_secs(1), call: Duration::from_secs(1) };
    let report = check(&records, &limits);
    Outcome { report, records, faults, problems, recovered_in, counted: shared.resource.counted() }
}

fn left_behind(server: &Server) -> Vec<String> {
    let start = Instant::now();
    loop {
        let left = leftovers(server, &[]);
        if left.is_empty() || start.elapsed() > TTL + Duration::from_secs(4) {
            return left.into_iter().map(|what| format!("left behind: {what}")).collect();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Outcome {
    /// Asserts that everything was as it must be.
    ///
    /// # Panics
    /// With what was not, and where the history was written to.
    pub fn assert_good(&self, plan: Plan) {
        let excused: &[Check] = if plan.loses_data { &[Check::Exclusion] } else { &[] };
        let mut wrong: Vec<String> = self.problems.clone();
        let found = self.report.violations.iter().filter(|violation| !excused.contains(&violation.check));
        wrong.extend(found.map(ToString::to_string));
        // clients that follow a master look for it, which takes a round of questions and perhaps a poll
        let follow = if plan.place == Place::Single { Duration::ZERO } else { Duration::from_secs(3) };
        if self.recovered_in > RECOVERY + follow {
            wrong.push(format!("the last worker had its locks {:?} after the faults", self.recovered_in));
        }
        if wrong.is_empty() {
            return;
        }
        let path = std::env::temp_dir().join(format!("onelock-chaos-{}.jsonl", plan.seed));
        let lines: Vec<String> = self.records.iter().map(|it| serde_json::to_string(it).unwrap()).collect();
        std::fs::write(&path, lines.join("\n")).expect("the history can be written");
        let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
        panic!(
            "{} problems, seed {}, history in {}:\n{shown}\nfaults:\n{}\n{}",
            wrong.len(),
            plan.seed,
            path.display(),
            self.faults.join("\n"),
            self.report.summary
        );
    }
}
