//! PROTOCOL.md is true: its tables are held against what a server really sees and answers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod document;
mod etcd;
mod memcached;
mod scripts;

use std::collections::BTreeSet;
use std::time::Duration;

use onelock::{Kind, Owner};
use onelock_tests::resp::{Connection, text};
use onelock_tests::servers::Server;
use onelock_tests::wait::wait_until;
use redis::Value;

use document::{column, fits, under};

const LONG: Duration = Duration::from_secs(30);

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(key, value)| [text(key), text(value)]).collect(),
        other => panic!("no list: {other:?}"),
    }
}

/// The patterns of the table of values, by the beginning of their first cell.
fn value_pattern(what: &str) -> Vec<String> {
    let row = under("Values").into_iter().find(|row| row.cells[0] == what);
    let row = row.unwrap_or_else(|| panic!("PROTOCOL.md has no value {what}"));
    row.words(1).into_iter().map(str::to_owned).collect()
}

#[test]
fn keys_and_values_are_those_of_the_tables() {
    let server = Server::valkey();
    let name = "orders 42";
    let plain = onelock::blocking::Client::connect(&server.url()).unwrap();
    let shown = onelock::blocking::Client::builder()
        .inspectable(true)
        .label("shop, 1")
        .connect_blocking(&server.url())
        .unwrap();
    let keys = column("Keys", 0);
    for (client, mutex, info) in [
        (&plain, "value of a mutex", None),
        (&shown, "the same, of an inspectable client", Some("field of a reentrant lock of an inspectable client")),
    ] {
        let lease = client.lock(name).acquire().unwrap();
        let there = strings(&server.cmd(&["KEYS", "*"]));
        assert_eq!(there.len(), 2, "{there:?}");
        for key in &there {
            assert!(keys.iter().any(|pattern| fits(pattern, key, name)), "{key} is not in the table of keys");
            assert!(server.int(&["PTTL", key]) > 0, "{key} lives for ever");
        }
        assert_eq!(server.text(&["TYPE", name]), "string");
        let value = server.text(&["GET", name]);
        assert!(fits(&value_pattern(mutex)[0], &value, name), "{mutex}: {value}");
        let counter = server.text(&["GET", &format!("onelock_fence:{{{name}}}")]);
        assert!(fits(&value_pattern("value of the fencing counter")[0], &counter, name), "{counter}");
        assert_eq!(counter, lease.fencing_token().unwrap().to_string());
        lease.release().unwrap();

        let lease = client.reentrant_lock(name).acquire().unwrap();
        assert_eq!(server.text(&["TYPE", name]), "hash");
        let mut expected = vec![
            value_pattern("field of a reentrant lock: owner and hold count"),
            value_pattern("field of a reentrant lock: fencing token"),
        ];
        expected.extend(info.map(value_pattern));
        let fields = strings(&server.cmd(&["HGETALL", name]));
        assert_eq!(fields.len(), 2 * expected.len(), "{fields:?}");
        for field in fields.chunks(2) {
            let fitting =
                |pattern: &&Vec<String>| fits(&pattern[0], &field[0], name) && fits(&pattern[1], &field[1], name);
            assert_eq!(expected.iter().filter(fitting).count(), 1, "{field:?}");
        }
        lease.release().unwrap();
        assert_eq!(strings(&server.cmd(&["KEYS", "*"])), [format!("onelock_fence:{{{name}}}")]);
    }
    // 7 days, or twice the lock's own
    let ttl = Duration::from_secs(8 * 24 * 3600);
    let lease = plain.lock(name).ttl(ttl).acquire().unwrap();
    let left = server.int(&["PTTL", &format!("onelock_fence:{{{name}}}")]);
    assert!(u128::from(left.unsigned_abs()) > ttl.as_millis() * 2 - 60_000, "{left}");
    lease.release().unwrap();
    // a name with a brace is not wrapped again
    let lease = plain.lock("a{b}").acquire().unwrap();
    assert_eq!(server.int(&["EXISTS", "a{b}", "onelock_fence:a{b}"]), 2);
    lease.release().unwrap();
}

#[test]
fn releases_are_announced_on_the_channels_of_the_table() {
    let server = Server::valkey();
    let name = "orders:42";
    let client = onelock::blocking::Client::connect(&server.url()).unwrap();
    let rows = under("Channels");
    // those of semaphores and of both sides of a read/write lock have sections of their own
    assert_eq!(rows.len(), Kind::ALL.len() - 3);
    // a fair lock tells one client of its grant: the tables of its script
    for row in rows.into_iter().filter(|row| row.words(0) != ["fair_lock"]) {
        let kind = if row.words(0) == ["lock"] { Kind::Mutex } else { Kind::Reentrant };
        let lock = if kind == Kind::Mutex { client.lock(name) } else { client.reentrant_lock(name) };
        let mut ear = Connection::port(server.port()).unwrap();
        ear.cmd(&["PSUBSCRIBE", "*"]).unwrap();
        for by_force in [false, true] {
            let lease = lock.acquire().unwrap();
            let waiter = lock.clone();
            let waiting = std::thread::spawn(move || waiter.acquire().unwrap().release().unwrap());
            wait_until(LONG, "the waiter's subscription", || {
                let channels = strings(&server.cmd(&["PUBSUB", "CHANNELS"]));
                channels.iter().any(|channel| fits(row.words(1)[0], channel, name))
            });
            if by_force {
                assert!(client.force_release(name).unwrap());
            } else {
                lease.release().unwrap();
            }
            for _ in 0..2 {
                // one message for this release and one for the waiter's
                let Value::Array(message) = ear.read().unwrap() else { panic!("no message") };
                assert!(fits(row.words(1)[0], &text(&message[2]), name), "{message:?}");
                assert_eq!(text(&message[3]), row.words(2)[0]);
            }
            waiting.join().unwrap();
            drop(lease);
        }
    }
}

/// Everything that a client sends in its life is in the document.
#[test]
fn nothing_else_is_sent() {
    let server = Server::valkey();
    let monitor = server.monitor();
    let client = onelock::blocking::Client::connect(&server.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let owner = Owner::new();
    let lock = client.reentrant_lock("x").owner(&owner).ttl(Duration::from_millis(300));
    let outer = lock.acquire().unwrap();
    let inner = lock.acquire().unwrap();
    outer.extend(Duration::from_secs(1)).unwrap();
    wait_until(LONG, "a renewal", || client.stats().renewals > 0);
    inner.release().unwrap();
    runtime.block_on(async {
        let other = onelock::Client::connect(&server.url()).await.unwrap();
        let lock = other.reentrant_lock("x");
        assert!(lock.try_acquire().await.unwrap().is_none());
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
        while server.text(&["PUBSUB", "NUMPAT"]).is_empty() || strings(&server.cmd(&["PUBSUB", "CHANNELS"])).is_empty()
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::task::spawn_blocking(move || outer.release().unwrap()).await.unwrap();
        waiting.await.unwrap();
        let lease = other.lock("y").acquire().await.unwrap();
        other.inspect("y").await.unwrap().unwrap();
        let proof = lease.detach().unwrap();
        let lease = other.lock("y").attach(&proof).await.unwrap();
        other.force_release("y").await.unwrap();
        drop(lease);
        other.close().await;
    });
    client.close();
    let allowed: BTreeSet<String> =
        column("Other commands", 0).into_iter().chain(["EVALSHA".to_owned(), "EVAL".to_owned()]).collect();
    let sent: BTreeSet<String> = monitor.sent().iter().map(|line| line.args[0].to_uppercase()).collect();
    assert!(sent.is_subset(&allowed), "not in the document: {:?}", sent.difference(&allowed));
    for expected in ["EVALSHA", "HELLO", "SUBSCRIBE", "UNSUBSCRIBE", "INFO"] {
        assert!(sent.contains(expected), "{expected} was not sent, so this test has looked at too little: {sent:?}");
    }
}
