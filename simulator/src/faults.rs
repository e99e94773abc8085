//! Faults that happen at moments of their own, and how they end.

use onelock::Kind;
use onelock::machine::model::{Model, Value};
use onelock::machine::{Key, Op, Time};

use super::plan::Fault;
use super::process::Process;
use super::server::{Health, Refusal};
use super::task::Stage;
use super::trace::Lane;
use super::wire::ConnState;
use super::world::{Event, World, nanos, note};

impl World {
    pub(super) fn fault(&mut self, fault: Fault) {
        if self.calm {
            return;
        }
        note!(self, "FAULT {fault:?}");
        self.mark_fault(fault);
        if fault != Fault::SubscriptionLoss {
            self.trouble();
        }
        let client = self.dice.below(self.clients.len() as u64) as usize;
        let name = self.dice.below(self.names.len() as u64) as usize;
        match fault {
            Fault::Reset => self.reset(client),
            Fault::BlackHole => self.black_hole(client),
            Fault::Crash | Fault::DataLoss => self.crash(fault, None),
            Fault::OldData => self.crash_with_old_data(),
            Fault::EvictLock | Fault::EvictFence | Fault::Flush | Fault::Delete | Fault::Force => {
                self.meddle(fault, name);
            }
            Fault::Freeze => self.freeze(),
            Fault::Pause => self.pause(client),
            Fault::Kill => self.kill(client),
            Fault::ClockForward | Fault::ClockBackward => self.set_clock(fault),
            Fault::SubscriptionLoss => {
                let notice = self.some_time(2);
                self.break_link(client, notice);
            }
            Fault::Foreign => self.foreign(name),
            Fault::Squatter => self.squat(name),
            Fault::Storm => self.begin_storm(name),
            Fault::QueueLoss => self.lose_queue(name),
            Fault::Deaf => self.deafen(client),
            Fault::Refusals => {
                self.server.refusal = self.dice.pick(&[Refusal::Everything, Refusal::Growth]);
                let end = self.now + self.some_time(1);
                self.trouble_at = self.trouble_at.max(end);
                self.push(end, Event::Accept);
            }
            _ => {}
        }
    }

    /// A span up to so many leases.
    fn some_time(&mut self, leases: u64) -> u64 {
        self.dice.below(nanos(self.plan.ttl) * leases)
    }

    fn reset(&mut self, client: usize) {
        let open = (0..self.conns.len())
            .filter(|conn| self.conns[*conn].client == client && self.conns[*conn].state == ConnState::Open)
            .collect::<Vec<_>>();
        if open.is_empty() {
            return;
        }
        let conn = self.dice.pick(&open);
        let reach = nanos(self.plan.request_timeout);
        let notice = self.dice.pick(&[0, 0, 1]) * self.dice.below(reach);
        self.conns[conn].dead = true;
        self.push(self.now + notice, Event::Broken(conn as u32));
    }

    fn black_hole(&mut self, client: usize) {
        let end = self.now + self.some_time(2);
        self.trouble_at = self.trouble_at.max(end);
        self.clients[client].cut_off_until = end;
        let now = self.now;
        for conn in self.conns.iter_mut().filter(|conn| conn.client == client && conn.state == ConnState::Open) {
            conn.dead = true;
            conn.cut = conn.cut.min(now);
        }
        let notice = self.some_time(2);
        self.break_link(client, notice);
    }

    fn crash_with_old_data(&mut self) {
        if let Some(snapshot) = self.server.snapshot.take() {
            self.crash(Fault::OldData, Some(snapshot));
        } else {
            self.server.snapshot = Some(self.server.model.clone());
            let later = self.now + self.some_time(1);
            self.push(later, Event::Fault(Fault::OldData));
        }
    }

    fn crash(&mut self, fault: Fault, snapshot: Option<Model>) {
        if self.server.health == Health::Down {
            return;
        }
        self.lose_backlog();
        self.server.crash();
        if let Some(snapshot) = snapshot {
            self.server.model = snapshot;
            self.names.iter_mut().for_each(|name| name.old_queue = true);
            self.lose_assumptions();
        } else if fault == Fault::DataLoss {
            self.server.model.crash(false);
            self.server.forget_counters();
            self.lose_assumptions();
        } else {
            self.server.model.crash(true);
        }
        for conn in 0..self.conns.len() {
            if self.conns[conn].state == ConnState::Open {
                self.conns[conn].dead = true;
                let delay = self.delay();
                self.push(self.now + delay, Event::Broken(conn as u32));
            }
        }
        for client in 0..self.clients.len() {
            let notice = self.delay();
            self.break_link(client, notice);
        }
        let up = self.now + self.some_time(2);
        self.trouble_at = self.trouble_at.max(up);
        self.push(up, Event::Restart);
    }

    /// What the server knew is gone, or some of it.
    fn lose_assumptions(&mut self) {
        self.taint(None);
        for name in &mut self.names {
            name.fence_lost = true;
            name.places.clear();
        }
    }

    pub(super) fn restart(&mut self) {
        if self.server.health == Health::Down {
            note!(self, "server: is up again");
            self.server.health = Health::Up;
        }
    }

    fn meddle(&mut self, fault: Fault, name: usize) {
        if self.server.health == Health::Down {
            return;
        }
        let us = self.server.clock.micros(self.now);
        let key = self.names[name].key.clone();
        match fault {
            Fault::EvictLock | Fault::Delete => {
                self.taint(Some(name));
                self.server.model.evict(us, &key);
            }
            Fault::EvictFence => {
                self.names[name].fence_lost = true;
                self.server.model.evict_fence(us, &key);
            }
            Fault::Flush => {
                self.lose_assumptions();
                self.server.forget_counters();
                self.server.model.flush();
            }
            _ => {
                self.taint(Some(name));
                self.count_subscribers(name);
                let done = self.server.model.apply(us, &Op::ForceRelease { key, foreign: false });
                for grant in done.granted {
                    self.check_taken(name, None);
                    self.granted_directly(&grant);
                }
                if let Some((kind, key)) = done.announced {
                    self.publish(kind, &key);
                }
            }
        }
    }

    fn freeze(&mut self) {
        if self.server.health != Health::Up {
            return;
        }
        self.server.health = Health::Frozen;
        let end = self.now + self.some_time(2);
        self.trouble_at = self.trouble_at.max(end);
        self.push(end, Event::Thaw);
    }

    pub(super) fn thaw(&mut self) {
        if self.server.health == Health::Frozen {
            note!(self, "server: goes on");
            self.mark_runs(Lane::Server(0));
            self.server.health = Health::Up;
            self.work_off_backlog();
            for event in std::mem::take(&mut self.server.link_backlog) {
                self.handle(event);
            }
        }
    }

    pub(super) fn accept(&mut self) {
        self.server.refusal = Refusal::Nothing;
    }

    fn pause(&mut self, client: usize) {
        let end = self.now + self.some_time(2);
        self.trouble_at = self.trouble_at.max(end);
        self.clients[client].paused = true;
        self.clients[client].disturbed_at = self.clients[client].disturbed_at.max(end);
        self.push(end, Event::Resume(client as u32));
    }

    pub(super) fn resume(&mut self, client: usize) {
        if !std::mem::take(&mut self.clients[client].paused) {
            return;
        }
        note!(self, "client {client}: goes on");
        self.mark_runs(Lane::Client(client));
        self.trouble();
        self.clients[client].disturbed_at = self.clients[client].disturbed_at.max(self.now);
        self.write_late(client);
        let deferred = std::mem::take(&mut self.clients[client].deferred);
        let is_timer = |event: &Event| {
            matches!(
                event,
                Event::Limit(_) | Event::Task(..) | Event::Group(..) | Event::Watchdog(..) | Event::Janitor(..)
            )
        };
        let (timers, others): (Vec<_>, Vec<_>) = deferred.into_iter().partition(is_timer);
        // which of two things that are both due comes first is up to the scheduler
        let (first, second) = if self.dice.chance(500) { (timers, others) } else { (others, timers) };
        for event in first.into_iter().chain(second) {
            self.handle(event);
        }
    }

    fn kill(&mut self, client: usize) {
        let epoch = self.clients[client].epoch + 1;
        let index = client;
        self.clients[client] = Process::new(index, epoch, &self.plan, &mut self.dice);
        self.clients[client].disturbed_at = self.now;
        for conn in 0..self.conns.len() {
            if self.conns[conn].client == client {
                self.close(conn);
            }
        }
        for deed in self.deeds.iter_mut().filter(|deed| deed.client == client) {
            deed.gone = true;
        }
        self.server.subscribers.retain(|(other, ..)| *other != client);
        self.kill_groups(client);
        for task in 0..self.tasks.len() {
            if self.tasks[task].plan.client == client && self.tasks[task].stage != Stage::Done {
                let task = &mut self.tasks[task];
                (task.call, task.errand) = (None, None);
                task.handles.clear();
                task.turn += 1;
                task.stage = Stage::Dead;
            }
        }
        let again = self.now + self.some_time(1);
        self.push(again, Event::Revive(client as u32));
    }

    pub(super) fn revive(&mut self, client: usize) {
        self.revive_groups(client);
        for task in 0..self.tasks.len() {
            if self.tasks[task].plan.client == client && self.tasks[task].stage == Stage::Dead {
                let now = self.clients[client].plan.clock.local(self.now);
                let soon = if self.tasks[task].group.is_some() { Time::MAX } else { now };
                self.enter_stage(task, Stage::Idle, soon);
            }
        }
    }

    fn set_clock(&mut self, fault: Fault) {
        self.clock_was_set = true;
        let step = 5_000_000 + self.some_time(2);
        note!(self, "server: clock is set by {} ms, {fault:?}", step / 1_000_000);
        if fault == Fault::ClockForward {
            self.taint(None);
            self.server.clock.stepped += step.cast_signed();
        } else {
            self.set_back_by += step;
            self.server.clock.stepped -= step.cast_signed();
        }
    }

    /// A client of another make does `SET NX PX`, or another program takes a Redisson lock.
    fn foreign(&mut self, name: usize) {
        let us = self.server.clock.micros(self.now);
        let (key, kind) = (self.names[name].key.clone(), self.names[name].kind);
        let taken = self.server.model.live(us).iter().any(|live| live.key == key);
        if self.server.health != Health::Up || taken {
            return;
        }
        let owner = Key::from(b"5e3b8e4e-0000-4000-8000-000000000001:42".as_slice());
        let value = match kind {
            Kind::Mutex => Value::Text(owner.clone()),
            _ => Value::Hash(vec![(owner.clone(), Key::from(b"1".as_slice()))]),
        };
        let ttl = 1 + self.some_time(2) / 1_000_000;
        self.server.model.set_foreign(us, &key, value, Some(ttl));
        self.names[name].foreign = Some(owner);
        note!(self, "server: a foreign client takes name {name} for {ttl} ms");
        self.names[name].free_since = None;
        self.check_taken(name, None);
        let done = self.now + self.some_time(1);
        self.push(done, Event::ForeignDone(name as u8));
    }

    pub(super) fn foreign_done(&mut self, name: usize) {
        let us = self.server.clock.micros(self.now);
        let Some(owner) = self.names[name].foreign.take() else { return };
        let (key, kind) = (self.names[name].key.clone(), self.names[name].kind);
        let is_its = self.server.model.holder_of(us, &key).is_some_and(|(_, holder)| holder == owner);
        if self.server.health == Health::Up && is_its {
            self.server.model.del(us, &key);
            if kind == Kind::Reentrant {
                self.publish(kind, &key);
            }
        }
    }

    /// Somebody keeps something else under the name.
    fn squat(&mut self, name: usize) {
        let us = self.server.clock.micros(self.now);
        let key = self.names[name].key.clone();
        if self.server.health == Health::Up && self.server.model.live(us).iter().all(|live| live.key != key) {
            let ttl = 1 + self.some_time(1) / 1_000_000;
            self.server.model.set_foreign(us, &key, Value::List, Some(ttl));
            self.check_taken(name, None);
        }
    }

    /// Faults stop, and whatever they stopped goes on.
    pub(super) fn calm_down(&mut self) {
        note!(self, "faults stop");
        self.calm = true;
        self.trouble();
        self.restart();
        self.thaw();
        self.accept();
        for client in 0..self.clients.len() {
            self.clients[client].cut_off_until = 0;
            self.resume(client);
            self.revive(client);
            if let Some(link) = self.clients[client].link.filter(|link| link.dead) {
                self.push(self.now, Event::LinkBroken(client as u32, link.id));
            }
        }
        for conn in 0..self.conns.len() {
            if self.conns[conn].dead {
                self.push(self.now, Event::Broken(conn as u32));
            }
        }
    }
}
