//! A few threads per server that make the connections of all blocking calls. A waiting call watches its deadline
//! itself.

use std::collections::VecDeque;
use std::sync::mpsc::{SendError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use super::lock;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::Uninterrupted;
use crate::store::redis::connection::blocking::connection::BlockingConnection;
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::connection::socket::{no_connection_in_time, no_thread};
use crate::store::redis::node::Node;
use crate::sys::clock;

/// At most so many connections to one server are being made at a time.
const MAX_THREADS: usize = 4;
/// After a failed attempt, callers that do not need this server make no attempt for this long; each further failure
/// doubles it …
const PAUSE: Duration = Duration::from_millis(20);
/// … up to this.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A connection to the server of this number, or why there is none.
pub(crate) type ConnectResult = (usize, Result<BlockingConnection, Failure>);

/// Keeps a request for a connection alive until it is dropped.
pub(crate) type ConnectTicket = Arc<()>;

struct ConnectWaiter {
    until: Time,
    ticket: Weak<()>,
    sender: Sender<ConnectResult>,
}

/// One connector for each server.
pub(crate) struct Connectors(Vec<Arc<Connector>>);

impl Connectors {
    /// Those of these servers.
    pub(crate) fn of(nodes: &[Arc<Node>]) -> Connectors {
        let connector = |(number, node): (usize, &Arc<Node>)| Arc::new(Connector::new(number, node.clone()));
        Connectors(nodes.iter().enumerate().map(connector).collect())
    }

    /// That of the server of this number.
    pub(crate) fn get(&self, node: usize) -> &Arc<Connector> {
        &self.0[node]
    }
}

/// Makes the connections to one server.
pub(crate) struct Connector {
    number: usize,
    node: Arc<Node>,
    state: Mutex<ConnectorState>,
}

#[derive(Default)]
struct ConnectorState {
    failures: u32,
    not_before: Time,
    last: Option<Failure>,
    threads: usize,
    waiters: VecDeque<ConnectWaiter>,
}

impl Connector {
    pub(crate) fn new(number: usize, node: Arc<Node>) -> Connector {
        Connector { number, node, state: Mutex::default() }
    }

    /// Requests a connection by `until`, which arrives on `sender`. A caller that does not need it gets a failure at
    /// once when the last attempt failed a moment ago, or when others wait already.
    pub(crate) fn request(
        self: &Arc<Connector>,
        needed: bool,
        until: Time,
        sender: &Sender<ConnectResult>,
    ) -> Result<ConnectTicket, Failure> {
        let mut state = lock(&self.state);
        if !needed {
            match &state.last {
                Some(failure) if clock::now() < state.not_before => return Err(failure.clone()),
                _ if state.threads >= MAX_THREADS => return Err(no_connection_in_time(&self.node.context.name)),
                _ => {}
            }
        }
        if state.threads < MAX_THREADS {
            let connector = self.clone();
            match thread::Builder::new().name("onelock-connect".to_owned()).spawn(move || connector.run()) {
                Ok(_) => state.threads += 1,
                // the existing threads serve it
                Err(_) if state.threads > 0 => {}
                Err(error) => {
                    let detail = format!("{}: {}", self.node.context.name, no_thread(&error));
                    return Err(Failure::transient(ErrorKind::SystemLimit, detail));
                }
            }
        }
        let ticket = ConnectTicket::default();
        state.waiters.push_back(ConnectWaiter { until, ticket: Arc::downgrade(&ticket), sender: sender.clone() });
        Ok(ticket)
    }

    /// Makes one connection after the other, until no request waits.
    fn run(&self) {
        while let Some(waiter) = self.next(true) {
            let until = clock::now() + self.node.context.options.connect_timeout;
            let result = self.node.threads.pool.open(Deadline { until, interrupt: &Uninterrupted });
            lock(&self.state).record(&result);
            self.deliver(waiter, result);
        }
    }

    /// The next request; `None` when there is none, which ends the thread.
    fn next(&self, ends: bool) -> Option<ConnectWaiter> {
        let mut state = lock(&self.state);
        let now = clock::now();
        while let Some(waiter) = state.waiters.pop_front() {
            if now < waiter.until && waiter.ticket.strong_count() > 0 {
                return Some(waiter);
            }
        }
        state.threads -= usize::from(ends);
        None
    }

    fn deliver(&self, first: ConnectWaiter, result: Result<BlockingConnection, Failure>) {
        let mut next = Some(first);
        let mut left = (self.number, result);
        while let Some(waiter) = next {
            match waiter.sender.send(left) {
                Ok(()) => return,
                // it has gone: for the next one
                Err(SendError(back)) => left = back,
            }
            next = if left.1.is_ok() { self.next(false) } else { None };
        }
        if let Ok(connection) = left.1 {
            self.node.threads.pool.put(connection, clock::now());
        }
    }
}

impl ConnectorState {
    /// Records one more attempt.
    fn record(&mut self, result: &Result<BlockingConnection, Failure>) {
        match result {
            Ok(_) => (self.failures, self.not_before, self.last) = (0, Time::ZERO, None),
            Err(failure) => {
                let pause = PAUSE.saturating_mul(1 << self.failures.min(8)).min(PAUSE_MAX);
                self.failures += 1;
                self.not_before = clock::now() + pause;
                self.last = Some(failure.clone());
            }
        }
    }
}
