//! Subscriptions: one per channel however many wait for it, made again after every reconnect, gone with the last waiter.
//!
//! The table says who wants to hear what. A task compares it with what the present connection is subscribed to. Under
//! RESP3 that is the connection of the requests; under RESP2 it is a second one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::link::Link;
use super::pipe::{Ear, Pipe};
use super::refusal;
use super::resp::Value;
use crate::backend::{Hearing, Subscription};
use crate::error::ErrorKind;
use crate::machine::{Outcome, Time};

/// How long the task stays when nobody listens, so that the next waiter finds a connection.
const LINGER: Duration = Duration::from_secs(5);
/// How long a refused channel is left alone while its waiters poll.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// Who wants to hear what.
#[derive(Default)]
pub(crate) struct Topics {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Default)]
struct Table {
    topics: HashMap<Vec<u8>, Topic>,
    /// Channels whose subscription may have to change.
    dirty: Vec<Vec<u8>>,
    /// Whether a task looks after the table.
    attended: bool,
}

struct Topic {
    listeners: usize,
    hearing: watch::Sender<Hearing>,
}

impl Topic {
    fn hint(&self, change: impl FnOnce(&mut Hearing)) {
        self.hearing.send_modify(|hearing| {
            change(hearing);
            hearing.hints += 1;
        });
    }
}

impl Topics {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the task look up, to find that the store was closed.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    fn hint(&self, channel: &[u8], change: impl FnOnce(&mut Hearing)) {
        if let Some(topic) = self.table().topics.get(channel) {
            topic.hint(change);
        }
    }
}

impl Ear for Topics {
    fn heard(&self, channel: &[u8]) {
        self.hint(channel, |_| {});
    }
}

/// Subscribes to `channel` until the guard is dropped.
pub(crate) fn subscribe(topics: &Arc<Topics>, link: &Arc<Link>, channel: Vec<u8>) -> Subscription {
    let mut table = topics.table();
    let Table { topics: map, dirty, attended } = &mut *table;
    let topic = map.entry(channel.clone()).or_insert_with(|| {
        dirty.push(channel.clone());
        Topic { listeners: 0, hearing: watch::Sender::new(Hearing::default()) }
    });
    topic.listeners += 1;
    let hearing = topic.hearing.subscribe();
    if !std::mem::replace(attended, true) {
        let attendant = Attendant { topics: topics.clone() };
        tokio::spawn(attend(attendant, link.clone()));
    }
    drop(table);
    topics.changed.notify_one();
    Subscription { hearing, guard: Box::new(Listener { topics: topics.clone(), channel }) }
}

/// Stands for one waiter.
struct Listener {
    topics: Arc<Topics>,
    channel: Vec<u8>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut table = self.topics.table();
        let channel = std::mem::take(&mut self.channel);
        let Some(topic) = table.topics.get_mut(&channel) else { return };
        topic.listeners -= 1;
        if topic.listeners == 0 {
            table.topics.remove(&channel);
            table.dirty.push(channel);
            drop(table);
            self.topics.changed.notify_one();
        }
    }
}

/// Stands for the task, so that the table learns of its end however it comes, even with the runtime.
struct Attendant {
    topics: Arc<Topics>,
}

impl Attendant {
    /// Ends the task, unless somebody listens.
    fn retire(&self) -> bool {
        let mut table = self.topics.table();
        if table.topics.is_empty() {
            table.attended = false;
        }
        !table.attended
    }

    fn lost(&self) {
        for topic in self.topics.table().topics.values() {
            topic.hint(|hearing| hearing.subscribed = false);
        }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.topics.table().attended = false;
    }
}

/// Keeps connections and subscriptions while there are listeners.
async fn attend(attendant: Attendant, link: Arc<Link>) {
    let mut failures = 0;
    loop {
        match connection(&link).await {
            Ok(pipe) => {
                failures = 0;
                if serve(&attendant, &link, &pipe).await {
                    return;
                }
                attendant.lost();
            }
            Err(ErrorKind::Closed) => return,
            Err(_) => {
                failures += 1;
                sleep(link.pause(failures)).await;
                if attendant.retire() {
                    return;
                }
            }
        }
    }
}

async fn connection(link: &Arc<Link>) -> Result<Arc<Pipe>, ErrorKind> {
    let pipe = link.pipe(Time::MAX).await.map_err(|failure| failure.kind)?;
    if pipe.resp3 {
        return Ok(pipe);
    }
    link.pubsub_pipe().await.map(Arc::new).map_err(|failure| failure.kind)
}

type Confirmation = BoxFuture<'static, (Vec<u8>, u64, Option<Outcome<Value>>)>;

/// What one connection is subscribed to.
struct Subscribed<'a> {
    topics: &'a Topics,
    pipe: &'a Pipe,
    /// The channels asked for, each with the number of the asking: a late answer to an earlier one means nothing.
    asked: HashMap<Vec<u8>, u64>,
    askings: u64,
    answers: FuturesUnordered<Confirmation>,
    refused: Vec<Vec<u8>>,
    retry_at: Instant,
}

/// Serves the listeners over one connection. `true`: nobody listens any longer; `false`: the connection is gone, or the
/// store was closed.
async fn serve(attendant: &Attendant, link: &Link, pipe: &Pipe) -> bool {
    let topics = &*attendant.topics;
    let mut subscribed = Subscribed {
        topics,
        pipe,
        asked: HashMap::new(),
        askings: 0,
        answers: FuturesUnordered::new(),
        refused: Vec::new(),
        retry_at: Instant::now(),
    };
    subscribed.adjust(true);
    loop {
        let idle = topics.table().topics.is_empty();
        tokio::select! {
            () = pipe.gone() => return false,
            () = topics.changed.notified() => {
                if link.is_closed() {
                    return false;
                }
                subscribed.adjust(false);
            }
            Some((channel, number, answer)) = subscribed.answers.next(), if !subscribed.answers.is_empty() => {
                subscribed.answered(channel, number, answer);
            }
            () = sleep_until(subscribed.retry_at), if !subscribed.refused.is_empty() => subscribed.retry(),
            () = sleep(LINGER), if idle => if attendant.retire() { return true },
        }
    }
}

impl Subscribed<'_> {
    /// Brings the connection's subscriptions in line with the table: those that changed, or all on a new connection.
    fn adjust(&mut self, all: bool) {
        let mut table = self.topics.table();
        let mut dirty = std::mem::take(&mut table.dirty);
        if all {
            dirty = table.topics.keys().cloned().collect();
        }
        for channel in dirty {
            // sent under the lock, in the order of the changes; nothing here waits
            if table.topics.contains_key(&channel) {
                // also when it is asked for already: left and come back before anybody looked, so the new listener has
                // not heard of the subscription yet
                self.ask(channel);
            } else if self.asked.remove(&channel).is_some() {
                self.refused.retain(|refused| *refused != channel);
                self.pipe.unsubscribe(&channel);
            }
        }
    }

    fn ask(&mut self, channel: Vec<u8>) {
        self.askings += 1;
        let number = self.askings;
        self.asked.insert(channel.clone(), number);
        let answer = self.pipe.subscribe(&channel);
        self.answers.push(Box::pin(async move { (channel, number, answer.await.ok()) }));
    }

    fn answered(&mut self, channel: Vec<u8>, number: u64, answer: Option<Outcome<Value>>) {
        if self.asked.get(&channel) != Some(&number) {
            return;
        }
        match answer {
            Some(Outcome::Applied(Value::Error(text))) => {
                let failure = refusal::classify(&text);
                tracing::debug!(detail = failure.detail, "subscription refused; its waiters poll");
                self.topics.hint(&channel, |hearing| hearing.refused = failure.kind == ErrorKind::NotPermitted);
                self.retry_at = Instant::now() + REFUSED_AGAIN;
                self.refused.push(channel);
            }
            Some(Outcome::Applied(_)) => self.topics.hint(&channel, |hearing| {
                hearing.subscribed = true;
                hearing.refused = false;
            }),
            // the connection is gone, which is noticed anyway
            _ => {}
        }
    }

    fn retry(&mut self) {
        for channel in std::mem::take(&mut self.refused) {
            self.ask(channel);
        }
    }
}
