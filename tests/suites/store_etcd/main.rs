//! `etcd://`: what sets a cluster of etcd apart from other stores. What it shares with them is held by `store_contract`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod access;
mod breaks;
mod extending;
mod foreign;
mod members;
mod place;
mod waiting;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use onelock::{ErrorKind, Grade, LossReason, Release};
use onelock_tests::etcd::Etcd;
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::servers;
use onelock_tests::stage::{SOON, fails, ms, unhurried};
use onelock_tests::wait::{wait_for, wait_until};

use place::{Place, SERVER, is_free};

#[test]
fn a_lock_is_a_key_with_a_lease_where_go_has_it() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client_with(face, unhurried().inspectable(true).label("worker 7"));
        let mut last = 0;
        for kind in ["lock", "reentrant_lock"] {
            let lock = if kind == "lock" { client.lock("a/b%") } else { client.reentrant_lock("a/b%") };
            let lease = lock.acquire().unwrap();
            let keys = place.keys("");
            let [key] = keys.as_slice() else { panic!("{keys:?}") };
            let hex = key.strip_prefix(&format!("{}a%2Fb%25/", place.namespace)).unwrap();
            assert!(u64::from_str_radix(hex, 16).is_ok(), "{key}");
            let told = SERVER.ctl(&["get", key, "-w", "fields"]);
            let field = |name: &str| -> u64 {
                let line = told.lines().find(|line| line.starts_with(&format!("\"{name}\" : "))).unwrap();
                line.rsplit(' ').next().unwrap().parse().unwrap()
            };
            assert_eq!(field("Lease"), u64::from_str_radix(hex, 16).unwrap(), "{told}");
            assert_eq!(field("CreateRevision"), lease.fence(), "the token is the revision of the key");
            assert!(lease.fence() > last);
            last = lease.fence();
            let seen = client.inspect("a/b%").unwrap().unwrap();
            assert_eq!(seen.fencing_token, Some(last), "{seen:?}");
            assert_eq!(seen.owner.unwrap().label, "worker 7");
            assert_eq!(client.listing("a/*").unwrap().len(), 1);
            assert_eq!(lease.released(), Release::Released);
            assert!(place.keys("").is_empty() && client.inspect("a/b%").unwrap().is_none());
            let ended = || !SERVER.ctl(&["lease", "list"]).contains(hex);
            wait_until(SOON, "the end of the lease", ended);
        }
        client.close();
    });
}

#[test]
fn several_clients_never_hold_it_together_and_tokens_grow() {
    on_both(|face| {
        let place = Place::new();
        let (busy, last) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let client = place.client(face);
                    for _ in 0..25 {
                        let lease = client.lock("a").acquire_within(SOON).unwrap();
                        assert!(!busy.swap(true, Ordering::SeqCst), "two holders");
                        assert!(last.swap(lease.fence(), Ordering::SeqCst) < lease.fence());
                        std::thread::yield_now();
                        busy.store(false, Ordering::SeqCst);
                        assert_eq!(lease.released(), Release::Released);
                    }
                    client.close();
                });
            }
        });
        assert!(place.keys("").is_empty());
    });
}

#[test]
fn who_comes_first_is_served_first_and_nobody_asks_while_waiting() {
    on_both(|face| {
        let place = Place::new();
        let holder = place.client(face);
        let lease = holder.lock("a").acquire().unwrap();
        let served = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let mut clients = Vec::new();
            for number in 0..4 {
                let client = Arc::new(place.client(face));
                clients.push(client.clone());
                let served = &served;
                scope.spawn(move || {
                    let lease = client.lock("a").acquire_within(SOON).unwrap();
                    served.lock().unwrap().push(number);
                    assert_eq!(lease.released(), Release::Released);
                });
                wait_until(SOON, "the place", || place.keys("a/").len() == number + 2);
            }
            wait_until(SOON, "who waits", || holder.inspect("a").unwrap().unwrap().waiters.len() == 4);
            // the watch is set within a moment; from then on a waiter sends nothing for seconds
            std::thread::sleep(ms(300));
            let sent = || clients.iter().map(|client| client.stats().commands_sent).sum::<u64>();
            let before = sent();
            std::thread::sleep(ms(1500));
            assert!(sent() - before <= 4, "{} requests", sent() - before);
            assert_eq!(lease.released(), Release::Released);
        });
        assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3]);
        holder.close();
    });
}

#[test]
fn a_lease_that_was_revoked_and_a_key_that_was_deleted_are_told() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        for revoke in [true, false] {
            let lease = client.lock("a").ttl(ms(1500)).acquire().unwrap();
            let key = place.keys("a/").pop().unwrap();
            let begun = Instant::now();
            if revoke {
                SERVER.ctl(&["lease", "revoke", key.rsplit('/').next().unwrap()]);
            } else {
                SERVER.ctl(&["del", &key]);
            }
            assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
            assert!(begun.elapsed() < ms(5000) && !lease.is_held(), "{:?}", begun.elapsed());
            assert!(is_free(&client, "a"));
            assert_eq!(lease.released(), Release::AlreadyExpired);
        }
        client.close();
    });
}

#[test]
fn a_place_that_was_deleted_is_taken_anew() {
    on_both(|face| {
        let place = Place::new();
        let (holder, client) = (place.client(face), place.client(face));
        let lease = holder.lock("a").acquire().unwrap();
        let own = place.keys("a/");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").ttl(ms(2000)).acquire_within(SOON).unwrap());
            let others = || place.keys("a/").into_iter().filter(|key| !own.contains(key)).collect::<Vec<_>>();
            let first = wait_for(SOON, "the place", || others().pop());
            SERVER.ctl(&["del", &first]);
            wait_until(SOON, "another place", || others().iter().any(|key| *key != first));
            assert_eq!(lease.released(), Release::Released);
            assert_eq!(waiter.join().unwrap().released(), Release::Released);
        });
        holder.close();
        client.close();
    });
}

#[test]
fn a_lease_can_become_longer() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let lease = client.lock("a").ttl(ms(1000)).auto_renew(false).acquire().unwrap();
        let fence = lease.fence();
        lease.extend(ms(100_000)).unwrap();
        assert!(lease.remaining() > ms(90_000), "{:?}", lease.remaining());
        // the first lease would have ended
        std::thread::sleep(ms(3000));
        assert!(lease.is_held() && !is_free(&client, "a"));
        assert_eq!(client.inspect("a").unwrap().unwrap().fencing_token, Some(fence));
        assert_eq!(lease.released(), Release::Released);
        assert!(is_free(&client, "a"));
        client.close();
    });
}

#[test]
fn users_and_what_they_may() {
    let server = Etcd::start();
    server.ctl(&["user", "add", "root:top"]);
    server.ctl(&["user", "add", "app:s3cret"]);
    server.ctl(&["user", "grant-role", "root", "root"]);
    server.ctl(&["role", "add", "locks"]);
    server.ctl(&["role", "grant-permission", "--prefix=true", "locks", "readwrite", "app/"]);
    server.ctl(&["user", "grant-role", "app", "locks"]);
    server.ctl(&["auth", "enable"]);
    let url = |user: &str, namespace: &str| format!("etcd://{user}127.0.0.1:{}/{namespace}", server.port());
    let ask = |url: String, kind: ErrorKind, words: &[&str]| {
        let client = Client::build(Face::Blocking, unhurried(), &url).unwrap();
        let error = fails(client.lock("a").try_acquire(), kind).to_string();
        assert!(words.iter().all(|word| error.contains(word)) && !error.contains("wr0ng"), "{error}");
        client.close();
    };
    ask(url("app:wr0ng@", "app/"), ErrorKind::AuthFailed, &["authentication failed"]);
    ask(url("", "app/"), ErrorKind::AuthFailed, &["names none"]);
    ask(url("app:s3cret@", "other/"), ErrorKind::NotPermitted, &["permission denied", "read and write the keys"]);
    let client = Client::build(Face::Blocking, unhurried(), &url("app:s3cret@", "app/")).unwrap();
    let lease = client.lock("a").ttl(ms(1500)).acquire().unwrap();
    std::thread::sleep(ms(2500));
    assert!(lease.is_held(), "renewed as this user");
    // rights that change make a login outdated: it is made anew
    let root = |arguments: &[&str]| {
        let mut all = vec!["--user", "root:top"];
        all.extend(arguments);
        server.ctl(&all);
    };
    root(&["role", "add", "another"]);
    root(&["user", "grant-role", "app", "another"]);
    // longer than what was left of it
    std::thread::sleep(ms(2500));
    assert!(lease.is_held() && is_free(&client, "b"));
    assert_eq!(lease.released(), Release::Released);
    client.close();
}

#[test]
fn tls_is_checked() {
    let (server, tls) = Etcd::encrypted(&["localhost", "127.0.0.1"]);
    let url = |query: &str| format!("etcds://127.0.0.1:{}?{query}", server.port());
    let ca = format!("ca_file={}", tls.ca.display());
    let client = Client::build(Face::Blocking, unhurried(), &url(&ca)).unwrap();
    assert!(is_free(&client, "a"));
    let stranger = Client::build(Face::Blocking, unhurried(), &url("")).unwrap();
    let error = fails(stranger.lock("a").try_acquire(), ErrorKind::Unavailable).to_string();
    assert!(error.contains("TLS failed"), "{error}");
    let trusting = Client::build(Face::Blocking, unhurried(), &url("tls_insecure=true")).unwrap();
    assert!(is_free(&trusting, "a"));
    client.close();
}

#[test]
fn etcdctl_waits_for_us_and_we_for_etcdctl() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let name = format!("{}a", place.namespace);
        // we hold, it waits
        let lease = client.lock("a").acquire().unwrap();
        let mut ctl = SERVER.ctl_command(&["lock", &name]);
        let mut child = servers::spawn({
            ctl.stdin(Stdio::piped()).stdout(Stdio::piped());
            ctl
        })
        .unwrap();
        wait_until(SOON, "its place", || place.keys("a/").len() == 2);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(lease.released(), Release::Released);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!("{name}/")), "{line}");
        // it holds, we wait
        assert!(client.lock("a").try_acquire().unwrap().is_none());
        assert!(client.inspect("a").unwrap().unwrap().fencing_token > Some(lease.fence()));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "our place", || place.keys("a/").len() == 2);
            servers::signal(child.id(), 2);
            child.wait().unwrap();
            let next = waiter.join().unwrap();
            assert!(next.is_held());
            assert_eq!(next.released(), Release::Released);
        });
        client.close();
    });
}

#[test]
fn an_old_server_is_warned_of_and_tokens_can_begin_higher() {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let facts = client.check().unwrap();
    let version = facts.server.strip_prefix("etcd ").unwrap();
    assert_eq!(facts.grade == Grade::BestEffort, version == "3.4.23", "{facts:?}");
    assert_eq!(facts.warnings.iter().any(|warning| warning.contains("3.5.13")), version == "3.4.23", "{facts:?}");
    let higher = Client::build(Face::Blocking, unhurried(), &place.url("fence_base=1000000000000")).unwrap();
    let (low, high) = (client.lock("a").acquire().unwrap().fence(), higher.lock("b").acquire().unwrap().fence());
    assert!(low < 1_000_000_000_000 && high > 1_000_000_000_000);
    for name in ["min_hold", "detach"] {
        let refused = match name {
            "min_hold" => client.lock("c").min_hold(ms(10)).acquire().map(drop),
            _ => client.lock("d").acquire().unwrap().detach().map(drop),
        };
        fails(refused, ErrorKind::Unsupported);
    }
    client.close();
    higher.close();
}
