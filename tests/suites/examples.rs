//! The examples of the core, each run as a person runs it: against a real server, with its output and its exit code.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use onelock_tests::servers::{Flavor, Server};
use onelock_tests::topology::Several;

/// Runs an example with the address as its argument, or else in the environment.
fn run(program: &str, argument: Option<&str>, variable: Option<&str>) -> Output {
    let mut command = Command::new(program);
    command.args(argument).env_remove(onelock::URL_VARIABLE);
    if let Some(url) = variable {
        command.env(onelock::URL_VARIABLE, url);
    }
    command.output().unwrap()
}

/// Runs an example both ways, and expects `parts` in its output, in this order.
fn expect(program: &str, parts: &[&str]) {
    let server = Server::valkey();
    let url = server.url();
    for (argument, variable) in [(Some(url.as_str()), None), (None, Some(url.as_str()))] {
        let began = Instant::now();
        let output = run(program, argument, variable);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{shown}{complaint}");
        assert!(began.elapsed() < Duration::from_secs(120), "an example ends by itself in seconds");
        let mut rest = shown.as_str();
        for part in parts {
            let place = rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing in\n{shown}{complaint}"));
            rest = &rest[place + part.len()..];
        }
        assert_eq!(server.cmd(&["KEYS", "example:*"]), redis::Value::Array(Vec::new()), "no lock is left behind");
    }
}

#[test]
fn acquire() {
    expect(
        env!("CARGO_BIN_EXE_example-acquire"),
        &["first:  has the lock, fencing token Some(", "first:  released", "second: has the lock, fencing token Some("],
    );
}

#[test]
fn try_acquire() {
    expect(
        env!("CARGO_BIN_EXE_example-try_acquire"),
        &["first:  got it", "second: somebody else", "third:  acquire", "Timeout", "released it", "second: got it"],
    );
}

#[test]
fn transfer() {
    expect(env!("CARGO_BIN_EXE_example-transfer"), &["30 transfers", "together 300"]);
}

#[test]
fn job_queue() {
    expect(env!("CARGO_BIN_EXE_example-job_queue"), &["30 jobs, each taken once"]);
}

#[test]
fn cache() {
    expect(env!("CARGO_BIN_EXE_example-cache"), &["20 readers, refreshed 1 time"]);
}

#[test]
fn downloads() {
    expect(env!("CARGO_BIN_EXE_example-downloads"), &["12 downloads, ", " at a time at most"]);
}

#[test]
fn only_one() {
    let server = Server::valkey();
    let output = run(env!("CARGO_BIN_EXE_example-only_one"), Some(&server.url()), None);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("three ticks, 3 runs"), "{shown}");
}

#[test]
fn renew() {
    expect(
        env!("CARGO_BIN_EXE_example-renew"),
        &[
            "after 2.0 s held: true",
            "after 1.25 s held: true",
            "after 2.25 s held: false",
            "release says already_expired",
        ],
    );
}

#[test]
fn lost_lease() {
    expect(
        env!("CARGO_BIN_EXE_example-lost_lease"),
        &[
            "stops its work: the server no longer knows it",
            "held: false",
            "its late write is refused: stale fencing token",
            "release says already_expired",
            "with:   ",
            "Lost",
        ],
    );
}

#[test]
fn metrics() {
    expect(
        env!("CARGO_BIN_EXE_example-metrics"),
        &[
            "one is held",
            "onelock.hold onelock.lock.kind=lock,service.peer.name=locks: 3 times, 0.",
            "onelock.held 1\n",
            "onelock.acquired 4\n",
            "onelock.busy 1\n",
        ],
    );
}

#[test]
fn redlock() {
    let several = Several::with(3, || Server::builder(Flavor::Valkey91).aof("everysec"));
    let url = several.url("");
    for down in 0..2 {
        if down == 1 {
            several.servers[2].kill();
        }
        let output = run(env!("CARGO_BIN_EXE_example-redlock"), Some(&url), None);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{shown}{complaint}");
        assert!(shown.contains("redlock on 3 of valkey") && shown.contains("turn 3: released"), "{shown}");
        assert_eq!(shown.contains("cannot be asked"), down == 1, "{shown}");
    }
    several.servers[1].kill();
    let output = run(env!("CARGO_BIN_EXE_example-redlock"), Some(&url), None);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn without_an_address_an_example_says_what_is_missing() {
    let output = run(env!("CARGO_BIN_EXE_example-acquire"), None, None);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(onelock::URL_VARIABLE));
}
