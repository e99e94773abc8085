//! Members on several servers, and Redlock members.

use std::time::Duration;

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, MultiLock, on_both};
use onelock_tests::servers::Flavor;
use onelock_tests::stage::{SOON, Stage, fails, ms, timed, unhurried};
use onelock_tests::topology::Several;
use onelock_tests::wait::wait_until;

#[test]
fn one_name_on_two_servers_is_two_locks() {
    on_both(|face| {
        let (here, there) = (Stage::valkey(), Stage::valkey());
        let several = MultiLock::of([here.client(face).lock("a"), there.client(face).reentrant_lock("a")]);
        let lease = several.acquire().unwrap();
        assert!(here.exists("a") && there.exists("a"));
        assert_eq!(lease.released(), Release::Released);
        assert!(!here.exists("a") && !there.exists("a"));
    });
}

#[test]
fn two_clients_of_one_server_do_not_lock_each_other_out() {
    on_both(|face| {
        let stage = Stage::valkey();
        let several = MultiLock::of([stage.client(face).lock("a"), stage.client(face).lock("a")]);
        let lease = several.acquire_within(SOON).unwrap();
        assert!(lease.is_held());
        assert_eq!(lease.released(), Release::Released);
        let kinds = MultiLock::of([stage.client(face).lock("a"), stage.client(face).reentrant_lock("a")]);
        fails(kinds.acquire_within(SOON), ErrorKind::InvalidArgument);
    });
}

#[test]
fn an_address_that_is_spelt_differently_costs_time_but_no_deadlock() {
    on_both(|face| {
        // each program knows one of the servers by another name, so that their orders differ
        let (one, two) = (Stage::valkey(), Stage::valkey());
        let spelt = |url: String, host: &str| {
            let url = url.replace("127.0.0.1", host);
            Client::build(face, onelock::Client::builder(), &url).unwrap()
        };
        let of = |first: &str, second: &str| {
            let (first, second) = (spelt(one.server.url(), first), spelt(two.server.url(), second));
            MultiLock::of([first.lock("a"), second.lock("a")])
        };
        let (forwards, backwards) = (of("127.0.0.1", "localhost"), of("localhost", "127.0.0.1"));
        std::thread::scope(|scope| {
            let turns = [forwards, backwards].map(|several| {
                scope.spawn(move || {
                    for _ in 0..20 {
                        several.acquire_within(Duration::from_secs(60)).unwrap().released();
                    }
                })
            });
            for turn in turns {
                turn.join().unwrap();
            }
        });
        assert!(!one.exists("a") && !two.exists("a"));
    });
}

#[test]
fn a_server_that_is_away_leaves_nothing_held_on_the_other() {
    on_both(|face| {
        let (here, there) = (Stage::valkey(), Stage::valkey());
        let client = here.client(face);
        let several = MultiLock::of([client.lock("a"), there.client(face).lock("b")]);
        there.server.kill();
        let (took, result) = timed(|| several.acquire_within(ms(500)));
        fails(result, ErrorKind::Unavailable);
        assert!(took < SOON, "{took:?}");
        here.wait_clean(&client, "a", SOON);
        there.server.restart();
        let lease = several.acquire_within(SOON).unwrap();
        there.server.kill();
        assert_eq!(lease.released(), Release::Unconfirmed, "the worst result counts");
        here.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn members_may_be_redlock_locks() {
    on_both(|face| {
        let redlock = Several::start(Flavor::Valkey91, 3);
        let stage = Stage::valkey();
        let client = Client::connect(face, unhurried(), &redlock.url("quarantine_ms=0")).unwrap();
        let several = MultiLock::of([client.lock("a"), client.lock("b"), stage.rival(face).lock("c")]);
        let lease = several.acquire().unwrap();
        assert!(redlock.count("a") >= 2 && redlock.count("b") >= 2 && stage.exists("c"));
        assert!(several.try_acquire().unwrap().is_none());
        assert_eq!(lease.released(), Release::Released);
        wait_until(SOON, "all servers to be free", || redlock.count("a") + redlock.count("b") == 0);
        // a majority decides for each member
        redlock.servers[0].kill();
        let lease = several.acquire_within(SOON).unwrap();
        assert!(lease.is_held());
        lease.released();
        client.close();
    });
}
