//! Where somebody kills the guard, the kernel kills the command. On Linux what it has started becomes our children then: we are
//! the next above that asked for it.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// How often what was killed is looked for again.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Who are our children for another reason.
pub(super) struct Adopting {
    #[cfg(target_os = "linux")]
    before: Vec<Pid>,
    /// When we began: who is older is none of the command's.
    #[cfg(target_os = "linux")]
    us: Option<super::Process>,
}

#[cfg(target_os = "linux")]
impl Adopting {
    /// Before there is a guard. The program that was here before us (`exec onelock`) may have left children.
    pub(super) fn begin() -> Adopting {
        use super::process::Found;
        // SAFETY: two numbers.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let us = rustix::process::getpid();
        let found = Found::of(us).map(|found| found.process);
        Adopting { before: super::descendants::children(us), us: found }
    }

    /// Kills what the guard has left, and waits for it. Whether nothing is left.
    pub(super) fn kill_all(&self, command: Pid, until: Instant) -> bool {
        use rustix::process::{WaitOptions, kill_process_group, waitpid};
        loop {
            // as long as it is not waited for, its number is that of no other group
            if super::descendants::is_child(command.as_raw_nonzero().get()) {
                let _ = kill_process_group(command, Signal::KILL);
            }
            let left = self.left();
            if left.is_empty() {
                return true;
            }
            for process in &left {
                process.send(Signal::KILL);
                let _ = waitpid(Pid::from_raw(process.number()), WaitOptions::NOHANG);
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn left(&self) -> Vec<super::Process> {
        use super::process::Found;
        let children = super::descendants::children(rustix::process::getpid()).into_iter();
        let new = children.filter(|child| !self.before.contains(child));
        let found = new.filter_map(Found::of).map(|found| found.process);
        found.filter(|process| !self.us.is_some_and(|us| process.began_before(us))).collect()
    }
}

#[cfg(not(target_os = "linux"))]
impl Adopting {
    pub(super) fn begin() -> Adopting {
        Adopting {}
    }

    /// Kills the group, which is all that is known. Whether nothing is left.
    pub(super) fn kill_all(&self, command: Pid, until: Instant) -> bool {
        use rustix::process::{kill_process_group, test_kill_process_group};
        loop {
            let _ = kill_process_group(command, Signal::KILL);
            if test_kill_process_group(command) == Err(rustix::io::Errno::SRCH) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
