//! Subscriptions on a connection of their own: under RESP2, where messages and replies don't go together, and to sharded
//! channels, whose subscriptions a server ends by itself when their slot moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::SubscribeError;
use crate::store::redis::connection::multiplexed::assisted_task::AssistedTask;
use crate::store::redis::connection::multiplexed::connect::ConnectedStream;
use crate::store::redis::connection::multiplexed::connection::PushHandler;
use crate::store::redis::connection::multiplexed::raw::RawConnection;
use crate::store::redis::resp::exchange::Received;
use crate::store::redis::resp::push::Push;
use crate::store::redis::resp::value::words;

/// One change, and where to send its result: the server's words if it refused.
struct ChannelChange {
    begin: bool,
    channels: Vec<Vec<u8>>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Numbers the connections: odd, those that requests share are even.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Subscribes on one connection.
pub(crate) struct DedicatedSubscriptions {
    /// Tells its messages from those of other connections.
    pub(crate) number: u64,
    changes: mpsc::Sender<ChannelChange>,
    background: AssistedTask,
}

impl DedicatedSubscriptions {
    pub(crate) fn start(
        connected: ConnectedStream,
        sharded: bool,
        push_handler: Arc<dyn PushHandler>,
    ) -> DedicatedSubscriptions {
        let (changes, inbox) = mpsc::channel(1);
        let number = NUMBERS.fetch_add(2, Ordering::Relaxed);
        let task = SubscriptionTask { connection: RawConnection::new(connected), number, sharded, push_handler };
        DedicatedSubscriptions { number, changes, background: AssistedTask::spawn(task.serve(inbox)) }
    }

    /// Changes are made one after the other. A change that is not confirmed in time ends the connection.
    pub(crate) async fn change(
        &mut self,
        begin: bool,
        channels: &[Vec<u8>],
        limit: Duration,
    ) -> Result<(), SubscribeError> {
        let (done, result) = oneshot::channel();
        let change = ChannelChange { begin, channels: channels.to_vec(), done };
        let made = timeout(limit, async {
            self.changes.send(change).await.ok()?;
            result.await.ok()
        });
        match made.await {
            Ok(Some(Ok(()))) => Ok(()),
            Ok(Some(Err(text))) => Err(SubscribeError::Refused(text)),
            _ => {
                self.background.stop();
                Err(SubscribeError::Lost)
            }
        }
    }

    pub(crate) async fn gone(&self) {
        self.background.gone().await;
    }
}

/// The connection cannot be used any more.
struct SubscriptionsLost;

struct SubscriptionTask {
    connection: RawConnection,
    number: u64,
    sharded: bool,
    push_handler: Arc<dyn PushHandler>,
}

impl SubscriptionTask {
    /// Ends with the connection, when no more changes can come, or when the server has ended a subscription: its slot
    /// has moved, and the listeners subscribe at another node.
    async fn serve(mut self, mut inbox: mpsc::Receiver<ChannelChange>) {
        loop {
            tokio::select! {
                change = inbox.recv() => {
                    let Some(ChannelChange { begin, channels, done }) = change else { return };
                    let Ok(result) = self.apply(begin, channels).await else { return };
                    let _ = done.send(result);
                }
                received = self.connection.recv() => {
                    let Ok(Received::Push(push)) = received else { return };
                    if self.on_push(&push).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn on_push(&self, push: &Push) -> Result<(), SubscriptionsLost> {
        match push {
            Push::Message { channel, payload } => self.push_handler.on_message(self.number, channel, payload),
            Push::Other => {}
            Push::Subscribed(_) | Push::Unsubscribed(_) => return Err(SubscriptionsLost),
        }
        Ok(())
    }

    async fn apply(&mut self, begin: bool, channels: Vec<Vec<u8>>) -> Result<Result<(), String>, SubscriptionsLost> {
        let word = match (self.sharded, begin) {
            (false, true) => "SUBSCRIBE",
            (false, false) => "UNSUBSCRIBE",
            (true, true) => "SSUBSCRIBE",
            (true, false) => "SUNSUBSCRIBE",
        };
        // channels of different slots cannot share a command
        let size = if self.sharded { 1 } else { channels.len().max(1) };
        for together in channels.chunks(size) {
            self.connection.push_subscription((word, begin), together.to_vec());
            self.connection.send().await.map_err(|_| SubscriptionsLost)?;
            match self.reply().await? {
                // a sharded channel is not served here any more
                Value::ServerError(_) if self.sharded && !begin => {}
                Value::ServerError(error) => return Ok(Err(words(&error))),
                _ => {}
            }
        }
        Ok(Ok(()))
    }

    async fn reply(&mut self) -> Result<Value, SubscriptionsLost> {
        loop {
            match self.connection.recv().await.map_err(|_| SubscriptionsLost)? {
                Received::Reply((), reply) => return Ok(reply),
                Received::Push(push) => self.on_push(&push)?,
            }
        }
    }
}
