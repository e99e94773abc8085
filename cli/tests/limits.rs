//! At the limit of processes and threads of a user: a clear error, and no panic.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Place, Running, SOON, text};
use onelock_tests::wait::wait_until;

/// A user of whom nobody else here has processes: for root the limit does not count.
const NOBODY_ELSE: u32 = 61_234;

/// One test at a time: the limit is that of the user.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many threads of processes the user has.
fn threads_of(user: u32) -> u64 {
    let tasks = |process: fs::DirEntry| {
        let of_user = process.metadata().is_ok_and(|about| about.uid() == user);
        if of_user { fs::read_dir(process.path().join("task")).map_or(0, |tasks| tasks.count() as u64) } else { 0 }
    };
    fs::read_dir("/proc").unwrap().flatten().map(tasks).sum()
}

/// Who runs commands here.
#[allow(unsafe_code, reason = "asks for a number")]
fn user() -> u32 {
    // SAFETY: asks for a number.
    match unsafe { libc::getuid() } {
        0 => NOBODY_ELSE,
        user => user,
    }
}

/// A command as this user, who may have so many threads in all.
#[allow(unsafe_code, reason = "limits and users are set between fork and exec")]
fn limited(mut command: Command, most: u64) -> Command {
    let user = user();
    // SAFETY: three system calls, and no more.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            if libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) != 0
                || (user == NOBODY_ELSE && libc::setuid(user) != 0)
            {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it at one limit after the other, from no further thread on, until it works: what it ended with before.
fn ends_clearly(place: &Place, arguments: &[&str]) -> Vec<i32> {
    let mut before = Vec::new();
    for more in 0..24 {
        let output = limited(place.onelock(arguments), threads_of(user()) + 1 + more).output().unwrap();
        let (code, told) = (output.status.code(), text(&output.stderr));
        assert!(!told.contains("panicked"), "{more} more: {output:?}");
        match code {
            Some(0) => return before,
            Some(code @ (69 | 70)) => assert!(told.starts_with("onelock: ") && !before.contains(&0), "{code} {told}"),
            _ => panic!("{more} more: {output:?}"),
        }
        before.extend(code);
    }
    panic!("it never worked: {before:?}");
}

#[test]
fn measuring_says_that_there_is_no_thread() {
    let _alone = alone();
    let place = Place::new();
    let found = ends_clearly(&place, &["bench", "--time", "60ms", "--threads", "3"]);
    assert!(found.len() >= 3 && found.contains(&70), "{found:?}");
}

#[test]
fn running_says_that_there_is_no_process_and_holds_nothing() {
    let _alone = alone();
    let place = Place::new();
    let found = ends_clearly(&place, &["run", "x", "--", "true"]);
    assert!(found.len() >= 3 && found.contains(&70), "{found:?}");
    assert!(!place.exists("x"));
    let inner = ["run", "x", "--owner", "--", env!("CARGO_BIN_EXE_onelock"), "run", "x", "--", "true"];
    ends_clearly(&place, &inner);
}

#[test]
fn a_request_for_which_there_is_no_thread_is_closed_and_a_later_one_is_answered() {
    let _alone = alone();
    let place = Place::new();
    let start = |more| {
        let command = place.onelock(&["export", "*", "--listen", "127.0.0.1:0"]);
        let mut exporter = Running::of(limited(command, threads_of(user()) + 1 + more));
        let mut told = BufReader::new(exporter.child().stderr.take().unwrap()).lines();
        let url = told.next().unwrap().unwrap();
        url.contains("http://").then_some((exporter, told, url))
    };
    // the least with which it starts, and two threads for those who ask
    let least = (0..24).find(|more| start(*more).is_some()).unwrap();
    let (_exporter, mut told, url) = start(least + 2).unwrap();
    let address = url.rsplit_once("//").unwrap().1.strip_suffix("/metrics").unwrap();
    let silent: Vec<_> = (0..16).map(|_| TcpStream::connect(address).unwrap()).collect();
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        let closed = told.by_ref().map_while(Result::ok).find(|line| line.contains("no thread can be made"));
        tell.send(closed).unwrap();
    });
    let closed = heard.recv_timeout(SOON).unwrap();
    assert!(closed.is_some(), "it has ended");
    drop(silent);
    wait_until(SOON, "an answer", || {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut answer = String::new();
        let asked =
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").and_then(|()| stream.read_to_string(&mut answer));
        asked.is_ok() && answer.starts_with("HTTP/1.1 200 OK")
    });
}
