//! Wake-ups: each waiter watches the key before its own, and nobody else's. So a release wakes one client.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::ClusterClient;
use super::connection::ClusterConnection;
use super::failure;
use super::grpc::{CallError, Metadata};
use super::messages::{self, Watched, path};
use super::names;
use crate::machine::{Key, Kind};
use crate::store::{Subscription, SubscriptionState};
use crate::sys::{clock, lock};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The key before one's own.
#[derive(Clone, Debug)]
pub(super) struct Predecessor {
    pub(super) key: Vec<u8>,
    /// The revision at which it was made.
    pub(super) created: i64,
    /// The first revision that was not seen yet: nothing is missed between a look and the watch.
    pub(super) from: i64,
}

/// Of each lock, the number of its subscription, and where that is told what to watch.
type PlaceWatches = HashMap<(Kind, Key), (u64, watch::Sender<Option<Predecessor>>)>;

/// Which key each waiting claim of this client watches.
#[derive(Default)]
pub(super) struct WatchTargets(Mutex<PlaceWatches>);

impl WatchTargets {
    /// This key is before the one of the client now. Without a subscription nobody is told.
    pub(super) fn set(&self, name: &(Kind, Key), predecessor: Predecessor) {
        if let Some((_, sender)) = lock(&self.0).get(name) {
            sender.send_if_modified(|present| {
                let same = |known: &Predecessor| (&known.key, known.created) == (&predecessor.key, predecessor.created);
                let is_new = !present.as_ref().is_some_and(same);
                if is_new {
                    *present = Some(predecessor);
                }
                is_new
            });
        }
    }
}

/// Ends the watch, and forgets it.
struct Guard {
    shared: Arc<ClusterClient>,
    name: (Kind, Key),
    number: u64,
    task: tokio::task::AbortHandle,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // a child touches nothing of what it inherited
        if self.shared.connector.stamp.is_here() {
            self.task.abort();
            let mut watches = lock(&self.shared.listeners.0);
            // the next one of this lock may be there already
            if watches.get(&self.name).is_some_and(|(number, _)| *number == self.number) {
                watches.remove(&self.name);
            }
        }
    }
}

pub(super) fn subscribe(shared: &Arc<ClusterClient>, kind: Kind, key: &Key) -> Subscription {
    let name = (kind, key.clone());
    let (predecessor, predecessors) = watch::channel(None);
    let number = shared.subscriptions.fetch_add(1, Ordering::Relaxed);
    lock(&shared.listeners.0).insert(name.clone(), (number, predecessor));
    let (state, listening) = watch::channel(SubscriptionState::default());
    let directory = names::directory(&shared.connector.cluster, key);
    let watcher = PlaceWatcher { shared: shared.clone(), directory, state };
    let task = tokio::spawn(watcher.run(predecessors)).abort_handle();
    Subscription { state: listening, guard: Box::new(Guard { shared: shared.clone(), name, number, task }) }
}

/// How a watch ended.
enum WatchEnd {
    /// The key is gone.
    LookAgain,
    /// What happened before this revision is not known any more.
    Compacted(i64),
    /// The connection is.
    Lost,
}

/// Watches for one lock: the key before the client's own, and before there is one, every key of the lock.
struct PlaceWatcher {
    shared: Arc<ClusterClient>,
    directory: Vec<u8>,
    state: watch::Sender<SubscriptionState>,
}

impl PlaceWatcher {
    async fn run(self, mut predecessors: watch::Receiver<Option<Predecessor>>) {
        let (mut pause, mut compacted) = (PAUSE_MIN, None);
        loop {
            let mut predecessor = predecessors.borrow_and_update().clone();
            if let (Some(predecessor), Some(compacted)) = (&mut predecessor, compacted) {
                predecessor.from = predecessor.from.max(compacted);
            }
            let end = tokio::select! {
                end = self.watch(predecessor.as_ref()) => end,
                changed = predecessors.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            match end {
                WatchEnd::LookAgain => {
                    pause = PAUSE_MIN;
                    self.state.send_modify(|state| state.generation += 1);
                    // the client asks, and is told what to watch next
                    if predecessors.changed().await.is_err() {
                        return;
                    }
                }
                // the client asks whether the key has gone before; the watch tells if it goes from then on
                WatchEnd::Compacted(revision) => {
                    compacted = Some(revision);
                    self.state.send_modify(|state| state.generation += 1);
                    sleep(PAUSE_MIN).await;
                }
                // ask before the watch is back, and once more when it is
                WatchEnd::Lost => {
                    self.state
                        .send_modify(|state| (state.subscribed, state.generation) = (false, state.generation + 1));
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn watch(&self, predecessor: Option<&Predecessor>) -> WatchEnd {
        let Ok(connection) = self.shared.connected(clock::now() + self.shared.connector.limits.connect).await else {
            return WatchEnd::Lost;
        };
        let watched = tokio::select! {
            watched = self.watch_on(&connection, predecessor) => watched,
            () = connection.until_retired() => return WatchEnd::Lost,
        };
        match watched {
            Ok(end) => end,
            Err(error) => {
                if failure::refusal(&error, &connection.place).ends_connection {
                    connection.retire();
                }
                WatchEnd::Lost
            }
        }
    }

    async fn watch_on(
        &self,
        connection: &ClusterConnection,
        predecessor: Option<&Predecessor>,
    ) -> Result<WatchEnd, CallError> {
        let metadata = Metadata { token: connection.token.as_deref(), limit: None };
        let mut sending = connection.channel().open(path::WATCH, metadata).await?;
        let asked = match predecessor {
            Some(predecessor) => messages::watch(&predecessor.key, predecessor.from),
            None => messages::watch_all(&self.directory),
        };
        sending.send(asked, false)?;
        let mut answers = sending.answers().await?;
        loop {
            let told: Watched = answers.read().await?;
            if told.canceled {
                if told.compacted > 0 {
                    return Ok(WatchEnd::Compacted(told.compacted));
                }
                // the server wants another login: an outdated one may watch nothing
                connection.retire();
                return Ok(WatchEnd::Lost);
            }
            if told.created {
                self.state.send_if_modified(|state| {
                    let is_new = !state.subscribed;
                    if is_new {
                        (state.subscribed, state.generation) = (true, state.generation + 1);
                    }
                    is_new
                });
            }
            if !told.events.is_empty() {
                if predecessor.is_some() {
                    return Ok(WatchEnd::LookAgain);
                }
                self.state.send_modify(|state| state.generation += 1);
            }
        }
    }
}
