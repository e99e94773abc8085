//! A process that is not waited for by us: when it has ended, its number may be another one's.

use rustix::process::{Pid, Signal};

/// A process, by its number and the time at which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing tells of any"))]
pub(crate) struct Process {
    number: i32,
    /// In the kernel's ticks since it was started.
    began: u64,
}

/// What `/proc` tells of a process.
#[cfg(target_os = "linux")]
pub(super) struct Found {
    pub(super) process: Process,
    /// By its name: what another program of this name has started is not asked to end, and is killed with the rest.
    pub(super) is_guard: bool,
    /// A letter: `T` is stopped, `Z` has ended.
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
}

#[cfg(target_os = "linux")]
impl Found {
    pub(super) fn of(process: Pid) -> Option<Found> {
        let number = process.as_raw_nonzero().get();
        let text = std::fs::read(format!("/proc/{number}/stat")).ok()?;
        let text = String::from_utf8_lossy(&text);
        // there may be anything in a name
        let (front, rest) = text.rsplit_once(')')?;
        let (_, name) = front.split_once('(')?;
        let is_guard = name.as_bytes() == super::watch::NAME.to_bytes();
        let mut words = rest.split_whitespace();
        let state = *words.next()?.as_bytes().first()?;
        let (parent, group) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        // the 22nd of all
        let began = words.nth(16)?.parse().ok()?;
        Some(Found { process: Process { number, began }, is_guard, state, parent, group })
    }
}

impl Process {
    #[cfg(target_os = "linux")]
    pub(super) fn number(self) -> i32 {
        self.number
    }

    #[cfg(target_os = "linux")]
    pub(super) fn began_before(self, other: Process) -> bool {
        self.began < other.began
    }

    /// Whether it has not been waited for.
    #[cfg(target_os = "linux")]
    pub(super) fn is_there(self) -> bool {
        Pid::from_raw(self.number).and_then(Found::of).is_some_and(|found| found.process == self)
    }

    /// One that has ended meanwhile gets none, and one of another user neither; and nobody in its place.
    #[cfg(target_os = "linux")]
    pub(crate) fn send(self, signal: Signal) {
        use rustix::process::{PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};
        let Some(process) = Pid::from_raw(self.number) else { return };
        // whoever it is that this is, it is that one for good
        let held = pidfd_open(process, PidfdFlags::empty());
        if self.is_there() {
            let _ = match held {
                Ok(held) => pidfd_send_signal(held, signal),
                // a kernel that does not know it
                Err(_) => kill_process(process, signal),
            };
        }
    }

    /// Here there is none: nothing tells of them.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn send(self, _: Signal) {}
}
