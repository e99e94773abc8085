//! One of several independent stores: a Redis server, or any other store that can vote. Servers are kept apart from the rest,
//! so that a majority of nothing else stays as fast as it can be.

use std::sync::Arc;

use redis::Value;

use super::SEND_OPTIONS;
use crate::error::ErrorKind;
use crate::machine::{Answer, ClientTag, Failure, Key, Kind, Op, Outcome, Reply, Time, naming};
use crate::store::redis::node::{Node, SendOptions, scan, server_info};
use crate::store::{Facts, Scan, Scanned, SharedStore, StoreStats, Subscription};

/// One that votes.
#[derive(Clone)]
pub(crate) enum QuorumMember {
    /// A Redis server.
    Redis(Arc<Node>),
    /// Another store.
    Any(SharedStore),
}

impl QuorumMember {
    /// Where it is, for messages.
    pub(crate) fn name(&self) -> &str {
        match self {
            QuorumMember::Redis(node) => &node.context.name,
            QuorumMember::Any(store) => store.address(),
        }
    }

    /// The number of its present ordered connection.
    pub(crate) fn connection(&self) -> u64 {
        match self {
            QuorumMember::Redis(node) => node.manager.number(),
            QuorumMember::Any(store) => store.connection(),
        }
    }

    /// Connects if need be: nothing is sent before.
    pub(crate) async fn prepare(&self, op: &Op, until: Time) -> Result<(), Failure> {
        match self {
            QuorumMember::Redis(node) => node.manager.get(until).await.map(drop),
            QuorumMember::Any(store) => store.prepare(op, until).await,
        }
    }

    /// One operation.
    pub(crate) async fn call(&self, op: &Op, until: Time) -> Answer {
        match self {
            QuorumMember::Redis(node) => node.call(op, SEND_OPTIONS, until).await.answer,
            QuorumMember::Any(store) => plain(store.call(op.clone(), until).await),
        }
    }

    pub(crate) fn subscribe(&self, kind: Kind, key: &Key, client: ClientTag) -> Subscription {
        match self {
            QuorumMember::Redis(node) => node.subscribe(naming::wake_up_channel(kind, key, client), false),
            QuorumMember::Any(store) => store.subscribe(kind, key, client),
        }
    }

    pub(crate) async fn facts(&self, until: Time) -> Result<Facts, Failure> {
        match self {
            QuorumMember::Redis(node) => server_info::query(node, until).await,
            QuorumMember::Any(store) => store.facts(until).await,
        }
    }

    /// Whether it answers at all.
    pub(crate) async fn ping(&self, until: Time) -> Result<(), Failure> {
        match self {
            QuorumMember::Redis(node) => node.command(&["PING"], until).await.map(|_: Value| ()),
            QuorumMember::Any(_) => self.inspect(&Key::from(*b""), until).await.map(drop),
        }
    }

    /// Whether a lock stands under this key.
    pub(crate) async fn has(&self, key: &Key, until: Time) -> bool {
        self.inspect(key, until).await.unwrap_or(false)
    }

    async fn inspect(&self, key: &Key, until: Time) -> Result<bool, Failure> {
        let op = Op::Inspect { key: key.clone() };
        let outcome = match self {
            QuorumMember::Redis(node) => node.call(&op, SendOptions::default(), until).await.answer.outcome,
            QuorumMember::Any(store) => store.call(op, until).await.outcome,
        };
        match outcome {
            Outcome::Applied(Reply::Inspected(standing)) => Ok(standing.is_some_and(|standing| standing.kind.is_ok())),
            Outcome::Applied(_) => Ok(false),
            Outcome::NotApplied(failure) | Outcome::Indeterminate(failure) => Err(failure),
        }
    }

    /// One step of a scan; `cursor` is empty at the beginning.
    pub(crate) async fn scan(&self, scan: &Scan, cursor: &str, until: Time) -> Result<Scanned, Failure> {
        match self {
            QuorumMember::Redis(node) => {
                let cursor = if cursor.is_empty() { scan::ENDS } else { cursor };
                scan::scan(node, scan, cursor, until).await.map(|(keys, next)| Scanned { keys, next })
            }
            QuorumMember::Any(store) => {
                let cursor = (!cursor.is_empty()).then(|| cursor.to_owned());
                store.scan(Scan { cursor, ..scan.clone() }, until).await
            }
        }
    }

    /// How many listen for the release of each of these locks.
    pub(crate) async fn listening(&self, locks: &[(Kind, Key)], until: Time) -> Vec<Option<u64>> {
        match self {
            QuorumMember::Redis(node) => scan::listening(node, "NUMSUB", locks, until).await,
            QuorumMember::Any(store) => store.listening(locks.to_vec(), until).await,
        }
    }

    /// What it was asked; that of a Redis server is counted elsewhere.
    pub(crate) fn stats(&self) -> StoreStats {
        match self {
            QuorumMember::Redis(_) => StoreStats::default(),
            QuorumMember::Any(store) => store.stats(),
        }
    }

    pub(crate) fn close(&self) {
        match self {
            QuorumMember::Redis(node) => node.close(),
            QuorumMember::Any(store) => store.close(),
        }
    }
}

/// Who was told of a release is of no interest to a majority.
fn plain(mut answer: Answer) -> Answer {
    if answer.outcome == Outcome::Applied(Reply::ReleasedToWaiters) {
        answer.outcome = Outcome::Applied(Reply::Released(true));
    }
    answer
}

/// Whether a member said no, and will say so again: it is there, so nothing is gained by passing it over.
pub(crate) fn is_refusal(failure: &Failure) -> bool {
    !failure.transient && failure.kind != ErrorKind::Unavailable
}
