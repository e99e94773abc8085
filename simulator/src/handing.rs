//! A hold that is handed over: a proof goes to other processes, once or several times, as a queue of messages may deliver
//! it; whoever attaches first goes on with the hold.

use onelock::machine::{Answer, Guarded, Op, Outcome, Reply, Uncertainty};

use super::bug::Bug;
use super::plan::Fault;
use super::stats::Count;
use super::task::{Aim, Errand, Stage, Task};
use super::truth::Deed;
use super::world::{Event, World, nanos, note};

/// How many tasks there are at most: every schedule has to end.
const TASKS_MAX: usize = 40;

impl World {
    /// Whether the holder may hand its hold over, which it must have entered once.
    pub(super) fn may_detach(&self, task: usize, deed: usize) -> bool {
        let plan = &self.tasks[task].plan;
        let once = plan.owner.is_none_or(|owner| {
            let process = &self.clients[plan.client];
            process.registry.count(&self.names[plan.name].key, &process.owners[owner as usize], deed as u64) == 1
        });
        once && self.tasks[task].handles.len() == 1 && self.tasks.len() < TASKS_MAX
    }

    /// The holder believes in its hold no more, and somebody gets the proof of it.
    pub(super) fn detach(&mut self, task: usize, deed: usize) {
        let plan = self.tasks[task].plan.clone();
        let now = self.local(plan.client);
        if !self.deeds[deed].cell.detach(now) {
            return self.work(task);
        }
        self.stats.add(Count::Detached);
        if self.bug == Some(Bug::DetachedReleased) {
            self.queue_undo(deed, Uncertainty::Confirmed);
        }
        self.clients[plan.client].watchdog.disarm(deed as u64);
        self.tasks[task].handles.pop();
        if let Some(owner) = plan.owner {
            let key = self.names[plan.name].key.clone();
            let process = &mut self.clients[plan.client];
            process.registry.leave_silently(&key, &process.owners[owner as usize], deed as u64);
        }
        for _ in 0..self.dice.pick(&[1, 2, 2, 3]) {
            let client = self.dice.below(self.clients.len() as u64) as usize;
            let reach = self.dice.pick(&[self.plan.delay.1 * 2, nanos(self.plan.ttl) / 2]);
            let at = self.now + self.dice.below(reach);
            let receiver = self.tasks.len();
            let receiving =
                super::plan::TaskPlan { client, owner: None, rounds: 1, hands: plan.hands / 2, ..plan.clone() };
            note!(self, "task {task}: hands deed {deed} to task {receiver} of client {client}");
            self.tasks.push(Task { proof: Some(deed), ..Task::new(receiving) });
            self.push(at, Event::Task(receiver as u32, 0));
        }
        self.go_on(task);
        if plan.owner.is_some() {
            self.registry_changed(plan.client);
        }
    }

    /// A proof has arrived.
    pub(super) fn attach(&mut self, task: usize, from: usize) {
        let deed = self.deeds.len();
        self.claim(task);
        self.deeds[deed].from = Some(from);
        if self.bug == Some(Bug::AttachKeepsToken) {
            self.deeds[deed].claim.token = self.deeds[from].claim.token.clone();
        }
        note!(self, "task {task}: attaches deed {deed} with the proof of deed {from}");
        if !self.calm && self.plan.faults.has(Fault::Cancel) && self.dice.chance(400) {
            let reach = self.dice.pick(&[self.plan.delay.1 * 3, nanos(self.plan.request_timeout) * 2]);
            let later = self.now + self.dice.below(reach);
            self.push(later, Event::GiveUp(task as u32, deed as u32));
        }
        self.errand(task, deed, Aim::Attach(from));
    }

    /// The request of an attach.
    pub(super) fn attach_op(&self, deed: usize, from: usize) -> Op {
        let Deed { claim, terms, .. } = &self.deeds[deed];
        let from = self.deeds[from].claim.token.clone();
        Op::Attach { claim: claim.clone(), from, ttl_ms: terms.server_ttl_ms(terms.ttl), info: None }
    }

    /// Keeps in mind what an answer to an attach says about the requests of its token.
    pub(super) fn attach_heard(&mut self, task: usize, request: usize, answer: &Answer) {
        if let Some(errand) = self.tasks[task].errand.filter(|errand| errand.request == request) {
            let trail = &mut self.deeds[errand.deed].trail;
            match &answer.outcome {
                Outcome::Applied(reply) => {
                    trail.answered(request as u32, answer.connection, matches!(reply, Reply::Granted { .. }));
                }
                Outcome::NotApplied(_) => trail.not_applied(request as u32),
                Outcome::Indeterminate(_) => {}
            }
        }
        self.errand_answered(task, request, answer);
    }

    /// The last answer to an attach.
    pub(super) fn attached(&mut self, task: usize, errand: &Errand, answer: &Answer) {
        let (deed, client) = (errand.deed, self.tasks[task].plan.client);
        let now = self.local(client);
        let terms = self.deeds[deed].terms.clone();
        let deadline = terms.deadline(answer.sent_at, terms.ttl);
        let enough = now < deadline && deadline.since(now) >= terms.min_validity;
        let Outcome::Applied(Reply::Granted { fence, .. }) = &answer.outcome else {
            if matches!(answer.outcome, Outcome::Applied(Reply::Gone)) {
                self.stats.add(Count::AttachedInVain);
            }
            return self.end_attach(task, deed);
        };
        if !enough {
            return self.end_attach(task, deed);
        }
        self.deeds[deed].cell.grant(deadline);
        self.deeds[deed].fence = *fence;
        self.begin_stay(deed, now);
        let Deed { claim, cell, ttl, .. } = &self.deeds[deed];
        let guarded = Guarded { claim: claim.clone(), state: cell.clone(), terms, ttl: *ttl };
        self.clients[client].watchdog.arm(now, deed as u64, guarded);
        self.stats.add(Count::Attached);
        note!(self, "task {task}: deed {deed} is attached until {deadline:?} (now {now:?}), fence {fence:?}");
        self.check_hand_out(task, deed);
        self.tasks[task].handles.push(deed);
        self.work(task);
        self.run_watchdog(client);
    }

    /// An attach ends without a lease: what it may have taken is released.
    fn end_attach(&mut self, task: usize, deed: usize) {
        if self.bug == Some(Bug::AttachForgets) {
            self.deeds[deed].abandoned = true;
        } else {
            self.give_up(deed);
        }
        self.go_on(task);
        self.check_given_up(deed);
    }

    /// The caller of an attach stops waiting.
    pub(super) fn give_up_attach(&mut self, task: usize, deed: usize) {
        let Some(errand) = self.tasks[task].errand.filter(|errand| errand.deed == deed) else { return };
        if !matches!(errand.aim, Aim::Attach(_)) || self.tasks[task].stage != Stage::Calling {
            return;
        }
        note!(self, "task {task}: the attach of deed {deed} is cancelled");
        self.stats.add(Count::AttachesCancelled);
        self.tasks[task].errand = None;
        self.abandon(errand.request);
        self.end_attach(task, deed);
    }

    /// The server has exchanged the token of a hold that was handed over.
    pub(super) fn check_exchange(&mut self, deed: usize, fence: Option<u64>, again: bool) {
        let Deed { name, from: Some(from), .. } = self.deeds[deed] else { return };
        if !again {
            let tainted = self.deeds[from].tainted;
            self.deeds[deed].granted = true;
            self.deeds[deed].granted_at = self.now;
            self.deeds[deed].tainted |= tainted;
            self.check_taken(name, Some(deed));
            // from here on the shortest time is that of whoever attached
            self.names[name].stay = self.names[name].stay.filter(|(other, _)| *other != from);
            self.check_orphan(deed);
        }
        // a late copy of the acquire may have brought the former token back, with a higher fencing token, after whoever
        // attached first had released the hold
        let known = fence.is_none() || fence >= self.deeds[from].fence;
        if !known && !self.deeds[deed].tainted && !self.names[name].fence_lost {
            let before = self.deeds[from].fence;
            self.violate("P6 fencing grows", format!("deed {deed} goes on with {fence:?}, not with {before:?}"));
        }
        let claim = self.deeds[deed].claim.clone();
        if self.server.hold_ends_us(self.now, &claim) == Some(u64::MAX) {
            self.violate("P2 no deadlock", format!("deed {deed} stands on the server without a time to live"));
        }
    }

    /// Whether a lease goes on with the fencing token of the hold that was handed over.
    pub(super) fn keeps_fence(&self, deed: usize) -> bool {
        let Deed { from, fence, .. } = self.deeds[deed];
        from.is_some_and(|from| fence.is_some() && fence == self.deeds[from].fence)
    }
}
