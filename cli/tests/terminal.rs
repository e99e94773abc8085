//! `onelock run` on a terminal: the command reads from it, and its keys reach the command.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::os::unix::process::ExitStatusExt;

use common::screen::Screen;
use common::{Place, Running, SOON, signal, state};
use onelock_tests::wait::wait_until;
use rustix::process::{Pid, WaitOptions, waitpid};

const CTRL_C: &[u8] = b"\x03";
const CTRL_BACKSLASH: &[u8] = b"\x1c";
const CTRL_Z: &[u8] = b"\x1a";

#[test]
fn the_command_reads_from_the_terminal() {
    let place = Place::new();
    let mut screen = Screen::start(&place, &["run", "x", "-c", "echo ready; read word; echo read:$word"], true);
    screen.wait_shown("ready");
    screen.press(b"hello\n");
    screen.wait_shown("read:hello");
    assert_eq!(screen.code(), Some(0));
    assert!(!place.exists("x"));
}

#[test]
fn a_command_that_asked_for_the_terminal_too_early_goes_on() {
    let place = Place::new();
    // it is stopped for that, and has the terminal by the time that this is told
    let line = "kill -TTIN $$; echo ready; read word; echo read:$word";
    let mut screen = Screen::start(&place, &["run", "x", "-c", line], true);
    screen.wait_shown("ready");
    screen.press(b"hello\n");
    screen.wait_shown("read:hello");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn it_reads_from_the_terminal_also_when_its_output_goes_elsewhere() {
    let place = Place::new();
    let mut screen = Screen::start(&place, &["run", "x", "-c", "echo ready >&2; read word; echo read:$word"], false);
    screen.wait_shown("ready");
    screen.press(b"hello\n");
    assert_eq!(place.wait_written("out"), "read:hello\n");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn interrupting_reaches_the_command_and_the_lock_is_released() {
    let place = Place::new();
    for output_too in [true, false] {
        let line = "trap 'echo caught >&2; exit 3' INT; echo ready >&2; while :; do sleep 0.02; done";
        let mut screen = Screen::start(&place, &["run", "x", "-c", line], output_too);
        screen.wait_shown("ready");
        screen.press(CTRL_C);
        screen.wait_shown("caught");
        assert_eq!(screen.code(), Some(3), "{output_too}");
        assert!(!place.exists("x"));
    }
}

#[test]
fn a_key_that_ends_the_command_ends_it_too_and_the_script_around_it() {
    let place = Place::new();
    // as if there were nothing in between
    for (key, number) in [(CTRL_C, 2), (CTRL_BACKSLASH, 3)] {
        for output_too in [true, false] {
            let line = "echo ready >&2; exec sleep 1000";
            let mut screen = Screen::start(&place, &["run", "x", "-c", line], output_too);
            screen.wait_shown("ready");
            screen.press(key);
            let status = screen.status();
            assert_eq!((status.signal(), status.core_dumped()), (Some(number), false), "{output_too}");
            assert!(!place.exists("x"));
        }
    }
    for shell in ["sh", "bash"] {
        for run in ["$onelock run x", "$onelock run y --owner -- $onelock run x", "echo | $onelock run x"] {
            let line = format!("for i in 1 2; do {run} -c 'echo ready; exec sleep 1000'; done; echo after");
            let mut screen = Screen::shell(&place, &[shell, "-c", &line]);
            screen.wait_shown("ready");
            screen.press(CTRL_C);
            wait_until(SOON, "the script has ended", || screen.child.try_wait().unwrap().is_some());
            assert!(!screen.shown().contains("after") && screen.shown().matches("ready").count() == 1, "{shell} {run}");
            assert_eq!(screen.status().signal(), Some(2), "{shell} {run}");
            place.wait_free("x");
        }
    }
    // and while it waits
    let holder = place.start(&["run", "x", "--", "cat"]);
    place.wait_held("x");
    let mut screen = Screen::start(&place, &["run", "x", "--", "true"], true);
    wait_until(SOON, "it waits", || place.waiting("x") == 1);
    screen.press(CTRL_C);
    assert_eq!(screen.status().signal(), Some(2));
    drop(holder);
}

#[test]
fn a_command_that_catches_the_key_decides_what_it_means() {
    let place = Place::new();
    let caught = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.02; done";
    // a shell with a trap sees the end of what it has started first, and goes on behind it
    let later = "trap 'echo caught' INT; sh -c 'echo ready; exec sleep 1000'; echo later; exit 5";
    for (line, shown, status) in [(caught, "caught", 3), (later, "later", 5)] {
        for program in ["dash", "bash"] {
            for around in ["dash", "bash"] {
                // the script has not got the key: it goes on, or not, by the status
                let script = "$onelock run x -- $PROGRAM -c \"$LINE\" || echo status:$?; $onelock run x -- $PROGRAM -c \
                              \"$LINE\" || exit; echo after";
                let mut command = std::process::Command::new(around);
                command.args(["-c", script]).env("ONELOCK_URL", place.server.url()).env_remove("ONELOCK_OWNER");
                command.env("onelock", env!("CARGO_BIN_EXE_onelock")).env("LINE", line).env("PROGRAM", program);
                let mut screen = Screen::run(&place, command, true);
                screen.wait_shown("ready");
                screen.press(CTRL_C);
                screen.wait_shown(&format!("status:{status}"));
                wait_until(SOON, "the second one is ready", || screen.shown().matches("ready").count() == 2);
                screen.press(CTRL_C);
                wait_until(SOON, "the script has ended", || screen.child.try_wait().unwrap().is_some());
                let told = screen.shown();
                assert!(told.matches("caught").count() == 2 && told.matches(shown).count() == 2, "{program} {told}");
                assert!(!told.contains("after"), "{program} in {around}: {told}");
                assert_eq!(screen.code(), Some(status), "{program} in {around}");
                assert!(!place.exists("x"));
            }
        }
    }
}

#[test]
fn a_command_gets_the_terminal_wherever_its_input_comes_from() {
    let place = Place::new();
    let reads = "echo ready >&2; read word < /dev/tty; echo read:$word";
    for line in [
        format!("echo | $onelock run x -c '{reads}'"),
        format!("$onelock run x -c '{reads}' < /dev/null | cat"),
        format!("$onelock run y -- $onelock run x -c '{reads}' < /dev/null"),
    ] {
        let mut screen = Screen::shell(&place, &["sh", "-c", &line]);
        screen.wait_shown("ready");
        screen.press(b"hello\n");
        screen.wait_shown("read:hello");
        assert_eq!(screen.code(), Some(0), "{line}");
    }
    // who may not even write
    let screen = Screen::shell(&place, &["sh", "-c", "stty tostop; echo | $onelock run x -c 'echo shown'; echo then"]);
    screen.wait_shown("shown");
    screen.wait_shown("then");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn a_command_whose_output_an_interactive_shell_catches_reads_from_the_terminal() {
    let place = Place::new();
    let mut screen = Screen::shell(&place, &["bash", "--norc", "-i"]);
    screen.press(b"x=$($onelock run x -c 'echo rea''dy >&2; read word; echo read:$word')\n");
    screen.wait_shown("ready");
    screen.press(b"hello\n");
    place.wait_free("x");
    screen.press(b"echo got:$x; exit 7\n");
    screen.wait_shown("got:read:hello");
    assert_eq!(screen.code(), Some(7));
}

#[test]
fn a_command_that_had_to_end_leaves_the_terminal_as_it_was() {
    let place = Place::new();
    let run = "$onelock run x --max-hold 500ms --grace 100ms";
    let line = format!("{run} -c \"trap '' TERM; stty raw -echo; echo ready; sleep 1000\"; echo status:$?; sleep 1000");
    let screen = Screen::shell(&place, &["sh", "-c", &line]);
    screen.wait_shown("ready");
    assert!(!screen.is_as_before());
    screen.wait_shown("status:80");
    assert!(screen.is_as_before());
    // one that never had it has changed nothing, and who works on it meanwhile is left in peace
    let line = format!("{run} -c 'sleep 1000' & stty raw -echo; wait $!; echo status:$?; sleep 1000");
    let screen = Screen::shell(&place, &["sh", "-c", &line]);
    screen.wait_shown("status:80");
    assert!(!screen.is_as_before());
}

#[test]
fn a_job_in_the_background_that_reads_stops_until_it_is_brought_back() {
    let place = Place::new();
    let mut screen = Screen::shell(&place, &["sh", "-i"]);
    screen.press(b"$onelock run x -c 'echo rea''dy; read word; echo read:$word' &\n");
    screen.wait_shown("ready");
    wait_until(SOON, "the shell sees that it is stopped", || {
        screen.press(b"jobs\n");
        screen.shown().contains("Stopped")
    });
    screen.press(b"fg\n");
    // the shell has the terminal no more
    wait_until(SOON, "it goes on", || place.exists("x") && !screen.has_shell_in_front());
    screen.press(b"hello\n");
    screen.wait_shown("read:hello");
    screen.press(b"echo st''ill; exit 7\n");
    screen.wait_shown("still");
    assert_eq!(screen.code(), Some(7));
}

#[test]
fn one_that_is_stopped_can_be_ended() {
    let place = Place::new();
    let line = format!("echo $$ > {}; kill -STOP $$; sleep 1000", place.path("pid"));
    // without a terminal, on which we would be stopped as well
    let mut command = std::process::Command::new("setsid");
    command.args([env!("CARGO_BIN_EXE_onelock"), "run", "x", "-c", &line]).env("ONELOCK_URL", place.server.url());
    let mut running = Running::of(command);
    let pid: u32 = place.wait_written("pid").trim().parse().unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    wait_until(SOON, "it is stopped", || stat().contains(") T "));
    // again, because it may not know yet
    wait_until(SOON, "it ends", || {
        running.signal("TERM");
        running.child().try_wait().unwrap().is_some()
    });
    assert_eq!(running.code(), 128 + 15);
}

#[test]
fn stopping_stops_both_and_going_on_goes_on() {
    let place = Place::new();
    let mut screen = Screen::start(&place, &["run", "x", "-c", "echo ready; read word; echo read:$word"], true);
    screen.wait_shown("ready");
    screen.press(CTRL_Z);
    let id = Pid::from_child(&screen.child);
    let (_, status) = waitpid(Some(id), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped(), "the shell sees that its job has stopped: {status:?}");
    assert!(place.exists("x"), "until its ttl has passed");
    signal(screen.child.id(), "CONT");
    screen.press(b"again\n");
    screen.wait_shown("read:again");
    assert_eq!(screen.code(), Some(0));
    assert!(!place.exists("x"));
}

#[test]
fn one_that_was_stopped_alone_goes_on_or_ends_alone() {
    let place = Place::new();
    for how in ["CONT", "KILL"] {
        let line = format!("echo $$ > {}; echo ready; read word; echo read:$word", place.path(how));
        let mut screen = Screen::start(&place, &["run", "x", "-c", &line], true);
        let command: u32 = place.wait_written(how).trim().parse().unwrap();
        screen.wait_shown("ready");
        let id = screen.child.id();
        signal(command, "STOP");
        wait_until(SOON, "it stops with it", || state(id) == 'T');
        signal(command, how);
        wait_until(SOON, "it goes on", || state(id) != 'T');
        screen.press(b"again\n");
        if how == "CONT" {
            screen.wait_shown("read:again");
            assert_eq!(screen.code(), Some(0));
        } else {
            assert_eq!(screen.code(), Some(128 + 9));
        }
        assert!(!place.exists("x"));
    }
}

#[test]
fn one_that_is_stopped_and_woken_at_once_never_leaves_it_stopped() {
    let place = Place::new();
    let line = format!("echo $$ > {}; echo ready; read word; echo read:$word", place.path("pid"));
    let mut screen = Screen::start(&place, &["run", "x", "-c", &line], true);
    let command: u32 = place.wait_written("pid").trim().parse().unwrap();
    screen.wait_shown("ready");
    for _ in 0..20 {
        signal(command, "STOP");
        signal(command, "CONT");
    }
    screen.press(b"again\n");
    screen.wait_shown("read:again");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn force_release_shows_the_holder_and_asks() {
    let place = Place::new();
    let mut holder = place.start(&["run", "x", "--label", "the holder", "--ttl", "30s", "--", "cat"]);
    place.wait_held("x");
    for answer in ["n\n", "\n", "no\n"] {
        let mut screen = Screen::start(&place, &["force-release", "x"], true);
        screen.wait_shown("[y/N]");
        assert!(screen.shown().contains("the holder") && screen.shown().contains("two may be"), "{}", screen.shown());
        screen.press(answer.as_bytes());
        assert_eq!(screen.code(), Some(1));
        assert!(place.exists("x"), "{answer:?}");
    }
    let mut screen = Screen::start(&place, &["force-release", "x"], true);
    screen.wait_shown("[y/N]");
    screen.press(b"y\n");
    assert_eq!(screen.code(), Some(0));
    assert!(!place.exists("x"));
    drop(holder.child().stdin.take());
    assert_eq!(holder.code(), 80);
}

#[test]
fn force_release_takes_nobody_but_the_one_it_has_shown() {
    let place = Place::new();
    let mut first = place.start(&["run", "x", "--label", "the first", "--", "cat"]);
    place.wait_held("x");
    let mut screen = Screen::start(&place, &["force-release", "x"], true);
    screen.wait_shown("[y/N]");
    drop(first.child().stdin.take());
    assert_eq!(first.code(), 0);
    let mut second = place.start(&["run", "x", "--label", "the second", "--", "cat"]);
    place.wait_held("x");
    screen.press(b"y\n");
    screen.wait_shown("the second");
    assert!(place.exists("x"));
    screen.press(b"n\n");
    assert_eq!(screen.code(), Some(1));
    assert!(place.exists("x"));
    drop(second.child().stdin.take());
    assert_eq!(second.code(), 0);
}
