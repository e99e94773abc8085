//! Subscriptions to sharded channels, on a connection of their own: a server ends such a subscription by itself when
//! its slot moves, which on a shared connection could be taken for a reply.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, PushKind, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::SubscribeError;
use crate::store::redis::connection::multiplexed::assisted_task::AssistedTask;
use crate::store::redis::connection::multiplexed::connect::ConnectedStream;
use crate::store::redis::connection::multiplexed::connection::PushHandler;
use crate::store::redis::connection::multiplexed::raw::RawConnection;
use crate::store::redis::resp::value::{text, words};

/// One change, and where to send its result: the server's words if it refused.
struct ShardedChange {
    begin: bool,
    channels: Vec<Vec<u8>>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Subscribes to sharded channels on one connection.
pub(crate) struct ShardedChannels {
    changes: mpsc::Sender<ShardedChange>,
    background: AssistedTask,
}

impl ShardedChannels {
    pub(crate) fn start(connected: ConnectedStream, push_handler: Arc<dyn PushHandler>) -> ShardedChannels {
        let (changes, inbox) = mpsc::channel(1);
        ShardedChannels {
            changes,
            background: AssistedTask::spawn(serve(RawConnection::new(connected), inbox, push_handler)),
        }
    }

    /// Changes are made one after the other. A change that is not confirmed in time ends the connection.
    pub(crate) async fn change(
        &mut self,
        begin: bool,
        channels: &[Vec<u8>],
        limit: Duration,
    ) -> Result<(), SubscribeError> {
        let (done, result) = oneshot::channel();
        let change = ShardedChange { begin, channels: channels.to_vec(), done };
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

/// Ends with the connection, when no more changes can come, or when the server has ended a subscription: its slot has
/// moved, and the listeners subscribe at another node.
async fn serve(
    mut connection: RawConnection,
    mut inbox: mpsc::Receiver<ShardedChange>,
    push_handler: Arc<dyn PushHandler>,
) {
    loop {
        tokio::select! {
            change = inbox.recv() => {
                let Some(change) = change else { return };
                let Ok(result) = apply(&mut connection, &change, &*push_handler).await else { return };
                let _ = change.done.send(result);
            }
            message = connection.recv() => match message.as_ref().map(ShardedEvent::read) {
                Ok(ShardedEvent::Message(channel)) => push_handler.on_message(channel),
                Ok(ShardedEvent::Other) => {}
                Ok(ShardedEvent::Subscribed(_) | ShardedEvent::Unsubscribed(_) | ShardedEvent::Refused(_)) | Err(_) => return,
            },
        }
    }
}

/// An error means that the connection cannot be used any more.
async fn apply(
    connection: &mut RawConnection,
    change: &ShardedChange,
    push_handler: &dyn PushHandler,
) -> Result<Result<(), String>, ()> {
    // one by one: channels of different slots cannot share a command
    for channel in &change.channels {
        let word = if change.begin { "SSUBSCRIBE" } else { "SUNSUBSCRIBE" };
        let mut command = Cmd::new();
        command.arg(word).arg(channel);
        connection.send(&command.get_packed_command()).await.map_err(drop)?;
        loop {
            let message = connection.recv().await.map_err(drop)?;
            match ShardedEvent::read(&message) {
                ShardedEvent::Message(channel) => push_handler.on_message(channel),
                ShardedEvent::Subscribed(begun) if change.begin && begun == channel => break,
                ShardedEvent::Unsubscribed(ended) if !change.begin && ended == channel => break,
                ShardedEvent::Refused(text) if change.begin => return Ok(Err(text)),
                // the channel is not served here any more
                ShardedEvent::Refused(_) => break,
                ShardedEvent::Other => {}
                ShardedEvent::Subscribed(_) | ShardedEvent::Unsubscribed(_) => return Err(()),
            }
        }
    }
    Ok(Ok(()))
}

/// A message of the server on such a connection.
#[derive(Debug, PartialEq)]
enum ShardedEvent<'v> {
    Message(&'v [u8]),
    Subscribed(&'v [u8]),
    Unsubscribed(&'v [u8]),
    Refused(String),
    Other,
}

impl ShardedEvent<'_> {
    fn read(value: &Value) -> ShardedEvent<'_> {
        let (word, channel) = match value {
            Value::ServerError(error) => return ShardedEvent::Refused(words(error)),
            Value::Array(items) => (items.first().and_then(text), items.get(1)),
            Value::Push { kind, data } => (Some(kind_word(kind)), data.first()),
            _ => return ShardedEvent::Other,
        };
        match (word, channel.and_then(text)) {
            (Some(b"smessage"), Some(channel)) => ShardedEvent::Message(channel),
            (Some(b"ssubscribe"), Some(channel)) => ShardedEvent::Subscribed(channel),
            (Some(b"sunsubscribe"), Some(channel)) => ShardedEvent::Unsubscribed(channel),
            _ => ShardedEvent::Other,
        }
    }
}

fn kind_word(kind: &PushKind) -> &'static [u8] {
    match kind {
        PushKind::SMessage => b"smessage",
        PushKind::SSubscribe => b"ssubscribe",
        PushKind::SUnsubscribe => b"sunsubscribe",
        _ => b"",
    }
}
