//! A subscriber: it uses the connection of the requests under RESP3, and a connection of its own under RESP2 and for
//! sharded channels.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::SubscribeError;
use crate::machine::Outcome;
use crate::store::redis::connection::multiplexed::connection::AsyncConnection;
use crate::store::redis::resp::value::words;
use crate::sys::clock;

/// Subscribes on one connection. Changes are made one after the other.
pub(crate) struct Subscriber {
    connection: Arc<AsyncConnection>,
    /// Whether to sharded channels of a cluster.
    sharded: bool,
    limit: Duration,
}

impl Subscriber {
    /// A change that is not confirmed within `limit` ends the connection.
    pub(crate) fn new(connection: Arc<AsyncConnection>, sharded: bool, limit: Duration) -> Subscriber {
        Subscriber { connection, sharded, limit }
    }

    /// The number of its connection, as messages and answers carry it; 0 for one that carries no other requests.
    pub(crate) fn number(&self) -> u64 {
        self.connection.number
    }

    /// Subscribes to all of `channels`. Refused means that the server refused the whole command.
    pub(crate) async fn subscribe(&mut self, channels: &[Vec<u8>]) -> Result<(), SubscribeError> {
        self.change(true, channels).await
    }

    /// Ends the subscriptions to all of `channels`.
    pub(crate) async fn unsubscribe(&mut self, channels: &[Vec<u8>]) -> Result<(), SubscribeError> {
        self.change(false, channels).await
    }

    async fn change(&mut self, begin: bool, channels: &[Vec<u8>]) -> Result<(), SubscribeError> {
        let word = match (self.sharded, begin) {
            (false, true) => "SUBSCRIBE",
            (false, false) => "UNSUBSCRIBE",
            (true, true) => "SSUBSCRIBE",
            (true, false) => "SUNSUBSCRIBE",
        };
        // channels of different slots cannot share a command
        let size = if self.sharded { 1 } else { channels.len().max(1) };
        let until = clock::now() + self.limit;
        for together in channels.chunks(size) {
            let left = until.since(clock::now());
            match self.connection.change_subscriptions((word, begin), together, left).await {
                // a sharded channel is not served here any more
                Outcome::Applied(Value::ServerError(_)) if self.sharded && !begin => {}
                Outcome::Applied(Value::ServerError(error)) => return Err(SubscribeError::Refused(words(&error))),
                Outcome::Applied(_) => {}
                Outcome::NotApplied(_) | Outcome::Indeterminate(_) => {
                    // the result is unknown, so the next connection starts without subscriptions
                    self.connection.stop();
                    return Err(SubscribeError::Lost);
                }
            }
        }
        Ok(())
    }

    /// Waits until the connection is lost.
    pub(crate) async fn gone(&self) {
        self.connection.gone().await;
    }
}
