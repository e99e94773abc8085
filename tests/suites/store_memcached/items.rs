//! What stands on the server: the key, the value, how long it is kept; several clients at once; and what is no lock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use onelock::{ErrorKind, Kind, Owner, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::memcached::Memcached;
use onelock_tests::stage::{SOON, fails, ms, unhurried};
use onelock_tests::wire::Wire;

use crate::place::{at, client, client_at, is_free, item, server};

#[test]
fn an_item_has_the_token_and_is_kept_a_second_or_two_longer_than_the_lease() {
    on_both(|face| {
        let client = client(face, "items");
        let key = |name: &str| item(&format!("items{face:?}:{name}"));
        for (ttl_ms, kept) in [(500, 2), (1000, 2), (1001, 3), (30_000, 31)] {
            let lease = client.lock("a").ttl(ms(ttl_ms)).auto_renew(false).acquire().unwrap();
            let mut session = server().session();
            let head = session.ask(&format!("mg {} v t", key("a")));
            // a tick of the server's clock may come in between
            let left: i64 = head.rsplit_once(" t").unwrap().1.parse().unwrap();
            assert!(left == kept || left == kept - 1, "{ttl_ms} ms are kept for {left} s");
            assert_eq!(session.line(), lease.token());
            assert!(lease.remaining() < ms(ttl_ms));
            assert_eq!(lease.released(), Release::Released);
            assert_eq!(server().ask(&format!("mg {} v t", key("a"))), "EN");
        }
        let owner = Owner::new();
        let lock = client.reentrant_lock("r").owner(&owner);
        let (outer, inner) = (lock.acquire().unwrap(), lock.acquire().unwrap());
        let mut session = server().session();
        session.ask(&format!("mg {} v", key("r")));
        assert_eq!(session.line(), format!("{} 2", outer.token()));
        assert_eq!(client.inspect("r").unwrap().unwrap().hold_count, 2);
        assert_eq!((inner.released(), outer.released()), (Release::Released, Release::Released));
        client.close();
    });
}

#[test]
fn a_lease_is_never_longer_than_the_item() {
    on_both(|face| {
        let (client, other) = (client(face, "longer"), client(face, "longer"));
        // renewed by less than what is left
        let lease = client.lock("a").ttl(ms(1500)).renew_every(ms(200)).acquire().unwrap();
        lease.extend(ms(60_000)).unwrap();
        std::thread::sleep(ms(600));
        let head = server().ask(&format!("mg {} t", item(&format!("longer{face:?}:a"))));
        let left: u64 = head.split(' ').find_map(|word| word.strip_prefix('t')?.parse().ok()).unwrap();
        assert!(left >= 59, "a renewal has shortened it to {left} s");
        assert!(lease.remaining() > ms(55_000));
        assert!(!is_free(&other, "a"));
        assert_eq!(lease.released(), Release::Released);
        client.close();
        other.close();
    });
}

#[test]
fn names_of_any_bytes_and_any_length_are_locks_of_their_own() {
    on_both(|face| {
        let client = client(face, "names");
        let long = "n".repeat(500);
        let names: Vec<Vec<u8>> = vec![
            b"a b".to_vec(),
            b"a\r\nflush_all\r\n".to_vec(),
            vec![0, 0xff, 0x7f],
            long.clone().into_bytes(),
            format!("{long}2").into_bytes(),
        ];
        let leases: Vec<_> = names.iter().map(|name| client.lock(name).acquire_within(SOON).unwrap()).collect();
        for (name, lease) in names.iter().zip(&leases) {
            assert!(client.lock(name).try_acquire().unwrap().is_none());
            let seen = client.inspect(name).unwrap().unwrap();
            assert_eq!((seen.kind, seen.fencing_token), (Kind::Mutex, None));
            assert!(lease.is_held());
        }
        for lease in leases {
            assert_eq!(lease.released(), Release::Released);
        }
        client.close();
    });
}

#[test]
fn what_is_no_lock_is_left_alone() {
    on_both(|face| {
        let client = client(face, "foreign");
        let key = item(&format!("foreign{face:?}:a"));
        assert_eq!(server().ask(&format!("ms {key} 3 T0\r\nabc")), "HD");
        fails(client.lock("a").acquire_within(SOON), ErrorKind::WrongKind);
        fails(client.reentrant_lock("a").acquire_within(SOON), ErrorKind::WrongKind);
        fails(client.force_release("a"), ErrorKind::WrongKind);
        assert_eq!(server().ask(&format!("mg {key} t")), "HD t-1", "it stands as it was");
        assert!(client.force_release_foreign("a").unwrap());
        let lease = client.lock("a").acquire().unwrap();
        fails(client.reentrant_lock("a").try_acquire(), ErrorKind::WrongKind);
        // somebody else writes over it: not ours any more, and not touched
        assert_eq!(server().ask(&format!("ms {key} 3 T0\r\nabc")), "HD");
        assert_eq!(lease.released(), Release::AlreadyExpired);
        assert_eq!(server().ask(&format!("mg {key} t")), "HD t-1");
        client.close();
    });
}

/// The number of a lock's item is good for one hold only: a stale one must delete nothing.
#[test]
fn the_item_of_the_next_holder_is_never_deleted_or_prolonged() {
    on_both(|face| {
        let server = Memcached::start();
        let (client, other) =
            (client_at(face, "next", unhurried(), &server.url()), client_at(face, "next", unhurried(), &server.url()));
        for count in 0..3 {
            // one with a number that is known, one that was renewed, one whose connection was made anew
            let lease = client.lock("a").ttl(ms(60_000)).acquire().unwrap();
            if count == 1 {
                lease.extend(ms(60_000)).unwrap();
            }
            assert!(other.force_release("a").unwrap());
            let next = other.lock("a").acquire().unwrap();
            if count == 2 {
                assert!(lease.extend(ms(70_000)).is_err());
            }
            assert_eq!(lease.released(), Release::AlreadyExpired);
            assert!(next.is_held() && !is_free(&client, "a"));
            assert_eq!(next.released(), Release::Released);
        }
        // numbers begin anew with the server: that of the first item may be another one's
        let lease = client.lock("a").acquire().unwrap();
        server.restart();
        let next = other.lock("a").acquire_within(SOON).unwrap();
        let _ = lease.release();
        assert!(next.is_held() && !is_free(&client, "a"), "a release has taken another holder's item");
        assert_eq!(next.released(), Release::Released);
        client.close();
        other.close();
    });
}

#[test]
fn of_several_clients_one_holds_it_at_a_time() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 25;
    on_both(|face| {
        let (inside, grants) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let client = client(face, "contention");
                    for _ in 0..ROUNDS {
                        // more often than the pace of those who wait would have it
                        let lease = loop {
                            if let Some(lease) = client.lock("a").try_acquire().unwrap() {
                                break lease;
                            }
                        };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                        grants.fetch_add(1, Ordering::Relaxed);
                        assert!(lease.is_held());
                        inside.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(lease.released(), Release::Released);
                    }
                    client.close();
                });
            }
        });
        assert_eq!(grants.load(Ordering::Relaxed) as usize, CLIENTS * ROUNDS);
    });
}

/// A write for which the server finds no memory deletes the item that is there: who is refused must not have written.
#[test]
fn who_is_refused_or_waits_has_written_nothing() {
    on_both(|face| {
        let wire = Wire::to(server().port());
        let (client, other) = (client(face, "refused"), client_at(face, "refused", unhurried(), &at(wire.port())));
        let lease = client.lock("a").acquire().unwrap();
        assert!(other.lock("a").try_acquire().unwrap().is_none());
        fails(other.lock("a").acquire_within(ms(300)), ErrorKind::Timeout);
        assert!(wire.sent().contains("mg ") && !wire.sent().contains("ms "), "{}", wire.sent());
        assert_eq!(lease.released(), Release::Released);
        client.close();
        other.close();
    });
}

#[test]
fn a_waiter_looks_again_and_again_and_asks_little() {
    let (holder, waiting) = (client(Face::Blocking, "pace"), client(Face::Blocking, "pace"));
    let lease = holder.lock("a").acquire().unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| waiting.lock("a").acquire_within(SOON).unwrap());
        std::thread::sleep(ms(1500));
        let asked = waiting.stats().commands_sent;
        assert!((5..=60).contains(&asked), "{asked} requests in {:?}", begun.elapsed());
        assert_eq!(lease.released(), Release::Released);
        let released = Instant::now();
        let next = waiter.join().unwrap();
        assert!(released.elapsed() < Duration::from_secs(2), "{:?}", released.elapsed());
        assert_eq!(next.released(), Release::Released);
    });
    holder.close();
    waiting.close();
}

#[test]
fn several_servers_a_queue_and_other_things_that_it_lacks_are_refused_before_any_request() {
    let build = |url: &str| Client::build(Face::Blocking, unhurried(), url);
    for url in ["memcached://h1,h2", "memcached://h/0", "memcached://bob@h", "memcached://h?x=1"] {
        fails(build(url), ErrorKind::InvalidArgument);
    }
    let client = client(Face::Blocking, "lacks");
    let error = fails(client.lock("a").ttl(Duration::from_secs(40 * 86_400)).acquire(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("ttl"), "{error}");
    let long = Duration::from_secs(20 * 86_400);
    let error = fails(client.lock("a").ttl(long).lock_delay(long).acquire(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("30 days"), "{error}");
    assert_eq!(client.stats().commands_sent, 0);
    client.close();
}
