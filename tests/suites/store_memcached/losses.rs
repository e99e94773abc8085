//! How a cache loses locks, and that the holder is told: removed to make room, flushed, restarted, and no memory left.

use onelock::{ErrorKind, LossReason, Owner, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::memcached::Memcached;
use onelock_tests::stage::{SOON, fails, ms, unhurried};
use onelock_tests::wait::wait_until;

use crate::place::{client_at, is_free};

fn two(face: Face, server: &Memcached) -> (Client, Client) {
    (client_at(face, "l", unhurried(), &server.url()), client_at(face, "l", unhurried(), &server.url()))
}

#[test]
fn what_was_flushed_or_forgotten_by_a_restart_is_told_as_lost() {
    on_both(|face| {
        let server = Memcached::start();
        let (client, other) = two(face, &server);
        let lease = client.lock("a").ttl(ms(6000)).renew_every(ms(100)).acquire().unwrap();
        // one that does not renew does not know: it is believed to its end, and this is said in the guarantees
        let unrenewed = client.lock("b").ttl(ms(3000)).auto_renew(false).acquire().unwrap();
        // what was written in the same second is kept by some versions: it counts in whole ones
        std::thread::sleep(ms(1100));
        assert_eq!(server.ask("flush_all"), "OK");
        assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
        assert!(unrenewed.is_held() && is_free(&other, "b"));
        assert_eq!((lease.released(), unrenewed.released()), (Release::AlreadyExpired, Release::AlreadyExpired));

        let lease = client.lock("a").ttl(ms(6000)).renew_every(ms(100)).acquire().unwrap();
        server.restart();
        assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
        assert!(is_free(&other, "a"));
        client.close();
        other.close();
    });
}

#[test]
fn what_was_removed_to_make_room_is_told_as_lost_and_a_renewed_lock_stays_longer() {
    let server = Memcached::with(&["-m", "2"]);
    let (client, other) = two(Face::Blocking, &server);
    let facts = client.check().unwrap();
    assert!(facts.dangers.iter().any(|text| text.ends_with("(eviction)")), "{facts:?}");
    let lease = client.lock("a").ttl(ms(60_000)).renew_every(ms(60_000 / 3)).acquire().unwrap();
    server.session().fill(60_000);
    assert!(server.stat("evictions") > 0);
    wait_until(SOON, "the lock to be removed", || {
        server.session().fill(20_000);
        client.inspect("a").unwrap().is_none()
    });
    let next = other.lock("a").acquire().unwrap();
    // found at the next renewal, or by whoever asks
    assert!(lease.extend(ms(60_000)).is_err());
    assert_eq!(lease.loss(), Some(LossReason::Taken));
    assert!(!lease.is_held() && next.is_held());
    assert_eq!(lease.released(), Release::AlreadyExpired);
    assert!(!is_free(&client, "a"), "the next holder's");
    client.close();
    other.close();
}

/// A server that may not make room deletes the item under a name for which it has no memory, whoever's it is.
#[test]
fn without_memory_a_lock_is_refused_and_those_that_are_held_stay() {
    on_both(|face| {
        let server = Memcached::with(&["-m", "2", "-M"]);
        let (client, other) = two(face, &server);
        let facts = client.check().unwrap();
        assert!(!facts.warnings.iter().any(|text| text.ends_with("(eviction)")), "{facts:?}");
        let owner = Owner::new();
        let lock = client.reentrant_lock("r").owner(&owner);
        let lease = client.lock("a").ttl(ms(4000)).renew_every(ms(100)).acquire().unwrap();
        let outer = lock.acquire().unwrap();
        let filled = server.session().fill(200_000);
        assert!(filled < 200_000, "it takes whatever comes");
        // the smallest items, too, are refused
        let error = fails(client.lock("new").acquire_within(ms(300)), ErrorKind::ServerRefused);
        assert!(error.to_string().contains("out of memory"), "{error}");
        // asking for a lock that is held, entering it again and renewing it need no memory
        for _ in 0..3 {
            assert!(other.lock("a").try_acquire().unwrap().is_none());
            fails(other.lock("a").acquire_within(ms(200)), ErrorKind::Timeout);
        }
        let inner = lock.acquire().unwrap();
        assert_eq!((inner.hold_count(), inner.released()), (2, Release::Released));
        let before = client.stats().renewals;
        wait_until(SOON, "renewals", || client.stats().renewals > before + 1);
        assert!(lease.is_held() && outer.is_held());
        assert_eq!((lease.released(), outer.released()), (Release::Released, Release::Released));
        client.close();
        other.close();
    });
}
