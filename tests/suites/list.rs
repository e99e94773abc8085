//! Listing: complete wherever locks are kept, and never a burden to the server.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Instant;

use onelock::machine::glob;
use onelock::{ErrorKind, Kind, LockEntry, Origin};
use onelock_tests::face::{Client, Face, everywhere, on_both, side_by_side};
use onelock_tests::servers::{Flavor, Server, all_flavors};
use onelock_tests::stage::{SLACK, SOON, Stage, fails, ms, unhurried};
use onelock_tests::topology::{Cluster, Group, Several};
use onelock_tests::wait::wait_until;
use redis::Value;

fn names(entries: &[LockEntry]) -> Vec<String> {
    let mut names: Vec<String> =
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    names.sort();
    names
}

/// Writes many keys at once, as other clients would.
fn fill(server: &Server, prefix: &str, number: usize, command: &str) {
    let script = format!("for i = 1, ARGV[2] do redis.call({command}) end");
    server.cmd(&["EVAL", &script, "0", prefix, &number.to_string()]);
}

/// Locks as any `SET NX PX` client makes them.
const LOCKS: &str = "'SET', ARGV[1] .. i, 'token', 'PX', 600000";
/// Anything else.
const SETS: &str = "'SADD', ARGV[1] .. i, 'a'";

#[test]
fn patterns_are_those_of_the_servers() {
    let alphabet = ['a', 'b', 'c', '-', '^', '*', '?', '[', ']', '\\', '/'];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut word = |longest: u64| -> String {
        let mut roll = |sides: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) % sides
        };
        (0..=roll(longest)).map(|_| alphabet[roll(alphabet.len() as u64) as usize]).collect()
    };
    let keys: BTreeSet<String> = (0..400).map(|_| word(4)).collect();
    let patterns: Vec<String> = (0..1500).map(|_| word(7)).collect();
    let servers: Vec<(Flavor, Server)> = all_flavors().into_iter().map(|it| (it, Server::start(it))).collect();
    let mut matched = 0;
    for (flavor, server) in &servers {
        for key in &keys {
            server.cmd(&["SET", key, "1"]);
        }
        for pattern in &patterns {
            let Value::Array(found) = server.cmd(&["KEYS", pattern]) else { panic!("{flavor:?}") };
            let found: BTreeSet<String> = found.iter().map(onelock_tests::resp::text).collect();
            let ours: BTreeSet<String> =
                keys.iter().filter(|key| glob::matches(pattern.as_bytes(), key.as_bytes())).cloned().collect();
            assert_eq!(ours, found, "{flavor:?} {pattern:?}");
            matched += found.len();
        }
        for key in &keys {
            let literal = glob::literal(key.as_bytes());
            let Value::Array(found) = server.cmd(&[b"KEYS".as_slice(), &literal]) else { panic!("{flavor:?}") };
            assert_eq!(found.iter().map(onelock_tests::resp::text).collect::<Vec<_>>(), [key.as_str()], "{flavor:?}");
        }
    }
    assert!(matched > 10_000, "{matched}: the patterns say something");
}

#[test]
fn every_lock_among_many_keys_is_told_and_page_by_page_none_is_left_out() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client_with(face, unhurried());
        fill(&stage.server, "other:", 3000, SETS);
        fill(&stage.server, "job:", 700, LOCKS);
        let leases: Vec<_> = (0..40).map(|i| client.lock(format!("job:ours:{i}")).acquire().unwrap()).collect();
        let mut expected: Vec<String> = (1..=700).map(|i| format!("job:{i}")).collect();
        expected.extend((0..40).map(|i| format!("job:ours:{i}")));
        expected.sort();

        let entries = client.listing("job:*").unwrap();
        let ours = entries.iter().filter(|entry| entry.inspection.origin == Origin::Onelock);
        assert!(ours.count() >= 40);
        let mut told = names(&entries);
        told.dedup();
        assert_eq!(told, expected);

        let (mut cursor, mut pages, mut told) = (None, 0, BTreeSet::new());
        loop {
            let page = client.list("*", 50, cursor.as_deref()).unwrap();
            pages += 1;
            assert!(page.entries.len() < 50 + 2 * 100, "{}", page.entries.len());
            told.extend(names(&page.entries));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(pages > 5, "{pages}");
        assert_eq!(told.into_iter().collect::<Vec<_>>(), expected);
        for lease in &leases {
            lease.released();
        }
    });
}

#[test]
fn a_server_is_asked_for_little_at_a_time_and_left_alone_in_between() {
    let server = Server::valkey();
    fill(&server, "other:", 20_000, SETS);
    fill(&server, "job:", 2000, LOCKS);
    let client = unhurried().build_blocking(&server.url()).unwrap();
    let monitor = server.monitor();
    let listed: Vec<_> = client.listing("job:*").collect::<Result<_, _>>().unwrap();
    assert!(listed.len() >= 2000, "{}", listed.len());
    let seen = monitor.seen();
    let scans: Vec<_> = seen.iter().filter(|seen| seen.is("SCAN")).collect();
    assert!(scans.len() > 200, "{}", scans.len());
    for scan in scans {
        let at = scan.args.iter().position(|word| word == "COUNT").unwrap();
        assert!(scan.args[at + 1].parse::<u32>().unwrap() <= 100, "{:?}", scan.args);
    }
    let allowed = ["SCAN", "EVALSHA", "EVAL", "PUBSUB", "TIME", "TYPE", "PTTL", "GETRANGE", "GET", "HSCAN", "HELLO"];
    let others = ["CLIENT", "INFO", "CONFIG", "ROLE", "PING", "SELECT", "AUTH", "COMMAND", "SCRIPT", "SUBSCRIBE"];
    for command in &seen {
        assert!(allowed.iter().chain(&others).any(|name| command.is(name)), "{:?}", command.args);
    }
}

#[test]
fn whatever_the_server_holds_a_page_ends_in_time() {
    let server = Server::valkey();
    fill(&server, "other:", 150_000, SETS);
    on_both(|face| {
        let limit = ms(400);
        let client = Client::build(face, unhurried().request_timeout(limit), &server.url()).unwrap();
        let (mut cursor, mut pages) = (None, 0);
        loop {
            let begun = Instant::now();
            let page = client.list("nothing:*", 1, cursor.as_deref()).unwrap();
            assert!(begun.elapsed() < limit + SLACK, "{:?}", begun.elapsed());
            assert!(page.entries.is_empty());
            pages += 1;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(pages > 2, "{pages}");
    });
}

#[test]
fn a_cluster_is_listed_master_by_master() {
    side_by_side(&Flavor::ALL.map(|flavor| (format!("{flavor:?}"), flavor)), |flavor| {
        let cluster = Cluster::start(*flavor);
        for face in Face::ALL {
            let client = Client::build(face, unhurried(), &cluster.url()).unwrap();
            let mut leases = Vec::new();
            for at in 0..3 {
                for kind in [Kind::Mutex, Kind::Reentrant] {
                    for number in 0..20 {
                        let name = cluster.name_on(at, &format!("{face:?}:{at}:{number}:{kind:?}"));
                        leases.push((name.clone(), client.lock_of(kind, &name).acquire().unwrap()));
                    }
                }
                // its braces enclose nothing: no lock of ours, and nobody's hindrance
                cluster.nodes[at].cmd(&["SET", &cluster.name_on(at, "x{}"), "v", "PX", "60000"]);
            }
            let entries = client.listing(format!("{face:?}:*")).unwrap();
            let mut expected: Vec<String> = leases.iter().map(|(name, _)| name.clone()).collect();
            expected.sort();
            let mut told = names(&entries);
            told.dedup();
            assert_eq!(told, expected);
            for entry in &entries {
                let name = String::from_utf8(entry.name.clone()).unwrap();
                let (_, lease) = leases.iter().find(|(known, _)| *known == name).unwrap();
                assert_eq!(entry.inspection.fencing_token, lease.fencing_token());
            }
            let mut told = BTreeSet::new();
            let mut cursor = None;
            while let Some(page) = Some(client.list("*", 7, cursor.as_deref()).unwrap()) {
                told.extend(names(&page.entries));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert!(expected.iter().all(|name| told.contains(name)));
            for (_, lease) in &leases {
                lease.released();
            }
            client.close();
        }
    });
}

#[test]
fn who_waits_is_counted_for_every_kind() {
    let (server, cluster) = (Server::valkey(), Cluster::start(Flavor::Valkey91));
    let places = [("memory", "memory://who-waits".to_owned()), ("server", server.url()), ("cluster", cluster.url())];
    let cases: Vec<_> = places
        .iter()
        .flat_map(|(place, url)| Face::ALL.map(|face| (format!("{place} {face:?}"), (face, url.as_str()))))
        .collect();
    side_by_side(&cases, |(face, url)| {
        let connect = || Client::connect(*face, unhurried(), url).unwrap();
        let client = connect();
        for (held, wanted) in [
            (Kind::Mutex, &[Kind::Mutex, Kind::Mutex][..]),
            (Kind::Reentrant, &[Kind::Reentrant]),
            (Kind::Fair, &[Kind::Fair, Kind::Fair]),
            (Kind::Semaphore, &[Kind::Semaphore]),
            // a writer that queues, and a reader that listens
            (Kind::Write, &[Kind::Write, Kind::Read]),
            (Kind::Read, &[Kind::Write]),
        ] {
            let name = format!("waited:{face:?}:{held:?}");
            let lease = client.lock_of(held, &name).acquire().unwrap();
            // the semaphore of these tests has two permits
            let second = (held == Kind::Semaphore).then(|| client.lock_of(held, &name).acquire().unwrap());
            let waiting = || {
                let entries = client.listing(&name).unwrap();
                assert!(entries.len() == 1 && entries[0].inspection.kind == held, "{held:?} {entries:?}");
                entries[0].waiting
            };
            assert_eq!(waiting(), Some(0), "{held:?}");
            std::thread::scope(|scope| {
                for kind in wanted {
                    let (other, name) = (connect(), name.clone());
                    scope.spawn(move || other.lock_of(*kind, name).acquire_within(SOON * 2).unwrap().released());
                }
                wait_until(SOON, &format!("{held:?} is waited for"), || waiting() == Some(wanted.len() as u64));
                lease.released();
            });
            drop(second);
        }
    });
}

#[test]
fn several_servers_are_listed_as_a_majority_sees_them() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = Client::connect(face, unhurried(), &several.url("quarantine_ms=0")).unwrap();
        let leases: Vec<_> = (0..30).map(|i| client.lock(format!("job:{i}")).acquire().unwrap()).collect();
        let lasting = client.reentrant_lock("job:re").acquire().unwrap();
        // on one server alone it is held by nobody, and on two it is
        several.servers[1].cmd(&["SET", "job:stray", "v", "PX", "60000"]);
        for at in [1, 2] {
            several.servers[at].cmd(&["SET", "job:two", "v", "PX", "60000"]);
        }
        let mut expected: Vec<String> = (0..30).map(|i| format!("job:{i}")).collect();
        expected.extend(["job:re".to_owned(), "job:two".to_owned()]);
        expected.sort();
        // the last of the servers may be a moment behind the majority
        wait_until(SOON, "all servers", || (0..30).all(|i| several.count(&format!("job:{i}")) == 3));
        let entries = client.listing("job:*").unwrap();
        assert_eq!(names(&entries), expected, "each once");
        // a semaphore of each server alone is no lock of all together, and hides none
        let single: Vec<_> =
            (0..3).map(|at| Client::connect(face, unhurried(), &several.servers[at].url()).unwrap()).collect();
        let permits: Vec<_> =
            single.iter().map(|one| one.lock_of(Kind::Semaphore, "job:many").acquire().unwrap()).collect();
        assert_eq!(names(&client.listing("job:*").unwrap()), expected);
        let error = fails(client.inspect("job:many"), ErrorKind::WrongKind);
        assert!(error.detail().contains("semaphore"), "{error}");
        drop((permits, single));
        let mine = entries.iter().find(|entry| entry.name == b"job:7").unwrap();
        assert_eq!(mine.inspection.fencing_token, leases[7].fencing_token());
        assert_eq!(mine.waiting, Some(0));

        several.servers[0].kill();
        assert_eq!(names(&client.listing("job:*").unwrap()), expected, "without the first");
        several.servers[1].kill();
        let error = fails(client.listing("job:*"), ErrorKind::NoQuorum);
        assert_eq!(error.tried(), "list");
        drop((leases, lasting));
    });
}

#[test]
fn the_master_of_a_group_is_listed() {
    let group = Group::start(Flavor::Valkey91);
    for face in Face::ALL {
        let client = Client::connect(face, unhurried(), &group.url()).unwrap();
        let lease = client.lock("job").acquire().unwrap();
        assert_eq!(names(&client.listing("*").unwrap()), ["job"]);
        lease.released();
        client.close();
    }
}

#[test]
fn what_a_user_may_not_read_is_left_out_and_scan_is_asked_for() {
    let line = ["-@all", "+@read", "+@connection", "+eval", "+evalsha", "+time", "+info", "+config|get", "&*"];
    let keys = "~mine:* ~onelock_fence:{mine:*";
    let server = Server::builder(Flavor::Valkey91)
        .user("app", &format!("on >secret {} {keys}", line.join(" ")))
        .user("blind", &format!("on >secret {} -scan {keys}", line.join(" ")))
        .start();
    server.cmd(&["SET", "mine:a", "v", "PX", "60000"]);
    server.cmd(&["SET", "theirs:a", "v", "PX", "60000"]);
    on_both(|face| {
        let client = Client::build(face, unhurried(), &server.url_with("app:secret", "")).unwrap();
        assert_eq!(names(&client.listing("*").unwrap()), ["mine:a"]);
        let client = Client::build(face, unhurried(), &server.url_with("blind:secret", "")).unwrap();
        let error = fails(client.listing("*"), ErrorKind::NotPermitted);
        assert!(error.to_string().contains("scan"), "{error}");
    });
}

#[test]
fn a_server_that_is_away_is_told_and_the_listing_goes_on_when_it_is_back() {
    on_both(|face| {
        let server = Server::builder(Flavor::Valkey91).aof("always").start();
        fill(&server, "job:", 500, LOCKS);
        let client = Client::build(face, unhurried(), &server.url()).unwrap();
        let first = client.list("job:*", 100, None).unwrap();
        server.kill();
        fails(client.list("job:*", 100, first.next.as_deref()), ErrorKind::Unavailable);
        server.restart();
        let mut told: BTreeSet<String> = BTreeSet::new();
        wait_until(SOON, "the server", || client.listing("job:*").map(|found| told.extend(names(&found))).is_ok());
        assert_eq!(told.len(), 500);
    });
}
