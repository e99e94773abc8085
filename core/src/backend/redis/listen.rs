//! Subscriptions: one per channel however many wait for it, made again after every reconnect, gone with the last waiter.
//!
//! The table says who wants to hear what. A task compares it with what the present connection is subscribed to, and makes
//! up the difference in one command; what changes meanwhile goes into the next one. So order is never a question.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::link::Link;
use super::pipe::Ear;
use super::refusal;
use super::subscriber::{Subscriber, Unsubscribed};
use crate::backend::{Hearing, Subscription};
use crate::error::ErrorKind;
use crate::machine::Failure;

/// How long the task stays when nobody listens, so that the next waiter finds a connection.
const LINGER: Duration = Duration::from_secs(5);
/// How long a refused channel is left alone while its waiters poll.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);

/// Who wants to hear what.
#[derive(Default)]
pub(crate) struct Topics {
    /// Whether the channels are a cluster's sharded ones.
    sharded: bool,
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Default)]
struct Table {
    topics: HashMap<Vec<u8>, Topic>,
    /// Channels whose subscription may have to change.
    dirty: Vec<Vec<u8>>,
    /// The number of the task that looks after the table.
    attended_by: Option<u64>,
    /// How many tasks there have been.
    attendants: u64,
}

impl Table {
    /// The number of a new task, if there has to be one.
    fn needs_attendant(&mut self) -> Option<u64> {
        if self.attended_by.is_some() {
            return None;
        }
        self.attendants += 1;
        self.attended_by = Some(self.attendants);
        self.attended_by
    }
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
    /// For the sharded channels of one node of a cluster.
    pub(crate) fn sharded() -> Topics {
        Topics { sharded: true, ..Topics::default() }
    }

    async fn subscriber(self: &Arc<Self>, link: &Arc<Link>) -> Result<Subscriber, Failure> {
        if self.sharded { link.sharded_subscriber(self.clone()).await } else { link.subscriber().await }
    }

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
    let Table { topics: map, dirty, .. } = &mut *table;
    let topic = map.entry(channel.clone()).or_insert_with(|| {
        dirty.push(channel.clone());
        Topic { listeners: 0, hearing: watch::Sender::new(Hearing::default()) }
    });
    topic.listeners += 1;
    let hearing = topic.hearing.subscribe();
    let needed = table.needs_attendant();
    // a runtime that is ending drops what it is given on the spot, and the attendant wants the table then
    drop(table);
    if let Some(number) = needed {
        let attendant = Attendant { topics: topics.clone(), number };
        tokio::spawn(attend(attendant, link.clone()));
    }
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
    /// Tells it from the one that comes after it.
    number: u64,
}

impl Attendant {
    /// Ends the task, unless somebody listens.
    fn retire(&self) -> bool {
        let mut table = self.topics.table();
        if table.topics.is_empty() {
            table.attended_by = None;
        }
        table.attended_by.is_none()
    }

    fn lost(&self) {
        lose(&self.topics.table());
    }
}

fn lose(table: &Table) {
    for topic in table.topics.values() {
        topic.hint(|hearing| hearing.subscribed = false);
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        let mut table = self.topics.table();
        // one that has retired may have a successor by now
        if table.attended_by == Some(self.number) {
            table.attended_by = None;
            lose(&table);
        }
    }
}

/// Keeps connections and subscriptions while there are listeners.
async fn attend(attendant: Attendant, link: Arc<Link>) {
    let mut failures = 0;
    loop {
        match attendant.topics.subscriber(&link).await {
            Ok(subscriber) => {
                failures = 0;
                if Service::new(&attendant.topics, subscriber).run(&attendant, &link).await {
                    return;
                }
                attendant.lost();
            }
            Err(failure) if failure.kind == ErrorKind::Closed => return,
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

/// What one connection is subscribed to.
struct Service<'a> {
    topics: &'a Topics,
    subscriber: Subscriber,
    confirmed: HashSet<Vec<u8>>,
    refused: HashSet<Vec<u8>>,
    retry_at: Instant,
    /// Channels that must be looked at, besides those that changed.
    anew: Vec<Vec<u8>>,
}

impl<'a> Service<'a> {
    fn new(topics: &'a Topics, subscriber: Subscriber) -> Service<'a> {
        // a new connection is subscribed to nothing
        let anew = topics.table().topics.keys().cloned().collect();
        let (confirmed, refused) = (HashSet::new(), HashSet::new());
        Service { topics, subscriber, confirmed, refused, retry_at: Instant::now(), anew }
    }

    /// Serves the listeners. `true`: nobody listens any longer; `false`: the connection is gone, or the store was closed.
    async fn run(&mut self, attendant: &Attendant, link: &Link) -> bool {
        loop {
            while !link.is_closed() {
                let (join, leave) = self.difference();
                if join.is_empty() && leave.is_empty() {
                    break;
                }
                if self.adjust(&join, &leave).await.is_err() {
                    return false;
                }
            }
            if link.is_closed() {
                return false;
            }
            let idle = self.topics.table().topics.is_empty();
            tokio::select! {
                () = self.subscriber.gone() => return false,
                () = self.topics.changed.notified() => {}
                () = sleep_until(self.retry_at), if !self.refused.is_empty() => self.anew.extend(self.refused.drain()),
                () = sleep(LINGER), if idle => if attendant.retire() { return true },
            }
        }
    }

    /// What to subscribe to and what to leave, as the table is now.
    fn difference(&mut self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut table = self.topics.table();
        let mut changed: HashSet<Vec<u8>> = table.dirty.drain(..).collect();
        changed.extend(self.anew.drain(..));
        let (mut join, mut leave) = (Vec::new(), Vec::new());
        for channel in changed {
            match (table.topics.get(&channel), self.confirmed.contains(&channel)) {
                // left and come back before anybody looked: it has been subscribed all the time, and the new listener hears
                // of it now
                (Some(topic), true) => topic.hint(|hearing| hearing.subscribed = true),
                (Some(_), false) => join.push(channel),
                (None, true) => leave.push(channel),
                (None, false) => {
                    self.refused.remove(&channel);
                }
            }
        }
        (join, leave)
    }

    /// Makes up the difference; an error means that the connection is gone.
    async fn adjust(&mut self, join: &[Vec<u8>], leave: &[Vec<u8>]) -> Result<(), ()> {
        if !leave.is_empty() {
            match self.subscriber.unsubscribe(leave).await {
                Ok(()) => self.confirmed.retain(|channel| !leave.contains(channel)),
                // without the right to leave, what comes in is ignored
                Err(Unsubscribed::Refused(_)) => {}
                Err(Unsubscribed::Lost) => return Err(()),
            }
        }
        match join {
            [] => Ok(()),
            [channel] => self.join(channel).await,
            several => match self.subscriber.subscribe(several).await {
                Ok(()) => {
                    for channel in several {
                        self.confirm(channel);
                    }
                    Ok(())
                }
                // one bad channel spoils the command, so each is asked for by itself
                Err(Unsubscribed::Refused(_)) => {
                    for channel in several {
                        self.join(channel).await?;
                    }
                    Ok(())
                }
                Err(Unsubscribed::Lost) => Err(()),
            },
        }
    }

    async fn join(&mut self, channel: &Vec<u8>) -> Result<(), ()> {
        match self.subscriber.subscribe(std::slice::from_ref(channel)).await {
            Ok(()) => self.confirm(channel),
            Err(Unsubscribed::Refused(text)) => {
                let failure = refusal::classify(&text);
                tracing::debug!(detail = failure.detail, "subscription refused; its waiters poll");
                self.topics.hint(channel, |hearing| hearing.refused = failure.kind == ErrorKind::NotPermitted);
                self.refused.insert(channel.clone());
                self.retry_at = Instant::now() + REFUSED_AGAIN;
            }
            Err(Unsubscribed::Lost) => return Err(()),
        }
        Ok(())
    }

    fn confirm(&mut self, channel: &[u8]) {
        self.confirmed.insert(channel.to_vec());
        self.topics.hint(channel, |hearing| {
            hearing.subscribed = true;
            hearing.refused = false;
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::sync::mpsc;

    use super::*;
    use crate::backend::redis::node::Node;
    use crate::backend::redis::{Endpoint, RedisOptions};

    /// Where nobody answers.
    fn node() -> Node {
        let options = RedisOptions::default();
        let nowhere = Endpoint::parse("unix:///nowhere/at/all", &options).unwrap();
        Node::at(nowhere, options, Arc::default(), 0)
    }

    #[test]
    fn a_task_that_retired_takes_nothing_from_its_successor() {
        let topics = Arc::new(Topics::default());
        let number = topics.table().needs_attendant().unwrap();
        let first = Attendant { topics: topics.clone(), number };
        assert!(first.retire(), "nobody listens");
        let number = topics.table().needs_attendant().expect("a successor");
        // its future is dropped only now
        drop(first);
        assert_eq!(topics.table().needs_attendant(), None, "two would look after one table");
        drop(Attendant { topics: topics.clone(), number });
        assert!(topics.table().needs_attendant().is_some());
    }

    #[tokio::test]
    async fn who_listens_hears_that_the_task_has_ended_with_its_runtime() {
        let (topics, node) = (Arc::new(Topics::default()), node());
        let mut subscription = subscribe(&topics, &node.link, b"c".to_vec());
        topics.hint(b"c", |hearing| hearing.subscribed = true);
        subscription.hearing.borrow_and_update();
        let number = topics.table().attended_by.unwrap();
        drop(Attendant { topics: topics.clone(), number });
        assert!(!subscription.hearing.borrow_and_update().subscribed);
    }

    /// A runtime that ends while one of its threads is about to subscribe: what that thread spawns is dropped on the spot.
    #[test]
    fn a_runtime_can_end_while_somebody_subscribes() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (topics, node) = (Arc::new(Topics::default()), node());
        let (inside, entered) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel();
        runtime.spawn(async move {
            inside.send(()).unwrap();
            gate.recv().unwrap();
            drop(subscribe(&topics, &node.link, b"c".to_vec()));
            ended.send(()).unwrap();
        });
        let (alive, closed) = mpsc::channel::<()>();
        runtime.spawn(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        entered.recv().unwrap();
        runtime.shutdown_background();
        // the other thread has dropped all other tasks: from now on the runtime takes none
        assert!(closed.recv().is_err());
        go.send(()).unwrap();
        end.recv_timeout(Duration::from_secs(20)).expect("it waits for itself");
    }
}
