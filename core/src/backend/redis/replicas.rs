//! Waiting until replicas have confirmed a grant: `WAIT`, on the connection that wrote it.
//!
//! It narrows the gap through which a failover loses a lock, and does not close it: a replica that did not confirm may be
//! the one that is promoted.

use std::time::Duration;

use redis::{Cmd, Value};

use super::RedisOptions;
use super::shared::Shared;
use super::value::words;
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::{Failure, Outcome, Reply, Time};

/// How many replicas have confirmed.
pub(crate) type Confirmations = u64;

/// One `WAIT`.
pub(crate) struct Wait {
    pub(crate) command: Cmd,
    /// How long the server waits; its answer may take a request's time longer.
    pub(crate) limit: Duration,
}

/// The request for a grant that must be known by `until`.
pub(crate) fn wait(shared: &Shared, until: Time) -> Wait {
    let options = &shared.options;
    // what is left is shared between the server's waiting and its answer's way; 0 would mean for ever
    let left = until.since(clock::now()) / 2;
    let limit = options.replica_timeout.min(left).max(Duration::from_millis(1));
    let mut command = redis::cmd("WAIT");
    command.arg(options.min_replicas).arg(limit.as_millis() as u64);
    shared.common.count_command();
    Wait { command, limit }
}

/// How many have confirmed; `None` where that can't be had, which is said once.
pub(crate) fn read(shared: &Shared, answer: &Value) -> Option<Confirmations> {
    match answer {
        Value::Int(count) => Some(u64::try_from(*count).unwrap_or(0)),
        Value::ServerError(error) => {
            shared.common.warn_without_wait(&shared.name, &words(error));
            None
        }
        _ => Some(0),
    }
}

/// A grant that too few replicas have confirmed is not to be believed.
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
        "granted, but confirmed by {count} of {} replicas within {:?} (min_replicas, replica_timeout); given back",
        options.min_replicas, options.replica_timeout
    );
    Outcome::Applied(Reply::Unconfirmed(Failure::transient(ErrorKind::ServerRefused, detail)))
}
