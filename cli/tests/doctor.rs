//! `doctor`: each step that can fail fails on a real server, and says what to do.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{onelock, text};
use onelock_tests::proxy::Proxy;
use onelock_tests::servers::{Flavor, Port, Server};
use onelock_tests::topology::{Cluster, Group, Several};
use serde_json::Value;

/// What the doctor found, and the status.
struct Report {
    status: i32,
    json: Value,
}

impl Report {
    fn of(arguments: &[&str]) -> Report {
        let output = onelock(&[&["doctor", "--json"], arguments].concat()).output().unwrap();
        let said = text(&output.stdout);
        let json = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        Report { status: output.status.code().unwrap(), json }
    }

    fn findings(&self) -> &Vec<Value> {
        self.json["findings"].as_array().unwrap()
    }

    /// The findings of this step with this severity.
    fn all(&self, step: &str, severity: &str) -> Vec<&Value> {
        self.findings().iter().filter(|it| it["step"] == step && it["severity"] == severity).collect()
    }

    /// The finding of this step, which has this severity, and these words in detail and advice.
    fn expect(&self, step: &str, severity: &str, detail: &str, todo: &str) {
        let found = self.all(step, severity);
        let fits = |it: &&&Value| {
            it["detail"].as_str().unwrap().contains(detail) && it["todo"].as_str().unwrap().contains(todo)
        };
        assert!(found.iter().any(|it| fits(&it)), "{step} {severity} {detail:?} {todo:?}: {:#}", self.json);
    }

    /// This step failed, it was the last one of its server, and the steps before passed.
    fn expect_failed(&self, status: i32, step: &str, detail: &str, todo: &str) {
        self.expect(step, "failed", detail, todo);
        assert_eq!(self.status, status, "{:#}", self.json);
        let (last, before) = self.findings().split_last().unwrap();
        assert_eq!(last["step"], step, "{:#}", self.json);
        assert!(before.iter().all(|it| it["severity"] != "failed"), "{:#}", self.json);
    }
}

#[test]
fn a_good_server_is_told_so() {
    let server = Server::builder(Flavor::Valkey91).aof("always").start();
    let report = Report::of(&[&server.url()]);
    assert_eq!(
        (report.status, &report.json["severity"], &report.json["grade"]),
        (0, &"passed".into(), &"Strict".into())
    );
    for step in [
        "name",
        "tcp",
        "protocol",
        "user",
        "database",
        "role",
        "version",
        "eviction",
        "persistence",
        "replicas",
        "clock",
        "round trip",
        "proxy",
        "permission",
        "fencing",
    ] {
        assert!(!report.all(step, "passed").is_empty(), "{step}: {:#}", report.json);
    }
    let measured = &report.all("round trip", "passed")[0]["measured"];
    assert!(
        measured["median_us"].as_f64().unwrap() > 0.0
            && measured["worst_us"].as_f64() >= measured["median_us"].as_f64()
    );
    assert!(report.all("clock", "passed")[0]["measured"]["ahead_ms"].as_f64().unwrap().abs() < 1000.0);
    assert_eq!(server.int(&["DBSIZE"]), 0, "nothing is left there");

    let output = onelock(&["doctor", &server.url()]).output().unwrap();
    let sheet = text(&output.stdout);
    assert!(sheet.contains("permissions") && sheet.ends_with("nothing endangers them\n"), "{sheet}");
    let all = text(&onelock(&["doctor", "--verbose", &server.url()]).output().unwrap().stdout);
    assert!(all.contains("+evalsha") && all.lines().count() > sheet.lines().count() + 20, "{all}");
    let unix = Report::of(&[&server.unix_url()]);
    assert_eq!(unix.status, 0, "{:#}", unix.json);
}

#[test]
fn the_network_fails_at_its_step() {
    let report = Report::of(&["redis://no-such-host.invalid"]);
    report.expect_failed(69, "name", "no-such-host.invalid", "host name");
    let closed = Port::reserve();
    let report = Report::of(&[&format!("redis://127.0.0.1:{}", closed.number())]);
    report.expect_failed(69, "tcp", "nothing listens there", &closed.number().to_string());
    // something else listens there
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = other.accept() {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
            // what is closed with something unread in it is reset, and the answer may be lost with it
            let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(5)));
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        }
    });
    let report = Report::of(&[&format!("redis://127.0.0.1:{port}")]);
    report.expect_failed(69, "protocol", "does not speak the Redis protocol", "");
    // the address itself is wrong: nothing was tried
    let output = onelock(&["doctor", "localhost"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
}

#[test]
fn tls_fails_at_its_step_from_either_side() {
    let server = Server::builder(Flavor::Redis70).tls().start();
    let (tls, port) = server.tls().unwrap();
    let ca = tls.ca.to_str().unwrap();
    let report = Report::of(&[&server.tls_url(), "--ca-file", ca]);
    assert_eq!(report.status, 0, "{:#}", report.json);
    report.expect("tls", "passed", "TLS 1.", "");
    // plain text to a port that speaks TLS
    let report = Report::of(&[&format!("redis://127.0.0.1:{port}")]);
    report.expect_failed(69, "protocol", "write rediss://", "");
    // and the reverse
    let report = Report::of(&[&format!("rediss://127.0.0.1:{}", server.port()), "--ca-file", ca]);
    report.expect_failed(69, "tls", "write redis:// instead of rediss://", "");
    // an authority that is not believed
    let report = Report::of(&[&server.tls_url()]);
    report.expect("tls", "failed", "", "ca_file");
    let report = Report::of(&[&server.tls_url(), "--tls-insecure"]);
    report.expect("tls", "warning", "any certificate", "ca_file");
    assert_eq!(report.status, 1);
}

#[test]
fn the_user_fails_at_its_step() {
    let server = Server::builder(Flavor::Valkey91).password("right").start();
    Report::of(&[&server.url_with("", "/")]).expect_failed(
        77,
        "user",
        "asks for a password",
        "redis://USER:PASSWORD@HOST",
    );
    let report = Report::of(&[&server.url_with(":hunter2", "/")]);
    report.expect_failed(77, "user", "WRONGPASS", "password");
    assert!(!report.json.to_string().contains("hunter2"));
    Report::of(&[&server.url_with("nobody:right", "/")]).expect_failed(77, "user", "user nobody", "");
    assert_eq!(Report::of(&[&server.url_with(":right", "/")]).status, 0);
    let given = onelock(&["doctor"]).env("ONELOCK_URL", server.url()).output().unwrap();
    assert_eq!(given.status.code(), Some(0), "{given:?}");
}

#[test]
fn database_and_role_fail_at_their_steps() {
    let server = Server::valkey();
    Report::of(&[&server.url_with("", "/99")]).expect_failed(64, "database", "99", "/0");
    assert_eq!(Report::of(&[&server.url_with("", "/3")]).status, 0);
    let replica =
        Server::builder(Flavor::Valkey91).config("replicaof", &format!("127.0.0.1 {}", server.port())).start();
    let master = format!("127.0.0.1:{}", server.port());
    Report::of(&[&replica.url()]).expect_failed(69, "role", &format!("a replica of {master}"), &master);
    let sentinel = Server::builder(Flavor::Valkey91).sentinel().start();
    Report::of(&[&sentinel.url()]).expect_failed(64, "role", "a Sentinel", "redis+sentinel://");
}

#[test]
fn settings_that_endanger_locks_are_told() {
    let server = Server::valkey();
    let report = Report::of(&[&server.url()]);
    report.expect("persistence", "remark", "appendonly is off", "appendonly yes");
    assert_eq!((report.status, &report.json["grade"]), (0, &"ClockBounded".into()));
    server.config_set("maxmemory-policy", "allkeys-lru");
    let report = Report::of(&[&server.url()]);
    report.expect("eviction", "warning", "maxmemory-policy is allkeys-lru", "noeviction");
    report.expect("fencing", "remark", "BestEffort", "");
    assert_eq!(report.status, 1);
}

/// The words of the line in GUARANTEES.md that gives a user what locks need.
fn line() -> Vec<String> {
    let page = include_str!("../../GUARANTEES.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER app ")).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn each_missing_permission_is_named() {
    let server = Server::valkey();
    let full = line();
    server.cmd(&full);
    let url = server.url_with("app:secret", "/");
    let report = Report::of(&["--name", "app:", &url]);
    assert!(report.all("permission", "failed").is_empty(), "{:#}", report.json);
    // what the document mentions beside the line
    let others = [
        "~onelock_queue:{app:*",
        "~onelock_readers:{app:*",
        "~{app:*",
        "&onelock_grant:{app:*",
        "&redisson_rwlock:{app:*",
    ];
    for more in ["+config|get", "+scan", "+pubsub|numsub", "+zadd", "+zrank", "+hgetall"].into_iter().chain(others) {
        report.expect("permission", "remark", more, &format!("ACL SETUSER app {more}"));
    }
    assert_eq!(report.status, 0, "{:#}", report.json);
    // servers after 6.2 count SELECT among +@connection
    let words = full.iter().filter(|word| word.starts_with(['+', '~', '&']) && *word != "+select");
    let mut tried = 0;
    for missing in words {
        server.cmd(&full.iter().filter(|word| *word != missing).collect::<Vec<_>>());
        let report = Report::of(&["--name", "app:", &url]);
        let bad = |it: &&Value| {
            it["step"] == "permission"
                && it["detail"].as_str().unwrap().starts_with(&format!("{missing} "))
                && ["warning", "failed"].contains(&it["severity"].as_str().unwrap())
        };
        let told: Vec<&Value> = report.findings().iter().filter(bad).collect();
        if missing == "+role" {
            report.expect("role", "warning", "unknown", "+role");
        } else {
            assert_eq!(told.len(), 1, "{missing}: {:#}", report.json);
        }
        let others = report.all("permission", "failed").len();
        assert!(others <= 1, "only {missing} is missing: {:#}", report.json);
        assert_eq!(report.status, if others == 1 { 77 } else { 1 }, "{missing}: {:#}", report.json);
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
    // under a name that this user may not lock
    server.cmd(&full);
    let report = Report::of(&[&url]);
    report.expect("permission", "failed", "~onelock-doctor:*", "which names this user may lock");
    assert_eq!(report.status, 77);
}

#[test]
fn commands_that_are_hidden_are_named() {
    let server = Server::builder(Flavor::Valkey91).config("rename-command", "EVAL \"\"").start();
    let report = Report::of(&[&server.url()]);
    report.expect("permission", "failed", "eval is not known", "proxy or a rename-command");
    assert_eq!(report.status, 64);
    let server = Server::valkey();
    let proxy = Proxy::start(&server);
    Report::of(&[&proxy.url()]).expect("proxy", "remark", "something translates addresses", "");
}

#[test]
fn several_servers_are_looked_at_one_by_one_and_together() {
    let servers = Several::with(3, || Server::builder(Flavor::Valkey91).aof("always"));
    let report = Report::of(&[&servers.url("")]);
    assert_eq!(report.status, 0, "{:#}", report.json);
    report.expect("quorum", "passed", "3 of 3 servers vote, 2 are needed", "");
    report.expect("clocks", "passed", "ms apart", "");
    assert_eq!(report.all("quarantine", "passed").len(), 3);
    servers.servers[0].kill();
    let report = Report::of(&[&servers.url("")]);
    report.expect("tcp", "warning", "nothing listens there", "");
    report.expect("quorum", "passed", "2 of 3 servers vote", "");
    assert_eq!(report.status, 1, "a majority is enough");
    servers.servers[1].kill();
    let report = Report::of(&[&servers.url("")]);
    report.expect("quorum", "failed", "1 of 3 servers vote", "");
    assert_eq!(report.status, 69);

    let fresh = Several::start(Flavor::Valkey91, 1);
    let report = Report::of(&[&fresh.url("")]);
    report.expect("quarantine", "warning", "does not vote for another", "appendonly");
    assert_eq!(Report::of(&[&fresh.url("quarantine_ms=0")]).status, 0);
}

#[test]
fn sentinels_and_their_master_are_looked_at() {
    let group = Group::start(Flavor::Valkey91);
    let report = Report::of(&[&group.url()]);
    report.expect("sentinel", "passed", &format!("127.0.0.1:{} as the master", group.master().port()), "");
    report.expect("role", "passed", "a master with", "");
    assert_eq!(report.status, 1, "its replicas are asynchronous: {:#}", report.json);
    report.expect("replicas", "warning", "asynchronous", "");
    let wrong = group.url().replace("/the-group", "/other");
    assert_ne!(wrong, group.url());
    let report = Report::of(&[&wrong]);
    report.expect("sentinel", "failed", "no Sentinel names the master of other", "name of the group");
    assert_eq!(report.status, 69);
}

#[test]
fn a_cluster_is_looked_at_master_by_master() {
    let cluster = Cluster::patient(Flavor::Valkey91);
    let report = Report::of(&[&cluster.url()]);
    report.expect("slots", "passed", "16384 of 16384 are served, by 3 masters", "");
    report.expect("notify", "passed", "sharded", "");
    assert_eq!(report.all("role", "passed").len(), 3, "{:#}", report.json);
    // also by a node that does not serve the slot of the name that is tried
    assert!(report.all("permission", "skipped").is_empty(), "{:#}", report.json);
    assert_eq!(report.status, 0, "{:#}", report.json);
    let plain = Report::of(&[&cluster.nodes[0].url()]);
    plain.expect("role", "failed", "a node of a cluster", "redis+cluster://");
    assert_eq!(plain.status, 64);
    let single = Server::valkey();
    let report = Report::of(&[&single.url().replace("redis://", "redis+cluster://")]);
    report.expect_failed(64, "slots", "cluster support disabled", "redis://");
}
