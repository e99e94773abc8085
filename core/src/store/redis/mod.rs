//! The Redis and Valkey store.
//!
//! | room | is |
//! |---|---|
//! | `address/` | the address of one server, and addresses of several |
//! | `resp/` | the protocol on one connection, without I/O |
//! | `command/` | an operation as a command, its scripts, and its reply as an outcome |
//! | `connection/` | connections for threads, for async tasks, and for the event loops of other languages |
//! | `pubsub/` | subscriptions to the channels on which releases are announced |
//! | `node/` | one server: its connections of each kind, and one operation on them |
//! | `diagnosis/` | looking at servers step by step |
//! | `topology/` | finding the server that serves a lock: Sentinel and cluster |
//!
//! The values, the packing of commands and the parser are redis-rs'. Connections are the store's own, because the time
//! limits, the order of addresses and what is known after a failure matter to a lock.

pub(crate) mod address;
pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod diagnosis;
pub(crate) mod node;
pub(crate) mod options;
pub(crate) mod pubsub;
pub(crate) mod resp;
pub(crate) mod topology;

use std::sync::Arc;

pub use self::address::endpoint::{ConnectionAddr, Endpoint, Protocol, TlsFiles};
pub use self::address::multi::{ClusterSeeds, SentinelConfig};
pub use self::options::{RedisOptions, SHARE_FROM};
pub use self::topology::cluster::ClusterStore;

use self::connection::context::StoreState;
#[cfg(not(target_family = "wasm"))]
use self::connection::deadline::Deadline;
use self::node::{Node, SendOptions};
use self::node::{scan, server_info};
#[cfg(not(target_family = "wasm"))]
use self::topology::failover;
use self::topology::failover::FailoverRetry;
use self::topology::sentinel::SentinelResolver;
#[cfg(not(target_family = "wasm"))]
use super::{BlockingSubscription, Interrupt};
use super::{Boxed, Capabilities, Facts, Scan, Scanned, Store, StoreStats, Subscription};
use crate::error::{Error, ErrorKind};
use crate::machine::{Answer, ClientTag, Failure, Grade, Key, Kind, Op, Outcome, Time, naming};
use crate::sys::clock;
use crate::sys::task::sleep;

/// What a server, a group behind Sentinels and a cluster can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities { together: true, ..Capabilities::all("redis", &Kind::ALL) };

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
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

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

    #[cfg(not(target_family = "wasm"))]
    fn call_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Answer {
        let call = || self.node.call_blocking(op, SendOptions::default(), until, interrupt).answer;
        let mut answer = call();
        if was_replica(&self.node, &answer) {
            let (mut retry, deadline) = (FailoverRetry::new(until), Deadline { until, interrupt });
            while let Some(pause) = retry.pause_after(&answer.outcome, clock::now())
                && !interrupt.interrupted()
            {
                failover::pause_blocking(pause, deadline);
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

    fn subscribe(&self, kind: Kind, key: &Key, client: ClientTag) -> Subscription {
        self.node.subscribe(naming::wake_up_channel(kind, key, client), false)
    }

    #[cfg(not(target_family = "wasm"))]
    fn subscribe_blocking(
        &self,
        kind: Kind,
        key: &Key,
        client: ClientTag,
        until: Time,
        interrupt: &dyn Interrupt,
    ) -> Option<Box<dyn BlockingSubscription>> {
        let deadline = Deadline { until, interrupt };
        let channel = naming::wake_up_channel(kind, key, client);
        Some(Box::new(self.node.threads.subscriptions.subscribe(channel, deadline)?))
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let node = self.node.clone();
        Box::pin(async move {
            let mut retry = FailoverRetry::new(until);
            let mut facts = loop {
                let failure = match server_info::query(&node, until).await {
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

    fn scan(&self, scan: Scan, until: Time) -> Boxed<Result<Scanned, Failure>> {
        let node = self.node.clone();
        Box::pin(async move {
            let cursor = scan.cursor.as_deref().unwrap_or(scan::ENDS);
            let (keys, next) = scan::scan(&node, &scan, cursor, until).await?;
            Ok(Scanned { keys, next })
        })
    }

    fn listening(&self, locks: Vec<(Kind, Key)>, until: Time) -> Boxed<Vec<Option<u64>>> {
        let node = self.node.clone();
        Box::pin(async move { scan::listening(&node, "NUMSUB", &locks, until).await })
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
