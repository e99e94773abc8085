//! Other lock clients and this library shut each other out, and wait for each other: redis-py, node-redlock and
//! pottery at the mutex, Redisson at the reentrant lock. The others run for real, in processes of their own (`tests/peers`).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::quick_once;
use onelock_tests::supervisor::{Answer, Driver, DriverKind, kinds};
use onelock_tests::topology::Several;
use onelock_tests::wait::wait_until;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
/// How soon a waiter has the lock after a client that announces nothing has released it: both sides poll.
const POLLED: Duration = Duration::from_millis(900);
/// How soon after one that announces its release: far below the safety poll.
const WOKEN: Duration = Duration::from_millis(500);

fn peers() -> PathBuf {
    std::env::var_os("ONELOCK_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/peers"), PathBuf::from)
}

/// Another library's client.
struct Peer(Driver);

impl Peer {
    fn start(name: &str, words: &[String]) -> Peer {
        let kind =
            DriverKind { name: name.to_owned(), command: words.to_vec(), prepare: Vec::new(), main_server_only: false };
        Peer(Driver::start_peer(&kind))
    }

    fn source(file: &str) -> String {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(file).display().to_string()
    }

    fn folder(name: &str) -> String {
        let folder = peers().join(name);
        assert!(folder.exists(), "{} is missing; `make servers` fetches it", folder.display());
        folder.display().to_string()
    }

    fn redis_py() -> Peer {
        let path = format!("PYTHONPATH={}", Peer::folder("python"));
        Peer::start("redis-py", &["env".to_owned(), path, "python3".to_owned(), Peer::source("redis_py.py")])
    }

    fn pottery() -> Peer {
        let path = format!("PYTHONPATH={}", Peer::folder("pottery"));
        Peer::start("pottery", &["env".to_owned(), path, "python3".to_owned(), Peer::source("pottery_redlock.py")])
    }

    fn node_redlock() -> Peer {
        let path = format!("NODE_PATH={}", Peer::folder("node/node_modules"));
        Peer::start("node-redlock", &["env".to_owned(), path, "node".to_owned(), Peer::source("node_redlock.js")])
    }

    fn redisson() -> Peer {
        let jars = format!("{}/*", Peer::folder("java/jars"));
        // its logger has no sink, and says so
        let quiet = "-Dslf4j.internal.verbosity=ERROR".to_owned();
        Peer::start("redisson", &["java".to_owned(), quiet, "-cp".to_owned(), jars, Peer::source("Redisson.java")])
    }

    fn ask(&self, op: &str, args: &Value) -> Value {
        value(self.0.name(), op, self.0.call(op, args, LIMIT).unwrap())
    }

    fn answer(&self, id: u64) -> Value {
        value(self.0.name(), "wait", self.0.wait(id, LIMIT).unwrap())
    }
}

/// This library, in any language.
struct Ours(Driver);

impl Ours {
    fn start(kind: &DriverKind, url: &str) -> Ours {
        let driver = Driver::start(kind);
        value(&kind.name, "client", driver.call("client", &json!({"client": "c", "url": url}), LIMIT).unwrap());
        Ours(driver)
    }

    fn ask(&self, op: &str, mut args: Value) -> Value {
        args["client"] = json!("c");
        value(self.0.name(), op, self.0.call(op, &args, LIMIT).unwrap())
    }

    fn begin(&self, op: &str, mut args: Value) -> u64 {
        args["client"] = json!("c");
        self.0.send(op, &args)
    }

    fn answer(&self, id: u64) -> Value {
        value(self.0.name(), "wait", self.0.wait(id, LIMIT).unwrap())
    }

    fn release(&self, lease: &str) -> Value {
        value(self.0.name(), "release", self.0.call("release", &json!({"lease": lease}), LIMIT).unwrap())
    }

    fn wait_for_waiters(&self, count: u64) {
        wait_until(LIMIT, "the waiter", || {
            self.0.call("stats", &json!({"client": "c"}), LIMIT).unwrap().result.unwrap()["waiting"] == count
        });
    }
}

fn value(who: &str, op: &str, answer: Answer) -> Value {
    answer.result.unwrap_or_else(|failure| panic!("{who}, {op}: {}: {}", failure.kind, failure.message))
}

/// Returns how long `wait` takes after `free` has begun.
fn from_to<T>(free: impl FnOnce(), wait: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    free();
    let result = wait();
    (result, start.elapsed())
}

/// A client that takes a mutex with SET NX PX and announces nothing.
fn shares_the_mutex(peer: &Peer) {
    let server = Server::valkey();
    shares_the_mutex_at(peer, &server.url(), &server.url());
}

/// The same with an address for either side. The names begin with what pottery puts in front of every name.
fn shares_the_mutex_at(peer: &Peer, our_url: &str, their_url: &str) {
    for kind in kinds() {
        quick_once(POLLED, &kind.name, || shares_the_mutex_with(peer, &kind, our_url, their_url));
    }
}

/// How long the slower one of the two waits after a release.
fn shares_the_mutex_with(peer: &Peer, kind: &DriverKind, our_url: &str, their_url: &str) -> Duration {
    let ours = Ours::start(kind, our_url);
    let name = format!("redlock:shared:{}", kind.name);
    let theirs = json!({"url": their_url, "name": name, "lease": "t", "ttl_ms": 20_000, "wait_ms": 20_000});
    let lock = json!({"kind": "lock", "name": name, "lease": "l"});

    // it holds: ours is refused, waits, and has it soon after its release
    assert_eq!(peer.ask("acquire", &theirs), true);
    assert_eq!(ours.ask("try_acquire", lock.clone()), Value::Null);
    let seen = ours.ask("inspect", json!({"name": name}));
    assert_eq!((&seen["kind"], &seen["token"], &seen["owner"]), (&json!("lock"), &Value::Null, &Value::Null));
    let waiting = ours.begin("acquire", lock.clone());
    ours.wait_for_waiters(1);
    assert!(!ours.0.has_answer(waiting));
    let (lease, ours_took) = from_to(|| drop(peer.ask("release", &theirs)), || ours.answer(waiting));
    assert_eq!(lease["held"], true, "{}: {lease}", kind.name);

    // ours holds: it is refused, waits, and has it soon after our release
    assert_eq!(peer.ask("try_acquire", &theirs), false);
    let waiting = peer.0.send("acquire", &theirs);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!peer.0.has_answer(waiting));
    assert_eq!(ours.0.call("check", &json!({"lease": "l"}), LIMIT).unwrap().result.unwrap()["held"], true);
    let (got, theirs_took) = from_to(|| assert_eq!(ours.release("l"), "released"), || peer.answer(waiting));
    assert_eq!(got, true, "{}", kind.name);
    peer.ask("release", &theirs);

    // it dies without releasing: ours has it when its time is over
    let short = json!({"url": their_url, "name": name, "lease": "t", "ttl_ms": 1000, "wait_ms": 5000});
    let start = Instant::now();
    assert_eq!(peer.ask("acquire", &short), true);
    let lease = ours.ask("acquire", lock);
    assert!(lease["held"] == true && start.elapsed() >= Duration::from_millis(990), "{:?}", start.elapsed());
    assert_eq!(ours.release("l"), "released");
    ours_took.max(theirs_took)
}

#[test]
fn redis_py_shares_the_mutex() {
    shares_the_mutex(&Peer::redis_py());
}

#[test]
fn node_redlock_shares_the_mutex() {
    shares_the_mutex(&Peer::node_redlock());
}

/// A client that does so on three servers.
fn shares_the_mutex_on_several_servers(peer: &Peer) {
    let several = Several::start(Flavor::Valkey91, 3);
    let list: Vec<String> = several.servers.iter().map(Server::url).collect();
    shares_the_mutex_at(peer, &several.url("quarantine_ms=0"), &list.join(" "));
}

#[test]
fn node_redlock_shares_the_mutex_on_several_servers() {
    shares_the_mutex_on_several_servers(&Peer::node_redlock());
}

#[test]
fn pottery_shares_the_mutex_on_several_servers() {
    shares_the_mutex_on_several_servers(&Peer::pottery());
}

/// The hash of a lock without what is ours: its owner's field and count.
fn owner_and_count(server: &Server, name: &str) -> Vec<String> {
    let script = "local out = {} local all = redis.call('HGETALL', KEYS[1]) for i = 1, #all, 2 do \
                  if string.sub(all[i], 1, 8) ~= 'onelock_' then out[#out + 1] = all[i] out[#out + 1] = all[i + 1] end end \
                  return table.concat(out, ' ')";
    server.text(&["EVAL", script, "1", name]).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn redisson_shares_the_reentrant_lock_and_each_wakes_the_other() {
    let server = Server::valkey();
    let java = Peer::redisson();
    for kind in kinds() {
        quick_once(WOKEN, &kind.name, || shares_with_redisson(&server, &java, &kind));
    }
}

/// How long whoever is the slowest waits after a release.
fn shares_with_redisson(server: &Server, java: &Peer, kind: &DriverKind) -> Duration {
    let ours = Ours::start(kind, &server.url());
    let name = format!("shared:{}", kind.name);
    let theirs = json!({"url": server.url(), "name": name, "thread": "one", "wait_ms": 20_000});
    let lock = json!({"kind": "reentrant_lock", "name": name, "lease": "l", "owner": "me"});

    // Java holds, twice: ours is refused, touches nothing, waits, and is woken by the last unlock
    assert_eq!(java.ask("acquire", &theirs), true);
    assert_eq!(java.ask("acquire", &theirs), true);
    assert!(server.int(&["PTTL", &name]) > 20_000, "its watchdog gives it 30 s");
    let before = owner_and_count(server, &name);
    assert_eq!(before[1..], ["2"]);
    assert_eq!(ours.ask("try_acquire", lock.clone()), Value::Null);
    let seen = ours.ask("inspect", json!({"name": name}));
    assert_eq!((&seen["kind"], &seen["count"], &seen["token"]), (&json!("reentrant_lock"), &json!(2), &Value::Null));
    let waiting = ours.begin("acquire", lock.clone());
    ours.wait_for_waiters(1);
    let channel = format!("redisson_lock__channel:{{{name}}}");
    wait_until(LIMIT, "our subscription", || server.text(&["PUBSUB", "CHANNELS"]).contains(&channel));
    assert_eq!(owner_and_count(server, &name), before);
    java.ask("release", &theirs);
    assert_eq!(java.ask("count", &theirs), 1);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!ours.0.has_answer(waiting));
    let (lease, ours_took) = from_to(|| drop(java.ask("release", &theirs)), || ours.answer(waiting));
    assert_eq!(lease["held"], true, "{}: {lease}", kind.name);

    // ours holds, twice: Java is refused, waits, and is woken by our last release
    let again = json!({"kind": "reentrant_lock", "name": name, "lease": "m", "owner": "me"});
    assert_eq!(ours.ask("acquire", again)["count"], 2);
    assert_eq!(java.ask("try_acquire", &theirs), false);
    let waiting = java.0.send("acquire", &theirs);
    wait_until(LIMIT, "Java's subscription", || server.text(&["PUBSUB", "CHANNELS"]).contains(&channel));
    assert_eq!(ours.release("m"), "released");
    std::thread::sleep(Duration::from_millis(100));
    assert!(!java.0.has_answer(waiting));
    let (got, theirs_took) = from_to(|| assert_eq!(ours.release("l"), "released"), || java.answer(waiting));
    assert_eq!(got, true, "{}", kind.name);
    java.ask("release", &theirs);

    // each takes it from the other by force: the waiter is woken, the old holder finds out
    let quick = json!({"kind": "reentrant_lock", "name": name, "lease": "l", "owner": "me", "ttl_ms": 4500});
    ours.ask("acquire", quick);
    assert_eq!(java.ask("force_unlock", &theirs), true);
    let lost = ours.0.wait_event(LIMIT, |event| event.event == "lost" && event.lease == "l").unwrap();
    assert_eq!(lost.reason.as_deref(), Some("taken"));
    assert_eq!(java.ask("acquire", &theirs), true);
    let waiting = ours.begin("acquire", lock_of("other", &name));
    ours.wait_for_waiters(1);
    wait_until(LIMIT, "our subscription", || server.text(&["PUBSUB", "CHANNELS"]).contains(&channel));
    let force = || assert_eq!(ours.ask("force_release", json!({"name": name})), true);
    let (lease, forced_took) = from_to(force, || ours.answer(waiting));
    assert_eq!(lease["held"], true, "{}: {lease}", kind.name);
    let late = java.0.call("release", &theirs, LIMIT).unwrap().result.unwrap_err();
    assert_eq!(late.kind, "IllegalMonitorStateException");
    assert_eq!(ours.release("o"), "released");
    ours_took.max(theirs_took).max(forced_took)
}

fn lock_of(owner: &str, name: &str) -> Value {
    json!({"kind": "reentrant_lock", "name": name, "lease": "o", "owner": owner})
}
