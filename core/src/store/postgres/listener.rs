//! Wake-ups: one connection that listens for all who wait in this client. It is there while somebody waits, and a few seconds
//! longer.
//!
//! A release is announced only when somebody waits, since `NOTIFY` takes a lock of the whole server at its commit. So who
//! waits marks the row of the lock; the mark lasts ten seconds, whoever holds the lock meanwhile, and is made again every
//! three.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, error::Error as DriverError};

use super::connection::Connection;
use super::{TableClient, failure, from_hex, hex};
use crate::machine::{Failure, Key};
use crate::store::{Subscription, SubscriptionState};
use crate::sys::fork::ProcessStamp;
use crate::sys::{clock, lock, random, runtime};

/// How long the connection stays when nobody waits.
const IDLE: Duration = Duration::from_secs(5);
/// How often the marks are made again.
const MARK_EVERY: Duration = Duration::from_secs(3);
/// What is not heard within this time of what the client tells itself, a pooler keeps from it.
const ECHO: Duration = Duration::from_secs(2);
/// For how long nothing is listened for behind such a pooler.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// The same for a row that somebody keeps locked: mostly for the length of a commit.
const MARK_AGAIN: Duration = Duration::from_millis(50);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

pub(super) struct ReleaseListener {
    table: Mutex<WaitedLocks>,
    changed: Notify,
    /// Whether releases are heard, as far as is known.
    heard: AtomicBool,
    /// Whether they are listened for at all.
    wanted: bool,
    closed: AtomicBool,
    /// A pooler has been warned of.
    warned: AtomicBool,
}

#[derive(Default)]
struct WaitedLocks {
    locks: HashMap<Vec<u8>, WaitedLock>,
    serving: bool,
}

struct WaitedLock {
    waiting: usize,
    /// Listened for and marked.
    confirmed: bool,
    state: watch::Sender<SubscriptionState>,
}

impl WaitedLock {
    fn update(&self, change: impl FnOnce(&mut SubscriptionState)) {
        self.state.send_modify(|state| {
            change(state);
            state.generation += 1;
        });
    }
}

/// One who waits, until dropped.
struct Waiting {
    listener: Arc<ReleaseListener>,
    key: Vec<u8>,
    stamp: ProcessStamp,
    /// Keeps the channel open.
    _state: watch::Sender<SubscriptionState>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.stamp.is_here() {
            return;
        }
        let mut table = lock(&self.listener.table);
        if let Some(entry) = table.locks.get_mut(&self.key) {
            entry.waiting -= 1;
            if entry.waiting == 0 {
                table.locks.remove(&self.key);
            }
        }
    }
}

/// Says that nobody serves the table any more, however the task ends.
struct Serving(Arc<ReleaseListener>);

impl Drop for Serving {
    fn drop(&mut self) {
        let mut table = lock(&self.0.table);
        table.serving = false;
        for entry in table.locks.values_mut() {
            entry.confirmed = false;
            entry.update(|state| state.subscribed = false);
        }
    }
}

impl ReleaseListener {
    pub(super) fn new(wanted: bool) -> ReleaseListener {
        ReleaseListener {
            table: Mutex::default(),
            changed: Notify::new(),
            heard: AtomicBool::new(wanted),
            wanted,
            closed: AtomicBool::new(false),
            warned: AtomicBool::new(false),
        }
    }

    /// Whether whoever waits is told of a release. If not, he looks again and again.
    pub(super) fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    fn refuse_all(&self) {
        self.heard.store(false, Ordering::Relaxed);
        for entry in lock(&self.table).locks.values() {
            entry.update(|state| (state.subscribed, state.refused) = (false, true));
        }
    }

    /// What is to be marked: what is not yet, or all of it, but for those.
    fn to_mark(&self, all: bool, but: &HashSet<Vec<u8>>) -> HashSet<Vec<u8>> {
        let table = lock(&self.table);
        let wanted = table.locks.iter().filter(|(key, entry)| (all || !entry.confirmed) && !but.contains(*key));
        wanted.map(|(key, _)| key.clone()).collect()
    }

    /// They are marked; whoever has not been told of it looks again.
    fn confirm(&self, keys: &HashSet<Vec<u8>>) {
        let mut table = lock(&self.table);
        for key in keys {
            if let Some(entry) = table.locks.get_mut(key).filter(|entry| !entry.confirmed) {
                entry.confirmed = true;
                entry.update(|state| (state.subscribed, state.refused) = (true, false));
            }
        }
    }

    fn told(&self, payload: &str) {
        if let Some(entry) =
            from_hex(payload).and_then(|key| lock(&self.table).locks.get(&key).map(|e| e.state.clone()))
        {
            entry.send_modify(|state| state.generation += 1);
        }
    }

    /// Their marks may run out: they are made again, and whoever waits looks again then.
    fn doubt(&self, keys: &HashSet<Vec<u8>>) {
        let mut table = lock(&self.table);
        for key in keys {
            if let Some(entry) = table.locks.get_mut(key) {
                entry.confirmed = false;
            }
        }
    }

    /// Whether the task ends: nobody waits. Whoever comes later starts another one.
    fn ends(&self, serving: &mut Option<Serving>) -> bool {
        let mut table = lock(&self.table);
        if !table.locks.is_empty() {
            return false;
        }
        // at one with the look: whoever comes now must not count on this task
        table.serving = false;
        std::mem::forget(serving.take());
        true
    }
}

/// Listens for the releases of one lock.
pub(super) fn subscribe(shared: &Arc<TableClient>, key: &Key) -> Subscription {
    let listener = &shared.listener;
    let key = key.to_vec();
    if shared.ready().is_err() || !listener.wanted {
        let (sender, state) =
            watch::channel(SubscriptionState { refused: true, generation: 1, ..SubscriptionState::default() });
        return Subscription { state, guard: Box::new(sender) };
    }
    let mut table = lock(&listener.table);
    let entry = table.locks.entry(key.clone()).or_insert_with(|| WaitedLock {
        waiting: 0,
        confirmed: false,
        state: watch::Sender::new(SubscriptionState::default()),
    });
    entry.waiting += 1;
    let (state, sender) = (entry.state.subscribe(), entry.state.clone());
    let starts = !std::mem::replace(&mut table.serving, true);
    drop(table);
    if starts {
        let serving = Serving(listener.clone());
        match runtime::handle() {
            Ok(handle) => {
                handle.spawn(serve(Arc::downgrade(shared), listener.clone(), serving));
            }
            Err(_) => listener.refuse_all(),
        }
    }
    listener.changed.notify_one();
    let guard = Waiting { listener: listener.clone(), key, stamp: shared.connector.stamp, _state: sender };
    Subscription { state, guard: Box::new(guard) }
}

/// Connects and listens while somebody waits.
async fn serve(shared: Weak<TableClient>, listener: Arc<ReleaseListener>, serving: Serving) {
    let mut serving = Some(serving);
    let mut backoff = BACKOFF_MIN;
    loop {
        let Some(strong) = shared.upgrade().filter(|shared| shared.ready().is_ok()) else { return };
        let session = Session::open(&strong).await;
        drop(strong);
        match session {
            Ok(Some(session)) => {
                backoff = BACKOFF_MIN;
                let ended = session.run(&shared, &listener, &mut serving).await;
                if ended {
                    return;
                }
                for entry in lock(&listener.table).locks.values_mut() {
                    entry.confirmed = false;
                    entry.update(|state| state.subscribed = false);
                }
            }
            Ok(None) => {
                let is_news = !listener.warned.swap(true, Ordering::Relaxed);
                if is_news {
                    tracing::warn!(
                        "onelock: announcements do not arrive, as behind a pooler that hands connections from transaction to \
                     transaction; waiters look again and again. Give onelock a connection past the pooler, or write wake=poll"
                    );
                }
                let until = Instant::now() + REFUSED_FOR;
                while Instant::now() < until {
                    listener.refuse_all();
                    let _ = timeout(IDLE, listener.changed.notified()).await;
                    if listener.closed.load(Ordering::Acquire) || listener.ends(&mut serving) {
                        return;
                    }
                }
            }
            Err(failure) => {
                tracing::debug!(why = failure.detail, "onelock: cannot listen");
                if !failure.transient {
                    // the caller's own statements say why; waiters look again and again meanwhile
                    listener.refuse_all();
                }
                let _ = timeout(backoff, listener.changed.notified()).await;
                sleep(backoff / 2).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
                if listener.closed.load(Ordering::Acquire) || listener.ends(&mut serving) {
                    return;
                }
            }
        }
    }
}

/// A connection that listens.
struct Session {
    connection: Arc<Connection>,
    heard: mpsc::UnboundedReceiver<String>,
}

impl Session {
    /// `None`: it hears nothing, not even itself.
    async fn open(shared: &Arc<TableClient>) -> Result<Option<Session>, Failure> {
        let until = clock::now() + shared.connector.limits.connect;
        let (sender, mut heard) = mpsc::unbounded_channel();
        let connection = Arc::new(shared.connector.connect(0, until, Some(sender)).await?);
        shared.admit(&connection, |connection| *lock(&shared.listening) = Arc::downgrade(connection));
        let place = &shared.address;
        let failed = |error: &_| failure::refusal(error, place).failure;
        let word = format!(
            "echo:{}",
            hex(&random::random().map_err(|error| { Failure::transient(error.kind(), error.detail()) })?)
        );
        let listens = timeout(shared.connector.limits.request, connection.client().batch_execute("LISTEN onelock"));
        match listens.await {
            Ok(listens) => listens.map_err(|error| failed(&error))?,
            Err(_) => {
                return Err(Failure::transient(crate::ErrorKind::Unavailable, format!("{place}: no reply in time")));
            }
        }
        // told on another connection, as a release is: behind a pooler one hears at most what one says oneself
        let told: [(&(dyn ToSql + Sync), Type); 1] = [(&word, Type::TEXT)];
        shared.query("SELECT pg_notify('onelock', $1)::text", &told, until).await?;
        let echo = timeout(ECHO, async {
            while let Some(payload) = heard.recv().await {
                if payload == word {
                    return true;
                }
            }
            false
        });
        match echo.await {
            Ok(true) => {
                shared.listener.heard.store(true, Ordering::Relaxed);
                Ok(Some(Session { connection, heard }))
            }
            Ok(false) => {
                Err(Failure::transient(crate::ErrorKind::Unavailable, format!("{place}: the connection ended")))
            }
            Err(_) => {
                // the pooler may give that session to others
                let _ = timeout(shared.connector.limits.request, connection.client().batch_execute("UNLISTEN onelock"))
                    .await;
                Ok(None)
            }
        }
    }

    /// Until the connection ends (`false`), or the task may (`true`).
    async fn run(
        mut self,
        shared: &Weak<TableClient>,
        listener: &Arc<ReleaseListener>,
        serving: &mut Option<Serving>,
    ) -> bool {
        let mut mark_all = Instant::now() + MARK_EVERY;
        // their rows are locked by other sessions
        let (mut stuck, mut stuck_until) = (HashSet::new(), Instant::now());
        let mut idle_since = None;
        loop {
            if listener.closed.load(Ordering::Acquire) {
                return true;
            }
            let now = Instant::now();
            if now >= stuck_until {
                stuck.clear();
            }
            let is_due = now >= mark_all;
            if is_due {
                mark_all = now + MARK_EVERY;
            }
            let keys = listener.to_mark(is_due, &stuck);
            if !keys.is_empty() {
                let Some(strong) = shared.upgrade() else { return true };
                let Some(marked) = self.mark(&strong, listener, &keys).await else { return false };
                listener.confirm(&marked);
                let left: HashSet<Vec<u8>> = keys.difference(&marked).cloned().collect();
                if !left.is_empty() {
                    listener.doubt(&left);
                    stuck.extend(left);
                    stuck_until = Instant::now() + MARK_AGAIN;
                }
            }
            match (lock(&listener.table).locks.is_empty(), idle_since) {
                (false, _) => idle_since = None,
                (true, None) => idle_since = Some(Instant::now()),
                (true, Some(_)) => {}
            }
            if idle_since.is_some_and(|since| since.elapsed() >= IDLE) && listener.ends(serving) {
                return true;
            }
            let next = if stuck.is_empty() { mark_all } else { mark_all.min(stuck_until) };
            tokio::select! {
                payload = self.heard.recv() => match payload {
                    Some(payload) => listener.told(&payload),
                    None => return false,
                },
                () = listener.changed.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
            while let Ok(payload) = self.heard.try_recv() {
                listener.told(&payload);
            }
        }
    }

    /// Says in the rows of these locks that somebody waits, and tells which rows say so now. Meanwhile releases are heard.
    /// `None`: the connection has ended.
    async fn mark(
        &mut self,
        shared: &TableClient,
        listener: &ReleaseListener,
        keys: &HashSet<Vec<u8>>,
    ) -> Option<HashSet<Vec<u8>>> {
        let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&names, Type::BYTEA_ARRAY)];
        let asked = self.connection.client().query_typed(&shared.connector.statements.mark, &parameters);
        let mut asked = std::pin::pin!(timeout(shared.connector.limits.request, asked));
        let done: Result<Vec<Row>, DriverError> = loop {
            tokio::select! {
                done = &mut asked => break done.ok()?,
                payload = self.heard.recv() => listener.told(&payload?),
            }
        };
        match done {
            Ok(rows) => Some(rows.iter().filter_map(|row| row.try_get(0).ok()).collect()),
            Err(error) if failure::refusal(&error, &shared.address).ends_connection => None,
            // a new row is locked, or the table is gone
            Err(_) => Some(HashSet::new()),
        }
    }
}

/// Whether releases would be heard; the connection is closed again.
pub(super) async fn try_out(shared: &Arc<TableClient>) -> Result<bool, Failure> {
    Session::open(shared).await.map(|session| session.is_some())
}
