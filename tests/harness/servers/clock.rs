//! A time of day of one server's own, without touching the machine's: a library in front of the C library's.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

const CODE: &str = include_str!("clock.c");
const LIBRARY: &str = "clock.so";
const STEP: &str = "clock";

/// Builds the library in the server's folder, with a clock that tells the truth.
pub(super) fn create(folder: &Path) {
    std::fs::write(folder.join(STEP), 0_i64.to_ne_bytes()).expect("the folder can be written to");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    command.args(["-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", LIBRARY]).current_dir(folder).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let mut code = child.stdin.take().expect("piped");
    code.write_all(CODE.as_bytes()).expect("the compiler reads");
    drop(code);
    assert!(child.wait().expect("a child can be waited for").success(), "{compiler} failed");
}

/// Has the server that is started by this see it, if there is one in its folder.
pub(super) fn attach(command: &mut Command, folder: &Path) {
    if folder.join(LIBRARY).exists() {
        command.env("LD_PRELOAD", folder.join(LIBRARY)).env("ONELOCK_CLOCK", folder.join(STEP));
    }
}

/// Sets the clock to so many nanoseconds beside the truth.
pub(super) fn set(folder: &Path, beside: i64) {
    let file = std::fs::OpenOptions::new().write(true).open(folder.join(STEP)).expect("a server with a clock");
    file.write_all_at(&beside.to_ne_bytes(), 0).expect("the file can be written to");
}
