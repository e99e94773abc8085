//! `list`, `inspect`, `wait`, `force-release`, `doctor` and `export` on what is not one Redis server: a cluster, a majority,
//! Sentinels, files, PostgreSQL, memcached.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::process::{Command, Output, Stdio};

use common::{Running, SOON, onelock, text};
use onelock_tests::memcached::Memcached;
use onelock_tests::postgres::Postgres;
use onelock_tests::servers::Flavor;
use onelock_tests::topology::{Cluster, Group, Several};
use onelock_tests::wait::wait_until;
use serde_json::Value;

fn at(url: &str, arguments: &[&str]) -> Command {
    let mut command = onelock(arguments);
    command.env("ONELOCK_URL", url).stdin(Stdio::null());
    command
}

fn output(url: &str, arguments: &[&str]) -> Output {
    at(url, arguments).output().unwrap()
}

fn status(url: &str, arguments: &[&str]) -> i32 {
    let output = output(url, arguments);
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

/// A lock is held, seen by each command, and taken away.
fn looked_at_and_taken_away(url: &str) {
    let holder = Running::of(at(url, &["run", "job:a", "--label", "night shift", "--", "sleep", "600"]));
    wait_until(SOON, "it is held", || status(url, &["inspect", "job:a"]) == 0);
    let listed = output(url, &["list", "job:*", "--json"]);
    let lines: Vec<Value> = text(&listed.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["name"]), (1, &"job:a".into()), "{url}: {listed:?}");
    assert_eq!((&lines[0]["owner"]["label"], &lines[0]["client"]), (&"night shift".into(), &"onelock".into()), "{url}");
    assert!(listed.stderr.is_empty(), "{url}: {listed:?}");
    assert!(text(&output(url, &["list"]).stdout).contains("night shift"), "{url}");
    let sheet = text(&output(url, &["inspect", "job:a"]).stdout);
    assert!(sheet.contains("label       night shift\n"), "{url}: {sheet}");
    let one: Value = serde_json::from_slice(&output(url, &["inspect", "job:a", "--json"]).stdout).unwrap();
    assert_eq!((&one["owner"], &one["fencing_token"]), (&lines[0]["owner"], &lines[0]["fencing_token"]), "{url}");
    assert_eq!(status(url, &["wait", "job:a", "--timeout", "0"]), 75, "{url}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.prom");
    assert_eq!(status(url, &["export", "job:*", "--once", "--file", file.to_str().unwrap()]), 0, "{url}");
    let told = std::fs::read_to_string(file).unwrap();
    assert!(told.contains("onelock_lock_held{name=\"job:a\""), "{url}: {told}");

    let taken = output(url, &["force-release", "job:a", "--yes"]);
    assert_eq!(taken.status.code(), Some(0), "{url}: {taken:?}");
    assert_eq!(status(url, &["inspect", "job:a"]), 1, "{url}");
    assert_eq!(text(&output(url, &["list", "job:*", "--json"]).stdout), "", "{url}");
    assert_eq!(holder.code(), 80, "{url}");
}

/// Locks can be taken there, as far as the doctor sees, and these steps were among those that passed.
fn looked_at_by_the_doctor(url: &str, steps: &[&str]) {
    let output = output(url, &["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{url}: {report:#}");
    let findings = report["findings"].as_array().unwrap();
    for step in steps {
        assert!(findings.iter().any(|it| it["step"] == *step && it["severity"] == "passed"), "{step}: {report:#}");
    }
}

#[test]
fn in_a_cluster() {
    let cluster = Cluster::patient(Flavor::Valkey91);
    looked_at_and_taken_away(&cluster.url());
    looked_at_by_the_doctor(&cluster.url(), &["tcp", "slots", "notify", "permission"]);
}

#[test]
fn among_sentinels() {
    let group = Group::start(Flavor::Valkey91);
    looked_at_and_taken_away(&group.url());
    looked_at_by_the_doctor(&group.url(), &["tcp", "sentinel", "permission"]);
}

#[test]
fn in_files() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    looked_at_and_taken_away(&url);
    looked_at_by_the_doctor(&url, &["permission"]);
}

#[test]
fn in_postgresql() {
    let server = Postgres::start();
    let url = server.url("");
    looked_at_and_taken_away(&url);
    looked_at_by_the_doctor(&url, &["name", "tcp", "user", "database", "clock", "round trip", "permission"]);
    let failed = |url: &str, step: &str, status: i32, detail: &str, todo: &str| {
        let output = output(url, &["doctor", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(status), "{report:#}");
        let last = report["findings"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&last["step"], &last["severity"]), (&step.into(), &"failed".into()), "{report:#}");
        let has = |what: &str, part: &str| last[what].as_str().unwrap().contains(part);
        assert!(has("detail", detail) && has("todo", todo), "{report:#}");
    };
    failed("postgres://u@nowhere.invalid/app", "name", 69, "nowhere.invalid", "the resolver of this machine");
    failed(&server.url("sslmode=require"), "tls", 69, "does not speak TLS", "ssl = on");
    let (front, _) = url.rsplit_once('/').unwrap();
    failed(&format!("{front}/nothing"), "database", 64, "nothing", "create the database");
    server.kill();
    failed(&url, "tcp", 69, "nothing listens there", "check that the server runs");
}

#[test]
fn in_memcached() {
    let server = Memcached::start();
    let url = server.url();
    looked_at_by_the_doctor(&url, &["tcp", "round trip"]);
    let report: Value = serde_json::from_slice(&output(&url, &["doctor", "--json"]).stdout).unwrap();
    let fencing = report["findings"].as_array().unwrap().iter().find(|it| it["step"] == "fencing").unwrap().clone();
    assert_eq!(fencing["severity"], "remark", "{report:#}");
    assert!(fencing["detail"].as_str().unwrap().contains("no fencing tokens"), "{report:#}");
    // what it cannot do is said, and not that it is away
    let exported = output(&url, &["export", "job:*", "--once", "--file", "/dev/null"]);
    assert_eq!(exported.status.code(), Some(64), "{exported:?}");
    assert!(text(&exported.stderr).contains("list"), "{exported:?}");
}

#[test]
fn on_a_majority() {
    let servers = Several::start(Flavor::Valkey91, 3);
    let url = servers.url("quarantine_ms=0");
    looked_at_and_taken_away(&url);
    looked_at_by_the_doctor(&url, &["tcp", "quorum", "clocks"]);

    // one of three, of which two answer, says whether it is held
    servers.servers[0].cmd(&["SET", "single", "token", "PX", "600000"]);
    servers.servers[2].kill();
    let inspected = output(&url, &["inspect", "single"]);
    assert_eq!(inspected.status.code(), Some(69), "{inspected:?}");
    assert!(text(&inspected.stderr).contains("held on 1 of the 2 nodes that answered"), "{inspected:?}");
    let listed = output(&url, &["list"]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let away = servers.servers[2].port().to_string();
    let said = text(&listed.stderr);
    assert!(said.contains(&away) && said.contains("left out"), "{said}");
}

#[test]
fn of_this_process_alone() {
    let looked = output("memory://", &["doctor"]);
    assert_eq!(looked.status.code(), Some(64), "{looked:?}");
    assert!(text(&looked.stderr).contains("nobody would be excluded"), "{looked:?}");
}
