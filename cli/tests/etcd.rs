//! The command on etcd: what needs no other kind of lock works there as on Redis.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Running, SOON, onelock, text};
use onelock_tests::etcd::Etcd;
use onelock_tests::wait::wait_until;
use serde_json::Value;

static SERVER: LazyLock<Etcd> = LazyLock::new(Etcd::start);
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A namespace of its own.
struct Namespace(String);

impl Namespace {
    fn new() -> Namespace {
        Namespace(SERVER.url(&format!("/test-{}/", NUMBER.fetch_add(1, Ordering::Relaxed))))
    }

    fn onelock(&self, arguments: &[&str]) -> Command {
        let mut command = onelock(arguments);
        command.env("ONELOCK_URL", &self.0);
        command
    }

    fn start(&self, arguments: &[&str]) -> Running {
        Running::of(self.onelock(arguments))
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.onelock(arguments).stdin(Stdio::null()).output().unwrap()
    }

    fn status(&self, arguments: &[&str]) -> i32 {
        let output = self.output(arguments);
        output.status.code().unwrap_or_else(|| panic!("{output:?}"))
    }

    fn inspect(&self, name: &str) -> Value {
        serde_json::from_slice(&self.output(&["inspect", name, "--json"]).stdout).unwrap()
    }

    fn wait_held(&self, name: &str) {
        wait_until(SOON, "somebody holds it", || !self.inspect(name).is_null());
    }
}

#[test]
fn commands_run_one_after_the_other_and_who_waits_is_told() {
    let place = Namespace::new();
    assert_eq!(place.status(&["run", "x", "--", "sh", "-c", "exit 7"]), 7);
    let mut holder = place.start(&["run", "x", "--label", "one", "-c", "cat; echo $ONELOCK_FENCING_TOKEN"]);
    place.wait_held("x");
    assert_eq!(place.status(&["run", "x", "--wait", "0", "--", "true"]), 75);
    let waiting = place.start(&["run", "x", "--label", "two", "-c", "echo $ONELOCK_FENCING_TOKEN"]);
    wait_until(SOON, "one waits", || place.inspect("x")["waiting"] == 1);
    let seen = place.inspect("x");
    assert_eq!(
        (&seen["kind"], &seen["owner"]["label"], &seen["owner"]["pid"]),
        (&"lock".into(), &"one".into(), &holder.id().into())
    );
    assert_eq!(
        (&seen["waiters"][0]["client"]["label"], &seen["waiters"][0]["client"]["pid"]),
        (&"two".into(), &waiting.id().into())
    );
    assert!(seen["ttl_left_ms"].as_u64().unwrap() > 0);
    let sheet = text(&place.output(&["inspect", "x"]).stdout);
    assert!(sheet.contains("label       one\n") && sheet.contains("waiter      two "), "{sheet}");

    drop(holder.child().stdin.take());
    let token = |output: Output| text(&output.stdout).trim().parse::<u64>().unwrap();
    let first = token(holder.output());
    assert_eq!(seen["fencing_token"], first);
    assert!(token(waiting.output()) > first);
    let nobody = place.output(&["inspect", "x"]);
    assert_eq!((nobody.status.code(), text(&nobody.stdout).as_str()), (Some(1), "nobody holds it\n"));
}

#[test]
fn locks_are_listed_waited_for_and_taken_by_force() {
    let place = Namespace::new();
    assert_eq!(place.status(&["wait", "x"]), 0);
    assert_eq!(place.status(&["force-release", "x", "--yes"]), 1, "nobody holds it");
    let mut holders =
        ["x", "job/1"].map(|name| place.start(&["run", name, "--label", "me", "--ttl", "3s", "--", "cat"]));
    let [x, job] = &mut holders;
    for name in ["x", "job/1"] {
        place.wait_held(name);
    }
    let table = text(&place.output(&["list"]).stdout);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows.len() == 3 && rows[1].starts_with("job/1 ") && rows[2].starts_with("x "), "{table}");
    let only = text(&place.output(&["list", "job/*", "--json"]).stdout);
    let only: Vec<Value> = only.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((only.len(), &only[0]["name"], &only[0]["owner"]["label"]), (1, &"job/1".into(), &"me".into()));

    assert_eq!(place.status(&["wait", "x", "--timeout", "0"]), 75);
    assert_eq!(place.status(&["wait", "x", "--timeout", "300ms"]), 79);
    let waiting = place.start(&["wait", "x"]);
    drop(x.child().stdin.take());
    assert_eq!((waiting.code(), x.child().wait().unwrap().code()), (0, Some(0)));

    let unsure = place.output(&["force-release", "job/1"]);
    assert!(unsure.status.code() == Some(64) && text(&unsure.stderr).contains("--yes"), "{unsure:?}");
    assert_eq!(place.status(&["force-release", "job/1", "--yes"]), 0);
    assert!(place.inspect("job/1").is_null());
    // its renewal finds it, long before the command ends
    assert_eq!(job.child().wait().unwrap().code(), Some(80));
}

#[test]
fn the_command_is_ended_when_the_server_is_gone_for_too_long() {
    let server = Etcd::start();
    let mut command = onelock(&["run", "x", "--ttl", "2s", "--", "sleep", "600"]);
    command.env("ONELOCK_URL", server.url(""));
    let running = Running::of(command);
    wait_until(SOON, "somebody holds it", || !server.keys("x/").is_empty());
    server.kill();
    let output = running.output();
    assert_eq!(output.status.code(), Some(80), "{output:?}");
}

#[test]
fn what_etcd_has_not_is_refused_with_its_name() {
    let place = Namespace::new();
    for options in [&["--fair"][..], &["--shared"], &["--exclusive"], &["--limit", "2"], &["--min-hold", "1s"]] {
        let output = place.output(&[&["run", "x"], options, &["--", "true"]].concat());
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(64) && said.contains("etcd"), "{options:?}: {output:?}");
    }
}

/// What the doctor says, and its status.
fn doctor(url: &str) -> (Option<i32>, Value) {
    let output = onelock(&["doctor", "--json", url]).output().unwrap();
    let said = text(&output.stdout);
    (output.status.code(), serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

fn expect(report: &Value, step: &str, severity: &str, detail: &str) {
    let fits = |it: &Value| {
        it["step"] == step && it["severity"] == severity && it["detail"].as_str().unwrap().contains(detail)
    };
    assert!(report["findings"].as_array().unwrap().iter().any(fits), "{step} {severity} {detail:?}: {report:#}");
}

#[test]
fn the_doctor_says_at_which_step_it_fails() {
    let (status, report) = doctor(&Namespace::new().0);
    for (step, detail) in
        [("tcp", "the server answers"), ("user", "none is named"), ("permission", "taken and released")]
    {
        expect(&report, step, "passed", detail);
    }
    assert!(status == Some(0) || report["findings"].to_string().contains("3.5.13 or newer"), "{report:#}");

    let server = Etcd::start();
    for words in ["user add root:top", "user grant-role root root", "user add app:secret", "auth enable"] {
        server.ctl(&words.split(' ').collect::<Vec<_>>());
    }
    let at = |user: &str| format!("etcd://{user}127.0.0.1:{}/", server.port());
    expect(&doctor(&at("root:top@")).1, "permission", "passed", "taken and released");
    for (user, step) in [("root:hunter2@", "user"), ("", "user"), ("app:secret@", "permission")] {
        let (status, report) = doctor(&at(user));
        assert!(status.unwrap() >= 64, "{user}: {report:#}");
        expect(&report, step, "failed", "");
        assert!(!report.to_string().contains("hunter2"), "{report:#}");
    }
    server.kill();
    let (status, report) = doctor(&at(""));
    expect(&report, "tcp", "failed", "nothing listens there");
    assert_eq!(status, Some(69), "{report:#}");
}
