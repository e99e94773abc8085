//! A cluster: every lock on the node of its slot, also when masters go.

use std::time::{Duration, Instant};

use onelock::{ErrorKind, Grade, Kind, Notify, Owner, Release};
use onelock_tests::face::{Client, Face, on_both, side_by_side};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, fails, ms, quick, quick_once, unhurried};
use onelock_tests::topology::Cluster;
use onelock_tests::wait::wait_until;

/// Longer than a failover takes, also on a busy machine.
pub(super) const FAILOVER: Duration = Duration::from_secs(90);

pub(super) fn client(face: Face, cluster: &Cluster) -> Client {
    Client::build(face, unhurried(), &cluster.url()).unwrap()
}

pub(super) fn works(client: &Client, name: &str) -> u64 {
    let lease = client.lock(name).acquire_within(FAILOVER).unwrap_or_else(|error| panic!("{name}: {error}"));
    let fence = lease.fence();
    assert_eq!(lease.released(), Release::Released);
    fence
}

pub(super) fn exists(cluster: &Cluster, name: &str) -> bool {
    cluster.nodes[cluster.owner(cluster.slot(name))].int(&["EXISTS", name]) == 1
}

pub(super) fn each_flavor(test: impl Fn(Flavor) + Sync) {
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
            let error = fails(client.lock(name).acquire(), ErrorKind::InvalidArgument).to_string();
            assert!(error.contains("braces") && error.contains(name), "{error}");
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

/// One frozen node: what is held on the others goes on, and what is held there ends at its deadline.
#[test]
fn a_frozen_node_does_not_delay_the_renewals_of_the_others() {
    let cluster = Cluster::with(Flavor::Valkey91, 0, |node| node.config("cluster-node-timeout", "60000"));
    let clients = Face::ALL.map(|face| (face, client(face, &cluster)));
    let held = |at: usize| {
        let name = |face: &Face| cluster.name_on(at, &format!("{face:?}"));
        clients.each_ref().map(|(face, client)| client.lock(name(face)).ttl(ms(3000)).acquire().unwrap())
    };
    let leases = [0, 1, 2].map(held);
    cluster.nodes[1].stop();
    let begun = Instant::now();
    let mut shortest = ms(3000);
    while begun.elapsed() < ms(7000) {
        for lease in leases[0].iter().chain(&leases[2]) {
            assert!(lease.is_held(), "after {:?}", begun.elapsed());
            shortest = shortest.min(lease.remaining());
        }
        std::thread::sleep(ms(1));
    }
    assert!(leases[1].iter().all(|lease| !lease.is_held()));
    // renewed every second; had one waited for the frozen node, there would have been nothing left
    assert!(shortest > ms(500), "{shortest:?} of three seconds was left at the worst");
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
            assert!(begun.elapsed() < SOON / 2, "it looks at the new master: {:?}", begun.elapsed());
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
                let client = |face| Client::build(face, unhurried().notify(notify), &cluster.url()).unwrap();
                let (holder, other) = (client(face), client(face));
                let at = if face == Face::Async { 0 } else { 2 };
                let name = cluster.name_on(at, &format!("{notify:?}{face:?}"));
                quick_once(ms(700), &format!("{flavor:?} {notify:?} {face:?}"), || {
                    let lease = holder.lock(&name).acquire().unwrap();
                    let asked = other.stats().commands_sent;
                    let took = std::thread::scope(|scope| {
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
                        wait_until(SOON, "a second look", || other.stats().commands_sent >= asked + 2);
                        let begun = Instant::now();
                        assert_eq!(lease.released(), Release::Released);
                        let lease = waiter.join().unwrap();
                        let took = begun.elapsed();
                        lease.released();
                        took
                    });
                    wait_until(SOON, "no subscription to be left", || {
                        let counts = |command: &str| subscriptions(&cluster, command, &name);
                        let none = |command: &str| counts(command).iter().all(|count| *count == 0);
                        none("NUMSUB") && (flavor == Flavor::Redis62 || none("SHARDNUMSUB"))
                    });
                    took
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
            let client = |face| Client::build(face, unhurried().notify(notify), &cluster.url()).unwrap();
            let (holder, other) = (client(face), client(face));
            let command = if notify == Notify::Sharded { "SHARDNUMSUB" } else { "NUMSUB" };
            quick_once(ms(900), &format!("{notify:?} {face:?}"), || {
                // another one each time: its slot moves
                let name = cluster.name_on(0, &format!("{face:?}"));
                let lease = holder.lock(&name).ttl(ms(60_000)).acquire().unwrap();
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
                    let took = begun.elapsed();
                    lease.released();
                    took
                })
            });
        });
    }
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
