//! Connections and requests: what is promised about order, and what the network does to it.

use std::time::Duration;

use onelock::ErrorKind;
use onelock::machine::{Answer, Failure, Op, Outcome, Reply, Time};

use super::bug::Bug;
use super::plan::Fault;
use super::server::Health;
use super::stats::Count;
use super::trace::{Fate, Lane, Way};
use super::world::{Event, World, nanos, note};

/// How many requests in a row may time out before a connection is given up anyway.
const TIMEOUTS_MAX: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnState {
    Connecting,
    Open,
    Closed,
}

/// One connection of one client.
pub(super) struct Conn {
    pub(super) client: usize,
    epoch: u32,
    /// Shared, with requests in order; otherwise it carries one request at a time and promises nothing.
    pub(super) ordered: bool,
    pub(super) state: ConnState,
    /// The life of the server process that it was made to.
    life: u32,
    /// It swallows what is sent: broken, and nobody has noticed.
    pub(super) dead: bool,
    /// Bytes that arrive later than this are lost.
    pub(super) cut: u64,
    pending: Vec<usize>,
    flight: Vec<usize>,
    next_arrival: u64,
    next_reply: u64,
    timeouts: u32,
}

/// Who waits for the answer of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An acquire.
    Attempt(usize),
    /// The watchdog, with the number of its round.
    Renewal(usize),
    /// The cleanup queue, with the number of its undo.
    Undo(u64),
    /// Somebody who goes on with a hold that was handed over.
    Attach(usize),
    /// A holder: extend, enter, leave, release.
    Errand(usize),
    /// A group that takes all its members by one request.
    TakeAll(usize),
    /// A group that releases them so.
    ReleaseAll(usize),
    /// Nobody any more.
    Nobody,
}

/// One request.
pub(super) struct Request {
    pub(super) client: usize,
    epoch: u32,
    conn: usize,
    pub(super) op: Op,
    pub(super) deeds: Vec<usize>,
    pub(super) purpose: Purpose,
    /// It lowers a count.
    pub(super) leaving: bool,
    until: Time,
    limit: Time,
    pub(super) sent_at: Time,
    pub(super) sent: bool,
    pub(super) done: bool,
    pub(super) executed: u32,
    pub(super) abandoned: bool,
}

/// What the server sent back.
pub(super) struct ServerReply {
    pub(super) request: u32,
    outcome: Outcome<Reply>,
    server_us: u64,
    /// By how much its clock had been set in all.
    stepped: i64,
}

impl World {
    fn connect(&mut self, client: usize, ordered: bool) -> usize {
        let conn = self.conns.len();
        self.conns.push(Conn {
            client,
            epoch: self.clients[client].epoch,
            ordered,
            state: ConnState::Connecting,
            life: 0,
            dead: false,
            cut: u64::MAX,
            pending: Vec::new(),
            flight: Vec::new(),
            next_arrival: 0,
            next_reply: 0,
            timeouts: 0,
        });
        let round_trip = self.delay() + self.delay();
        if self.clients[client].cut_off_until <= self.now {
            self.push(self.now + round_trip, Event::Connected(conn as u32));
        }
        let limit = self.local(client) + self.plan.connect_timeout;
        self.push(self.world_time(client, limit), Event::ConnectLimit(conn as u32));
        conn
    }

    pub(super) fn connected(&mut self, conn: usize) {
        let Conn { client, state, .. } = self.conns[conn];
        if state != ConnState::Connecting {
            return;
        }
        if self.server.health == Health::Down {
            self.trouble();
            self.close(conn);
            return;
        }
        if self.clients[client].cut_off_until > self.now {
            return;
        }
        self.conns[conn].state = ConnState::Open;
        self.conns[conn].life = self.server.life;
        note!(self, "client {client}: connection {} is up", conn + 1);
        for request in std::mem::take(&mut self.conns[conn].pending) {
            self.transmit(request);
        }
    }

    pub(super) fn connect_limit(&mut self, conn: usize) {
        if self.conns[conn].state == ConnState::Connecting {
            self.trouble();
            self.close(conn);
        }
    }

    /// The connection for the next request: the shared one, or one of one's own.
    fn lane(&mut self, client: usize, own: bool) -> usize {
        if own {
            return match self.clients[client].pool.pop() {
                Some(conn) => conn,
                None => self.connect(client, false),
            };
        }
        if let Some(conn) = self.clients[client].shared {
            return conn;
        }
        let conn = self.connect(client, true);
        self.clients[client].shared = Some(conn);
        conn
    }

    /// Hands a request to the store of a client.
    pub(super) fn submit(
        &mut self,
        client: usize,
        own: bool,
        op: Op,
        deeds: Vec<usize>,
        purpose: Purpose,
        until: Time,
    ) -> usize {
        let conn = self.lane(client, own);
        let now = self.local(client);
        let id = self.requests.len();
        let limit = until.min(now + self.plan.connect_timeout);
        if let Op::Acquire { ttl_ms, .. }
        | Op::Enter { ttl_ms, .. }
        | Op::SetCount { ttl_ms, .. }
        | Op::Attach { ttl_ms, .. } = &op
        {
            self.longest_ttl_ms = self.longest_ttl_ms.max(*ttl_ms);
        }
        if let Op::Renew { holds } = &op {
            let longest = holds.iter().map(|(_, ttl_ms)| *ttl_ms).max().unwrap_or(0);
            self.longest_ttl_ms = self.longest_ttl_ms.max(longest);
        }
        if let Op::AcquireMany { claims, .. } = &op {
            let longest = claims.iter().map(|(_, ttl_ms)| *ttl_ms).max().unwrap_or(0);
            self.longest_ttl_ms = self.longest_ttl_ms.max(longest);
        }
        if matches!(purpose, Purpose::Attempt(_) | Purpose::Attach(_) | Purpose::TakeAll(_)) {
            for deed in &deeds {
                self.deeds[*deed].trail.submitted(id as u32);
            }
        }
        self.requests.push(Request {
            client,
            epoch: self.clients[client].epoch,
            conn,
            op,
            deeds,
            purpose,
            leaving: false,
            until,
            limit,
            sent_at: now,
            sent: false,
            done: false,
            executed: 0,
            abandoned: false,
        });
        if self.conns[conn].state == ConnState::Open {
            self.transmit(id);
        } else {
            self.conns[conn].pending.push(id);
            self.push(self.world_time(client, limit), Event::Limit(id as u32));
        }
        id
    }

    /// The bytes of a request leave the process.
    fn transmit(&mut self, id: usize) {
        let Request { client, conn, until, .. } = self.requests[id];
        let now = self.local(client);
        let limit = until.min(now + self.plan.request_timeout);
        let request = &mut self.requests[id];
        (request.sent, request.sent_at, request.limit) = (true, now, limit);
        self.push(self.world_time(client, limit), Event::Limit(id as u32));
        self.conns[conn].flight.push(id);
        self.note_sent(id);
        self.mark_sent(id, Way::Request);
        if self.strikes(Fault::RequestLoss) {
            note!(self, "network: request {id} is lost");
            self.mark(Way::Request, id, Fate::Lost);
            self.trouble();
            return;
        }
        if self.conns[conn].dead {
            self.mark(Way::Request, id, Fate::Lost);
            self.trouble();
            return;
        }
        let mut delay = self.delay();
        if self.strikes(Fault::LongDelay) {
            delay += self.dice.below(nanos(self.plan.ttl) * 3 / 2);
            self.trouble();
        }
        let arrival = (self.now + delay).max(self.conns[conn].next_arrival);
        self.conns[conn].next_arrival = arrival;
        self.launch(id, arrival, false);
        if self.strikes(Fault::Duplicates) {
            let later = arrival + self.dice.below(nanos(self.plan.ttl) * 3 / 2);
            self.launch(id, later, true);
            self.mark_sent(id, Way::Copy);
            let takes = matches!(
                self.requests[id].op,
                Op::Acquire { .. } | Op::AcquireMany { .. } | Op::Enter { .. } | Op::Attach { .. }
            );
            for deed in self.requests[id].deeds.clone() {
                self.deeds[deed].copied |= takes;
            }
        }
    }

    fn launch(&mut self, id: usize, arrival: u64, copy: bool) {
        if matches!(self.requests[id].op, Op::SetCount { .. }) {
            self.deeds[self.requests[id].deeds[0]].counts_in_air += 1;
        }
        self.push(arrival, Event::Arrive(id as u32, copy));
    }

    /// A copy of a request is not on its way any more: carried out or lost.
    fn landed(&mut self, id: usize) {
        if matches!(self.requests[id].op, Op::SetCount { .. }) {
            self.deeds[self.requests[id].deeds[0]].counts_in_air -= 1;
        }
    }

    fn note_sent(&mut self, id: usize) {
        let Request { conn, purpose, .. } = self.requests[id];
        let number = self.connection_number(conn);
        if self.trace.is_some() {
            let request = &self.requests[id];
            let (client, name, deeds) = (request.client, request.op.name(), request.deeds.clone());
            note!(self, "client {client}: sends request {id}, {name} of {deeds:?}, on connection {number}");
        }
        match purpose {
            Purpose::Attempt(_) | Purpose::Attach(_) | Purpose::TakeAll(_) | Purpose::Nobody => {
                for deed in self.requests[id].deeds.clone() {
                    self.deeds[deed].trail.sent(id as u32, number);
                }
            }
            Purpose::Renewal(round) => self.renewal_sent(id, round),
            _ => {}
        }
    }

    /// The number that an answer carries: 0 for a connection that promises no order.
    fn connection_number(&self, conn: usize) -> u64 {
        if self.conns[conn].ordered { conn as u64 + 1 } else { 0 }
    }

    pub(super) fn arrive(&mut self, id: usize, copy: bool) {
        let way = if copy { Way::Copy } else { Way::Request };
        let conn = &self.conns[self.requests[id].conn];
        // a copy comes from elsewhere and has its own way
        if !copy && (self.now > conn.cut || conn.life != self.server.life) {
            note!(self, "network: request {id} is lost with its connection");
            self.mark(way, id, Fate::Lost);
            self.landed(id);
            return;
        }
        let fate = if self.server.health == Health::Down { Fate::Lost } else { Fate::Arrived };
        self.mark(way, id, fate);
        match self.server.health {
            Health::Down => self.landed(id),
            Health::Frozen => self.server.backlog.push_back(id as u32),
            Health::Up => self.carry_out(id),
        }
    }

    /// What had arrived at a server that died is lost.
    pub(super) fn lose_backlog(&mut self) {
        for id in std::mem::take(&mut self.server.backlog) {
            self.landed(id as usize);
        }
    }

    /// What had arrived at a server that stood still is carried out now.
    pub(super) fn work_off_backlog(&mut self) {
        for id in std::mem::take(&mut self.server.backlog) {
            self.carry_out(id as usize);
        }
    }

    fn carry_out(&mut self, id: usize) {
        self.landed(id);
        let (conn, epoch, client) = {
            let request = &self.requests[id];
            (request.conn, request.epoch, request.client)
        };
        if self.conns[conn].state == ConnState::Closed {
            self.stats.add(Count::ExecutedLate);
        }
        if self.requests[id].executed > 0 {
            self.stats.add(Count::ExecutedTwice);
        }
        self.requests[id].executed += 1;
        let leaving = self.requests[id].leaving;
        if matches!(self.requests[id].op, Op::Enter { .. } | Op::Release { .. } | Op::Undo { .. }) {
            self.count_subscribers(self.deeds[self.requests[id].deeds[0]].name);
        }
        let executed = self.server.execute(self.now, &self.requests[id].op, leaving, self.bug);
        note!(self, "server: carries out request {id}: {:?}", executed.outcome);
        self.mark_executed(id, &executed.outcome);
        self.check_execution(id, &executed);
        for (kind, key) in executed.announced {
            self.publish(kind, &key);
        }
        for grant in executed.granted {
            self.granted_directly(&grant);
        }
        if self.conns[conn].state != ConnState::Open || epoch != self.clients[client].epoch {
            return;
        }
        // whoever made a copy of a release has had the answer that counts
        let releases = matches!(self.requests[id].op, Op::Release { .. } | Op::ReleaseMany { .. } | Op::Retain { .. });
        let stray = self.requests[id].executed > 1 && releases;
        if stray || self.conns[conn].dead || self.strikes(Fault::ReplyLoss) {
            note!(self, "network: the reply to request {id} is lost");
            self.mark_reply(id, usize::MAX, &executed.outcome);
            self.mark(Way::Reply, usize::MAX, Fate::Lost);
            self.trouble();
            return;
        }
        let mut delay = self.delay();
        if self.strikes(Fault::LongDelay) {
            delay += self.dice.below(nanos(self.plan.ttl) * 3 / 2);
            self.trouble();
        }
        let arrival = (self.now + delay).max(self.conns[conn].next_reply);
        self.conns[conn].next_reply = arrival;
        self.mark_reply(id, self.replies.len(), &executed.outcome);
        let (server_us, stepped) = (self.server.clock.micros(self.now), self.server.clock.stepped);
        self.replies.push(Some(ServerReply { request: id as u32, outcome: executed.outcome, server_us, stepped }));
        self.push(arrival, Event::Reply(self.replies.len() as u32 - 1));
    }

    pub(super) fn reply(&mut self, number: usize) {
        let Some(reply) = self.replies[number].take() else { return };
        let id = reply.request as usize;
        let conn = self.requests[id].conn;
        let listens = self.conns[conn].state == ConnState::Open;
        self.mark(Way::Reply, number, if listens { Fate::Arrived } else { Fate::Lost });
        if !listens {
            return;
        }
        self.conns[conn].timeouts = 0;
        self.clients[self.requests[id].client].stepped_seen = reply.stepped;
        self.finish(id, reply.outcome, Some(reply.server_us));
    }

    /// The time of a request is up.
    pub(super) fn limit(&mut self, id: usize) {
        let Request { client, conn, done, limit, sent, .. } = self.requests[id];
        if done || self.local(client) < limit {
            return;
        }
        self.trouble();
        if !sent {
            self.conns[conn].pending.retain(|other| *other != id);
            self.finish(id, Outcome::NotApplied(unavailable("no connection in time")), None);
            return;
        }
        let text = || format!("{} waits no longer for an answer", super::words::client(client));
        self.mark_step(Lane::Client(client), "limit", text);
        self.conns[conn].timeouts += 1;
        let resets = self.clients[client].plan.resets_on_timeout || self.conns[conn].timeouts >= TIMEOUTS_MAX;
        if resets || !self.conns[conn].ordered {
            self.close(conn);
        } else {
            self.finish(id, Outcome::Indeterminate(unavailable("no reply in time")), None);
        }
    }

    /// A connection ends, seen from the client. What is on its way may still arrive, up to some point.
    pub(super) fn close(&mut self, conn: usize) {
        if self.conns[conn].state == ConnState::Closed {
            return;
        }
        let delay = self.delay();
        let cut = self.dice.pick(&[self.now, self.now + delay, u64::MAX]);
        let closing = &mut self.conns[conn];
        closing.state = ConnState::Closed;
        closing.cut = closing.cut.min(cut);
        let (client, epoch) = (closing.client, closing.epoch);
        let (flight, pending) = (std::mem::take(&mut closing.flight), std::mem::take(&mut closing.pending));
        if self.clients[client].shared == Some(conn) {
            self.clients[client].shared = None;
        }
        self.clients[client].pool.retain(|other| *other != conn);
        if epoch != self.clients[client].epoch {
            return;
        }
        note!(self, "client {client}: connection {} is closed", conn + 1);
        self.trouble();
        for id in flight {
            self.finish(id, Outcome::Indeterminate(unavailable("the connection broke")), None);
        }
        for id in pending {
            self.finish(id, Outcome::NotApplied(unavailable("connection refused")), None);
        }
    }

    /// Whoever asked does not wait any more. Whether a request that waits for a connection is still sent is up to the store.
    pub(super) fn abandon(&mut self, id: usize) {
        let Request { conn, sent, done, .. } = self.requests[id];
        if done {
            return;
        }
        self.requests[id].purpose = Purpose::Nobody;
        self.requests[id].abandoned = true;
        if !self.conns[conn].ordered {
            self.close(conn);
        } else if !sent && self.dice.chance(500) {
            self.conns[conn].pending.retain(|other| *other != id);
            self.requests[id].done = true;
        }
    }

    fn finish(&mut self, id: usize, outcome: Outcome<Reply>, server_us: Option<u64>) {
        let Request { client, epoch, conn, done, sent_at, purpose, .. } = self.requests[id];
        if done {
            return;
        }
        self.requests[id].done = true;
        let connection = self.connection_number(conn);
        self.conns[conn].flight.retain(|other| *other != id);
        if epoch != self.clients[client].epoch {
            return;
        }
        let settled = matches!(outcome, Outcome::Applied(_));
        if !self.conns[conn].ordered && self.conns[conn].state == ConnState::Open && settled {
            self.clients[client].pool.push(conn);
        }
        let now = self.local(client);
        let mut answer = Answer { sent_at, received_at: now, connection, server_time_us: server_us, outcome };
        note!(self, "client {client}: request {id} ends: {:?}", answer.outcome);
        self.observe_clock(client, &answer);
        if self.bug == Some(Bug::DeadlineFromReceive) {
            answer.sent_at = now;
        }
        match purpose {
            Purpose::Attempt(task) => self.attempt_answered(task, id, &answer),
            Purpose::Renewal(round) => self.renewal_answered(client, round, &answer),
            Purpose::Undo(undo) => self.undo_answered(client, undo, &answer),
            Purpose::Errand(task) => self.errand_answered(task, id, &answer),
            Purpose::TakeAll(group) => self.took_all(group, id, &answer),
            Purpose::ReleaseAll(group) => self.released_all(group, id, &answer),
            Purpose::Attach(task) => self.attach_heard(task, id, &answer),
            Purpose::Nobody => {}
        }
    }

    /// The latest moment for a request that has no patience of its own.
    pub(super) fn call_limit(&self, client: usize) -> Time {
        self.local(client) + self.plan.connect_timeout + self.plan.request_timeout
    }

    /// The longest that a call without a wait may take.
    pub(super) fn call_span(&self) -> Duration {
        self.plan.connect_timeout + self.plan.request_timeout * 2
    }
}

fn unavailable(detail: &str) -> Failure {
    Failure::transient(ErrorKind::Unavailable, detail)
}
