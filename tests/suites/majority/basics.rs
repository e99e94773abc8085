//! What holds while nothing is wrong.

use std::time::{Duration, Instant};

use onelock::{ErrorKind, Grade, Kind, Owner, Release};
use onelock_tests::face::{Client, on_both};
use onelock_tests::stage::{SOON, fails, ms, quick_once};
use onelock_tests::wait::wait_until;

use crate::place::{client, everywhere, fresh, mixture};

#[test]
fn a_lock_is_held_on_all_members_and_released_on_all() {
    everywhere(|mixed, face| {
        let client = client(face, mixed);
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let name = kind.as_str();
            let lock = client.lock_of(kind, name);
            let lease = lock.acquire().unwrap();
            // the last of them may be a moment behind the majority
            wait_until(SOON, "all members", || mixed.count(name) == mixed.len());
            assert!(lease.is_held() && lease.remaining() > Duration::from_secs(29));
            assert!(lock.try_acquire().unwrap().is_none() && lock.is_locked().unwrap());
            let seen = client.inspect(name).unwrap().unwrap();
            assert_eq!((seen.kind, seen.fencing_token), (kind, lease.fencing_token()));
            let listed = client.listing(name).unwrap();
            assert_eq!(listed.iter().map(|entry| entry.name.as_slice()).collect::<Vec<_>>(), [name.as_bytes()]);
            assert_eq!(lease.released(), Release::Released);
            assert_eq!(lease.released(), Release::AlreadyReleased);
            wait_until(SOON, "no member", || mixed.count(name) == 0);
            let next = lock.acquire().unwrap();
            assert!(next.fence() > lease.fence());
            assert!(client.force_release(name).unwrap());
            wait_until(SOON, "taken away everywhere", || mixed.count(name) == 0);
            assert_eq!(next.released(), Release::AlreadyExpired);
        }
        client.close();
    });
}

#[test]
fn re_entry_extension_and_handing_over() {
    everywhere(|mixed, face| {
        let client = client(face, mixed);
        let lock = client.reentrant_lock("r").owner(&Owner::new());
        let (outer, inner) = (lock.acquire().unwrap(), lock.acquire().unwrap());
        assert_eq!((inner.hold_count(), client.inspect("r").unwrap().unwrap().hold_count), (2, 2));
        assert_eq!((inner.released(), outer.released()), (Release::Released, Release::Released));
        let lock = client.lock("m").ttl(Duration::from_secs(2));
        let lease = lock.acquire().unwrap();
        lease.extend(Duration::from_secs(60)).unwrap();
        assert!(lease.remaining() > Duration::from_secs(50));
        let attached = lock.attach(&lease.detach().unwrap()).unwrap();
        assert_eq!(attached.fencing_token(), lease.fencing_token());
        assert_eq!(attached.released(), Release::Released);
        client.close();
    });
}

#[test]
fn a_release_wakes_a_waiter() {
    everywhere(|mixed, face| {
        let (holder, waiting) = (client(face, mixed), client(face, mixed));
        quick_once(ms(700), "woken", || {
            let lease = holder.lock("a").acquire_within(SOON).unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let lease = waiting.lock("a").acquire_within(SOON).unwrap();
                    (Instant::now(), lease.released())
                });
                wait_until(SOON, "the waiter", || waiting.stats().waiting == 1);
                // by now a majority hears it
                std::thread::sleep(ms(300));
                let freed = Instant::now();
                lease.released();
                let (got, released) = waiter.join().unwrap();
                assert_eq!(released, Release::Released);
                got.duration_since(freed)
            })
        });
        holder.close();
        waiting.close();
    });
}

#[test]
fn a_renewed_lease_outlives_its_ttl_and_a_member_that_lost_it_gets_it_again() {
    everywhere(|mixed, face| {
        let client = client(face, mixed);
        let lease = client.lock("a").ttl(ms(3000)).acquire().unwrap();
        wait_until(SOON, "all members", || mixed.count("a") == mixed.len());
        mixed.tables[0].rows("UPDATE TABLE SET owner = NULL, expires_us = 0 WHERE name = 'a'");
        wait_until(SOON, "the member that lost it", || mixed.count("a") == mixed.len());
        std::thread::sleep(ms(3300));
        assert!(lease.is_held(), "renewed");
        assert_eq!(lease.released(), Release::Released);
        wait_until(SOON, "no member", || mixed.count("a") == 0);
        client.close();
    });
}

#[test]
fn its_facts_are_those_of_its_weakest_member() {
    on_both(|face| {
        let mixed = mixture(2, 2);
        let client = client(face, &mixed);
        let facts = client.check().unwrap();
        assert_eq!(facts.grade, Grade::ClockBounded);
        assert!(facts.server.contains("postgresql") && facts.server.contains("valkey"), "{}", facts.server);
        let warns = |word: &str| facts.warnings.iter().any(|warning| warning.contains(word));
        assert!(warns("use an odd number") && warns("appendonly") && warns("fsync is off"), "{:?}", facts.warnings);
        client.close();
        let strict = Client::connect(face, fresh().min_fencing_grade(Grade::Strict), &mixed.url());
        assert_eq!(strict.err().unwrap().kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn what_cannot_vote_is_refused_with_the_reason_and_other_kinds_before_any_io() {
    on_both(|face| {
        let database = "postgres://u:hidden@127.0.0.1:1/d";
        for (other, why) in [
            ("memory://x", "in this process alone"),
            ("file:///tmp/x", "on this machine alone"),
            ("redis+sentinel://h/g", "a replicated store is no single vote"),
            ("redis+cluster://h", "a replicated store is no single vote"),
            ("redlock://h1,h2", "a majority is no single vote"),
            ("postgres://u@h1,h2/d", "several hosts are a replicated store"),
            (database, "stands in it twice"),
            ("wood://h", "wood:// is not known"),
        ] {
            let error = fails(Client::build(face, fresh(), &format!("{database} {other}")), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(why) && !error.to_string().contains("hidden"), "{error}");
        }
        let client = Client::build(face, fresh(), &format!("{database} redis://127.0.0.1:1")).unwrap();
        for kind in [Kind::Fair, Kind::Read, Kind::Write, Kind::Semaphore] {
            fails(client.lock_of(kind, "a").try_acquire(), ErrorKind::Unsupported);
        }
        assert_eq!(client.stats().commands_sent, 0);
        client.close();
    });
}
