//! The Redis and Valkey store.
//!
//! | file | is |
//! |---|---|
//! | `endpoint`, `hosts` | the address of one server; addresses of several |
//! | `scripts`, `scripts/*.lua` | what runs on the server: one script per operation |
//! | `request`, `reply`, `refusal` | an operation as a command, and back: the reply, or what a refusal means |
//! | `replies`, `plain`, `value` | replies from a socket, the usual ones by a short way, and small questions to them |
//! | `handshake`, `login` | the first words on a connection, and who logs in |
//! | `dial`, `pipe`, `link` | async: make a connection, share it between tasks, replace it when it breaks |
//! | `wire`, `line`, `lines` | blocking: a socket, a connection driven by the calling thread, the pool of them |
//! | `background`, `pace` | the work of a shared connection, of which callers may do a step themselves; its timers |
//! | `berth`, `berths`, `ticket` | a connection that the event loop of another language reads, one for each loop, and a request on it |
//! | `crowd`, `carpool`, `car` | many blocking callers at once: connections that they share, and one of them reads for all |
//! | `subscriber`, `sharded`, `listen` | subscriptions: how they are made, and who wants which |
//! | `lookout` | a waiting thread's own subscription |
//! | `node` | one server: its connections of either way, and one operation on them |
//! | `member` | what one server of several (Redlock) needs besides |
//! | `replicas` | waiting until replicas have confirmed a grant |
//! | `inquiry`, `scout` | questions about who serves what; which server is the master, by its Sentinels |
//! | `pursuit` | asking again while a master is being replaced |
//! | `redirect`, `cluster/` | what a node says that doesn't serve a slot; the store of a whole cluster |
//! | `facts` | what the server says about itself |
//! | `socket`, `tls`, `certificates`, `shared` | what both ways to the socket share |
//!
//! Wire format and multiplexing are redis-rs'. Connections are made here, because the time limits, the order of addresses
//! and what is known after a failure matter to a lock.

mod background;
mod berth;
mod berths;
mod car;
mod carpool;
mod certificates;
mod cluster;
mod crowd;
mod dial;
pub(crate) mod endpoint;
pub(crate) mod facts;
mod forms;
mod handshake;
mod hosts;
mod inquiry;
pub(crate) mod line;
mod lines;
mod link;
mod listen;
mod login;
mod lookout;
pub(crate) mod member;
pub(crate) mod node;
mod pace;
mod paced;
mod pipe;
mod plain;
mod pursuit;
mod redirect;
pub(crate) mod refusal;
mod replicas;
mod replies;
mod reply;
pub(crate) mod request;
mod scout;
mod scripts;
mod sharded;
pub(crate) mod shared;
pub(crate) mod socket;
mod subscriber;
mod ticket;
mod tls;
mod value;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

pub use cluster::ClusterStore;
pub use endpoint::{ConnectionAddr, Endpoint, Protocol, TlsFiles};
pub use hosts::{ClusterSeeds, SentinelConfig};

use self::line::Deadline;
use self::node::{Node, SendOptions};
use self::pursuit::FailoverRetry;
use self::scout::SentinelResolver;
use self::shared::StoreState;
use crate::backend::{
    BlockingSubscription, Boxed, CredentialsSource, Facts, Interrupt, Notify, Secret, Store, StoreStats, Subscription,
};
use crate::driver::clock;
use crate::error::{Error, ErrorKind};
use crate::machine::{Answer, Failure, Grade, Key, Kind, Op, Outcome, Time, naming};

/// The options of a store. What the address says takes precedence.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long making a connection may take, name resolution and TLS included.
    pub connect_timeout: Duration,
    /// How long a reply may take. A slower connection is closed.
    pub request_timeout: Duration,
    /// The name that `CLIENT LIST` shows; set where the server and the user's permissions allow it.
    pub client_name: Option<String>,
    /// Certificate authorities to believe, PEM; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate chain, PEM.
    pub cert_file: Option<PathBuf>,
    /// The client's private key, PEM.
    pub key_file: Option<PathBuf>,
    /// Accept any certificate. For experiments only.
    pub tls_insecure: bool,
    /// From this many concurrent blocking callers on, they share connections, until half of them have gone: see
    /// [`SHARE_FROM`]. By default they never do.
    pub share_from: usize,
    /// How a cluster's releases are announced and heard.
    pub notify: Notify,
    /// How many replicas must confirm a grant; 0 for none.
    pub min_replicas: u32,
    /// How long the replicas may take.
    pub replica_timeout: Duration,
    /// The user that Sentinels know; `None` for their default user.
    pub sentinel_username: Option<String>,
    /// The password that Sentinels ask for.
    pub sentinel_password: Option<Secret>,
    /// Whether Sentinels are spoken to over TLS.
    pub sentinel_tls: bool,
    /// Supplies user and password of each new connection to a server, Sentinels excepted; `None` for those of the
    /// address.
    pub credentials: Option<Arc<CredentialsSource>>,
}

/// With this many threads, connections whose requests travel together are faster than one connection each, which costs
/// the server two system calls for every request. Measured with 2 to 64 threads on two processors.
pub const SHARE_FROM: usize = 8;

impl Default for RedisOptions {
    fn default() -> RedisOptions {
        RedisOptions {
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(1),
            client_name: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            tls_insecure: false,
            share_from: usize::MAX,
            notify: Notify::default(),
            min_replicas: 0,
            replica_timeout: Duration::from_secs(1),
            sentinel_username: None,
            sentinel_password: None,
            sentinel_tls: false,
            credentials: None,
        }
    }
}

/// Locks on one Redis or Valkey server, 6.2 or newer: a fixed one, or the present master of a group with Sentinels.
pub struct RedisStore {
    node: Arc<Node>,
}

impl RedisStore {
    /// A store for the server at `address` (see [`Endpoint::parse`]). No I/O happens; a bad address is `InvalidArgument`.
    pub fn new(address: &str, options: RedisOptions) -> Result<RedisStore, Error> {
        Ok(RedisStore::at(Endpoint::parse(address, &options)?, options))
    }

    /// A store for the server at `endpoint`. No I/O happens.
    pub fn at(endpoint: Endpoint, options: RedisOptions) -> RedisStore {
        RedisStore { node: Arc::new(Node::at(endpoint, options, Arc::new(StoreState::default()), 0)) }
    }

    /// A store for the master of a group, wherever its Sentinels say that it is. No I/O happens.
    pub fn with_sentinels(group: SentinelConfig, options: RedisOptions) -> RedisStore {
        RedisStore { node: Arc::new(Node::with_sentinels(SentinelResolver::new(group, options.clone()), options)) }
    }

    fn state(&self) -> &StoreState {
        &self.node.context.store_state
    }
}

impl Store for RedisStore {
    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let node = self.node.clone();
        Box::pin(async move {
            let answer = node.call_from_loop(&op, SendOptions::default(), until).await.answer;
            // boxed, so that a call without a failover is small
            if was_replica(&node, &answer) {
                Box::pin(retry_on_new_master(&node, &op, until, answer)).await
            } else {
                answer
            }
        })
    }

    fn call_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Answer {
        let call = || self.node.call_blocking(op, SendOptions::default(), until, interrupt).answer;
        let mut answer = call();
        if was_replica(&self.node, &answer) {
            let (mut retry, deadline) = (FailoverRetry::new(until), Deadline { until, interrupt });
            while let Some(pause) = retry.pause_after(&answer.outcome, clock::now())
                && !interrupt.interrupted()
            {
                pursuit::pause_blocking(pause, deadline);
                answer = call();
            }
            answer = retry.final_answer(answer);
        }
        answer
    }

    fn connection(&self) -> u64 {
        // an acquire that waits for replicas uses a dedicated connection, which an undo does not follow; a request from
        // an event loop uses the loop's own connection
        let alone = self.node.context.options.min_replicas > 0 || self.node.event_loop_connection().is_some();
        if alone { 0 } else { self.node.manager.number() }
    }

    fn subscribe(&self, kind: Kind, key: &Key) -> Subscription {
        self.node.subscribe(naming::channel(kind, key), false)
    }

    fn subscribe_blocking(
        &self,
        kind: Kind,
        key: &Key,
        until: Time,
        interrupt: &dyn Interrupt,
    ) -> Option<Box<dyn BlockingSubscription>> {
        let deadline = Deadline { until, interrupt };
        Some(Box::new(self.node.blocking_subscriptions.subscribe(naming::channel(kind, key), deadline)?))
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let node = self.node.clone();
        Box::pin(async move {
            let mut retry = FailoverRetry::new(until);
            let mut facts = loop {
                let failure = match facts::query(&node, until).await {
                    Ok(facts) => break facts,
                    Err(failure) => failure,
                };
                let pause = if node.can_move() { retry.pause_after_failure(&failure, clock::now()) } else { None };
                let Some(pause) = pause else { return Err(retry.final_failure(failure)) };
                sleep(pause).await;
            };
            if node.can_move() {
                facts.grade = facts.grade.min(Grade::BestEffort);
            }
            Ok(facts)
        })
    }

    fn stats(&self) -> StoreStats {
        self.state().stats()
    }

    fn address(&self) -> &str {
        &self.node.context.name
    }

    fn close(&self) {
        self.state().close();
        self.node.close();
    }
}

/// Repeats a call whose server has become a replica, until the new master answers.
async fn retry_on_new_master(node: &Arc<Node>, op: &Op, until: Time, mut answer: Answer) -> Answer {
    let mut retry = FailoverRetry::new(until);
    while let Some(pause) = retry.pause_after(&answer.outcome, clock::now()) {
        sleep(pause).await;
        answer = node.call_from_loop(op, SendOptions::default(), until).await.answer;
    }
    retry.final_answer(answer)
}

/// Whether a replica answered, and another server may be the master.
fn was_replica(node: &Node, answer: &Answer) -> bool {
    let replica = matches!(&answer.outcome, Outcome::NotApplied(failure) if failure.kind == ErrorKind::ReadOnly);
    replica && node.can_move()
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.close();
    }
}
