//! Longer leases: the key of a hold moves to another lease of its own, whatever is lost or late.

use std::sync::atomic::{AtomicBool, Ordering};

use onelock::{ErrorKind, Owner, Release};
use onelock_tests::etcd::Etcd;
use onelock_tests::face::{Client, on_both};
use onelock_tests::stage::{SOON, fails, ms, quick, unhurried};
use onelock_tests::wait::wait_until;
use onelock_tests::wire::{Rules, Wire};

use crate::place::{Place, SERVER};

/// The lease that a key hangs on.
fn lease_of(server: &Etcd, key: &str) -> u64 {
    let told = server.ctl(&["get", key, "-w", "fields"]);
    let line = told.lines().find(|line| line.starts_with("\"Lease\" : ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// The reply to the request that moves this key to another lease is lost, and nothing passes from then on.
fn losing_the_move(key: &str) -> Rules {
    // a put with a lease and without a value
    Rules { lose_reply_to: Some(format!("{key}\x18")), hold_after_loss: true, ..Rules::default() }
}

#[test]
fn a_move_whose_reply_is_lost_keeps_the_lease_that_the_key_hangs_on() {
    on_both(|face| {
        let place = Place::new();
        let wire = Wire::to(SERVER.port());
        let client = Client::build(face, quick(), &place.url_at(wire.port())).unwrap();
        let rival = place.client(face);
        let lease = client.lock("a").ttl(ms(6000)).acquire().unwrap();
        let key = place.keys("a/").pop().unwrap();
        let first = lease_of(&SERVER, &key);
        wire.set(losing_the_move(&key));
        fails(lease.extend(ms(7000)), ErrorKind::Unavailable);
        assert_eq!(wire.lost.load(Ordering::SeqCst), 1);
        wire.set(Rules::default());
        assert_ne!(lease_of(&SERVER, &key), first, "it was moved");
        // past the end of the lease that it hangs on, if nobody keeps that
        let refused = rival.lock("a").acquire_within(ms(10_500));
        assert!(lease.is_held(), "{:?}", lease.loss());
        fails(refused, ErrorKind::Timeout);
        assert_eq!(lease.released(), Release::Released);
        client.close();
        rival.close();
    });
}

#[test]
fn a_count_is_written_to_the_lease_that_the_key_hangs_on() {
    on_both(|face| {
        let place = Place::new();
        let wire = Wire::to(SERVER.port());
        let client = Client::build(face, quick(), &place.url_at(wire.port())).unwrap();
        let owner = Owner::new();
        let lease = client.reentrant_lock("a").owner(&owner).ttl(ms(30_000)).acquire().unwrap();
        let key = place.keys("a/").pop().unwrap();
        wire.set(losing_the_move(&key));
        fails(lease.extend(ms(60_000)), ErrorKind::Unavailable);
        wire.set(Rules::default());
        let moved = lease_of(&SERVER, &key);
        let again = client.reentrant_lock("a").owner(&owner).acquire_within(SOON).unwrap();
        assert_eq!((again.hold_count(), client.inspect("a").unwrap().unwrap().hold_count), (2, 2));
        assert_eq!(lease_of(&SERVER, &key), moved, "it went back to its first lease");
        assert_eq!(again.released(), Release::Released);
        assert_eq!(lease_of(&SERVER, &key), moved);
        assert_eq!(lease.released(), Release::Released);
        let hex = format!("{moved:x}");
        wait_until(SOON, "the end of the lease", || !SERVER.ctl(&["lease", "list"]).contains(&hex));
        client.close();
    });
}

#[test]
fn renewals_beside_extensions_lose_nothing_and_leave_no_lease() {
    on_both(|face| {
        let server = Etcd::start();
        let client = Client::build(face, unhurried(), &server.url("")).unwrap();
        let owner = Owner::new();
        let lease = client.reentrant_lock("a").owner(&owner).ttl(ms(20_000)).acquire().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let extending = |from: u64| {
                for longer in from..from + 40 {
                    lease.extend(ms(longer * 1000)).unwrap();
                }
            };
            let growing = [scope.spawn(move || extending(21)), scope.spawn(move || extending(22))];
            let renewing = scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    lease.extend(ms(20_000)).unwrap();
                    let again = client.reentrant_lock("a").owner(&owner).try_acquire().unwrap().unwrap();
                    assert_eq!(again.released(), Release::Released);
                }
            });
            let grown: Vec<_> = growing.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            done.store(true, Ordering::SeqCst);
            renewing.join().unwrap();
            assert!(grown.iter().all(Result::is_ok), "see above");
        });
        assert!(lease.is_held() && lease.remaining() > ms(20_000));
        assert_eq!(lease.released(), Release::Released);
        wait_until(SOON, "the end of all leases", || server.leases() == 0);
        assert!(server.keys("").is_empty());
        client.close();
    });
}

#[test]
fn the_longer_lease_of_a_key_that_was_deleted_ends_with_the_release() {
    on_both(|face| {
        let server = Etcd::start();
        let client = Client::build(face, unhurried(), &server.url("")).unwrap();
        let lease = client.lock("a").ttl(ms(20_000)).acquire().unwrap();
        lease.extend(ms(3_600_000)).unwrap();
        server.ctl(&["del", &server.keys("a/")[0]]);
        assert_eq!(lease.released(), Release::AlreadyExpired);
        wait_until(SOON, "the end of all leases", || server.leases() == 0);
        client.close();
    });
}
