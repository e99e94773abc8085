//! What every kind of connection shares: socket options, the order of addresses, and the failures of a connection.

use std::fmt::Display;
use std::io;

use crate::error::ErrorKind;
use crate::machine::Failure;
#[cfg(not(target_family = "wasm"))]
pub(crate) use crate::store::net::{AddressAttempts, literal, tune};
pub(crate) use crate::store::net::{is_limit, no_thread};
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint};

/// The failure to connect: nothing was sent.
pub(crate) fn not_connected(endpoint: &Endpoint, error: &io::Error) -> Failure {
    if is_limit(error) {
        return Failure::transient(ErrorKind::SystemLimit, format!("{endpoint}: {error}"));
    }
    let reason = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer in time".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused, nothing listens there".to_owned(),
        io::ErrorKind::NotFound if matches!(endpoint.addr, ConnectionAddr::Unix(_)) => {
            "there is no such socket".to_owned()
        }
        _ => error.to_string(),
    };
    Failure::transient(ErrorKind::Unavailable, format!("{endpoint}: {reason}"))
}

/// The failure to connect within the limit.
pub(crate) fn no_connection_in_time(server: &(impl Display + ?Sized)) -> Failure {
    Failure::transient(ErrorKind::Unavailable, format!("{server}: no answer in time"))
}

/// A connection broke, or the bytes on it were no reply.
pub(crate) fn broken(server: &(impl Display + ?Sized), reason: &str) -> Failure {
    Failure::transient(ErrorKind::Unavailable, format!("{server}: {reason}"))
}

/// The reason in words, for [`broken`].
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => HANG_UP_WORDS[0].to_owned(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => HANG_UP_WORDS[1].to_owned(),
        io::ErrorKind::TimedOut => "the connection is dead".to_owned(),
        _ => format!("the connection broke: {error}"),
    }
}

/// The words for a peer that closes the connection.
pub(crate) const HANG_UP_WORDS: [&str; 2] = ["the server closed the connection", "the connection was reset"];
/// The words for a reply that did not come in time.
pub(crate) const NO_REPLY: &str = "no reply in time";
/// The words for bytes that are no reply.
pub(crate) const NO_RESP: &str = "what answers there does not speak the Redis protocol (if it is TLS, write rediss://)";
