//! The demo as a person runs it: against a real server, with its exit code and what it prints.

#![allow(clippy::unwrap_used, reason = "a fixture that fails should stop the test at once")]

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use onelock_tests::servers::{Server, signal};
use onelock_tests::wait::wait_for;

fn demo(url: &str, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_demo"))
        .args(arguments)
        .env(onelock::URL_VARIABLE, url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// No lock is left; the fencing counters stay, and end by themselves.
fn assert_no_locks(server: &Server) {
    for key in onelock_tests::resp::words(&server.cmd(&["KEYS", "*"])) {
        assert!(key.starts_with("onelock_fence:"), "{key}");
        assert!(server.int(&["PTTL", &key]) > 0, "{key} has no end");
    }
}

#[test]
fn shows_a_kill_and_a_stop_and_leaves_no_lock_behind() {
    let server = Server::valkey();
    let output = demo(&server.url(), &["--seconds", "1"]).wait_with_output().unwrap();
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    for part in [
        "kill -9    worker",
        "freeze     worker",
        "is_held() says false; it writes all the same, and is refused",
        "0 of",
        "Every check passed.",
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert!(!shown.contains('\x1b') && !shown.contains('\r'), "no terminal, so plain text:\n{shown}");
    assert_no_locks(&server);
}

#[test]
fn notices_workers_that_lock_different_names() {
    let server = Server::valkey();
    let output = demo(&server.url(), &["--seconds", "1", "--separate-locks"]).wait_with_output().unwrap();
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    let overlaps = shown.lines().find(|line| line.contains("two holders at once")).unwrap();
    assert!(overlaps.ends_with("WRONG"), "{shown}");
    assert_no_locks(&server);
}

#[test]
fn ends_in_good_order_at_ctrl_c() {
    let server = Server::valkey();
    let child = demo(&server.url(), &["--seconds", "600"]);
    // the counter of the lock's fencing tokens is there as soon as somebody has held it
    wait_for(Duration::from_secs(60), "the play to begin", || (server.int(&["DBSIZE"]) > 0).then_some(()));
    signal(child.id(), libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(130), "{shown}");
    assert!(shown.contains("two holders at once"), "what was found is shown all the same:\n{shown}");
    assert_no_locks(&server);
}

#[test]
fn says_what_is_missing_without_a_server() {
    for url in ["", "memory://", "redis://127.0.0.1:1"] {
        let output = demo(url, &[]).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{url}");
        assert!(text(&output).starts_with("demo: "), "{}", text(&output));
    }
}
