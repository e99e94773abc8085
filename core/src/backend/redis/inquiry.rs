//! A question to one server, on a connection made for it: who is the master, who serves which slot.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::timeout;

use super::RedisOptions;
use super::dial::{Dialled, open, receive, send};
use super::endpoint::Endpoint;
use super::line::{Line, Patience};
use super::refusal;
use super::replies::{Arrived, Replies};
use super::shared::Common;
use super::socket::{broken, no_connection_in_time, reason};
use super::value::words;
use crate::driver::clock;
use crate::machine::{Failure, Outcome};

/// The replies to `questions`, refusals included, within `limit`.
pub(crate) async fn ask(
    common: &Common,
    options: &RedisOptions,
    endpoint: &Arc<Endpoint>,
    questions: &[&[&str]],
    limit: Duration,
) -> Result<Vec<Value>, Failure> {
    let asked = timeout(limit, async {
        let mut talk = Talk::new(open(common, options, endpoint.clone(), limit).await?);
        talk.say(questions).await?;
        let mut answers = Vec::with_capacity(questions.len());
        for _ in questions {
            answers.push(talk.hear().await?);
        }
        Ok(answers)
    });
    asked.await.unwrap_or_else(|_| Err(no_connection_in_time(&**endpoint)))
}

/// The same from a thread, which may take as long as `limit` and the caller's patience.
pub(crate) fn ask_blocking(
    common: &Common,
    options: &RedisOptions,
    endpoint: &Arc<Endpoint>,
    questions: &[&[&str]],
    limit: Duration,
    patience: Patience<'_>,
) -> Result<Vec<Value>, Failure> {
    let patience = Patience { until: patience.until.min(clock::now() + limit), ..patience };
    let config = common.tls(endpoint.tls.as_ref())?;
    let mut line = Line::open(endpoint.clone(), 0, config, options, patience)?;
    let ask = |words: &&[&str]| {
        let mut command = Cmd::new();
        command.arg(*words);
        match line.exchange(None, &command, clock::now(), patience) {
            Outcome::Applied(value) => Ok(value),
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => Err(failure),
        }
    };
    questions.iter().map(ask).collect()
}

/// The failure that an answer is, if it is a refusal.
pub(crate) fn refused(endpoint: &Endpoint, answer: &Value) -> Option<Failure> {
    let Value::ServerError(error) = answer else { return None };
    let failure = refusal::classify(&words(error));
    Some(Failure { detail: format!("{endpoint}: {}", failure.detail), ..failure })
}

/// A connection on which one task speaks and listens.
pub(crate) struct Talk {
    pub(crate) dialled: Dialled,
    replies: Replies,
    arrived: Arrived,
}

impl Talk {
    pub(crate) fn new(dialled: Dialled) -> Talk {
        Talk { dialled, replies: Replies::with_pushes(), arrived: Arrived::default() }
    }

    /// Sends commands, all at once.
    pub(crate) async fn say(&mut self, commands: &[impl AsRef<[&str]>]) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        for command in commands {
            Cmd::new().arg(command.as_ref()).write_packed_command(&mut bytes);
        }
        self.send(&bytes).await
    }

    /// Sends what is packed already.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Dialled { endpoint, stream, .. } = &mut self.dialled;
        send(stream, bytes).await.map_err(|error| broken(&**endpoint, &reason(&error)))
    }

    /// The next thing that the server says. Cancel safe.
    pub(crate) async fn hear(&mut self) -> Result<Value, Failure> {
        let Dialled { endpoint, stream, .. } = &mut self.dialled;
        receive(stream, &mut self.replies, &mut self.arrived).await.map_err(|why| broken(&**endpoint, &why))
    }
}
