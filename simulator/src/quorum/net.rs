//! Connections and requests, and the servers that carry them out.

use std::time::Duration;

use onelock::ErrorKind;
use onelock::machine::model::{Model, Value};
use onelock::machine::quorum::{ServerData, ServerRun};
use onelock::machine::{Answer, Failure, Key, Op, Outcome, Renewal, Reply, Time, naming};

use super::super::clock::ServerClock;
use super::super::dice::Dice;
use super::super::trace::{Fate, Way};
use super::Bug;
use super::client::To;
use super::plan::NodePlan;
use super::world::{Event, World, note};

/// One server process and its data.
pub(super) struct Node {
    pub(super) model: Model,
    pub(super) clock: ServerClock,
    keeps: bool,
    /// What it forgets it does not own up to: it says that it keeps its data, and has other data after each restart.
    replaced: bool,
    pub(super) up: bool,
    pub(super) frozen: bool,
    /// Counts the runs of the process: connections of an earlier one are dead.
    run: u8,
    /// When this run began, in true time; before the schedule for the first.
    started: i64,
    backlog: Vec<usize>,
}

impl Node {
    pub(super) fn new(plan: &NodePlan, counter: u64, dice: &mut Dice) -> Node {
        let origin = 1_700_000_000_000_000_000 + dice.below(200_000_000);
        let mut model = Model::new();
        if counter > 0 {
            // as after acquires that failed elsewhere
            let value = Value::Text(Key::from(counter.to_string().as_bytes()));
            model.set_foreign(origin / 1000, &naming::fence_key(b"sim"), value, Some(naming::FENCE_TTL_MIN_MS));
        }
        Node {
            model,
            clock: ServerClock { origin, ppm: plan.ppm, stepped: 0 },
            keeps: plan.keeps,
            replaced: plan.replaced,
            up: true,
            frozen: false,
            run: 1,
            started: -3_600_000_000_000,
            backlog: Vec::new(),
        }
    }

    fn life(&self, now: u64) -> ServerRun {
        let uptime = Duration::from_secs((now.cast_signed() - self.started).cast_unsigned() / 1_000_000_000);
        let data = self.replaced.then_some(ServerData { id: u64::from(self.run), age: uptime });
        ServerRun { run_id: [self.run; 40], uptime, keeps_data: self.keeps || self.replaced, data }
    }
}

/// A client's connection to a node.
pub(super) struct Conn {
    pub(super) client: usize,
    epoch: u32,
    node: usize,
    open: bool,
    closed: bool,
    run: u8,
    pending: Vec<usize>,
    flight: Vec<usize>,
    next_arrival: u64,
    next_reply: u64,
}

/// A request to a node.
pub(super) struct Request {
    pub(super) client: usize,
    epoch: u32,
    node: usize,
    conn: usize,
    op: Op,
    to: To,
    sent_at: Time,
    sent: bool,
    done: bool,
}

fn away(detail: &str) -> Failure {
    Failure::transient(ErrorKind::Unavailable, detail)
}

impl World {
    fn delay(&mut self) -> u64 {
        let (low, high) = self.plan.delay;
        self.dice.range(low, high)
    }

    /// What a message to or from this node takes.
    fn delay_of(&mut self, node: usize) -> u64 {
        let delay = self.delay();
        self.plan.far.filter(|(far, _)| *far == node).map_or(delay, |(_, times)| delay * times)
    }

    fn is_cut(&self, client: usize, node: usize) -> bool {
        self.cuts.get(&(client, node)).is_some_and(|until| self.now < *until)
    }

    /// The number of a client's present connection to a node, or of the next.
    pub(super) fn number(&self, client: usize, node: usize) -> u64 {
        self.clients[client].conns[node].map_or(self.conns.len() as u64 + 1, |conn| conn as u64 + 1)
    }

    pub(super) fn submit(&mut self, client: usize, node: usize, op: Op, to: To, until: Time) {
        let conn = match self.clients[client].conns[node] {
            Some(conn) => conn,
            None => self.connect(client, node),
        };
        if let To::Round(round) = &to
            && !self.plan.clients[client].unordered
            && let Some(round) = self.clients[client].rounds.get_mut(round)
        {
            round.sending(node, conn as u64 + 1);
        }
        let (id, epoch) = (self.requests.len(), self.clients[client].epoch);
        let sent_at = self.local(client);
        for deed in World::deeds_of(&op) {
            self.deeds[deed].in_air += 1;
        }
        self.requests.push(Request { client, epoch, node, conn, op, to, sent_at, sent: false, done: false });
        self.push(self.world_time(client, until), Event::Limit(id));
        if self.conns[conn].open { self.transmit(id) } else { self.conns[conn].pending.push(id) }
    }

    fn deeds_of(op: &Op) -> Vec<usize> {
        match op {
            Op::Vote { claim, .. }
            | Op::Attach { claim, .. }
            | Op::WriteBack { claim, .. }
            | Op::Release { claim }
            | Op::Retain { claim, .. }
            | Op::Undo { claim, .. } => {
                vec![World::deed_of(claim)]
            }
            _ => Vec::new(),
        }
    }

    fn landed(&mut self, id: usize) {
        for deed in World::deeds_of(&self.requests[id].op.clone()) {
            self.deeds[deed].in_air -= 1;
        }
    }

    fn connect(&mut self, client: usize, node: usize) -> usize {
        let conn = self.conns.len();
        self.conns.push(Conn {
            client,
            epoch: self.clients[client].epoch,
            node,
            open: false,
            closed: false,
            run: 0,
            pending: Vec::new(),
            flight: Vec::new(),
            next_arrival: 0,
            next_reply: 0,
        });
        self.clients[client].conns[node] = Some(conn);
        let round_trip = self.delay() + self.delay();
        if !self.is_cut(client, node) && !self.nodes[node].frozen {
            self.push(self.now + round_trip, Event::Connected(conn));
        }
        conn
    }

    pub(super) fn connected(&mut self, conn: usize) {
        let Conn { client, epoch, node, closed, .. } = self.conns[conn];
        if closed || epoch != self.clients[client].epoch {
            return;
        }
        if !self.nodes[node].up {
            return self.close(conn);
        }
        (self.conns[conn].open, self.conns[conn].run) = (true, self.nodes[node].run);
        let (mut life, local) = (self.nodes[node].life(self.now), self.local(client));
        if self.bug == Some(Bug::IdentityIgnored) {
            life.data = None;
        }
        self.clients[client].quorum.on_connected(local, node, Some(&life));
        for id in std::mem::take(&mut self.conns[conn].pending) {
            if !self.requests[id].done {
                self.transmit(id);
            }
        }
    }

    fn transmit(&mut self, id: usize) {
        let Request { client, node, conn, .. } = self.requests[id];
        if let To::Seed(claim) = &self.requests[id].to {
            let claim = claim.clone();
            let careless = matches!(self.bug, Some(Bug::LateSeedsRegardless | Bug::SeedsRegardless | Bug::SeedsUntold));
            if !careless && !self.clients[client].quorum.is_repair_wanted(&claim) {
                self.finish(id, Outcome::NotApplied(away("the hold is over")), None);
                return self.landed(id);
            }
            self.check_seed_sent(&claim, node);
        }
        self.requests[id].sent = true;
        self.requests[id].sent_at = self.local(client);
        self.conns[conn].flight.push(id);
        if self.recorder.is_some() {
            let op = self.requests[id].op.clone();
            self.mark_sent(id, client, node, &op);
        }
        let is_write_back = matches!(self.requests[id].op, Op::WriteBack { .. });
        let loss = if is_write_back { self.plan.loss.max(self.plan.lost_write_backs) } else { self.plan.loss };
        if self.is_cut(client, node) || (!self.calm && self.dice.chance(loss)) {
            note!(self, "network: request {id} is lost");
            self.mark(Way::Request, id, Fate::Lost);
            return self.landed(id);
        }
        let mut at = self.now + self.delay_of(node);
        if !self.calm && self.dice.chance(self.plan.late) {
            at += self.dice.below(self.plan.ttl.as_nanos() as u64 * 3 / 2);
        }
        if !self.plan.clients[client].unordered {
            at = at.max(self.conns[conn].next_arrival);
            self.conns[conn].next_arrival = at;
        }
        self.push(at, Event::Arrive(id));
    }

    pub(super) fn arrive(&mut self, id: usize) {
        let Request { node, conn, .. } = self.requests[id];
        let lost = !self.nodes[node].up || self.conns[conn].run != self.nodes[node].run;
        self.mark(Way::Request, id, if lost { Fate::Lost } else { Fate::Arrived });
        if lost {
            return self.landed(id);
        }
        if self.nodes[node].frozen {
            return self.nodes[node].backlog.push(id);
        }
        self.carry_out(id);
    }

    fn carry_out(&mut self, id: usize) {
        let Request { client, epoch, node, conn, .. } = self.requests[id];
        let op = self.requests[id].op.clone();
        let us = self.nodes[node].clock.micros(self.now);
        let done = self.nodes[node].model.apply(us, &op);
        let deeds = World::deeds_of(&op);
        note!(self, "node {node}: request {id} of client {client}, {} of {deeds:?}: {:?}", op.name(), done.outcome);
        self.mark_executed(node, &op, &done.outcome);
        self.executed(node, &op);
        self.confirmed(id, &done.outcome);
        self.landed(id);
        if done.announced.is_some() {
            for other in 0..self.clients.len() {
                let at = self.now + self.delay();
                self.push(at, Event::Hint(other));
                self.mark_published(other, node);
            }
        }
        if epoch != self.clients[client].epoch
            || self.conns[conn].closed
            || self.is_cut(client, node)
            || (!self.calm && self.dice.chance(self.plan.loss))
        {
            self.mark_reply(id, client, node, &op, &done.outcome);
            return self.mark(Way::Reply, id, Fate::Lost);
        }
        self.mark_reply(id, client, node, &op, &done.outcome);
        let mut at = self.now + self.delay_of(node);
        if !self.calm && self.dice.chance(self.plan.late) {
            at += self.dice.below(self.plan.ttl.as_nanos() as u64 * 3 / 2);
        }
        at = at.max(self.conns[conn].next_reply);
        self.conns[conn].next_reply = at;
        self.push(at, Event::Reply(id, done.outcome, us));
    }

    fn executed(&mut self, node: usize, op: &Op) {
        match op {
            Op::Vote { claim, .. } | Op::Attach { claim, .. } => {
                let deed = World::deed_of(claim);
                let known = &self.deeds[deed];
                // carried out when the node had been given up without an undo
                let owed = !known.ended || known.rounds > 0 || self.clients[known.client].cleanup.has(&known.claim);
                self.deeds[deed].late_copy[node] |= known.undone[node].is_none() && !owed;
            }
            Op::Release { claim } | Op::Retain { claim, .. } | Op::Undo { claim, .. } => {
                let deed = World::deed_of(claim);
                let now = self.now;
                self.deeds[deed].undone[node].get_or_insert(now);
                self.deeds[deed].late_copy[node] = false;
            }
            _ => {}
        }
    }

    /// Keeps what a renewal really did, whatever the client hears of it.
    fn confirmed(&mut self, id: usize, outcome: &Outcome<Reply>) {
        let Request { client, epoch, node, to: To::Round(round), .. } = self.requests[id] else { return };
        if let Outcome::Applied(Reply::Renewed(verdicts)) = outcome
            && epoch == self.clients[client].epoch
        {
            let process = &mut self.clients[client];
            if let Some(active) = process.rounds.get_mut(&round).or(process.late.get_mut(&round)) {
                active.renewed(node, verdicts);
            }
        }
    }

    pub(super) fn reply(&mut self, id: usize, outcome: Outcome<Reply>, us: u64) {
        let listens = !self.conns[self.requests[id].conn].closed;
        self.mark(Way::Reply, id, if listens { Fate::Arrived } else { Fate::Lost });
        if listens {
            self.finish(id, outcome, Some(us));
        }
    }

    pub(super) fn limit(&mut self, id: usize) {
        let Request { client, conn, sent, done, .. } = self.requests[id];
        if done {
            return;
        }
        if !sent {
            self.finish(id, Outcome::NotApplied(away("no connection in time")), None);
            self.landed(id);
            // the attempt is given up after some time, and another one made
            if self.dice.chance(500) {
                self.close(conn);
            }
            return;
        }
        self.finish(id, Outcome::Indeterminate(away("no reply in time")), None);
        if self.dice.chance(if self.plan.clients[client].unordered { 1000 } else { 300 }) {
            self.close(conn);
        }
    }

    pub(super) fn close(&mut self, conn: usize) {
        if std::mem::replace(&mut self.conns[conn].closed, true) {
            return;
        }
        let (client, node) = (self.conns[conn].client, self.conns[conn].node);
        if self.clients[client].conns[node] == Some(conn) {
            self.clients[client].conns[node] = None;
        }
        for id in std::mem::take(&mut self.conns[conn].pending) {
            if !self.requests[id].done {
                self.finish(id, Outcome::NotApplied(away("connection refused")), None);
                self.landed(id);
            }
        }
        for id in std::mem::take(&mut self.conns[conn].flight) {
            self.finish(id, Outcome::Indeterminate(away("the connection broke")), None);
        }
    }

    fn finish(&mut self, id: usize, outcome: Outcome<Reply>, us: Option<u64>) {
        let Request { client, epoch, node, conn, done, sent_at, .. } = self.requests[id];
        if done {
            return;
        }
        self.requests[id].done = true;
        self.conns[conn].flight.retain(|other| *other != id);
        if epoch != self.clients[client].epoch {
            return;
        }
        let connection = if self.plan.clients[client].unordered { 0 } else { conn as u64 + 1 };
        let received_at = self.local(client);
        let mut answer = Answer { sent_at, received_at, connection, server_time_us: us, outcome };
        self.tamper(id, &mut answer);
        let to = self.requests[id].to.clone();
        self.node_answered(client, node, &to, &answer);
    }

    /// Planted bugs that sit in how one node's answer is read.
    fn tamper(&self, id: usize, answer: &mut Answer) {
        // as if one confirmation were a majority
        if self.bug == Some(Bug::RenewedByOne)
            && let Outcome::Applied(Reply::Renewed(verdicts)) = &mut answer.outcome
            && let To::Round(round) = self.requests[id].to
            && let Some(active) = self.clients[self.requests[id].client].rounds.get(&round)
            && active.confirmed_anywhere()
        {
            for verdict in verdicts {
                *verdict = Renewal::Renewed;
            }
        }
        if self.bug == Some(Bug::WrittenIsEqual)
            && let Outcome::Applied(Reply::Written(Some(fence))) = &mut answer.outcome
            && let To::Round(round) = self.requests[id].to
            && let Some(active) = self.clients[self.requests[id].client].rounds.get(&round)
        {
            *fence = active.highest().max(*fence);
        }
    }

    pub(super) fn crash(&mut self, node: usize, down_for: u64) {
        if !self.nodes[node].up {
            return;
        }
        self.nodes[node].up = false;
        self.nodes[node].frozen = false;
        let keeps = self.nodes[node].keeps;
        self.nodes[node].model.crash(keeps);
        if !keeps {
            self.tally.amnesias += 1;
        }
        for id in std::mem::take(&mut self.nodes[node].backlog) {
            self.landed(id);
        }
        for conn in 0..self.conns.len() {
            if self.conns[conn].node == node && self.conns[conn].open && !self.conns[conn].closed {
                let at = self.now + self.delay() * 2;
                self.push(at, Event::Broken(conn));
            }
        }
        self.push(self.now + down_for, Event::Restart(node));
    }

    pub(super) fn restart(&mut self, node: usize) {
        let now = self.now.cast_signed();
        let node = &mut self.nodes[node];
        (node.up, node.run, node.started) = (true, node.run + 1, now);
    }

    pub(super) fn thaw(&mut self, node: usize) {
        self.nodes[node].frozen = false;
        for id in std::mem::take(&mut self.nodes[node].backlog) {
            self.carry_out(id);
        }
        // connections that were being made meanwhile
        for conn in 0..self.conns.len() {
            if self.conns[conn].node == node && !self.conns[conn].open && !self.conns[conn].closed {
                let at = self.now + self.delay();
                self.push(at, Event::Connected(conn));
            }
        }
    }
}
