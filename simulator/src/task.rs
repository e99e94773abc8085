//! One user of a lock inside a client process, as a state machine: what an async function of a driver would be.

use std::sync::Arc;

use onelock::ErrorKind;
use onelock::machine::{Acquire, Terms, Time, WaiterId};

use super::belief::WrongBelief;
use super::plan::TaskPlan;
use super::world::{Event, World};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stage {
    /// Between two acquires.
    Idle,
    /// The same owner is in the middle of something.
    RegistryWait,
    /// Waiting in the local line.
    InLine,
    /// An acquire is under way.
    Attempting,
    /// Waiting for the subscription.
    Watching,
    /// Waiting for a hint or a timer.
    Sleeping,
    /// Granted, and about to be handed out.
    HandOver { deadline: Time, fence: Option<u64>, told: Option<Time> },
    /// The caller has a lease and does its work.
    Holding,
    /// An extend, enter, leave or release is under way.
    Calling,
    /// A leave waits for the registry.
    LeaveWait,
    /// All rounds are over.
    Done,
    /// The process was killed.
    Dead,
}

/// One acquire.
pub(super) struct Call {
    pub(super) machine: Acquire,
    pub(super) deed: Option<usize>,
    pub(super) ticket: Option<WaiterId>,
    /// Holds a share of the subscription.
    pub(super) watching: bool,
    /// The hints up to here were heard.
    pub(super) heard: u64,
    pub(super) started: u64,
    pub(super) number: u32,
    pub(super) request: Option<usize>,
    /// It is the first acquire of its owner: the registry waits for the end.
    pub(super) first: bool,
    /// The lock was refused last, and its holder's time ends then.
    pub(super) refused_until: Option<Time>,
    /// It has waited: what a thread began goes on over the shared connection.
    pub(super) moved: bool,
    /// What a planted bug believes a message by.
    pub(super) belief: WrongBelief,
}

/// What a call without a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Extend(std::time::Duration),
    Enter(u64),
    Leave(u64),
    Release,
    /// Going on with the hold of this deed, which was handed over.
    Attach(usize),
}

/// A call without a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errand {
    pub(super) aim: Aim,
    pub(super) deed: usize,
    pub(super) request: usize,
    /// The request of the first try; what it asks for was decided then.
    pub(super) first: usize,
    pub(super) tries: u32,
    pub(super) started: u64,
    pub(super) limit: Time,
    /// The length of the lease that a count asks for.
    pub(super) ttl: std::time::Duration,
}

pub(super) struct Task {
    pub(super) plan: TaskPlan,
    pub(super) terms: Arc<Terms>,
    pub(super) stage: Stage,
    /// Grows with every change of stage: timers of an earlier one are void.
    pub(super) turn: u32,
    pub(super) rounds: u32,
    pub(super) call: Option<Box<Call>>,
    pub(super) calls: u32,
    pub(super) handles: Vec<usize>,
    pub(super) errand: Option<Errand>,
    /// The deed whose hold was handed to it, until it attaches.
    pub(super) proof: Option<usize>,
    /// It is a member of this group, which says what to do.
    pub(super) group: Option<usize>,
    /// Why its last acquire failed, for its group.
    pub(super) failed: Option<ErrorKind>,
}

impl Task {
    pub(super) fn new(plan: TaskPlan) -> Task {
        Task {
            terms: Arc::new(plan.terms.clone()),
            stage: Stage::Idle,
            turn: 0,
            rounds: plan.rounds,
            call: None,
            calls: 0,
            handles: Vec::new(),
            errand: None,
            proof: None,
            group: None,
            failed: None,
            plan,
        }
    }
}

impl World {
    /// Goes over to a stage; its timer goes off at `until`, on the process's clock.
    pub(super) fn enter_stage(&mut self, task: usize, stage: Stage, until: Time) {
        self.tasks[task].stage = stage;
        self.tasks[task].turn += 1;
        if until != Time::MAX {
            let client = self.tasks[task].plan.client;
            let due = self.world_time(client, until);
            let at = self.late(client, due);
            self.push(at, Event::Task(task as u32, self.tasks[task].turn));
        }
    }

    pub(super) fn task_timer(&mut self, task: usize, turn: u32) {
        if self.tasks[task].turn != turn {
            return;
        }
        match self.tasks[task].stage {
            Stage::Idle => match self.tasks[task].proof.take() {
                Some(deed) => self.attach(task, deed),
                None => self.begin(task),
            },
            Stage::RegistryWait | Stage::InLine => self.patience_is_up(task),
            Stage::Watching => {
                if let Some(call) = &mut self.tasks[task].call {
                    call.machine.watch_failed();
                }
                self.step(task);
            }
            Stage::Sleeping => self.step(task),
            Stage::HandOver { deadline, fence, told } => self.hand_over(task, deadline, fence, told),
            Stage::Holding => self.act(task),
            Stage::Attempting | Stage::Calling | Stage::LeaveWait | Stage::Done | Stage::Dead => {}
        }
    }
}
