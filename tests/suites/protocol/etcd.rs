//! What an etcd is asked is what PROTOCOL.md says, operation by operation, and all of it.

use std::collections::BTreeSet;

use onelock::{Owner, Release};
use onelock_tests::etcd::Etcd;
use onelock_tests::face::{Client, Face};
use onelock_tests::stage::{SOON, ms, unhurried};
use onelock_tests::wait::wait_until;
use onelock_tests::wire::Wire;

use crate::document::{self, Row};

/// Longer than this suite: nothing is renewed by itself.
const LONG: u64 = 3_600_000;

/// The calls that a row tells of.
fn told(rows: &[Row], operation: &str) -> BTreeSet<String> {
    let row = rows.iter().find(|row| row.cells[0] == operation);
    let row = row.unwrap_or_else(|| panic!("PROTOCOL.md has no operation {operation:?} of etcd"));
    let mut calls: BTreeSet<String> =
        row.words(1).into_iter().filter(|word| word.contains('/')).map(str::to_owned).collect();
    if operation != "renew" && row.cells[1].starts_with("renew, then") {
        calls.extend(told(rows, "renew"));
    }
    calls
}

/// Carries something out, and waits until the server was asked all that the rows of these operations tell of. It was asked
/// nothing else.
fn asks<T>(server: &Etcd, rows: &[Row], operations: &[&str], deed: impl FnOnce() -> T) -> T {
    let expected: BTreeSet<String> = operations.iter().flat_map(|operation| told(rows, operation)).collect();
    let before = server.calls();
    let done = deed();
    let asked = || -> BTreeSet<String> {
        let now = server.calls();
        now.into_iter().filter(|(call, count)| before.get(call) != Some(count)).map(|(call, _)| call).collect()
    };
    wait_until(SOON, "what is asked beside the caller", || expected.is_subset(&asked()));
    assert_eq!(asked(), expected, "{operations:?}");
    done
}

#[test]
fn each_operation_asks_what_is_written_down() {
    let (server, rows) = (Etcd::start(), document::under("etcd"));
    let client = Client::build(Face::Blocking, unhurried(), &server.url("/app/")).unwrap();
    let asks = |operations: &[&str], deed: &mut dyn FnMut()| asks(&server, &rows, operations, deed);
    asks(&["check"], &mut || drop(client.check().unwrap()));
    let mut lease = None;
    asks(&["a try"], &mut || lease = client.lock("a").ttl(ms(LONG)).try_acquire().unwrap());
    asks(&["release, undo"], &mut || assert_eq!(lease.take().unwrap().released(), Release::Released));
    asks(&["an acquire that waits"], &mut || lease = client.lock("a").ttl(ms(LONG)).acquire().ok());
    let held = lease.as_ref().unwrap();
    asks(&["renew"], &mut || held.extend(ms(LONG)).unwrap());
    asks(&["extend beyond the length of the lease"], &mut || held.extend(ms(LONG * 2)).unwrap());
    asks(&["inspect, waiters"], &mut || assert!(client.inspect("a").unwrap().is_some()));
    asks(&["list"], &mut || assert!(client.listing("none*").unwrap().is_empty()));
    asks(&["force_release"], &mut || assert!(client.force_release("a").unwrap()));
    asks(&["release, undo"], &mut || assert_eq!(held.released(), Release::AlreadyExpired));
    let owner = Owner::new();
    let lock = client.reentrant_lock("r").owner(&owner).ttl(ms(LONG));
    let outer = lock.acquire().unwrap();
    asks(&["set_count"], &mut || lease = lock.acquire().ok());
    asks(&["set_count"], &mut || assert_eq!(lease.take().unwrap().released(), Release::Released));
    let other = Client::build(Face::Blocking, unhurried(), &server.url("/app/")).unwrap();
    other.check().unwrap();
    let waits = ["an acquire that waits", "waiting", "the same again, after a wake-up", "release, undo"];
    let before = server.calls();
    asks(&waits, &mut || {
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.reentrant_lock("r").ttl(ms(LONG)).acquire_within(ms(60_000)).unwrap());
            // it has its place, and looks once more when it listens
            wait_until(SOON, "the waiter", || {
                let now = server.calls();
                ["Watch/Watch", "Lease/LeaseKeepAlive"].iter().all(|call| now[*call] > before[*call])
            });
            assert_eq!(outer.released(), Release::Released);
            assert_eq!(waiter.join().unwrap().released(), Release::Released);
        });
    });
    client.close();
    other.close();
}

#[test]
fn who_has_a_user_logs_in_for_each_connection() {
    let (server, rows) = (Etcd::start(), document::under("etcd"));
    for arguments in [&["user", "add", "root:top"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]] {
        server.ctl(arguments);
    }
    let url = format!("etcd://root:top@127.0.0.1:{}", server.port());
    let client = Client::build(Face::Blocking, unhurried(), &url).unwrap();
    asks(&server, &rows, &["a connection with a user", "check"], || client.check().unwrap());
    asks(&server, &rows, &["check"], || client.check().unwrap());
    client.close();
}

/// The key of a lock, and what is written there, as they stand in the messages of Protocol Buffers.
#[test]
fn what_is_written_keeps_the_lease_that_a_key_has() {
    let server = Etcd::start();
    let wire = Wire::to(server.port());
    let url = format!("etcd://127.0.0.1:{}/app/?names=escaped", wire.port());
    let client = Client::build(Face::Blocking, unhurried(), &url).unwrap();
    let owner = Owner::new();
    let lock = client.reentrant_lock("a/b%").owner(&owner).ttl(ms(LONG));
    let (outer, inner) = (lock.acquire().unwrap(), lock.acquire().unwrap());
    let key = server.keys("").pop().unwrap();
    let hex = key.strip_prefix("app/a%2Fb%25/").unwrap();
    assert!(!hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    assert_eq!(server.ctl(&["get", "--print-value-only", &key]), format!("{} 2", outer.token()));
    // a put of key and value (fields 1 and 2) that leaves the lease as it is (field 6)
    let value = format!("{} 2", outer.token());
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    let put = [&[0x0a, length(&key)], key.as_bytes(), &[0x12, length(&value)], value.as_bytes(), &[0x30, 1]].concat();
    let sent = wire.sent_bytes();
    assert!(sent.windows(put.len()).any(|window| window == put), "the count is written without its lease");
    assert_eq!((inner.released(), outer.released()), (Release::Released, Release::Released));
    client.close();
}

#[test]
fn all_that_is_written_down_is_tried_here() {
    let known = [
        "a try",
        "an acquire that waits",
        "the same again, after a wake-up",
        "waiting",
        "renew",
        "extend beyond the length of the lease",
        "set_count",
        "release, undo",
        "inspect, waiters",
        "force_release",
        "list",
        "check",
        "a connection with a user",
    ];
    let rows: Vec<String> = document::under("etcd").into_iter().map(|row| row.cells[0].clone()).collect();
    assert_eq!(rows, known);
}
