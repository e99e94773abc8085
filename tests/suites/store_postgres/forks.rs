//! Forked children: what they inherit sends nothing. What the processes see is checked by `tests/harness/bin/forker.rs`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use onelock_tests::face::Face;
use onelock_tests::servers::spawn;

use crate::place::{Table, is_free};

fn fork(what: &str) {
    let table = Table::new();
    let client = table.client(Face::Blocking);
    let mut command = Command::new(env!("CARGO_BIN_EXE_onelock-forker"));
    command.args([what, &table.url()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = spawn(command).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "look\n", "it has ended");
        assert!(client.lock("a").try_acquire().unwrap().is_none(), "the parent has it");
        child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}; see its messages above");
    assert!(is_free(&client, "a"));
}

#[test]
fn a_forked_child_leaves_the_connections_of_its_parent_alone_blocking() {
    fork("blocking");
}

#[test]
fn a_forked_child_leaves_the_connections_of_its_parent_alone_async() {
    fork("async");
}

#[test]
fn forks_in_the_middle_of_everything() {
    let table = Table::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onelock-forker"));
    command.args(["storm", &table.url()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    assert!(spawn(command).unwrap().wait().unwrap().success());
}
