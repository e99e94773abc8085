//! The calls, as the generated code makes them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::cancel::NativeCancel;
use crate::client::NativeClient;
use crate::entered::waited;
use crate::error::{ErrorKind, NativeError};
use crate::events::{NativeEvent, next_event};
use crate::lease::NativeLease;
use crate::lock::{NativeLock, forget_granted, take_granted};
use crate::options::{NativeClientOptions, NativeLockOptions};
use crate::words::{Kind, LossReason, Release};

const LIMIT: Duration = Duration::from_secs(60);

fn client() -> Arc<NativeClient> {
    NativeClient::new(vec!["memory://".to_owned()], NativeClientOptions::default()).unwrap()
}

fn lock(client: &NativeClient, name: &str) -> Arc<NativeLock> {
    client.lock(Kind::Mutex, name.into(), NativeLockOptions::default()).unwrap()
}

fn acquire(lock: &NativeLock) -> Arc<NativeLease> {
    lock.acquire_blocking(-1, &NativeCancel::new()).unwrap()
}

fn kind<T>(result: Result<T, NativeError>) -> ErrorKind {
    let NativeError::Failed { kind, .. } = result.err().unwrap();
    kind
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn leases_of_threads_and_of_coroutines_have_both_forms() {
    let client = client();
    let lock = lock(&client, "a");
    let of_thread = acquire(&lock);
    assert!(of_thread.is_held() && of_thread.fencing_token() > 0 && of_thread.remaining_us() > 1_000_000);
    assert!(lock.try_acquire_blocking().unwrap().is_none());
    of_thread.extend_blocking(60_000).unwrap();
    assert!(of_thread.remaining_us() > 50_000_000);
    assert_eq!(of_thread.release_blocking().unwrap(), Release::Released);
    assert_eq!(of_thread.release_blocking().unwrap(), Release::AlreadyReleased);

    waited(lock.acquire(-1, 1)).unwrap().unwrap();
    let of_coroutine = take_granted(1).unwrap();
    assert!(take_granted(1).is_none());
    assert!(of_coroutine.fencing_token() > of_thread.fencing_token());
    of_coroutine.extend_blocking(60_000).unwrap();
    assert_eq!(of_coroutine.release_blocking().unwrap(), Release::Released);
    waited(lock.try_acquire(2)).unwrap().unwrap();
    let again = take_granted(2).unwrap();
    waited(lock.try_acquire(3)).unwrap().unwrap();
    assert!(take_granted(3).is_none());
    assert_eq!(waited(again.release()).unwrap().unwrap(), Release::Released);
    assert_eq!(kind(again.extend_blocking(1_000)), ErrorKind::NotHeld);
}

#[test]
fn a_future_that_is_dropped_holds_nothing() {
    let client = client();
    let lock = lock(&client, "a");
    let holder = acquire(&lock);
    for _ in 0..2 {
        let mut waiting = Box::pin(lock.acquire(-1, 10));
        // outside of any runtime, as the generated code polls
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        wait_until("it waits", || client.stats().waiting == 1);
        drop(waiting);
        wait_until("nobody waits", || client.stats().waiting == 0);
    }
    holder.release_blocking().unwrap();
    assert!(lock.try_acquire_blocking().unwrap().is_some());
}

#[test]
fn a_cancelled_wait_ends_and_its_lease_is_not_concerned() {
    let client = client();
    let lock = lock(&client, "a");
    let cancel = NativeCancel::new();
    let holder = lock.acquire_blocking(-1, &cancel).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| kind(lock.acquire_blocking(-1, &cancel)));
        wait_until("it waits", || client.stats().waiting == 1);
        cancel.cancel();
        assert_eq!(waiting.join().unwrap(), ErrorKind::Cancelled);
    });
    // the wait for this one was over before
    holder.extend_blocking(60_000).unwrap();
    assert_eq!(holder.release_blocking().unwrap(), Release::Released);
}

#[test]
fn what_is_told_comes_in_order_and_ends_with_the_handle() {
    let client = client();
    let lease = acquire(&lock(&client, "told"));
    lease.set_number(7);
    lease.watch_loss();
    client.close_blocking();
    assert_eq!(next_told(), NativeEvent::Lost { lease: 7, reason: LossReason::Closed });
    let NativeError::Failed { reason, text, .. } = lease.check_lost().unwrap_err();
    assert!(reason == Some(LossReason::Closed) && text.contains("told"), "{text}");
    drop(lease);
    assert_eq!(next_told(), NativeEvent::Gone { lease: 7 });

    let again = self::client();
    let unreleased = acquire(&lock(&again, "told"));
    drop(unreleased);
    assert_eq!(next_told(), NativeEvent::Unreleased { name: b"told".to_vec() });
}

/// The next event of this test: others drop leases, too.
fn next_told() -> NativeEvent {
    loop {
        let event = next_event();
        if !matches!(&event, NativeEvent::Unreleased { name } if name != b"told") {
            return event;
        }
    }
}

#[test]
fn a_lease_that_is_dropped_is_given_back() {
    let client = client();
    let lock = lock(&client, "a");
    drop(lock.acquire_blocking(-1, &NativeCancel::new()).map(|lease| assert!(lease.is_held())));
    assert_eq!(
        lock.acquire_blocking(60_000, &NativeCancel::new()).unwrap().release_blocking().unwrap(),
        Release::Released
    );
}

#[test]
fn what_was_granted_and_not_fetched_is_given_back() {
    let client = client();
    let lock = lock(&client, "a");
    waited(lock.acquire(-1, 20)).unwrap().unwrap();
    assert_eq!(client.stats().held, 1);
    forget_granted(20);
    forget_granted(20);
    assert_eq!(client.stats().held, 0);
    lock.acquire_blocking(60_000, &NativeCancel::new()).unwrap().release_blocking().unwrap();
}

#[test]
fn several_locks_are_one() {
    let client = client();
    let (a, b) = (lock(&client, "a"), lock(&client, "b"));
    let both = NativeLock::several(vec![b.clone(), a.clone()]).unwrap();
    let lease = acquire(&both);
    assert_eq!(lease.names(), [b"b".to_vec(), b"a".to_vec()]);
    assert!(lease.fencing_token_of(b"a".to_vec()) > 0);
    assert!(a.try_acquire_blocking().unwrap().is_none());
    assert_eq!(lease.release_blocking().unwrap(), Release::Released);
    assert_eq!(kind(both.permits_blocking()), ErrorKind::InvalidArgument);
    assert_eq!(kind(NativeLock::several(Vec::new())), ErrorKind::InvalidArgument);
    assert_eq!(kind(NativeLock::several(vec![both])), ErrorKind::InvalidArgument);
}

#[test]
fn semaphores_have_permits() {
    let client = client();
    let options = NativeLockOptions { total_permits: Some(3), ..Default::default() };
    let semaphore = client.lock(Kind::Semaphore, b"s".to_vec(), options).unwrap();
    let two = acquire(&semaphore.taking(2).unwrap());
    let permits = semaphore.permits_blocking().unwrap().unwrap();
    assert_eq!((permits.total, permits.held, permits.free), (3, 2, 1));
    assert!(semaphore.taking(2).unwrap().try_acquire_blocking().unwrap().is_none());
    two.release_blocking().unwrap();
    assert_eq!(semaphore.set_permits_blocking(5).unwrap().total, 5);
    assert_eq!(kind(semaphore.taking(-1)), ErrorKind::InvalidArgument);
    assert_eq!(kind(semaphore.set_permits_blocking(-1)), ErrorKind::InvalidArgument);
}

#[test]
fn what_is_wrong_is_refused_before_anything_is_sent() {
    // nobody listens there
    let client = NativeClient::new(vec!["redis://127.0.0.1:1".to_owned()], NativeClientOptions::default()).unwrap();
    let begun = Instant::now();
    let lock = lock(&client, "a");
    assert_eq!(kind(lock.acquire_blocking(-2, &NativeCancel::new())), ErrorKind::InvalidArgument);
    let options = NativeLockOptions { ttl_ms: Some(-1), ..Default::default() };
    assert_eq!(kind(client.lock(Kind::Mutex, b"a".to_vec(), options)), ErrorKind::InvalidArgument);
    let options = NativeLockOptions { ttl_ms: Some(i64::MAX), ..Default::default() };
    let long = client.lock(Kind::Mutex, b"a".to_vec(), options).unwrap();
    assert_eq!(kind(long.validate()), ErrorKind::InvalidArgument);
    assert_eq!(kind(client.list_blocking(b"*".to_vec(), -1, None)), ErrorKind::InvalidArgument);
    let options = NativeClientOptions { cert_file: Some("x".to_owned()), ..Default::default() };
    assert_eq!(kind(NativeClient::new(vec!["memory://".to_owned()], options)), ErrorKind::InvalidArgument);
    let secret = NativeClient::new(vec!["redis://u:geheim@host:x".to_owned()], NativeClientOptions::default());
    let NativeError::Failed { text, .. } = secret.err().unwrap();
    assert!(!text.contains("geheim"), "{text}");
    assert!(begun.elapsed() < LIMIT);
    assert_eq!(client.stats().commands_sent, 0);
}

#[test]
fn every_kind_has_its_word() {
    let kinds = [Kind::Mutex, Kind::Reentrant, Kind::Fair, Kind::Read, Kind::Write, Kind::Semaphore];
    assert_eq!(kinds.len(), onelock::Kind::ALL.len());
    let words: BTreeSet<_> = kinds.into_iter().map(crate::words::kind_word).collect();
    assert_eq!(words, onelock::Kind::ALL.into_iter().map(|kind| kind.as_str().to_owned()).collect());
}
