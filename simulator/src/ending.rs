//! Every exit of an acquire without a lease, and what it leaves to the cleanup queue.

use onelock::machine::{PendingUndo, Step, Time, Uncertainty, Verdict};

use super::bug::Bug;
use super::stats::Count;
use super::task::Stage;
use super::truth::Deed;
use super::world::{World, note};

impl World {
    /// The token is dead: it is released, and the next attempt has another one.
    pub(super) fn retire(&mut self, task: usize) {
        let Some(deed) = self.tasks[task].call.as_ref().and_then(|call| call.deed) else { return };
        self.give_up(deed);
        if self.bug == Some(Bug::TokenReused) {
            let Deed { claim, trail, .. } = &self.deeds[deed];
            let (claim, trail) = (claim.clone(), trail.clone());
            self.claim(task);
            let next = self.deeds.len() - 1;
            (self.deeds[next].claim, self.deeds[next].trail) = (claim, trail);
            return;
        }
        self.claim(task);
    }

    /// Hands a claim that ended without a lease to the cleanup queue, if anything of it may be on the server.
    pub(super) fn give_up(&mut self, deed: usize) {
        self.deeds[deed].abandoned = true;
        if let Some(uncertainty) = self.deeds[deed].trail.uncertainty() {
            self.queue_undo(deed, uncertainty);
        }
    }

    pub(super) fn queue_undo(&mut self, deed: usize, uncertainty: Uncertainty) {
        let Deed { client, claim, .. } = &self.deeds[deed];
        let (client, server_ttl) = (*client, self.deeds[deed].server_ttl());
        let uncertainty = if self.bug == Some(Bug::UndoOnce) { Uncertainty::Confirmed } else { uncertainty };
        let stays_until = self.deeds[deed].stays_until;
        let undo = PendingUndo { stays_until, ..PendingUndo::new(claim.clone(), server_ttl, uncertainty) };
        let now = self.local(client);
        self.stats.add(Count::Duties);
        let process = &mut self.clients[client];
        let id = process.cleanup.take(now, undo);
        process.undo_deeds.push(deed);
        self.deeds[deed].undo = Some(id);
        note!(self, "client {client}: undo {id} for deed {deed}, {uncertainty:?}");
        self.run_janitor(client);
    }

    /// An acquire ends without a lease.
    pub(super) fn end_call(&mut self, task: usize) {
        self.stats.add(Count::Refused);
        let plan = &self.tasks[task].plan;
        let (client, name, owner) = (plan.client, plan.name, plan.owner);
        let Some(call) = &self.tasks[task].call else { return };
        let (deed, first) = (call.deed, call.first);
        if let Some(deed) = deed
            && !self.pass_place_on(task, deed)
        {
            self.give_up(deed);
        }
        if first && let Some(owner) = owner {
            let key = self.names[name].key.clone();
            let process = &mut self.clients[client];
            process.registry.abandoned(&key, &process.owners[owner as usize]);
        }
        self.depart(task);
        self.go_on(task);
        if owner.is_some() {
            self.registry_changed(client);
        }
    }

    /// After a call without a lease: on with what is held already, or a pause and the next round.
    pub(super) fn go_on(&mut self, task: usize) {
        if let Some(group) = self.tasks[task].group {
            self.enter_stage(task, Stage::Idle, Time::MAX);
            return self.member_idle(task, group);
        }
        if self.tasks[task].handles.is_empty() { self.rest(task) } else { self.work(task) }
    }

    /// A call is over, either way: it leaves the line and lets go of the subscription.
    pub(super) fn depart(&mut self, task: usize) {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let Some(call) = self.tasks[task].call.take() else { return };
        self.check_call_length(task, &call);
        // void the timers of the call before anybody else is woken
        self.tasks[task].turn += 1;
        self.tasks[task].stage = Stage::Calling;
        if call.watching && !self.pass_subscription_on(task, &call) {
            self.unwatch(client, name);
        }
        if let Some(ticket) = call.ticket
            && let Some(head) = self.clients[client].lines[name].leave(ticket).copied()
            && self.bug != Some(Bug::SilentLeave)
        {
            self.become_head(head);
        }
    }

    /// Patience ended in the local line or before the registry, where the machine was not asked.
    pub(super) fn patience_is_up(&mut self, task: usize) {
        let client = self.tasks[task].plan.client;
        self.clients[client].registry_waiters.retain(|other| *other != task);
        if let Some(call) = &mut self.tasks[task].call
            && let Step::Done(Verdict::Failed(failure)) = call.machine.give_up_waiting()
        {
            self.tasks[task].failed = Some(failure.kind);
        }
        self.end_call(task);
    }

    /// The caller stops waiting, wherever the call stands.
    pub(super) fn cancel(&mut self, task: usize, number: u32) {
        let Some(call) = &self.tasks[task].call else { return };
        if call.number != number {
            return;
        }
        let (deed, request) = (call.deed, call.request);
        let client = self.tasks[task].plan.client;
        note!(self, "task {task}: acquire {number} is cancelled in {:?}", self.tasks[task].stage);
        match self.tasks[task].stage {
            Stage::Attempting => {
                let unsent = request.is_some_and(|request| !self.requests[request].sent);
                self.stats.add(if unsent { Count::CancelledUnsent } else { Count::CancelledInFlight });
                if let Some(request) = request {
                    self.abandon(request);
                }
            }
            Stage::HandOver { .. } => self.stats.add(Count::CancelledGranted),
            Stage::InLine | Stage::Watching | Stage::Sleeping => {}
            Stage::RegistryWait => self.clients[client].registry_waiters.retain(|other| *other != task),
            // a re-entry under way is not a first acquire; it is waited for
            _ => return,
        }
        if self.bug == Some(Bug::CancelForgets)
            && let (Some(deed), Some(call)) = (deed, &mut self.tasks[task].call)
        {
            self.deeds[deed].abandoned = true;
            call.deed = None;
        }
        self.end_call(task);
        if let Some(deed) = deed {
            self.check_given_up(deed);
        }
    }
}
