//! What a schedule consists of, drawn from its seed before it begins: who takes part, and what may go wrong.

use std::time::Duration;

use onelock::machine::{Kind, Terms};

use super::clock::ProcessClock;
use super::dice::Dice;
use super::plan_kinds::GroupPlan;

/// Something that can go wrong. Each schedule has a random subset of them (swarm testing): bugs that need one fault and
/// the absence of another are found too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fault {
    /// Single requests never arrive.
    RequestLoss,
    /// Single replies never arrive.
    ReplyLoss,
    /// Single requests or replies take longer than a lease.
    LongDelay,
    /// Something on the way sends a request a second time, later, in whatever order.
    Duplicates,
    /// Connections break; what was under way may still be executed.
    Reset,
    /// Connections swallow everything without breaking; new ones cannot be made for a while.
    BlackHole,
    /// The server dies and comes back with its data.
    Crash,
    /// The server dies and comes back empty.
    DataLoss,
    /// The server dies and comes back with data of some time ago.
    OldData,
    /// The server evicts a lock.
    EvictLock,
    /// The server evicts a fencing counter.
    EvictFence,
    /// `FLUSHALL`.
    Flush,
    /// Somebody deletes a lock's key.
    Delete,
    /// Somebody calls `force_release`.
    Force,
    /// The server stands still and then goes on.
    Freeze,
    /// A client process stands still and then goes on.
    Pause,
    /// A client process is killed and a new one started.
    Kill,
    /// Clocks run apart by more than the allowance.
    DriftBeyond,
    /// The server's clock is set forward.
    ClockForward,
    /// The server's clock is set back.
    ClockBackward,
    /// Callers stop waiting.
    Cancel,
    /// Subscriptions break; the client notices late.
    SubscriptionLoss,
    /// Single messages of a channel are lost.
    MessageLoss,
    /// A foreign client takes the lock at times, and announces nothing (mutex) or does (reentrant).
    Foreign,
    /// Something else stands under the name for a while.
    Squatter,
    /// The server refuses commands for a while (loading, busy, out of memory).
    Refusals,
    /// The server takes renewals of single holds only, or fails single holds of a batch: a cluster on the move.
    BatchRefusals,
    /// Client processes are slow to run their timers and to hand leases out.
    Sluggish,
    /// Somebody publishes on the channel of a lock, again and again, for nothing.
    Storm,
    /// One of the two keys of a queue is lost.
    QueueLoss,
    /// A subscription is gone, and its client does not notice while everything else goes through.
    Deaf,
}

impl Fault {
    /// Those of a lock with a queue on the server only.
    pub(super) const OF_QUEUES: [Fault; 2] = [Fault::QueueLoss, Fault::Deaf];

    /// All others.
    pub const ALL: [Fault; 29] = [
        Fault::RequestLoss,
        Fault::ReplyLoss,
        Fault::LongDelay,
        Fault::Duplicates,
        Fault::Reset,
        Fault::BlackHole,
        Fault::Crash,
        Fault::DataLoss,
        Fault::OldData,
        Fault::EvictLock,
        Fault::EvictFence,
        Fault::Flush,
        Fault::Delete,
        Fault::Force,
        Fault::Freeze,
        Fault::Pause,
        Fault::Kill,
        Fault::DriftBeyond,
        Fault::ClockForward,
        Fault::ClockBackward,
        Fault::Cancel,
        Fault::SubscriptionLoss,
        Fault::MessageLoss,
        Fault::Foreign,
        Fault::Squatter,
        Fault::Refusals,
        Fault::BatchRefusals,
        Fault::Sluggish,
        Fault::Storm,
    ];

    /// Whether it happens at moments of its own, as against by chance to single messages or throughout.
    pub(super) fn is_event(self) -> bool {
        use Fault::{
            BlackHole, ClockBackward, ClockForward, Crash, DataLoss, Delete, EvictFence, EvictLock, Flush, Force,
            Foreign, Freeze, Kill, OldData, Pause, Refusals, Reset, Squatter, Storm, SubscriptionLoss,
        };
        matches!(
            self,
            BlackHole
                | ClockBackward
                | ClockForward
                | Crash
                | DataLoss
                | Delete
                | EvictFence
                | EvictLock
                | Flush
                | Force
                | Foreign
                | Freeze
                | Kill
                | OldData
                | Pause
                | Refusals
                | Reset
                | Squatter
                | Storm
                | SubscriptionLoss
        )
    }
}

/// A set of faults.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultSet(u32);

impl FaultSet {
    /// Whether it contains this one.
    pub fn has(self, fault: Fault) -> bool {
        self.0 & (1 << fault as u8) != 0
    }

    pub(super) fn add(&mut self, fault: Fault) {
        self.0 |= 1 << fault as u8;
    }

    /// Whether the network delivers everything in good time and nobody stops: then hand-overs are prompt, as long as
    /// subscriptions stand, and no renewed lease is lost.
    pub(super) fn are_smooth(self) -> bool {
        let harmless = |fault| matches!(fault, Fault::Cancel | Fault::SubscriptionLoss | Fault::BatchRefusals);
        let mut all = Fault::ALL.into_iter().chain(Fault::OF_QUEUES);
        all.all(|fault| !self.has(fault) || harmless(fault))
    }
}

impl std::fmt::Debug for FaultSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = Fault::ALL.iter().chain(&Fault::OF_QUEUES);
        f.debug_list().entries(all.filter(|fault| self.has(**fault))).finish()
    }
}

/// How a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Try,
    Bounded(Duration),
    Forever,
}

/// One user of a lock: acquire, hold, release, some times over.
#[derive(Clone, Debug)]
pub(super) struct TaskPlan {
    pub(super) client: usize,
    pub(super) name: usize,
    pub(super) wait: Wait,
    pub(super) terms: Terms,
    /// A number that stands for an owner of this client, for re-entry.
    pub(super) owner: Option<u64>,
    pub(super) rounds: u32,
    pub(super) hold: (Duration, Duration),
    pub(super) idle: (Duration, Duration),
    pub(super) extends: u64,
    pub(super) enters: u64,
    pub(super) drops: u64,
    /// How often a holder hands its hold to somebody else.
    pub(super) hands: u64,
}

/// One client process.
#[derive(Clone, Debug)]
pub(super) struct ClientPlan {
    pub(super) clock: ProcessClock,
    /// Acquire, release and extend go over connections of their own instead of the shared ordered one.
    pub(super) blocking: bool,
    /// A request that timed out takes its connection with it.
    pub(super) resets_on_timeout: bool,
    /// A subscription that stands already is used from the first attempt on.
    pub(super) watches_ahead: bool,
}

/// The whole schedule, as far as it can be drawn beforehand.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) faults: FaultSet,
    pub(super) names: Vec<Kind>,
    pub(super) clients: Vec<ClientPlan>,
    pub(super) tasks: Vec<TaskPlan>,
    pub(super) groups: Vec<GroupPlan>,
    pub(super) server_ppm: i64,
    pub(super) drift_factor: f64,
    pub(super) ttl: Duration,
    pub(super) request_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) unreachable_limit: Duration,
    /// Network delay in nanoseconds, one way.
    pub(super) delay: (u64, u64),
    /// How often single messages meet with their fault, per mille.
    pub(super) odds: u64,
    /// When faults stop.
    pub(super) calm_at: u64,
    pub(super) events: Vec<(u64, Fault)>,
}

pub(super) const MS: u64 = 1_000_000;

impl Plan {
    pub(super) fn draw(dice: &mut Dice) -> Plan {
        let faults = draw_faults(dice);
        let ttl_ms = dice.pick(&[60, 200, 500, 1000, 1000, 3000, 10_000, 30_000]);
        let ttl = Duration::from_millis(ttl_ms);
        let drift_factor = dice.pick(&[0.01, 0.01, 0.05]);
        let allowance = (drift_factor * 1e6) as i64;
        // two clocks within 45% of the allowance of the truth are within it of each other
        let reach = if faults.has(Fault::DriftBeyond) { allowance * 4 } else { allowance * 45 / 100 };
        let ppm = |dice: &mut Dice| dice.below(2 * reach.unsigned_abs() + 1).cast_signed() - reach;
        let server_ppm = ppm(dice);
        let request_ms = dice.range(ttl_ms / 8, ttl_ms * 3 / 2).clamp(30, 1000);
        // where nothing else goes wrong, connecting and asking take less than the time limit of a renewal, a sixth of the ttl
        let delay_most = if faults.are_smooth() { ttl_ms * MS / 30 } else { request_ms * MS / 4 };
        let delay_max = delay_most.min(dice.pick(&[MS / 2, 2 * MS, 10 * MS]));
        let clients = (0..dice.range(2, 4))
            .map(|_| ClientPlan {
                clock: ProcessClock { origin: dice.range(1, 1000) * 1_000_000_007, ppm: ppm(dice) },
                blocking: dice.chance(350),
                resets_on_timeout: dice.chance(500),
                watches_ahead: dice.chance(500),
            })
            .collect::<Vec<_>>();
        let names =
            (0..dice.pick(&[1, 1, 2, 3])).map(|_| dice.pick(&[Kind::Mutex, Kind::Reentrant])).collect::<Vec<_>>();
        let mut tasks = draw_tasks(dice, clients.len(), &names, ttl, drift_factor);
        let mut aside = dice.aside();
        if aside.chance(250) {
            for task in &mut tasks {
                task.terms.min_hold = aside.span(Duration::ZERO, ttl);
            }
        }
        if aside.chance(250) {
            for task in &mut tasks {
                task.hands = aside.pick(&[0, 300, 600]);
            }
        }
        let calm_at = dice.range(2 * ttl_ms, (8 * ttl_ms).max(4000)) * MS;
        let mut events = Vec::new();
        for fault in Fault::ALL.into_iter().filter(|fault| faults.has(*fault) && fault.is_event()) {
            for _ in 0..dice.range(1, 3) {
                events.push((dice.below(calm_at), fault));
            }
        }
        Plan {
            faults,
            names,
            clients,
            tasks,
            groups: Vec::new(),
            server_ppm,
            drift_factor,
            ttl,
            request_timeout: Duration::from_millis(request_ms),
            connect_timeout: Duration::from_millis(dice.range(request_ms / 2, 2 * request_ms)),
            unreachable_limit: Duration::from_millis(dice.range(4, 30) * request_ms),
            delay: (delay_max / 10, delay_max),
            odds: dice.pick(&[10, 40, 150]),
            calm_at,
            events,
        }
    }
}

fn draw_faults(dice: &mut Dice) -> FaultSet {
    let mut faults = FaultSet::default();
    if dice.chance(150) {
        // nothing goes wrong, except that callers may change their mind, subscriptions break, and batches are refused
        for fault in [Fault::Cancel, Fault::SubscriptionLoss, Fault::BatchRefusals] {
            if dice.chance(400) {
                faults.add(fault);
            }
        }
        return faults;
    }
    let share = dice.pick(&[60, 150, 300]);
    for fault in Fault::ALL {
        // what breaks an assumption weakens the checks: less often
        let rare = matches!(
            fault,
            Fault::DriftBeyond
                | Fault::Flush
                | Fault::DataLoss
                | Fault::OldData
                | Fault::Delete
                | Fault::Force
                | Fault::ClockForward
                | Fault::EvictLock
        );
        if dice.chance(if rare { share / 3 } else { share }) {
            faults.add(fault);
        }
    }
    if faults == FaultSet::default() {
        faults.add(dice.pick(&Fault::ALL));
    }
    faults
}

fn draw_tasks(dice: &mut Dice, clients: usize, names: &[Kind], ttl: Duration, drift_factor: f64) -> Vec<TaskPlan> {
    let mut tasks = Vec::new();
    let part = |numerator: u32| ttl * numerator / 10;
    let brisk = Duration::from_millis(20);
    for client in 0..clients {
        for _ in 0..dice.range(1, 3) {
            let name = dice.below(names.len() as u64) as usize;
            let wait = match dice.below(10) {
                0 => Wait::Try,
                1..=4 => Wait::Bounded(dice.span(part(2), part(40))),
                _ => Wait::Forever,
            };
            let terms = Terms {
                ttl,
                lock_delay: if dice.chance(200) { dice.span(Duration::ZERO, part(5)) } else { Duration::ZERO },
                drift_factor,
                min_validity: if dice.chance(200) { part(1) } else { Duration::ZERO },
                min_hold: Duration::ZERO,
                max_hold: dice.chance(150).then(|| dice.span(part(5), part(30))),
                auto_renew: dice.chance(700),
                renew_every: None,
            };
            let owner = (names[name] == Kind::Reentrant && dice.chance(600)).then(|| dice.pick(&[0, 0, 0, 1]));
            tasks.push(TaskPlan {
                client,
                name,
                wait,
                terms,
                owner,
                rounds: dice.range(1, 4) as u32,
                // some hold for longer than a lease, some hardly longer than a message takes
                hold: (Duration::ZERO, dice.pick(&[part(25), part(6), part(6), part(6), part(1), brisk])),
                idle: (Duration::ZERO, part(dice.pick(&[1, 5, 10]))),
                extends: dice.pick(&[0, 150, 400]),
                enters: dice.pick(&[0, 300, 600]),
                drops: dice.pick(&[0, 150]),
                hands: 0,
            });
        }
    }
    tasks
}
