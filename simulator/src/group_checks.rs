//! The properties of several locks at once.

use onelock::machine::multi::MultiAcquire;
use onelock::machine::{Phase, Time};

use super::groups::{Group, GroupStage};
use super::world::World;

/// What a timer may be late in a process that nothing disturbs.
const SLACK: u64 = 1_000_000;

impl World {
    /// The one order of all: nobody waits for a member while it holds a later one.
    pub(super) fn check_group_order(&mut self, group: usize, task: usize) {
        let rank = |name: usize| (self.names[name].key.clone(), self.names[name].kind.as_str());
        let this = rank(self.tasks[task].plan.name);
        let later = self.groups[group].members.iter().find(|other| {
            let other = &self.tasks[**other];
            rank(other.plan.name) > this && other.handles.last().is_some_and(|deed| self.believes(*deed))
        });
        if let Some(later) = later {
            let detail = format!("group {group} waits for the lock of task {task} and holds that of task {later}");
            self.violate("P18 all or none", detail);
        }
    }

    pub(super) fn check_group_length(&mut self, group: usize) {
        let Group { ref plan, ref machine, started, .. } = self.groups[group];
        let limit = machine.as_ref().map_or(Time::MAX, MultiAcquire::hard_limit);
        let limit = if limit == Time::MAX { u64::MAX } else { self.world_time(plan.client, limit + self.call_span()) };
        let disturbed = self.clients[plan.client].disturbed_at >= started;
        if !disturbed && self.now > limit.saturating_add(SLACK) {
            self.violate("P8 bounded waiting", format!("an acquire of group {group} took too long"));
        }
    }

    pub(super) fn check_nothing_kept(&mut self, group: usize) {
        let kept = self.group_deeds(group).into_iter().find(|deed| !self.deeds[*deed].release_begun);
        if let Some(deed) = kept {
            self.violate("P18 all or none", format!("group {group} is over, and deed {deed} of it is still held"));
        }
    }

    /// The holder releases the whole, or time passes: if a member was lost, it knows, and holds none of the others.
    pub(super) fn check_group_loss(&mut self, group: usize) {
        if self.groups[group].stage != GroupStage::Holding {
            return;
        }
        let deeds = self.group_deeds(group);
        let lost =
            deeds.iter().find(|deed| self.deeds[**deed].told > 0 && self.deeds[**deed].cell.phase() == Phase::Lost);
        let Some(lost) = lost.copied() else { return };
        let believed = deeds.iter().find(|deed| self.believes(**deed)).copied();
        if self.groups[group].told == 0 || believed.is_some() {
            let told = self.groups[group].told;
            let detail =
                format!("group {group} was told {told} times that deed {lost} is lost, believed: {believed:?}");
            self.violate("P18 all or none", detail);
        }
    }
}
