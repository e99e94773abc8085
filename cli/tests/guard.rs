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
use common::{Place, Running, SOON, is_alive, numbers, signal, state};
use onelock_tests::wait::wait_until;

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
    wait_until(SOON, "the guard knows that the command has ended", || !is_there(command) && state(guard) == 'S');
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

#[test]
fn who_signals_while_the_rest_is_waited_for_gives_it_no_more_time() {
    let place = Place::new();
    let deaf = "trap \"\" TERM; echo ready; while :; do sleep 0.02; done";
    let line = format!("setsid sh -c '{deaf}' & echo $! $$ > {}; wait; wait", place.path("pids"));
    let mut running = place.start(&["run", "x", "--ttl", "600ms", "--grace", "1h", "-c", &line]);
    let pids = numbers(&place.wait_written("pids"));
    let mut ready = [0; 6];
    running.child().stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    place.server.cmd(&["DEL", "x"]);
    wait_until(SOON, "the command has ended", || !is_alive(pids[1]));
    assert!(is_alive(pids[0]));
    // as often as it takes: it may have been passed on to the command, which has not ended then
    wait_until(SOON, "all have ended", || {
        running.signal("TERM");
        running.child().try_wait().unwrap().is_some()
    });
    assert_eq!(running.code(), 80);
    assert!(!is_alive(pids[0]));
}

#[test]
fn without_its_guard_nothing_of_the_command_is_left_when_the_lock_is_free() {
    let place = Place::new();
    let away = "setsid sh -c \"trap '' TERM; sleep 1000 & echo \\$\\$ \\$! >> $FILE; wait\" &";
    let ready = "until [ $(cat $FILE | wc -w) = 2 ]; do sleep 0.02; done; echo $PPID $$ >> $FILE; touch $FILE.done";
    for how in ["alone", "rest"] {
        // what ran before in the same process has nothing to do with it
        let script = "sleep 1000 < /dev/null > /dev/null 2>&1 & echo $! > $FILE.before; \
             exec \"$ONELOCK\" run x --ttl 900ms --grace 1h -c \"$LINE\"";
        let line = format!("touch $FILE; {away} {ready}; while :; do sleep 0.02; done");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]).env("ONELOCK", env!("CARGO_BIN_EXE_onelock")).env("LINE", line);
        command.env("FILE", place.path(how)).env("ONELOCK_URL", place.server.url()).env_remove("ONELOCK_OWNER");
        let running = Running::of(command);
        wait_until(SOON, "it has started", || place.file(&format!("{how}.done")).exists());
        let pids = numbers(&place.wait_written(how));
        let [leader, deaf, guard, command] = pids[..] else { panic!("{pids:?}") };
        let before = numbers(&place.wait_written(&format!("{how}.before")))[0];
        if how == "rest" {
            place.server.cmd(&["DEL", "x"]);
            wait_until(SOON, "the command has ended", || !is_alive(command));
        }
        assert!(is_alive(leader));
        signal(guard, "KILL");
        let output = running.output();
        assert_eq!(output.status.code(), Some(if how == "rest" { 80 } else { 70 }), "{output:?}");
        assert!([leader, deaf, command].into_iter().all(|process| !is_alive(process)), "{how} {pids:?}");
        assert!(is_alive(before));
        signal(before, "KILL");
    }
}

#[test]
fn without_its_guard_the_terminal_is_as_it_was() {
    let place = Place::new();
    let line = format!("stty raw -echo; echo $PPID > {}; sleep 1000; true", place.path("guard"));
    let script = "$onelock run x -c \"$LINE\"; echo status:$?; sleep 1000";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).env("ONELOCK_URL", place.server.url()).env_remove("ONELOCK_OWNER");
    command.env("onelock", env!("CARGO_BIN_EXE_onelock")).env("LINE", line);
    let screen = Screen::run(&place, command, true);
    let guard = numbers(&place.wait_written("guard"))[0];
    assert!(!screen.is_as_before());
    signal(guard, "KILL");
    screen.wait_shown("status:70");
    assert!(screen.is_as_before());
}
