//! Forked children: what they inherit neither keeps a lock nor frees it. What the processes see is checked by
//! `tests/harness/bin/forker.rs`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use onelock_tests::face::Face;
use onelock_tests::servers::spawn;
use onelock_tests::stage::SOON;
use onelock_tests::wait::wait_until;

use crate::place::{Place, is_free};

fn start(what: &str, place: &Place) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onelock-forker"));
    command.args([what, &place.url()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = spawn(command).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

fn looks(lines: &mut impl BufRead) {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "look\n", "it has ended");
}

fn fork(what: &str) {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let (mut child, mut lines) = start(what, &place);
    for _ in 0..2 {
        looks(&mut lines);
        assert!(client.lock("a").try_acquire().unwrap().is_none(), "the parent has it");
        child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}; see its messages above");
    assert!(is_free(&client, "a"));
}

#[test]
fn a_forked_child_leaves_the_locks_of_its_parent_alone_blocking() {
    fork("blocking");
}

#[test]
fn a_forked_child_leaves_the_locks_of_its_parent_alone_async() {
    fork("async");
}

#[test]
fn forks_in_the_middle_of_everything() {
    let place = Place::new();
    let (mut child, _lines) = start("storm", &place);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_child_that_outlives_its_parent_does_not_keep_the_lock() {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    // the child lives until nobody has the other end of its input
    let (mut parent, mut lines) = start("outlive", &place);
    let input = parent.stdin.take();
    looks(&mut lines);
    assert!(client.lock("a").try_acquire().unwrap().is_none());
    parent.kill().unwrap();
    parent.wait().unwrap();
    let lease = client.lock("a").acquire_within(SOON).unwrap();
    assert!(lease.is_held());
    drop(input);
    // the child has ended well, and says so
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "the child ends\n");
    lease.released();
    wait_until(SOON, "the lock", || is_free(&client, "a"));
}
