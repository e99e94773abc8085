//! The real command on a real server.

#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, clippy::new_without_default, clippy::must_use_candidate, missing_docs, reason = "tests")]

pub mod screen;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use onelock_tests::servers::Server;
use onelock_tests::wait::wait_until;
use tempfile::TempDir;

/// Longer than anything takes that should happen.
pub const SOON: Duration = Duration::from_secs(20);

/// A server, a folder for what commands write, and the command.
pub struct Place {
    pub server: Server,
    folder: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { server: Server::valkey(), folder: tempfile::tempdir().unwrap() }
    }

    /// The command with these arguments, at this server, with nothing of ours in its environment.
    pub fn onelock(&self, arguments: &[&str]) -> Command {
        let mut command = onelock(arguments);
        command.env("ONELOCK_URL", self.server.url());
        command
    }

    /// Runs it to its end.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.onelock(arguments).stdin(Stdio::null()).output().unwrap()
    }

    pub fn status(&self, arguments: &[&str]) -> i32 {
        let output = self.output(arguments);
        output.status.code().unwrap_or_else(|| panic!("{output:?}"))
    }

    /// Starts it and does not wait.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::of(self.onelock(arguments))
    }

    /// A file of this place.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn path(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }

    /// What a command has written, once it has.
    pub fn wait_written(&self, name: &str) -> String {
        let path = self.file(name);
        wait_until(SOON, name, || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
        fs::read_to_string(path).unwrap()
    }

    pub fn exists(&self, name: &str) -> bool {
        self.server.int(&["EXISTS", name]) == 1
    }

    pub fn wait_free(&self, name: &str) {
        wait_until(SOON, "nobody holds it", || !self.exists(name));
    }

    pub fn wait_held(&self, name: &str) {
        wait_until(SOON, "somebody holds it", || self.exists(name));
    }

    /// How many listen for the release of a lock.
    pub fn waiting(&self, name: &str) -> i64 {
        let reply = format!("{:?}", self.server.cmd(&["PUBSUB", "NUMSUB", &format!("onelock_channel:{{{name}}}")]));
        i64::from(!reply.contains("int(0)"))
    }
}

pub fn onelock(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onelock"));
    command.args(arguments).env_remove("ONELOCK_URL").env_remove("ONELOCK_OWNER");
    as_from_a_terminal(&mut command);
    command
}

/// What the tests were told to ignore, as by `nohup`, this command does not ignore.
#[allow(unsafe_code, reason = "signals are set between fork and exec")]
fn as_from_a_terminal(command: &mut Command) {
    // SAFETY: three system calls, and no more.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// A command under way, which does not outlive the test.
pub struct Running(Option<Child>);

impl Running {
    /// Starts a command.
    pub fn of(mut command: Command) -> Running {
        Running(Some(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    pub fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    pub fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Its end.
    pub fn output(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    pub fn code(self) -> i32 {
        let output = self.output();
        output.status.code().unwrap_or_else(|| panic!("{output:?}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal to a process.
pub fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -s {name} {process}");
}

/// Whether a process is there, and not only waiting to be buried.
pub fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The numbers that a text is made of.
pub fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// What a process is doing, as a letter: `S` waits, `T` is stopped; `-` where there is none.
pub fn state(process: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('-')
}
