//! Why a request was not applied, or not known to be.

use crate::error::ErrorKind;

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
