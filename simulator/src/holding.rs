//! What a holder does: work, extend, enter again, leave, release, drop; and what a driver does for it.

use std::time::Duration;

use onelock::machine::{Answer, BeginRelease, Leave, Op, Outcome, Renewal, Reply, Time, Uncertainty, release_op};

use super::bug::Bug;
use super::stats::Count;
use super::task::{Aim, Errand, Stage};
use super::truth::Deed;
use super::wire::Purpose;
use super::world::{World, note};

/// How deep one task nests.
const DEPTH_MAX: usize = 3;
/// How many acquires one task makes before it stops nesting: every round has to end.
const CALLS_MAX: u32 = 20;

impl World {
    /// The caller works under the lock for a while.
    pub(super) fn work(&mut self, task: usize) {
        if let Some(group) = self.tasks[task].group {
            self.enter_stage(task, Stage::Holding, Time::MAX);
            return self.member_held(task, group);
        }
        let (low, high) = self.tasks[task].plan.hold;
        let span = self.dice.span(low, high);
        let until = self.local(self.tasks[task].plan.client) + span;
        self.enter_stage(task, Stage::Holding, until);
    }

    /// A round is over: a pause, then the next.
    pub(super) fn rest(&mut self, task: usize) {
        self.tasks[task].rounds = self.tasks[task].rounds.saturating_sub(1);
        if self.tasks[task].rounds == 0 {
            self.enter_stage(task, Stage::Done, Time::MAX);
            return;
        }
        let (low, high) = self.tasks[task].plan.idle;
        let span = self.dice.span(low, high);
        let until = self.local(self.tasks[task].plan.client) + span;
        self.enter_stage(task, Stage::Idle, until);
    }

    /// The caller does the next thing with what it holds.
    pub(super) fn act(&mut self, task: usize) {
        let Some(deed) = self.tasks[task].handles.last().copied() else {
            self.rest(task);
            return;
        };
        let plan = &self.tasks[task].plan;
        let (client, extends, enters, drops, owner) = (plan.client, plan.extends, plan.enters, plan.drops, plan.owner);
        let hands = plan.hands;
        let held = self.deeds[deed].cell.is_held(self.local(client));
        if held {
            self.check_work(deed);
            if hands > 0 && self.may_detach(task, deed) && self.dice.chance(hands) {
                return self.detach(task, deed);
            }
            if self.dice.chance(extends) {
                let factor = self.dice.pick(&[1, 2, 3]);
                let ttl = self.deeds[deed].terms.ttl * factor / 2 + Duration::from_millis(self.dice.below(20));
                self.errand(task, deed, Aim::Extend(ttl.max(Duration::from_millis(30))));
                return;
            }
            let nests = self.tasks[task].handles.len() < DEPTH_MAX && self.tasks[task].calls < CALLS_MAX;
            if owner.is_some() && nests && self.dice.chance(enters) {
                self.begin(task);
                return;
            }
        }
        if self.dice.chance(drops) { self.drop_handle(task) } else { self.leave(task) }
    }

    /// Gives the innermost handle back and waits for the answer.
    pub(super) fn leave(&mut self, task: usize) {
        let Some(deed) = self.tasks[task].handles.last().copied() else { return };
        let (client, owner) = (self.tasks[task].plan.client, self.tasks[task].plan.owner);
        let Some(owner) = owner else {
            self.release(task, deed);
            return;
        };
        let key = self.names[self.deeds[deed].name].key.clone();
        let process = &mut self.clients[client];
        match process.registry.leave(&key, &process.owners[owner as usize], deed as u64) {
            Leave::Wait => {
                process.registry_waiters.push(task);
                self.enter_stage(task, Stage::LeaveWait, Time::MAX);
            }
            Leave::Inner { count } => self.errand(task, deed, Aim::Leave(count)),
            Leave::Last => {
                self.release(task, deed);
                self.registry_changed(client);
            }
        }
    }

    fn release(&mut self, task: usize, deed: usize) {
        self.begin_release(task, deed);
        self.errand(task, deed, Aim::Release);
    }

    /// It does not count as held from here on.
    pub(super) fn begin_release(&mut self, task: usize, deed: usize) {
        let client = self.tasks[task].plan.client;
        let now = self.local(client);
        self.check_told(deed);
        if self.bug != Some(Bug::NotDisarmed) {
            let giving = self.deeds[deed].cell.begin_release(now);
            self.clients[client].watchdog.disarm(deed as u64);
            if giving == BeginRelease::NotHeld {
                self.violate("P7 release", format!("deed {deed} was released twice"));
            }
        }
        self.deeds[deed].release_begun = true;
    }

    /// A handle goes out of scope: nothing is awaited.
    pub(super) fn drop_handle(&mut self, task: usize) {
        let Some(deed) = self.tasks[task].handles.pop() else { return };
        let (client, owner) = (self.tasks[task].plan.client, self.tasks[task].plan.owner);
        let last = match owner {
            None => true,
            Some(owner) => {
                let key = self.names[self.deeds[deed].name].key.clone();
                let process = &mut self.clients[client];
                process.registry.leave_silently(&key, &process.owners[owner as usize], deed as u64)
            }
        };
        note!(self, "task {task}: drops its handle of deed {deed}, the last one: {last}");
        if last {
            self.check_told(deed);
            let now = self.local(client);
            let giving = self.deeds[deed].cell.begin_release(now);
            self.clients[client].watchdog.disarm(deed as u64);
            self.deeds[deed].release_begun = true;
            if giving != BeginRelease::NotHeld {
                self.queue_undo(deed, Uncertainty::Confirmed);
            }
        } else {
            self.deeds[deed].count_dirty = Some(self.requests.len());
        }
        if owner.is_some() {
            self.registry_changed(client);
        }
        self.go_on(task);
    }

    /// Begins a call without a wait.
    pub(super) fn errand(&mut self, task: usize, deed: usize, aim: Aim) {
        let client = self.tasks[task].plan.client;
        let limit = self.local(client) + self.call_span();
        self.enter_stage(task, Stage::Calling, Time::MAX);
        self.send_errand(
            task,
            Errand { aim, deed, request: 0, first: 0, tries: 0, started: self.now, limit, ttl: Duration::ZERO },
        );
    }

    fn send_errand(&mut self, task: usize, mut errand: Errand) {
        let client = self.tasks[task].plan.client;
        let deed = &self.deeds[errand.deed];
        let claim = deed.claim.clone();
        // what is believed on the answer is what is asked for now, not what an extend makes of it meanwhile
        errand.ttl = deed.ttl;
        let ttl_ms = deed.terms.server_ttl_ms(errand.ttl);
        let op = match errand.aim {
            Aim::Extend(ttl) => Op::Renew { holds: vec![(claim, deed.terms.server_ttl_ms(ttl))] },
            Aim::Enter(count) | Aim::Leave(count) => Op::SetCount { claim, count, ttl_ms },
            Aim::Release if self.bug == Some(Bug::FreedEarly) => Op::Release { claim },
            Aim::Attach(from) => self.attach_op(errand.deed, from),
            Aim::Release => release_op(self.local(client), claim, deed.stays_until),
        };
        errand.request = self.requests.len();
        if errand.tries == 0 {
            errand.first = errand.request;
        }
        errand.tries += 1;
        let until = self.call_limit(client).min(errand.limit);
        // an attach goes over the shared connection, whoever asks for it
        let attaches = matches!(errand.aim, Aim::Attach(_));
        let purpose = if attaches { Purpose::Attach(task) } else { Purpose::Errand(task) };
        let own = self.clients[client].plan.blocking && !attaches;
        let (deed, leaving) = (errand.deed, matches!(errand.aim, Aim::Leave(_)));
        self.tasks[task].errand = Some(errand);
        let request = self.submit(client, own, op, vec![deed], purpose, until);
        self.requests[request].leaving = leaving;
    }

    pub(super) fn errand_answered(&mut self, task: usize, request: usize, answer: &Answer) {
        let Some(errand) = self.tasks[task].errand else { return };
        if errand.request != request {
            return;
        }
        let client = self.tasks[task].plan.client;
        let again = errand.aim != Aim::Release
            && errand.tries < 2
            && answer.outcome.failure().is_some_and(|failure| failure.transient)
            && self.local(client) < errand.limit;
        if again {
            self.send_errand(task, errand);
            return;
        }
        self.tasks[task].errand = None;
        self.check_errand_length(task, &errand);
        match errand.aim {
            Aim::Extend(ttl) => self.extended(task, errand.deed, ttl, answer),
            Aim::Enter(count) => self.entered(task, &errand, count, answer),
            Aim::Leave(count) => self.left(task, &errand, count, answer),
            Aim::Release => self.released(task, errand.deed, answer),
            Aim::Attach(_) => self.attached(task, &errand, answer),
        }
    }

    fn extended(&mut self, task: usize, deed: usize, ttl: Duration, answer: &Answer) {
        let client = self.tasks[task].plan.client;
        let now = self.local(client);
        if let Outcome::Applied(Reply::Renewed(verdicts)) = &answer.outcome {
            if verdicts.first() == Some(&Renewal::Renewed) {
                let deadline = self.deeds[deed].terms.deadline(answer.sent_at, ttl);
                if self.deeds[deed].cell.confirm(now, deadline) {
                    self.stats.add(Count::Extensions);
                    let longer = self.deeds[deed].ttl.max(ttl);
                    self.deeds[deed].ttl = longer;
                    self.clients[client].watchdog.extended(now, answer.sent_at, deed as u64, ttl);
                    note!(self, "task {task}: deed {deed} extended by {ttl:?} until {deadline:?}");
                    self.check_deadline(deed);
                    self.run_watchdog(client);
                }
            } else {
                self.deeds[deed].cell.lose(onelock::LossReason::Taken);
            }
        } else if let Some(group) = self.tasks[task].group {
            self.member_not_renewed(group);
        }
        self.work(task);
    }

    fn entered(&mut self, task: usize, errand: &Errand, count: u64, answer: &Answer) {
        let deed = errand.deed;
        let inside = self.counted(task, errand, answer);
        let client = self.tasks[task].plan.client;
        let (key, owner) = (self.names[self.deeds[deed].name].key.clone(), self.tasks[task].plan.owner);
        let process = &mut self.clients[client];
        let owner = &process.owners[owner.unwrap_or_default() as usize];
        let still = process.registry.entered(&key, owner, deed as u64, inside);
        note!(self, "task {task}: entered deed {deed} with count {count}: {inside}, still there: {still}");
        if inside && still {
            self.stats.add(Count::Entries);
            self.tasks[task].handles.push(deed);
            self.check_count(task, deed);
            self.depart(task);
            self.work(task);
            self.registry_changed(client);
        } else {
            self.end_call(task);
            self.registry_changed(client);
        }
    }

    fn left(&mut self, task: usize, errand: &Errand, count: u64, answer: &Answer) {
        let deed = errand.deed;
        self.counted(task, errand, answer);
        let client = self.tasks[task].plan.client;
        let (key, owner) = (self.names[self.deeds[deed].name].key.clone(), self.tasks[task].plan.owner);
        let process = &mut self.clients[client];
        process.registry.left(&key, &process.owners[owner.unwrap_or_default() as usize], deed as u64);
        self.tasks[task].handles.pop();
        note!(self, "task {task}: left deed {deed}, count {count}");
        self.check_count(task, deed);
        self.go_on(task);
        self.registry_changed(client);
    }

    /// What the answer to a count says about the lease. True when the server has the new count.
    fn counted(&mut self, task: usize, errand: &Errand, answer: &Answer) -> bool {
        let Errand { deed, first, ttl, .. } = *errand;
        let client = self.tasks[task].plan.client;
        let now = self.local(client);
        match answer.outcome {
            Outcome::Applied(Reply::Counted(true)) => {
                let Deed { terms, cell, ttl: longer, .. } = &self.deeds[deed];
                let ttl = if self.bug == Some(Bug::CountBelievedLonger) { *longer } else { ttl };
                let held = cell.confirm(now, terms.deadline(answer.sent_at, ttl));
                if self.deeds[deed].count_dirty.is_some_and(|from| first >= from) {
                    self.deeds[deed].count_dirty = None;
                }
                if held {
                    self.check_deadline(deed);
                }
                held
            }
            Outcome::Applied(_) => {
                self.deeds[deed].cell.lose(onelock::LossReason::Taken);
                false
            }
            _ => {
                self.deeds[deed].count_dirty = Some(self.requests.len());
                false
            }
        }
    }

    fn released(&mut self, task: usize, deed: usize, answer: &Answer) {
        self.tasks[task].handles.pop();
        self.stats.add(Count::Releases);
        if let Outcome::Applied(Reply::Released(found)) = &answer.outcome {
            let lost = self.deeds[deed].cell.finish_release(*found, answer.received_at);
            self.check_release(deed, lost);
        } else {
            self.stats.add(Count::Unconfirmed);
            if self.bug != Some(Bug::ReleaseForgotten) {
                self.queue_undo(deed, Uncertainty::Confirmed);
            }
        }
        self.go_on(task);
    }
}
