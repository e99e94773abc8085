//! A round on all servers from one thread, which writes to all of them and then reads. Connections that are missing are
//! made by other threads.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use redis::Value;

use super::RedlockState;
use super::connectors::{ConnectResult, ConnectTicket};
use super::late_replies::RoundInProgress;
use crate::machine::quorum::{NodeRequest as Request, QuorumRound, RoundStatus};
use crate::machine::{Answer, Failure, Op, Outcome, Time};
use crate::store::Interrupt;
use crate::store::redis::command::call::{Announce, CommandForm};
use crate::store::redis::command::request;
use crate::store::redis::command::server_error;
use crate::store::redis::connection::blocking::connection::BlockingConnection;
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::connection::socket::no_connection_in_time;
use crate::store::redis::node::{Node, RawExchange, is_worth_keeping, not_sent};
use crate::sys::clock;

/// How often a waiting caller's deadline and interrupt are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The same while a connection is being made by another thread.
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The state of one node during a call.
enum NodeState {
    /// No request is in flight; its connection, if the call has one already.
    Idle(Option<BlockingConnection>),
    /// A connection is being made, unless an idle one is put back first.
    Connecting(PendingConnect),
    InFlight(InFlightRequest),
}

struct PendingConnect {
    bytes: Vec<u8>,
    until: Time,
    _ticket: ConnectTicket,
}

struct InFlightRequest {
    connection: BlockingConnection,
    sent_at: Time,
    until: Time,
    form: CommandForm,
}

/// One call in progress.
struct BlockingRound<'a> {
    store: &'a RedlockState,
    deadline: Deadline<'a>,
    /// The present request, the same for all nodes.
    op: Op,
    nodes: Vec<NodeState>,
    connected: (Sender<ConnectResult>, Receiver<ConnectResult>),
    /// Until when new connections are waited for, although the result does not need them.
    extra_wait_until: Option<Time>,
}

/// One operation on all nodes, from a thread.
pub(crate) fn call(
    store: &Arc<RedlockState>,
    op: &Op,
    until: Time,
    interrupt: &dyn Interrupt,
) -> (Answer, RoundInProgress) {
    let begun = clock::now();
    let (mut round, request) = store.quorum().begin(begun, clock::wall_us(), op);
    round.limit(until);
    let mut progress = RoundInProgress { store: store.clone(), round };
    let round = &mut progress.round;
    let mut requests = BlockingRound {
        store,
        deadline: Deadline { until, interrupt },
        op: request.op.clone(),
        nodes: store.nodes.iter().map(|_| NodeState::Idle(None)).collect(),
        connected: mpsc::channel(),
        extra_wait_until: None,
    };
    requests.send_all(round, request);
    loop {
        let rest = round.status(&store.quorum());
        let now = clock::now();
        let wake = match rest {
            RoundStatus::Over => match requests.wait_for_new_connections(begun, now) {
                Some(moment) => moment,
                None => break,
            },
            RoundStatus::Until(moment) => moment,
            RoundStatus::Wait => Time::MAX,
        };
        if now >= wake || interrupt.interrupted() || !requests.wait(round, now, wake) {
            break;
        }
    }
    requests.finish(round);
    let answer = round.conclude(&mut store.quorum(), clock::now());
    (answer, progress)
}

impl BlockingRound<'_> {
    /// The lock is held by a majority, and connections to other nodes are being made: as much time again as it took so
    /// far is spent for a hold on all nodes.
    fn wait_for_new_connections(&mut self, begun: Time, now: Time) -> Option<Time> {
        let (opening, flying) = (self.is_connecting(), self.has_in_flight());
        if !matches!(self.op, Op::Vote { .. } | Op::Attach { .. })
            || !(opening || (flying && self.extra_wait_until.is_some()))
        {
            return None;
        }
        let limit = self.store.limit(begun, self.deadline.until);
        let moment = *self.extra_wait_until.get_or_insert((now + now.since(begun)).min(limit));
        (now < moment).then_some(moment)
    }

    fn is_connecting(&self) -> bool {
        self.nodes.iter().any(|state| matches!(state, NodeState::Connecting(_)))
    }

    fn has_in_flight(&self) -> bool {
        self.nodes.iter().any(|state| matches!(state, NodeState::InFlight(_)))
    }

    /// Sends the request to all its nodes.
    fn send_all(&mut self, round: &mut QuorumRound, request: Request) {
        self.op = request.op;
        let bytes = request::command(&self.op, CommandForm::Sha, Announce::Timed).get_packed_command();
        let now = clock::now();
        let mut missing = Vec::new();
        for node in request.nodes.iter() {
            let connection = match std::mem::replace(&mut self.nodes[node], NodeState::Idle(None)) {
                NodeState::Idle(connection) => connection,
                busy => {
                    self.nodes[node] = busy;
                    continue;
                }
            };
            let connection = connection.or_else(|| self.store.nodes[node].threads.pool.get_idle(now));
            match connection {
                Some(connection) => self.send_to(round, node, connection, &bytes, CommandForm::Sha, true),
                None => missing.push(node),
            }
        }
        let there = self.nodes.iter().filter(|state| matches!(state, NodeState::InFlight(_))).count();
        let needed = there < self.store.quorum().majority();
        for node in missing {
            self.request_connection(round, node, &bytes, needed);
        }
    }

    fn send_to(
        &mut self,
        round: &mut QuorumRound,
        node: usize,
        mut connection: BlockingConnection,
        bytes: &[u8],
        form: CommandForm,
        reused: bool,
    ) {
        let place = &self.store.nodes[node];
        loop {
            place.context.store_state.count_command();
            let sent_at = clock::now();
            let until = self.store.limit(sent_at, self.deadline.until);
            match connection.send(bytes, sent_at, Deadline { until, ..self.deadline }) {
                Ok(()) => {
                    round.sending(node, connection.socket.number);
                    self.nodes[node] = NodeState::InFlight(InFlightRequest { connection, sent_at, until, form });
                    return;
                }
                Err(outcome) => {
                    place.threads.pool.discard(connection);
                    // closed by the server while it was idle: no byte was sent, so another connection can be used
                    if reused && matches!(outcome, Outcome::NotApplied(_)) {
                        match place.threads.pool.get_idle(sent_at) {
                            Some(other) => {
                                connection = other;
                                continue;
                            }
                            None => return self.request_connection(round, node, bytes, true),
                        }
                    }
                    return self.answered(round, node, sent_at, outcome);
                }
            }
        }
    }

    /// Requests a connection, unless an attempt failed a moment ago and the others suffice.
    fn request_connection(&mut self, round: &mut QuorumRound, node: usize, bytes: &[u8], needed: bool) {
        let now = clock::now();
        let until = self.store.limit(now, self.deadline.until);
        match self.store.connectors.get(node).request(needed, until, &self.connected.0) {
            Ok(ticket) => {
                self.nodes[node] =
                    NodeState::Connecting(PendingConnect { bytes: bytes.to_vec(), until, _ticket: ticket });
            }
            Err(failure) => self.answered(round, node, now, Outcome::NotApplied(failure)),
        }
    }

    /// Waits until something happens or `wake` has come. False when there is nothing to wait for.
    fn wait(&mut self, round: &mut QuorumRound, now: Time, wake: Time) -> bool {
        let mut limit = wake.min(now + if self.is_connecting() { CONNECT_POLL_INTERVAL } else { POLL_INTERVAL });
        let mut waits = false;
        for state in &self.nodes {
            let until = match state {
                NodeState::Idle(_) => continue,
                NodeState::Connecting(PendingConnect { until, .. })
                | NodeState::InFlight(InFlightRequest { until, .. }) => *until,
            };
            waits = true;
            limit = limit.min(until);
        }
        if !waits {
            return false;
        }
        let mut next = if self.has_in_flight() {
            for node in self.ready(limit.since(now)) {
                self.read_reply(round, node);
            }
            self.connected.1.try_recv().ok()
        } else {
            self.connected.1.recv_timeout(limit.since(now)).ok()
        };
        while let Some((node, connection)) = next {
            self.on_connected(round, node, connection);
            next = self.connected.1.try_recv().ok();
        }
        self.use_idle_connections(round);
        self.expire(round);
        true
    }

    /// The nodes whose connection is readable, at once or within `limit`.
    #[cfg(unix)]
    fn ready(&self, limit: Duration) -> Vec<usize> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let flying: Vec<(usize, _)> = self
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(node, state)| match state {
                NodeState::InFlight(flight) => Some((node, flight.connection.socket.stream.socket())),
                _ => None,
            })
            .collect();
        let mut fds: Vec<PollFd<'_>> = flying.iter().map(|(_, socket)| PollFd::new(&**socket, PollFlags::IN)).collect();
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        if poll(&mut fds, Some(&limit)).is_err() {
            return Vec::new();
        }
        let heard = fds.iter().map(|fd| !fd.revents().is_empty());
        flying.iter().zip(heard).filter(|(_, heard)| *heard).map(|((node, _), _)| *node).collect()
    }

    /// All nodes in flight: a read blocks for a moment only.
    #[cfg(not(unix))]
    fn ready(&self, limit: Duration) -> Vec<usize> {
        let flying = |(_, state): &(usize, &NodeState)| matches!(state, Seat::Flying(_));
        let _ = limit;
        self.nodes.iter().enumerate().filter(flying).map(|(node, _)| node).collect()
    }

    fn read_reply(&mut self, round: &mut QuorumRound, node: usize) {
        let NodeState::InFlight(mut flight) = std::mem::replace(&mut self.nodes[node], NodeState::Idle(None)) else {
            return;
        };
        match flight.connection.try_recv() {
            None => self.nodes[node] = NodeState::InFlight(flight),
            Some(Outcome::Applied(value))
                if flight.form == CommandForm::Sha && server_error::is_unknown_script(&value) =>
            {
                let bytes = request::command(&self.op, CommandForm::Text, Announce::Timed).get_packed_command();
                self.send_to(round, node, flight.connection, &bytes, CommandForm::Text, false);
            }
            Some(outcome) => {
                let place = self.store.nodes[node].clone();
                let answer = read(&place, &self.op, flight.sent_at, outcome);
                let fine = is_worth_keeping(&answer.outcome) && flight.connection.is_reusable();
                if fine {
                    self.nodes[node] = NodeState::Idle(Some(flight.connection));
                } else {
                    place.threads.pool.discard(flight.connection);
                }
                self.deliver(round, node, &answer);
            }
        }
    }

    /// A connection that was put back into the pool is as good as a new one.
    fn use_idle_connections(&mut self, round: &mut QuorumRound) {
        for node in 0..self.nodes.len() {
            if matches!(self.nodes[node], NodeState::Connecting(_))
                && let Some(connection) = self.store.nodes[node].threads.pool.get_idle(clock::now())
                && let NodeState::Connecting(pending) = std::mem::replace(&mut self.nodes[node], NodeState::Idle(None))
            {
                self.send_to(round, node, connection, &pending.bytes, CommandForm::Sha, true);
            }
        }
    }

    fn on_connected(&mut self, round: &mut QuorumRound, node: usize, connection: Result<BlockingConnection, Failure>) {
        let pending = std::mem::replace(&mut self.nodes[node], NodeState::Idle(None));
        match (connection, pending) {
            (Ok(connection), NodeState::Connecting(pending)) => {
                self.send_to(round, node, connection, &pending.bytes, CommandForm::Sha, false);
            }
            (Ok(connection), other) => {
                self.nodes[node] = other;
                self.store.nodes[node].threads.pool.put(connection, clock::now());
            }
            (Err(failure), NodeState::Connecting(_)) => {
                self.answered(round, node, clock::now(), Outcome::NotApplied(failure));
            }
            (Err(_), other) => self.nodes[node] = other,
        }
    }

    /// Fails the nodes whose time is up.
    fn expire(&mut self, round: &mut QuorumRound) {
        let now = clock::now();
        for node in 0..self.nodes.len() {
            let over = match &self.nodes[node] {
                NodeState::Idle(_) => false,
                NodeState::Connecting(pending) => now >= pending.until,
                NodeState::InFlight(flight) => now >= flight.until,
            };
            if !over {
                continue;
            }
            match std::mem::replace(&mut self.nodes[node], NodeState::Idle(None)) {
                NodeState::Idle(_) => {}
                NodeState::Connecting(_) => {
                    let failure = no_connection_in_time(&self.store.nodes[node].context.name);
                    self.answered(round, node, now, Outcome::NotApplied(failure));
                }
                NodeState::InFlight(flight) => {
                    let failure = flight.connection.no_reply_failure();
                    self.store.nodes[node].threads.pool.discard(flight.connection);
                    self.answered(round, node, flight.sent_at, Outcome::Indeterminate(failure));
                }
            }
        }
    }

    fn answered(&mut self, round: &mut QuorumRound, node: usize, sent_at: Time, outcome: Outcome<Value>) {
        let answer = read(&self.store.nodes[node], &self.op, sent_at, outcome);
        self.deliver(round, node, &answer);
    }

    fn deliver(&mut self, round: &mut QuorumRound, node: usize, answer: &Answer) {
        let more = round.answered(&mut self.store.quorum(), answer.received_at, node, answer);
        if let Some(request) = more {
            self.send_all(round, request);
        }
    }

    /// Puts the connections back; outstanding replies are skipped by their next users. Nodes that were sent nothing
    /// need no cleanup.
    fn finish(mut self, round: &mut QuorumRound) {
        let now = clock::now();
        for node in 0..self.nodes.len() {
            if matches!(self.nodes[node], NodeState::Connecting(_)) {
                self.nodes[node] = NodeState::Idle(None);
                let answer = not_sent(now, no_connection_in_time(&self.store.nodes[node].context.name)).answer;
                round.answered(&mut self.store.quorum(), now, node, &answer);
            }
        }
        for (node, state) in self.nodes.into_iter().enumerate() {
            let pool = &self.store.nodes[node].threads.pool;
            match state {
                NodeState::Idle(Some(connection)) => pool.put(connection, now),
                NodeState::InFlight(InFlightRequest { mut connection, .. }) => {
                    connection.abandon();
                    pool.put(connection, now);
                }
                NodeState::Idle(None) | NodeState::Connecting(_) => {}
            }
        }
        while let Ok((node, Ok(connection))) = self.connected.1.try_recv() {
            self.store.nodes[node].threads.pool.put(connection, now);
        }
    }
}

/// The answer that a raw reply means, with the time at which it was read.
fn read(node: &Node, op: &Op, sent_at: Time, outcome: Outcome<Value>) -> Answer {
    let now = clock::now();
    match outcome {
        Outcome::NotApplied(failure) => not_sent(now, failure).answer,
        outcome => node.read(op, RawExchange { sent_at, connection: 0, outcome, confirmations: None }, now).answer,
    }
}
