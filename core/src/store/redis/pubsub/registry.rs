//! The registry of subscriptions: one per channel for all its listeners, made again after every reconnect, ended with
//! the last listener.
//!
//! The table holds the channels with listeners. A task compares it with the subscriptions of the present connection and
//! sends the difference in one command; later changes go into the next command. So the order of changes does not
//! matter.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::SubscribeError;
use super::subscriber::Subscriber;
use crate::error::ErrorKind;
use crate::machine::{Failure, GrantNotice};
use crate::store::redis::command::server_error;
use crate::store::redis::connection::multiplexed::manager::ConnectionManager;
use crate::store::redis::connection::multiplexed::transport::PushHandler;
use crate::store::{Subscription, SubscriptionState};
use crate::sys::task::{self, Instant, sleep, sleep_until};

/// How long the task stays when nobody listens, so that the next listener finds a connection.
const STOP_AFTER_IDLE: Duration = Duration::from_secs(5);
/// How long a refused channel is not tried again while its waiters poll.
const RETRY_REFUSED_AFTER: Duration = Duration::from_secs(30);

/// The channels with listeners.
#[derive(Default)]
pub(crate) struct SubscriptionRegistry {
    /// Whether the channels are sharded channels of a cluster.
    sharded: bool,
    table: Mutex<RegistryTable>,
    changed: Notify,
}

#[derive(Default)]
struct RegistryTable {
    channels: HashMap<Vec<u8>, ChannelEntry>,
    /// Channels whose subscription may have to change.
    dirty: Vec<Vec<u8>>,
    /// The number of the task that serves the table.
    task: Option<u64>,
    /// How many tasks were started.
    tasks_started: u64,
}

impl RegistryTable {
    /// The number of a new task, if one must be started.
    fn claim_task(&mut self) -> Option<u64> {
        if self.task.is_some() {
            return None;
        }
        self.tasks_started += 1;
        self.task = Some(self.tasks_started);
        self.task
    }
}

struct ChannelEntry {
    listeners: usize,
    state: watch::Sender<SubscriptionState>,
}

impl ChannelEntry {
    fn update(&self, change: impl FnOnce(&mut SubscriptionState)) {
        self.state.send_modify(|state| {
            change(state);
            state.generation += 1;
        });
    }
}

impl SubscriptionRegistry {
    /// A registry of the sharded channels of one node.
    pub(crate) fn sharded() -> SubscriptionRegistry {
        SubscriptionRegistry { sharded: true, ..SubscriptionRegistry::default() }
    }

    async fn subscriber(self: &Arc<Self>, manager: &Arc<ConnectionManager>) -> Result<Subscriber, Failure> {
        if self.sharded { manager.sharded_subscriber(self.clone()).await } else { manager.subscriber().await }
    }

    fn table(&self) -> MutexGuard<'_, RegistryTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task, which then finds that the store was closed.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    fn update(&self, channel: &[u8], change: impl FnOnce(&mut SubscriptionState)) {
        if let Some(entry) = self.table().channels.get(channel) {
            entry.update(change);
        }
    }
}

impl PushHandler for SubscriptionRegistry {
    fn on_message(&self, connection: u64, channel: &[u8], payload: &[u8]) {
        self.update(channel, |state| {
            // what comes on another connection than the answers may be of another server
            if connection != 0
                && connection == state.connection
                && let Some(notice) = GrantNotice::parse(payload)
            {
                state.granted = Some(Arc::new(notice));
            }
        });
    }
}

/// Subscribes to `channel` until the guard is dropped.
pub(crate) fn subscribe(
    registry: &Arc<SubscriptionRegistry>,
    manager: &Arc<ConnectionManager>,
    channel: Vec<u8>,
) -> Subscription {
    let mut table = registry.table();
    let RegistryTable { channels: map, dirty, .. } = &mut *table;
    let entry = map.entry(channel.clone()).or_insert_with(|| {
        dirty.push(channel.clone());
        ChannelEntry { listeners: 0, state: watch::Sender::new(SubscriptionState::default()) }
    });
    entry.listeners += 1;
    let state = entry.state.subscribe();
    let needed = table.claim_task();
    // a runtime that is ending drops a spawned task at once, and the task's drop locks the table
    drop(table);
    if let Some(number) = needed {
        let task = RegistryTask { registry: registry.clone(), number };
        task::spawn(run(task, manager.clone()));
    }
    registry.changed.notify_one();
    Subscription { state, guard: Box::new(ListenerGuard { registry: registry.clone(), channel }) }
}

/// One listener, until dropped.
struct ListenerGuard {
    registry: Arc<SubscriptionRegistry>,
    channel: Vec<u8>,
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        let mut table = self.registry.table();
        let channel = std::mem::take(&mut self.channel);
        let Some(entry) = table.channels.get_mut(&channel) else { return };
        entry.listeners -= 1;
        if entry.listeners == 0 {
            table.channels.remove(&channel);
            table.dirty.push(channel);
            drop(table);
            self.registry.changed.notify_one();
        }
    }
}

/// Marks the task as ended when dropped, also when its runtime ends.
struct RegistryTask {
    registry: Arc<SubscriptionRegistry>,
    /// Distinguishes it from its successor.
    number: u64,
}

impl RegistryTask {
    /// Ends the task, unless somebody listens.
    fn stop_if_idle(&self) -> bool {
        let mut table = self.registry.table();
        if table.channels.is_empty() {
            table.task = None;
        }
        table.task.is_none()
    }

    fn mark_lost(&self) {
        mark_all_lost(&self.registry.table());
    }
}

fn mark_all_lost(table: &RegistryTable) {
    for entry in table.channels.values() {
        entry.update(SubscriptionState::lose);
    }
}

impl Drop for RegistryTask {
    fn drop(&mut self) {
        let mut table = self.registry.table();
        // a stopped task may have a successor by now
        if table.task == Some(self.number) {
            table.task = None;
            mark_all_lost(&table);
        }
    }
}

/// Keeps a connection and its subscriptions while there are listeners.
async fn run(task: RegistryTask, manager: Arc<ConnectionManager>) {
    let mut failures = 0;
    loop {
        match task.registry.subscriber(&manager).await {
            Ok(subscriber) => {
                failures = 0;
                if SubscriptionSession::new(&task.registry, subscriber).run(&task, &manager).await {
                    return;
                }
                task.mark_lost();
            }
            Err(failure) if failure.kind == ErrorKind::Closed => return,
            Err(_) => {
                failures += 1;
                sleep(manager.backoff(failures)).await;
                if task.stop_if_idle() {
                    return;
                }
            }
        }
    }
}

/// The subscriptions of one connection.
struct SubscriptionSession<'a> {
    registry: &'a SubscriptionRegistry,
    subscriber: Subscriber,
    confirmed: HashSet<Vec<u8>>,
    refused: HashSet<Vec<u8>>,
    retry_at: Instant,
    /// Channels to compare besides the changed ones.
    recheck: Vec<Vec<u8>>,
}

impl<'a> SubscriptionSession<'a> {
    fn new(registry: &'a SubscriptionRegistry, subscriber: Subscriber) -> SubscriptionSession<'a> {
        // a new connection is subscribed to nothing
        let recheck = registry.table().channels.keys().cloned().collect();
        let (confirmed, refused) = (HashSet::new(), HashSet::new());
        SubscriptionSession { registry, subscriber, confirmed, refused, retry_at: Instant::now(), recheck }
    }

    /// Serves the listeners. `true`: nobody listens any more; `false`: the connection is lost, or the store was closed.
    async fn run(&mut self, task: &RegistryTask, manager: &ConnectionManager) -> bool {
        loop {
            while !manager.is_closed() {
                let (to_subscribe, to_unsubscribe) = self.diff();
                if to_subscribe.is_empty() && to_unsubscribe.is_empty() {
                    break;
                }
                if self.apply(&to_subscribe, &to_unsubscribe).await.is_err() {
                    return false;
                }
            }
            if manager.is_closed() {
                return false;
            }
            let idle = self.registry.table().channels.is_empty();
            tokio::select! {
                () = self.subscriber.gone() => return false,
                () = self.registry.changed.notified() => {}
                () = sleep_until(self.retry_at), if !self.refused.is_empty() => self.recheck.extend(self.refused.drain()),
                () = sleep(STOP_AFTER_IDLE), if idle => if task.stop_if_idle() { return true },
            }
        }
    }

    /// The channels to subscribe to and to unsubscribe from, as the table is now.
    fn diff(&mut self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut table = self.registry.table();
        let mut changed: HashSet<Vec<u8>> = table.dirty.drain(..).collect();
        changed.extend(self.recheck.drain(..));
        let (mut to_subscribe, mut to_unsubscribe) = (Vec::new(), Vec::new());
        for channel in changed {
            match (table.channels.get(&channel), self.confirmed.contains(&channel)) {
                // left and joined again before the comparison: it has been subscribed all the time, and the new
                // listener is told now
                (Some(entry), true) => entry.update(|state| state.confirm(self.subscriber.number())),
                (Some(_), false) => to_subscribe.push(channel),
                (None, true) => to_unsubscribe.push(channel),
                (None, false) => {
                    self.refused.remove(&channel);
                }
            }
        }
        (to_subscribe, to_unsubscribe)
    }

    /// Sends the difference; an error means that the connection is lost.
    async fn apply(&mut self, to_subscribe: &[Vec<u8>], to_unsubscribe: &[Vec<u8>]) -> Result<(), ()> {
        if !to_unsubscribe.is_empty() {
            match self.subscriber.unsubscribe(to_unsubscribe).await {
                Ok(()) => self.confirmed.retain(|channel| !to_unsubscribe.contains(channel)),
                // without permission to unsubscribe, its messages are ignored
                Err(SubscribeError::Refused(_)) => {}
                Err(SubscribeError::Lost) => return Err(()),
            }
        }
        match to_subscribe {
            [] => Ok(()),
            [channel] => self.subscribe(channel).await,
            several => match self.subscriber.subscribe(several).await {
                Ok(()) => {
                    for channel in several {
                        self.confirm(channel);
                    }
                    Ok(())
                }
                // one refused channel fails the whole command, so each is sent by itself
                Err(SubscribeError::Refused(_)) => {
                    for channel in several {
                        self.subscribe(channel).await?;
                    }
                    Ok(())
                }
                Err(SubscribeError::Lost) => Err(()),
            },
        }
    }

    async fn subscribe(&mut self, channel: &Vec<u8>) -> Result<(), ()> {
        match self.subscriber.subscribe(std::slice::from_ref(channel)).await {
            Ok(()) => self.confirm(channel),
            Err(SubscribeError::Refused(text)) => {
                let failure = server_error::classify(&text);
                tracing::debug!(detail = failure.detail, "subscription refused; its waiters poll");
                self.registry.update(channel, |state| state.refused = failure.kind == ErrorKind::NotPermitted);
                self.refused.insert(channel.clone());
                self.retry_at = Instant::now() + RETRY_REFUSED_AFTER;
            }
            Err(SubscribeError::Lost) => return Err(()),
        }
        Ok(())
    }

    fn confirm(&mut self, channel: &[u8]) {
        self.confirmed.insert(channel.to_vec());
        let connection = self.subscriber.number();
        self.registry.update(channel, |state| state.confirm(connection));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::sync::mpsc;

    use super::*;
    use crate::store::redis::address::endpoint::Endpoint;
    use crate::store::redis::node::Node;
    use crate::store::redis::options::RedisOptions;

    /// An address where nothing listens.
    fn node() -> Node {
        let options = RedisOptions::default();
        let nowhere = Endpoint::parse("unix:///nowhere/at/all", &options).unwrap();
        Node::at(nowhere, options, Arc::default(), 0)
    }

    #[test]
    fn a_task_that_retired_takes_nothing_from_its_successor() {
        let registry = Arc::new(SubscriptionRegistry::default());
        let number = registry.table().claim_task().unwrap();
        let first = RegistryTask { registry: registry.clone(), number };
        assert!(first.stop_if_idle(), "nobody listens");
        let number = registry.table().claim_task().expect("a successor");
        // its future is dropped only now
        drop(first);
        assert_eq!(registry.table().claim_task(), None, "two would look after one table");
        drop(RegistryTask { registry: registry.clone(), number });
        assert!(registry.table().claim_task().is_some());
    }

    #[tokio::test]
    async fn who_listens_hears_that_the_task_has_ended_with_its_runtime() {
        let (registry, node) = (Arc::new(SubscriptionRegistry::default()), node());
        let mut subscription = subscribe(&registry, &node.manager, b"c".to_vec());
        registry.update(b"c", |state| state.confirm(1));
        subscription.state.borrow_and_update();
        let number = registry.table().task.unwrap();
        drop(RegistryTask { registry: registry.clone(), number });
        assert!(!subscription.state.borrow_and_update().subscribed);
    }

    /// A runtime ends while one of its threads subscribes: a task spawned by that thread is dropped at once.
    #[test]
    fn a_runtime_can_end_while_somebody_subscribes() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (registry, node) = (Arc::new(SubscriptionRegistry::default()), node());
        let (inside, entered) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel();
        runtime.spawn(async move {
            inside.send(()).unwrap();
            gate.recv().unwrap();
            drop(subscribe(&registry, &node.manager, b"c".to_vec()));
            ended.send(()).unwrap();
        });
        let (alive, closed) = mpsc::channel::<()>();
        runtime.spawn(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        entered.recv().unwrap();
        runtime.shutdown_background();
        // the other thread has dropped all other tasks: the runtime accepts no new ones
        assert!(closed.recv().is_err());
        go.send(()).unwrap();
        end.recv_timeout(Duration::from_secs(20)).expect("it waits for itself");
    }
}
