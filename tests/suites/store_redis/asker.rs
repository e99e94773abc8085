//! A store under test, asked every way.

use std::time::Duration;

use onelock::machine::{Answer, Claim, Failure, Key, Kind, Op, Outcome, Reply, Time};
use onelock::store::redis::{RedisOptions, RedisStore};
use onelock::store::{Interrupt, Store, StoreStats, Uninterrupted};
use tokio::runtime::Runtime;

/// Far longer than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(10);
/// How long a lock lives where the test doesn't care.
pub(crate) const TTL: u64 = 60_000;
/// How long a fencing counter lives where the test doesn't care.
pub(crate) const FENCE_TTL: u64 = 604_800_000;

/// The ways to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// On the shared connection, from a task.
    Async,
    /// On a connection driven by the calling thread.
    Blocking,
    /// A connection that threads share, as when there are many.
    Sharing,
}

/// All.
pub(crate) const WAYS: [Way; 3] = [Way::Async, Way::Blocking, Way::Sharing];

/// A store and a runtime for its background work.
pub(crate) struct Asker {
    pub(crate) store: RedisStore,
    pub(crate) runtime: Runtime,
    pub(crate) way: Way,
}

/// Now, on the library's own clock.
pub(crate) fn now() -> Time {
    Time::from_nanos(onelock_tests::clock::boot_ns())
}

impl Asker {
    pub(crate) fn new(url: &str, way: Way) -> Asker {
        Asker::with(url, way, RedisOptions::default())
    }

    pub(crate) fn with(url: &str, way: Way, mut options: RedisOptions) -> Asker {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        if way == Way::Sharing {
            options.share_from = 1;
        }
        let store = RedisStore::new(url, options).unwrap();
        Asker { store, runtime, way }
    }

    pub(crate) fn answer_within(&self, op: &Op, limit: Duration) -> Answer {
        match self.way {
            Way::Async => self.runtime.block_on(self.store.call(op.clone(), now() + limit)),
            Way::Blocking | Way::Sharing => self.blocking(op, limit, &Uninterrupted),
        }
    }

    pub(crate) fn blocking(&self, op: &Op, limit: Duration, interrupt: &dyn Interrupt) -> Answer {
        self.store.call_blocking(op, now() + limit, interrupt)
    }

    pub(crate) fn answer(&self, op: &Op) -> Answer {
        self.answer_within(op, LONG)
    }

    /// The reply of a request that must be applied.
    pub(crate) fn reply(&self, op: &Op) -> Reply {
        let answer = self.answer(op);
        match answer.outcome {
            Outcome::Applied(reply) => reply,
            other => panic!("{:?} {}: {other:?}", self.way, op.name()),
        }
    }

    /// The failure of a request that must be known not to have happened.
    pub(crate) fn refusal(&self, op: &Op) -> Failure {
        let answer = self.answer(op);
        match answer.outcome {
            Outcome::NotApplied(failure) => failure,
            other => panic!("{:?} {}: {other:?}", self.way, op.name()),
        }
    }

    pub(crate) fn store_stats(&self) -> StoreStats {
        self.store.stats()
    }

    pub(crate) fn fence(&self, op: &Op) -> u64 {
        match self.reply(op) {
            Reply::Granted { fence: Some(fence), .. } => fence,
            other => panic!("{:?}: {other:?}", self.way),
        }
    }
}

pub(crate) fn key(name: &str) -> Key {
    name.as_bytes().into()
}

pub(crate) fn claim(kind: Kind, name: &str, token: &str) -> Claim {
    Claim { kind, key: key(name), token: token.into() }
}

pub(crate) fn acquire(claim: &Claim) -> Op {
    Op::Acquire { claim: claim.clone(), ttl_ms: TTL, fence_ttl_ms: Some(FENCE_TTL), info: None }
}

pub(crate) fn release(claim: &Claim) -> Op {
    Op::Release { claim: claim.clone() }
}

pub(crate) fn attach(claim: &Claim, from: &Claim) -> Op {
    Op::Attach { claim: claim.clone(), from: from.token.clone(), ttl_ms: TTL, info: None }
}

pub(crate) fn renew(claim: &Claim, ttl_ms: u64) -> Op {
    Op::Renew { holds: vec![(claim.clone(), ttl_ms)] }
}
