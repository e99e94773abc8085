//! Who waits for permits stands in a queue: in order, a large request too, past the dead, and nothing is left of who gives up.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use onelock::blocking::{Client, Lease};
use onelock::machine::{Claim, ClientTag, Kind, Op, Outcome, QueueEntry, Reply, Time, token};
use onelock::store::redis::{RedisOptions, RedisStore};
use onelock::store::{Store, Uninterrupted};
use onelock::{ErrorKind, Release};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::topology::Cluster;
use onelock_tests::wait::wait_until;

use super::{LIMIT, client};

fn places(server: &Server, name: &str) -> i64 {
    server.int(&["ZCARD", &format!("onelock_queue:{{{name}}}")])
}

/// Takes a place as a process does that then is killed, or stands still: nothing comes from it any more.
fn enter_and_end(server: &Server, name: &str, count: u16, killed: bool) {
    let store = RedisStore::new(&server.url(), RedisOptions::default()).unwrap();
    let claim = Claim { kind: Kind::Semaphore, key: name.as_bytes().into(), token: token::permits([7; 16], count) };
    // of one that was killed nobody listens; of one that stands still its connection remains
    let entry = QueueEntry { client: ClientTag(7), window_ms: 600, place: None, listens: killed };
    let op = Op::AcquirePermits { claim, total: None, ttl_ms: 30_000, info: None, entry };
    let answer = store.call_blocking(&op, Time::MAX, &Uninterrupted);
    assert!(matches!(answer.outcome, Outcome::Applied(Reply::Queued { .. })), "{answer:?}");
}

/// Starts an acquire of `count`, and waits until it has the `number`th place. Sends its name when it is granted.
fn start<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    server: &'scope Server,
    (count, number): (u32, i64),
    granted: &mpsc::Sender<(u32, Lease)>,
) {
    let (client, granted) = (client(server), granted.clone());
    scope.spawn(move || {
        let lease = client.semaphore("x", None).acquire_many_within(count, LIMIT).unwrap();
        granted.send((count, lease)).unwrap();
    });
    wait_until(LIMIT, "its place", || places(server, "x") == number);
}

#[test]
fn a_large_request_is_not_passed_by_small_ones_and_several_are_served_at_once() {
    for flavor in [Flavor::Redis62, Flavor::Valkey91] {
        let server = Server::start(flavor);
        let client = client(&server);
        let semaphore = client.semaphore("x", 4);
        let held: Vec<Lease> = (0..4).map(|_| semaphore.acquire().unwrap()).collect();
        let (sender, granted) = mpsc::channel();
        std::thread::scope(|scope| {
            for (number, count) in (1..).zip([3, 1, 1, 2]) {
                start(scope, &server, (count, number), &sender);
            }
            let mut order = Vec::new();
            for (released, lease) in held.into_iter().enumerate() {
                assert_eq!(lease.release().unwrap(), Release::Released);
                assert!(client.semaphore("x", 4).try_acquire().unwrap().is_none(), "a try passes {released}");
                if released < 2 {
                    assert!(granted.recv_timeout(Duration::from_millis(250)).is_err(), "somebody passed the first");
                } else {
                    order.push(granted.recv_timeout(LIMIT).unwrap());
                }
            }
            // the third release served the first, the fourth the second: two more wait
            let (second, first) = (order.pop().unwrap(), order.pop().unwrap());
            assert_eq!((first.0, second.0), (3, 1));
            assert!(granted.recv_timeout(Duration::from_millis(100)).is_err());
            // one release serves both: three are free, and one and two are wanted
            first.1.release().unwrap();
            let mut both = [granted.recv_timeout(LIMIT).unwrap(), granted.recv_timeout(LIMIT).unwrap()];
            both.sort_by_key(|(count, _)| *count);
            assert_eq!(both.each_ref().map(|(count, _)| *count), [1, 2]);
            for lease in both.into_iter().map(|(_, lease)| lease).chain([second.1]) {
                assert_eq!(lease.release().unwrap(), Release::Released);
            }
        });
        assert_eq!(server.int(&["EXISTS", "onelock_queue:{x}", "onelock_waiters:{x}", "{x}:timeout"]), 0);
        assert_eq!(server.text(&["GET", "x"]), "4");
    }
}

#[test]
fn a_killed_waiter_costs_nothing_and_a_frozen_one_a_second() {
    for (killed, most_ms) in [(true, 50), (false, 1050)] {
        let server = Server::valkey();
        let semaphore = client(&server).semaphore("x", 2);
        let lease = semaphore.acquire_many(2).unwrap();
        let (sender, granted) = mpsc::channel();
        std::thread::scope(|scope| {
            enter_and_end(&server, "x", 2, killed);
            start(scope, &server, (1, 2), &sender);
            wait_until(LIMIT, "its subscription", || {
                let records = server.cmd(&["HVALS", "onelock_waiters:{x}"]);
                let redis::Value::Array(records) = records else { panic!("HVALS is a list") };
                // the dead one says it once, and never again
                records.iter().filter(|record| onelock_tests::resp::text(record).ends_with(" 1")).count()
                    == 1 + usize::from(killed)
                    || places(&server, "x") == 1
            });
            let begun = Instant::now();
            lease.release().unwrap();
            let (_, lease) = granted.recv_timeout(LIMIT).unwrap();
            let waited = begun.elapsed();
            assert!(waited < Duration::from_millis(most_ms) + onelock_tests::stage::SLACK, "{killed}: {waited:?}");
            lease.release().unwrap();
        });
    }
}

#[test]
fn who_gives_up_leaves_nothing_and_serves_those_behind() {
    let server = Server::valkey();
    let client = client(&server);
    let semaphore = client.semaphore("x", 2);
    let lease = semaphore.acquire().unwrap();
    let (sender, granted) = mpsc::channel();
    std::thread::scope(|scope| {
        let large = self::client(&server).semaphore("x", 2).count(2);
        let waiter = scope.spawn(move || large.acquire_within(Duration::from_millis(700)).unwrap_err().kind());
        wait_until(LIMIT, "its place", || places(&server, "x") == 1);
        start(scope, &server, (1, 2), &sender);
        assert!(granted.try_recv().is_err(), "one is free, and two are wanted before");
        assert_eq!(waiter.join().unwrap(), ErrorKind::Timeout);
        let begun = Instant::now();
        let (_, next) = granted.recv_timeout(LIMIT).unwrap();
        assert!(begun.elapsed() < Duration::from_millis(150) + onelock_tests::stage::SLACK, "{:?}", begun.elapsed());
        next.release().unwrap();
    });
    lease.release().unwrap();
    assert_eq!(server.int(&["EXISTS", "onelock_queue:{x}", "onelock_waiters:{x}", "{x}:timeout"]), 0);
}

/// The next waiter of a client stands where the one before stood, whatever number it wants.
#[test]
fn the_waiters_of_one_client_share_a_place() {
    let server = Server::valkey();
    let semaphore = client(&server).semaphore("x", 3);
    let lease = semaphore.acquire_many(3).unwrap();
    let (sender, granted) = mpsc::channel();
    std::thread::scope(|scope| {
        let two = client(&server);
        let first = two.semaphore("x", 3).count(2);
        let first = scope.spawn(move || first.acquire_within(Duration::from_millis(600)).unwrap_err().kind());
        wait_until(LIMIT, "its place", || places(&server, "x") == 1);
        let number = |server: &Server| {
            let redis::Value::Array(all) = server.cmd(&["ZRANGE", "onelock_queue:{x}", "0", "0", "WITHSCORES"]) else {
                panic!("ZRANGE is a list")
            };
            all.iter().map(onelock_tests::resp::text).collect::<Vec<_>>()
        };
        let before = number(&server);
        for (client, count) in [(two, 3), (client(&server), 1)] {
            let sender = sender.clone();
            let waiting = client.clone();
            scope.spawn(move || {
                let lease = client.semaphore("x", 3).acquire_many_within(count, LIMIT).unwrap();
                sender.send((count, lease)).unwrap();
            });
            wait_until(LIMIT, "it to wait", || waiting.stats().waiting == if count == 3 { 2 } else { 1 });
        }
        wait_until(LIMIT, "the place of the other client", || places(&server, "x") == 2);
        assert_eq!(first.join().unwrap(), ErrorKind::Timeout);
        wait_until(LIMIT, "another token at that place", || {
            let now = number(&server);
            now[0] != before[0] && places(&server, "x") == 2
        });
        assert_eq!(number(&server)[1], before[1], "its number");
        lease.release().unwrap();
        let (count, lease) = granted.recv_timeout(LIMIT).unwrap();
        assert_eq!(count, 3);
        lease.release().unwrap();
        granted.recv_timeout(LIMIT).unwrap().1.release().unwrap();
    });
    assert_eq!(server.int(&["EXISTS", "onelock_queue:{x}", "onelock_waiters:{x}", "{x}:timeout"]), 0);
}

#[test]
fn a_place_for_more_than_there_are_ends_with_that_error() {
    let server = Server::valkey();
    let client = client(&server);
    let lease = client.semaphore("x", 8).acquire_many(7).unwrap();
    let (sender, granted) = mpsc::channel();
    std::thread::scope(|scope| {
        let large = self::client(&server).semaphore("x", None).count(8);
        let large = scope.spawn(move || large.acquire_within(LIMIT).unwrap_err());
        wait_until(LIMIT, "its place", || places(&server, "x") == 1);
        start(scope, &server, (1, 2), &sender);
        client.semaphore("x", None).set_permits(4).unwrap();
        let error = large.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        lease.release().unwrap();
        granted.recv_timeout(LIMIT).unwrap().1.release().unwrap();
    });
    assert_eq!(server.text(&["GET", "x"]), "4");
}

#[test]
fn permits_are_taken_by_force_though_their_number_is_lost() {
    let server = Server::valkey();
    let client = client(&server);
    let lease = client.semaphore("x", 2).acquire_many(2).unwrap();
    assert_eq!(server.int(&["DEL", "x"]), 1);
    assert!(client.force_release("x").unwrap());
    assert!(!client.force_release("x").unwrap(), "nobody holds one any more");
    assert_eq!(lease.release().unwrap(), Release::AlreadyExpired);
    assert_eq!(client.semaphore("x", 3).acquire_many(3).unwrap().release().unwrap(), Release::Released);
    // what only looks like permits is left alone
    server.cmd(&["ZADD", "{y}:timeout", "922337203685477", "somebody's"]);
    assert!(!client.force_release("y").unwrap());
    assert_eq!(server.int(&["ZCARD", "{y}:timeout"]), 1);
}

/// A full server takes nobody new, and serves those who wait.
#[test]
fn f82_a_full_server_hands_permits_over() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        let lease = client(&server).semaphore("x", 2).acquire_many(2).unwrap();
        let (sender, granted) = mpsc::channel();
        std::thread::scope(|scope| {
            start(scope, &server, (1, 1), &sender);
            start(scope, &server, (1, 2), &sender);
            server.config_set("maxmemory", "1");
            assert_eq!(lease.release().unwrap(), Release::Released);
            let both = [granted.recv_timeout(LIMIT).unwrap().1, granted.recv_timeout(LIMIT).unwrap().1];
            for lease in both {
                assert!(lease.is_held());
                assert_eq!(lease.release().unwrap(), Release::Released);
            }
            let error = client(&server).semaphore("x", 2).acquire_within(Duration::from_millis(100)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ServerRefused);
            server.config_set("maxmemory", "0");
        });
        assert_eq!(server.text(&["GET", "x"]), "2");
    }
}

/// On sharded channels and, where there are none, on classic ones.
#[test]
fn a_cluster_serves_them_in_order_and_takes_permits_back_while_their_slot_moves() {
    for flavor in [Flavor::Redis62, Flavor::Valkey91] {
        let cluster = Cluster::start(flavor);
        let name = cluster.name_on(0, "x");
        let connect = || Client::connect(&cluster.url()).unwrap();
        let queued = |number| {
            let key = format!("onelock_queue:{{{name}}}");
            wait_until(LIMIT, "a place", || cluster.nodes[0].int(&["ZCARD", &key]) == number);
        };
        let lease = connect().semaphore(&name, 3).acquire_many(3).unwrap();
        let (sender, granted) = mpsc::channel();
        std::thread::scope(|scope| {
            for (number, count) in (1..).zip([2, 1, 3]) {
                let (semaphore, sender) = (connect().semaphore(&name, 3), sender.clone());
                scope.spawn(move || {
                    let lease = semaphore.acquire_many_within(count, LIMIT).unwrap();
                    sender.send((count, lease)).unwrap();
                });
                queued(number);
            }
            lease.release().unwrap();
            let mut both = [granted.recv_timeout(LIMIT).unwrap(), granted.recv_timeout(LIMIT).unwrap()];
            both.sort_by_key(|(count, _)| *count);
            assert_eq!(both.each_ref().map(|(count, _)| *count), [1, 2]);
            let [(_, one), (_, two)] = both;
            // the queue and the permits are on one node, and the slot is on its way to another one
            let slot = cluster.slot(&name);
            cluster.begin_move(slot, 0, 1);
            let begun = Instant::now();
            assert_eq!(one.release().unwrap(), Release::Released);
            assert!(begun.elapsed() < LIMIT / 2, "{:?}", begun.elapsed());
            assert_eq!(two.release().unwrap(), Release::Released);
            cluster.move_keys(slot, 0, 1);
            cluster.end_move(slot, 1);
            let (count, three) = granted.recv_timeout(LIMIT).unwrap();
            assert_eq!(count, 3);
            cluster.wait_moved(slot, 0);
            assert_eq!(three.release().unwrap(), Release::Released);
        });
        let left =
            [format!("onelock_queue:{{{name}}}"), format!("onelock_waiters:{{{name}}}"), format!("{{{name}}}:timeout")];
        wait_until(LIMIT, "nothing to be left", || left.iter().all(|key| cluster.nodes[1].int(&["EXISTS", key]) == 0));
        assert_eq!(cluster.nodes[1].text(&["GET", &name]), "3");
    }
}
