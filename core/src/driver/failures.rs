//! What an operation that failed tells its caller.

use super::engine::Engine;
use super::hold::Hold;
use crate::machine::{Failure, LossReason, Phase};
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

/// The error for a hold that was lost.
pub(crate) fn lost(hold: &Hold, name: &[u8]) -> Error {
    let why = hold.lease.loss().map_or("it ended", LossReason::explain);
    Error::new(ErrorKind::Lost, "use the lease", format!("the lease was lost: {why}")).on(name)
}

/// The error of a handle that holds nothing.
pub(crate) fn not_held(hold: &Hold, name: &[u8]) -> Error {
    match hold.lease.phase() {
        Phase::Lost | Phase::LostAndReleased => lost(hold, name),
        Phase::Detached => Error::new(ErrorKind::NotHeld, "use the lease", "it was handed to another process").on(name),
        _ => Error::new(ErrorKind::NotHeld, "use the lease", "it was released").on(name),
    }
}
