//! What a schedule has besides when it is one of fair locks, or of several locks at once.

use std::time::Duration;

use onelock::machine::{Kind, Terms};

use super::dice::Dice;
use super::plan::{Fault, Plan, Wait};

/// One user of several locks at once.
#[derive(Clone, Debug)]
pub(super) struct GroupPlan {
    pub(super) client: usize,
    /// As the caller names them.
    pub(super) names: Vec<usize>,
    pub(super) wait: Wait,
    pub(super) terms: Terms,
    pub(super) rounds: u32,
    pub(super) hold: (Duration, Duration),
    pub(super) idle: (Duration, Duration),
}

impl Plan {
    /// The same schedule with users of several locks at once.
    pub(super) fn with_groups(mut self, aside: &mut Dice) -> Plan {
        while self.names.len() < 3 {
            self.names.push(aside.pick(&[Kind::Mutex, Kind::Reentrant, Kind::Fair]));
        }
        if aside.chance(500) {
            // one request takes them all
            self.names.fill(Kind::Mutex);
            self.tasks.iter_mut().for_each(|task| task.owner = None);
        }
        let part = |numerator: u32| self.ttl * numerator / 10;
        for client in 0..self.clients.len() {
            for _ in 0..aside.range(1, 2) {
                let mut names: Vec<usize> = (0..self.names.len()).collect();
                for last in (1..names.len()).rev() {
                    names.swap(last, aside.below(last as u64 + 1) as usize);
                }
                names.truncate(aside.range(2, 3) as usize);
                // what a grant has left after a round trip at least
                let most = if self.ttl < Duration::from_millis(100) { part(4) } else { part(8) };
                // that of a group is renewed throughout: what limits a hold begins when the whole is handed out
                let terms = Terms {
                    ttl: self.ttl,
                    drift_factor: self.drift_factor,
                    min_validity: aside.pick(&[Duration::ZERO, part(2), most]),
                    ..Terms::default()
                };
                let wait = match aside.below(10) {
                    0 => Wait::Try,
                    1..=4 => Wait::Bounded(aside.span(part(5), part(60))),
                    _ => Wait::Forever,
                };
                self.groups.push(GroupPlan {
                    client,
                    names,
                    wait,
                    terms,
                    rounds: aside.range(1, 3) as u32,
                    hold: (Duration::ZERO, part(aside.pick(&[1, 6, 25]))),
                    idle: (Duration::ZERO, part(aside.pick(&[1, 5]))),
                });
            }
        }
        self
    }

    /// The same schedule with fair locks.
    pub(super) fn with_queues(mut self, aside: &mut Dice) -> Plan {
        let first = aside.below(self.names.len() as u64) as usize;
        for (index, kind) in self.names.iter_mut().enumerate() {
            if index == first || aside.chance(700) {
                *kind = Kind::Fair;
            }
        }
        for task in &mut self.tasks {
            if self.names[task.name] == Kind::Fair {
                task.owner = None;
            }
        }
        if !self.faults.are_smooth() {
            for fault in Fault::OF_QUEUES {
                if aside.chance(200) {
                    self.faults.add(fault);
                    self.events.push((aside.below(self.calm_at), fault));
                }
            }
        }
        self
    }
}
