//! What holds while nothing is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::{ErrorKind, Grade, Kind, Owner, Release};
use onelock_tests::face::{Client, Face, everywhere, on_both};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, ms, quick_once, unhurried};
use onelock_tests::topology::Several;
use onelock_tests::wait::wait_until;

const FRESH: &str = "quarantine_ms=0";

fn client(face: Face, several: &Several) -> Client {
    Client::connect(face, unhurried(), &several.url(FRESH)).unwrap()
}

#[test]
fn a_lock_is_held_on_all_servers_and_released_on_all() {
    everywhere(|flavor, face| {
        for number in [1, 3, 5] {
            let several = Several::start(flavor, number);
            let client = client(face, &several);
            // a server whose connection is just being made is done without, so that comes first
            wait_until(SOON, "connections to all servers", || {
                let lease = client.lock("first").acquire().unwrap();
                let all = several.count("first") == number;
                lease.released();
                all
            });
            for kind in [Kind::Mutex, Kind::Reentrant] {
                let lock = client.lock_of(kind, kind.as_str());
                let lease = lock.acquire().unwrap();
                // the last of them may be a moment behind the majority
                wait_until(SOON, "all servers", || several.count(kind.as_str()) == number);
                assert!(lease.is_held() && lease.remaining() > Duration::from_secs(29));
                assert!(lock.try_acquire().unwrap().is_none());
                assert!(lock.is_locked().unwrap());
                let seen = client.inspect(kind.as_str()).unwrap().unwrap();
                assert_eq!((seen.kind, seen.fencing_token), (kind, lease.fencing_token()));
                assert_eq!(lease.released(), Release::Released);
                assert_eq!(lease.released(), Release::AlreadyReleased);
                wait_until(SOON, "no server", || several.count(kind.as_str()) == 0);
                let next = lock.acquire().unwrap();
                assert!(next.fence() > lease.fence());
                next.released();
            }
            client.close();
        }
    });
}

#[test]
fn a_list_of_addresses_is_the_same_place_as_one_string_of_them() {
    let several = Several::start(Flavor::Valkey91, 3);
    let urls: Vec<String> = several.servers.iter().map(Server::url).collect();
    let listed = unhurried().quarantine(Duration::ZERO).connect_nodes_blocking(&urls).unwrap();
    let joined = client(Face::Blocking, &several);
    let lease = listed.lock("listed").acquire().unwrap();
    assert!(joined.lock("listed").try_acquire().unwrap().is_none());
    assert!(several.count("listed") >= 2, "a majority");
    lease.release().unwrap();
    listed.close();

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listed = runtime.block_on(unhurried().quarantine(Duration::ZERO).connect_nodes(urls)).unwrap();
    let lease = runtime.block_on(listed.lock("listed").acquire()).unwrap();
    assert!(joined.lock("listed").try_acquire().unwrap().is_none());
    runtime.block_on(lease.release()).unwrap();
    runtime.block_on(listed.close());
    joined.close();
}

#[test]
fn a_release_wakes_a_waiter_and_ties_settle() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let clients: Vec<Client> = (0..4).map(|_| client(face, &several)).collect();
        let (inside, turns) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for client in &clients {
                let (inside, turns) = (inside.clone(), turns.clone());
                scope.spawn(move || {
                    for _ in 0..15 {
                        let lease = client.lock("a").acquire_within(Duration::from_secs(30)).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                        turns.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        lease.released();
                    }
                });
            }
        });
        assert_eq!(turns.load(Ordering::SeqCst), 60);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        wait_until(SOON, "nothing left", || several.count("a") == 0);
        quick_once(ms(500), "woken, not polled", || {
            let holder = clients[0].lock("b").acquire_within(SOON).unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let lease = clients[1].lock("b").acquire().unwrap();
                    let got = Instant::now();
                    lease.released();
                    got
                });
                wait_until(SOON, "the waiter", || clients[1].stats().waiting == 1);
                std::thread::sleep(ms(200));
                let freed = Instant::now();
                holder.released();
                waiter.join().unwrap().duration_since(freed)
            })
        });
    });
}

#[test]
fn re_entry_extension_and_handing_over() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = client(face, &several);
        let owner = Owner::new();
        let lock = client.reentrant_lock("r").owner(&owner);
        let outer = lock.acquire().unwrap();
        let inner = lock.acquire().unwrap();
        assert_eq!(inner.hold_count(), 2);
        assert_eq!(client.inspect("r").unwrap().unwrap().hold_count, 2);
        assert_eq!(inner.released(), Release::Released);
        assert!(outer.is_held());
        assert_eq!(outer.released(), Release::Released);
        let lock = client.lock("m").ttl(Duration::from_secs(2));
        let lease = lock.acquire().unwrap();
        lease.extend(Duration::from_secs(60)).unwrap();
        assert!(lease.remaining() > Duration::from_secs(50));
        let proof = lease.detach().unwrap();
        let adopted = lock.attach(&proof).unwrap();
        assert_eq!(adopted.fencing_token(), lease.fencing_token());
        assert_eq!(adopted.released(), Release::Released);
        let lease = lock.acquire().unwrap();
        assert!(client.force_release("m").unwrap());
        assert_eq!(lease.released(), Release::AlreadyExpired);
    });
}

#[test]
fn a_lease_is_renewed_and_a_server_that_lost_it_gets_it_again() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = client(face, &several);
        let lease = client.lock("a").ttl(ms(3000)).acquire().unwrap();
        wait_until(SOON, "all servers", || several.count("a") == 3);
        several.servers[1].cmd(&["DEL", "a"]);
        wait_until(SOON, "the server that lost it", || several.count("a") == 3);
        // longer than the ttl: it was renewed
        std::thread::sleep(ms(3600));
        assert!(lease.is_held());
        // without a majority it is lost, and nothing brings it back
        wait_until(SOON, "the loss", || {
            // a renewal in between gives the first one the hold again
            several.servers[0].cmd(&["DEL", "a"]);
            several.servers[2].cmd(&["DEL", "a"]);
            lease.loss().is_some()
        });
        drop(lease);
        wait_until(SOON, "nothing left", || several.count("a") == 0);
    });
}

#[test]
fn what_the_servers_say_of_themselves() {
    on_both(|face| {
        let fresh = Several::start(Flavor::Valkey91, 2);
        let facts = client(face, &fresh).check().unwrap();
        assert_eq!(facts.grade, Grade::ClockBounded);
        assert!(facts.warnings[0].contains("use an odd number"), "{:?}", facts.warnings);
        assert!(facts.warnings.iter().any(|warning| warning.contains("appendonly")), "{:?}", facts.warnings);
        let strict = Several::with(3, || onelock_tests::servers::Server::builder(Flavor::Valkey91).aof("always"));
        let demanding = unhurried().min_fencing_grade(Grade::Strict);
        // servers that keep their data vote at once
        let client = Client::connect(face, demanding, &strict.url("")).unwrap();
        client.lock("a").acquire().unwrap().released();
        strict.servers[1].config_set("maxmemory-policy", "allkeys-lru");
        let refused = Client::connect(face, unhurried().min_fencing_grade(Grade::ClockBounded), &strict.url(""));
        assert_eq!(refused.err().unwrap().kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn addresses() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let list: Vec<String> = several.servers.iter().map(Server::url).collect();
        let client = Client::connect(face, unhurried().quarantine(Duration::ZERO), &list.join(" ")).unwrap();
        client.lock("a").acquire().unwrap().released();
        let bad = |url: &str| Client::build(face, unhurried(), url).err().unwrap();
        for url in ["redlock://", "redlock://h,h", "redlock://a,b,c,d,e,f,g,h,i,j", "redlock://a?x=1", "redis://a b"] {
            assert_eq!(bad(url).kind(), ErrorKind::InvalidArgument, "{url}");
        }
    });
}
