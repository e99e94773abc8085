//! The `etcd://` store: each lock is a directory of keys, and the oldest key holds it. A lease of its own ends each key.
//!
//! The layout is that of Go's `concurrency.Mutex` and of `etcdctl lock`, so they share locks with this library. Whoever waits
//! has a key, too, and watches the one before it: first come, first served.
//!
//! Each claim has a lease of its own, whose number comes from the name and the token. So the server ends every hold by itself, whether or
//! not its client lives; a lease that was revoked keeps a request that was under way from making the key later; and no
//! request needs more than the token.
//!
//! | file | is |
//! |---|---|
//! | `address`, `cluster` | `etcd://user@host/namespace`, and what it names |
//! | `protobuf`, `messages`, `grpc` | etcd's API on the wire |
//! | `connection` | connecting, TLS, who logs in |
//! | `lane` | the connection of a client, made anew when it ended |
//! | `names` | names as keys, tokens as leases |
//! | `request` | one operation on a connection: calls, keepalives, what may have been written |
//! | `claiming` | taking a lock, and keeping a place in its queue |
//! | `renewing` | renewing holds, and giving them longer leases |
//! | `operations` | the other operations |
//! | `failure` | what errors mean |
//! | `listener` | wake-ups: the watch on the key before one's own |
//! | `diagnosis` | a look at the cluster step by step, and how strong its fencing tokens are |

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::timeout;

use self::cluster::Cluster;
use self::connection::{ClusterConnection, ClusterConnector, ClusterLimits};
use self::lane::ClusterLane;
use self::listener::WatchTargets;
use self::request::CallRequest;
use super::{Boxed, Capabilities, Facts, Scan, Scanned, Store, StoreStats, Subscription};
use crate::ErrorKind;
use crate::config::Options;
use crate::config::credentials::Provider;
use crate::machine::{Answer, Claim, ClientTag, Failure, Key, Kind, Op, Outcome, Reply, Time};
use crate::sys::{clock, lock};

pub(crate) mod address;
mod claiming;
mod cluster;
mod connection;
mod diagnosis;
mod failure;
mod grpc;
#[cfg(test)]
mod keepalive_tests;
mod lane;
mod listener;
mod messages;
mod names;
mod operations;
mod protobuf;
mod renewing;
mod request;

/// The shortest lease that is asked for, in seconds: servers grant no shorter one.
const LEASE_MIN_S: u64 = 2;

/// What it can do. A hold cannot be handed over: its token names its lease. Nor can its key stay behind.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    attach: false,
    min_hold: false,
    min_replicas: false,
    place_min: Some(Duration::from_secs(LEASE_MIN_S)),
    ..Capabilities::all("etcd", &[Kind::Mutex, Kind::Reentrant])
};

/// One client's access to the locks of a cluster.
pub(crate) struct EtcdStore {
    shared: Arc<ClusterClient>,
}

/// What is known of a hold beside its token.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The revision at which its key was made.
    created: i64,
    /// How many longer leases it has got.
    generation: u32,
}

struct ClusterClient {
    connector: ClusterConnector,
    lane: ClusterLane,
    listeners: Arc<WatchTargets>,
    holds: Mutex<HashMap<Claim, Held>>,
    closed: AtomicBool,
    subscriptions: AtomicU64,
    commands_sent: AtomicU64,
    address: String,
}

impl EtcdStore {
    fn new(cluster: Cluster, options: &Options) -> EtcdStore {
        let limits = ClusterLimits { connect: options.connect_timeout, request: options.request_timeout };
        let address = cluster.to_string();
        let credentials = options.credentials.as_ref().map(Provider::source);
        let shared = Arc::new(ClusterClient {
            connector: ClusterConnector::new(cluster, limits, credentials),
            lane: ClusterLane::default(),
            listeners: Arc::default(),
            holds: Mutex::default(),
            closed: AtomicBool::new(false),
            subscriptions: AtomicU64::new(0),
            commands_sent: AtomicU64::new(0),
            address,
        });
        EtcdStore { shared }
    }
}

impl ClusterClient {
    /// Before anything is sent: not closed, and not inherited.
    fn ready(&self) -> Result<(), Failure> {
        if !self.connector.stamp.is_here() {
            let detail = format!("{} was connected by the parent process", self.address);
            return Err(Failure::lasting(ErrorKind::Forked, detail));
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Failure::lasting(ErrorKind::Closed, format!("{} was closed", self.address)));
        }
        Ok(())
    }

    fn silent(&self, words: &str) -> Failure {
        Failure::transient(ErrorKind::Unavailable, format!("{}: {words}", self.address))
    }

    async fn call(self: &Arc<Self>, op: &Op, until: Time) -> Answer {
        let answer = |sent_at, outcome: Outcome<Reply>| Answer {
            sent_at,
            received_at: clock::now(),
            connection: 0,
            server_time_us: None,
            outcome,
        };
        let mut logged_in_again = false;
        loop {
            let begun = clock::now();
            let connection = match self.connected(until).await {
                Ok(connection) => connection,
                Err(failure) => return answer(begun, Outcome::NotApplied(failure)),
            };
            let sent_at = clock::now();
            connection.sent(sent_at);
            let limit = until.since(sent_at).min(self.connector.limits.request);
            let request = CallRequest::new(self, &connection, sent_at + limit);
            let done = timeout(limit, request.carry_out(op)).await;
            connection.heard(&done, sent_at, self.connector.limits.request);
            let outcome = match done {
                Ok(Ok((since, reply))) => return answer(since, Outcome::Applied(reply)),
                Ok(Err(error)) => {
                    let refusal = failure::refusal(&error, &connection.place);
                    if refusal.ends_connection {
                        connection.retire();
                    }
                    if refusal.login == failure::LoginState::Outdated && !logged_in_again && !request.may_have_written()
                    {
                        logged_in_again = true;
                        continue;
                    }
                    refusal.failure
                }
                Err(_) => self.silent("no reply in time"),
            };
            let outcome =
                if request.may_have_written() { Outcome::Indeterminate(outcome) } else { Outcome::NotApplied(outcome) };
            return answer(sent_at, outcome);
        }
    }

    /// The answer to a question that changes nothing.
    async fn query<T, F>(
        self: &Arc<Self>,
        until: Time,
        ask: impl Fn(Arc<ClusterConnection>, Time) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, grpc::CallError>>,
    {
        let mut logged_in_again = false;
        loop {
            let connection = self.connected(until).await?;
            let sent_at = clock::now();
            connection.sent(sent_at);
            let limit = until.since(sent_at).min(self.connector.limits.request);
            let done = timeout(limit, ask(connection.clone(), sent_at + limit)).await;
            connection.heard(&done, sent_at, self.connector.limits.request);
            match done {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) => {
                    let refusal = failure::refusal(&error, &connection.place);
                    if refusal.ends_connection {
                        connection.retire();
                    }
                    if refusal.login == failure::LoginState::Outdated && !logged_in_again {
                        logged_in_again = true;
                        continue;
                    }
                    return Err(refusal.failure);
                }
                Err(_) => return Err(self.silent("no reply in time")),
            }
        }
    }
}

impl Store for EtcdStore {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.call(&op, until).await })
    }

    fn settled(&self, claim: &Claim) {
        // its parent's locks may be closed for ever in a child
        if self.shared.connector.stamp.is_here() {
            lock(&self.shared.holds).remove(claim);
        }
    }

    fn prepare(&self, _op: &Op, until: Time) -> Boxed<Result<(), Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.connected(until).await.map(drop) })
    }

    fn subscribe(&self, kind: Kind, key: &Key, _client: ClientTag) -> Subscription {
        listener::subscribe(&self.shared, kind, key)
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move { diagnosis::facts(&shared, until).await })
    }

    fn scan(&self, scan: Scan, until: Time) -> Boxed<Result<Scanned, Failure>> {
        let shared = self.shared.clone();
        Box::pin(async move { operations::scan(&shared, &scan, until).await })
    }

    /// Whoever waits has a place.
    fn listening(&self, locks: Vec<(Kind, Key)>, _until: Time) -> Boxed<Vec<Option<u64>>> {
        Box::pin(std::future::ready(vec![Some(0); locks.len()]))
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            commands_sent: self.shared.commands_sent.load(Ordering::Relaxed),
            reconnects: self.shared.lane.made.load(Ordering::Relaxed).saturating_sub(1),
        }
    }

    fn address(&self) -> &str {
        &self.shared.address
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        // a child says nothing on what it inherited, and its parent's locks may be closed for ever
        if self.shared.connector.stamp.is_here() {
            self.shared.lane.close();
        }
    }
}
