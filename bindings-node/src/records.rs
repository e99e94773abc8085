//! The state of a bridge, and the encoding of messages: a record of four numbers, and a payload where numbers are not enough.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use onelock::event_loop::Task;
use onelock::{CredentialsRequest, Lease};

use crate::data::{Diagnosed, Failure, Inspected, Page, ServerFacts, loss_code, release_code};
use crate::pump::{Message, Outcome};

/// How many numbers a record has: subject, code, two values. `ts/codes.ts` reads them.
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
    pub(super) const LOG_LINE: u32 = 10;
    pub(super) const CREDENTIALS_WANTED: u32 = 11;
    pub(super) const PROVIDER_DROPPED: u32 = 12;
    pub(super) const LISTED: u32 = 13;
    pub(super) const PERMITS: u32 = 14;
    pub(super) const DIAGNOSED: u32 = 15;
}

/// An object that JavaScript takes by the number of its call.
pub(crate) enum Payload {
    Failure(Box<Failure>),
    Inspected(Inspected),
    Page(Page),
    Facts(ServerFacts),
    Diagnosed(Diagnosed),
}

pub(crate) struct Call {
    pub(crate) task: Arc<Task>,
    /// The lease that the call releases; it is dropped when the call has ended.
    pub(crate) releases: Option<u64>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) calls: HashMap<u32, Call>,
    pub(crate) leases: HashMap<u64, Arc<Lease>>,
    next_lease: u64,
    pub(crate) payloads: HashMap<u32, Payload>,
    pub(crate) fetched: Vec<Message>,
    /// The texts of log lines, in the order of their records.
    pub(crate) log_lines: VecDeque<String>,
    /// Requests for credentials that JavaScript has not answered yet.
    pub(crate) requests: HashMap<u32, CredentialsRequest>,
    last_request: u32,
}

impl State {
    /// Encodes a message; `None` when its call was cancelled: then the message is dropped.
    pub(crate) fn record(&mut self, message: Message) -> Option<[f64; RECORD]> {
        let (call, outcome) = match message {
            Message::Outcome { call, outcome } => (call, outcome),
            Message::Lost { lease, reason } => {
                return Some([lease as f64, f64::from(code::LOST), f64::from(loss_code(Some(reason))), 0.0]);
            }
            Message::LogLine { level, text } => {
                self.log_lines.push_back(text);
                return Some([0.0, f64::from(code::LOG_LINE), f64::from(level), 0.0]);
            }
            Message::CredentialsWanted { provider, request } => {
                self.last_request = self.last_request.wrapping_add(1);
                self.requests.insert(self.last_request, request);
                let request = f64::from(self.last_request);
                return Some([f64::from(provider), f64::from(code::CREDENTIALS_WANTED), request, 0.0]);
            }
            Message::ProviderDropped { provider } => {
                return Some([f64::from(provider), f64::from(code::PROVIDER_DROPPED), 0.0, 0.0]);
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
            Outcome::Permits(found) => (code::PERMITS, found.total as f64, found.held as f64),
            Outcome::Flag(flag) => (code::FLAG, f64::from(u8::from(flag)), 0.0),
            Outcome::Released { outcome, loss } => {
                if let Some(lease) = ended.releases {
                    self.leases.remove(&lease);
                }
                (code::RELEASED, f64::from(release_code(outcome)), f64::from(loss_code(loss)))
            }
            Outcome::Inspected(seen) => self.payload(call, Payload::Inspected((*seen).into()), code::INSPECTED),
            Outcome::Listed(page) => self.payload(call, Payload::Page(page.into()), code::LISTED),
            Outcome::Checked(facts) => self.payload(call, Payload::Facts(facts.into()), code::CHECKED),
            Outcome::Diagnosed(found) => self.payload(call, Payload::Diagnosed(found.into()), code::DIAGNOSED),
            Outcome::Failed(failure) => self.payload(call, Payload::Failure(failure), code::FAILED),
        };
        Some([f64::from(call), f64::from(code), first, second])
    }

    fn keep(&mut self, lease: Lease) -> f64 {
        self.next_lease += 1;
        self.leases.insert(self.next_lease, Arc::new(lease));
        self.next_lease as f64
    }

    fn payload(&mut self, call: u32, payload: Payload, code: u32) -> (u32, f64, f64) {
        self.payloads.insert(call, payload);
        (code, 0.0, 0.0)
    }
}
