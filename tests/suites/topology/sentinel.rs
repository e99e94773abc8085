//! A group behind Sentinels: its master is found, followed, and never mistaken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::{ErrorKind, Grade, LossReason, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, fails, ms, quick, unhurried};
use onelock_tests::topology::{GROUP, Group};
use onelock_tests::wait::{wait_for, wait_until};

/// A failover by votes takes a few seconds; on a busy machine the Sentinels may do nothing for half a minute first.
const FAILOVER: Duration = Duration::from_secs(90);

fn client(face: Face, group: &Group) -> Client {
    Client::build(face, unhurried(), &group.url()).unwrap()
}

fn works(client: &Client, name: &str) -> u64 {
    let lease = client.lock(name).acquire_within(FAILOVER).unwrap();
    let fence = lease.fence();
    assert_eq!(lease.released(), Release::Released);
    fence
}

#[test]
fn the_master_is_found_through_any_sentinel_that_lives() {
    let group = Group::start(Flavor::Valkey91);
    let monitor = group.servers[0].monitor();
    on_both(|face| {
        works(&client(face, &group), "a");
        // one port where nothing listens, one black hole, one that lives
        let hole = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        hole.set_nonblocking(true).unwrap();
        let fallen_in = || std::iter::from_fn(|| hole.accept().ok()).count();
        let nobody = onelock_tests::servers::Port::reserve();
        let ports = [nobody.number(), hole.local_addr().unwrap().port(), group.sentinels[2].port()];
        let far = Client::build(face, unhurried(), &group.url_of(&ports)).unwrap();
        works(&far, "b");
        fallen_in();
        works(&far, "c");
        assert_eq!(fallen_in(), 0, "the one that answered stands in front now");
    });
    assert!(monitor.count("EVALSHA") + monitor.count("EVAL") >= 12);
    assert!(
        group.servers[1..].iter().all(|replica| replica.info("commandstats").keys().all(|it| it != "cmdstat_evalsha"))
    );
}

#[test]
fn what_sentinels_cannot_tell_is_named() {
    let group = Group::start(Flavor::Valkey91);
    on_both(|face| {
        let url = group.url().replace(GROUP, "another");
        let error = Client::connect(face, unhurried(), &url).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("knows no master named \"another\""), "{error}");
        let nobody = onelock_tests::servers::Port::reserve();
        let error = Client::connect(face, unhurried(), &group.url_of(&[nobody.number()])).map(drop).unwrap_err();
        assert!(error.to_string().contains("connection refused"), "{error}");
        let server = &group.servers[0];
        let error = Client::connect(face, unhurried(), &group.url_of(&[server.port()])).map(drop).unwrap_err();
        assert!(error.to_string().to_lowercase().contains("sentinel"), "a server is no Sentinel: {error}");
    });
}

#[test]
fn a_failover_is_followed_by_holders_waiters_and_newcomers() {
    let group = Group::start(Flavor::Valkey91);
    on_both(|face| {
        let (holder, other) = (client(face, &group), client(face, &group));
        let before = works(&other, &format!("{face:?}"));
        let name = format!("held {face:?}");
        let lease = holder.lock(&name).ttl(FAILOVER * 3).acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.lock(&name).acquire_within(FAILOVER).unwrap());
            wait_until(SOON, "the waiter", || other.stats().waiting == 1);
            if face == Face::Async {
                group.fail_over();
            } else {
                let master = group.named_by(&group.sentinels[0]);
                group.wait_moved(if master == 0 { usize::MAX } else { 0 });
            }
            lease.extend(FAILOVER * 3).unwrap();
            assert!(lease.is_held(), "a failover in good order loses nothing");
            assert_eq!(lease.released(), Release::Released);
            let begun = Instant::now();
            let next = waiter.join().unwrap();
            assert!(begun.elapsed() < SOON / 2, "it looks at the new master: {:?}", begun.elapsed());
            assert_eq!(next.released(), Release::Released);
        });
        assert!(works(&other, &format!("{face:?}")) > before, "tokens grow across a failover");
    });
}

/// The master dies; a replica becomes master by the votes of the Sentinels.
#[test]
fn a_killed_master_is_replaced_and_the_old_one_is_not_believed_when_it_returns() {
    let group = Group::start(Flavor::Valkey91);
    let clients = Face::ALL.map(|face| client(face, &group));
    let before = clients.each_ref().map(|client| works(client, "a"));
    group.watch_closely();
    group.servers[0].kill();
    let after = clients.each_ref().map(|client| works(client, "a"));
    assert!(after.iter().min() > before.iter().max(), "{before:?} {after:?}");
    let master = group.wait_moved(0);
    // a server that a busy machine keeps waiting must not count as down: one that was down lately is left as it is
    group.bear_silence();
    group.servers[0].restart();
    group.wait_calm();
    assert_eq!(group.servers[0].info("replication")["role"], "slave");
    for client in &clients {
        works(client, "b");
    }
    assert!(group.servers[master].info("replication")["role"] == "master");
}

/// F40: what the old master acknowledged and no replica has heard is lost with it. The holder learns of it, and the next
/// holder's token is higher.
#[test]
fn f40_a_lock_that_no_replica_has_heard_of_is_lost_and_found_out() {
    let group = Group::start(Flavor::Valkey91);
    let client = client(Face::Blocking, &group);
    // from here on nothing reaches the replicas
    for replica in &group.servers[1..] {
        replica.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    }
    wait_until(SOON, "the replicas to be gone", || group.servers[0].info("replication")["connected_slaves"] == "0");
    let lease = client.lock("a").ttl(ms(9000)).acquire().unwrap();
    let first = lease.fence();
    group.watch_closely();
    group.servers[0].kill();
    let second = works(&client, "a");
    assert!(second > first, "{second} after {first}");
    assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
}

#[test]
fn f27_f28_a_master_that_was_demoted_is_left() {
    for flavor in Flavor::ALL {
        let group = Group::start(flavor);
        // whoever meets the old master asks on until its limit
        let limits = || quick().connect_timeout(ms(1000)).request_timeout(ms(1000));
        let clients = Face::ALL.map(|face| Client::build(face, limits(), &group.url()).unwrap());
        let lease = clients[0].lock("held").ttl(ms(60_000)).acquire().unwrap();
        for client in &clients {
            works(client, "a");
        }
        // behind the Sentinels' backs at first: connections stay, and the server knows the lock that is held
        group.servers[0].cmd(&["REPLICAOF", "127.0.0.1", &group.servers[1].port().to_string()]);
        for client in &clients {
            let error = client.lock("a").try_acquire().map(drop);
            if let Err(error) = error {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            }
        }
        group.depose();
        for client in &clients {
            works(client, "a");
            assert_eq!(client.lock("held").refusal(ms(0)), ErrorKind::Busy);
        }
        assert_eq!(lease.released(), Release::Released);
    }
}

#[test]
fn sentinels_and_servers_have_passwords_of_their_own() {
    for flavor in Flavor::ALL {
        let group = Group::with(
            flavor,
            |server| server.password("servers-word").config("masterauth", "servers-word"),
            |sentinel| {
                let sentinel = sentinel.config("sentinel", &format!("auth-pass {GROUP} servers-word"));
                sentinel.config("sentinel", "sentinel-pass sentinels-word").password("sentinels-word")
            },
        );
        let hosts = group.url().split_once("://").unwrap().1.to_owned();
        for face in Face::ALL {
            let url = format!("redis+sentinel://:servers-word@{hosts}?sentinel_password=sentinels-word");
            works(&Client::build(face, unhurried(), &url).unwrap(), "a");
            let url = format!("redis+sentinel://:servers-word@{hosts}");
            let options = unhurried().sentinel_username("default").sentinel_password("sentinels-word");
            works(&Client::build(face, options, &url).unwrap(), "a");
            let error = fails(Client::connect(face, unhurried(), &url), ErrorKind::AuthFailed).to_string();
            assert!(error.contains("no Sentinel named the master") && !error.contains("sentinels-word"), "{error}");
        }
    }
}

#[test]
fn servers_and_sentinels_speak_tls() {
    let group = Group::start(Flavor::Valkey91);
    let master = Server::builder(Flavor::Redis70).tls().start();
    let (files, port) = master.tls().unwrap();
    let watcher = Server::builder(Flavor::Redis70)
        .sentinel()
        .tls()
        .config("tls-replication", "yes")
        .config("sentinel", &format!("monitor {GROUP} 127.0.0.1 {port} 1"))
        .start();
    let (own, sentinel_port) = watcher.tls().unwrap();
    // each has an authority of its own: both in one file
    let both = tempfile_with(&[&files.ca, &own.ca]);
    drop(group);
    for face in Face::ALL {
        let url = format!("rediss+sentinel://127.0.0.1:{sentinel_port}/{GROUP}?sentinel_tls=true");
        works(&Client::build(face, unhurried().ca_file(&both.0), &url).unwrap(), "a");
        let plain = format!("rediss+sentinel://127.0.0.1:{}/{GROUP}", watcher.port());
        works(&Client::build(face, unhurried().ca_file(&both.0), &plain).unwrap(), "a");
        fails(Client::connect(face, unhurried(), &url), ErrorKind::Unavailable);
    }
}

struct Joined(std::path::PathBuf);

impl Drop for Joined {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn tempfile_with(parts: &[&std::path::Path]) -> Joined {
    let path = std::env::temp_dir().join(format!("onelock-authorities-{}.pem", std::process::id()));
    let text: String = parts.iter().map(|part| std::fs::read_to_string(part).unwrap()).collect();
    std::fs::write(&path, text).unwrap();
    Joined(path)
}

#[test]
fn the_grade_says_that_a_failover_can_lose_a_lock() {
    let group = Group::with(Flavor::Valkey91, |server| server.aof("always"), |sentinel| sentinel);
    on_both(|face| {
        let client = client(face, &group);
        let facts = client.check().unwrap();
        assert_eq!(facts.grade, Grade::BestEffort);
        assert!(facts.warnings.iter().any(|warning| warning.contains("failover")), "{:?}", facts.warnings);
        let options = unhurried().min_fencing_grade(Grade::ClockBounded);
        fails(Client::connect(face, options, &group.url()), ErrorKind::Unsupported);
    });
}

/// F11: an address is asked for anew with every connection; a Sentinel that has the wrong one in mind is not believed for
/// ever.
#[test]
fn f11_a_sentinel_that_misleads_is_asked_last() {
    let group = Group::start(Flavor::Valkey91);
    // it names a master that is a replica
    let liar = Server::builder(Flavor::Valkey91)
        .sentinel()
        .config("sentinel", &format!("monitor {GROUP} 127.0.0.1 {} 99", group.servers[1].port()))
        .start();
    // a Sentinel that sees that its master is a replica would follow; frozen questions to the servers keep it from it
    on_both(|face| {
        let url = group.url_of(&[liar.port(), group.sentinels[0].port()]);
        let client = Client::build(face, unhurried(), &url).unwrap();
        works(&client, &format!("{face:?}"));
    });
}

/// Many threads and tasks at once, a failover in the middle: afterwards all go on, nothing is left, nobody overlapped in
/// good order.
#[test]
fn a_crowd_survives_a_failover() {
    let group = Group::start(Flavor::Valkey91);
    let clients: Vec<Client> = Face::ALL.into_iter().map(|face| client(face, &group)).collect();
    let (inside, turns, over) = (AtomicBool::new(false), AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    std::thread::scope(|scope| {
        for client in &clients {
            for _ in 0..6 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let Ok(lease) = client.lock("many").ttl(ms(10_000)).acquire_within(ms(5000)) else { continue };
                        assert!(!inside.swap(true, Ordering::SeqCst), "two inside");
                        turns.fetch_add(1, Ordering::Relaxed);
                        inside.store(false, Ordering::SeqCst);
                        lease.released();
                    }
                });
            }
        }
        wait_until(FAILOVER, "turns", || turns.load(Ordering::Relaxed) > 200);
        group.fail_over();
        let then = turns.load(Ordering::Relaxed);
        wait_until(FAILOVER, "turns after the failover", || turns.load(Ordering::Relaxed) > then + 200);
        over.store(true, Ordering::Relaxed);
    });
    wait_until(FAILOVER, "nothing to be left", || {
        let stats: Vec<_> = clients.iter().map(Client::stats).collect();
        stats.iter().all(|it| (it.cleaning, it.held, it.waiting) == (0, 0, 0))
            && group.master().int(&["EXISTS", "many"]) == 0
    });
}

#[test]
fn a_closed_client_stops_watching() {
    let group = Group::start(Flavor::Valkey91);
    on_both(|face| {
        let client = client(face, &group);
        works(&client, "a");
        let watched = || {
            let lists: Vec<String> = group.sentinels.iter().map(|it| it.text(&["CLIENT", "LIST"])).collect();
            lists.iter().map(|list| list.matches("sub=1").count()).sum::<usize>()
        };
        let others = wait_for(SOON, "the watch", || Some(watched()).filter(|count| *count > 0));
        assert!(others > 0);
        client.close();
    });
    let ours = |list: String| list.lines().filter(|line| line.contains("lib-name=onelock")).count();
    wait_until(SOON, "nobody of ours to be left", || {
        group.sentinels.iter().all(|it| ours(it.text(&["CLIENT", "LIST"])) == 0)
    });
}
