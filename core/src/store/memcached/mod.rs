//! The `memcached://` store: each lock is an item of a cache. The server's clock ends a hold.
//!
//! **Best effort.** A cache may remove an item at any time to make room, and forgets all of them when it restarts. There are no
//! fencing tokens, since nothing on such a server grows for good: whoever needs exclusion uses another store.
//!
//! | file | is |
//! |---|---|
//! | `address` | `memcached://host` |
//! | `name`, `item` | the key of a lock's item, and what the item holds |
//! | `protocol` | commands and replies, without I/O |
//! | `connector` | connecting, TLS, logging in; which versions will do |
//! | `connection` | one connection that many callers share |
//! | `lane` | the connection of a client, made anew when it ended |
//! | `operations` | an operation as commands, and their replies as its outcome |
//! | `diagnosis` | what the server says of itself, and a look at it step by step |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;
use tokio::time::timeout;

use self::address::ServerAddress;
use self::connector::CacheConnector;
use self::lane::CacheLane;
use self::operations::Operations;
use super::tls_configs::TlsConfigs;
use super::{
    Boxed, Capabilities, Facts, Scan, Scanned, Store, StoreStats, Subscription, SubscriptionState, foreign_cursor,
};
use crate::ErrorKind;
use crate::config::Options;
use crate::config::credentials::Provider;
use crate::machine::{Answer, ClientTag, Failure, Key, Kind, Op, Outcome, Reply, Time};
use crate::sys::clock;
use crate::sys::fork::ProcessStamp;

pub(crate) mod address;
mod connection;
mod connector;
mod diagnosis;
mod item;
mod lane;
mod name;
mod operations;
mod protocol;

/// What it can do. Nothing on the server grows for good, nothing tells of a release, and a list of items is no part of what
/// a server promises.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    fencing: false,
    list: false,
    min_hold: false,
    min_replicas: false,
    wake_ups: false,
    ..Capabilities::all("memcached", &[Kind::Mutex, Kind::Reentrant])
};

/// One client's access to the locks of a server.
pub(crate) struct MemcachedStore {
    shared: Arc<ServerClient>,
}

struct ServerClient {
    connector: CacheConnector,
    lane: CacheLane,
    closed: AtomicBool,
    commands_sent: AtomicU64,
    reconnects: AtomicU64,
}

impl MemcachedStore {
    fn new(server: ServerAddress, options: &Options) -> MemcachedStore {
        let connector = CacheConnector {
            place: server.to_string(),
            server,
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            credentials: options.credentials.as_ref().map(Provider::source),
            tls_configs: TlsConfigs::default(),
            stamp: ProcessStamp::here(),
        };
        let shared = ServerClient {
            connector,
            lane: CacheLane::default(),
            closed: AtomicBool::new(false),
            commands_sent: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
        };
        MemcachedStore { shared: Arc::new(shared) }
    }
}

impl ServerClient {
    /// Before anything is sent: not closed, and not inherited.
    fn ready(&self) -> Result<(), Failure> {
        let place = &self.connector.place;
        if !self.connector.stamp.is_here() {
            let detail = format!("{place} was connected by the parent process");
            return Err(Failure::lasting(ErrorKind::Forked, detail));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Failure::lasting(ErrorKind::Closed, format!("{place} was closed")));
        }
        Ok(())
    }

    async fn call(self: &Arc<Self>, op: &Op, until: Time) -> Answer {
        let answer = |sent_at, connection, outcome: Outcome<Reply>| Answer {
            sent_at,
            received_at: clock::now(),
            connection,
            server_time_us: None,
            outcome,
        };
        if !operations::fits(op) {
            let detail = "memcached:// keeps a lock for less than 30 days at a time, ttl and lock_delay together";
            let failure = Failure::lasting(ErrorKind::InvalidArgument, detail);
            return answer(clock::now(), 0, Outcome::NotApplied(failure));
        }
        let begun = clock::now();
        let connection = match self.connected(until).await {
            Ok(connection) => connection,
            Err(failure) => return answer(begun, 0, Outcome::NotApplied(failure)),
        };
        self.commands_sent.fetch_add(1, Ordering::Relaxed);
        let sent_at = clock::now();
        let limit = until.since(sent_at).min(self.connector.request_timeout);
        let operations = Operations { connection: &connection, place: &self.connector.place };
        let done = timeout(limit, operations.carry_out(op)).await;
        let outcome = done.unwrap_or_else(|_| {
            let detail = format!("{}: no reply in time", self.connector.place);
            Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, detail))
        });
        answer(sent_at, connection.number, outcome)
    }
}

impl Store for MemcachedStore {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.call(&op, until).await })
    }

    fn prepare(&self, _op: &Op, until: Time) -> Boxed<Result<(), Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.connected(until).await.map(drop) })
    }

    fn connection(&self) -> u64 {
        if self.shared.connector.stamp.is_here() { self.shared.lane.number() } else { 0 }
    }

    /// Nothing tells of a release: whoever waits looks again and again.
    fn subscribe(&self, _kind: Kind, _key: &Key, _client: ClientTag) -> Subscription {
        let refused = SubscriptionState { refused: true, generation: 1, ..SubscriptionState::default() };
        let (sender, state) = watch::channel(refused);
        Subscription { state, guard: Box::new(sender) }
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move { diagnosis::facts(&shared, until).await })
    }

    /// Refused above the store, by its capabilities.
    fn scan(&self, _scan: Scan, _until: Time) -> Boxed<Result<Scanned, Failure>> {
        Box::pin(std::future::ready(Err(foreign_cursor())))
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            commands_sent: self.shared.commands_sent.load(Ordering::Relaxed),
            reconnects: self.shared.reconnects.load(Ordering::Relaxed),
        }
    }

    fn address(&self) -> &str {
        &self.shared.connector.place
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        // a child says nothing on what it inherited, and its parent's locks may be closed for ever
        if self.shared.connector.stamp.is_here() {
            self.shared.lane.close();
        }
    }
}
