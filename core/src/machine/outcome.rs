//! The three outcomes of a request, and why it failed. Never treat the third as one of the others.

use crate::error::ErrorKind;
use crate::machine::Time;
use crate::machine::op::Reply;

/// How one request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The server answered on the request's own connection.
    Applied(T),
    /// The server refused before its first write, or no byte left this process. Nothing happened.
    NotApplied(Failure),
    /// Bytes may have left and no usable reply came. It may have happened, or may still happen later.
    Indeterminate(Failure),
}

impl<T> Outcome<T> {
    /// The failure, unless the request was applied.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Applied(_) => None,
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => Some(failure),
        }
    }
}

/// Why a request was not applied, or not known to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The row of the error table that the caller will see if nothing better happens.
    pub kind: ErrorKind,
    /// Whether the same request may succeed soon without any change (server away, loading, busy).
    pub transient: bool,
    /// One sentence for people: what the server or the network said. Never holds a secret.
    pub detail: String,
    /// What each node of a store with several reported; otherwise empty.
    pub nodes: Vec<String>,
}

impl Failure {
    /// A failure that may pass by itself.
    pub fn transient(kind: ErrorKind, detail: impl Into<String>) -> Failure {
        Failure { kind, transient: true, detail: detail.into(), nodes: Vec::new() }
    }

    /// A failure that lasts until somebody changes something.
    pub fn lasting(kind: ErrorKind, detail: impl Into<String>) -> Failure {
        Failure { kind, transient: false, detail: detail.into(), nodes: Vec::new() }
    }
}

/// A finished request: what came of it, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Read just before the request was handed to the connection. Deadlines count from here.
    pub sent_at: Time,
    /// Read when the reply (or the failure) was seen.
    pub received_at: Time,
    /// Which connection carried it. Two requests with the same number were executed in the order they were sent;
    /// 0 promises nothing.
    pub connection: u64,
    /// The server's wall clock in microseconds, from the same reply.
    pub server_time_us: Option<u64>,
    /// What came of it.
    pub outcome: Outcome<Reply>,
}

/// Why a semaphore gives no permit, however long one waits.
pub(super) fn mismatch(total: u64, expected: Option<u32>, count: u16) -> Failure {
    let detail = match expected {
        _ if total == 0 => "no number of permits is set for this semaphore".to_owned(),
        Some(expected) if u64::from(expected) != total => {
            format!("this semaphore has {total} permits, and not {expected}; nothing was taken")
        }
        _ => {
            let detail = format!("{count} permits were asked for, and this semaphore has {total}");
            return Failure::lasting(ErrorKind::InvalidArgument, detail);
        }
    };
    Failure::lasting(ErrorKind::PermitsMismatch, detail)
}
