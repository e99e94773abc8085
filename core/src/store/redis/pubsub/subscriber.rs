//! A subscriber: it uses the connection of the requests under RESP3, and a connection of its own under RESP2.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use super::SubscribeError;
use super::dedicated::DedicatedSubscriptions;
use crate::store::redis::connection::multiplexed::connect::ConnectedStream;
use crate::store::redis::connection::multiplexed::connection::{AsyncConnection, ConnectionHealth, PushHandler};

/// Subscribes on one connection. Changes are made one after the other.
pub(crate) struct Subscriber {
    transport: Transport,
    limit: Duration,
}

enum Transport {
    Shared { connection: Arc<AsyncConnection>, commands: MultiplexedConnection, health: Arc<ConnectionHealth> },
    Dedicated(DedicatedSubscriptions),
}

impl Subscriber {
    /// On the connection of the requests.
    pub(crate) fn on_shared(connection: Arc<AsyncConnection>, limit: Duration) -> Subscriber {
        let (commands, health) = connection.subscription_parts();
        Subscriber { transport: Transport::Shared { connection, commands, health }, limit }
    }

    /// On a dedicated connection: under RESP2, or to sharded channels.
    pub(crate) fn on_dedicated(
        connected: ConnectedStream,
        sharded: bool,
        limit: Duration,
        push_handler: Arc<dyn PushHandler>,
    ) -> Subscriber {
        let dedicated = DedicatedSubscriptions::start(connected, sharded, push_handler);
        Subscriber { transport: Transport::Dedicated(dedicated), limit }
    }

    /// The number of its connection, as its messages carry it.
    pub(crate) fn number(&self) -> u64 {
        match &self.transport {
            Transport::Shared { connection, .. } => connection.messages_number(),
            Transport::Dedicated(dedicated) => dedicated.number,
        }
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
        let (connection, commands, health) = match &mut self.transport {
            Transport::Shared { connection, commands, health } => (connection, commands, health),
            Transport::Dedicated(dedicated) => return dedicated.change(begin, channels, self.limit).await,
        };
        let count = channels.len() as u64;
        health.awaited_confirmations.fetch_add(count, Ordering::AcqRel);
        let changed = timeout(self.limit, async {
            if begin { commands.subscribe(channels).await } else { commands.unsubscribe(channels).await }
        });
        let changed = changed.await;
        if matches!(changed, Ok(Err(_))) {
            // a refusal is one reply, in place of all the confirmations
            health.awaited_confirmations.fetch_sub(count, Ordering::AcqRel);
        }
        match changed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if is_refusal(&error) => Err(SubscribeError::Refused(words(&error))),
            _ => {
                // the result is unknown, so the next connection starts without subscriptions
                connection.stop();
                Err(SubscribeError::Lost)
            }
        }
    }

    /// Waits until the connection is lost.
    pub(crate) async fn gone(&self) {
        match &self.transport {
            Transport::Shared { connection, .. } => connection.gone().await,
            Transport::Dedicated(dedicated) => dedicated.gone().await,
        }
    }
}

fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

fn words(error: &RedisError) -> String {
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}
