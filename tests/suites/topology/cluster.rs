//! A cluster: every lock on the node of its slot, also while slots move and masters go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::{ErrorKind, Grade, Kind, Notify, Owner, Release};
use onelock_tests::face::{Client, Face, on_both, side_by_side};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, fails, ms, quick, unhurried};
use onelock_tests::topology::Cluster;
use onelock_tests::wait::wait_until;

/// Longer than a failover takes, also on a busy machine.
const FAILOVER: Duration = Duration::from_secs(90);

fn client(face: Face, cluster: &Cluster) -> Client {
    Client::build(face, unhurried(), &cluster.url()).unwrap()
}

fn works(client: &Client, name: &str) -> u64 {
    let lease = client.lock(name).acquire_within(FAILOVER).unwrap_or_else(|error| panic!("{name}: {error}"));
    let fence = lease.fence();
    assert_eq!(lease.released(), Release::Released);
    fence
}

fn exists(cluster: &Cluster, name: &str) -> bool {
    cluster.nodes[cluster.owner(cluster.slot(name))].int(&["EXISTS", name]) == 1
}

fn each_flavor(test: impl Fn(Flavor) + Sync) {
    side_by_side(&Flavor::ALL.map(|flavor| (format!("{flavor:?}"), flavor)), |flavor| test(*flavor));
}

#[test]
fn every_lock_is_on_the_node_of_its_slot() {
    each_flavor(|flavor| {
        let cluster = Cluster::start(flavor);
        // one seed is enough
        let url = format!("redis+cluster://127.0.0.1:{}", cluster.nodes[1].port());
        for face in Face::ALL {
            let client = Client::connect(face, unhurried(), &url).unwrap();
            for at in 0..3 {
                for kind in [Kind::Mutex, Kind::Reentrant] {
                    let name = cluster.name_on(at, &format!("{kind:?}"));
                    let owner = Owner::new();
                    let lock = client.lock_of(kind, &name);
                    let lock = if kind == Kind::Reentrant { lock.owner(&owner) } else { lock };
                    let lease = lock.acquire().unwrap();
                    assert_eq!(cluster.nodes[at].int(&["EXISTS", &name, &format!("onelock_fence:{{{name}}}")]), 2);
                    lease.extend(ms(60_000)).unwrap();
                    assert!(client.inspect(&name).unwrap().is_some());
                    assert_eq!(client.lock_of(kind, &name).refusal(ms(0)), ErrorKind::Busy);
                    if kind == Kind::Reentrant {
                        assert_eq!(lock.acquire().unwrap().released(), Release::Released);
                    }
                    assert_eq!(lease.released(), Release::Released);
                    let taken = lock.acquire().unwrap();
                    assert!(client.force_release(&name).unwrap());
                    drop(taken);
                    assert!(!exists(&cluster, &name));
                }
            }
            works(&client, "{tag}:of:several");
            client.close();
        }
    });
}

#[test]
fn names_whose_braces_cannot_work_are_refused_before_anything_is_sent() {
    let nobody = onelock_tests::servers::Port::reserve();
    let url = format!("redis+cluster://127.0.0.1:{}", nobody.number());
    on_both(|face| {
        let client = Client::build(face, unhurried(), &url).unwrap();
        for name in ["a{b", "a}b", "{}", "a{}b"] {
            let begun = Instant::now();
            let error = fails(client.lock(name).acquire(), ErrorKind::InvalidArgument).to_string();
            assert!(error.contains("braces") && error.contains(name), "{error}");
            assert!(begun.elapsed() < ms(300), "no server was asked");
            fails(client.reentrant_lock(name).try_acquire(), ErrorKind::InvalidArgument);
            fails(client.inspect(name), ErrorKind::InvalidArgument);
        }
        assert_eq!(client.stats().commands_sent, 0);
        assert_eq!(client.lock("a{b}").refusal(ms(0)), ErrorKind::Unavailable);
    });
}

#[test]
fn what_is_no_cluster_is_named() {
    let server = Server::valkey();
    on_both(|face| {
        let url = format!("redis+cluster://127.0.0.1:{}", server.port());
        let error = fails(Client::connect(face, unhurried(), &url), ErrorKind::InvalidArgument).to_string();
        assert!(error.contains("no node of a cluster"), "{error}");
    });
}

#[test]
fn the_grade_says_that_a_failover_can_lose_a_lock() {
    let cluster = Cluster::with(Flavor::Valkey91, 0, |node| node.aof("always"));
    on_both(|face| {
        let facts = client(face, &cluster).check().unwrap();
        assert_eq!((facts.grade, facts.warnings), (Grade::BestEffort, Vec::new()));
        assert!(facts.server.starts_with("valkey"), "{}", facts.server);
    });
}

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
        let ttl = ms(1500);
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
        // halfway for three times the length of a lease: only renewals keep them
        let begun = Instant::now();
        wait_until(FAILOVER, "three leases' time", || begun.elapsed() > ttl * 3);
        let all = || together.iter().chain(&elsewhere).chain(&scattered);
        assert_eq!(all().filter(|lease| !lease.is_held()).count(), 0, "lost while the slot moved");
        cluster.move_keys(slot, 0, 2);
        cluster.end_move(slot, 2);
        let begun = Instant::now();
        wait_until(FAILOVER, "another lease's time", || begun.elapsed() > ttl);
        assert!(all().all(|lease| lease.is_held() && lease.released() == Release::Released));
    });
}

/// One frozen node: what is held on the others goes on, and what is held there ends at its deadline.
#[test]
fn a_frozen_node_does_not_delay_the_renewals_of_the_others() {
    let cluster = Cluster::with(Flavor::Valkey91, 0, |node| node.config("cluster-node-timeout", "60000"));
    let clients = Face::ALL.map(|face| (face, client(face, &cluster)));
    let held = |at: usize| {
        let name = |face: &Face| cluster.name_on(at, &format!("{face:?}"));
        clients.each_ref().map(|(face, client)| client.lock(name(face)).ttl(ms(1000)).acquire().unwrap())
    };
    let leases = [0, 1, 2].map(held);
    cluster.nodes[1].stop();
    let begun = Instant::now();
    let mut shortest = ms(1000);
    while begun.elapsed() < ms(4000) {
        for lease in leases[0].iter().chain(&leases[2]) {
            assert!(lease.is_held(), "after {:?}", begun.elapsed());
            shortest = shortest.min(lease.remaining());
        }
        std::thread::sleep(ms(1));
    }
    assert!(leases[1].iter().all(|lease| !lease.is_held()));
    // renewed every 330 ms; had one waited for the frozen node, there would have been less
    assert!(shortest > ms(450), "{shortest:?} of a second was left at the worst");
    cluster.nodes[1].cont();
}

/// F26: with a master gone and nobody to take over, its slots are refused and the others too where the cluster says so; when
/// it is back, so are they.
#[test]
fn f26_a_cluster_that_is_down_refuses_and_recovers() {
    each_flavor(|flavor| {
        let cluster = Cluster::with(flavor, 0, |node| node.aof("always").config("cluster-node-timeout", "600"));
        let clients = Face::ALL.map(|face| client(face, &cluster));
        let (there, gone) = (cluster.name_on(0, "there"), cluster.name_on(2, "gone"));
        for client in &clients {
            works(client, &there);
            works(client, &gone);
        }
        cluster.nodes[2].kill();
        wait_until(FAILOVER, "the cluster to be down", || {
            cluster.nodes[0].text(&["CLUSTER", "INFO"]).contains("cluster_state:fail")
        });
        for client in &clients {
            let error = fails(client.lock(&there).try_acquire(), ErrorKind::ServerRefused);
            assert!(error.is_retryable() && error.to_string().contains("CLUSTERDOWN"), "{error}");
            let error = client.lock(&gone).acquire_within(ms(300)).map(drop).unwrap_err();
            assert!(error.is_retryable(), "{error}");
        }
        cluster.nodes[2].restart();
        for client in &clients {
            works(client, &there);
            works(client, &gone);
        }
    });
}

#[test]
fn a_killed_master_is_replaced_by_its_replica() {
    let cluster = Cluster::replicated(Flavor::Valkey91);
    let clients = Face::ALL.map(|face| client(face, &cluster));
    let name = cluster.name_on(1, "a");
    let before = clients.each_ref().map(|client| works(client, &name));
    cluster.nodes[1].kill();
    let after = clients.each_ref().map(|client| works(client, &name));
    assert!(after.iter().min() > before.iter().max(), "{before:?} {after:?}");
    assert_eq!(cluster.wait_moved(cluster.slot(&name), 1), 4);
    // the old master comes back as a replica, and is not believed
    cluster.nodes[1].restart();
    wait_until(FAILOVER, "the old master to be a replica", || cluster.nodes[1].info("replication")["role"] == "slave");
    for client in &clients {
        works(client, &name);
    }
}

/// A failover in good order: held and waited for all the while.
#[test]
fn a_failover_in_good_order_is_followed() {
    let cluster = Cluster::with(Flavor::Redis70, 1, |node| node);
    for face in Face::ALL {
        let (holder, other) = (client(face, &cluster), client(face, &cluster));
        let name = cluster.name_on(if face == Face::Async { 0 } else { 2 }, &format!("{face:?}"));
        let slot = cluster.slot(&name);
        // a replica that gets no votes in time has paused its master for five seconds, and is asked again
        let ttl = FAILOVER * 3;
        let lease = holder.lock(&name).ttl(ttl).acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.lock(&name).acquire_within(FAILOVER).unwrap());
            wait_until(SOON, "the waiter", || other.stats().waiting == 1);
            cluster.hand_over(slot);
            lease.extend(ttl).unwrap();
            assert_eq!(lease.released(), Release::Released);
            let begun = Instant::now();
            assert_eq!(waiter.join().unwrap().released(), Release::Released);
            assert!(begun.elapsed() < ms(2500), "woken at the new master: {:?}", begun.elapsed());
        });
    }
}

fn subscriptions(cluster: &Cluster, command: &str, name: &str) -> Vec<i64> {
    let channel = format!("onelock_channel:{{{name}}}");
    let count = |node: &Server| {
        let words = onelock_tests::resp::words(&node.cmd(&["PUBSUB", command, &channel]));
        words[1].parse::<i64>().unwrap()
    };
    cluster.nodes.iter().map(count).collect()
}

/// Each way of announcing, and how soon a waiter takes over.
#[test]
fn waiters_are_woken_each_way() {
    for (flavor, auto_is_sharded) in [(Flavor::Redis62, false), (Flavor::Redis70, true), (Flavor::Valkey91, true)] {
        let cluster = Cluster::start(flavor);
        for notify in Notify::ALL {
            if flavor == Flavor::Redis62 && notify == Notify::Sharded {
                continue; // tested below: waiters poll
            }
            let sharded = notify == Notify::Sharded
                || (flavor != Flavor::Redis62 && notify == Notify::Both)
                || (notify == Notify::Auto && auto_is_sharded);
            let classic = matches!(notify, Notify::Classic | Notify::Both) || (notify == Notify::Auto && !sharded);
            on_both(|face| {
                let client = |face| Client::build(face, quick().notify(notify), &cluster.url()).unwrap();
                let (holder, other) = (client(face), client(face));
                let at = if face == Face::Async { 0 } else { 2 };
                let name = cluster.name_on(at, &format!("{notify:?}{face:?}"));
                let lease = holder.lock(&name).acquire().unwrap();
                std::thread::scope(|scope| {
                    let waiter = scope.spawn(|| other.lock(&name).acquire_within(SOON).unwrap());
                    let subscribed = |command: &str, wanted: bool| {
                        wait_until(SOON, "the subscription", || {
                            let counts = subscriptions(&cluster, command, &name);
                            counts.iter().sum::<i64>() == i64::from(wanted) && counts[at] == i64::from(wanted)
                        });
                    };
                    if flavor != Flavor::Redis62 {
                        subscribed("SHARDNUMSUB", sharded);
                    }
                    subscribed("NUMSUB", classic);
                    wait_until(SOON, "the waiter to have looked again", || other.stats().commands_sent >= 2);
                    let begun = Instant::now();
                    assert_eq!(lease.released(), Release::Released);
                    let lease = waiter.join().unwrap();
                    assert!(begun.elapsed() < ms(700), "{flavor:?} {notify:?} {face:?}: {:?}", begun.elapsed());
                    lease.released();
                });
                wait_until(SOON, "no subscription to be left", || {
                    let none = |command: &str| subscriptions(&cluster, command, &name).iter().all(|count| *count == 0);
                    none("NUMSUB") && (flavor == Flavor::Redis62 || none("SHARDNUMSUB"))
                });
            });
        }
    }
}

/// Sharded channels where there are none: waiters look again by themselves, and nothing fails.
#[test]
fn without_sharded_channels_waiters_poll() {
    let cluster = Cluster::start(Flavor::Redis62);
    on_both(|face| {
        let client = |face| Client::build(face, quick().notify(Notify::Sharded), &cluster.url()).unwrap();
        let (holder, other) = (client(face), client(face));
        let name = format!("{face:?}");
        let lease = holder.lock(&name).acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.lock(&name).acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || other.stats().waiting == 1);
            assert_eq!(lease.released(), Release::Released);
            waiter.join().unwrap().released();
        });
    });
}

/// F34: a channel moves with its slot, and the waiter with it.
#[test]
fn f34_a_waiter_follows_its_channel() {
    for notify in [Notify::Sharded, Notify::Classic] {
        let cluster = Cluster::start(Flavor::Valkey91);
        on_both(|face| {
            let client = |face| Client::build(face, quick().notify(notify), &cluster.url()).unwrap();
            let (holder, other) = (client(face), client(face));
            let name = cluster.name_on(0, &format!("{face:?}"));
            let lease = holder.lock(&name).ttl(ms(60_000)).acquire().unwrap();
            let command = if notify == Notify::Sharded { "SHARDNUMSUB" } else { "NUMSUB" };
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| other.lock(&name).acquire_within(FAILOVER).unwrap());
                wait_until(SOON, "the subscription", || subscriptions(&cluster, command, &name)[0] == 1);
                cluster.move_slot(cluster.slot(&name), 0, 1);
                if notify == Notify::Sharded {
                    wait_until(SOON, "the subscription at the new node", || {
                        subscriptions(&cluster, command, &name)[1] == 1
                    });
                }
                let begun = Instant::now();
                assert_eq!(lease.released(), Release::Released);
                let lease = waiter.join().unwrap();
                assert!(begun.elapsed() < ms(900), "{notify:?} {face:?}: {:?}", begun.elapsed());
                lease.released();
            });
        });
    }
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

#[test]
fn a_closed_client_connects_no_more() {
    each_flavor(|flavor| {
        let cluster = Cluster::start(flavor);
        for face in Face::ALL {
            let (holder, waiter) = (client(face, &cluster), client(face, &cluster));
            let lease = holder.lock("a").acquire().unwrap();
            // it has listened a moment ago, and still has the connection for that
            assert_eq!(fails(waiter.lock("a").acquire_within(ms(300)), ErrorKind::Timeout).lock_name(), Some("a"));
            lease.released();
            waiter.close();
            holder.close();
            let ours = |node: &Server| node.text(&["CLIENT", "LIST"]).matches("lib-name=onelock").count();
            wait_until(SOON, "nobody of ours to be left", || cluster.nodes.iter().map(ours).sum::<usize>() == 0);
            let made = || -> u64 {
                let count = |node: &Server| node.info("stats")["total_connections_received"].parse::<u64>().unwrap();
                cluster.nodes.iter().map(count).sum()
            };
            let before = made();
            std::thread::sleep(ms(300));
            assert_eq!(made() - before, 0, "{face:?}: connections made after it was closed");
        }
    });
}
