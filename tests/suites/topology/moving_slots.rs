//! A cluster whose slots move: what is held and what waits goes along.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, ms};
use onelock_tests::topology::Cluster;
use onelock_tests::wait::wait_until;

use super::cluster::{FAILOVER, client, each_flavor, exists, works};

/// F25: a slot that has moved is found where it is, holds and tokens with it.
#[test]
fn f25_a_slot_that_has_moved_is_found() {
    each_flavor(|flavor| {
        let cluster = Cluster::start(flavor);
        for face in Face::ALL {
            let client = client(face, &cluster);
            let name = cluster.name_on(0, &format!("{face:?}"));
            let before = works(&client, &name);
            let lease = client.lock(&name).ttl(ms(60_000)).acquire().unwrap();
            cluster.move_slot(cluster.slot(&name), 0, 2);
            lease.extend(ms(60_000)).unwrap();
            assert_eq!(client.lock(&name).refusal(ms(0)), ErrorKind::Busy);
            assert_eq!(lease.released(), Release::Released);
            assert!(works(&client, &name) > before, "the counter went along");
            assert!(!exists(&cluster, &name));
        }
    });
}

/// F24, F29: while a slot is on its way, what is held is renewed and released on either side; a fenced acquire waits until
/// the slot has arrived.
#[test]
fn f24_f29_holds_live_through_a_move_and_acquires_wait_for_its_end() {
    each_flavor(|flavor| {
        let cluster = Cluster::start(flavor);
        for face in Face::ALL {
            let client = client(face, &cluster);
            let tag = cluster.name_on(1, &format!("{face:?}"));
            let slot = cluster.slot(&tag);
            let names: Vec<String> = (0..4).map(|number| format!("{{{tag}}}{number}")).collect();
            let leases: Vec<_> =
                names.iter().map(|name| client.lock(name).ttl(ms(60_000)).acquire().unwrap()).collect();
            let counted = works(&client, &tag);

            cluster.begin_move(slot, 1, 0);
            leases[0].extend(ms(60_000)).unwrap();
            assert_eq!(leases[1].released(), Release::Released);
            // the counter is there and the lock is not: neither side takes both
            let error = client.lock(&tag).try_acquire();
            if let Err(error) = error {
                assert!(error.is_retryable() && error.kind() == ErrorKind::ServerRefused, "{error}");
            }
            // one of its locks has gone over, the others have not
            let port = cluster.nodes[0].port().to_string();
            cluster.nodes[1].cmd(&["MIGRATE", "127.0.0.1", &port, &names[2], "0", "5000"]);
            leases[2].extend(ms(60_000)).unwrap();
            leases[3].extend(ms(60_000)).unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| works(&client, &tag));
                cluster.move_keys(slot, 1, 0);
                assert_eq!(leases[2].released(), Release::Released);
                cluster.end_move(slot, 0);
                assert!(waiter.join().unwrap() > counted);
            });
            for at in [0, 3] {
                assert!(leases[at].is_held());
                assert_eq!(leases[at].released(), Release::Released);
            }
            assert!(names.iter().all(|name| !exists(&cluster, name)));
        }
    });
}

/// A reentrant lock changes hands while its slot moves: the key is never deleted in between, since it could not be written again.
#[test]
fn a_reentrant_lock_is_attached_and_retained_while_its_slot_moves() {
    each_flavor(|flavor| {
        let cluster = Cluster::start(flavor);
        for face in Face::ALL {
            let client = client(face, &cluster);
            let tag = cluster.name_on(1, &format!("{face:?}"));
            let slot = cluster.slot(&tag);
            let lock = |number: u32| client.reentrant_lock(format!("{{{tag}}}{number}")).ttl(ms(60_000));
            let (handed_over, short) = (lock(0), lock(1).min_hold(ms(50_000)));
            let proof = handed_over.acquire().unwrap().detach().unwrap();
            let retained = short.acquire().unwrap();

            cluster.begin_move(slot, 1, 0);
            let lease = handed_over.attach(&proof).unwrap();
            assert!(handed_over.is_locked().unwrap());
            assert_eq!(retained.released(), Release::Released);
            assert!(short.is_locked().unwrap(), "free before its shortest time was over");
            cluster.move_keys(slot, 1, 0);
            cluster.end_move(slot, 0);

            lease.extend(ms(60_000)).unwrap();
            assert_eq!(lease.released(), Release::Released);
            assert!(short.try_acquire().unwrap().is_none());
        }
    });
}

/// How many scripts a node has run by their hash.
fn script_calls(node: &Server) -> u64 {
    let stats = node.text(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

/// Several locks of one slot are one request; of several slots, or while their slot moves, they are taken and released one by
/// one.
#[test]
fn several_locks_of_one_slot_go_together_and_one_by_one_while_it_moves() {
    each_flavor(|flavor| {
        let cluster = Cluster::start(flavor);
        for face in Face::ALL {
            let client = client(face, &cluster);
            let tag = cluster.name_on(1, &format!("{face:?}"));
            let slot = cluster.slot(&tag);
            works(&client, &tag);
            let names: Vec<String> = (0..3).map(|number| format!("{{{tag}}}{number}")).collect();
            let sent = || cluster.nodes.iter().map(script_calls).sum::<u64>();
            // the scripts come along once
            assert_eq!(client.multi_lock(&names).acquire().unwrap().released(), Release::Released);
            let before = sent();
            let lease = client.multi_lock(&names).acquire().unwrap();
            assert_eq!(sent() - before, 1);
            assert_eq!(lease.released(), Release::Released);
            assert_eq!(sent() - before, 2);
            let apart = [cluster.name_on(0, "apart"), cluster.name_on(1, "apart")];
            let before = sent();
            assert_eq!(client.multi_lock(&apart).acquire().unwrap().released(), Release::Released);
            assert!(sent() - before >= 4);

            let lease = client.multi_lock(&names).acquire().unwrap();
            cluster.begin_move(slot, 1, 0);
            let port = cluster.nodes[0].port().to_string();
            cluster.nodes[1].cmd(&["MIGRATE", "127.0.0.1", &port, &names[1], "0", "5000"]);
            assert_eq!(lease.released(), Release::Released, "their keys are on two nodes");
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| client.multi_lock(&names).acquire_within(SOON).unwrap());
                cluster.move_keys(slot, 1, 0);
                cluster.end_move(slot, 0);
                assert_eq!(waiter.join().unwrap().released(), Release::Released);
            });
            assert!(names.iter().all(|name| !exists(&cluster, name)));
        }
    });
}

/// Many holders in one slot: their renewal is one call, and goes key by key while the slot moves.
#[test]
fn renewals_go_slot_by_slot_and_key_by_key_while_a_slot_moves() {
    let cluster = Cluster::start(Flavor::Valkey91);
    on_both(|face| {
        let client = client(face, &cluster);
        let tag = cluster.name_on(0, &format!("{face:?}"));
        let slot = cluster.slot(&tag);
        let ttl = ms(4000);
        let mine = |count: u32, tag: &str| -> Vec<_> {
            (0..count).map(|at| client.lock(format!("{{{tag}}}{at}")).ttl(ttl).acquire().unwrap()).collect()
        };
        let together = mine(20, &tag);
        let elsewhere = mine(20, &cluster.name_on(1, &format!("{face:?}")));
        let scattered: Vec<_> =
            (0..40).map(|at| client.lock(format!("{face:?} {at}")).ttl(ttl).acquire().unwrap()).collect();
        cluster.begin_move(slot, 0, 2);
        let port = cluster.nodes[2].port().to_string();
        for at in 0..10 {
            let name = format!("{{{tag}}}{at}");
            cluster.nodes[0].cmd(&["MIGRATE", "127.0.0.1", &port, &name, "0", "5000"]);
        }
        // halfway for twice the length of a lease: only renewals keep them
        let begun = Instant::now();
        wait_until(FAILOVER, "two leases' time", || begun.elapsed() > ttl * 2);
        let all = || together.iter().chain(&elsewhere).chain(&scattered);
        assert_eq!(all().filter(|lease| !lease.is_held()).count(), 0, "lost while the slot moved");
        cluster.move_keys(slot, 0, 2);
        cluster.end_move(slot, 2);
        let begun = Instant::now();
        wait_until(FAILOVER, "another lease's time", || begun.elapsed() > ttl);
        assert!(all().all(|lease| lease.is_held() && lease.released() == Release::Released));
    });
}

/// Slots move to and fro while threads and tasks take and give: nobody overlaps, nothing is left.
#[test]
fn slots_move_under_load() {
    let cluster = Cluster::start(Flavor::Valkey91);
    let clients: Vec<Client> = Face::ALL.into_iter().map(|face| client(face, &cluster)).collect();
    let names: Vec<String> = (0..3).map(|at| cluster.name_on(at, "busy")).collect();
    let inside: Vec<AtomicBool> = names.iter().map(|_| AtomicBool::new(false)).collect();
    let (turns, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            for worker in 0..4 {
                let (names, inside, turns, over) = (&names, &inside, &turns, &over);
                scope.spawn(move || {
                    let mut at = number + worker;
                    while !over.load(Ordering::Relaxed) {
                        at = (at + 1) % names.len();
                        let lease = client.lock(&names[at]).ttl(ms(5000)).acquire_within(FAILOVER).unwrap();
                        assert!(!inside[at].swap(true, Ordering::SeqCst), "two inside");
                        turns.fetch_add(1, Ordering::Relaxed);
                        inside[at].store(false, Ordering::SeqCst);
                        assert_eq!(lease.released(), Release::Released);
                    }
                });
            }
        }
        for round in 0..6 {
            for name in &names {
                let slot = cluster.slot(name);
                let from = cluster.owner_seen_by(&cluster.nodes[0], slot).unwrap();
                cluster.begin_move(slot, from, (from + 1) % 3);
                cluster.move_keys(slot, from, (from + 1) % 3);
                cluster.end_move(slot, (from + 1) % 3);
            }
            let then = turns.load(Ordering::Relaxed);
            wait_until(FAILOVER, &format!("turns after round {round}"), || turns.load(Ordering::Relaxed) > then + 50);
        }
        over.store(true, Ordering::Relaxed);
    });
    wait_until(FAILOVER, "nothing to be left", || {
        let stats: Vec<_> = clients.iter().map(Client::stats).collect();
        stats.iter().all(|it| (it.cleaning, it.held, it.waiting) == (0, 0, 0))
            && names.iter().all(|name| !exists(&cluster, name))
    });
}
