//! Tests of the store in memory.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::machine::Claim;
use crate::store::Uninterrupted;

fn claim(key: &str, token: &str) -> Claim {
    Claim { kind: Kind::Mutex, key: key.as_bytes().into(), token: token.into() }
}

fn acquire(claim: &Claim, ttl_ms: u64) -> Op {
    Op::Acquire { claim: claim.clone(), ttl_ms, fence_ttl_ms: Some(60_000), info: None }
}

fn run(store: &MemoryStore, op: &Op) -> Reply {
    match store.call_blocking(op, Time::MAX, &Uninterrupted).outcome {
        Outcome::Applied(reply) => reply,
        other => panic!("{op:?}: {other:?}"),
    }
}

fn fence(reply: Reply) -> u64 {
    match reply {
        Reply::Granted { fence, again: false } => fence.unwrap(),
        other => panic!("not a new grant: {other:?}"),
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.unwrap()
}

#[test]
fn private_stores_are_strangers() {
    let (one, other) = (MemoryStore::private(), MemoryStore::private());
    fence(run(&one, &acquire(&claim("a", "onelock1:1"), 60_000)));
    fence(run(&other, &acquire(&claim("a", "onelock1:2"), 60_000)));
}

#[test]
fn a_name_is_shared_and_dies_with_its_last_client() {
    let (one, other) = (MemoryStore::named("shared"), MemoryStore::named("shared"));
    let mine = acquire(&claim("a", "onelock1:1"), 60_000);
    let first = fence(run(&one, &mine));
    let denied = run(&other, &acquire(&claim("a", "onelock1:2"), 60_000));
    assert!(matches!(denied, Reply::Denied { ttl_left_ms: Some(1..=60_000), announces: true }), "{denied:?}");
    drop(one);
    assert_eq!(run(&other, &mine), Reply::Granted { fence: Some(first), again: true });
    drop(other);
    assert!(!lock(&NAMED).contains_key("shared"));
    let second = fence(run(&MemoryStore::named("shared"), &mine));
    assert!(second > first, "fencing tokens grow over the end of a server: {first} then {second}");
}

#[tokio::test]
async fn a_release_wakes_every_waiter_of_that_key_and_kind_only() {
    let (one, other) = (MemoryStore::named("waiters"), MemoryStore::named("waiters"));
    let holder = claim("a", "onelock1:1");
    fence(run(&one, &acquire(&holder, 60_000)));
    let mut near = one.subscribe(Kind::Mutex, &holder.key, ClientTag(1));
    let mut far = other.subscribe(Kind::Mutex, &holder.key, ClientTag(1));
    let elsewhere = other.subscribe(Kind::Mutex, &claim("b", "x").key, ClientTag(1));
    let other_kind = other.subscribe(Kind::Reentrant, &holder.key, ClientTag(1));
    assert!(near.state.borrow().subscribed && far.state.borrow().subscribed);
    assert_eq!(run(&one, &Op::Release { claim: holder.clone() }), Reply::ReleasedToWaiters);
    soon(near.state.changed()).await.unwrap();
    soon(far.state.changed()).await.unwrap();
    assert!(!elsewhere.state.has_changed().unwrap() && !other_kind.state.has_changed().unwrap());
    // a release that deletes nothing tells nobody
    assert_eq!(run(&one, &Op::Release { claim: holder.clone() }), Reply::Released(false));
    assert!(!near.state.has_changed().unwrap());
    assert_eq!(run(&one, &Op::ForceRelease { key: holder.key.clone(), foreign: false }), Reply::Forced(false));
    fence(run(&one, &acquire(&holder, 60_000)));
    assert_eq!(run(&one, &Op::ForceRelease { key: holder.key.clone(), foreign: false }), Reply::Forced(true));
    soon(far.state.changed()).await.unwrap();
    assert_eq!(one.subscriptions(), 4);
    drop((near, far, elsewhere, other_kind));
    assert_eq!((one.subscriptions(), lock(&one.server.state).subscribers.len()), (0, 0));
}

#[tokio::test]
async fn closing_ends_one_client_and_leaves_the_other() {
    let (one, other) = (MemoryStore::named("closing"), MemoryStore::named("closing"));
    let key = claim("a", "onelock1:1").key;
    let mut ended = one.subscribe(Kind::Mutex, &key, ClientTag(1));
    let kept = other.subscribe(Kind::Mutex, &key, ClientTag(1));
    one.close();
    soon(ended.state.changed()).await.unwrap();
    assert!(!ended.state.borrow_and_update().subscribed);
    assert!(kept.state.borrow().subscribed && !kept.state.has_changed().unwrap());
    assert!(!one.subscribe(Kind::Mutex, &key, ClientTag(1)).state.borrow().subscribed);
    let refused = one.call(acquire(&claim("a", "onelock1:1"), 60_000), Time::MAX).await.outcome;
    assert_eq!(refused.failure().unwrap().kind, ErrorKind::Closed);
    assert!(matches!(refused, Outcome::NotApplied(_)));
    assert_eq!(one.facts(Time::MAX).await.unwrap_err().kind, ErrorKind::Closed);
    fence(run(&other, &acquire(&claim("a", "onelock1:2"), 60_000)));
    assert_eq!(other.facts(Time::MAX).await.unwrap().grade, Grade::ClockBounded);
    assert_eq!((one.stats().commands_sent, other.stats().commands_sent), (0, 1));
}

#[test]
fn a_panic_under_the_lock_does_not_end_the_server() {
    let store = MemoryStore::private();
    let blown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.with_model(|_, _| panic!("planted"))));
    assert!(blown.is_err() && store.server.state.is_poisoned());
    fence(run(&store, &acquire(&claim("a", "onelock1:1"), 60_000)));
}

#[test]
fn an_expired_hold_frees_the_key_and_memory_stays_bounded() {
    let store = MemoryStore::private();
    fence(run(&store, &acquire(&claim("a", "onelock1:1"), 10)));
    let waiter = acquire(&claim("a", "onelock1:2"), 60_000);
    while let Reply::Denied { ttl_left_ms, .. } = run(&store, &waiter) {
        assert!(ttl_left_ms.unwrap() <= 10);
    }
    for number in 0..20_000 {
        let claim = claim(&format!("n{number}"), "onelock1:1");
        fence(run(&store, &acquire(&claim, 60_000)));
        run(&store, &Op::Release { claim });
    }
    // locks that are free again leave at most a bounded number of counters behind
    assert!(store.with_model(|model, _| model.len()) <= COMPACT_FLOOR + 2);
}
