//! The way of one acquire through a client, as a driver leads it: registry, local line, attempts, hand-over, and every
//! exit without a lease.

use std::sync::Arc;
use std::time::Duration;

use onelock::machine::{
    Acquire, AcquireLimits, Answer, Claim, Enter, Guarded, LeaseState, Op, Outcome, Reply, Step, Time, Token,
    TokenForm, Verdict, naming,
};

use super::belief::WrongBelief;
use super::bug::Bug;
use super::places::Passing;
use super::plan::{Fault, Wait};
use super::stats::Count;
use super::storm;
use super::task::{Aim, Call, Stage};
use super::trail::Trail;
use super::truth::{Deed, Name};
use super::wire::Purpose;
use super::world::{Event, World, nanos, note};

/// Sleeps longer than this are safety polls.
const LONG_SLEEP: Duration = Duration::from_millis(500);

impl World {
    /// A caller asks for the lock.
    pub(super) fn begin(&mut self, task: usize) {
        self.stats.add(Count::Acquires);
        let plan = &self.tasks[task].plan;
        let (client, owner) = (plan.client, plan.owner);
        let now = self.local(client);
        let wait = match plan.wait {
            Wait::Try => Some(Duration::ZERO),
            Wait::Bounded(span) => Some(span),
            Wait::Forever => None,
        };
        let patience = AcquireLimits {
            wait,
            connect_timeout: self.plan.connect_timeout,
            request_timeout: self.plan.request_timeout,
            unreachable_limit: self.plan.unreachable_limit,
            look_every: None,
            believes_messages: true,
            place_for: None,
        };
        let mut terms = (*self.tasks[task].terms).clone();
        terms.auto_renew |= self.bug == Some(Bug::FixedLeaseBelieved);
        let mut machine = Acquire::new(terms, patience, now);
        machine.set_herd_backoff(self.clients[client].rivalries[self.tasks[task].plan.name]);
        self.tasks[task].calls += 1;
        let number = self.tasks[task].calls;
        self.tasks[task].call = Some(Box::new(Call {
            machine,
            deed: None,
            ticket: None,
            watching: false,
            heard: 0,
            started: self.now,
            number,
            request: None,
            first: false,
            refused_until: None,
            moved: false,
            belief: WrongBelief::default(),
        }));
        note!(self, "task {task}: acquire {number} begins ({wait:?}, owner {owner:?})");
        if !self.calm && self.plan.faults.has(Fault::Cancel) && self.dice.chance(400) {
            let reach = self.dice.pick(&[self.plan.delay.1 * 4, nanos(self.plan.ttl), nanos(self.plan.ttl) * 4]);
            let later = self.now + self.dice.below(reach);
            self.push(later, Event::Cancel(task as u32, number));
        }
        if owner.is_some() { self.ask_registry(task) } else { self.join_line(task) }
    }

    /// Asks whether the owner holds the lock already.
    pub(super) fn ask_registry(&mut self, task: usize) {
        let plan = &self.tasks[task].plan;
        let (client, name, owner) = (plan.client, plan.name, plan.owner.unwrap_or_default());
        let now = self.local(client);
        let (key, deeds) = (self.names[name].key.clone(), &self.deeds);
        let process = &mut self.clients[client];
        let entry = process
            .registry
            .enter(&key, &process.owners[owner as usize], |deed: &usize| deeds[*deed].cell.is_held(now));
        match entry {
            Enter::First => {
                if let Some(call) = &mut self.tasks[task].call {
                    call.first = true;
                }
                self.join_line(task);
            }
            Enter::Again { hold, count } => {
                note!(self, "task {task}: enters the hold of deed {hold} again, count {count}");
                self.errand(task, hold, Aim::Enter(count));
            }
            Enter::Wait => {
                self.clients[client].registry_waiters.push(task);
                let until = self.tasks[task].call.as_ref().map_or(Time::ZERO, |call| call.machine.gives_up_at());
                self.enter_stage(task, Stage::RegistryWait, until);
            }
            Enter::Lost(hold) => {
                note!(self, "task {task}: the hold of deed {hold} was lost");
                self.end_call(task);
            }
        }
    }

    /// The registry of a client has changed: whoever waited for it asks again.
    pub(super) fn registry_changed(&mut self, client: usize) {
        for task in std::mem::take(&mut self.clients[client].registry_waiters) {
            match self.tasks[task].stage {
                Stage::RegistryWait => self.ask_registry(task),
                Stage::LeaveWait => self.leave(task),
                _ => {}
            }
        }
    }

    fn join_line(&mut self, task: usize) {
        self.claim(task);
        let plan = &self.tasks[task].plan;
        let (client, name) = (plan.client, plan.name);
        let is_try = self.tasks[task].call.as_ref().is_some_and(|call| call.machine.is_try());
        if is_try {
            self.step(task);
            return;
        }
        let line = &mut self.clients[client].lines[name];
        let ticket = line.join(task);
        let is_head = line.is_head(ticket);
        if let Some(call) = &mut self.tasks[task].call {
            call.ticket = Some(ticket);
        }
        if is_head {
            self.become_head(task);
        } else {
            self.call_waits(task);
            let until = self.tasks[task].call.as_ref().map_or(Time::ZERO, |call| call.machine.gives_up_at());
            self.enter_stage(task, Stage::InLine, until);
        }
    }

    pub(super) fn become_head(&mut self, task: usize) {
        let plan = &self.tasks[task].plan;
        let (client, name) = (plan.client, plan.name);
        if self.names[name].kind.row().queues {
            return self.become_head_of_places(task);
        }
        let process = &self.clients[client];
        let (spacing, away_since) = (process.lines[name].spacing(), process.away_since);
        let ahead = process.plan.watches_ahead && process.hearing[name].subscribed;
        if let Some(call) = &mut self.tasks[task].call {
            call.machine.set_spacing(spacing);
            call.machine.set_unreachable_since(away_since);
            if ahead {
                call.machine.watch_confirmed();
            }
        }
        if ahead {
            self.watch(task);
        }
        self.step(task);
    }

    /// Makes a claim with a token of its own, before anything is sent.
    pub(super) fn claim(&mut self, task: usize) {
        let plan = &self.tasks[task].plan;
        let (client, name) = (plan.client, plan.name);
        let Name { key, kind, .. } = &self.names[name];
        let index = self.deeds.len();
        let number = if self.bug == Some(Bug::OwnerIdOnly) { client } else { index + 1000 };
        let token: Arc<str> = match kind.row().token {
            TokenForm::Value => format!("{}{number:032x}", naming::VALUE_PREFIX).into(),
            _ => format!("00000000-0000-4000-8000-{client:012x}:{number}").into(),
        };
        let claim = Claim { kind: *kind, key: key.clone(), token };
        self.deeds.push(Deed {
            client,
            name,
            claim,
            from: None,
            cell: Arc::new(LeaseState::new()),
            terms: self.tasks[task].terms.clone(),
            ttl: self.tasks[task].terms.ttl,
            trail: Trail::default(),
            fence: None,
            granted: false,
            handed: false,
            tainted: false,
            gone: false,
            abandoned: false,
            release_begun: false,
            release_applied: false,
            release_executed: false,
            orphaned: false,
            granted_at: 0,
            stays_until: Time::ZERO,
            told: 0,
            lost_with_group: false,
            undo: None,
            undo_over: false,
            undone_at: None,
            copied: false,
            counts_in_air: 0,
            last_count: 0,
            count_dirty: None,
            lives: Duration::ZERO,
            passing: Passing::default(),
        });
        self.clients[client].cleanup.reserve();
        if let Some(call) = &mut self.tasks[task].call {
            call.deed = Some(index);
        }
    }

    /// Does what the machine says next.
    pub(super) fn step(&mut self, task: usize) {
        let client = self.tasks[task].plan.client;
        let name = self.tasks[task].plan.name;
        loop {
            let now = self.local(client);
            let Some(call) = &mut self.tasks[task].call else { return };
            match call.machine.next(now) {
                Step::Attempt { until } => {
                    call.heard = self.clients[client].hearing[name].hints;
                    self.attempt(task, until);
                    return;
                }
                Step::Watch { until } => {
                    self.watch(task);
                    if self.clients[client].hearing[name].subscribed {
                        self.watch_confirmed(task);
                        continue;
                    }
                    self.call_waits(task);
                    self.enter_stage(task, Stage::Watching, until);
                    return;
                }
                Step::Sleep { until } => {
                    let hints = self.clients[client].hearing[name].hints;
                    let missed = call.watching && call.heard != hints;
                    call.heard = hints;
                    if missed {
                        self.stats.add(Count::HintsInFlight);
                    }
                    if missed && self.is_told(task) {
                        return;
                    }
                    let Some(call) = &mut self.tasks[task].call else { return };
                    if missed && self.bug != Some(Bug::HintForgotten) {
                        storm::hint(self.bug, &mut call.machine, now, &mut self.clients[client].jitter);
                        if !matches!(call.machine.next(now), Step::Sleep { until: other } if other == until) {
                            continue;
                        }
                    }
                    let until = match self.bug {
                        Some(Bug::NoSafetyPoll) => self.without_poll(task, until),
                        Some(Bug::PlaceNotKept) => self.without_keeps(task, until),
                        _ => until,
                    };
                    self.call_waits(task);
                    self.enter_stage(task, Stage::Sleeping, until);
                    return;
                }
                Step::Done(Verdict::Granted { deadline, fence, told }) => {
                    let hand_over_at = self.now + self.hand_over_delay(client);
                    let at = self.clients[client].plan.clock.local(hand_over_at);
                    self.enter_stage(task, Stage::HandOver { deadline, fence, told }, at);
                    return;
                }
                Step::Done(Verdict::Failed(failure)) => {
                    note!(self, "task {task}: acquire fails: {failure:?}");
                    self.tasks[task].failed = Some(failure.kind);
                    self.end_call(task);
                    return;
                }
            }
        }
    }

    /// The subscription is confirmed.
    pub(super) fn watch_confirmed(&mut self, task: usize) {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let now = self.local(client);
        let Some(call) = &mut self.tasks[task].call else { return };
        call.machine.watch_confirmed();
        if self.bug == Some(Bug::NoSecondLook) {
            // as if the refusal of before were news, and the subscription none
            call.heard = self.clients[client].hearing[name].hints;
            let answer = Answer {
                sent_at: now,
                received_at: now,
                connection: 0,
                server_time_us: None,
                outcome: Outcome::Applied(Reply::Denied { ttl_left_ms: None, announces: true }),
            };
            call.machine.answered(now, &answer, &mut self.clients[client].jitter);
        }
    }

    /// When a waiter looks again that trusts in messages: when the holder's time ends, and not before.
    fn without_poll(&self, task: usize, until: Time) -> Time {
        let now = self.local(self.tasks[task].plan.client);
        match &self.tasks[task].call {
            Some(call) if until.since(now) > LONG_SLEEP => {
                call.refused_until.map_or(until, |end| end.min(call.machine.gives_up_at()))
            }
            _ => until,
        }
    }

    fn attempt(&mut self, task: usize, until: Time) {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let Some(deed) = self.tasks[task].call.as_ref().and_then(|call| call.deed) else { return };
        let terms = &self.deeds[deed].terms;
        let ttl_ms = terms.server_ttl_ms(terms.ttl);
        let (claim, fence_ttl_ms) = (self.deeds[deed].claim.clone(), naming::fence_ttl_ms(ttl_ms));
        let queues = claim.kind.row().queues;
        let op = if queues {
            let route = self.route(client, name);
            if let Some(call) = &mut self.tasks[task].call {
                call.machine.set_route(route);
                call.belief.sent(self.clients[client].plan.clock.local(self.now), route);
            }
            let entry = self.queue_entry(task);
            Op::Enter { claim, ttl_ms, fence_ttl_ms, info: None, entry }
        } else {
            Op::Acquire { claim, ttl_ms, fence_ttl_ms: Some(fence_ttl_ms), info: None }
        };
        if self.deeds[deed].trail.is_open() {
            self.stats.add(Count::Resends);
        }
        self.check_spacing(task);
        self.enter_stage(task, Stage::Attempting, Time::MAX);
        // a thread that has to wait for its place leaves that to the runtime
        let moved = self.tasks[task].call.as_ref().is_some_and(|call| call.moved);
        let own = self.clients[client].plan.blocking && !(queues && moved);
        let request = self.submit(client, own, op, vec![deed], Purpose::Attempt(task), until);
        self.note_listening(request, deed);
        if let Some(call) = &mut self.tasks[task].call {
            call.request = Some(request);
        }
    }

    pub(super) fn attempt_answered(&mut self, task: usize, request: usize, answer: &Answer) {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let now = self.local(client);
        let Some(call) = &mut self.tasks[task].call else { return };
        let Some(deed) = call.deed else { return };
        call.request = None;
        let queues = self.names[name].kind.row().queues;
        let trail = &mut self.deeds[deed].trail;
        let mut denied = None;
        match &answer.outcome {
            Outcome::Applied(reply) => {
                let granted = matches!(reply, Reply::Granted { .. });
                // a place stands until it is left, and no other answer says that an earlier request took none
                let placed = queues && (trail.stands() || trail.has_others(request as u32));
                let stands = granted || matches!(reply, Reply::Queued { .. }) || placed;
                if let Reply::Denied { ttl_left_ms, .. } = reply {
                    denied = Some(ttl_left_ms.map_or(Time::MAX, |left| now + Duration::from_millis(left + 5)));
                }
                trail.answered(request as u32, answer.connection, stands);
            }
            Outcome::NotApplied(_) => trail.not_applied(request as u32),
            Outcome::Indeterminate(_) => {}
        }
        call.refused_until = denied;
        let resent = matches!(answer.outcome, Outcome::Indeterminate(_));
        call.belief.answered(answer);
        // here messages have a connection of their own: less is ordered than on the one that the library asks for
        let connection = if answer.connection == 0 { 0 } else { call.belief.heard_on };
        let as_of_one = Answer { connection, ..answer.clone() };
        let token = call.machine.answered(now, &as_of_one, &mut self.clients[client].jitter);
        self.clients[client].rivalries[name] = call.machine.herd_backoff();
        let away = if matches!(answer.outcome, Outcome::Applied(_)) { None } else { call.machine.unreachable_since() };
        self.clients[client].away_since = away;
        if call.ticket.is_some() {
            self.clients[client].lines[name].set_spacing(call.machine.spacing());
            match &answer.outcome {
                Outcome::Applied(Reply::Granted { .. }) => self.clients[client].refusals[name].clear(),
                _ if denied.is_some() => self.clients[client].refusals[name].push(now),
                _ => {}
            }
        }
        if queues {
            self.check_place(task, deed, request, answer);
            if resent && self.bug == Some(Bug::ResentPlaceForgotten) {
                // another token asks for another place, and nobody leaves the first
                self.deeds[deed].abandoned = true;
                self.claim(task);
            }
        }
        if token == Token::Retire {
            self.stats.add(Count::LateGrants);
            self.retire(task);
        }
        self.step(task);
    }

    /// The last look before the caller gets the lease.
    pub(super) fn hand_over(&mut self, task: usize, deadline: Time, fence: Option<u64>, told: Option<Time>) {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let now = self.local(client);
        let Some(call) = &mut self.tasks[task].call else { return };
        let Some(deed) = call.deed else { return };
        let terms = self.deeds[deed].terms.clone();
        let enough = call.machine.is_worth_handing_out(now, deadline);
        if !enough && self.bug != Some(Bug::LateGrantHandedOut) {
            self.stats.add(Count::LateHandOvers);
            call.machine.too_late(now, &mut self.clients[client].jitter);
            self.retire(task);
            self.step(task);
            return;
        }
        self.deeds[deed].cell.grant(deadline);
        self.deeds[deed].fence = fence;
        self.begin_stay(deed, now);
        let guarded = Guarded {
            claim: self.deeds[deed].claim.clone(),
            state: self.deeds[deed].cell.clone(),
            terms,
            ttl: self.deeds[deed].ttl,
        };
        if told.is_some() && !self.deeds[deed].terms.auto_renew {
            self.violate("P11 a told grant", format!("deed {deed} lasts for less than its ttl, and is not renewed"));
        }
        match told.filter(|_| self.bug != Some(Bug::ToldRenewedLate)) {
            None => self.clients[client].watchdog.arm(now, deed as u64, guarded),
            Some(sent_at) => self.clients[client].watchdog.arm_told(now, deed as u64, guarded, sent_at),
        };
        let (key, owner) = (self.names[name].key.clone(), self.tasks[task].plan.owner);
        if let Some(owner) = owner {
            let process = &mut self.clients[client];
            process.registry.granted(&key, &process.owners[owner as usize], deed as u64, deed);
        }
        self.stats.add(Count::Leases);
        note!(self, "task {task}: deed {deed} is handed out until {deadline:?} (now {now:?}), fence {fence:?}");
        self.check_hand_out(task, deed);
        self.tasks[task].handles.push(deed);
        self.depart(task);
        self.work(task);
        self.run_watchdog(client);
        if owner.is_some() {
            self.registry_changed(client);
        }
    }
}
