//! What is kept for one thread of JavaScript, and how what has happened is written down for it: records of four numbers,
//! and parcels for what numbers cannot carry.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use onelock::event_loop::Task;
use onelock::{CredentialsRequest, Lease};

use crate::data::{Failure, Seen, ServerFacts, loss_code, release_code};
use crate::pump::{Message, Outcome};

/// Numbers that a record takes: what it is about, what it is, two values. `ts/codes.ts` reads them.
pub(crate) const RECORD: usize = 4;

/// The second number of a record.
mod code {
    pub(super) const GRANTED: u32 = 0;
    pub(super) const NOTHING: u32 = 1;
    pub(super) const DONE: u32 = 2;
    pub(super) const FLAG: u32 = 3;
    pub(super) const RELEASED: u32 = 4;
    pub(super) const INSPECTED: u32 = 5;
    pub(super) const CHECKED: u32 = 6;
    pub(super) const FAILED: u32 = 7;
    pub(super) const LOST: u32 = 8;
    pub(super) const JEOPARDY: u32 = 9;
    pub(super) const SAID: u32 = 10;
    pub(super) const ASKED: u32 = 11;
    pub(super) const UNASKED: u32 = 12;
}

/// An object that is fetched by itself.
pub(crate) enum Parcel {
    Failure(Box<Failure>),
    Seen(Seen),
    Facts(ServerFacts),
}

pub(crate) struct Call {
    pub(crate) task: Arc<Task>,
    /// The lease that is released, which is forgotten once it has been.
    pub(crate) releases: Option<u64>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) calls: HashMap<u32, Call>,
    pub(crate) leases: HashMap<u64, Arc<Lease>>,
    next_lease: u64,
    pub(crate) parcels: HashMap<u32, Parcel>,
    pub(crate) fetched: Vec<Message>,
    /// The texts of log lines, in the order of their records.
    pub(crate) said: VecDeque<String>,
    /// Questions for credentials that JavaScript has not answered yet.
    pub(crate) requests: HashMap<u32, CredentialsRequest>,
    last_request: u32,
}

impl State {
    /// The record of a message; `None` when nobody waits for it any more: what it brought is dropped.
    pub(crate) fn line(&mut self, message: Message) -> Option<[f64; RECORD]> {
        let (call, outcome) = match message {
            Message::Outcome { call, outcome } => (call, outcome),
            Message::Lost { lease, reason } => {
                return Some([lease as f64, f64::from(code::LOST), f64::from(loss_code(Some(reason))), 0.0]);
            }
            Message::Said { level, text } => {
                self.said.push_back(text);
                return Some([0.0, f64::from(code::SAID), f64::from(level), 0.0]);
            }
            Message::Asked { provider, request } => {
                self.last_request = self.last_request.wrapping_add(1);
                self.requests.insert(self.last_request, request);
                let request = f64::from(self.last_request);
                return Some([f64::from(provider), f64::from(code::ASKED), request, 0.0]);
            }
            Message::Unasked { provider } => {
                return Some([f64::from(provider), f64::from(code::UNASKED), 0.0, 0.0]);
            }
            Message::Jeopardy { lease } => return Some([lease as f64, f64::from(code::JEOPARDY), 0.0, 0.0]),
        };
        let ended = self.calls.remove(&call)?;
        let (code, first, second) = match outcome {
            Outcome::Granted(lease) => {
                let fence = lease.fencing_token().map_or(-1.0, |token| token as f64);
                (code::GRANTED, self.keep(lease), fence)
            }
            Outcome::Nothing => (code::NOTHING, 0.0, 0.0),
            Outcome::Done => (code::DONE, 0.0, 0.0),
            Outcome::Flag(flag) => (code::FLAG, f64::from(u8::from(flag)), 0.0),
            Outcome::Released { outcome, loss } => {
                if let Some(lease) = ended.releases {
                    self.leases.remove(&lease);
                }
                (code::RELEASED, f64::from(release_code(outcome)), f64::from(loss_code(loss)))
            }
            Outcome::Inspected(seen) => self.parcel(call, Parcel::Seen((*seen).into()), code::INSPECTED),
            Outcome::Checked(facts) => self.parcel(call, Parcel::Facts(facts.into()), code::CHECKED),
            Outcome::Failed(failure) => self.parcel(call, Parcel::Failure(failure), code::FAILED),
        };
        Some([f64::from(call), f64::from(code), first, second])
    }

    fn keep(&mut self, lease: Lease) -> f64 {
        self.next_lease += 1;
        self.leases.insert(self.next_lease, Arc::new(lease));
        self.next_lease as f64
    }

    fn parcel(&mut self, call: u32, parcel: Parcel, code: u32) -> (u32, f64, f64) {
        self.parcels.insert(call, parcel);
        (code, 0.0, 0.0)
    }
}
