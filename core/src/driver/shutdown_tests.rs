//! Endings at the wrong moment: a client that is closed, a future that is dropped, a runtime that ends.

use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::enter::{EntryPath, entry_path};
use super::lock_spec::LockSpec;
use super::reentry::Reentry;
use super::sleep_until;
use super::undo_guard::UndoGuard;
use crate::machine::{Answer, Claim, Kind, Op, Outcome, Owner, Reply, Time};
use crate::sys::clock;
use crate::{Client, ErrorKind, Release};

const TOKEN: &str = "onelock1:0123456789abcdef0123456789abcdef";

async fn soon(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn claim() -> Claim {
    Claim { kind: Kind::Mutex, key: b"a".as_slice().into(), token: TOKEN.into() }
}

/// Somebody of the same owner is in the middle of a re-entry.
fn busy(client: &Client, owner: &Owner) -> Reentry {
    let mut what = LockSpec::new(client.options(), client.capabilities(), Kind::Reentrant, b"a");
    what.owner = Some(owner.clone());
    match entry_path(&client.engine().unwrap(), &what) {
        Ok(EntryPath::Again(reentering)) => *reentering,
        _ => panic!("no re-entry"),
    }
}

#[tokio::test]
async fn close_waits_for_a_request_under_way_and_undoes_it() {
    let client = Client::connect("memory://under-way").await.unwrap();
    let other = Client::connect("memory://under-way").await.unwrap();
    let engine = client.engine().unwrap();
    let mut claiming = UndoGuard::new(engine.clone(), claim(), 60_000);
    claiming.sending(engine.store.connection());
    let op = Op::Acquire { claim: claim(), ttl_ms: 60_000, fence_ttl_ms: None, info: None };
    engine.store.call(op, Time::MAX).await;
    assert!(other.lock("a").is_locked().await.unwrap());
    let closing = tokio::spawn(async move { client.close().await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(engine.is_closed() && !closing.is_finished());
    drop(claiming); // its caller is gone before the answer was seen
    closing.await.unwrap();
    assert!(!other.lock("a").is_locked().await.unwrap());
}

#[tokio::test]
async fn a_claim_that_owes_nothing_keeps_no_client_from_closing() {
    let client = Client::builder().close_timeout(Duration::from_secs(60)).connect("memory://").await.unwrap();
    let engine = client.engine().unwrap();
    let mut refused = UndoGuard::new(engine.clone(), claim(), 60_000);
    refused.sending(1);
    let denied = Reply::Denied { ttl_left_ms: None, announces: true };
    let at = clock::now();
    let outcome = Outcome::Applied(denied);
    refused.answered(&Answer { sent_at: at, received_at: at, connection: 1, server_time_us: None, outcome });
    tokio::time::timeout(Duration::from_secs(10), client.close()).await.unwrap();
    drop(refused);
    assert_eq!(client.stats().cleaning, 0);
}

#[tokio::test]
async fn a_release_dropped_while_its_owner_is_busy_is_a_release() {
    let client = Client::connect("memory://").await.unwrap();
    let owner = Owner::new();
    let lock = client.reentrant_lock("a").owner(&owner);
    let lease = lock.acquire().await.unwrap();
    let reentering = busy(&client, &owner);
    assert!(tokio::time::timeout(Duration::from_millis(5), lease.release()).await.is_err());
    drop(reentering);
    drop(lease);
    soon("nothing held", || client.stats().held == 0 && client.stats().cleaning == 0).await;
    assert!(!lock.is_locked().await.unwrap());
    assert!(client.engine().unwrap().registry.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_release_does_not_wait_for_a_busy_owner_for_ever() {
    let client = Client::builder().request_timeout(Duration::from_millis(20)).connect("memory://").await.unwrap();
    let owner = Owner::new();
    let lock = client.reentrant_lock("a").owner(&owner);
    let lease = lock.acquire().await.unwrap();
    let reentering = busy(&client, &owner); // begun and never polled again
    let found = tokio::time::timeout(Duration::from_secs(10), lease.release()).await.unwrap().unwrap();
    assert_eq!(found, Release::Unconfirmed);
    soon("released", || client.stats().held == 0 && client.stats().cleaning == 0).await;
    assert!(!lock.is_locked().await.unwrap());
    drop(reentering);
    assert!(client.engine().unwrap().registry.lock().unwrap().is_empty());
}

#[tokio::test]
async fn clean_up_goes_on_for_as_long_as_an_extended_key_may_live() {
    let client = Client::connect("memory://").await.unwrap();
    let lease = client.lock("a").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    assert_eq!(lease.handle.first().unwrap().hold.longest_ttl_ms(), 5000);
    lease.extend(Duration::from_secs(60)).await.unwrap();
    lease.extend(Duration::from_secs(30)).await.unwrap();
    assert_eq!(lease.handle.first().unwrap().hold.longest_ttl_ms(), 60_000);
}

#[tokio::test(start_paused = true)]
async fn a_long_sleep_is_not_cut_short() {
    let day = Duration::from_secs(24 * 3600);
    let slept = tokio::time::timeout(2 * day, sleep_until(clock::now() + 3 * day)).await;
    assert!(slept.is_err());
}

#[test]
fn a_runtime_that_ends_takes_nobody_with_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (client, lease, lost) = first.block_on(async {
        let client = Client::connect("memory://runtime-that-ends").await.unwrap();
        let lease = client.lock("a").ttl(Duration::from_millis(1500)).acquire().await.unwrap();
        let lost = client.lock("b").acquire().await.unwrap().lost();
        (client, lease, lost)
    });
    let engine: std::sync::Weak<Engine> = Arc::downgrade(&client.engine().unwrap());
    drop(first);
    assert!(lease.is_held());
    drop(lost);
    let second = runtime();
    second.block_on(async {
        let other = client.lock("c").acquire().await.unwrap();
        assert_eq!(other.release().await.unwrap(), Release::Released);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while lease.is_held() {
            assert!(tokio::time::Instant::now() < deadline, "nobody renews it");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(lease.release().await.unwrap(), Release::AlreadyExpired);
        drop(lease);
        drop(client.lock("d").acquire().await.unwrap());
        client.close().await;
    });
    drop(client);
    assert!(engine.upgrade().is_none(), "nothing is left of it");
}

#[tokio::test]
async fn an_owner_who_holds_does_not_attach_and_whoever_waited_for_an_attach_that_fails_is_woken() {
    let client = Client::connect("memory://").await.unwrap();
    let engine = client.engine().unwrap();
    let owner = Owner::new();
    let lock = client.reentrant_lock("a").owner(&owner);
    let lease = lock.acquire().await.unwrap();
    let proof = lease.handle.first().unwrap().hold.claim.token.to_string();
    assert_eq!(lock.attach(&proof).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(lease.is_held());
    lease.extend(Duration::from_secs(60)).await.unwrap();
    lease.release().await.unwrap();
    let woken = engine.registry_changed.notified();
    assert_eq!(lock.attach(&proof).await.unwrap_err().kind(), ErrorKind::Lost);
    tokio::time::timeout(Duration::from_secs(10), woken).await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_second_close_waits_for_the_first() {
    let client = Client::builder().close_timeout(Duration::from_secs(60)).connect("memory://").await.unwrap();
    let engine = client.engine().unwrap();
    let mut claiming = UndoGuard::new(engine.clone(), claim(), 60_000);
    claiming.sending(engine.store.connection());
    let close = || {
        let client = client.clone();
        tokio::spawn(async move { client.close().await })
    };
    let (first, second) = (close(), close());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(engine.is_closed() && !first.is_finished() && !second.is_finished());
    drop(claiming);
    first.await.unwrap();
    second.await.unwrap();
}

#[tokio::test]
async fn what_its_holder_gave_back_counts_as_released_and_what_was_lost_does_not() {
    let client = Client::connect("memory://").await.unwrap();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    drop(client.lock("b").acquire().await.unwrap());
    let lost = client.lock("c").ttl(Duration::from_millis(10)).auto_renew(false).acquire().await.unwrap();
    soon("lost", || client.stats().lost == 1).await;
    assert_eq!(lost.release().await.unwrap(), Release::AlreadyExpired);
    let stats = client.stats();
    assert_eq!((stats.acquired, stats.released, stats.lost, stats.held), (3, 2, 1, 0));
}
