//! What an operation that failed tells its caller.

use super::engine::Engine;
use crate::machine::Failure;
use crate::{Error, ErrorKind};

/// The error that a failure becomes, with what the server said as its cause.
pub(crate) fn failed(engine: &Engine, tried: &str, name: &[u8], failure: &Failure) -> Error {
    use ErrorKind as K;
    if !failure.nodes.is_empty() {
        let error = Error::new(failure.kind, tried, failure.detail.clone()).on(name);
        return failure.nodes.iter().fold(error, |error, node| error.because(node.clone()));
    }
    match failure.kind {
        K::Unavailable | K::AuthFailed | K::NotPermitted | K::ReadOnly | K::ServerRefused => {
            Error::new(failure.kind, tried, "the server did not do it").on(name).because(cause(engine, failure))
        }
        _ => Error::new(failure.kind, tried, failure.detail.clone()).on(name),
    }
}

/// What went wrong at which server; a failure of the connection names it already.
pub(crate) fn cause(engine: &Engine, failure: &Failure) -> String {
    let address = engine.store.address();
    if failure.detail.starts_with(address) { failure.detail.clone() } else { format!("{address}: {}", failure.detail) }
}

pub(crate) fn closed() -> Failure {
    Failure::lasting(ErrorKind::Closed, "this client was closed")
}

pub(crate) fn cancelled() -> Failure {
    Failure::lasting(ErrorKind::Cancelled, "the caller stopped waiting")
}
