//! The means to subscribe: the connection of the requests under RESP3, a connection of its own under RESP2.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub, PubSubSink};
use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use super::background::Background;
use super::dial::Dialled;
use super::pipe::{Ear, Health, Pipe, introduced, why};
use super::sharded::ShardedChannels;
use super::socket::broken;
use crate::machine::Failure;

/// Why a change of subscriptions did not come about.
#[derive(Debug)]
pub(crate) enum Unsubscribed {
    /// The server said no, in these words.
    Refused(String),
    /// The connection is gone.
    Lost,
}

/// One connection's means to subscribe. Changes are made one after the other.
pub(crate) struct Subscriber {
    channels: Channels,
    limit: Duration,
}

enum Channels {
    Shared { pipe: Arc<Pipe>, connection: MultiplexedConnection, health: Arc<Health> },
    Own { sink: PubSubSink, background: Background },
    Sharded(ShardedChannels),
}

impl Subscriber {
    /// On the connection of the requests.
    pub(crate) fn sharing(pipe: Arc<Pipe>, limit: Duration) -> Subscriber {
        let (connection, health) = pipe.subscriptions();
        Subscriber { channels: Channels::Shared { pipe, connection, health }, limit }
    }

    /// On a connection that does nothing else.
    pub(crate) async fn alone(dialled: Dialled, limit: Duration, ear: Arc<dyn Ear>) -> Result<Subscriber, Failure> {
        let endpoint = dialled.endpoint;
        let listening =
            PubSub::new(&introduced(false), dialled.stream).await.map_err(|error| broken(&*endpoint, &why(&error)))?;
        let (sink, mut messages) = listening.split();
        let background = Background::spawn(async move {
            while let Some(message) = messages.next().await {
                ear.heard(message.get_channel_name().as_bytes());
            }
        });
        Ok(Subscriber { channels: Channels::Own { sink, background }, limit })
    }

    /// To sharded channels, on a connection that does nothing else.
    pub(crate) fn sharded(dialled: Dialled, limit: Duration, ear: Arc<dyn Ear>) -> Subscriber {
        Subscriber { channels: Channels::Sharded(ShardedChannels::start(dialled, ear)), limit }
    }

    /// Subscribes to all of `channels`. Refused means that the server refused the whole command.
    pub(crate) async fn subscribe(&mut self, channels: &[Vec<u8>]) -> Result<(), Unsubscribed> {
        self.change(true, channels).await
    }

    /// Ends the subscriptions to all of `channels`.
    pub(crate) async fn unsubscribe(&mut self, channels: &[Vec<u8>]) -> Result<(), Unsubscribed> {
        self.change(false, channels).await
    }

    async fn change(&mut self, begin: bool, channels: &[Vec<u8>]) -> Result<(), Unsubscribed> {
        if let Channels::Sharded(sharded) = &mut self.channels {
            return sharded.change(begin, channels, self.limit).await;
        }
        let count = channels.len() as u64;
        let changed = match &mut self.channels {
            Channels::Shared { connection, health, .. } => {
                health.awaited.fetch_add(count, Ordering::AcqRel);
                let changed = timeout(self.limit, async {
                    if begin { connection.subscribe(channels).await } else { connection.unsubscribe(channels).await }
                });
                let changed = changed.await;
                if matches!(changed, Ok(Err(_))) {
                    // a refusal is one reply, in place of all the confirmations
                    health.awaited.fetch_sub(count, Ordering::AcqRel);
                }
                changed
            }
            Channels::Own { sink, .. } => {
                let changed = timeout(self.limit, async {
                    if begin { sink.subscribe(channels).await } else { sink.unsubscribe(channels).await }
                });
                changed.await
            }
            Channels::Sharded(_) => return Err(Unsubscribed::Lost),
        };
        match changed {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if is_refusal(&error) => Err(Unsubscribed::Refused(words(&error))),
            _ => {
                // whether it happened is unknown, so the next connection starts from nothing
                match &self.channels {
                    Channels::Shared { pipe, .. } => pipe.stop(),
                    Channels::Own { background, .. } => background.stop(),
                    Channels::Sharded(_) => {}
                }
                Err(Unsubscribed::Lost)
            }
        }
    }

    /// Waits until the connection is gone.
    pub(crate) async fn gone(&self) {
        match &self.channels {
            Channels::Shared { pipe, .. } => pipe.gone().await,
            Channels::Own { background, .. } => background.gone().await,
            Channels::Sharded(sharded) => sharded.gone().await,
        }
    }
}

fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

fn words(error: &RedisError) -> String {
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}
