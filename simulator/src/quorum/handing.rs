//! A hold that is handed over: a proof goes to other clients, once or several times; whoever exchanges its token on a
//! majority of the servers goes on with the hold.

use onelock::machine::{Answer, Guarded, Op, Outcome, Reply, Uncertainty};

use super::Bug;
use super::client::Purpose;
use super::plan::MS;
use super::task::Stage;
use super::world::{Event, Task, World, note};

/// How many tasks there are at most: every schedule has to end.
const TASKS_MAX: usize = 40;
/// How often an attach asks the servers.
const TRIES: u32 = 2;

impl World {
    /// The holder hands its hold to others instead of releasing it; false if it does not.
    pub(super) fn detach(&mut self, task: usize) -> bool {
        let client = self.tasks[task].client;
        let now = self.local(client);
        let Some(deed) = self.tasks[task].deed else { return false };
        let may = self.tasks.len() < TASKS_MAX && self.plan.hands > 0;
        if !may || !self.dice.chance(self.plan.hands) || !self.deeds[deed].cell.detach(now) {
            return false;
        }
        self.clients[client].watchdog.disarm(deed as u64);
        self.clients[client].quorum.hold_ended(&self.deeds[deed].claim);
        self.tasks[task].deed = None;
        for _ in 0..self.dice.pick(&[1, 2, 2, 3]) {
            let (client, receiver) = (self.dice.below(self.clients.len() as u64) as usize, self.tasks.len());
            let reach = self.dice.pick(&[MS, self.plan.delay.1, self.plan.ttl.as_nanos() as u64 / 2]);
            let at = self.now + self.dice.below(reach);
            note!(self, "task {task}: hands deed {deed} to task {receiver} of client {client}");
            self.tasks.push(Task { proof: Some(deed), ..Task::new(client, 0) });
            self.push(at, Event::Task(receiver, 0));
        }
        self.idle(task);
        true
    }

    /// A proof has arrived.
    pub(super) fn attach(&mut self, task: usize, from: usize) {
        let client = self.tasks[task].client;
        let deed = self.claim(client, self.deeds[from].terms.clone());
        self.deeds[deed].from = Some(from);
        self.tasks[task].deed = Some(deed);
        note!(self, "task {task}: attaches deed {deed} with the proof of deed {from}");
        if !self.calm && self.dice.chance(self.plan.cancel) {
            let reach = self.plan.delay.1 * 3;
            let at = self.now + self.dice.below(reach);
            self.push(at, Event::GiveUp { task, deed });
        }
        self.send_attach(task);
    }

    fn send_attach(&mut self, task: usize) {
        let client = self.tasks[task].client;
        let Some(deed) = self.tasks[task].deed else { return };
        let Some(from) = self.deeds[deed].from else { return };
        let ttl_ms = self.deeds[deed].terms.server_ttl_ms(self.deeds[deed].terms.ttl);
        let (claim, from) = (self.deeds[deed].claim.clone(), self.deeds[from].claim.token.clone());
        let op = Op::Attach { claim, from, ttl_ms, info: None };
        self.tasks[task].tries += 1;
        let connection = self.connection(client);
        // the answer may come at once
        self.stage(task, Stage::Attaching(u64::MAX, connection), u64::MAX);
        let until = self.local(client) + self.plan.node_timeout * 2;
        let round = self.begin_round(client, op, Purpose::Attach(task), until);
        if let Stage::Attaching(id @ u64::MAX, _) = &mut self.tasks[task].stage {
            *id = round;
        }
    }

    pub(super) fn attach_answered(&mut self, task: usize, answer: &Answer) {
        let client = self.tasks[task].client;
        let now = self.local(client);
        let Some(deed) = self.tasks[task].deed else { return };
        let known = &mut self.deeds[deed];
        let (uncertainty, again) = match &answer.outcome {
            Outcome::Applied(Reply::Granted { .. }) => (Some(Uncertainty::Confirmed), false),
            Outcome::Applied(Reply::Split { may_still_arrive: at_large, failure, .. }) => {
                let uncertainty = if *at_large { Uncertainty::MayStillArrive } else { Uncertainty::Confirmed };
                (Some(uncertainty), failure.as_ref().is_some_and(|failure| failure.transient))
            }
            Outcome::Indeterminate(_) => {
                known.uncertainty = None;
                (Some(Uncertainty::MayStillArrive), true)
            }
            _ => (None, false),
        };
        known.uncertainty = known.uncertainty.or(uncertainty);
        if again && self.tasks[task].tries < TRIES {
            return self.send_attach(task);
        }
        let terms = self.deeds[deed].terms.clone();
        let deadline = terms.deadline(answer.sent_at, terms.ttl);
        match &answer.outcome {
            Outcome::Applied(Reply::Granted { fence, .. }) if now < deadline => {
                self.deeds[deed].cell.grant(deadline);
                self.deeds[deed].fence = *fence;
                let (claim, cell) = (self.deeds[deed].claim.clone(), self.deeds[deed].cell.clone());
                let guarded = Guarded { claim, state: cell, ttl: terms.ttl, terms };
                self.clients[client].watchdog.arm(now, deed as u64, guarded);
                self.run_watchdog(client);
                self.tally.attached += 1;
                note!(self, "task {task}: goes on with deed {deed} with token {fence:?}");
                self.check_hand_out(deed);
                let until = self.now + self.dice.below(self.plan.hold);
                self.stage(task, Stage::Holding, until);
            }
            _ => {
                self.tally.attached_in_vain += 1;
                self.retire(task);
                self.idle(task);
            }
        }
    }

    /// The caller of an attach stops waiting.
    pub(super) fn give_up_attach(&mut self, task: usize, deed: usize) {
        let Stage::Attaching(round, connection) = self.tasks[task].stage else { return };
        if self.tasks[task].deed != Some(deed) {
            return;
        }
        note!(self, "task {task}: the attach of deed {deed} is cancelled");
        self.tally.cancels += 1;
        let client = self.tasks[task].client;
        self.clients[client].rounds.remove(&round);
        self.deeds[deed].rounds -= 1;
        self.in_flight(deed, client, connection);
        self.retire(task);
        self.idle(task);
    }

    /// A planted bug in which fencing token a hold goes on with.
    pub(super) fn attached_wrongly(&self, lowest: Option<u64>, answer: &mut Answer) {
        if self.bug == Some(Bug::AttachedLowest)
            && let Outcome::Applied(Reply::Granted { fence, .. }) = &mut answer.outcome
        {
            *fence = lowest;
        }
    }
}
