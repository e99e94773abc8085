//! Errors: the flat kinds of `tests/spec/errors.toml`, and what is known about one of them.

use std::fmt;

use onelock::Error;

use crate::words::{LossReason, mirror};

mirror! {
    /// What went wrong: the rows of the project's table of errors.
    ErrorKind of onelock::ErrorKind, else Internal {
        /// A single try was refused: somebody else holds the lock.
        Busy,
        /// The wait was used up while somebody else held the lock.
        Timeout,
        /// The caller stopped waiting.
        Cancelled,
        /// The lease ended without being released.
        Lost,
        /// The lease was released or detached before.
        NotHeld,
        /// No server could be reached in time.
        Unavailable,
        /// Too few of several independent servers answered in time.
        NoQuorum,
        /// User name or password were refused.
        AuthFailed,
        /// The user may not run a command or touch a key.
        NotPermitted,
        /// The server is a replica.
        ReadOnly,
        /// The server is up but refuses to write.
        ServerRefused,
        /// Another kind of lock, or something else, stands under the name.
        WrongKind,
        /// An argument was refused before any I/O.
        InvalidArgument,
        /// The store cannot do what was asked.
        Unsupported,
        /// The owner of a read lease asks for the write lock of the same name.
        WouldDeadlock,
        /// A semaphore has another number of permits than was said, or none is set.
        PermitsMismatch,
        /// The client was closed.
        Closed,
        /// The lease belongs to the parent process.
        Forked,
        /// The machine gave no thread, file descriptor or memory.
        SystemLimit,
        /// A defect of the library.
        Internal,
    }
}

/// An error, as the exceptions of Kotlin take it.
#[derive(Debug, uniffi::Error)]
pub enum NativeError {
    /// The only one.
    Failed {
        kind: ErrorKind,
        text: String,
        lock: Option<String>,
        tried: String,
        detail: String,
        causes: Vec<String>,
        reason: Option<LossReason>,
    },
}

impl NativeError {
    /// An error of the binding itself, worded like the core's.
    pub(crate) fn new(kind: onelock::ErrorKind, tried: &str, detail: impl Into<String>) -> NativeError {
        let detail = detail.into();
        NativeError::Failed {
            kind: kind.into(),
            text: format!("{tried}: {detail} ({}: {})", kind.name(), kind.todo()),
            lock: None,
            tried: tried.to_owned(),
            detail,
            causes: Vec::new(),
            reason: None,
        }
    }

    pub(crate) fn invalid(tried: &str, detail: impl Into<String>) -> NativeError {
        NativeError::new(onelock::ErrorKind::InvalidArgument, tried, detail)
    }

    /// The error of a lease that was lost while it was held.
    pub(crate) fn lost(name: &[u8], loss: onelock::LossReason) -> NativeError {
        let kind = onelock::ErrorKind::Lost;
        let lock = name.escape_ascii().to_string();
        let detail = format!("the lease was lost: {}", loss.explain());
        NativeError::Failed {
            kind: kind.into(),
            text: format!("hold \"{lock}\": {detail} ({}: {})", kind.name(), kind.todo()),
            lock: Some(lock),
            tried: "hold".to_owned(),
            detail,
            causes: Vec::new(),
            reason: Some(loss.into()),
        }
    }

    /// The same, of a lease that was lost for a reason.
    pub(crate) fn because_of_loss(self, loss: Option<onelock::LossReason>) -> NativeError {
        let NativeError::Failed { kind, text, lock, tried, detail, causes, .. } = self;
        NativeError::Failed { kind, text, lock, tried, detail, causes, reason: loss.map(LossReason::from) }
    }
}

impl From<Error> for NativeError {
    fn from(error: Error) -> NativeError {
        NativeError::Failed {
            kind: error.kind().into(),
            text: error.to_string(),
            lock: error.lock_name().map(str::to_owned),
            tried: error.tried().to_owned(),
            detail: error.detail().to_owned(),
            causes: error.causes().to_vec(),
            reason: None,
        }
    }
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NativeError::Failed { text, .. } = self;
        f.write_str(text)
    }
}

impl std::error::Error for NativeError {}

/// A row of the table of errors.
#[derive(Debug, uniffi::Record)]
pub struct ErrorRow {
    pub kind: ErrorKind,
    pub name: String,
    pub number: i32,
    pub not_acquired: bool,
    pub retryable: bool,
    pub todo: String,
}

/// The table of errors.
#[uniffi::export]
pub fn error_rows() -> Vec<ErrorRow> {
    onelock::ErrorKind::ALL
        .into_iter()
        .map(|kind| ErrorRow {
            kind: kind.into(),
            name: kind.name().to_owned(),
            number: kind.number() as i32,
            not_acquired: kind.is_not_acquired(),
            retryable: kind.is_retryable(),
            todo: kind.todo().to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kinds_are_the_rows_of_the_table() {
        let table: toml::Table = include_str!("../../tests/spec/errors.toml").parse().unwrap();
        let spec = table["error"].as_array().unwrap();
        let rows = error_rows();
        assert_eq!(rows.len(), spec.len());
        for (row, spec) in rows.iter().zip(spec) {
            let name = spec["kind"].as_str().unwrap();
            assert_eq!((row.name.as_str(), format!("{:?}", row.kind).as_str()), (name, name));
            assert_eq!(i64::from(row.number), spec["number"].as_integer().unwrap());
            assert_eq!(row.not_acquired, spec["not_acquired"].as_bool().unwrap());
            assert_eq!(row.retryable, spec["retryable"].as_bool().unwrap());
            assert_eq!(row.todo, spec["todo"].as_str().unwrap());
        }
    }
}
