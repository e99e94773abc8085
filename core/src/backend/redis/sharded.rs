//! Subscriptions to sharded channels: a connection of their own, since a server ends one by itself when its slot moves,
//! which on a shared connection could be taken for the reply to something else.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, PushKind, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::background::Background;
use super::dial::Dialled;
use super::inquiry::Talk;
use super::pipe::Ear;
use super::subscriber::Unsubscribed;
use super::value::{text, words};

/// One change, and where to tell what came of it: the server's words if it refused.
struct Change {
    begin: bool,
    channels: Vec<Vec<u8>>,
    done: oneshot::Sender<Result<(), String>>,
}

/// The means to subscribe on one connection.
pub(crate) struct ShardedChannels {
    changes: mpsc::Sender<Change>,
    background: Background,
}

impl ShardedChannels {
    pub(crate) fn start(dialled: Dialled, ear: Arc<dyn Ear>) -> ShardedChannels {
        let (changes, inbox) = mpsc::channel(1);
        ShardedChannels { changes, background: Background::spawn(serve(Talk::new(dialled), inbox, ear)) }
    }

    /// Changes are made one after the other. If one is not confirmed in time the connection ends.
    pub(crate) async fn change(
        &mut self,
        begin: bool,
        channels: &[Vec<u8>],
        limit: Duration,
    ) -> Result<(), Unsubscribed> {
        let (done, result) = oneshot::channel();
        let change = Change { begin, channels: channels.to_vec(), done };
        let made = timeout(limit, async {
            self.changes.send(change).await.ok()?;
            result.await.ok()
        });
        match made.await {
            Ok(Some(Ok(()))) => Ok(()),
            Ok(Some(Err(text))) => Err(Unsubscribed::Refused(text)),
            _ => {
                self.background.stop();
                Err(Unsubscribed::Lost)
            }
        }
    }

    pub(crate) async fn gone(&self) {
        self.background.gone().await;
    }
}

/// Ends when the connection does, when nobody changes anything any longer, or when the server has ended a subscription:
/// its slot has moved, and what the listeners hear next they hear elsewhere.
async fn serve(mut talk: Talk, mut inbox: mpsc::Receiver<Change>, ear: Arc<dyn Ear>) {
    loop {
        tokio::select! {
            change = inbox.recv() => {
                let Some(change) = change else { return };
                let Ok(result) = carry_out(&mut talk, &change, &*ear).await else { return };
                let _ = change.done.send(result);
            }
            heard = talk.hear() => match heard.as_ref().map(Heard::read) {
                Ok(Heard::Message(channel)) => ear.heard(channel),
                Ok(Heard::Other) => {}
                Ok(Heard::Begun(_) | Heard::Ended(_) | Heard::Refused(_)) | Err(_) => return,
            },
        }
    }
}

/// An error means that the connection can't be used any longer.
async fn carry_out(talk: &mut Talk, change: &Change, ear: &dyn Ear) -> Result<Result<(), String>, ()> {
    // one by one: channels of different slots don't go into one command
    for channel in &change.channels {
        let word = if change.begin { "SSUBSCRIBE" } else { "SUNSUBSCRIBE" };
        let mut command = Cmd::new();
        command.arg(word).arg(channel);
        talk.send(&command.get_packed_command()).await.map_err(drop)?;
        loop {
            let heard = talk.hear().await.map_err(drop)?;
            match Heard::read(&heard) {
                Heard::Message(channel) => ear.heard(channel),
                Heard::Begun(begun) if change.begin && begun == channel => break,
                Heard::Ended(ended) if !change.begin && ended == channel => break,
                Heard::Refused(text) if change.begin => return Ok(Err(text)),
                // it can't be left because it isn't here any more
                Heard::Refused(_) => break,
                Heard::Other => {}
                Heard::Begun(_) | Heard::Ended(_) => return Err(()),
            }
        }
    }
    Ok(Ok(()))
}

/// What a server says on such a connection.
#[derive(Debug, PartialEq)]
enum Heard<'v> {
    Message(&'v [u8]),
    Begun(&'v [u8]),
    Ended(&'v [u8]),
    Refused(String),
    Other,
}

impl Heard<'_> {
    fn read(value: &Value) -> Heard<'_> {
        let (word, channel) = match value {
            Value::ServerError(error) => return Heard::Refused(words(error)),
            Value::Array(items) => (items.first().and_then(text), items.get(1)),
            Value::Push { kind, data } => (Some(kind_word(kind)), data.first()),
            _ => return Heard::Other,
        };
        match (word, channel.and_then(text)) {
            (Some(b"smessage"), Some(channel)) => Heard::Message(channel),
            (Some(b"ssubscribe"), Some(channel)) => Heard::Begun(channel),
            (Some(b"sunsubscribe"), Some(channel)) => Heard::Ended(channel),
            _ => Heard::Other,
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
