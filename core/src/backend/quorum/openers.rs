//! Connections for calls from threads are made by a few other threads, however many calls wait for one. A call that waits
//! watches the clock itself.

use std::collections::VecDeque;
use std::sync::mpsc::{SendError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use super::lock;
use crate::backend::Uninterrupted;
use crate::backend::redis::line::{Line, Patience};
use crate::backend::redis::node::Node;
use crate::backend::redis::socket::{no_connection_in_time, no_thread};
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};

/// So many connections to one server are being made at a time at most.
const MAKERS: usize = 4;
/// After a server could not be connected to, nobody who can do without it tries for this long; each further failure
/// doubles it …
const PAUSE: Duration = Duration::from_millis(20);
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection to the server of this number, or why there is none.
pub(super) type Opened = (usize, Result<Line, Failure>);

/// Who has it waits for a connection, as long as it is not dropped.
pub(super) type Ticket = Arc<()>;

struct Waiter {
    until: Time,
    ticket: Weak<()>,
    sender: Sender<Opened>,
}

/// Makes the connections to one server.
pub(super) struct Opener {
    number: usize,
    node: Arc<Node>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    failures: u32,
    not_before: Time,
    last: Option<Failure>,
    makers: usize,
    waiting: VecDeque<Waiter>,
}

impl Opener {
    pub(super) fn new(number: usize, node: Arc<Node>) -> Opener {
        Opener { number, node, state: Mutex::default() }
    }

    /// Asks for a connection by `until`, which comes by `sender`. Whoever can do without is refused at once when the last
    /// attempt failed a moment ago, or when others wait already.
    pub(super) fn ask(
        self: &Arc<Opener>,
        needed: bool,
        until: Time,
        sender: &Sender<Opened>,
    ) -> Result<Ticket, Failure> {
        let mut state = lock(&self.state);
        if !needed {
            match &state.last {
                Some(failure) if clock::now() < state.not_before => return Err(failure.clone()),
                _ if state.makers >= MAKERS => return Err(no_connection_in_time(&self.node.shared.name)),
                _ => {}
            }
        }
        if state.makers < MAKERS {
            let opener = self.clone();
            match thread::Builder::new().name("onelock-connect".to_owned()).spawn(move || opener.make()) {
                Ok(_) => state.makers += 1,
                // those that there are get to it
                Err(_) if state.makers > 0 => {}
                Err(error) => {
                    let detail = format!("{}: {}", self.node.shared.name, no_thread(&error));
                    return Err(Failure::transient(ErrorKind::SystemLimit, detail));
                }
            }
        }
        let ticket = Ticket::default();
        state.waiting.push_back(Waiter { until, ticket: Arc::downgrade(&ticket), sender: sender.clone() });
        Ok(ticket)
    }

    /// One after the other, until nobody waits.
    fn make(&self) {
        while let Some(waiter) = self.next(true) {
            let until = clock::now() + self.node.shared.options.connect_timeout;
            let made = self.node.lines.open(Patience { until, interrupt: &Uninterrupted });
            lock(&self.state).ended(&made);
            self.deliver(waiter, made);
        }
    }

    /// Who waits next; `None` when nobody does, which is the end of a maker.
    fn next(&self, ends: bool) -> Option<Waiter> {
        let mut state = lock(&self.state);
        let now = clock::now();
        while let Some(waiter) = state.waiting.pop_front() {
            if now < waiter.until && waiter.ticket.strong_count() > 0 {
                return Some(waiter);
            }
        }
        state.makers -= usize::from(ends);
        None
    }

    fn deliver(&self, first: Waiter, made: Result<Line, Failure>) {
        let mut next = Some(first);
        let mut left = (self.number, made);
        while let Some(waiter) = next {
            match waiter.sender.send(left) {
                Ok(()) => return,
                // it has gone: for whoever is next
                Err(SendError(back)) => left = back,
            }
            next = if left.1.is_ok() { self.next(false) } else { None };
        }
        if let Ok(line) = left.1 {
            self.node.lines.give(line, clock::now());
        }
    }
}

impl State {
    /// What came of one more attempt.
    fn ended(&mut self, made: &Result<Line, Failure>) {
        match made {
            Ok(_) => (self.failures, self.not_before, self.last) = (0, Time::ZERO, None),
            Err(failure) => {
                let pause = PAUSE.saturating_mul(1 << self.failures.min(8)).min(LONGEST_PAUSE);
                self.failures += 1;
                self.not_before = clock::now() + pause;
                self.last = Some(failure.clone());
            }
        }
    }
}
