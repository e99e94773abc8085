//! The limits of the machine: no more threads, no more file descriptors. `tests/harness/bin/limited.rs` looks at what a process in
//! that state is told, and that all works again later.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails should stop at once, with its message")]

use std::process::Command;

use onelock_tests::servers::Server;

fn ends_well(what: &str, url: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_onelock-limited")).args([what, url]).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said == "well\n", "{what} at {url}: {}\n{said}{errors}", output.status);
}

#[test]
fn without_threads_the_error_is_the_machines_and_passes() {
    let server = Server::valkey();
    ends_well("threads", &server.url());
}

#[test]
fn without_threads_no_name_can_be_looked_up() {
    let server = Server::valkey();
    ends_well("threads", &server.url().replace("127.0.0.1", "localhost"));
}

#[test]
fn without_threads_a_redlock_is_refused_too() {
    let servers = [Server::valkey(), Server::valkey(), Server::valkey()];
    let hosts = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect::<Vec<_>>().join(",");
    ends_well("threads", &format!("redlock://{hosts}?quarantine_ms=0"));
}

#[test]
fn without_descriptors_the_error_is_the_machines_and_passes() {
    let server = Server::valkey();
    ends_well("descriptors", &server.url());
}

#[test]
fn many_threads_that_wait_for_silent_servers_of_a_redlock_need_few_others() {
    let servers = [Server::valkey(), Server::valkey(), Server::valkey()];
    let hosts = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect::<Vec<_>>().join(",");
    servers.iter().for_each(Server::stop);
    ends_well("many", &format!("redlock://{hosts}?quarantine_ms=0"));
}
