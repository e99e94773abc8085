//! The watch of whoever waits: what ends it, and that there is another one then.

use std::sync::atomic::Ordering;
use std::time::Instant;

use onelock::{ErrorKind, Release};
use onelock_tests::etcd::Etcd;
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::stage::{SOON, fails, ms, quick, unhurried};
use onelock_tests::wait::{wait_for, wait_until};
use onelock_tests::wire::{Rules, Wire};

fn watchers(server: &Etcd) -> u64 {
    server.metric("etcd_debugging_mvcc_watcher_total")
}

/// How often this has been sent.
fn count(wire: &Wire, text: &str) -> usize {
    wire.sent_bytes().windows(text.len()).filter(|window| *window == text.as_bytes()).count()
}

#[test]
fn a_watch_whose_past_was_compacted_is_set_again() {
    on_both(|face| {
        let server = Etcd::start();
        let wire = Wire::to(server.port());
        let holder = Client::build(face, unhurried(), &server.url("")).unwrap();
        let client = Client::build(face, unhurried(), &format!("etcd://127.0.0.1:{}", wire.port())).unwrap();
        let lease = holder.lock("a").ttl(ms(60_000)).acquire().unwrap();
        let key = server.keys("a/").pop().unwrap();
        // the key to be watched, and since which revision
        let watched = format!("{key}\x18");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").ttl(ms(3000)).acquire_within(ms(60_000)).unwrap());
            wait_until(SOON, "its watch", || count(&wire, &watched) == 1);
            for value in ["1", "2", "3"] {
                server.ctl(&["put", "other", value]);
            }
            let told = server.ctl(&["get", "other", "-w", "fields"]);
            let line = told.lines().find(|line| line.starts_with("\"ModRevision\"")).unwrap();
            server.ctl(&["compact", line.rsplit(' ').next().unwrap()]);
            wire.set(Rules { lose_request: Some("a/".to_owned()), ..Rules::default() });
            wait_until(SOON, "a loss", || wire.lost.load(Ordering::SeqCst) == 1);
            wait_until(SOON, "a watch from what is still known", || count(&wire, &watched) >= 3);
            wait_until(SOON, "it", || watchers(&server) == 1);
            assert_eq!(lease.released(), Release::Released);
            assert_eq!(waiter.join().unwrap().released(), Release::Released);
        });
        holder.close();
        client.close();
    });
}

#[test]
fn a_waiter_takes_over_a_place_that_lasts_as_long_as_its_own_would_and_no_other() {
    on_both(|face| {
        let server = Etcd::start();
        let (holder, client) = (
            Client::build(face, unhurried(), &server.url("")).unwrap(),
            Client::build(face, unhurried(), &server.url("")).unwrap(),
        );
        let lease = holder.lock("a").ttl(ms(60_000)).acquire().unwrap();
        let own = server.keys("a/");
        let place = || server.keys("a/").into_iter().find(|key| !own.contains(key));
        let granted = |key: &str| {
            let told = server.ctl(&["lease", "timetolive", key.rsplit('/').next().unwrap()]);
            told.split_once("granted with TTL(").unwrap().1.split_once("s)").unwrap().0.parse::<u64>().unwrap()
        };
        std::thread::scope(|scope| {
            let waits = |ttl, wait| {
                let client = &client;
                scope.spawn(move || client.lock("a").ttl(ms(ttl)).acquire_within(wait))
            };
            let first = waits(60_000, ms(2500));
            let taken = wait_for(SOON, "its place", place);
            assert_eq!(granted(&taken), 60);
            // both wait behind the first in their client
            let second = waits(60_000, ms(5000));
            wait_until(SOON, "the second", || client.stats().waiting == 2);
            let third = waits(3000, ms(60_000));
            wait_until(SOON, "the third", || client.stats().waiting == 3);
            fails(first.join().unwrap(), ErrorKind::Timeout);
            assert_eq!(place().as_ref(), Some(&taken), "the second has it");
            fails(second.join().unwrap(), ErrorKind::Timeout);
            let next = wait_for(SOON, "a place of its own", || place().filter(|key| *key != taken));
            assert_eq!(granted(&next), 3, "after a crash others would wait for a minute");
            assert_eq!(lease.released(), Release::Released);
            assert_eq!(third.join().unwrap().unwrap().released(), Release::Released);
        });
        wait_until(SOON, "the end of all leases", || server.leases() == 0);
        holder.close();
        client.close();
    });
}

#[test]
fn a_watch_leaves_a_connection_that_is_not_used_any_more() {
    on_both(|face| {
        let server = Etcd::start();
        let wire = Wire::to(server.port());
        let holder = Client::build(face, unhurried(), &server.url("")).unwrap();
        let url = format!("etcd://127.0.0.1:{},127.0.0.1:{}", wire.port(), server.port());
        let client = Client::build(face, quick(), &url).unwrap();
        let lease = holder.lock("a").ttl(ms(60_000)).acquire().unwrap();
        let key = server.keys("a/").pop().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").ttl(ms(3000)).acquire_within(ms(60_000)).unwrap());
            wait_until(SOON, "its watch", || count(&wire, &format!("{key}\x18")) == 1 && watchers(&server) == 1);
            // the server goes on with the first one: nobody tells it
            wire.set(Rules { hold: true, ..Rules::default() });
            wait_until(SOON, "another watch, past the wire", || watchers(&server) == 2);
            assert_eq!(lease.released(), Release::Released);
            assert_eq!(waiter.join().unwrap().released(), Release::Released);
        });
        wire.set(Rules::default());
        holder.close();
        client.close();
    });
}

#[test]
fn a_place_is_kept_for_as_long_as_a_bounded_hold_asks() {
    let server = Etcd::start();
    let client = || Client::build(Face::Async, unhurried(), &server.url("")).unwrap();
    let (holder, waiting) = (client(), client());
    let lease = holder.lock("a").ttl(ms(60_000)).acquire().unwrap();
    let own = server.keys("a/");
    let place = || server.keys("a/").into_iter().find(|key| !own.contains(key));
    std::thread::scope(|scope| {
        // a lease of 5 s, which has to be kept more often than one of a minute
        let bounded = waiting.lock("a").ttl(ms(60_000)).max_hold(ms(4000));
        let waiter = scope.spawn(move || bounded.acquire_within(ms(60_000)).unwrap());
        let taken = wait_for(SOON, "its place", place);
        let begun = Instant::now();
        while begun.elapsed() < ms(12_000) {
            assert_eq!(place().as_ref(), Some(&taken), "after {:?}", begun.elapsed());
            std::thread::sleep(ms(100));
        }
        assert_eq!(lease.released(), Release::Released);
        assert_eq!(waiter.join().unwrap().released(), Release::Released);
    });
    holder.close();
    waiting.close();
}
