//! Servers that are stopped, killed, restarted empty, or cut off.

use std::time::{Duration, Instant};

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::scripts;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SLACK, SOON, ms, quick, unhurried};
use onelock_tests::topology::Several;
use onelock_tests::wait::{wait_for, wait_until};

const FRESH: &str = "quarantine_ms=0";

fn client(face: Face, several: &Several) -> Client {
    Client::connect(face, quick(), &several.url(FRESH)).unwrap()
}

/// Acquire and release, and that nothing is left where a server can be asked.
fn cycle(client: &Client, several: &Several, name: &str) {
    let lease = client.lock(name).acquire_within(SOON).unwrap();
    assert!(lease.is_held());
    assert_eq!(lease.released(), Release::Released);
    wait_until(SOON, "nothing left", || {
        several.servers.iter().filter(|server| server.is_running()).all(|server| server.int(&["EXISTS", name]) == 0)
    });
}

#[test]
fn a_minority_that_is_killed_changes_nothing_and_a_majority_is_named_server_by_server() {
    on_both(|face| {
        for number in [3, 5] {
            let several = Several::start(Flavor::Valkey91, number);
            let client = client(face, &several);
            cycle(&client, &several, "a");
            let held = client.lock("held").ttl(Duration::from_secs(3)).acquire().unwrap();
            // granted by a bare majority, it would not survive the loss of one of these
            wait_until(SOON, "all servers", || several.count("held") == number);
            for server in &several.servers[..number / 2] {
                server.kill();
            }
            cycle(&client, &several, "b");
            std::thread::sleep(ms(1200));
            assert!(held.is_held(), "renewed by the rest");
            several.servers[number - 1].kill();
            let begun = Instant::now();
            let error = client.lock("c").acquire_within(ms(300)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
            assert_eq!(error.causes().len(), number, "{error}");
            let dead = format!(":{}", several.servers[0].port());
            assert!(error.causes().iter().any(|cause| cause.contains(&dead)), "{error}");
            assert!(begun.elapsed() < ms(300) + SLACK + ms(1000), "{:?}", begun.elapsed());
            assert!(held.wait_lost(SOON).is_some(), "no majority renews it");
            for server in &several.servers {
                if !server.is_running() {
                    server.restart();
                }
            }
            cycle(&client, &several, "d");
        }
    });
}

#[test]
fn a_stopped_server_is_waited_for_once_and_then_done_without() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = Client::connect(face, unhurried(), &several.url(FRESH)).unwrap();
        cycle(&client, &several, "a");
        several.servers[1].stop();
        // the first calls find out; from then on nobody waits for it
        for _ in 0..5 {
            client.lock("b").acquire_within(SOON).unwrap().released();
        }
        let begun = Instant::now();
        for _ in 0..20 {
            client.lock("b").acquire_within(SOON).unwrap().released();
        }
        let each = begun.elapsed() / 20;
        several.servers[1].cont();
        // had they waited for it, they would have taken its limit: two seconds
        assert!(each < ms(700), "{each:?} for a cycle");
        wait_until(SOON, "what the stopped server was asked meanwhile is released", || several.count("b") == 0);
        let back = || {
            let lease = client.lock("c").acquire_within(SOON).unwrap();
            std::thread::sleep(ms(30));
            let everywhere = several.count("c") == 3;
            lease.released();
            everywhere
        };
        wait_until(Duration::from_secs(20), "it takes part again", back);
    });
}

#[test]
fn a_server_that_restarts_empty_does_not_vote_until_its_quarantine_is_over() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let query = "quarantine_ms=6000";
        // fresh servers without a file are in quarantine themselves
        let early = Client::build(face, quick(), &several.url(query)).unwrap();
        let error = early.lock("a").acquire_within(ms(100)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoQuorum);
        assert!(error.to_string().contains("quarantine"), "{error}");
        let begun = Instant::now();
        let lease = early.lock("a").ttl(Duration::from_secs(2)).acquire_within(Duration::from_secs(20)).unwrap();
        assert!(begun.elapsed() > ms(2000), "{:?}", begun.elapsed());
        // the third server stays out of this: two of three hold the lock, and one of them forgets it
        several.servers[2].kill();
        several.servers[1].restart();
        let rival = Client::build(face, quick(), &several.url(query)).unwrap();
        several.servers[2].restart();
        // an honest majority would be the two that know nothing
        let refused = rival.lock("a").acquire_within(ms(1500)).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::NoQuorum | ErrorKind::Timeout), "{refused}");
        lease.released();
        let granted = rival.lock("a").acquire_within(Duration::from_secs(20)).unwrap();
        granted.released();
    });
}

#[test]
fn servers_that_keep_their_data_vote_as_soon_as_they_are_back() {
    on_both(|face| {
        let several = Several::with(3, || Server::builder(Flavor::Valkey91).aof("always"));
        let client = Client::connect(face, quick(), &several.url("")).unwrap();
        let lease = client.lock("a").acquire().unwrap();
        wait_until(SOON, "all servers", || several.count("a") == 3);
        for server in &several.servers {
            server.restart();
        }
        let rival = Client::build(face, quick(), &several.url("")).unwrap();
        wait_for(SOON, "a refusal by all", || match rival.lock("a").try_acquire() {
            Ok(None) => Some(()),
            Ok(Some(_)) => panic!("granted to a second holder"),
            Err(_) => None,
        });
        // a thread's own connections broke with the servers, and it may be the first to notice
        assert!(matches!(lease.released(), Release::Released | Release::Unconfirmed));
    });
}

#[test]
fn a_black_hole_costs_the_limit_of_one_node_at_most() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = Client::connect(face, quick(), &several.proxied("quarantine_ms=0&node_timeout_ms=100")).unwrap();
        cycle(&client, &several, "a");
        several.proxies[0].pause();
        for round in 0..8 {
            let begun = Instant::now();
            client.lock("b").acquire_within(SOON).unwrap().released();
            assert!(begun.elapsed() < ms(100) + SLACK, "{:?} in round {round}", begun.elapsed());
        }
        // two of them: no majority, and that is said in time
        several.proxies[1].pause();
        let begun = Instant::now();
        let error = client.lock("c").try_acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
        assert!(begun.elapsed() < ms(400) + SLACK, "{:?}", begun.elapsed());
        several.proxies[0].heal();
        several.proxies[1].heal();
        wait_until(SOON, "what they were asked meanwhile is released", || several.count("b") + several.count("c") == 0);
        cycle(&client, &several, "d");
    });
}

#[test]
fn a_grant_of_which_nobody_heard_is_undone_on_that_server_too() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = Client::connect(face, quick(), &several.proxied("quarantine_ms=0&node_timeout_ms=100")).unwrap();
        cycle(&client, &several, "warm");
        // two grant without a word, the third refuses: no majority as far as the client knows
        let held = |server: &Server| server.cmd(&["SET", "a", "somebody", "PX", "60000"]);
        held(&several.servers[2]);
        let acquire = || scripts::acquire().with_arg("a");
        let silent: Vec<_> = several.proxies[..2].iter().map(|proxy| proxy.on(acquire()).drop_reply()).collect();
        assert!(client.lock("a").try_acquire().is_err_or_none());
        silent.iter().for_each(onelock_tests::proxy::Rule::remove);
        wait_until(SOON, "released where it was granted", || several.count("a") == 1);
        several.servers[2].cmd(&["DEL", "a"]);
        cycle(&client, &several, "a");
    });
}

trait NotGranted {
    fn is_err_or_none(&self) -> bool;
}

impl<T, E> NotGranted for Result<Option<T>, E> {
    fn is_err_or_none(&self) -> bool {
        !matches!(self, Ok(Some(_)))
    }
}
