//! One direction of a connection: what waits in it, and in which order and when it goes out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::expect::Expected;
use super::rule::{Cut, Data, Gate};

/// The two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToServer,
    ToClient,
}

/// Bytes on their way, and what happens around their delivery.
pub(super) struct Parcel {
    pub(super) bytes: Vec<u8>,
    /// Not before this.
    pub(super) due: Instant,
    /// Not before this rule lets it go.
    pub(super) gate: Option<Arc<Data>>,
    /// The request it belongs to, as a place in the log.
    pub(super) record: Option<usize>,
    /// What the server will answer to it.
    pub(super) expects: Vec<Expected>,
    /// Then the client is cut off, which fulfils the rule.
    pub(super) then_cut: Option<(Cut, Arc<Data>)>,
}

impl Parcel {
    pub(super) fn new(bytes: Vec<u8>, due: Instant, record: Option<usize>) -> Self {
        Self { bytes, due, gate: None, record, expects: Vec::new(), then_cut: None }
    }
}

/// What a lane's writer has to do next.
pub(super) enum Next {
    Send(Parcel),
    /// Nothing before this instant, or before something changes.
    Wait(Option<Instant>),
    /// What was held is lost, and these with it.
    Lost(Vec<Parcel>),
    End,
}

#[derive(Default)]
pub(super) struct Lane {
    queue: VecDeque<Parcel>,
    /// Nothing will be added; the writer ends when it has sent the rest.
    pub(super) finished: bool,
    /// The writer ends at once.
    pub(super) dead: bool,
}

impl Lane {
    /// Adds a parcel. It cannot overtake, whenever it is due: a stream keeps its order.
    pub(super) fn push(&mut self, parcel: Parcel) {
        self.queue.push_back(parcel);
    }

    pub(super) fn next(&mut self, paused: bool) -> Next {
        if self.dead {
            return Next::End;
        }
        let Some(first) = self.queue.front() else {
            return if self.finished { Next::End } else { Next::Wait(None) };
        };
        match first.gate.as_ref().map(|rule| rule.gate()) {
            Some(Gate::Shut) => return Next::Wait(None),
            Some(Gate::Discard) => return Next::Lost(self.queue.drain(..).collect()),
            Some(Gate::Open) | None => {}
        }
        if paused {
            return Next::Wait(None);
        }
        if first.due > Instant::now() {
            return Next::Wait(Some(first.due));
        }
        self.queue.pop_front().map_or(Next::End, Next::Send)
    }

    /// Ends the writer at once; returns what was not sent.
    pub(super) fn kill(&mut self) -> Vec<Parcel> {
        self.dead = true;
        self.queue.drain(..).collect()
    }
}
