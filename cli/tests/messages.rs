//! What `run` says on standard error: who holds the lock that it waits for, what endangers it; and where else things are told.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Place, text};

#[test]
fn who_has_to_wait_is_told_for_whom() {
    let place = Place::new();
    let mut holder = place.start(&["run", "x", "--label", "night shift", "--", "cat"]);
    place.wait_held("x");
    let id = holder.id();
    for arguments in [&["run", "x", "--wait", "0", "--", "true"][..], &["run", "x", "--wait", "50ms", "--", "true"]] {
        let said = text(&place.output(arguments).stderr);
        assert!(
            said.starts_with("onelock: ") && said.contains(&format!("held by night shift {id}@")) && said.contains('x'),
            "{said}"
        );
    }
    let mut command = place.onelock(&["run", "-v", "x", "--", "true"]);
    let mut waiting = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.starts_with(&format!("onelock: x: waiting; held by night shift {id}@")), "{first}");
    drop(holder.child().stdin.take());
    assert_eq!(holder.code(), 0);
    assert!(lines.next().unwrap().starts_with("onelock: x: acquired"));
    assert!(waiting.wait().unwrap().success());
    // where nobody holds it any more
    assert_eq!(place.status(&["run", "y", "--min-hold", "10m", "--", "true"]), 0);
    let said = text(&place.output(&["run", "y", "--wait", "0", "--", "true"]).stderr);
    assert!(said.contains("it was released, and stays taken for the rest of its --min-hold"), "{said}");
}

#[test]
fn a_server_that_is_away_is_waited_for_with_words_as_without() {
    let place = Place::new();
    place.server.kill();
    let mut command = place.onelock(&["run", "-v", "x", "--wait", "60s", "--", "true"]);
    let mut waiting = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.starts_with("onelock: x: waiting; ") && first.contains("refused"), "{first}");
    place.server.restart();
    assert!(lines.any(|line| line.starts_with("onelock: x: acquired")));
    assert!(waiting.wait().unwrap().success());
}

#[test]
fn what_endangers_the_lock_is_said_to_whom_it_is_worth_words() {
    let place = Place::new();
    place.server.config_set("maxmemory-policy", "allkeys-lru");
    let said = text(&place.output(&["run", "-v", "x", "--", "true"]).stderr);
    assert!(said.contains("x: maxmemory-policy is allkeys-lru"), "{said}");
    assert_eq!(text(&place.output(&["run", "x", "--", "true"]).stderr), "");
}

#[test]
fn the_pages_have_statuses_variables_and_each_other() {
    let place = Place::new();
    assert_eq!(place.status(&["man", &place.path("man1")]), 0);
    let page = |name: &str| std::fs::read_to_string(place.file(&format!("man1/{name}.1"))).unwrap();
    let run = page("onelock-run");
    for part in
        ["\"EXIT STATUS\"", "\n  75 ", "ONELOCK_OWNER", "sudo", "\"SEE ALSO\"", "onelock(1)", "flock(1)", "500ms, 30s"]
    {
        assert!(run.contains(part), "{part}: {run}");
    }
    let whole = page("onelock");
    assert!(whole.contains("onelock\\-doctor(1)") && !whole.contains("onelock\\-help(1)"), "{whole}");
    for name in ["list", "top", "wait", "bench", "export"] {
        let help = text(&place.output(&[name, "--help"]).stdout);
        assert!(help.contains("a number alone is seconds") && help.contains("etcd://"), "{name}: {help}");
    }
}

#[test]
fn who_enters_again_cannot_keep_the_lock_for_longer() {
    let place = Place::new();
    let inner = format!("{} run x --min-hold 10s -- echo in", env!("CARGO_BIN_EXE_onelock"));
    let output = place.output(&["run", "x", "--owner", "-c", &inner]);
    assert!(output.status.code() == Some(64) && output.stdout.is_empty(), "{output:?}");
    assert!(text(&output.stderr).contains("give --min-hold to that one"), "{output:?}");
}

#[test]
fn who_waits_for_a_lock_of_redisson_in_a_queue_of_its_own_is_not_said_to_be_nobody() {
    let place = Place::new();
    place.server.cmd(&["HSET", "java", "c7f1e2d3-0000-4000-8000-0123456789ab:47", "1"]);
    place.server.cmd(&["PEXPIRE", "java", "60000"]);
    place.server.cmd(&["RPUSH", "redisson_lock_queue:{java}", "c7f1e2d3-0000-4000-8000-0123456789ab:48"]);
    let told = text(&place.output(&["list", "java", "--json"]).stdout);
    let lock: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&lock["client"], &lock["waiting"]), (&"redisson".into(), &serde_json::Value::Null), "{told}");
    let table = text(&place.output(&["list", "java"]).stdout);
    assert!(table.trim_end().ends_with(" -"), "{table}");
    let sheet = text(&place.output(&["inspect", "java"]).stdout);
    assert!(!sheet.contains("waiting "), "{sheet}");
}
