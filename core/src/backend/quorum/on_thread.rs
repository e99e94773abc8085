//! A blocking caller drives a connection to each server itself: it writes to all of them, and then reads. Only a server to
//! which there is no connection yet is waited for by another thread.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use redis::Value;

use super::Inner;
use super::late::Underway;
use super::openers::{Opened, Ticket};
use crate::backend::Interrupt;
use crate::backend::redis::line::{Line, Patience};
use crate::backend::redis::node::{Exchange, Node, is_worth_keeping, not_sent};
use crate::backend::redis::refusal;
use crate::backend::redis::request::{self, Announce, Form};
use crate::backend::redis::socket::no_connection_in_time;
use crate::driver::clock;
use crate::machine::quorum::{Rest, Round, Send as Request};
use crate::machine::{Answer, Failure, Op, Outcome, Time};

/// A caller looks up this often while it waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The same while a connection is being made by another thread.
const LOOK_FOR_LINES: Duration = Duration::from_millis(1);
/// One node during one call.
enum Seat {
    /// Nothing is asked of it at present; its connection, if the call has one already.
    Idle(Option<Line>),
    /// A connection is being made, unless another one comes free first.
    Opening(Opening),
    Flying(Flight),
}

struct Opening {
    bytes: Vec<u8>,
    until: Time,
    _ticket: Ticket,
}

struct Flight {
    line: Line,
    sent_at: Time,
    until: Time,
    form: Form,
}

/// One call under way.
struct Crossing<'a> {
    store: &'a Inner,
    patience: Patience<'a>,
    /// What is asked at present, of all nodes alike.
    op: Op,
    seats: Vec<Seat>,
    opened: (Sender<Opened>, Receiver<Opened>),
    /// Until when new connections are waited for though nothing depends on them.
    bonus: Option<Time>,
}

/// One operation on all nodes, from a thread.
pub(super) fn call(store: &Arc<Inner>, op: &Op, until: Time, interrupt: &dyn Interrupt) -> (Answer, Underway) {
    let begun = clock::now();
    let (round, request) = store.quorum().begin(begun, clock::wall_us(), op);
    let mut call = Underway { store: store.clone(), round };
    let round = &mut call.round;
    let mut crossing = Crossing {
        store,
        patience: Patience { until, interrupt },
        op: request.op.clone(),
        seats: store.nodes.iter().map(|_| Seat::Idle(None)).collect(),
        opened: mpsc::channel(),
        bonus: None,
    };
    crossing.launch(round, request);
    loop {
        let rest = round.rest(&store.quorum());
        let now = clock::now();
        let wake = match rest {
            Rest::Over => match crossing.patience_with_new_lines(begun, now) {
                Some(moment) => moment,
                None => break,
            },
            Rest::Until(moment) => moment,
            Rest::Wait => Time::MAX,
        };
        if now >= wake || interrupt.interrupted() || !crossing.wait(round, now, wake) {
            break;
        }
    }
    crossing.end(round);
    let answer = round.conclude(&mut store.quorum(), clock::now());
    (answer, call)
}

impl Crossing<'_> {
    /// The lock is held by a majority, and connections to others are just being made: a hold on all nodes is worth as much
    /// time again as it took so far.
    fn patience_with_new_lines(&mut self, begun: Time, now: Time) -> Option<Time> {
        let (opening, flying) = (self.is_opening(), self.is_flying());
        if !matches!(self.op, Op::Vote { .. } | Op::Attach { .. }) || !(opening || (flying && self.bonus.is_some())) {
            return None;
        }
        let limit = self.store.limit(begun, self.patience.until);
        let moment = *self.bonus.get_or_insert((now + now.since(begun)).min(limit));
        (now < moment).then_some(moment)
    }

    fn is_opening(&self) -> bool {
        self.seats.iter().any(|seat| matches!(seat, Seat::Opening(_)))
    }

    fn is_flying(&self) -> bool {
        self.seats.iter().any(|seat| matches!(seat, Seat::Flying(_)))
    }

    /// Writes to all the nodes that are asked.
    fn launch(&mut self, round: &mut Round, request: Request) {
        self.op = request.op;
        let bytes = request::command(&self.op, Form::Sha, Announce::Timed).get_packed_command();
        let now = clock::now();
        let mut missing = Vec::new();
        for node in request.nodes.iter() {
            let line = match std::mem::replace(&mut self.seats[node], Seat::Idle(None)) {
                Seat::Idle(line) => line,
                busy => {
                    self.seats[node] = busy;
                    continue;
                }
            };
            let line = line.or_else(|| self.store.nodes[node].lines.pooled(now));
            match line {
                Some(line) => self.post(round, node, line, &bytes, Form::Sha, true),
                None => missing.push(node),
            }
        }
        let there = self.seats.iter().filter(|seat| matches!(seat, Seat::Flying(_))).count();
        let needed = there < self.store.quorum().majority();
        for node in missing {
            self.open(round, node, &bytes, needed);
        }
    }

    fn post(&mut self, round: &mut Round, node: usize, mut line: Line, bytes: &[u8], form: Form, reused: bool) {
        let place = &self.store.nodes[node];
        loop {
            place.shared.common.count_command();
            let sent_at = clock::now();
            let until = self.store.limit(sent_at, self.patience.until);
            match line.post(bytes, Patience { until, ..self.patience }) {
                Ok(()) => {
                    round.sending(node, line.number);
                    self.seats[node] = Seat::Flying(Flight { line, sent_at, until, form });
                    return;
                }
                Err(outcome) => {
                    place.lines.lose(line);
                    // closed by the server while it was idle: not a byte left, so another connection is as good
                    if reused && matches!(outcome, Outcome::NotApplied(_)) {
                        match place.lines.pooled(sent_at) {
                            Some(other) => {
                                line = other;
                                continue;
                            }
                            None => return self.open(round, node, bytes, true),
                        }
                    }
                    return self.answered(round, node, sent_at, outcome);
                }
            }
        }
    }

    /// Has a connection made, unless that failed a moment ago and the others will do.
    fn open(&mut self, round: &mut Round, node: usize, bytes: &[u8], needed: bool) {
        let now = clock::now();
        let until = self.store.limit(now, self.patience.until);
        match self.store.openers[node].ask(needed, until, &self.opened.0) {
            Ok(ticket) => {
                self.seats[node] = Seat::Opening(Opening { bytes: bytes.to_vec(), until, _ticket: ticket });
            }
            Err(failure) => self.answered(round, node, now, Outcome::NotApplied(failure)),
        }
    }

    /// Waits until something happens or `wake` has come. False when there is nothing to wait for.
    fn wait(&mut self, round: &mut Round, now: Time, wake: Time) -> bool {
        let mut limit = wake.min(now + if self.is_opening() { LOOK_FOR_LINES } else { LOOK_EVERY });
        let mut waits = false;
        for seat in &self.seats {
            let until = match seat {
                Seat::Idle(_) => continue,
                Seat::Opening(Opening { until, .. }) | Seat::Flying(Flight { until, .. }) => *until,
            };
            waits = true;
            limit = limit.min(until);
        }
        if !waits {
            return false;
        }
        let mut next = if self.is_flying() {
            for node in self.ready(limit.since(now)) {
                self.collect(round, node);
            }
            self.opened.1.try_recv().ok()
        } else {
            self.opened.1.recv_timeout(limit.since(now)).ok()
        };
        while let Some((node, line)) = next {
            self.line_came(round, node, line);
            next = self.opened.1.try_recv().ok();
        }
        self.take_free_lines(round);
        self.expire(round);
        true
    }

    /// The nodes whose connection has something to read, at once or after a while.
    #[cfg(unix)]
    fn ready(&self, limit: Duration) -> Vec<usize> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let flying: Vec<(usize, _)> = self
            .seats
            .iter()
            .enumerate()
            .filter_map(|(node, seat)| match seat {
                Seat::Flying(flight) => Some((node, flight.line.wire().socket())),
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

    /// Every node in turn: a read blocks for a moment only.
    #[cfg(not(unix))]
    fn ready(&self, limit: Duration) -> Vec<usize> {
        let flying = |(_, seat): &(usize, &Seat)| matches!(seat, Seat::Flying(_));
        let _ = limit;
        self.seats.iter().enumerate().filter(flying).map(|(node, _)| node).collect()
    }

    fn collect(&mut self, round: &mut Round, node: usize) {
        let Seat::Flying(mut flight) = std::mem::replace(&mut self.seats[node], Seat::Idle(None)) else { return };
        match flight.line.collect() {
            None => self.seats[node] = Seat::Flying(flight),
            Some(Outcome::Applied(value)) if flight.form == Form::Sha && refusal::is_unknown_script(&value) => {
                let bytes = request::command(&self.op, Form::Text, Announce::Timed).get_packed_command();
                self.post(round, node, flight.line, &bytes, Form::Text, false);
            }
            Some(outcome) => {
                let place = self.store.nodes[node].clone();
                let told = read(&place, &self.op, flight.sent_at, outcome);
                let fine = is_worth_keeping(&told.outcome) && !flight.line.is_spoilt();
                if fine {
                    self.seats[node] = Seat::Idle(Some(flight.line));
                } else {
                    place.lines.lose(flight.line);
                }
                self.told(round, node, &told);
            }
        }
    }

    /// A connection that somebody gave back is as good as a new one.
    fn take_free_lines(&mut self, round: &mut Round) {
        for node in 0..self.seats.len() {
            if matches!(self.seats[node], Seat::Opening(_))
                && let Some(line) = self.store.nodes[node].lines.pooled(clock::now())
                && let Seat::Opening(waiting) = std::mem::replace(&mut self.seats[node], Seat::Idle(None))
            {
                self.post(round, node, line, &waiting.bytes, Form::Sha, true);
            }
        }
    }

    fn line_came(&mut self, round: &mut Round, node: usize, line: Result<Line, Failure>) {
        let waiting = std::mem::replace(&mut self.seats[node], Seat::Idle(None));
        match (line, waiting) {
            (Ok(line), Seat::Opening(waiting)) => self.post(round, node, line, &waiting.bytes, Form::Sha, false),
            (Ok(line), other) => {
                self.seats[node] = other;
                self.store.nodes[node].lines.give(line, clock::now());
            }
            (Err(failure), Seat::Opening(_)) => {
                self.answered(round, node, clock::now(), Outcome::NotApplied(failure));
            }
            (Err(_), other) => self.seats[node] = other,
        }
    }

    /// Those whose time is up.
    fn expire(&mut self, round: &mut Round) {
        let now = clock::now();
        for node in 0..self.seats.len() {
            let over = match &self.seats[node] {
                Seat::Idle(_) => false,
                Seat::Opening(waiting) => now >= waiting.until,
                Seat::Flying(flight) => now >= flight.until,
            };
            if !over {
                continue;
            }
            match std::mem::replace(&mut self.seats[node], Seat::Idle(None)) {
                Seat::Idle(_) => {}
                Seat::Opening(_) => {
                    let failure = no_connection_in_time(&self.store.nodes[node].shared.name);
                    self.answered(round, node, now, Outcome::NotApplied(failure));
                }
                Seat::Flying(flight) => {
                    let failure = flight.line.silence();
                    self.store.nodes[node].lines.lose(flight.line);
                    self.answered(round, node, flight.sent_at, Outcome::Indeterminate(failure));
                }
            }
        }
    }

    fn answered(&mut self, round: &mut Round, node: usize, sent_at: Time, outcome: Outcome<Value>) {
        let told = read(&self.store.nodes[node], &self.op, sent_at, outcome);
        self.told(round, node, &told);
    }

    fn told(&mut self, round: &mut Round, node: usize, answer: &Answer) {
        let more = round.answered(&mut self.store.quorum(), answer.received_at, node, answer);
        if let Some(request) = more {
            self.launch(round, request);
        }
    }

    /// Gives the connections back; replies that are still to come are passed over by whoever uses them next. Who was sent
    /// nothing owes nothing.
    fn end(mut self, round: &mut Round) {
        let now = clock::now();
        for node in 0..self.seats.len() {
            if matches!(self.seats[node], Seat::Opening(_)) {
                self.seats[node] = Seat::Idle(None);
                let told = not_sent(now, no_connection_in_time(&self.store.nodes[node].shared.name)).answer;
                round.answered(&mut self.store.quorum(), now, node, &told);
            }
        }
        for (node, seat) in self.seats.into_iter().enumerate() {
            let lines = &self.store.nodes[node].lines;
            match seat {
                Seat::Idle(Some(line)) => lines.give(line, now),
                Seat::Flying(Flight { mut line, .. }) => {
                    line.owe();
                    lines.give(line, now);
                }
                Seat::Idle(None) | Seat::Opening(_) => {}
            }
        }
        while let Ok((node, Ok(line))) = self.opened.1.try_recv() {
            self.store.nodes[node].lines.give(line, now);
        }
    }
}

/// What a raw reply says, with the time at which it was seen.
fn read(node: &Node, op: &Op, sent_at: Time, outcome: Outcome<Value>) -> Answer {
    let now = clock::now();
    match outcome {
        Outcome::NotApplied(failure) => not_sent(now, failure).answer,
        outcome => node.read(op, Exchange { sent_at, connection: 0, outcome, confirmations: None }, now).answer,
    }
}
