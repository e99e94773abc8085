//! What went wrong in a TLS handshake with a server.

use std::io;

use crate::error::ErrorKind;
use crate::machine::Failure;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::tls::advice;
pub(crate) use crate::store::tls::server_name;

/// Why a TLS handshake failed. What rustls rejects is lasting; a broken connection is transient.
pub(crate) fn handshake_failure(endpoint: &Endpoint, error: &io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(_)) => Failure::lasting(
            ErrorKind::Unavailable,
            format!("{endpoint}: the server does not speak TLS on this port; {PLAIN}"),
        ),
        Some(error) => {
            let detail = format!("{endpoint}: TLS failed: {error}");
            Failure::lasting(ErrorKind::Unavailable, format!("{detail}{}", advice(&detail)))
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            let detail = format!("{endpoint}: TLS failed: the server closed the connection; {PLAIN}");
            Failure::transient(ErrorKind::Unavailable, detail)
        }
        None => Failure::transient(ErrorKind::Unavailable, format!("{endpoint}: TLS failed: {error}")),
    }
}

const PLAIN: &str = "if this port speaks plain text, write redis:// instead of rediss://";

/// The failure of a handshake without an answer: a plain-text peer may be waiting for the end of a line.
pub(crate) fn no_handshake_in_time(endpoint: &Endpoint) -> Failure {
    Failure::transient(ErrorKind::Unavailable, format!("{endpoint}: no answer in time to the TLS handshake; {PLAIN}"))
}
