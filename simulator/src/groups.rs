//! Several locks at once: what a driver does with an acquire of several, and with the one lease that comes of it.
//!
//! Each member is a task of its own, which acquires and releases as any other does; the group tells it when.
//!
//! | property (P18) | is checked by |
//! |---|---|
//! | handed out: all are held at that moment | `hand_group_out` |
//! | not handed out: nothing is kept | `check_nothing_kept` |
//! | nobody waits for a member while it holds a later one | `check_group_order` |
//! | any set of overlapping acquires goes on | the end of every schedule: all come to rest |
//! | the whole is lost as soon as a member is | `check_group_loss` |

use std::time::Duration;

use onelock::ErrorKind;
use onelock::machine::multi::{
    GiveUpReason, MemberId, MemberLook, MultiAcquire, MultiStep, PlacedMember, SharedLoss, arrange,
    terms_while_acquiring,
};
use onelock::machine::{Kind, Time};

use super::bug::Bug;
use super::plan::{TaskPlan, Wait};
use super::plan_kinds::GroupPlan;
use super::stats::Count;
use super::task::{Aim, Stage, Task};
use super::world::{Event, World, note};

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum GroupStage {
    Idle,
    /// One request for all members is under way.
    TakingAll,
    /// The member at this place in the order is being acquired.
    Entering(usize),
    /// So many renewals are under way.
    Renewing(usize),
    /// So many releases are under way; then it begins anew at that time, or ends.
    Releasing(usize, Option<Time>),
    /// Everything is released: a pause, then it begins anew.
    Pausing,
    Holding,
    Done,
    Dead,
}

/// One user of several locks inside a client process.
pub(super) struct Group {
    pub(super) plan: GroupPlan,
    /// The tasks of its members in their order.
    pub(super) members: Vec<usize>,
    order: Vec<PlacedMember>,
    pub(super) machine: Option<MultiAcquire>,
    pub(super) stage: GroupStage,
    pub(super) turn: u32,
    rounds: u32,
    pub(super) loss: SharedLoss,
    /// How often the holder was told of the loss.
    pub(super) told: u32,
    pub(super) started: u64,
    /// A renewal failed for another reason than a loss.
    failed: bool,
    /// The claims that one request is to take, and that request.
    pub(super) taking: Vec<usize>,
    pub(super) taking_request: Option<usize>,
}

impl World {
    /// Makes the groups of the plan, and a task for each member.
    pub(super) fn form_groups(&mut self) {
        for plan in self.plan.groups.clone() {
            let ids: Vec<MemberId> = plan.names.iter().map(|name| self.member_id(*name)).collect();
            let given = (0..ids.len()).map(|given| PlacedMember { given, class: given }).collect();
            let order = arrange(&ids).unwrap_or_default();
            let order = if self.bug == Some(Bug::CallersOrder) { given } else { order };
            let group = self.groups.len();
            let mut members = Vec::new();
            for placed in &order {
                let task = TaskPlan {
                    client: plan.client,
                    name: plan.names[placed.given],
                    wait: Wait::Forever,
                    terms: terms_while_acquiring(&plan.terms),
                    owner: None,
                    rounds: u32::MAX,
                    hold: (Duration::ZERO, Duration::ZERO),
                    idle: (Duration::ZERO, Duration::ZERO),
                    extends: 0,
                    enters: 0,
                    drops: 0,
                    hands: 0,
                };
                members.push(self.tasks.len());
                self.tasks.push(Task { group: Some(group), ..Task::new(task) });
            }
            let (client, rounds) = (plan.client, plan.rounds);
            self.groups.push(Group {
                plan,
                members,
                order,
                machine: None,
                stage: GroupStage::Idle,
                turn: 0,
                rounds,
                loss: SharedLoss::default(),
                told: 0,
                started: 0,
                failed: false,
                taking: Vec::new(),
                taking_request: None,
            });
            let soon = self.local(client) + Duration::from_nanos(self.dice.below(self.plan.ttl.as_nanos() as u64 / 2));
            self.enter_group(group, GroupStage::Idle, soon);
        }
    }

    fn member_id(&self, name: usize) -> MemberId {
        let (key, kind) = (self.names[name].key.clone(), self.names[name].kind);
        MemberId { key, kind, address: "".into(), store: 0, count: 1, owner: None }
    }

    pub(super) fn enter_group(&mut self, group: usize, stage: GroupStage, until: Time) {
        self.groups[group].stage = stage;
        self.groups[group].turn += 1;
        if until != Time::MAX {
            let client = self.groups[group].plan.client;
            let due = self.world_time(client, until);
            let at = self.late(client, due);
            self.push(at, Event::Group(group as u32, self.groups[group].turn));
        }
    }

    pub(super) fn group_timer(&mut self, group: usize, turn: u32) {
        if self.groups[group].turn != turn {
            return;
        }
        match self.groups[group].stage {
            GroupStage::Idle => self.begin_group(group),
            // the hard limit: the machine says what to do
            GroupStage::Entering(member) => {
                self.stop_entering(group, member);
                self.step_group(group);
            }
            GroupStage::Pausing => self.begin_group_anew(group),
            GroupStage::Holding => self.release_group(group, None),
            GroupStage::TakingAll => self.cancel_taking(group),
            _ => {}
        }
    }

    fn begin_group(&mut self, group: usize) {
        let now = self.local(self.groups[group].plan.client);
        let grace = self.plan.connect_timeout + self.plan.request_timeout * 2;
        let it = &mut self.groups[group];
        let wait = match it.plan.wait {
            Wait::Try => Some(Duration::ZERO),
            Wait::Bounded(span) => Some(span),
            Wait::Forever => None,
        };
        let machine = MultiAcquire::new(&it.order, wait, grace, now);
        let plain = it.plan.names.iter().all(|name| self.names[*name].kind == Kind::Mutex);
        it.machine = Some(if plain { machine.at_once() } else { machine });
        (it.taking, it.taking_request) = (Vec::new(), None);
        (it.loss, it.told, it.started, it.failed) = (SharedLoss::default(), 0, self.now, false);
        self.stats.add(Count::ManyAcquires);
        note!(self, "group {group}: an acquire begins ({wait:?})");
        self.step_group(group);
    }

    fn begin_group_anew(&mut self, group: usize) {
        if let Some(machine) = &mut self.groups[group].machine {
            machine.released();
        }
        self.step_group(group);
    }

    /// Does what the machine says next.
    pub(super) fn step_group(&mut self, group: usize) {
        let client = self.groups[group].plan.client;
        let now = self.local(client);
        let Some(machine) = &mut self.groups[group].machine else { return };
        let step = machine.next(now, &mut self.clients[client].jitter);
        let step = if step == MultiStep::Look { self.look_at_group(group) } else { step };
        match step {
            MultiStep::TakeAll { until } => self.take_all(group, until),
            MultiStep::Enter { member, wait } => {
                let limit = self.groups[group].machine.as_ref().map_or(Time::MAX, MultiAcquire::hard_limit);
                self.enter_group(group, GroupStage::Entering(member), limit);
                self.enter_member(group, member, wait);
            }
            MultiStep::Renew(due) => {
                self.stats.add(Count::ManyRenewals);
                self.enter_group(group, GroupStage::Renewing(due.len()), Time::MAX);
                for member in due {
                    let task = self.groups[group].members[member];
                    let Some(deed) = self.tasks[task].handles.last().copied() else { continue };
                    self.errand(task, deed, Aim::Extend(self.deeds[deed].terms.ttl));
                }
            }
            MultiStep::Release { until } => {
                self.stats.add(Count::ManyAnew);
                self.release_group(group, Some(until));
            }
            MultiStep::HandOut => self.hand_group_out(group),
            MultiStep::GiveUp(why) => self.end_group(group, why.kind()),
            MultiStep::Look => {}
        }
    }

    pub(super) fn enter_member(&mut self, group: usize, member: usize, wait: Option<Duration>) {
        let task = self.groups[group].members[member];
        self.tasks[task].plan.wait = match wait {
            None => Wait::Forever,
            Some(Duration::ZERO) => Wait::Try,
            Some(span) => Wait::Bounded(span),
        };
        self.tasks[task].failed = None;
        self.check_group_order(group, task);
        self.begin(task);
    }

    /// The deeds that a group holds, in the order of the members.
    pub(super) fn group_deeds(&self, group: usize) -> Vec<usize> {
        self.groups[group].members.iter().filter_map(|task| self.tasks[*task].handles.last().copied()).collect()
    }

    fn look_at_group(&mut self, group: usize) -> MultiStep {
        let now = self.local(self.groups[group].plan.client);
        let looks: Vec<MemberLook> = self
            .group_deeds(group)
            .iter()
            .map(|deed| {
                let (cell, terms) = (&self.deeds[*deed].cell, &self.deeds[*deed].terms);
                let left = if cell.is_held(now) { cell.deadline().since(now) } else { Duration::ZERO };
                MemberLook { left, needed: terms.min_validity.max(terms.drift(terms.ttl)), fixed: false }
            })
            .collect();
        match &mut self.groups[group].machine {
            Some(machine) => machine.looked(now, &looks),
            None => MultiStep::GiveUp(GiveUpReason::TooSlow),
        }
    }

    fn hand_group_out(&mut self, group: usize) {
        let client = self.groups[group].plan.client;
        let now = self.local(client);
        let deeds = self.group_deeds(group);
        let held = deeds.len() == self.groups[group].members.len() && deeds.iter().all(|deed| self.believes(*deed));
        if !held {
            self.violate("P18 all or none", format!("group {group} is handed out, and not all are held: {deeds:?}"));
        }
        self.stats.add(Count::ManyLeases);
        note!(self, "group {group}: is handed out, {deeds:?}");
        self.check_group_length(group);
        self.groups[group].machine = None;
        let (low, high) = self.groups[group].plan.hold;
        let until = now + self.dice.span(low, high);
        self.enter_group(group, GroupStage::Holding, until);
    }

    /// The present acquire of a member is given up.
    pub(super) fn stop_entering(&mut self, group: usize, member: usize) {
        let task = self.groups[group].members[member];
        self.groups[group].stage = GroupStage::Idle;
        self.groups[group].turn += 1;
        let number = self.tasks[task].calls;
        self.cancel(task, number);
    }

    /// A member has its lease, or an extension of it was answered.
    pub(super) fn member_held(&mut self, task: usize, group: usize) {
        match self.groups[group].stage {
            GroupStage::Entering(member) if self.groups[group].members[member] == task => {
                if let Some(machine) = &mut self.groups[group].machine {
                    machine.entered();
                }
                self.step_group(group);
            }
            GroupStage::Renewing(left) => {
                self.groups[group].stage = GroupStage::Renewing(left - 1);
                if left == 1 && self.groups[group].failed {
                    self.end_group(group, ErrorKind::Unavailable);
                } else if left == 1 {
                    self.step_group(group);
                }
            }
            _ => {}
        }
    }

    /// A renewal before the hand-out was not answered.
    pub(super) fn member_not_renewed(&mut self, group: usize) {
        self.groups[group].failed = true;
    }

    /// A member holds nothing: its acquire failed or was cancelled, or its release is over.
    pub(super) fn member_idle(&mut self, task: usize, group: usize) {
        let client = self.groups[group].plan.client;
        let now = self.local(client);
        match self.groups[group].stage {
            GroupStage::Entering(member) if self.groups[group].members[member] == task => {
                let Some(why) = self.tasks[task].failed.take() else {
                    // the caller has gone away
                    return self.end_group(group, ErrorKind::Cancelled);
                };
                let machine = self.groups[group].machine.as_mut();
                if machine.is_some_and(|machine| machine.not_entered(now, why, &mut self.clients[client].jitter)) {
                    self.step_group(group);
                } else {
                    self.end_group(group, why);
                }
            }
            GroupStage::Releasing(left, then) => {
                self.groups[group].stage = GroupStage::Releasing(left - 1, then);
                if left == 1 {
                    self.group_released(group, then);
                }
            }
            _ => {}
        }
    }

    /// Releases all that are held; then it begins anew at that time, or its round is over.
    fn release_group(&mut self, group: usize, then: Option<Time>) {
        self.check_group_loss(group);
        let held: Vec<usize> =
            self.groups[group].members.iter().copied().filter(|task| !self.tasks[*task].handles.is_empty()).collect();
        if held.is_empty() {
            return self.group_released(group, then);
        }
        self.enter_group(group, GroupStage::Releasing(held.len(), then), Time::MAX);
        if held.len() > 1 && held.iter().all(|task| self.names[self.tasks[*task].plan.name].kind == Kind::Mutex) {
            return self.release_all(group, &held);
        }
        for task in held {
            self.leave(task);
        }
    }

    fn group_released(&mut self, group: usize, then: Option<Time>) {
        match then {
            Some(until) => self.enter_group(group, GroupStage::Pausing, until),
            None => self.rest_group(group),
        }
    }

    /// An acquire ends without a lease: nothing is held when the caller hears that others hold a member; else that is
    /// left to the background.
    pub(super) fn end_group(&mut self, group: usize, why: ErrorKind) {
        self.stats.add(Count::ManyRefused);
        note!(self, "group {group}: the acquire fails: {why:?}");
        if self.bug == Some(Bug::MembersKept) {
            return self.rest_group(group);
        }
        if why.is_not_acquired() && why != ErrorKind::Cancelled {
            return self.release_group(group, None);
        }
        self.groups[group].stage = GroupStage::Idle;
        for task in self.groups[group].members.clone() {
            if !self.tasks[task].handles.is_empty() {
                self.drop_handle(task);
            }
        }
        self.rest_group(group);
    }

    fn rest_group(&mut self, group: usize) {
        self.check_nothing_kept(group);
        self.check_group_length(group);
        let client = self.groups[group].plan.client;
        self.groups[group].rounds = self.groups[group].rounds.saturating_sub(1);
        if self.groups[group].rounds == 0 {
            self.enter_group(group, GroupStage::Done, Time::MAX);
            for task in self.groups[group].members.clone() {
                self.enter_stage(task, Stage::Done, Time::MAX);
            }
            return;
        }
        let (low, high) = self.groups[group].plan.idle;
        let until = self.local(client) + self.dice.span(low, high);
        self.enter_group(group, GroupStage::Idle, until);
    }
}
