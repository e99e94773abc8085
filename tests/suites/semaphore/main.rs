//! Semaphores on real servers: never more holders than permits, what a crash leaves, and what stands on the server.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod queue;
mod storm;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use onelock::blocking::Client;
use onelock::machine::{Claim, ClientTag, Kind, Op, Outcome, QueueEntry, Reply, Time, token};
use onelock::store::redis::{RedisOptions, RedisStore};
use onelock::store::{Store, Uninterrupted};
use onelock::{ErrorKind, Release};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SLACK, quick_once};
use onelock_tests::wait::wait_until;

const LIMIT: Duration = Duration::from_secs(20);

fn client(server: &Server) -> Client {
    Client::connect(&server.url()).unwrap()
}

/// Takes permits as a process that is killed right after does.
fn take_and_die(server: &Server, name: &str, count: u16, total: u32, ttl_ms: u64) {
    let store = RedisStore::new(&server.url(), RedisOptions::default()).unwrap();
    let claim = Claim { kind: Kind::Semaphore, key: name.as_bytes().into(), token: token::permits([9; 16], count) };
    let entry = QueueEntry { client: ClientTag(9), window_ms: 0, place: None, listens: false };
    let op = Op::AcquirePermits { claim, total: Some(total), ttl_ms, info: None, entry };
    let answer = store.call_blocking(&op, Time::MAX, &Uninterrupted);
    assert!(matches!(answer.outcome, Outcome::Applied(Reply::Granted { .. })), "{answer:?}");
}

#[test]
fn never_more_are_held_than_there_are() {
    const PERMITS: i64 = 4;
    for server in [Server::start(Flavor::Redis62), Server::start(Flavor::Valkey91)] {
        let (held, most, done) = (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0));
        std::thread::scope(|scope| {
            for number in 0..8_u64 {
                let client = client(&server);
                let (held, most, done) = (&held, &most, &done);
                scope.spawn(move || {
                    let semaphore = client.semaphore("busy", 4);
                    for turn in 0..40 {
                        let count = 1 + (number + turn) % 3;
                        let lease = semaphore.acquire_many_within(u32::try_from(count).unwrap(), LIMIT).unwrap();
                        let count = i64::try_from(count).unwrap();
                        let now = held.fetch_add(count, Ordering::SeqCst) + count;
                        most.fetch_max(now, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_micros(200 * (turn % 4)));
                        assert!(lease.is_held());
                        held.fetch_sub(count, Ordering::SeqCst);
                        assert_eq!(lease.release().unwrap(), Release::Released);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    client.close();
                });
            }
        });
        assert_eq!(done.into_inner(), 320);
        let most = most.into_inner();
        assert!((3..=PERMITS).contains(&most), "{most} of {PERMITS} were held at once");
        let permits = client(&server).semaphore("busy", 4).permits().unwrap().unwrap();
        assert_eq!((permits.total, permits.held, permits.free), (4, 0, 4));
        assert_eq!((server.text(&["GET", "busy"]), server.int(&["EXISTS", "{busy}:timeout"])), ("4".to_owned(), 0));
    }
}

#[test]
fn the_permits_of_the_dead_come_back_after_their_ttl() {
    let server = Server::valkey();
    let begun = Instant::now();
    take_and_die(&server, "x", 3, 4, 3000);
    let client = client(&server);
    let semaphore = client.semaphore("x", 4);
    let one = semaphore.try_acquire().unwrap().expect("one is free");
    assert!(semaphore.try_acquire().unwrap().is_none());
    // the answer tells when enough will have ended: no message comes
    let three = semaphore.acquire_many_within(3, LIMIT).unwrap();
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(3) && waited < Duration::from_secs(3) + SLACK, "{waited:?}");
    one.release().unwrap();
    three.release().unwrap();
}

#[test]
fn what_stands_on_the_server_is_what_the_protocol_says() {
    let server = Server::valkey();
    let client = client(&server);
    let lease = client.semaphore("x", 5).acquire_many(2).unwrap();
    let redis::Value::Array(keys) = server.cmd(&["KEYS", "*"]) else { panic!("KEYS is a list") };
    let keys: BTreeSet<String> = keys.iter().map(onelock_tests::resp::text).collect();
    assert_eq!(keys, ["onelock_fence:{x}", "x", "{x}:timeout"].map(str::to_owned).into());
    assert_eq!(
        (server.text(&["GET", "x"]), server.text(&["GET", "onelock_fence:{x}"])),
        ("3".into(), "semaphore".into())
    );
    let redis::Value::Array(ids) = server.cmd(&["ZRANGE", "{x}:timeout", "0", "-1"]) else {
        panic!("ZRANGE is a list")
    };
    let ids: Vec<&[u8]> = ids
        .iter()
        .map(|id| if let redis::Value::BulkString(id) = id { id.as_slice() } else { panic!("{id:?}") })
        .collect();
    let [first, second] = ids[..] else { panic!("{ids:?}") };
    assert_eq!((first.len(), &first[..14], &first[14..], &second[14..]), (16, &second[..14], &[0, 0][..], &[0, 1][..]));
    let week = 7 * 24 * 3600 * 1000;
    for key in keys {
        assert!((week - 60_000..=week).contains(&server.int(&["PTTL", &key])), "{key}");
    }
    let proof = lease.detach().unwrap();
    let hex = first[..14].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    assert_eq!(proof, format!("{hex}:2"));
    // a name with a brace is not wrapped again
    let lease = client.semaphore("a{b}", 1).acquire().unwrap();
    assert_eq!(server.int(&["EXISTS", "a{b}", "a{b}:timeout", "onelock_fence:a{b}"]), 3);
    lease.release().unwrap();
}

#[test]
fn a_lost_number_forgets_nobody_and_lost_permits_are_mended_by_setting_the_number() {
    let server = Server::valkey();
    let client = client(&server);
    let semaphore = client.semaphore("x", 3);
    let two = semaphore.acquire_many(2).unwrap();
    assert_eq!(server.int(&["DEL", "x"]), 1);
    let one = semaphore.try_acquire().unwrap().expect("one is left");
    assert!(semaphore.try_acquire().unwrap().is_none(), "who holds permits keeps them");
    assert!(two.is_held());
    assert_eq!(server.int(&["DEL", "{x}:timeout"]), 1);
    let error = semaphore.try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermitsMismatch);
    assert!(error.to_string().contains("has 0 permits") || error.to_string().contains("no number"), "{error}");
    assert_eq!(semaphore.set_permits(3).unwrap().free, 3);
    assert_eq!(two.release().unwrap(), Release::AlreadyExpired);
    assert_eq!(one.release().unwrap(), Release::AlreadyExpired);
    assert_eq!(semaphore.permits().unwrap().unwrap().free, 3, "what had ended is not freed twice");
}

#[test]
fn one_of_several_permits_lost_is_the_lease_lost_and_the_rest_end_with_their_ttl() {
    let server = Server::valkey();
    let client = client(&server);
    let semaphore = client.semaphore("x", 3).ttl(Duration::from_millis(900));
    let lease = semaphore.acquire_many(3).unwrap();
    assert_eq!(server.int(&["ZREMRANGEBYRANK", "{x}:timeout", "0", "0"]), 1);
    server.int(&["INCR", "x"]);
    wait_until(LIMIT, "the loss", || lease.loss().is_some());
    let all = semaphore.acquire_many_within(3, LIMIT).unwrap();
    all.release().unwrap();
    assert_eq!(server.text(&["GET", "x"]), "3");
}

#[test]
fn another_number_names_both_and_takes_nothing() {
    let server = Server::valkey();
    let client = client(&server);
    let lease = client.semaphore("x", 3).acquire().unwrap();
    let error = client.semaphore("x", 4).acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermitsMismatch);
    assert!(error.to_string().contains("has 3 permits, and not 4"), "{error}");
    assert_eq!(client.semaphore("x", None).permits().unwrap().unwrap().held, 1);
    lease.release().unwrap();
}

#[test]
fn a_permit_of_redisson_counts_and_its_release_is_seen() {
    quick_once(Duration::from_millis(700), "the release of Redisson", || {
        let server = Server::valkey();
        released_by_redisson(&server, &client(&server))
    });
}

/// How long it takes until a waiter has what Redisson has released.
fn released_by_redisson(server: &Server, client: &Client) -> Duration {
    let semaphore = client.semaphore("x", 2);
    assert_eq!(semaphore.set_permits(2).unwrap().free, 2);
    // what its script does: a permit without an end, 16 bytes
    let id: [u8; 16] = [0xfe; 16];
    server.cmd(&["DECRBY", "x", "1"]);
    server.cmd(&[&b"ZADD"[..], b"{x}:timeout", b"922337203685477", &id]);
    let lease = semaphore.acquire().unwrap();
    assert!(semaphore.try_acquire().unwrap().is_none());
    let waiter = semaphore.clone();
    let waiting = std::thread::spawn(move || waiter.acquire_within(LIMIT).unwrap().release().unwrap());
    wait_until(LIMIT, "the place", || server.int(&["ZCARD", "onelock_queue:{x}"]) == 1);
    // in one step, as its script does
    let script = b"redis.call('ZREM', KEYS[2], ARGV[1]) return redis.call('INCRBY', KEYS[1], 1)";
    server.cmd(&[&b"EVAL"[..], script, b"2", b"x", b"{x}:timeout", &id]);
    // what Redisson publishes is heard by its own clients; ours see the free permit when they keep their place
    let begun = Instant::now();
    assert_eq!(waiting.join().unwrap(), Release::Released);
    let took = begun.elapsed();
    lease.release().unwrap();
    took
}

#[test]
fn a_semaphore_of_redisson_which_has_no_end_is_renewed_and_released_without_memory() {
    for flavor in [Flavor::Redis62, Flavor::Valkey91] {
        let server = Server::start(flavor);
        server.cmd(&["SET", "x", "2"]);
        let client = client(&server);
        let semaphore = client.semaphore("x", 2).ttl(Duration::from_secs(2));
        let lease = semaphore.acquire_many(2).unwrap();
        server.config_set("maxmemory", "1");
        let begun = Instant::now();
        wait_until(LIMIT, "longer than the ttl", || begun.elapsed() > Duration::from_millis(2700));
        assert!(lease.is_held(), "{flavor:?}: {:?}", lease.loss());
        lease.extend(Duration::from_secs(30)).unwrap();
        assert_eq!(lease.release().unwrap(), Release::Released);
        assert_eq!((server.text(&["GET", "x"]), server.int(&["PTTL", "x"])), ("2".to_owned(), -1));
        client.close();
    }
}

#[test]
fn several_servers_have_none_and_say_so_before_anything_is_sent() {
    let client = Client::new("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").unwrap();
    let error = client.semaphore("x", 2).acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(client.semaphore("x", 2).validate().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(client.stats().commands_sent, 0);
}

#[test]
fn descriptions_are_checked_before_anything_is_sent() {
    let client = Client::new("redis://127.0.0.1:1").unwrap();
    let refused = |lock: onelock::blocking::Lock| lock.validate().unwrap_err();
    for total in [0, 1025, u32::MAX] {
        assert_eq!(refused(client.semaphore("x", total)).kind(), ErrorKind::InvalidArgument, "{total}");
    }
    assert_eq!(refused(client.semaphore("x", 2).count(3)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(refused(client.semaphore("x", None).count(0)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(refused(client.lock("x").count(2)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(refused(client.lock("x").total_permits(2)).kind(), ErrorKind::InvalidArgument);
    assert_eq!(refused(client.semaphore("x", 2).owner(&onelock::Owner::new())).kind(), ErrorKind::InvalidArgument);
    assert_eq!(client.lock("x").permits().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(client.semaphore("x", 2).set_permits(1025).unwrap_err().kind(), ErrorKind::InvalidArgument);
    client.semaphore("x", 1024).count(1024).validate().unwrap();
    assert_eq!(client.stats().commands_sent, 0);
}

#[test]
fn the_permissions_that_are_named_are_enough() {
    let text = include_str!("../../../GUARANTEES.md");
    let line = text.lines().find(|line| line.starts_with("ACL SETUSER app ")).unwrap();
    let more = text.lines().find(|line| line.starts_with("`~{app:*")).unwrap();
    let words: Vec<&str> = line.split(' ').chain(more.trim_matches(['`', '.']).split(' ')).collect();
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        server.cmd(&words);
        let client = Client::connect(&server.url_with("app:secret", "")).unwrap();
        let semaphore = client.semaphore("app:x", 3);
        let lease = semaphore.acquire_many(2).unwrap();
        lease.extend(Duration::from_secs(60)).unwrap();
        assert!(semaphore.clone().count(2).try_acquire().unwrap().is_none());
        assert_eq!(client.inspect("app:x").unwrap().unwrap().hold_count, 2);
        let waiter = semaphore.clone().count(2);
        let waiting = std::thread::spawn(move || waiter.acquire_within(LIMIT).unwrap());
        wait_until(LIMIT, "the place", || server.int(&["ZCARD", "onelock_queue:{app:x}"]) == 1);
        lease.release().unwrap();
        let lease = waiting.join().unwrap();
        let proof = lease.detach().unwrap();
        semaphore.attach(&proof).unwrap().release().unwrap();
        semaphore.set_permits(4).unwrap();
        let lease = client.semaphore("app:x", 4).acquire().unwrap();
        assert!(client.force_release("app:x").unwrap());
        drop(lease);
        client.close();
    }
}
