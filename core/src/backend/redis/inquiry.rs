//! A few commands to one server, on a connection made for them: which server is the master, which node serves which
//! slot.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::timeout;

use super::RedisOptions;
use super::dial::{ConnectedStream, connect_to, read_reply, write_all};
use super::endpoint::Endpoint;
use super::line::{BlockingConnection, Deadline};
use super::refusal;
use super::replies::{ReceivedBytes, ReplyDecoder};
use super::shared::StoreState;
use super::socket::{broken, no_connection_in_time, reason};
use super::value::words;
use crate::driver::clock;
use crate::machine::{Failure, Outcome};

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
        connection.send_commands(questions).await?;
        let mut answers = Vec::with_capacity(questions.len());
        for _ in questions {
            answers.push(connection.recv().await?);
        }
        Ok(answers)
    });
    asked.await.unwrap_or_else(|_| Err(no_connection_in_time(&**endpoint)))
}

/// The same from a thread, within `limit` and the deadline.
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
    let failure = refusal::classify(&words(error));
    Some(Failure { detail: format!("{endpoint}: {}", failure.detail), ..failure })
}

/// A connection that one task uses directly, without multiplexing.
pub(crate) struct RawConnection {
    pub(crate) connected: ConnectedStream,
    decoder: ReplyDecoder,
    received: ReceivedBytes,
}

impl RawConnection {
    pub(crate) fn new(connected: ConnectedStream) -> RawConnection {
        RawConnection { connected, decoder: ReplyDecoder::with_pushes(), received: ReceivedBytes::default() }
    }

    /// Sends commands, all at once.
    pub(crate) async fn send_commands(&mut self, commands: &[impl AsRef<[&str]>]) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        for command in commands {
            Cmd::new().arg(command.as_ref()).write_packed_command(&mut bytes);
        }
        self.send(&bytes).await
    }

    /// Sends packed commands.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let ConnectedStream { endpoint, stream, .. } = &mut self.connected;
        write_all(stream, bytes).await.map_err(|error| broken(&**endpoint, &reason(&error)))
    }

    /// The next reply or push. Cancel safe.
    pub(crate) async fn recv(&mut self) -> Result<Value, Failure> {
        let ConnectedStream { endpoint, stream, .. } = &mut self.connected;
        read_reply(stream, &mut self.decoder, &mut self.received).await.map_err(|why| broken(&**endpoint, &why))
    }
}
