//! What becomes of several locks when one of them is lost, or their process.

use onelock::LossReason;
use onelock::machine::Time;

use super::bug::Bug;
use super::groups::GroupStage;
use super::stats::Count;
use super::world::{Event, World, note};

impl World {
    /// The watchdog has told that a hold is lost; perhaps it is a member of something.
    pub(super) fn member_lost(&mut self, deed: usize, reason: LossReason) {
        let owner = self.tasks.iter().position(|task| task.handles.last() == Some(&deed));
        let Some(group) = owner.and_then(|task| self.tasks[task].group) else { return };
        let client = self.groups[group].plan.client;
        match self.groups[group].stage {
            // whoever acquires is woken by it
            GroupStage::Entering(_) => self.push(self.now, Event::MemberLost(deed as u32)),
            GroupStage::Holding if self.bug != Some(Bug::MemberLossUntold) => {
                let reason = self.groups[group].loss.note(reason);
                if self.groups[group].told > 0 {
                    return;
                }
                self.stats.add(Count::ManyLost);
                self.groups[group].told += 1;
                note!(self, "group {group}: is lost, {}", reason.as_str());
                for other in self.group_deeds(group) {
                    if self.deeds[other].cell.lose(reason) {
                        self.clients[client].watchdog.disarm(other as u64);
                        self.deeds[other].told += 1;
                        self.deeds[other].lost_with_group = true;
                    }
                }
            }
            _ => {}
        }
    }

    /// A member is not held any more while a later one is waited for.
    pub(super) fn entering_after_loss(&mut self, deed: usize) {
        let owner = self.tasks.iter().position(|task| task.handles.last() == Some(&deed));
        let Some((task, group)) = owner.and_then(|task| Some((task, self.tasks[task].group?))) else { return };
        let GroupStage::Entering(member) = self.groups[group].stage else { return };
        let now = self.local(self.groups[group].plan.client);
        self.stop_entering(group, member);
        if self.bug == Some(Bug::LostMemberRetaken)
            && let Some(lost) = self.groups[group].members.iter().position(|other| *other == task)
        {
            self.drop_handle(task);
            self.enter_group(group, GroupStage::Entering(lost), Time::MAX);
            return self.enter_member(group, lost, None);
        }
        if let Some(machine) = &mut self.groups[group].machine {
            machine.lost(now);
        }
        self.step_group(group);
    }

    /// The process of these groups was killed.
    pub(super) fn kill_groups(&mut self, client: usize) {
        for group in self.groups.iter_mut().filter(|group| group.plan.client == client) {
            if group.stage != GroupStage::Done {
                group.stage = GroupStage::Dead;
                group.turn += 1;
            }
        }
    }

    pub(super) fn revive_groups(&mut self, client: usize) {
        for group in 0..self.groups.len() {
            if self.groups[group].plan.client == client && self.groups[group].stage == GroupStage::Dead {
                let soon = self.local(client);
                self.enter_group(group, GroupStage::Idle, soon);
            }
        }
    }
}
