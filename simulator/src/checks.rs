//! The properties, checked at every step against what really is on the server and what every process believes.

use onelock::LossReason;
use onelock::machine::naming::FENCE_WORD;
use onelock::machine::{Op, Outcome, Phase, Renewal, Reply};

use super::groups::GroupStage;
use super::server::Executed;
use super::stats::Count;
use super::task::{Call, Errand, Stage};
use super::truth::Deed;
use super::world::{Event, World, nanos, note};

/// How long a free lock may have a waiter that nobody tells: the longest safety poll, and a margin for the attempt.
const WAKE_LIMIT: u64 = 6_500_000_000;
/// How long a claim that ended may hold its name while somebody is after it: the cleanup queue's longest pause, and a margin.
const ORPHAN_LIMIT: u64 = 2_500_000_000;
/// What timers may be late in a process that nothing disturbs.
const SLACK: u64 = 1_000_000;

impl World {
    /// A request was carried out.
    pub(super) fn check_execution(&mut self, id: usize, executed: &Executed) {
        let Outcome::Applied(reply) = &executed.outcome else { return };
        if let Reply::Many(replies) = reply {
            for (deed, reply) in self.requests[id].deeds.clone().into_iter().zip(replies) {
                match reply {
                    Reply::Granted { fence, again } => self.check_grant(id, deed, *fence, *again),
                    Reply::Released(found) => self.check_released(deed, *found),
                    _ => {}
                }
            }
            return;
        }
        let request = &self.requests[id];
        let deed = request.deeds[0];
        let is_acquire = matches!(request.op, Op::Acquire { .. } | Op::Enter { .. });
        if is_acquire {
            let name = self.deeds[deed].name;
            self.names[name].attempts += 1;
        }
        self.note_place(id, deed, reply);
        let request = &self.requests[id];
        let is_attach = matches!(request.op, Op::Attach { .. });
        match reply {
            Reply::Granted { fence, again } if is_attach => self.check_exchange(deed, *fence, *again),
            Reply::Granted { fence, again } => self.check_grant(id, deed, *fence, *again),
            Reply::Released(found) => self.check_released(deed, *found),
            Reply::Renewed(verdicts) => {
                let renewed = verdicts.iter().zip(self.requests[id].deeds.clone());
                let renewed = renewed.filter(|(verdict, _)| **verdict == Renewal::Renewed).map(|(_, deed)| deed);
                for deed in renewed.collect::<Vec<_>>() {
                    let Deed { release_applied, orphaned, copied, tainted, .. } = self.deeds[deed];
                    if release_applied && !orphaned && !copied && !tainted {
                        self.violate("P5 exactly once", format!("deed {deed} was renewed after its release"));
                    }
                }
            }
            Reply::Counted(true) => {
                let deed = &mut self.deeds[deed];
                if (id as u32) < deed.last_count {
                    // an old copy overwrote a newer count
                    deed.count_dirty = Some(self.requests.len());
                }
                deed.last_count = deed.last_count.max(id as u32);
            }
            _ => {}
        }
    }

    fn check_released(&mut self, deed: usize, found: bool) {
        self.deeds[deed].release_executed = true;
        if found {
            if self.deeds[deed].cell.phase() == Phase::Detached {
                let detail = format!("deed {deed} was handed over, and its former holder has released it");
                self.violate("P1 exclusion", detail);
            }
            self.deeds[deed].release_applied = true;
            self.check_taken(self.deeds[deed].name, None);
        }
    }

    fn check_grant(&mut self, id: usize, deed: usize, fence: Option<u64>, again: bool) {
        let name = self.deeds[deed].name;
        let fence = fence.unwrap_or(0);
        if again {
            self.stats.add(Count::Again);
            let same = self.names[name].last_fence == fence || self.names[name].fence_lost;
            if !same && !self.deeds[deed].tainted {
                self.violate("P6 fencing grows", format!("request {id}, granted again, has another token: {fence}"));
            }
        } else {
            self.check_new_grant(deed, fence);
        }
        self.names[name].last_fence = self.names[name].last_fence.max(fence);
        self.check_bounded(deed);
    }

    /// The server made this deed the holder.
    pub(super) fn check_new_grant(&mut self, deed: usize, fence: u64) {
        let name = self.deeds[deed].name;
        self.deeds[deed].granted = true;
        self.deeds[deed].granted_at = self.now;
        self.check_taken(name, Some(deed));
        self.check_stay(name, deed);
        self.check_orphan(deed);
        // a counter that was lost goes on from the clock, so it is as good as the clock
        let behind = self.names[name].fence_lost && self.server.clock.micros(self.now) < self.server.highest_us;
        if self.names[name].last_fence >= fence && !behind {
            let last = self.names[name].last_fence;
            self.violate("P6 fencing grows", format!("deed {deed} is granted with {fence} after {last}"));
        }
        self.names[name].last_fence = self.names[name].last_fence.max(fence);
        self.check_bounded(deed);
    }

    fn check_bounded(&mut self, deed: usize) {
        let claim = self.deeds[deed].claim.clone();
        if self.server.hold_ends_us(self.now, &claim) == Some(u64::MAX) {
            self.violate("P2 no deadlock", format!("deed {deed} stands on the server without a time to live"));
        }
    }

    /// The key of a name has just been given to this deed, to a foreign client, or to nobody: nobody else may believe
    /// in a lease of it.
    pub(super) fn check_taken(&mut self, name: usize, taker: Option<usize>) {
        if taker.is_some() {
            self.names[name].free_since = None;
        }
        if self.loose {
            return;
        }
        for index in 0..self.names[name].live.len() {
            let other = self.names[name].live[index];
            if Some(other) != taker && !self.deeds[other].tainted && self.believes(other) {
                let detail = format!("deed {other} is believed while its key is gone or goes to {taker:?}");
                self.violate("P3 loss is known in time", detail);
            }
        }
    }

    /// A claim that ended holds the name: somebody has to be after it.
    pub(super) fn check_orphan(&mut self, deed: usize) {
        let Deed { client, abandoned, release_begun, gone, copied, tainted, .. } = self.deeds[deed];
        if !abandoned && !release_begun {
            return;
        }
        if !std::mem::replace(&mut self.deeds[deed].orphaned, true) {
            self.stats.add(Count::Orphans);
        }
        // a place that had been left may have come back with old data
        let old = self.names[self.deeds[deed].name].old_queue;
        if gone || copied || tainted || old || self.being_released(deed) {
            return;
        }
        let now = self.local(client);
        let Deed { release_executed, undo, undo_over, undone_at, .. } = &self.deeds[deed];
        let ttl = self.deeds[deed].server_ttl();
        // chased until one ttl after the first undo that was answered, or until patience with a silent server ended
        let chased = undo.is_some() && (!undo_over || undone_at.is_none_or(|undone| now >= undone + ttl));
        // after a release only a copy of the acquire that is carried out later may hold the name again
        let allowed = chased || (!abandoned && *release_executed);
        // the cleanup queue's longest pause, and time for the answer
        let patience = ORPHAN_LIMIT + nanos(self.call_span());
        let since = self.deeds[deed].granted_at.max(self.trouble_at).max(self.clients[client].disturbed_at);
        if !undo_over && undone_at.is_some_and(|undone| now < undone + ttl) && self.now > since + patience {
            let detail = format!("deed {deed} ended without a lease, and nobody has released it for long");
            self.violate("P4 nothing is orphaned", detail);
        }
        if !allowed {
            let detail = format!("deed {deed} ended without a lease, holds its name, and nobody is after it");
            self.violate("P4 nothing is orphaned", detail);
        }
    }

    fn being_released(&self, deed: usize) -> bool {
        self.tasks.iter().any(|task| task.errand.is_some_and(|errand| errand.deed == deed))
    }

    /// An acquire was given up: if the server holds it, it must be in a cleanup queue.
    pub(super) fn check_given_up(&mut self, deed: usize) {
        let claim = self.deeds[deed].claim.clone();
        if self.server.hold_ends_us(self.now, &claim).is_some() {
            self.check_orphan(deed);
        }
    }

    /// A lease is handed to its caller.
    pub(super) fn check_hand_out(&mut self, task: usize, deed: usize) {
        let name = self.deeds[deed].name;
        if std::mem::replace(&mut self.deeds[deed].handed, true) {
            self.violate("P5 exactly once", format!("task {task} got deed {deed} twice"));
        }
        let Deed { client, ref terms, ref cell, tainted, .. } = self.deeds[deed];
        let left = cell.deadline().since(self.local(client));
        let enough = self.believes(deed) && left >= terms.min_validity;
        if !enough {
            let detail = format!("deed {deed} was handed out with {left:?} left");
            self.violate("P3 loss is known in time", detail);
        }
        let live = std::mem::take(&mut self.names[name].live);
        let live = live.into_iter().filter(|other| self.believes(*other)).collect::<Vec<_>>();
        for other in &live {
            if tainted || self.deeds[*other].tainted || self.loose {
                self.stats.add(Count::Overlaps);
            } else {
                self.violate("P1 exclusion", format!("deeds {other} and {deed} are held at once"));
            }
        }
        self.names[name].live = live;
        self.names[name].live.push(deed);
        let fence = self.deeds[deed].fence.unwrap_or(0);
        let grows = fence > self.names[name].handed_fence || self.keeps_fence(deed);
        if !grows && !tainted && !self.loose && !self.names[name].fence_lost {
            let last = self.names[name].handed_fence;
            self.violate("P6 fencing grows", format!("deed {deed} completes with {fence} after {last}"));
        }
        self.names[name].handed_fence = self.names[name].handed_fence.max(fence);
        self.check_work(deed);
        self.check_deadline(deed);
    }

    /// The holder works on the protected resource, which has a gate.
    pub(super) fn check_work(&mut self, deed: usize) {
        let Deed { name, fence, tainted, .. } = self.deeds[deed];
        let refused = fence.is_some_and(|fence| self.names[name].gate.admit(fence).is_err());
        self.mark_write(deed, !refused, false);
        let behind = self.names[name].fence_lost && self.clock_was_set;
        if refused && !tainted && !self.loose && !behind {
            self.violate("P6 fencing grows", format!("deed {deed} holds, and the gate turns it away"));
        }
    }

    /// The deadline of a lease has been set or moved: the key must live at least that long.
    pub(super) fn check_deadline(&mut self, deed: usize) {
        if self.loose || self.deeds[deed].tainted || !self.believes(deed) {
            return;
        }
        let claim = self.deeds[deed].claim.clone();
        let deadline = self.deeds[deed].cell.deadline();
        let last = self.world_time(self.deeds[deed].client, deadline).saturating_sub(1);
        let last_us = self.server.clock.micros(last);
        match self.server.hold_ends_us(self.now, &claim) {
            Some(ends_us) if last_us < ends_us => {}
            Some(ends_us) => {
                let detail = format!("deed {deed} is believed {} us longer than its key lives", last_us - ends_us);
                self.violate("P3 loss is known in time", detail);
            }
            None => self.violate("P3 loss is known in time", format!("deed {deed} is believed and not on the server")),
        }
    }

    /// A client has seen that the server's clock was set forward, and ended its leases earlier: early enough, but for
    /// what the time of two round trips hides.
    pub(super) fn check_jump(&mut self, client: usize) {
        let news = self.server.clock.stepped != self.clients[client].stepped_seen;
        if self.loose || news {
            return;
        }
        let hidden = self.plan.request_timeout * 2 + self.plan.ttl.mul_f64(self.plan.drift_factor);
        for deed in 0..self.deeds.len() {
            if self.deeds[deed].client != client || !self.believes(deed) {
                continue;
            }
            let claim = self.deeds[deed].claim.clone();
            let Some(ends_us) = self.server.hold_ends_us(self.now, &claim) else { continue };
            let last = self.world_time(client, self.deeds[deed].cell.deadline()).saturating_sub(1);
            let over_us = self.server.clock.micros(last).saturating_sub(ends_us);
            if u128::from(over_us) > hidden.as_micros() {
                let detail = format!("deed {deed} is believed {over_us} us too long, though the jump was seen");
                self.violate("clock watch", detail);
            }
        }
    }

    pub(super) fn check_loss(&mut self, deed: usize, reason: LossReason) {
        let Deed { client, told, release_begun, tainted, ref cell, .. } = self.deeds[deed];
        let early = self.local(client) < cell.deadline();
        if told > 1 || release_begun {
            let detail = format!("deed {deed} was told lost {told} times, released before: {release_begun}");
            self.violate("P3 loss is known in time", detail);
        }
        let renewed = self.deeds[deed].terms.auto_renew && reason != LossReason::MaxHold;
        if renewed && self.plan.faults.are_smooth() {
            self.violate("P1 exclusion", format!("deed {deed} was lost though nothing had gone wrong: {reason:?}"));
        }
        if early && reason == LossReason::Taken && !tainted && !self.loose {
            self.violate("P1 exclusion", format!("deed {deed} was taken away though nothing had happened to it"));
        }
    }

    /// A lost lease is about to be released: was its loss told when it was time?
    pub(super) fn check_told(&mut self, deed: usize) {
        let Deed { client, told, ref cell, .. } = self.deeds[deed];
        if cell.phase() != Phase::Lost || told > 0 {
            return;
        }
        let due = self.world_time(client, cell.deadline());
        let calm_since = due.max(self.clients[client].disturbed_at);
        if self.now > calm_since + 100 * SLACK {
            self.violate("P3 loss is known in time", format!("deed {deed} was lost and nobody was told"));
        }
    }

    /// A release was answered. One that was answered in time must have found its hold, unless somebody took it.
    pub(super) fn check_release(&mut self, deed: usize, lost: bool) {
        if lost && !self.deeds[deed].tainted && !self.loose {
            self.violate("P7 release", format!("deed {deed} was held and its release did not find it"));
        }
    }

    /// No count is under way: the server's is the local one.
    pub(super) fn check_count(&mut self, task: usize, deed: usize) {
        let Deed { client, name, counts_in_air, count_dirty, tainted, .. } = self.deeds[deed];
        if counts_in_air > 0 || count_dirty.is_some() || tainted || self.loose || !self.believes(deed) {
            return;
        }
        let owner = self.tasks[task].plan.owner.unwrap_or_default() as usize;
        let process = &self.clients[client];
        let local = process.registry.count(&self.names[name].key, &process.owners[owner], deed as u64);
        let there = self.server.model.count_of(self.server.clock.micros(self.now), &self.names[name].key);
        self.stats.add(Count::CountsCompared);
        if there != Some(local) {
            let detail = format!("deed {deed} is entered {local} times here and {there:?} times on the server");
            self.violate("P5 exactly once", detail);
        }
    }

    pub(super) fn check_call_length(&mut self, task: usize, call: &Call) {
        let client = self.tasks[task].plan.client;
        let limit = self.world_time(client, call.machine.hard_limit());
        let disturbed = self.clients[client].disturbed_at >= call.started;
        if !disturbed && limit != u64::MAX && self.now > limit + SLACK {
            let over = (self.now - limit) / 1_000_000;
            self.violate("P8 bounded waiting", format!("an acquire of task {task} took {over} ms too long"));
        }
    }

    pub(super) fn check_errand_length(&mut self, task: usize, errand: &Errand) {
        let client = self.tasks[task].plan.client;
        let limit = self.world_time(client, errand.limit);
        let disturbed = self.clients[client].disturbed_at >= errand.started;
        if !disturbed && self.now > limit + SLACK {
            self.violate("P8 bounded waiting", format!("{:?} of task {task} took too long", errand.aim));
        }
    }

    /// A release was published. Where nothing goes wrong, a waiter is there at once.
    pub(super) fn check_publication(&mut self, name: usize) {
        let links_stand = self.clients.iter().all(|client| client.link.is_none_or(|link| !link.dead))
            && (self.links_changed_at == 0 || self.now > self.links_changed_at + self.prompt());
        if self.plan.faults.are_smooth() && links_stand {
            self.stats.add(Count::HandOvers);
            let attempts = self.names[name].attempts;
            self.push(self.now + self.prompt(), Event::HandOver(name as u8, attempts));
        }
    }

    /// How soon a waiter looks after a release: a message, an attempt that was under way, one that follows it.
    pub(super) fn prompt(&self) -> u64 {
        self.plan.delay.1 * 8 + 30_000_000
    }

    pub(super) fn check_hand_over(&mut self, name: usize, attempts: u32) {
        if self.names[name].attempts != attempts {
            return;
        }
        let before = self.now - self.prompt();
        if self.links_changed_at > before || self.clients.iter().any(|client| client.link.is_some_and(|link| link.dead))
        {
            return;
        }
        if let Some(task) = self.waiter_since(name, before) {
            let detail = format!("task {task} waits, and did not look when the lock was released");
            self.violate("P8 bounded waiting", detail);
        }
    }

    /// A task that has waited for this name since that moment or longer.
    fn waiter_since(&self, name: usize, since: u64) -> Option<usize> {
        (0..self.tasks.len()).find(|task| {
            let task = &self.tasks[*task];
            let waits = matches!(task.stage, Stage::InLine | Stage::Watching | Stage::Sleeping | Stage::Attempting);
            task.plan.name == name && waits && task.call.as_ref().is_some_and(|call| call.started < since)
        })
    }

    /// Now and then: what no single step shows.
    pub(super) fn look_around(&mut self) {
        let us = self.server.clock.micros(self.now);
        if self.server.model.live(us).iter().any(|live| live.ttl_left_ms.is_none()) {
            self.violate("P2 no deadlock", "a key has no time to live".to_owned());
        }
        for name in 0..self.names.len() {
            self.look_at_waiters(name);
            self.look_at_holder(name);
        }
        for deed in 0..self.deeds.len() {
            let Deed { handed, gone, release_begun, client, .. } = self.deeds[deed];
            if handed && !gone && !release_begun && !self.clients[client].paused {
                self.check_told(deed);
            }
        }
        for group in 0..self.groups.len() {
            self.check_group_loss(group);
        }
        if self.calm && !self.ending && self.is_at_rest() {
            self.ending = true;
            let longest = self.longest_ttl_ms * 1_000_000;
            // the last copy of a request may still be on its way, and what it makes may live for its whole time
            self.check_places_left();
            let end = self.now
                + self.queues_live()
                + longest * 11 / 10
                + nanos(self.plan.ttl) * 4
                + self.set_back_by
                + 1_000_000_000;
            note!(self, "everybody is done");
            self.push(end, Event::End);
        }
        if !self.ending {
            let next = self.now + self.tick();
            self.push(next, Event::Tick);
        }
    }

    fn is_at_rest(&self) -> bool {
        self.tasks.iter().all(|task| task.stage == Stage::Done)
            && self.groups.iter().all(|group| group.stage == GroupStage::Done)
            && self.clients.iter().all(|client| client.cleanup.is_empty() && client.watchdog.is_empty())
    }

    fn look_at_waiters(&mut self, name: usize) {
        let us = self.server.clock.micros(self.now);
        let taken = self.server.model.live(us).iter().any(|live| live.key == self.names[name].key);
        if taken {
            self.names[name].free_since = None;
            return;
        }
        let free_since = *self.names[name].free_since.get_or_insert(self.now);
        let since = free_since.max(self.trouble_at);
        let limit = if self.names[name].kind.row().queues { self.place_limit() } else { WAKE_LIMIT };
        if self.now > since + limit && self.waiter_since(name, since).is_some() {
            let detail = format!("name {name} is free, somebody waits for it, and nothing happens");
            let queues = self.names[name].kind.row().queues;
            self.violate(if queues { "P12 no lost hand-over" } else { "P8 bounded waiting" }, detail);
        }
    }

    fn look_at_holder(&mut self, name: usize) {
        let us = self.server.clock.micros(self.now);
        let Some((_, holder)) = self.server.model.holder_of(us, &self.names[name].key) else { return };
        let deed = (0..self.deeds.len())
            .rev()
            .find(|deed| self.deeds[*deed].name == name && *holder == *self.deeds[*deed].claim.token.as_bytes());
        if let Some(deed) = deed {
            self.check_orphan(deed);
        }
    }

    /// Everything is over, and every time to live has passed.
    pub(super) fn check_end(&mut self) {
        self.over = true;
        let us = self.server.clock.micros(self.now);
        for live in self.server.model.live(us) {
            if !live.key.starts_with(FENCE_WORD.as_bytes()) {
                let key = String::from_utf8_lossy(&live.key).into_owned();
                self.violate("P4 nothing is orphaned", format!("{key} is still there: {:?}", live.value));
            }
        }
        let mut left = Vec::new();
        for (index, client) in self.clients.iter().enumerate() {
            let shares = client.hearing.iter().map(|heard| heard.shares).sum::<u32>();
            let lines = client.lines.iter().map(onelock::machine::WaitQueue::len).sum::<usize>();
            if shares > 0 || lines > 0 || !client.registry.is_empty() || !client.registry_waiters.is_empty() {
                left.push(format!("client {index}: {shares} subscriptions, {lines} in line, or owners"));
            }
        }
        if !self.server.subscribers.is_empty() {
            left.push(format!("subscriptions on the server: {:?}", self.server.subscribers));
        }
        if !left.is_empty() {
            self.violate("P4 nothing is orphaned", left.join("; "));
        }
    }
}
