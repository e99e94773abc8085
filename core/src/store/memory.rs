//! The `memory://` store: a lock server inside this process, for users' unit tests and for locks between tasks.
//!
//! The server is the [`Model`] behind a mutex that is held for one operation, so no call ever blocks or waits.
//! `memory://` is private to its client; `memory://NAME` is shared by all clients of the process that use the name, and
//! ends with the last of them. Time is the monotonic clock, anchored at the wall clock once: a step of the wall clock
//! neither ends a lease nor sends fencing tokens back.
//!
//! Expiry announces nothing, as on a real server: a waiter learns of it from the remaining time it was told.
//!
//! After a fork the child has a copy of the state as it was; the two go separate ways. Leases do not cross a fork.

mod address;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use once_cell::race::OnceBox;
use tokio::sync::watch;

pub(crate) use self::address::read as read_address;
use super::{
    Boxed, Capabilities, Facts, Interrupt, Scan, Scanned, Store, StoreStats, Subscription, SubscriptionState,
    foreign_cursor,
};
use crate::ErrorKind;
use crate::machine::model::{DirectGrant, Model};
use crate::machine::{
    Answer, Claim, ClientTag, Failure, Grade, GrantNotice, Key, Kind, Op, Outcome, Reply, Time, glob,
};
use crate::sys::clock;

/// What it can do: whatever a server can, but for replicas.
pub(crate) const CAPABILITIES: Capabilities =
    Capabilities { min_replicas: false, together: true, ..Capabilities::all("memory", &Kind::ALL) };

/// With fewer keys than this the server does not remove unneeded counters.
const COMPACT_FLOOR: usize = 1024;

/// One client's access to a lock server in memory.
pub struct MemoryStore {
    server: Arc<MemoryServer>,
    /// Tells this client's subscriptions from those of others that share the server.
    client: u64,
    address: String,
    closed: AtomicBool,
    commands_sent: AtomicU64,
}

struct MemoryServer {
    state: Mutex<MemoryState>,
}

/// The channel of a lock, of a kind that queues that of one client.
type Channel = (Kind, Key, ClientTag);

fn channel(kind: Kind, key: &Key, client: ClientTag) -> Channel {
    (kind, key.clone(), if kind.row().queues { client } else { ClientTag::default() })
}

struct MemoryState {
    model: Model,
    compact_at: usize,
    subscribers: BTreeMap<Channel, Vec<MemorySubscriber>>,
    numbers: u64,
}

/// One subscription.
struct MemorySubscriber {
    number: u64,
    client: u64,
    state: Arc<watch::Sender<SubscriptionState>>,
}

/// Ends a subscription when dropped.
struct MemorySubscriptionGuard {
    server: Weak<MemoryServer>,
    channel: Channel,
    number: u64,
    /// Keeps the channel open, so that a waiter whose client was closed waits for nothing instead of seeing a closed
    /// channel again and again.
    _sender: Arc<watch::Sender<SubscriptionState>>,
}

/// The named servers of this process. The last client of a name removes it.
static NAMED: Mutex<BTreeMap<String, Weak<MemoryServer>>> = Mutex::new(BTreeMap::new());

/// A panic elsewhere leaves every state here whole: each change is a single step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock of all memory servers: the wall clock as it was at the first look, moved on by the monotonic clock.
fn server_time_us(now: Time) -> u64 {
    // not behind a lock, which a forked child may find closed
    static ANCHOR: OnceBox<(u64, Time)> = OnceBox::new();
    let (wall_us, anchored_at) = *ANCHOR.get_or_init(|| Box::new((clock::wall_us(), now)));
    wall_us + now.since(anchored_at).as_micros() as u64
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    if text.len().is_multiple_of(2) { digits.collect() } else { None }
}

impl MemoryServer {
    fn new() -> Arc<MemoryServer> {
        let state =
            MemoryState { model: Model::new(), compact_at: COMPACT_FLOOR, subscribers: BTreeMap::new(), numbers: 0 };
        Arc::new(MemoryServer { state: Mutex::new(state) })
    }
}

impl MemoryState {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn apply(&mut self, now_us: u64, op: &Op) -> Outcome<Reply> {
        if let Op::ReleaseMany { claims } = op {
            // each is announced
            let one = |claim: &Claim| match self.apply(now_us, &Op::Release { claim: claim.clone() }) {
                Outcome::Applied(reply) => reply,
                Outcome::NotApplied(_) | Outcome::Indeterminate(_) => Reply::Released(false),
            };
            return Outcome::Applied(Reply::Many(claims.iter().map(one).collect()));
        }
        let reply = self.model.apply(now_us, op);
        if self.model.len() > self.compact_at {
            self.model.compact(now_us);
            self.compact_at = COMPACT_FLOOR.max(self.model.len() * 2);
        }
        for grant in &reply.granted {
            let DirectGrant { client, claim, fence } = grant;
            let notice = GrantNotice { token: claim.token.clone(), number: *fence, server_us: now_us };
            self.wake(&channel(claim.kind, &claim.key, *client), Some(&Arc::new(notice)));
        }
        if let Some((kind, key)) = &reply.announced
            && self.wake(&channel(*kind, key, ClientTag::default()), None)
            && matches!(op, Op::Release { .. })
        {
            return Outcome::Applied(Reply::ReleasedToWaiters);
        }
        reply.outcome
    }
}

impl MemoryState {
    /// Says whether somebody listens.
    fn wake(&self, channel: &Channel, granted: Option<&Arc<GrantNotice>>) -> bool {
        let Some(subscribers) = self.subscribers.get(channel) else { return false };
        for subscriber in subscribers {
            subscriber.state.send_modify(|state| {
                state.granted = granted.or(state.granted.as_ref()).cloned();
                state.generation += 1;
            });
        }
        !subscribers.is_empty()
    }
}

impl MemoryStore {
    /// `memory://`: a server that nobody else sees.
    pub fn private() -> MemoryStore {
        MemoryStore::on(MemoryServer::new(), "memory://".to_owned())
    }

    /// `memory://NAME`: the server of that name, made if no client of this process has it now.
    pub fn named(name: &str) -> MemoryStore {
        let mut named = lock(&NAMED);
        let server = named.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let server = MemoryServer::new();
            named.insert(name.to_owned(), Arc::downgrade(&server));
            server
        });
        drop(named);
        MemoryStore::on(server, format!("memory://{name}"))
    }

    fn on(server: Arc<MemoryServer>, address: String) -> MemoryStore {
        let client = lock(&server.state).number();
        MemoryStore { server, client, address, closed: AtomicBool::new(false), commands_sent: AtomicU64::new(0) }
    }

    /// Does to the server what other clients and operators do (`DEL`, `FLUSHALL` ...), or looks at its keys: for tests.
    /// The closure also gets the server's clock in microseconds.
    pub fn with_model<R>(&self, look: impl FnOnce(&mut Model, u64) -> R) -> R {
        let mut state = lock(&self.server.state);
        look(&mut state.model, server_time_us(clock::now()))
    }

    /// How many subscriptions of any client stand on the server: for tests of leaks.
    pub fn subscriptions(&self) -> usize {
        lock(&self.server.state).subscribers.values().map(Vec::len).sum()
    }

    fn apply(&self, op: &Op) -> Answer {
        if self.is_closed() {
            let at = clock::now();
            let outcome = Outcome::NotApplied(self.closed_failure());
            return Answer { sent_at: at, received_at: at, connection: 1, server_time_us: None, outcome };
        }
        self.commands_sent.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.server.state);
        // read under the lock: the server's clock does not go back between two operations
        let at = clock::now();
        let now_us = server_time_us(at);
        let outcome = state.apply(now_us, op);
        Answer { sent_at: at, received_at: at, connection: 1, server_time_us: Some(now_us), outcome }
    }

    /// A cursor is the last key that was looked at, in hex: keys are looked at in the order of their bytes.
    fn step(&self, scan: &Scan) -> Result<Scanned, Failure> {
        if self.is_closed() {
            return Err(self.closed_failure());
        }
        let after = scan.cursor.as_deref().map(|cursor| from_hex(cursor).ok_or_else(foreign_cursor)).transpose()?;
        self.commands_sent.fetch_add(1, Ordering::Relaxed);
        let state = lock(&self.server.state);
        let (seen, more) = state.model.keys_after(server_time_us(clock::now()), after.as_deref(), scan.count as usize);
        let next = seen.last().filter(|_| more).map(|key| hex(key));
        let keys = seen.into_iter().filter(|key| glob::matches(&scan.pattern, key)).collect();
        Ok(Scanned { keys, next })
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn closed_failure(&self) -> Failure {
        Failure::lasting(ErrorKind::Closed, format!("{} was closed", self.address))
    }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn call(&self, op: Op, _until: Time) -> Boxed<Answer> {
        // carried out at once, as a request that is handed to a connection would be: a dropped future loses the answer only
        let answer = self.apply(&op);
        Box::pin(std::future::ready(answer))
    }

    fn call_blocking(&self, op: &Op, _until: Time, _interrupt: &dyn Interrupt) -> Answer {
        self.apply(op)
    }

    fn connection(&self) -> u64 {
        1
    }

    fn subscribe(&self, kind: Kind, key: &Key, client: ClientTag) -> Subscription {
        let channel = channel(kind, key, client);
        let mut state = lock(&self.server.state);
        let number = state.number();
        // checked under the lock that `close` takes too: a subscription either is there for `close` to end, or starts
        // ended
        let subscribed = !self.is_closed();
        let mut first = SubscriptionState { generation: 1, ..SubscriptionState::default() };
        if subscribed {
            first.confirm(number);
        }
        let (sender, receiver) = watch::channel(first);
        let sender = Arc::new(sender);
        if subscribed {
            let entry = MemorySubscriber { number, client: self.client, state: sender.clone() };
            state.subscribers.entry(channel.clone()).or_default().push(entry);
            state.model.listen(&channel.1, channel.2, true);
        }
        drop(state);
        let guard = MemorySubscriptionGuard { server: Arc::downgrade(&self.server), channel, number, _sender: sender };
        Subscription { state: receiver, guard: Box::new(guard) }
    }

    fn facts(&self, _until: Time) -> Boxed<Result<Facts, Failure>> {
        let facts = if self.is_closed() {
            Err(self.closed_failure())
        } else {
            Ok(Facts {
                grade: Grade::ClockBounded,
                warnings: Vec::new(),
                dangers: Vec::new(),
                server: "memory".to_owned(),
            })
        };
        Box::pin(std::future::ready(facts))
    }

    fn scan(&self, scan: Scan, _until: Time) -> Boxed<Result<Scanned, Failure>> {
        Box::pin(std::future::ready(self.step(&scan)))
    }

    fn listening(&self, locks: Vec<(Kind, Key)>, _until: Time) -> Boxed<Vec<Option<u64>>> {
        let state = lock(&self.server.state);
        // each process counts once on a real server; here it is each client
        let clients = |subscribers: &Vec<MemorySubscriber>| {
            subscribers.iter().map(|subscriber| subscriber.client).collect::<BTreeSet<_>>().len() as u64
        };
        let one = |(kind, key): &(Kind, Key)| {
            let listens = kind.who_listens();
            if listens.row().queues {
                return Some(0);
            }
            let channel = channel(listens, key, ClientTag::default());
            Some(state.subscribers.get(&channel).map_or(0, clients))
        };
        let listening = locks.iter().map(one).collect();
        Box::pin(std::future::ready(listening))
    }

    fn stats(&self) -> StoreStats {
        StoreStats { commands_sent: self.commands_sent.load(Ordering::Relaxed), reconnects: 0 }
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn close(&self) {
        let mut state = lock(&self.server.state);
        self.closed.store(true, Ordering::Release);
        for subscribers in state.subscribers.values_mut() {
            for subscriber in subscribers.iter().filter(|subscriber| subscriber.client == self.client) {
                subscriber.state.send_modify(|state| {
                    state.lose();
                    state.generation += 1;
                });
            }
            subscribers.retain(|subscriber| subscriber.client != self.client);
        }
        let MemoryState { subscribers, model, .. } = &mut *state;
        subscribers.retain(|(_, key, client), subscribers| {
            if subscribers.is_empty() {
                model.listen(key, *client, false);
            }
            !subscribers.is_empty()
        });
    }
}

impl Drop for MemorySubscriptionGuard {
    fn drop(&mut self) {
        let Some(server) = self.server.upgrade() else { return };
        let mut state = lock(&server.state);
        if let Some(subscribers) = state.subscribers.get_mut(&self.channel) {
            subscribers.retain(|subscriber| subscriber.number != self.number);
            if subscribers.is_empty() {
                state.subscribers.remove(&self.channel);
                state.model.listen(&self.channel.1, self.channel.2, false);
            }
        }
    }
}

impl Drop for MemoryServer {
    fn drop(&mut self) {
        // the strong count is zero by now, so this server's own entry is among those that cannot be upgraded
        lock(&NAMED).retain(|_, server| server.strong_count() > 0);
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
