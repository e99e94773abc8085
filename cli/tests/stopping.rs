//! How a job stops that runs under a lock, all of it, and goes on.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(target_os = "linux")]

mod common;

use std::fs;

use common::screen::Screen;
use common::{Place, Running, SOON, is_alive, numbers, signal, state};
use onelock_tests::wait::wait_until;
use rustix::process::{Pid, WaitOptions, waitpid};

/// Counts, in a file, as long as it runs. It starts nothing: who has, and waits that it is another program, is not seen to stop.
fn counts(place: &Place, file: &str) -> String {
    let file = place.path(file);
    format!("echo $$ > {file}.pid; n=0; while :; do n=$((n + 1)); echo $n > {file}; done")
}

/// Somebody in a session of its own on a terminal whose `onelock` runs this line under the lock.
fn on_a_terminal(place: &Place, line: &str) -> Screen {
    Screen::start(place, &["run", "x", "-c", line], true)
}

#[test]
fn when_a_part_of_the_job_stops_the_rest_does_not_work_on() {
    let place = Place::new();
    let exe = env!("CARGO_BIN_EXE_onelock");
    let ready = "echo ready; read word; echo read:$word; exit 4";
    let beyond = |file: &str| format!("setsid sh -c '{}' & ", counts(&place, file));
    let nested = counts(&place, "below");
    for (how, file, line) in [
        // Ctrl-Z reaches the group of the command alone
        ("key", "beyond", format!("{}{ready}", beyond("beyond"))),
        ("key", "timeout", format!("timeout 1000 sh -c '{}' & {ready}", counts(&place, "timeout"))),
        // and this the command alone, which its group outlives
        ("leader", "group", format!("sh -c '{}' & {ready}", counts(&place, "group"))),
        ("leader", "apart", format!("{}{ready}", beyond("apart"))),
        ("leader", "below", format!("{exe} run y -c '{nested}' < /dev/null & {ready}")),
    ] {
        let line = format!("echo $$ > {}; {line}", place.path(&format!("{file}.leader")));
        let mut screen = on_a_terminal(&place, &line);
        let worker = numbers(&place.wait_written(&format!("{file}.pid")))[0];
        let leader = numbers(&place.wait_written(&format!("{file}.leader")))[0];
        screen.wait_shown("ready");
        let id = screen.child.id();
        if how == "key" {
            screen.press(b"\x1a");
        } else {
            signal(leader, "STOP");
        }
        wait_until(SOON, "onelock has stopped", || state(id) == 'T');
        assert_eq!(state(leader), 'T', "{how} {file}");
        // as soon as the kernel has written for it what it writes
        wait_until(SOON, &format!("{how} {file}: the worker has stopped"), || state(worker) == 'T');
        let counted = || fs::read_to_string(place.file(file)).unwrap();
        let before = counted();
        signal(id, "CONT");
        // it goes on where it was
        wait_until(SOON, "it works again", || !counted().is_empty() && counted() != before);
        screen.press(b"again\n");
        screen.wait_shown("read:again");
        assert_eq!(screen.code(), Some(4), "{how} {file}");
        if is_alive(worker) {
            signal(worker, "KILL");
        }
        place.wait_free("x");
    }
}

#[test]
fn what_was_stopped_before_the_job_stays_so_and_what_the_job_stopped_outlives_it() {
    let place = Place::new();
    let [sleeping, ready] = ["setsid sleep 1000 & echo $!", "echo ready; read word; exit 4"];
    let line = format!("({sleeping}; {sleeping}; echo $$) > {}; {ready}", place.path("pids"));
    let mut screen = on_a_terminal(&place, &line);
    screen.wait_shown("ready");
    let pids = numbers(&place.wait_written("pids"));
    let [stopped, other, command] = pids[..] else { panic!("{pids:?}") };
    let id = screen.child.id();
    // in the group of the command they would go on with it
    let its = |process: u32| fs::read(format!("/proc/{process}/cmdline")).unwrap();
    wait_until(SOON, "both have left", || {
        [stopped, other].into_iter().all(|process| its(process).starts_with(b"sleep"))
    });
    signal(stopped, "STOP");
    wait_until(SOON, "it has stopped", || state(stopped) == 'T');
    screen.press(b"\x1a");
    wait_until(SOON, "onelock has stopped", || state(id) == 'T' && state(other) == 'T');
    signal(id, "CONT");
    wait_until(SOON, "the other goes on", || state(other) == 'S');
    assert_eq!(state(stopped), 'T');
    // killed while it is stopped: what it leaves goes on
    screen.press(b"\x1a");
    wait_until(SOON, "onelock has stopped", || state(id) == 'T' && state(other) == 'T');
    signal(command, "KILL");
    assert_eq!(screen.code(), Some(128 + 9));
    wait_until(SOON, "the other goes on", || state(other) == 'S');
    assert_eq!(state(stopped), 'T');
    for process in [stopped, other] {
        signal(process, "KILL");
    }
}

#[test]
fn one_that_is_stopped_again_before_anybody_has_seen_it_stays_stopped() {
    let place = Place::new();
    let line = format!("echo $PPID $$ > {}; echo ready; exec sleep 1000", place.path("pids"));
    let screen = on_a_terminal(&place, &line);
    screen.wait_shown("ready");
    let pids = numbers(&place.wait_written("pids"));
    let [guard, command] = pids[..] else { panic!("{pids:?}") };
    let id = Pid::from_child(&screen.child);
    let next = || {
        let mut status = None;
        wait_until(SOON, "the shell sees that its job has stopped", || {
            let how = WaitOptions::UNTRACED | WaitOptions::NOHANG;
            status = waitpid(Some(id), how).unwrap().map(|(_, status)| status);
            status.is_some()
        });
        status.unwrap()
    };
    signal(command, "STOP");
    assert!(next().stopped());
    // who would wake it stands still as well
    signal(guard, "STOP");
    wait_until(SOON, "the guard has stopped", || state(guard) == 'T');
    signal(command, "CONT");
    wait_until(SOON, "it goes on", || state(command) == 'S');
    signal(command, "STOP");
    wait_until(SOON, "it has stopped", || state(command) == 'T');
    signal(guard, "CONT");
    // awake only until it is told
    assert!(next().stopped());
    assert_eq!(state(command), 'T');
}

#[test]
fn what_is_to_end_a_command_that_has_just_stopped_ends_it() {
    let place = Place::new();
    for round in 0..20 {
        let file = format!("pid{round}");
        let line = format!("echo $$ > {}; kill -STOP $$; sleep 1000", place.path(&file));
        // without a terminal, on which it would be stopped as well
        let mut command = std::process::Command::new("setsid");
        command.args([env!("CARGO_BIN_EXE_onelock"), "run", "x", "-c", &line]);
        command.env("ONELOCK_URL", place.server.url()).env_remove("ONELOCK_OWNER");
        let mut running = Running::of(command);
        let pid = numbers(&place.wait_written(&file))[0];
        while state(pid) != 'T' {
            std::hint::spin_loop();
        }
        // once
        running.signal("TERM");
        wait_until(SOON, "it ends", || running.child().try_wait().unwrap().is_some());
        assert_eq!(running.code(), 128 + 15);
    }
}

#[test]
#[allow(clippy::print_stderr, reason = "who runs the tests is to know that this one was not tried")]
fn as_the_first_process_of_a_container_it_is_not_stopped_by_a_key() {
    let place = Place::new();
    let mut container = std::process::Command::new("unshare");
    container.args(["--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    container.args([env!("CARGO_BIN_EXE_onelock"), "run", "x", "-c"]);
    container.arg("echo ready; read word; echo read:$word");
    container.env("ONELOCK_URL", place.server.url()).env_remove("ONELOCK_OWNER");
    let mut screen = Screen::run(&place, container, true);
    wait_until(SOON, "it is ready", || screen.shown().contains("ready") || screen.child.try_wait().unwrap().is_some());
    if screen.shown().contains("unshare: ") {
        eprintln!("not tried: this machine makes no PID namespaces: {}", screen.shown());
        return;
    }
    screen.press(b"\x1a");
    screen.wait_shown("^Z");
    screen.press(b"again\n");
    screen.wait_shown("read:again");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn a_job_of_several_is_stopped_and_brought_back_again_and_again() {
    let place = Place::new();
    let inner = place.path("inner");
    fs::write(&inner, "echo ready; until [ \"$word\" = again ]; do read word; done; echo at the end\n").unwrap();
    for line in [
        format!("$onelock run x -- sh {inner}"),
        format!("$onelock run y -- $onelock run x -- sh {inner}"),
        format!("$onelock run y -c '$onelock run x -- sh {inner}; true'"),
        format!("sh -c '$onelock run x -- sh {inner} | cat; true'"),
    ] {
        let mut screen = Screen::shell(&place, &["bash", "--norc", "-i"]);
        screen.press(format!("{line}\n").as_bytes());
        screen.wait_shown("ready");
        for round in 0..8 {
            // again and again: one that has not gone on yet goes on in spite of the first key, or stops twice
            wait_until(SOON, &format!("{line} stops, {round}"), || {
                screen.press(b"\x1a");
                screen.has_shell_in_front()
            });
            wait_until(SOON, &format!("{line} goes on, {round}"), || {
                screen.press(b"fg\n");
                !screen.has_shell_in_front()
            });
        }
        wait_until(SOON, &format!("{line} ends"), || {
            screen.press(if screen.has_shell_in_front() { b"fg\n" } else { b"again\n" });
            screen.shown().contains("at the end")
        });
        wait_until(SOON, "the shell is in front", || screen.has_shell_in_front());
        screen.press(b"\nexit 7\n");
        assert_eq!(screen.code(), Some(7), "{line}");
        place.wait_free("x");
    }
}
