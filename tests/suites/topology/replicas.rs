//! Replicas that must confirm a grant.

use std::time::Instant;

use onelock::{ErrorKind, Kind, Owner, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, fails, ms, quick};
use onelock_tests::wait::wait_until;

fn with_replica(flavor: Flavor) -> (Server, Server) {
    let master = Server::builder(flavor).config("repl-diskless-sync-delay", "0").start();
    let replica = Server::builder(flavor).config("replicaof", &format!("127.0.0.1 {}", master.port())).start();
    wait_until(SOON * 3, "the replica", || {
        master.info("replication").get("slave0").is_some_and(|line| line.contains("state=online"))
    });
    (master, replica)
}

#[test]
fn a_grant_is_confirmed_by_replicas_or_undone() {
    for flavor in Flavor::ALL {
        let (master, replica) = with_replica(flavor);
        on_both(|face| {
            let builder = || quick().replica_timeout(ms(150));
            let client = Client::build(face, builder().min_replicas(1), &master.url()).unwrap();
            let greedy = Client::build(face, builder().min_replicas(2), &master.url()).unwrap();
            let name = format!("{face:?}");
            for kind in [Kind::Mutex, Kind::Reentrant] {
                let owner = Owner::new();
                let lock = client.lock_of(kind, format!("{name}{kind:?}"));
                let lock = if kind == Kind::Reentrant { lock.owner(&owner) } else { lock };
                let lease = lock.acquire().unwrap();
                assert_eq!(replica.int(&["EXISTS", &format!("{name}{kind:?}")]), 1, "it is there already");
                lease.extend(ms(30_000)).unwrap();
                assert_eq!(lease.released(), Release::Released);
            }
            // two were asked for and there is one
            let begun = Instant::now();
            let error = fails(greedy.lock(&name).try_acquire(), ErrorKind::ServerRefused);
            assert!(error.to_string().contains("confirmed by 1 of 2 replicas"), "{error}");
            assert!(begun.elapsed() >= ms(150), "{:?}", begun.elapsed());
            let error = fails(greedy.lock(&name).acquire_within(ms(600)), ErrorKind::ServerRefused);
            assert!(error.is_retryable(), "{error}");
            wait_until(SOON, "it to be undone", || (greedy.stats().cleaning, master.int(&["EXISTS", &name])) == (0, 0));
            assert_eq!(client.lock(&name).acquire().unwrap().released(), Release::Released);
        });
    }
}

#[test]
fn an_attach_is_confirmed_by_replicas_or_undone() {
    let (master, replica) = with_replica(Flavor::Valkey91);
    on_both(|face| {
        let builder = || quick().replica_timeout(ms(150));
        let client = Client::build(face, builder().min_replicas(1), &master.url()).unwrap();
        let greedy = Client::build(face, builder().min_replicas(2), &master.url()).unwrap();
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let name = format!("{face:?}{kind:?}");
            let proof = client.lock_of(kind, &name).acquire().unwrap().detach().unwrap();
            let attached = client.lock_of(kind, &name).attach(&proof).unwrap();
            // whoever is promoted knows that the old token proves nothing any more
            if kind == Kind::Mutex {
                assert_eq!(replica.text(&["GET", &name]), attached.token());
            } else {
                assert_eq!(replica.int(&["HEXISTS", &name, attached.token()]), 1);
            }
            let proof = attached.detach().unwrap();
            let error = fails(greedy.lock_of(kind, &name).attach(&proof), ErrorKind::ServerRefused);
            assert!(error.to_string().contains("confirmed by 1 of 2 replicas"), "{error}");
            wait_until(SOON, "it to be undone", || (greedy.stats().cleaning, master.int(&["EXISTS", &name])) == (0, 0));
            fails(client.lock_of(kind, &name).attach(&proof), ErrorKind::Lost);
        }
    });
}

#[test]
fn a_replica_that_is_gone_is_waited_for_within_the_wait() {
    let (master, replica) = with_replica(Flavor::Valkey91);
    for face in Face::ALL {
        let options = quick().min_replicas(1).replica_timeout(ms(100));
        let client = Client::build(face, options, &master.url()).unwrap();
        replica.stop();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "some attempts", || client.stats().commands_sent > 6);
            replica.cont();
            let lease = waiter.join().unwrap();
            assert_eq!(replica.int(&["EXISTS", "a"]), 1);
            assert_eq!(lease.released(), Release::Released);
        });
    }
}

#[test]
fn a_server_without_wait_grants_without() {
    for flavor in Flavor::ALL {
        let renamed = Server::builder(flavor).config("rename-command", "WAIT \"\"").start();
        let denied = Server::builder(flavor).user("default", "on nopass ~* &* +@all -wait").start();
        on_both(|face| {
            for server in [&renamed, &denied] {
                let client = Client::connect(face, quick().min_replicas(1), &server.url()).unwrap();
                let turn = || {
                    let lease = client.lock(format!("{face:?}")).try_acquire().unwrap().unwrap();
                    assert_eq!(lease.released(), Release::Released);
                };
                turn();
                let before = client.stats().commands_sent;
                (0..3).for_each(|_| turn());
                assert_eq!(client.stats().commands_sent - before, 6, "asked for once");
            }
        });
    }
}

/// Waiting for a replica blocks the connection that waits: nobody else's.
#[test]
fn nobody_stands_behind_whoever_waits_for_replicas() {
    let (master, replica) = with_replica(Flavor::Valkey91);
    for face in Face::ALL {
        let options = quick().min_replicas(1).replica_timeout(ms(12_000)).request_timeout(ms(14_000));
        let client = Client::build(face, options, &master.url()).unwrap();
        let held = client.lock("held").acquire().unwrap();
        replica.stop();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("waited").acquire_within(SOON).unwrap().released());
            wait_until(SOON, "the wait", || master.info("clients")["blocked_clients"] != "0");
            let begun = Instant::now();
            held.extend(ms(30_000)).unwrap();
            assert!(client.inspect("held").unwrap().is_some());
            assert_eq!(held.released(), Release::Released);
            assert!(begun.elapsed() < ms(6000), "{:?}", begun.elapsed());
            replica.cont();
            assert_eq!(waiter.join().unwrap(), Release::Released);
        });
    }
}
