//! A subscriber: it uses the connection of the requests under RESP3, and a connection of its own under RESP2.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub, PubSubSink};
use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use super::SubscribeError;
use super::sharded::ShardedChannels;
use crate::machine::Failure;
use crate::store::redis::connection::multiplexed::assisted_task::AssistedTask;
use crate::store::redis::connection::multiplexed::connect::ConnectedStream;
use crate::store::redis::connection::multiplexed::connection::{
    AsyncConnection, ConnectionHealth, PushHandler, connection_info, describe,
};
use crate::store::redis::connection::socket::broken;

/// Subscribes on one connection. Changes are made one after the other.
pub(crate) struct Subscriber {
    transport: Transport,
    limit: Duration,
}

enum Transport {
    Shared { connection: Arc<AsyncConnection>, commands: MultiplexedConnection, health: Arc<ConnectionHealth> },
    Dedicated { sink: PubSubSink, background: AssistedTask },
    Sharded(ShardedChannels),
}

impl Subscriber {
    /// On the connection of the requests.
    pub(crate) fn on_shared(connection: Arc<AsyncConnection>, limit: Duration) -> Subscriber {
        let (commands, health) = connection.subscription_parts();
        Subscriber { transport: Transport::Shared { connection, commands, health }, limit }
    }

    /// On a dedicated connection.
    pub(crate) async fn on_dedicated(
        connected: ConnectedStream,
        limit: Duration,
        push_handler: Arc<dyn PushHandler>,
    ) -> Result<Subscriber, Failure> {
        let endpoint = connected.endpoint;
        let listening = PubSub::new(&connection_info(false), connected.stream)
            .await
            .map_err(|error| broken(&*endpoint, &describe(&error)))?;
        let (sink, mut messages) = listening.split();
        let background = AssistedTask::spawn(async move {
            while let Some(message) = messages.next().await {
                push_handler.on_message(message.get_channel_name().as_bytes());
            }
        });
        Ok(Subscriber { transport: Transport::Dedicated { sink, background }, limit })
    }

    /// To sharded channels, on a dedicated connection.
    pub(crate) fn sharded(
        connected: ConnectedStream,
        limit: Duration,
        push_handler: Arc<dyn PushHandler>,
    ) -> Subscriber {
        Subscriber { transport: Transport::Sharded(ShardedChannels::start(connected, push_handler)), limit }
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
        if let Transport::Sharded(sharded) = &mut self.transport {
            return sharded.change(begin, channels, self.limit).await;
        }
        let count = channels.len() as u64;
        let changed = match &mut self.transport {
            Transport::Shared { commands, health, .. } => {
                health.awaited_confirmations.fetch_add(count, Ordering::AcqRel);
                let changed = timeout(self.limit, async {
                    if begin { commands.subscribe(channels).await } else { commands.unsubscribe(channels).await }
                });
                let changed = changed.await;
                if matches!(changed, Ok(Err(_))) {
                    // a refusal is one reply, in place of all the confirmations
                    health.awaited_confirmations.fetch_sub(count, Ordering::AcqRel);
                }
                changed
            }
            Transport::Dedicated { sink, .. } => {
                let changed = timeout(self.limit, async {
                    if begin { sink.subscribe(channels).await } else { sink.unsubscribe(channels).await }
                });
                changed.await
            }
            Transport::Sharded(_) => return Err(SubscribeError::Lost),
        };
        match changed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if is_refusal(&error) => Err(SubscribeError::Refused(words(&error))),
            _ => {
                // the result is unknown, so the next connection starts without subscriptions
                match &self.transport {
                    Transport::Shared { connection, .. } => connection.stop(),
                    Transport::Dedicated { background, .. } => background.stop(),
                    Transport::Sharded(_) => {}
                }
                Err(SubscribeError::Lost)
            }
        }
    }

    /// Waits until the connection is lost.
    pub(crate) async fn gone(&self) {
        match &self.transport {
            Transport::Shared { connection, .. } => connection.gone().await,
            Transport::Dedicated { background, .. } => background.gone().await,
            Transport::Sharded(sharded) => sharded.gone().await,
        }
    }
}

fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

fn words(error: &RedisError) -> String {
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}
