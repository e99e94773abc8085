//! Who takes part in a story.

use std::time::Duration;

use onelock::machine::{Kind, Terms};

use super::clock::ProcessClock;
use super::dice::Dice;
use super::plan::{ClientPlan, Fault, FaultSet, MS, Plan, TaskPlan, Wait};
use super::plan_kinds::GroupPlan;

/// A user of several locks in place of one of a single lock.
pub(super) fn group(dice: &mut Dice, task: TaskPlan) -> GroupPlan {
    let mut names = vec![0, 1, 2];
    names.rotate_left(dice.below(3) as usize);
    names.truncate(dice.range(2, 3) as usize);
    let TaskPlan { client, terms, wait, hold, idle, .. } = task;
    GroupPlan { client, names, wait, terms, rounds: 2, hold, idle }
}

/// Clients that want the same lock, each two or three times, where nothing goes wrong.
pub(super) fn cast(dice: &mut Dice, clients: usize, kind: Kind) -> Plan {
    let ttl = Duration::from_secs(1);
    let part = |numerator: u32| ttl * numerator / 10;
    // two clocks within 45 % of the allowance of the truth are within it of each other
    let ppm = |dice: &mut Dice| dice.below(9001).cast_signed() - 4500;
    let clients: Vec<ClientPlan> = (0..clients)
        .map(|_| ClientPlan {
            clock: ProcessClock { origin: dice.range(1, 1000) * 1_000_000_007, ppm: ppm(dice) },
            blocking: false,
            resets_on_timeout: dice.chance(300),
            watches_ahead: dice.chance(500),
        })
        .collect();
    let tasks = (0..clients.len())
        .map(|client| TaskPlan {
            client,
            name: 0,
            wait: Wait::Forever,
            terms: Terms { ttl, drift_factor: 0.01, auto_renew: true, ..Terms::default() },
            owner: None,
            rounds: dice.range(2, 3) as u32,
            hold: (part(2), part(12)),
            idle: (part(1), part(5)),
            extends: 0,
            enters: 0,
            drops: 0,
            hands: 0,
        })
        .collect();
    Plan {
        faults: FaultSet::default(),
        names: vec![kind],
        clients,
        tasks,
        groups: Vec::new(),
        server_ppm: ppm(dice),
        drift_factor: 0.01,
        ttl,
        request_timeout: Duration::from_millis(150),
        connect_timeout: Duration::from_millis(150),
        unreachable_limit: Duration::from_secs(5),
        delay: (MS, 8 * MS),
        odds: 150,
        calm_at: 6_000 * MS,
        events: Vec::new(),
    }
}

impl Plan {
    /// The same with these faults; those that happen at moments of their own so many times.
    pub(super) fn with(mut self, dice: &mut Dice, faults: &[Fault], times: u32) -> Plan {
        for fault in faults {
            self.faults.add(*fault);
            for _ in 0..if fault.is_event() { times } else { 0 } {
                self.events.push((dice.below(4_000 * MS), *fault));
            }
        }
        self
    }
}
