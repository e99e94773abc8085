//! Waiting until replicas have confirmed a grant: `WAIT`, on the connection that wrote it.
//!
//! It narrows the window in which a failover loses a lock, and does not close it: a replica that did not confirm may be
//! promoted.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::error::ErrorKind;
use crate::machine::{Failure, Outcome, Reply, Time};
use crate::store::redis::connection::context::NodeContext;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::value::words;
use crate::sys::clock;

/// How many replicas have confirmed.
pub(crate) type Confirmations = u64;

/// One `WAIT`.
pub(crate) struct Wait {
    pub(crate) command: Cmd,
    /// How long the server waits; its answer may take a request's time longer.
    pub(crate) limit: Duration,
}

/// The request for a grant that must be known by `until`.
pub(crate) fn wait(context: &NodeContext, until: Time) -> Wait {
    let options = &context.options;
    // the rest is divided between the server's wait and the reply's way back; 0 would mean no limit
    let left = until.since(clock::now()) / 2;
    let limit = options.replica_timeout.min(left).max(Duration::from_millis(1));
    let mut command = redis::cmd("WAIT");
    command.arg(options.min_replicas).arg(limit.as_millis() as u64);
    context.store_state.count_command();
    Wait { command, limit }
}

/// How many have confirmed; `None` where the server refuses, which is logged once.
pub(crate) fn read(context: &NodeContext, answer: &Value) -> Option<Confirmations> {
    match answer {
        Value::Int(count) => Some(u64::try_from(*count).unwrap_or(0)),
        Value::ServerError(error) => {
            context.store_state.warn_wait_refused(&context.name, &words(error));
            None
        }
        _ => Some(0),
    }
}

/// A grant that too few replicas have confirmed is not valid.
pub(crate) fn judge(
    outcome: Outcome<Reply>,
    confirmations: Option<Confirmations>,
    options: &RedisOptions,
) -> Outcome<Reply> {
    let Some(count) = confirmations else { return outcome };
    if !matches!(outcome, Outcome::Applied(Reply::Granted { .. })) || count >= u64::from(options.min_replicas) {
        return outcome;
    }
    let detail = format!(
        "granted, but confirmed by {count} of {} replicas within {:?} (min_replicas, replica_timeout); released",
        options.min_replicas, options.replica_timeout
    );
    Outcome::Applied(Reply::Unconfirmed(Failure::transient(ErrorKind::ServerRefused, detail)))
}
