//! Clients of every store: waiting, renewal, losses, cleanup, closing.

use std::time::{Duration, Instant};

use onelock::{ErrorKind, LossReason, Release};
use onelock_tests::face::{Client, block_on};
use onelock_tests::stage::{SOON, fails, ms};
use onelock_tests::wait::wait_until;

use crate::place::on_both;

/// A length of lease that every store keeps, and that ends soon.
const SHORT: Duration = ms(2000);

fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).try_acquire().unwrap().is_some_and(|lease| lease.released() == Release::Released)
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_released() {
    on_both("waits", |place, face| {
        let (holder, waiting) = (place.client(face), place.client(face));
        let lease = holder.lock("a").acquire().unwrap();
        assert!(waiting.lock("a").try_acquire().unwrap().is_none());
        fails(waiting.lock("a").acquire_within(ms(30)), ErrorKind::Timeout);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| waiting.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || waiting.stats().waiting == 1);
            assert_eq!(lease.released(), Release::Released);
            let next = waiter.join().unwrap();
            assert!(next.is_held());
            assert!(next.fencing_token() > lease.fencing_token() || !place.store().capabilities().fencing);
            assert_eq!(next.released(), Release::Released);
            assert_eq!(next.released(), Release::AlreadyReleased);
        });
        holder.close();
        waiting.close();
    });
}

/// By one request where the store can, one after the other where it cannot: nobody may notice which.
#[test]
fn several_locks_are_held_together_or_not_at_all() {
    on_both("several", |place, face| {
        let (client, other) = (place.client(face), place.client(face));
        let both = client.multi_lock(["one", "two"]);
        let lease = both.acquire().unwrap();
        assert!(lease.is_held() && !is_free(&other, "one") && !is_free(&other, "two"));
        assert_eq!(lease.released(), Release::Released);
        assert!(is_free(&other, "one") && is_free(&other, "two"));
        let obstacle = other.lock("two").acquire().unwrap();
        assert!(both.try_acquire().unwrap().is_none());
        assert!(is_free(&other, "one"), "held by a try that was refused");
        assert_eq!(obstacle.released(), Release::Released);
        assert_eq!(both.acquire_within(SOON).unwrap().released(), Release::Released);
        client.close();
        other.close();
    });
}

#[test]
fn a_renewed_lease_stays_and_an_unrenewed_one_ends() {
    on_both("renewal", |place, face| {
        let (client, other) = (place.client(face), place.client(face));
        let begun = Instant::now();
        let kept = client.lock("kept").ttl(SHORT).acquire().unwrap();
        let ends = client.lock("ends").ttl(SHORT).auto_renew(false).acquire().unwrap();
        assert!(ends.remaining() <= SHORT && kept.remaining() <= SHORT);
        assert_eq!(ends.wait_lost(SOON), Some(LossReason::Expired));
        assert!(!ends.is_held());
        wait_until(SOON, "the next holder", || is_free(&other, "ends"));
        assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
        assert!(kept.is_held() && !is_free(&other, "kept"));
        kept.extend(ms(60_000)).unwrap();
        assert!(kept.remaining() > ms(50_000));
        assert_eq!(kept.released(), Release::Released);
        assert_eq!(ends.released(), Release::AlreadyExpired);
        client.close();
        other.close();
    });
}

#[test]
fn an_acquire_that_was_given_up_leaves_nothing() {
    on_both("given-up", |place, face| {
        let (holder, client) = (place.client(face), place.client(face));
        let lease = holder.lock("a").acquire().unwrap();
        match &client {
            Client::Async(client) => block_on(async {
                // where a late request may follow an undo, cleanup goes on for one ttl
                let lock = client.lock("a").ttl(SHORT);
                assert!(tokio::time::timeout(ms(30), lock.acquire()).await.is_err());
                for span in [0, 50, 500] {
                    let free = client.lock("b").ttl(SHORT);
                    let _ = tokio::time::timeout(Duration::from_micros(span), free.acquire()).await;
                }
            }),
            Client::Blocking(client) => {
                let cancel = onelock::blocking::Cancel::new();
                let lock = client.lock("a").ttl(SHORT).interrupt(cancel.clone());
                std::thread::scope(|scope| {
                    let waiter = scope.spawn(move || lock.acquire().map(drop));
                    wait_until(SOON, "the waiter", || client.stats().waiting == 1);
                    cancel.cancel();
                    fails(waiter.join().unwrap(), ErrorKind::Cancelled);
                });
            }
        }
        wait_until(SOON, "cleanup", || client.stats().cleaning == 0 && client.stats().waiting == 0);
        assert_eq!(lease.released(), Release::Released);
        for name in ["a", "b"] {
            wait_until(SOON, "a free lock", || is_free(&holder, name));
        }
        holder.close();
        client.close();
    });
}

#[test]
fn a_dropped_lease_and_a_closed_client_free_their_locks() {
    on_both("closing", |place, face| {
        let (client, other) = (place.client(face), place.client(face));
        drop(client.lock("dropped").acquire().unwrap());
        wait_until(SOON, "the dropped lease", || is_free(&other, "dropped"));
        let lease = client.lock("closed").acquire().unwrap();
        client.close();
        assert_eq!(lease.loss(), Some(LossReason::Closed));
        wait_until(SOON, "the closed client's lock", || is_free(&other, "closed"));
        fails(client.lock("closed").try_acquire(), ErrorKind::Closed);
        client.close();
        assert!(other.check().is_ok());
        other.close();
    });
}
