//! The terminal: it belongs to one group of processes at a time, and the command is in another one than we are.
//!
//! Who belongs to another group is stopped when it reads. So a command gets the terminal: at once when input and output
//! are the terminal, else when it was stopped for that reason, wherever its input comes from; in `onelock run ... | less` it
//! is `less` that reads.

#![allow(unsafe_code, reason = "calls of the system for which the safe wrappers would be one more dependency")]

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::process::Pid;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTTIN};

use super::events::is_ignored;

pub(super) struct Terminal {
    tty: File,
    /// Our group. 0 if it is none of this PID namespace; so is what the terminal says then.
    us: libc::pid_t,
    /// What it was set to before the command.
    before: Option<libc::termios>,
}

/// Whom the keys of the terminal reach, Ctrl-C among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// There is no terminal, or it belongs to somebody else.
    Others,
    /// Our group: we, and the script around us.
    Us,
    /// The group of the command alone.
    Command,
}

impl Terminal {
    /// The terminal of this session, if there is one.
    pub(super) fn open() -> Option<Terminal> {
        let tty = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/tty").ok()?;
        let mut before = std::mem::MaybeUninit::<libc::termios>::zeroed();
        // SAFETY: an open descriptor, and a place for its settings, which are numbers.
        let before =
            unsafe { (libc::tcgetattr(tty.as_raw_fd(), before.as_mut_ptr()) == 0).then(|| before.assume_init()) };
        // SAFETY: asks for a number.
        Some(Terminal { tty, us: unsafe { libc::getpgrp() }, before })
    }

    /// Whether it is to have the terminal before it asks. Who ignores the signal by which it would ask is told of an error when
    /// it reads, so it never does: so it is in the `$( )` of an interactive shell.
    pub(super) fn is_for_the_command() -> bool {
        io::stdin().is_terminal() && (io::stdout().is_terminal() || is_ignored(SIGTTIN))
    }

    /// Sets it as it was before the command, if it is ours: a command that was killed has not done that.
    pub(super) fn restore(&self) {
        if let Some(before) = self.before.filter(|_| self.keys(None) == Keys::Us) {
            // who got into the background meanwhile is stopped for setting it, unless this signal is ignored
            // SAFETY: an open descriptor, and what was read of it.
            ignoring(libc::SIGTTOU, || unsafe {
                libc::tcsetattr(self.tty.as_raw_fd(), libc::TCSANOW, &raw const before)
            });
        }
    }

    /// `command`: the group of the command, if there is one.
    pub(super) fn keys(&self, command: Option<Pid>) -> Keys {
        // SAFETY: asks about an open descriptor.
        let group = unsafe { libc::tcgetpgrp(self.tty.as_raw_fd()) };
        match command {
            Some(command) if group == command.as_raw_nonzero().get() => Keys::Command,
            _ if group == self.us => Keys::Us,
            _ => Keys::Others,
        }
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.tty.as_raw_fd()
    }

    /// Whether it worked.
    pub(super) fn give(&self, group: Pid) -> bool {
        self.set(group.as_raw_nonzero().get())
    }

    pub(super) fn take_back(&self) {
        self.set(self.us);
    }

    fn set(&self, group: libc::pid_t) -> bool {
        // who does not have the terminal is stopped for setting it, unless this signal is ignored
        // SAFETY: two numbers; a terminal that is gone is an error that changes nothing.
        ignoring(libc::SIGTTOU, || unsafe { libc::tcsetpgrp(self.tty.as_raw_fd(), group) } == 0)
    }
}

/// Sends a signal to our group without us: what a key would have sent to the script around us, had the terminal not been the
/// command's.
pub(super) fn tell_group(signal: i32) {
    // SAFETY: two numbers.
    ignoring(signal, || unsafe { libc::kill(0, signal) });
}

/// After Ctrl-C or Ctrl-\ has ended the command, we end in the same way: a shell ends its loop or script only if it sees that,
/// and, without job control, if it has got the signal itself.
pub(super) fn end_by_key(signal: i32, keys: Keys) {
    if keys == Keys::Others || !matches!(signal, SIGINT | SIGQUIT) {
        return;
    }
    if keys == Keys::Command {
        tell_group(signal);
    }
    let no_dump = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: numbers. It ends here, but if we are the first process of a PID namespace: that one is not ended by a signal.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_dump);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Does something while we ignore a signal.
fn ignoring<T>(signal: i32, what: impl FnOnce() -> T) -> T {
    let mut before = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: of zeros, with what is set: no flags, nothing blocked.
    let mut ignore = unsafe { std::mem::zeroed::<libc::sigaction>() };
    ignore.sa_sigaction = libc::SIG_IGN;
    // SAFETY: an action, and a place for the one before.
    let set = unsafe { libc::sigaction(signal, &raw const ignore, before.as_mut_ptr()) } == 0;
    let result = what();
    if set {
        // SAFETY: it was written above, and is put back.
        unsafe { libc::sigaction(signal, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}
