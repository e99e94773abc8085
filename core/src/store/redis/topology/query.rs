//! A few commands to one server, on a connection made for them: which server is the master, which node serves which
//! slot.

use std::sync::Arc;
use std::time::Duration;

#[cfg(not(target_family = "wasm"))]
use redis::Cmd;
use redis::Value;

use crate::machine::Failure;
#[cfg(not(target_family = "wasm"))]
use crate::machine::Outcome;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::command::server_error;
#[cfg(not(target_family = "wasm"))]
use crate::store::redis::connection::blocking::connection::BlockingConnection;
use crate::store::redis::connection::context::StoreState;
#[cfg(not(target_family = "wasm"))]
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::connection::multiplexed::connect::connect_to;
use crate::store::redis::connection::multiplexed::raw::RawConnection;
use crate::store::redis::connection::socket::no_connection_in_time;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::value::words;
#[cfg(not(target_family = "wasm"))]
use crate::sys::clock;
use crate::sys::task::timeout;

/// The replies to `questions`, refusals included, within `limit`.
pub(crate) async fn query(
    common: &StoreState,
    options: &RedisOptions,
    endpoint: &Arc<Endpoint>,
    questions: &[&[&str]],
    limit: Duration,
) -> Result<Vec<Value>, Failure> {
    let asked = timeout(limit, async {
        let mut connection = RawConnection::new(connect_to(common, options, endpoint.clone(), limit).await?);
        for words in questions {
            connection.push(words);
        }
        connection.send().await?;
        let mut answers = Vec::with_capacity(questions.len());
        for _ in questions {
            answers.push(connection.reply().await?);
        }
        Ok(answers)
    });
    asked.await.unwrap_or_else(|_| Err(no_connection_in_time(&**endpoint)))
}

/// The same from a thread, within `limit` and the deadline.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn query_blocking(
    common: &StoreState,
    options: &RedisOptions,
    endpoint: &Arc<Endpoint>,
    questions: &[&[&str]],
    limit: Duration,
    deadline: Deadline<'_>,
) -> Result<Vec<Value>, Failure> {
    let deadline = Deadline { until: deadline.until.min(clock::now() + limit), ..deadline };
    let config = common.tls(endpoint.tls.as_ref())?;
    let mut connection = BlockingConnection::open(endpoint.clone(), 0, config, options, deadline)?;
    let ask = |words: &&[&str]| {
        let mut command = Cmd::new();
        command.arg(*words);
        match connection.exchange(None, &command, clock::now(), deadline) {
            Outcome::Applied(value) => Ok(value),
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => Err(failure),
        }
    };
    questions.iter().map(ask).collect()
}

/// The failure that a reply means, if it is an error.
pub(crate) fn server_failure(endpoint: &Endpoint, answer: &Value) -> Option<Failure> {
    let Value::ServerError(error) = answer else { return None };
    let failure = server_error::classify(&words(error));
    Some(Failure { detail: format!("{endpoint}: {}", failure.detail), ..failure })
}
