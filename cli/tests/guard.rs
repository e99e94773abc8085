//! The process between `onelock` and the command, and what must not keep it, or `onelock`, from ending the command.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use common::screen::Screen;
use common::{Place, SOON, is_alive, signal};
use onelock_tests::wait::wait_until;

fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// Whether a process waits for something to happen.
fn sleeps(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).unwrap().contains(") S ")
}

#[test]
fn a_command_ends_after_a_loss_although_nobody_reads_what_is_said() {
    let place = Place::new();
    let (mut full, mut ours) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[b'.'; 1024]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    // one that listens, and one that has to be killed
    for (how, trap) in [("polite", "exit"), ("deaf", "")] {
        let line = format!("trap '{trap}' TERM; echo $$ > {}; while :; do sleep 0.02; done", place.path(how));
        let mut command = place.onelock(&["run", "x", "--ttl", "600ms", "--grace", "300ms", "-c", &line]);
        command.stdin(Stdio::null()).stderr(Stdio::from(OwnedFd::from(full.try_clone().unwrap())));
        let mut running = command.spawn().unwrap();
        let pid = numbers(&place.wait_written(how))[0];
        place.server.cmd(&["DEL", "x"]);
        wait_until(SOON, "the command has ended", || !is_alive(pid));
        // it was said, and that is waited for
        let mut told = String::new();
        while !told.contains("the lock was lost") {
            let mut some = [0; 4096];
            let count = ours.read(&mut some).unwrap();
            told.push_str(&String::from_utf8_lossy(&some[..count]));
        }
        assert_eq!(running.wait().unwrap().code(), Some(80), "{how}");
        full.set_nonblocking(true).unwrap();
        while full.write(&[b'.'; 1024]).is_ok() {}
        full.set_nonblocking(false).unwrap();
    }
}

#[test]
fn a_command_that_stops_when_it_is_to_end_is_killed() {
    let place = Place::new();
    // again and again, since it is told to go on once
    let line = "trap 'while :; do kill -STOP $$; done' TERM; echo ready; while :; do sleep 0.02; done";
    let screen = Screen::start(&place, &["run", "x", "--max-hold", "500ms", "--grace", "500ms", "-c", line], true);
    screen.wait_shown("ready");
    screen.wait_shown("--max-hold");
    place.wait_free("x");
    assert_eq!(screen.code(), Some(80));
}

#[test]
fn a_guard_that_is_stopped_goes_on() {
    let place = Place::new();
    // the command has to end
    let line = format!("trap '' TERM; echo $PPID $$ > {}; while :; do sleep 0.02; done", place.path("lost"));
    let running = place.start(&["run", "x", "--ttl", "600ms", "--grace", "300ms", "-c", &line]);
    let pids = numbers(&place.wait_written("lost"));
    signal(pids[0], "STOP");
    place.server.cmd(&["DEL", "x"]);
    wait_until(SOON, "the command has ended", || !is_alive(pids[1]));
    assert_eq!(running.code(), 80);
    // it ends by itself
    let line = format!("echo $PPID $$ > {}; read go; exit 3", place.path("ended"));
    let mut running = place.start(&["run", "x", "-c", &line]);
    let pids = numbers(&place.wait_written("ended"));
    signal(pids[0], "STOP");
    running.child().stdin.take().unwrap().write_all(b"\n").unwrap();
    wait_until(SOON, "an end", || running.child().try_wait().unwrap().is_some());
    assert_eq!(running.code(), 3);
    assert!(!is_alive(pids[0]));
}

#[test]
fn what_was_left_on_purpose_goes_on_when_onelock_is_killed_afterwards() {
    let place = Place::new();
    let daemon = "setsid sleep 1000 < /dev/null > /dev/null 2>&1 &";
    let line = format!("{daemon} echo $! $PPID $$ > {}; read go", place.path("pids"));
    let mut running = place.start(&["run", "x", "-c", &line]);
    let pids = numbers(&place.wait_written("pids"));
    let [daemon, guard, command] = pids[..] else { panic!("{pids:?}") };
    running.signal("STOP");
    running.child().stdin.take().unwrap().write_all(b"\n").unwrap();
    let is_there = |process: u32| Path::new("/proc").join(process.to_string()).exists();
    wait_until(SOON, "the guard knows that the command has ended", || !is_there(command) && sleeps(guard));
    running.child().kill().unwrap();
    wait_until(SOON, "the guard has ended", || !is_alive(guard));
    assert!(is_alive(daemon));
    signal(daemon, "KILL");
    drop(running.output());
}

#[test]
fn who_kills_onelock_by_its_arguments_does_not_kill_the_guard() {
    let place = Place::new();
    let line = format!("echo $PPID > {}; read go", place.path("guard"));
    let mut running = place.start(&["run", "x", "-c", &line]);
    let guard = numbers(&place.wait_written("guard"))[0];
    let arguments = || fs::read_to_string(format!("/proc/{guard}/cmdline")).unwrap();
    wait_until(SOON, "it has a name of its own", || arguments().trim_end_matches('\0') == "lock-guard");
    drop(running.child().stdin.take());
    assert_eq!(running.code(), 1);
}
