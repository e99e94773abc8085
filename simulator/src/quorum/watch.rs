//! What is written down of a schedule with several servers: looks at the world, and changes nothing.

use onelock::LossReason;
use onelock::machine::{Key, Op, Outcome, Reply};

use super::super::recorder::{KeyNow, LeaseNow, Recorder};
use super::super::trace::{Fate, Lane, Trace, Way, Write};
use super::super::words;
use super::plan::Fault;
use super::task::Stage;
use super::world::World;

/// The key of the only lock.
const KEY: &[u8] = b"sim";

impl World {
    /// From here on everything is written down.
    pub(super) fn begin_recording(&mut self) {
        let trace = Trace {
            clients: self.plan.clients.iter().map(|client| client.clock.ppm).collect(),
            servers: self.plan.nodes.iter().map(|node| node.ppm).collect(),
            locks: vec!["mutex"],
            ttl: self.plan.ttl.as_nanos() as u64,
            calm: self.plan.calm_at,
            ..Trace::default()
        };
        self.recorder = Some(Box::new(Recorder::new(trace, self.plan.delay.1 * 3)));
    }

    fn words_of(op: &Op) -> String {
        let deeds = match op {
            Op::Vote { claim, .. } | Op::WriteBack { claim, .. } => vec![World::deed_of(claim)],
            other => World::claims(other),
        };
        format!("{} for {}", words::op(op), words::claims(&deeds))
    }

    pub(super) fn mark_sent(&mut self, id: usize, client: usize, node: usize, op: &Op) {
        if let Some(recorder) = &mut self.recorder {
            recorder.sent((Way::Request, id as u64), client, node, World::words_of(op));
        }
    }

    pub(super) fn mark(&mut self, way: Way, id: usize, fate: Fate) {
        if let Some(recorder) = &mut self.recorder {
            recorder.came((way, id as u64), fate);
        }
    }

    /// A node carries a request out.
    pub(super) fn mark_executed(&mut self, node: usize, op: &Op, outcome: &Outcome<Reply>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.executed(node, &format!("{}: {}", World::words_of(op), words::outcome(outcome)));
        }
    }

    /// Its reply leaves.
    pub(super) fn mark_reply(&mut self, id: usize, client: usize, node: usize, op: &Op, outcome: &Outcome<Reply>) {
        if let Some(recorder) = &mut self.recorder {
            let text = format!("{}: {}", World::words_of(op), words::outcome(outcome));
            recorder.sent((Way::Reply, id as u64), client, node, text);
        }
    }

    pub(super) fn mark_published(&mut self, client: usize, node: usize) {
        if let Some(recorder) = &mut self.recorder {
            recorder.sent((Way::Notice, client as u64), client, node, "the lock is free".to_owned());
        }
    }

    pub(super) fn mark_fault(&mut self, fault: Fault) {
        let Some(recorder) = &mut self.recorder else { return };
        let (client, server) = (words::client, |node: usize| format!("server {}", node + 1));
        let text = match fault {
            Fault::Freeze(_) | Fault::Pause(_) => return,
            Fault::Crash(node) => {
                let data = if self.plan.nodes[node].keeps { "with" } else { "without" };
                format!("{} dies, and will come back {data} its data", server(node))
            }
            Fault::Kill(of) => format!("{} is killed, and another process takes its place", client(of)),
            Fault::Cut(of, node) => format!("{} and {} do not hear each other", client(of), server(node)),
            Fault::Stranded(of, node) => format!("{} hears nobody but {}", client(of), server(node)),
            Fault::Isolate(node) => format!("nobody hears {}", server(node)),
            Fault::Break(of, node) => format!("the connection of {} to {} breaks", client(of), server(node)),
            Fault::Forget(node) => format!("the key is deleted on {}", server(node)),
            Fault::SetClient(of, _) => format!("the time of day of {} is set", client(of)),
        };
        recorder.step(Lane::Network, "fault", text);
    }

    /// The holder of a lease writes to the protected resource.
    pub(super) fn mark_write(&mut self, deed: usize, admitted: bool, late: bool) {
        let (at, client, token) = (self.now, self.deeds[deed].client, self.deeds[deed].fence);
        if let (Some(recorder), Some(token)) = (&mut self.recorder, token) {
            recorder.wrote(Write { at, client, lock: 0, claim: deed, token, admitted, late });
        }
    }

    /// Whoever was stopped in the middle of its work goes on with it before it looks whether it holds the lock still.
    pub(super) fn write_late(&mut self, client: usize) {
        for task in 0..self.tasks.len() {
            let holds = self.tasks[task].client == client && matches!(self.tasks[task].stage, Stage::Holding);
            let Some(deed) = self.tasks[task].deed.filter(|_| holds) else { continue };
            if !self.believes(deed) {
                let admitted = self.deeds[deed].fence.unwrap_or(0) >= self.handed_fence;
                self.mark_write(deed, admitted, true);
            }
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
        if self.tasks.iter().all(|task| matches!(task.stage, Stage::Done)) {
            recorder.end();
        }
        for (client, process) in self.clients.iter().enumerate() {
            recorder.runs(Lane::Client(client), process.paused.then_some("frozen"));
        }
        for (server, node) in self.nodes.iter().enumerate() {
            let stopped = if node.up { node.frozen.then_some("frozen") } else { Some("down") };
            recorder.runs(Lane::Server(server), stopped);
        }
        for deed in 0..self.deeds.len() {
            if !recorder.is_settled(deed) {
                recorder.lease(&self.lease_now(deed));
            }
        }
        for node in 0..self.nodes.len() {
            let now = self.key_now(node);
            recorder.key(node, 0, now);
        }
        self.recorder = Some(recorder);
    }

    fn lease_now(&self, deed: usize) -> LeaseNow {
        let known = &self.deeds[deed];
        LeaseNow {
            client: known.client,
            lock: 0,
            claim: deed,
            token: known.fence,
            phase: known.cell.phase(),
            deadline: self.world_time(known.client, known.cell.deadline()),
            gone: known.gone,
            reason: known.cell.loss().map(LossReason::as_str),
        }
    }

    fn key_now(&self, node: usize) -> Option<KeyNow> {
        let node = &self.nodes[node];
        let us = node.clock.micros(self.now);
        let live = node.model.live(us).into_iter().find(|live| *live.key == *KEY)?;
        let holder: Option<Key> = node.model.holder_of(us, KEY).map(|(_, holder)| holder);
        let claim =
            holder.and_then(|holder| self.deeds.iter().rposition(|deed| deed.claim.token.as_bytes() == &*holder));
        Some(KeyNow { claim, expires: live.ttl_left_ms.map(|left| self.now + left * 1_000_000) })
    }
}
