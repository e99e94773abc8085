//! The terminal: it belongs to one group of processes at a time, and the command is in another one than we are.
//!
//! Who belongs to another group is stopped when it reads. So a command gets the terminal: at once when input and output
//! are the terminal, else when it was stopped for that reason; in `onelock run ... | less` it is `less` that reads.

#![allow(unsafe_code, reason = "calls of the system for which the safe wrappers would be one more dependency")]

use std::io::IsTerminal;

use rustix::process::{Pid, getpgrp};

pub(super) struct Terminal {
    us: Pid,
}

impl Terminal {
    /// The terminal, if it is our input and belongs to our group.
    pub(super) fn ours() -> Option<Terminal> {
        let terminal = Terminal { us: getpgrp() };
        (std::io::stdin().is_terminal() && terminal.is_ours()).then_some(terminal)
    }

    pub(super) fn is_for_the_command() -> bool {
        std::io::stdout().is_terminal()
    }

    pub(super) fn is_ours(&self) -> bool {
        Terminal::is_of(self.us)
    }

    pub(super) fn is_of(group: Pid) -> bool {
        // SAFETY: asks about a descriptor by its number.
        unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == group.as_raw_nonzero().get() }
    }

    pub(super) fn give(group: Pid) {
        set(group);
    }

    /// After we were stopped: if the shell has brought us to the foreground again.
    pub(super) fn give_again(&self, group: Pid) {
        if self.is_ours() && Terminal::is_for_the_command() {
            Terminal::give(group);
        }
    }

    pub(super) fn take_back(&self) {
        set(self.us);
    }
}

/// Who does not have the terminal is stopped for setting it, unless this signal is ignored.
fn set(group: Pid) {
    // SAFETY: no handler is set, and the one that was there (there is none of ours) is put back.
    let before = unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
    // SAFETY: two numbers; a terminal that is gone is an error that changes nothing.
    unsafe { libc::tcsetpgrp(libc::STDIN_FILENO, group.as_raw_nonzero().get()) };
    if before != libc::SIG_ERR {
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGTTOU, before) };
    }
}
