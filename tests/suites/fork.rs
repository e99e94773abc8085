//! Forked children, and processes that end without closing anything. What the processes see is checked by
//! `tests/harness/bin/forker.rs`; here, what the server sees.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use onelock_tests::scripts;
use onelock_tests::servers::spawn;
use onelock_tests::stage::{SOON, Stage};
use redis::Value;

struct Forker {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Forker {
    fn start(what: &str, url: &str) -> Forker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onelock-forker"));
        command.args([what, url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Forker { child, lines }
    }

    /// Waits until it has something to look at.
    fn looks(&mut self) {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line, "look\n", "it ended: {:?}", self.child.try_wait());
    }

    fn goes_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }

    fn ends_well(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}; see its messages above");
    }
}

impl Drop for Forker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The fields of the hash under this name that are owners.
fn owner(stage: &Stage, name: &str) -> String {
    let Value::Array(fields) = stage.server.cmd(&["HKEYS", name]) else { panic!("no hash") };
    let fields: Vec<String> = fields.iter().map(onelock_tests::resp::text).collect();
    fields.into_iter().find(|field| !field.starts_with("onelock_")).unwrap()
}

fn fork(what: &str) {
    let stage = Stage::valkey();
    let mut forker = Forker::start(what, &stage.proxy.url());
    forker.looks();
    // the child has looked at what it inherited, dropped it, and acquired for itself
    let releases = || stage.requests(&scripts::release().with_arg("a")).len();
    assert!(stage.exists("a") && stage.exists("b") && stage.exists("r2"));
    assert_eq!(releases(), 0, "dropping what was inherited sends nothing");
    if what == "blocking" {
        let (parent, child) = (owner(&stage, "r"), owner(&stage, "r2"));
        assert_ne!(parent.split(':').next(), child.split(':').next(), "a new client");
    }
    let parents = |name: &str| -> Vec<usize> {
        let mut connections: Vec<_> =
            stage.requests(&onelock_tests::proxy::Match::any().with_arg(name)).iter().map(|it| it.connection).collect();
        connections.sort_unstable();
        connections.dedup();
        connections
    };
    let (renewing, of_child) = (parents("a"), parents("b"));
    // the child asked for "a" once, over its own connection
    let only_once = of_child.iter().all(|connection| {
        let of_connection = scripts::renew().on_connection(*connection);
        stage.requests(&of_connection).is_empty()
    });
    assert!(only_once, "{renewing:?} {of_child:?}");
    let renewals = stage.requests(&scripts::renew()).len();
    stage.proxy.wait_requests(&scripts::renew(), renewals + 5);
    forker.goes_on();
    forker.looks();
    // the child is gone, the parent goes on
    assert!(stage.exists("a") && !stage.exists("b") && !stage.exists("r2"));
    assert_eq!(releases(), 0);
    forker.goes_on();
    forker.ends_well();
    assert!(!stage.exists("a") && !stage.exists("r"));
}

#[test]
fn a_forked_child_of_a_blocking_client_holds_nothing_and_is_a_new_client() {
    fork("blocking");
}

#[test]
fn a_forked_child_of_an_async_client_holds_nothing_and_is_a_new_client() {
    fork("async");
}

#[test]
fn forks_in_the_middle_of_everything_neither_hang_nor_disturb() {
    let stage = Stage::valkey();
    Forker::start("storm", &stage.server.url()).ends_well();
    assert!(!stage.exists("a"));
}

#[test]
fn a_forked_child_leaves_its_parents_metrics_alone_and_may_have_its_own() {
    let stage = Stage::valkey();
    Forker::start("metrics", &stage.server.url()).ends_well();
    assert!(!stage.exists("a") && !stage.exists("b"));
}

#[test]
fn a_process_that_ends_without_closing_ends_soon_and_gives_back_first() {
    let stage = Stage::valkey();
    let mut forker = Forker::start("exit", &stage.server.url());
    forker.looks();
    assert!(stage.exists("a"));
    forker.goes_on();
    let start = Instant::now();
    forker.ends_well();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert!(!stage.exists("a"));
}

#[test]
fn a_guard_that_goes_at_the_end_of_main_is_released() {
    let stage = Stage::valkey();
    for _ in 0..20 {
        Forker::start("end", &stage.server.url()).ends_well();
        assert!(!stage.exists("a"));
    }
}
