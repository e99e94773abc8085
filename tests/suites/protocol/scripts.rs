//! The scripts' tables: keys, arguments, replies and writes of every documented case.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use onelock::machine::{Claim, ClientTag, Kind, NodeSet, Op, Proposal, QueueEntry, Time};
use onelock::store::redis::{RedisOptions, RedisStore};
use onelock::store::{Store, Uninterrupted};
use onelock_tests::clock::boot_ns;
use onelock_tests::proxy::{Passed, Proxy};
use onelock_tests::resp::text;
use onelock_tests::servers::{Monitor, Server};
use redis::Value;

use super::document::{Row, all_fit, under};

const NAME: &str = "orders:42";
const TTL: u64 = 60_000;
const WRITES: [&str; 8] = ["SET", "HSET", "DEL", "PEXPIRE", "PUBLISH", "HDEL", "ZADD", "ZREM"];

macro_rules! script {
    ($name:literal) => {
        script!($name, $name)
    };
    ($name:literal, $file:literal) => {
        ($name, include_str!(concat!("../../../core/src/store/redis/command/scripts/", $file, ".lua")))
    };
}

const SCRIPTS: [(&str, &str); 14] = [
    script!("acquire_lock", "lock/acquire"),
    script!("acquire_many", "multi_lock/acquire"),
    script!("release_many", "multi_lock/release"),
    script!("acquire_reentrant", "reentrant_lock/acquire"),
    ("fair_lock", onelock_tests::scripts::FAIR_LOCK),
    script!("attach"),
    script!("renew"),
    script!("set_count"),
    script!("release"),
    script!("retain"),
    script!("inspect"),
    script!("waiters"),
    script!("force_release"),
    script!("write_back"),
];

struct Bench {
    server: Server,
    proxy: Proxy,
    monitor: Monitor,
    store: RedisStore,
    /// Scripts by their hash.
    names: BTreeMap<String, &'static str>,
    seen: BTreeSet<(String, String)>,
}

/// Which rows of a script's table a case must be like.
struct Case {
    script: &'static str,
    keys: &'static str,
    argv: &'static str,
    reply: &'static str,
    writes: Option<&'static str>,
}

const fn case(script: &'static str, reply: &'static str) -> Case {
    Case { script, keys: "KEYS", argv: "ARGV", reply, writes: None }
}

fn words(reply: &[u8]) -> Vec<String> {
    match redis::parse_redis_value(reply).unwrap() {
        Value::Array(items) => items.iter().map(text).collect(),
        Value::Int(number) => vec![number.to_string()],
        other => panic!("a script answered {other:?}"),
    }
}

fn printed(args: &[Vec<u8>]) -> Vec<String> {
    args.iter().map(|arg| String::from_utf8(arg.clone()).unwrap()).collect()
}

impl Bench {
    fn new() -> Bench {
        let server = Server::valkey();
        let names = SCRIPTS.iter().map(|(name, body)| (server.text(&["SCRIPT", "LOAD", body]), *name)).collect();
        let (proxy, monitor) = (Proxy::start(&server), server.monitor());
        let store = RedisStore::new(&proxy.url(), RedisOptions::default()).unwrap();
        Bench { server, proxy, monitor, store, names, seen: BTreeSet::new() }
    }

    /// Runs an operation and compares what went over the wire with the rows of its case.
    fn check(&mut self, case: &Case, op: &Op) {
        let before = self.proxy.passed().len();
        self.monitor.clear();
        let until = Time::from_nanos(boot_ns()) + Duration::from_secs(10);
        let answer = self.store.call_blocking(op, until, &Uninterrupted);
        let passed = self.proxy.passed();
        let calls: Vec<&Passed> = passed[before..].iter().filter(|it| it.is("EVALSHA")).collect();
        let [call] = calls[..] else { panic!("{op:?} took {} script calls; {answer:?}", calls.len()) };
        let sent = printed(&call.args);
        assert_eq!(self.names.get(&sent[1]), Some(&case.script), "{op:?}");
        let count: usize = sent[2].parse().unwrap();
        let (keys, argv) = sent[3..].split_at(count);
        let reply = words(call.reply.as_ref().unwrap());
        self.fits(case, case.keys, keys);
        self.fits(case, case.argv, argv);
        self.fits(case, &format!("reply: {}", case.reply), &reply);
        self.writes(case);
    }

    fn rows(&mut self, case: &Case, label: &str) -> Vec<Row> {
        self.seen.insert((case.script.to_owned(), label.to_owned()));
        let rows: Vec<_> = under(case.script).into_iter().filter(|row| row.cells[0] == label).collect();
        assert!(!rows.is_empty(), "PROTOCOL.md, {}: no row {label}", case.script);
        rows
    }

    fn fits(&mut self, case: &Case, label: &str, found: &[String]) {
        let rows = self.rows(case, label);
        let [row] = &rows[..] else { panic!("{}: {} rows {label}", case.script, rows.len()) };
        let mut found = found.to_vec();
        if row.repeats() {
            // the same again for a second lock; of a reply the clock comes only once
            let once = row.words(1).len();
            let (first, rest) = found.split_at(once);
            let repeated = if label.starts_with("reply") { &first[1..] } else { first };
            assert!(rest.is_empty() || repeated.len() == rest.len(), "{}: {label}: {found:?}", case.script);
            let second = if label.starts_with("reply") { [&first[..1], rest].concat() } else { rest.to_vec() };
            assert!(rest.is_empty() || all_fit(row, &second, "second"), "{}: {label}: {found:?}", case.script);
            found.truncate(once);
        }
        assert!(all_fit(row, &found, NAME), "{}: {label} is {found:?}, not {:?}", case.script, row.words(1));
    }

    fn writes(&mut self, case: &Case) {
        let lines = self.monitor.seen();
        let written: Vec<Vec<String>> = lines
            .into_iter()
            .filter(|line| line.source == "lua" && WRITES.iter().any(|write| line.is(write)))
            .map(|line| line.args)
            .collect();
        let Some(label) = case.writes else { return };
        let rows = self.rows(case, label);
        assert_eq!(written.len(), rows.len(), "{}: {label}: {written:?}", case.script);
        for (row, words) in rows.iter().zip(&written) {
            let mut words = words.clone();
            words[0].make_ascii_uppercase();
            assert!(all_fit(row, &words, NAME), "{}: {label}: {words:?}, not {:?}", case.script, row.words(1));
        }
    }
}

fn token(kind: Kind, number: u8) -> String {
    match kind {
        Kind::Mutex | Kind::Fair => format!("onelock1:{number:032x}"),
        _ => format!("ffffffff-ffff-4fff-bfff-ffffffffffff:{number}"),
    }
}

fn claim(kind: Kind, name: &str, number: u8) -> Claim {
    Claim { kind, key: name.as_bytes().into(), token: token(kind, number).into() }
}

fn acquire(claim: &Claim, fenced: bool) -> Op {
    let fence_ttl_ms = fenced.then_some(604_800_000);
    Op::Acquire { claim: claim.clone(), ttl_ms: TTL, fence_ttl_ms, info: None }
}

fn release(claim: &Claim) -> Op {
    Op::Release { claim: claim.clone() }
}

fn attach(claim: &Claim, from: &Claim) -> Op {
    Op::Attach { claim: claim.clone(), from: from.token.clone(), ttl_ms: TTL, info: None }
}

fn retain(claim: &Claim) -> Op {
    Op::Retain { claim: claim.clone(), nodes: NodeSet::ALL, rest_ms: 5000 }
}

fn set_count(claim: &Claim, count: u64) -> Op {
    Op::SetCount { claim: claim.clone(), count, ttl_ms: TTL }
}

#[test]
fn scripts_are_called_and_answer_as_in_the_tables() {
    let mut bench = Bench::new();
    mutex(&mut bench);
    several(&mut bench);
    reentrant(&mut bench);
    fair(&mut bench);
    looking(&mut bench);
    one_of_several(&mut bench);
    // no script is missing here, and nothing stands in the tables that was not seen
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src/store/redis/command/scripts");
    // those of semaphores and read/write locks have sections and suites of their own, and what kinds with a queue share is a file
    assert_eq!(scripts_in(folder.as_ref()), SCRIPTS.len() + 3);
    for (script, _) in SCRIPTS {
        for row in under(script) {
            let label = (script.to_owned(), row.cells[0].clone());
            assert!(bench.seen.contains(&label), "PROTOCOL.md, {script}: nothing shows {}", row.cells[0]);
        }
    }
}

fn scripts_in(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { scripts_in(&path) } else { 1 }).sum()
}

fn mutex(bench: &mut Bench) {
    let (mine, other) = (claim(Kind::Mutex, NAME, 1), claim(Kind::Mutex, NAME, 2));
    let granted = Case { writes: Some("writes when granted"), ..case("acquire_lock", "granted") };
    bench.check(&granted, &acquire(&mine, true));
    bench.check(&case("acquire_lock", "held by this token already"), &acquire(&mine, true));
    bench.check(&case("acquire_lock", "held by another client of this library"), &acquire(&other, true));
    let renew = |claims: &[&Claim]| Op::Renew { holds: claims.iter().map(|&claim| (claim.clone(), TTL)).collect() };
    let renewed = Case { writes: Some("writes when renewed"), ..case("renew", "renewed") };
    bench.check(&renewed, &renew(&[&mine]));
    bench.check(&case("renew", "not there"), &renew(&[&other]));
    // two of them in one call
    let second = claim(Kind::Mutex, "second", 1);
    bench.check(&case("renew", "not there"), &renew(&[&other, &second]));
    let exchanged = Case { writes: Some("writes when exchanged"), ..case("attach", "exchanged") };
    bench.check(&exchanged, &attach(&other, &mine));
    bench.check(&case("attach", "held by the new token already"), &attach(&other, &mine));
    bench.check(&case("attach", "not there"), &attach(&claim(Kind::Mutex, NAME, 3), &mine));
    bench.check(&exchanged, &attach(&mine, &other));
    let deleted = Case { writes: Some("writes when deleted"), ..case("release", "deleted, and announced") };
    bench.check(&deleted, &release(&mine));
    bench.check(&case("release", "not there"), &release(&mine));
    bench.check(&granted, &acquire(&mine, true));
    let kept = Case { writes: Some("writes when released"), ..case("retain", "released, and announced") };
    bench.check(&kept, &retain(&mine));
    bench.check(&case("retain", "not there"), &retain(&mine));
    bench.server.cmd(&["DEL", NAME]);

    let bare = Case { keys: "KEYS without fencing", argv: "ARGV without fencing", ..case("acquire_lock", "granted") };
    // a plain command would take a free one; the script looks at one that is taken, and at the next
    bench.server.cmd(&["SET", NAME, "somebody", "PX", "60000"]);
    let foreign = case("acquire_lock", "held by a foreign client, which announces nothing");
    bench.check(&Case { keys: bare.keys, argv: bare.argv, ..foreign }, &acquire(&mine, false));
    bench.server.cmd(&["DEL", NAME]);
    bench.check(&bare, &acquire(&mine, false));
    bench.check(&case("release", "deleted, and announced"), &release(&mine));
    bench.server.cmd(&["SET", NAME, "somebody", "PX", "60000"]);
    let foreign = case("acquire_lock", "held by a foreign client, which announces nothing");
    bench.check(&foreign, &acquire(&mine, true));
    bench.server.cmd(&["DEL", NAME]);
    bench.server.cmd(&["RPUSH", NAME, "x"]);
    bench.check(&case("acquire_lock", "something else stands there"), &acquire(&mine, true));
    bench.server.cmd(&["DEL", NAME]);
}

/// The second of two locks.
const NAME2: &str = "orders:422";

fn several(bench: &mut Bench) {
    let (mine, second, other) =
        (claim(Kind::Mutex, NAME, 1), claim(Kind::Mutex, NAME2, 1), claim(Kind::Mutex, NAME2, 2));
    let take = |one: &Claim, other: &Claim, fenced| {
        let claims = [one, other].map(|claim| (claim.clone(), TTL)).to_vec();
        Op::AcquireMany { claims, fenced }
    };
    let both = Op::ReleaseMany { claims: vec![mine.clone(), second.clone()] };
    let granted = Case { writes: Some("writes when granted"), ..case("acquire_many", "granted") };
    bench.check(&granted, &take(&mine, &second, true));
    bench.check(&case("acquire_many", "held by these tokens already"), &take(&mine, &second, true));
    let held = case("acquire_many", "the second is held by another client of this library");
    bench.check(&held, &take(&mine, &other, true));
    let deleted = Case { writes: Some("writes when deleted"), ..case("release_many", "deleted, and announced") };
    bench.check(&deleted, &both);
    let (keys, argv) = ("KEYS without fencing", "ARGV without fencing");
    bench.check(&Case { keys, argv, ..case("acquire_many", "granted") }, &take(&mine, &second, false));
    bench.server.cmd(&["DEL", NAME2]);
    bench.check(&case("release_many", "the second is not there"), &both);
    bench.server.cmd(&["SET", NAME2, "somebody", "PX", "60000"]);
    let foreign = case("acquire_many", "the second is held by a foreign client, which announces nothing");
    bench.check(&foreign, &take(&mine, &second, true));
    bench.server.cmd(&["DEL", NAME2]);
    bench.server.cmd(&["RPUSH", NAME2, "x"]);
    bench.check(&case("acquire_many", "something else stands at the second"), &take(&mine, &second, true));
    assert_eq!(bench.server.text(&["EXISTS", NAME]), "0");
    bench.server.cmd(&["DEL", NAME2]);
}

fn reentrant(bench: &mut Bench) {
    let (mine, other) = (claim(Kind::Reentrant, NAME, 1), claim(Kind::Reentrant, NAME, 2));
    let granted = Case { writes: Some("writes when granted"), ..case("acquire_reentrant", "granted") };
    bench.check(&granted, &acquire(&mine, true));
    bench.check(&case("acquire_reentrant", "held by this owner already"), &acquire(&mine, true));
    bench.check(&case("acquire_reentrant", "held by somebody else"), &acquire(&other, true));
    let done = Case { writes: Some("writes when done"), ..case("set_count", "done") };
    bench.check(&done, &set_count(&mine, 2));
    bench.check(&case("set_count", "not there"), &set_count(&other, 2));
    let renewed = Case { argv: "ARGV of a reentrant lock", ..case("renew", "renewed") };
    bench.check(&renewed, &Op::Renew { holds: vec![(mine.clone(), TTL)] });
    let (keys, argv) = ("KEYS of a reentrant lock", "ARGV of a reentrant lock");
    let writes = Some("writes of a reentrant lock");
    bench.check(&Case { keys, argv, writes, ..case("attach", "exchanged") }, &attach(&other, &mine));
    bench.check(&Case { keys, argv, ..case("attach", "held by the new token already") }, &attach(&other, &mine));
    bench.check(&Case { keys, argv, ..case("attach", "not there") }, &attach(&claim(Kind::Reentrant, NAME, 3), &mine));
    bench.check(&Case { keys, argv, ..case("attach", "exchanged") }, &attach(&mine, &other));
    let deleted = Case { argv: "ARGV of a reentrant lock", ..case("release", "deleted, and announced") };
    bench.check(&deleted, &release(&mine));
    bench.check(&granted, &acquire(&mine, true));
    let (argv, writes) = ("ARGV of a reentrant lock", Some("writes of a reentrant lock"));
    bench.check(&Case { argv, writes, ..case("retain", "released, and announced") }, &retain(&mine));
    bench.check(&case("acquire_reentrant", "held by somebody else"), &acquire(&mine, true));
    bench.server.cmd(&["DEL", NAME]);
    let bare =
        Case { keys: "KEYS without fencing", argv: "ARGV without fencing", ..case("acquire_reentrant", "granted") };
    bench.check(&bare, &acquire(&mine, false));
    bench.check(&deleted, &release(&mine));
    bench.server.cmd(&["HSET", NAME, "mode", "read"]);
    bench.check(&case("acquire_reentrant", "something else stands there"), &acquire(&mine, true));
    bench.server.cmd(&["DEL", NAME]);
}

fn enter(claim: &Claim, client: u64, window_ms: u64) -> Op {
    let entry = QueueEntry { client: ClientTag(client), window_ms, place: None, listens: false };
    Op::Enter { claim: claim.clone(), ttl_ms: TTL, fence_ttl_ms: 604_800_000, info: None, entry }
}

fn fair(bench: &mut Bench) {
    let [mine, other, third] = [1, 2, 3].map(|number| claim(Kind::Fair, NAME, number));
    let (entered, tried) = (case("fair_lock", "it has a place"), "ARGV of a try");
    let granted = Case { writes: Some("writes when granted"), ..case("fair_lock", "granted") };
    bench.check(&Case { argv: tried, ..granted }, &enter(&mine, 1, 0));
    let (keys, argv) = ("KEYS of a reentrant lock", "ARGV of a fair lock");
    bench.check(&Case { keys, argv, ..case("attach", "exchanged") }, &attach(&other, &mine));
    bench.check(&Case { keys, argv, ..case("attach", "exchanged") }, &attach(&mine, &other));
    bench.check(&case("fair_lock", "held by this token already"), &enter(&mine, 1, 600));
    bench.check(&case("inspect", "a fair lock"), &Op::Inspect { key: NAME.as_bytes().into() });
    bench.check(&Case { argv: tried, ..case("fair_lock", "held by somebody else") }, &enter(&other, 2, 0));
    bench.check(&Case { writes: Some("writes of a place"), ..entered }, &enter(&other, 2, 3000));
    let queue = Op::InspectQueue { key: NAME.as_bytes().into() };
    bench.check(&case("waiters", "one waits"), &queue);
    bench.check(&entered, &enter(&third, 3, 3000));
    let argv = "ARGV of a release";
    bench.check(&Case { argv, ..case("fair_lock", "a place given up") }, &release(&third));
    bench.check(&Case { argv, ..case("fair_lock", "not there") }, &release(&third));
    let writes = Some("writes when handed over");
    bench.check(&Case { argv, writes, ..case("fair_lock", "released") }, &release(&mine));
    let argv = "ARGV of a release before `min_hold`";
    bench.check(&Case { argv, ..case("fair_lock", "released") }, &retain(&other));
    bench.check(&Case { argv, ..case("fair_lock", "not there") }, &retain(&other));
    bench.server.cmd(&["DEL", NAME]);
    bench.server.cmd(&["RPUSH", NAME, "x"]);
    bench.check(&case("fair_lock", "something else stands there"), &enter(&mine, 1, 600));
    bench.server.cmd(&["DEL", NAME]);
    bench.check(&Case { argv: tried, ..granted }, &enter(&mine, 1, 0));
    let (argv, writes) = ("ARGV of a release", Some("writes of a release with nobody in the queue"));
    bench.check(&Case { argv, writes, ..case("fair_lock", "released") }, &release(&mine));
}

fn one_of_several(bench: &mut Bench) {
    for (kind, script) in [(Kind::Mutex, "acquire_lock"), (Kind::Reentrant, "acquire_reentrant")] {
        let (mine, other) = (claim(kind, NAME, 1), claim(kind, NAME, 2));
        let vote = |claim: &Claim| Op::Vote {
            claim: claim.clone(),
            ttl_ms: TTL,
            fence: Some(Proposal { base: 1_785_000_000_000_000, ttl_ms: 604_800_000 }),
            info: None,
        };
        let write = |claim: &Claim| Op::WriteBack { claim: claim.clone(), fence: 7, fence_ttl_ms: 604_800_000 };
        let argv = "ARGV of one server of several";
        bench.check(&Case { argv, ..case(script, "granted") }, &vote(&mine));
        bench.check(&Case { argv, ..case(script, "held, of one server of several") }, &vote(&other));
        let argv = if kind == Kind::Mutex { "ARGV" } else { "ARGV of a reentrant lock" };
        let writes = (kind == Kind::Mutex).then_some("writes when done");
        bench.check(&Case { argv, writes, ..case("write_back", "done") }, &write(&mine));
        bench.check(&Case { argv, ..case("write_back", "not there") }, &write(&other));
        bench.server.cmd(&["DEL", NAME]);
    }
}

fn looking(bench: &mut Bench) {
    let key = NAME.as_bytes().into();
    let inspect = Op::Inspect { key };
    let force = Op::ForceRelease { key: NAME.as_bytes().into(), foreign: false };
    bench.check(&case("inspect", "free"), &inspect);
    bench.check(&case("force_release", "free"), &force);
    bench.check(&case("waiters", "nobody waits"), &Op::InspectQueue { key: NAME.as_bytes().into() });
    bench.check(&case("acquire_reentrant", "granted"), &acquire(&claim(Kind::Reentrant, NAME, 1), true));
    bench.check(&case("inspect", "a reentrant lock"), &inspect);
    bench.check(&case("force_release", "deleted, and announced"), &force);
    bench.check(&case("acquire_lock", "granted"), &acquire(&claim(Kind::Mutex, NAME, 1), true));
    bench.check(&case("inspect", "a mutex"), &inspect);
    let deleted = Case { writes: Some("writes when deleted"), ..case("force_release", "deleted, and announced") };
    bench.check(&deleted, &force);
    bench.server.cmd(&["RPUSH", NAME, "x"]);
    bench.check(&case("inspect", "no lock"), &inspect);
    bench.check(&case("force_release", "no lock"), &force);
    bench.server.cmd(&["DEL", NAME]);
}
