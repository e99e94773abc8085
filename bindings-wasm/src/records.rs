//! Messages for JavaScript: a record of four numbers, and a payload where numbers are not enough.

use onelock::{CredentialsRequest, Diagnosis, Facts, Inspection, Lease, LockPage, LossReason, Permits, Release};

use crate::bridge::State;
use crate::data::{Failure, diagnosis, facts, inspection, loss_code, page, release_code};
use crate::json::Json;

/// How many numbers a record has: subject, code, two values. `bindings-node/ts/codes.ts` reads them.
pub(crate) const RECORD: usize = 4;

/// The result of a call.
pub(crate) enum Outcome {
    Granted(Lease),
    /// `null`: the lock is busy, or not held.
    Nothing,
    Done,
    Permits(Permits),
    Flag(bool),
    Released {
        outcome: Release,
        loss: Option<LossReason>,
    },
    Inspected(Box<Inspection>),
    Listed(LockPage),
    Checked(Facts),
    Diagnosed(Diagnosis),
    Failed(Box<Failure>),
}

/// A message.
pub(crate) enum Message {
    Outcome {
        call: u32,
        outcome: Outcome,
    },
    Lost {
        lease: u64,
        reason: LossReason,
    },
    Jeopardy {
        lease: u64,
    },
    LogLine {
        level: u32,
        text: String,
    },
    CredentialsWanted {
        provider: u32,
        request: CredentialsRequest,
    },
    /// No connection will ask this provider again.
    ProviderDropped {
        provider: u32,
    },
}

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
                    self.gone.extend(self.leases.remove(&lease));
                }
                (code::RELEASED, f64::from(release_code(outcome)), f64::from(loss_code(loss)))
            }
            Outcome::Inspected(seen) => self.payload(call, inspection(*seen), code::INSPECTED),
            Outcome::Listed(found) => self.payload(call, page(found), code::LISTED),
            Outcome::Checked(found) => self.payload(call, facts(&found), code::CHECKED),
            Outcome::Diagnosed(found) => self.payload(call, diagnosis(found), code::DIAGNOSED),
            Outcome::Failed(failure) => self.payload(call, failure.json(), code::FAILED),
        };
        Some([f64::from(call), f64::from(code), first, second])
    }

    fn payload(&mut self, call: u32, payload: Json, code: u32) -> (u32, f64, f64) {
        self.payloads.insert(call, payload.into_bytes());
        (code, 0.0, 0.0)
    }
}
