//! `onelock run` on a terminal: the command reads from it, and its keys reach the command.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(unsafe_code, reason = "a process on a terminal of its own is made with `pre_exec`")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use common::{Place, SOON, signal};
use onelock_tests::wait::wait_until;
use rustix::process::{Pid, WaitOptions, waitpid};

const CTRL_C: &[u8] = b"\x03";
const CTRL_Z: &[u8] = b"\x1a";

/// Both ends of a new terminal.
fn pair() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let (name, termios, size) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: two places for descriptors, which are ours from then on; the other arguments may be left out.
    unsafe {
        assert_eq!(libc::openpty(&raw mut master, &raw mut slave, name, termios, size), 0);
        // what is started meanwhile by another test must not hold it open
        for end in [master, slave] {
            libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

/// A terminal, and the command that runs on it as the leader of its session.
struct Screen {
    keys: File,
    shown: Arc<Mutex<String>>,
    child: Child,
}

impl Screen {
    fn start(place: &Place, arguments: &[&str], output_too: bool) -> Screen {
        let (master, slave) = pair();
        let end = || Stdio::from(slave.as_fd().try_clone_to_owned().unwrap());
        let mut command = place.onelock(arguments);
        command.stdin(end()).stderr(end());
        if output_too {
            command.stdout(end());
        } else {
            command.stdout(File::create(place.file("out")).unwrap());
        }
        // SAFETY: two system calls, and no more.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop((command, slave));
        let keys = File::from(master);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut screen, to) = (keys.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // at the end of the session reading fails
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Screen { keys, shown, child }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    fn wait_shown(&self, text: &str) {
        wait_until(SOON, &format!("{text:?} is shown"), || self.shown().contains(text));
    }

    fn code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
fn it_reads_from_the_terminal_also_when_its_output_goes_elsewhere() {
    let place = Place::new();
    let mut screen = Screen::start(&place, &["run", "x", "-c", "echo ready >&2; read word; echo read:$word"], false);
    screen.wait_shown("ready");
    screen.press(b"hello\n");
    assert_eq!(place.wait_written("out"), "read:hello\n");
    assert_eq!(screen.code(), Some(0));
}

#[test]
fn interrupting_reaches_the_command_and_the_lock_is_given_back() {
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
