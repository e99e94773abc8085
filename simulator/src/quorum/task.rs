//! One user of the lock: acquire, hold, release, some times over; and every exit without a lease.

use std::sync::Arc;
use std::time::Duration;

use onelock::machine::{
    Acquire, AcquireLimits, Answer, BeginRelease, Guarded, NodeSet, Op, Outcome, Reply, Step, Terms, Time, Token,
    Uncertainty, Verdict, naming,
};

use super::Bug;
use super::client::Purpose;
use super::plan::MS;
use super::world::{Event, World, note};

/// What a task is doing.
#[derive(Debug)]
pub(super) enum Stage {
    Idle,
    /// With the connections as they were when it was sent.
    Attempting(u64, u64),
    /// The same of an attach.
    Attaching(u64, u64),
    Sleeping,
    HandOver(Time, Option<u64>),
    Holding,
    Releasing,
    Done,
}

impl World {
    pub(super) fn stage(&mut self, task: usize, stage: Stage, at: u64) {
        self.tasks[task].turn += 1;
        self.tasks[task].stage = stage;
        let turn = self.tasks[task].turn;
        self.push(at, Event::Task(task, turn));
    }

    pub(super) fn idle(&mut self, task: usize) {
        if self.tasks[task].rounds_left == 0 {
            return self.stage(task, Stage::Done, u64::MAX);
        }
        let later = self.now + self.dice.below(self.plan.ttl.as_nanos() as u64 / 4);
        self.stage(task, Stage::Idle, later);
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
            Stage::Sleeping => self.step(task),
            Stage::HandOver(deadline, fence) => self.hand_over(task, deadline, fence),
            Stage::Holding => {
                if !self.detach(task) {
                    self.release(task);
                }
            }
            Stage::Attempting(..) | Stage::Attaching(..) | Stage::Releasing | Stage::Done => {}
        }
    }

    fn begin(&mut self, task: usize) {
        let client = self.tasks[task].client;
        let now = self.local(client);
        self.tasks[task].rounds_left -= 1;
        let terms =
            Terms { ttl: self.plan.ttl, auto_renew: self.dice.chance(self.plan.auto_renew), ..Terms::default() };
        let wait = self.dice.chance(300).then(|| self.dice.span(Duration::ZERO, self.plan.ttl * 3));
        let patience = AcquireLimits {
            wait,
            connect_timeout: self.plan.node_timeout,
            request_timeout: self.plan.node_timeout * 2,
            unreachable_limit: Duration::from_secs(3600),
            look_every: None,
            believes_messages: false,
            place_for: None,
        };
        let deed = self.claim(client, Arc::new(terms.clone()));
        let task_now = &mut self.tasks[task];
        let mut machine = Acquire::new(terms, patience, now);
        machine.set_herd_backoff(self.clients[client].herd_backoff);
        task_now.call = Some(machine);
        task_now.deed = Some(deed);
        task_now.calls += 1;
        task_now.started = self.now;
        let call = task_now.calls;
        if !self.calm && self.dice.chance(self.plan.cancel) {
            let reach = self.dice.pick(&[self.plan.delay.1 * 3, self.plan.ttl.as_nanos() as u64]);
            let at = self.now + self.dice.below(reach);
            self.push(at, Event::Cancel(task, call));
        }
        self.step(task);
    }

    fn step(&mut self, task: usize) {
        let client = self.tasks[task].client;
        loop {
            let now = self.local(client);
            let Some(call) = &mut self.tasks[task].call else { return };
            match call.next(now) {
                Step::Attempt { until } => return self.attempt(task, until),
                Step::Watch { .. } => call.watch_confirmed(),
                Step::Sleep { until } => {
                    let at = self.world_time(client, until);
                    return self.stage(task, Stage::Sleeping, at);
                }
                Step::Done(Verdict::Granted { deadline, fence, .. }) => {
                    let at = self.now + self.dice.below(MS / 5);
                    return self.stage(task, Stage::HandOver(deadline, fence), at);
                }
                Step::Done(Verdict::Failed(failure)) => {
                    note!(self, "task {task}: acquire fails: {failure:?}");
                    self.retire(task);
                    self.tasks[task].call = None;
                    return self.idle(task);
                }
            }
        }
    }

    fn attempt(&mut self, task: usize, until: Time) {
        let client = self.tasks[task].client;
        let Some(deed) = self.tasks[task].deed else { return };
        let ttl_ms = self.deeds[deed].terms.server_ttl_ms(self.deeds[deed].terms.ttl);
        let op = Op::Acquire {
            claim: self.deeds[deed].claim.clone(),
            ttl_ms,
            fence_ttl_ms: Some(naming::fence_ttl_ms(ttl_ms)),
            info: None,
        };
        let connection = self.connection(client);
        // the answer may come at once
        self.stage(task, Stage::Attempting(u64::MAX, connection), u64::MAX);
        let round = self.begin_round(client, op, Purpose::Attempt(task), until);
        if let Stage::Attempting(id @ u64::MAX, _) = &mut self.tasks[task].stage {
            *id = round;
        }
    }

    pub(super) fn attempt_answered(&mut self, task: usize, answer: &Answer, granted: NodeSet) {
        let client = self.tasks[task].client;
        let now = self.local(client);
        let Some(deed) = self.tasks[task].deed else { return };
        let Some(call) = &mut self.tasks[task].call else { return };
        let known = &mut self.deeds[deed];
        let mut only = None;
        match &answer.outcome {
            Outcome::Applied(Reply::Granted { .. }) => {
                known.uncertainty = Some(known.uncertainty.unwrap_or(Uncertainty::Confirmed));
            }
            Outcome::Applied(Reply::Split { may_still_arrive: at_large, tie, failure, .. }) => {
                self.tally.splits += 1;
                self.tally.ties += u64::from(*tie && failure.is_none());
                known.quiet = known.uncertainty.is_none();
                let uncertainty = if *at_large { Uncertainty::MayStillArrive } else { Uncertainty::Confirmed };
                known.uncertainty = Some(known.uncertainty.unwrap_or(uncertainty));
                only = Some(granted);
            }
            Outcome::Indeterminate(_) => known.uncertainty = Some(Uncertainty::MayStillArrive),
            _ => {}
        }
        let token = call.answered(now, answer, &mut self.clients[client].jitter);
        self.clients[client].herd_backoff = call.herd_backoff();
        if token == Token::Retire {
            match self.bug {
                Some(Bug::UndoWhereGranted) if only.is_some() => {
                    self.end_deed(deed);
                    if !granted.is_empty() {
                        self.queue_undo(client, deed, Uncertainty::Confirmed, granted, true);
                    }
                }
                Some(Bug::TokenReused) if only.is_some() => {
                    if let Some(uncertainty) = self.deeds[deed].uncertainty {
                        self.queue_undo(client, deed, uncertainty, NodeSet::ALL, true);
                    }
                    self.step(task);
                    return;
                }
                _ => self.retire(task),
            }
            let terms = self.deeds[deed].terms.clone();
            self.tasks[task].deed = Some(self.claim(client, terms));
        }
        self.step(task);
    }

    /// The claim of a task ended without a lease: what it may have taken is released.
    pub(super) fn retire(&mut self, task: usize) {
        let Some(deed) = self.tasks[task].deed.take() else { return };
        let client = self.tasks[task].client;
        self.end_deed(deed);
        if let Some(uncertainty) = self.deeds[deed].uncertainty {
            let quiet = self.deeds[deed].quiet;
            self.queue_undo(client, deed, uncertainty, NodeSet::ALL, quiet);
        }
    }

    fn end_deed(&mut self, deed: usize) {
        self.deeds[deed].ended = true;
        self.ending.push(deed);
    }

    fn hand_over(&mut self, task: usize, deadline: Time, fence: Option<u64>) {
        let client = self.tasks[task].client;
        let now = self.local(client);
        let Some(deed) = self.tasks[task].deed else { return };
        let Some(call) = &mut self.tasks[task].call else { return };
        if !call.is_worth_handing_out(now, deadline) {
            call.too_late(now, &mut self.clients[client].jitter);
            let terms = self.deeds[deed].terms.clone();
            self.retire(task);
            self.tasks[task].deed = Some(self.claim(client, terms));
            return self.step(task);
        }
        let terms = self.deeds[deed].terms.clone();
        let deadline = if self.bug == Some(Bug::NoDrift) { deadline + terms.drift(terms.ttl) } else { deadline };
        self.deeds[deed].cell.grant(deadline);
        self.deeds[deed].fence = fence;
        let guarded = Guarded {
            claim: self.deeds[deed].claim.clone(),
            state: self.deeds[deed].cell.clone(),
            ttl: terms.ttl,
            terms,
        };
        self.clients[client].watchdog.arm(now, deed as u64, guarded);
        self.run_watchdog(client);
        self.tally.leases += 1;
        note!(self, "task {task}: holds deed {deed} with token {fence:?}");
        self.check_hand_out(deed);
        self.tasks[task].call = None;
        let until = self.now + self.dice.below(self.plan.hold);
        self.stage(task, Stage::Holding, until);
    }

    fn release(&mut self, task: usize) {
        let client = self.tasks[task].client;
        let Some(deed) = self.tasks[task].deed else { return };
        let now = self.local(client);
        self.clients[client].watchdog.disarm(deed as u64);
        self.clients[client].quorum.hold_ended(&self.deeds[deed].claim);
        let held = self.deeds[deed].cell.begin_release(now) == BeginRelease::Held;
        if !held || self.dice.chance(100) {
            // lost or dropped
            self.retire(task);
            return self.idle(task);
        }
        self.stage(task, Stage::Releasing, u64::MAX);
        let op = Op::Release { claim: self.deeds[deed].claim.clone() };
        let until = now + self.plan.node_timeout * 2;
        self.begin_round(client, op, Purpose::Release(task), until);
    }

    pub(super) fn release_answered(&mut self, task: usize, answer: &Answer) {
        let client = self.tasks[task].client;
        let Some(deed) = self.tasks[task].deed.take() else { return };
        self.end_deed(deed);
        match &answer.outcome {
            Outcome::Applied(Reply::PartlyReleased { outstanding: owed, may_still_arrive: at_large, .. }) => {
                self.tally.owed += 1;
                let uncertainty = if *at_large { Uncertainty::MayStillArrive } else { Uncertainty::Confirmed };
                self.queue_undo(client, deed, uncertainty, *owed, false);
            }
            Outcome::Applied(_) => {}
            _ => {
                let uncertainty = self.deeds[deed].uncertainty.unwrap_or(Uncertainty::Confirmed);
                self.queue_undo(client, deed, uncertainty, NodeSet::ALL, false);
            }
        }
        self.idle(task);
    }

    pub(super) fn cancel(&mut self, task: usize, call: u32) {
        if self.tasks[task].calls != call || self.tasks[task].call.is_none() {
            return;
        }
        self.tally.cancels += 1;
        note!(self, "task {task}: is cancelled");
        let client = self.tasks[task].client;
        if let Stage::Attempting(round, connection) = self.tasks[task].stage {
            self.clients[client].rounds.remove(&round);
            if let Some(deed) = self.tasks[task].deed {
                self.deeds[deed].rounds -= 1;
                self.in_flight(deed, client, connection);
            }
        }
        self.retire(task);
        self.tasks[task].call = None;
        self.idle(task);
    }

    /// A round for this deed goes on without anybody who listens.
    pub(super) fn in_flight(&mut self, deed: usize, client: usize, connection: u64) {
        let ordered = connection != 0 && self.connection(client) == connection;
        let uncertainty = if ordered { Uncertainty::Ordered(connection) } else { Uncertainty::MayStillArrive };
        let known = &mut self.deeds[deed];
        known.uncertainty = match known.uncertainty {
            None | Some(Uncertainty::Confirmed) => Some(uncertainty),
            _ => Some(Uncertainty::MayStillArrive),
        };
    }

    /// Something was published: sleepers look again.
    pub(super) fn hint(&mut self, client: usize) {
        let now = self.local(client);
        for task in 0..self.tasks.len() {
            if self.tasks[task].client == client && matches!(self.tasks[task].stage, Stage::Sleeping) {
                if let Some(call) = &mut self.tasks[task].call {
                    call.hint(now, &mut self.clients[client].jitter);
                }
                self.step(task);
            }
        }
    }
}
