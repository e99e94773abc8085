//! What is written down of a schedule: looks at the world, and changes nothing.

use onelock::machine::{Claim, Key, Outcome, Reply};

use super::plan::Fault;
use super::recorder::{KeyNow, LeaseNow, Recorder};
use super::server::Health;
use super::task::Stage;
use super::trace::{Fate, Lane, Trace, Way, Write};
use super::words;
use super::world::{World, nanos};

impl World {
    /// From here on everything is written down.
    pub(super) fn begin_recording(&mut self) {
        let trace = Trace {
            clients: self.plan.clients.iter().map(|client| client.clock.ppm).collect(),
            servers: vec![self.plan.server_ppm],
            locks: self.plan.names.iter().map(|kind| kind.row().name).collect(),
            ttl: nanos(self.plan.ttl),
            calm: self.plan.calm_at,
            ..Trace::default()
        };
        self.recorder = Some(Box::new(Recorder::new(trace, self.plan.delay.1 * 3)));
    }

    fn deeds_of(&self, id: usize) -> String {
        let request = &self.requests[id];
        format!("{} for {}", words::op(&request.op), words::claims(&request.deeds))
    }

    /// A request leaves, or a copy of it.
    pub(super) fn mark_sent(&mut self, id: usize, way: Way) {
        if self.recorder.is_some() {
            let text = self.deeds_of(id);
            let client = self.requests[id].client;
            self.recorder.iter_mut().for_each(|recorder| recorder.sent((way, id as u64), client, 0, text.clone()));
        }
    }

    /// A message comes to its end.
    pub(super) fn mark(&mut self, way: Way, number: usize, fate: Fate) {
        if let Some(recorder) = &mut self.recorder {
            recorder.came((way, number as u64), fate);
        }
    }

    pub(super) fn mark_executed(&mut self, id: usize, outcome: &Outcome<Reply>) {
        if self.recorder.is_some() {
            let text = format!("{}: {}", self.deeds_of(id), words::outcome(outcome));
            self.recorder.iter_mut().for_each(|recorder| recorder.executed(0, &text));
        }
    }

    /// The reply with this number leaves.
    pub(super) fn mark_reply(&mut self, id: usize, number: usize, outcome: &Outcome<Reply>) {
        if self.recorder.is_some() {
            let text = format!("{}: {}", self.deeds_of(id), words::outcome(outcome));
            let client = self.requests[id].client;
            let id = (Way::Reply, number as u64);
            self.recorder.iter_mut().for_each(|recorder| recorder.sent(id, client, 0, text.clone()));
        }
    }

    /// Messages of a channel have no number of their own: those that are the same are as good as each other.
    fn notice(link: u32, name: usize, told: Option<u32>) -> u64 {
        u64::from(link) << 40 | (name as u64) << 32 | told.map_or(0, |told| u64::from(told) + 1)
    }

    pub(super) fn mark_published(&mut self, link: u32, name: usize, told: Option<u32>) {
        let client = self.links[link as usize];
        if let Some(recorder) = &mut self.recorder {
            let text = if told.is_some() { "the lock is yours" } else { "the lock is free" };
            recorder.sent((Way::Notice, World::notice(link, name, told)), client, 0, text.to_owned());
        }
    }

    pub(super) fn mark_notice(&mut self, link: u32, name: usize, told: Option<u32>, fate: Fate) {
        if let Some(recorder) = &mut self.recorder {
            recorder.came((Way::Notice, World::notice(link, name, told)), fate);
        }
    }

    pub(super) fn mark_fault(&mut self, fault: Fault) {
        let shown = matches!(fault, Fault::Freeze | Fault::Pause | Fault::Kill | Fault::Crash);
        if let Some(recorder) = self.recorder.as_mut().filter(|_| !shown) {
            recorder.step(Lane::Network, "fault", words::fault(fault).to_owned());
        }
    }

    pub(super) fn mark_step(&mut self, lane: Lane, what: &'static str, text: impl FnOnce() -> String) {
        if let Some(recorder) = &mut self.recorder {
            recorder.step(lane, what, text());
        }
    }

    /// The holder of a lease writes to the protected resource.
    pub(super) fn mark_write(&mut self, deed: usize, admitted: bool, late: bool) {
        let deed_number = deed;
        let deed = &self.deeds[deed];
        let (at, client, lock, token) = (self.now, deed.client, deed.name, deed.fence);
        if let (Some(recorder), Some(token)) = (&mut self.recorder, token) {
            recorder.wrote(Write { at, client, lock, claim: deed_number, token, admitted, late });
        }
    }

    /// Whoever was stopped in the middle of its work goes on with it before it looks whether it holds the lock still.
    pub(super) fn write_late(&mut self, client: usize) {
        for task in 0..self.tasks.len() {
            let holds = self.tasks[task].plan.client == client && self.tasks[task].stage == Stage::Holding;
            let Some(deed) = self.tasks[task].handles.last().copied().filter(|_| holds) else { continue };
            if self.believes(deed) {
                continue;
            }
            let name = self.deeds[deed].name;
            let admitted = self.deeds[deed].fence.is_some_and(|fence| self.names[name].gate.admit(fence).is_ok());
            self.mark_write(deed, admitted, true);
        }
    }

    /// A client or a server goes on.
    pub(super) fn mark_runs(&mut self, lane: Lane) {
        if let Some(recorder) = &mut self.recorder {
            recorder.runs(lane, None);
        }
    }

    /// After each event: what has changed?
    pub(super) fn observe(&mut self) {
        let Some(mut recorder) = self.recorder.take() else { return };
        if self.ending {
            recorder.end();
        }
        for client in 0..self.clients.len() {
            let dead = |task: &super::task::Task| task.plan.client == client && task.stage == Stage::Dead;
            let stopped = if self.tasks.iter().any(dead) {
                Some("down")
            } else {
                self.clients[client].paused.then_some("frozen")
            };
            recorder.runs(Lane::Client(client), stopped);
        }
        let stopped = match self.server.health {
            Health::Up => None,
            Health::Frozen => Some("frozen"),
            Health::Down => Some("down"),
        };
        recorder.runs(Lane::Server(0), stopped);
        for deed in 0..self.deeds.len() {
            if !recorder.is_settled(deed) {
                recorder.lease(&self.lease_now(deed));
            }
        }
        for name in 0..self.names.len() {
            let now = self.key_now(name);
            recorder.key(0, name, now);
        }
        self.recorder = Some(recorder);
    }

    fn lease_now(&self, deed: usize) -> LeaseNow {
        let known = &self.deeds[deed];
        LeaseNow {
            client: known.client,
            lock: known.name,
            claim: deed,
            token: known.fence,
            phase: known.cell.phase(),
            deadline: self.world_time(known.client, known.cell.deadline()),
            gone: known.gone,
            reason: known.cell.loss().map(onelock::LossReason::as_str),
        }
    }

    fn key_now(&self, name: usize) -> Option<KeyNow> {
        let us = self.server.clock.micros(self.now);
        let key = &self.names[name].key;
        let live = self.server.model.live(us).into_iter().find(|live| live.key == *key)?;
        let holder = self.server.model.holder_of(us, key).map(|(_, holder)| holder);
        let is_its = |claim: &Claim, holder: &Key| claim.key == *key && claim.token.as_bytes() == &**holder;
        let claim = holder.and_then(|holder| self.deeds.iter().rposition(|deed| is_its(&deed.claim, &holder)));
        Some(KeyNow { claim, expires: live.ttl_left_ms.map(|left| self.now + left * 1_000_000) })
    }
}
