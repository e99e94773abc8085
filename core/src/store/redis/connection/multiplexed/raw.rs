//! A connection that one task uses directly, without multiplexing.

use redis::{Cmd, Value};

use super::connect::{ConnectedStream, receive, receive_reply, send};
use crate::machine::{Failure, Time};
use crate::store::redis::connection::socket::{broken, reason};
use crate::store::redis::resp::exchange::Received;

/// A connection that one task uses directly, without multiplexing.
pub(crate) struct RawConnection(ConnectedStream);

impl RawConnection {
    pub(crate) fn new(connected: ConnectedStream) -> RawConnection {
        RawConnection(connected)
    }

    /// Queues a command.
    pub(crate) fn push(&mut self, words: &[&str]) {
        self.0.exchange.push((), Time::ZERO, Cmd::new().arg(words));
    }

    /// Queues the command `word`, which begins or ends the subscriptions to `channels`. Its reply is `Okay` or an error.
    pub(crate) fn push_subscription(&mut self, word: (&str, bool), channels: Vec<Vec<u8>>) {
        self.0.exchange.push_subscription(Some(()), Time::ZERO, word, channels);
    }

    /// Sends what is queued, all at once.
    pub(crate) async fn send(&mut self) -> Result<(), Failure> {
        let ConnectedStream { endpoint, stream, exchange, .. } = &mut self.0;
        send(stream, &mut exchange.requests).await.map_err(|error| broken(&**endpoint, &reason(&error)))
    }

    /// The next reply or push. Cancel safe.
    pub(crate) async fn recv(&mut self) -> Result<Received<()>, Failure> {
        let ConnectedStream { endpoint, stream, exchange, .. } = &mut self.0;
        receive(stream, exchange).await.map_err(|why| broken(&**endpoint, &why))
    }

    /// The next reply.
    pub(crate) async fn reply(&mut self) -> Result<Value, Failure> {
        let ConnectedStream { endpoint, stream, exchange, .. } = &mut self.0;
        receive_reply(stream, exchange).await.map_err(|why| broken(&**endpoint, &why))
    }
}
