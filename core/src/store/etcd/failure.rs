//! What the server's errors mean: whether the request may have happened, and what to do about it.

use super::grpc::{CallError, code};
use crate::error::ErrorKind;
use crate::machine::Failure;

/// What the login of a connection is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginState {
    Valid,
    /// It has ended, or rights have changed since: nothing was done, and the next connection logs in anew.
    Outdated,
}

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallRefusal {
    /// Whether it certainly did nothing.
    pub(super) undone: bool,
    /// Whether the connection is of no more use.
    pub(super) ends_connection: bool,
    pub(super) login: LoginState,
    pub(super) failure: Failure,
}

/// Whether there is no such lease: it has ended.
pub(super) fn is_lease_gone(error: &CallError) -> bool {
    error.code == code::NOT_FOUND && error.words.contains("lease not found")
}

/// Whether there is such a lease already: an earlier request made it.
pub(super) fn is_lease_there(error: &CallError) -> bool {
    error.code == code::FAILED_PRECONDITION && error.words.contains("lease already exists")
}

const RIGHTS: &str = "the user needs to read and write the keys that begin with the namespace and the prefix";

/// What became of a request that was sent.
pub(super) fn refusal(error: &CallError, place: &str) -> CallRefusal {
    let detail = format!("{place}: {}", error.words);
    let words = error.words.as_str();
    let (undone, login, failure) = match error.code {
        code::PERMISSION_DENIED => {
            let failure = Failure::lasting(ErrorKind::NotPermitted, format!("{detail}; {RIGHTS}"));
            (true, LoginState::Valid, failure)
        }
        code::UNAUTHENTICATED => (true, LoginState::Outdated, Failure::lasting(ErrorKind::AuthFailed, detail)),
        // as newer servers say it, and older ones
        _ if words.contains("revision of auth store is old") || words.contains("revision in header is old") => {
            (true, LoginState::Outdated, Failure::transient(ErrorKind::AuthFailed, detail))
        }
        code::INVALID_ARGUMENT if words.contains("user name is empty") => {
            let why = format!("{detail}: the server wants a user, and the address names none");
            (true, LoginState::Valid, Failure::lasting(ErrorKind::AuthFailed, why))
        }
        // a server whose space is used up may say so of what it has just written
        code::RESOURCE_EXHAUSTED => {
            let undone = error.unsent || words.contains("too many requests");
            (undone, LoginState::Valid, Failure::transient(ErrorKind::ServerRefused, detail))
        }
        code::INVALID_ARGUMENT | code::FAILED_PRECONDITION => {
            (true, LoginState::Valid, Failure::lasting(ErrorKind::ServerRefused, detail))
        }
        code::UNIMPLEMENTED => {
            let why = format!("{detail}: it is no etcd of version 3.4 or newer");
            (true, LoginState::Valid, Failure::lasting(ErrorKind::Unsupported, why))
        }
        code::UNAVAILABLE | code::DEADLINE_EXCEEDED | code::CANCELLED | code::ABORTED => {
            (error.unsent, LoginState::Valid, Failure::transient(ErrorKind::Unavailable, detail))
        }
        _ => (error.unsent, LoginState::Valid, Failure::transient(ErrorKind::ServerRefused, detail)),
    };
    // a member that knows of no leader: another one may
    let ends_connection = error.broken || login == LoginState::Outdated || error.code == code::UNAVAILABLE;
    CallRefusal { undone, ends_connection, login, failure }
}

/// Why a connection could not be made.
pub(super) fn not_connected(error: &CallError, place: &str) -> Failure {
    if error.code == code::INVALID_ARGUMENT && error.words.contains("authentication failed") {
        return Failure::lasting(ErrorKind::AuthFailed, format!("{place}: {}", error.words));
    }
    refusal(error, place).failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u32, words: &str) -> CallRefusal {
        refusal(&CallError { code, words: words.to_owned(), unsent: false, broken: false }, "etcd://h:2379")
    }

    #[test]
    fn each_error_says_whether_it_did_anything_and_whether_it_passes() {
        for (code, words, undone, transient, kind) in [
            (7, "etcdserver: permission denied", true, false, ErrorKind::NotPermitted),
            (16, "etcdserver: invalid auth token", true, false, ErrorKind::AuthFailed),
            (3, "etcdserver: revision of auth store is old", true, true, ErrorKind::AuthFailed),
            (3, "etcdserver: user name is empty", true, false, ErrorKind::AuthFailed),
            (8, "etcdserver: mvcc: database space exceeded", false, true, ErrorKind::ServerRefused),
            (8, "etcdserver: too many requests", true, true, ErrorKind::ServerRefused),
            (3, "etcdserver: too many operations in txn request", true, false, ErrorKind::ServerRefused),
            (12, "unknown service etcdserverpb.KV", true, false, ErrorKind::Unsupported),
            (14, "etcdserver: request timed out", false, true, ErrorKind::Unavailable),
            (14, "etcdserver: no leader", false, true, ErrorKind::Unavailable),
            (10, "the leader changes", false, true, ErrorKind::Unavailable),
            (4, "context deadline exceeded", false, true, ErrorKind::Unavailable),
            (2, "something else", false, true, ErrorKind::ServerRefused),
        ] {
            let refusal = of(code, words);
            assert_eq!(
                (refusal.undone, refusal.failure.transient, refusal.failure.kind),
                (undone, transient, kind),
                "{words}"
            );
            assert!(refusal.failure.detail.contains("etcd://h:2379"), "{words}");
        }
        assert!(
            of(16, "").ends_connection
                && of(14, "").ends_connection
                && !of(8, "").ends_connection
                && !of(10, "").ends_connection
        );
    }
}
