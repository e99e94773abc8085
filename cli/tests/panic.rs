//! A panic while `top` has the terminal: it is as it was, and what the panic says is to be read there.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[allow(dead_code, unreachable_pub, reason = "a test needs some of it")]
#[path = "../src/top/keys.rs"]
mod keys;
#[allow(dead_code, unreachable_pub, reason = "a test needs some of it")]
#[path = "../src/top/screen.rs"]
mod screen;

use std::process::Command;

use common::Place;
use common::screen::Screen;

const INSIDE: &str = "ONELOCK_TEST_PANIC";
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    match std::env::var(INSIDE).as_deref() {
        Ok("here") => {
            let _screen = screen::Screen::open().unwrap();
            panic!("a defect");
        }
        Ok(_) => {
            let _screen = screen::Screen::open().unwrap();
            let _ = std::thread::spawn(|| panic!("a defect")).join();
            // dropped afterwards: it is not left twice
            return;
        }
        Err(_) => {}
    }
    let place = Place::new();
    for (thread, status) in [("here", Some(101)), ("another", Some(0))] {
        // this very test once more, on a terminal of its own
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["a_panic_leaves_the_terminal_as_it_was", "--exact", "--nocapture"]).env(INSIDE, thread);
        let mut on_terminal = Screen::run(&place, command, true);
        on_terminal.wait_shown("a defect");
        let ended = on_terminal.child.wait().unwrap();
        let shown = on_terminal.shown();
        assert_eq!((shown.matches(ENTER).count(), shown.matches(LEAVE).count()), (1, 1), "{shown:?}");
        assert!(shown.find(ENTER) < shown.find(LEAVE) && shown.find(LEAVE) < shown.find("a defect"), "{shown:?}");
        assert!(on_terminal.is_as_before());
        assert_eq!(ended.code(), status, "{shown:?}");
    }
}
