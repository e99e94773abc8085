//! `onelock run` on a terminal: the command reads from it, and its keys reach the command.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::screen::Screen;
use common::{Place, signal};
use rustix::process::{Pid, WaitOptions, waitpid};

const CTRL_C: &[u8] = b"\x03";
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
    let mut screen = Screen::start(&place, &["run", "x", "-c", "echo ready; exec sleep 1000"], true);
    screen.wait_shown("ready");
    screen.press(CTRL_C);
    assert_eq!(screen.code(), Some(128 + 2));
    assert!(!place.exists("x"));
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
