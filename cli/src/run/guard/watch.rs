//! The life of the guard, in a process that has only this thread: it asks the system, and takes no lock and no memory of its own.
//! (`libc::fork` takes the library's lock for its table of descriptors, which no other thread holds here, and gives it back.)

use std::io;
use std::os::fd::RawFd;

use super::descendants::kill_children;
use super::{CONTINUED, ENDED, ENDING, FAREWELL, GONE, KILL, LENGTH, Message, Prepared, SEND, STOP_US, STOPPED, tell};

/// Another name than ours, and in place of our arguments: `killall onelock` and `pkill -f 'onelock run'` end us, and the guard is
/// to outlive us.
#[cfg(target_os = "linux")]
pub(super) const NAME: &std::ffi::CStr = c"lock-guard";

/// How often it is killed again, or looked whether the group is gone, in nanoseconds.
const AGAIN: libc::c_long = 20_000_000;
/// How often in all it is looked again for nothing, when nobody waits for it any more.
const ROUNDS: u32 = 500;

/// What ends a process that has not said otherwise, and has handlers in ours.
const ENDING_IT: [libc::c_int; 7] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGALRM, libc::SIGUSR1, libc::SIGUSR2];

/// Where the two pipes are once there is nothing else.
const ORDERS: RawFd = 0;
const REPORTS: RawFd = 1;

/// The guard's ends of its pipes, and what it has for the command alone.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) orders: RawFd,
    pub(super) reports: RawFd,
    /// Closed when the command begins. Before, its number is written, and in the place of the next one why it does not.
    pub(super) begin: RawFd,
    /// The terminal that the command is given, or a negative number.
    pub(super) terminal: RawFd,
    /// Where our arguments begin, and how long they are. Nobody needs them in the guard.
    #[cfg(target_os = "linux")]
    pub(super) arguments: (usize, usize),
}

/// Makes the command, and watches over it.
///
/// # Safety
/// Only for a process that was just forked, with every signal blocked.
pub(super) unsafe fn watch(us: libc::pid_t, ends: Ends, command: &Prepared) -> ! {
    // SAFETY: system calls on numbers, constant texts and descriptors of this process, which nobody else in it uses.
    unsafe {
        // a group of its own: what ends that of the command does not end the guard. But the same session: it is for a parent
        // there that the command may be stopped and brought back
        libc::setpgid(0, 0);
        #[cfg(target_os = "linux")]
        {
            libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        }
        // before there is a command: it is not to begin without being watched
        // none of the two is 0 to 2, unless those were closed
        let [orders, reports] = [ends.orders, ends.reports].map(|end| libc::fcntl(end, libc::F_DUPFD_CLOEXEC, 3));
        if orders < 0 || reports < 0 {
            give_up(ends.begin);
        }
        let guard = libc::getpid();
        let group = libc::fork();
        if group == 0 {
            become_command(guard, ends, command);
        }
        if group < 0 {
            give_up(ends.begin);
        }
        #[cfg(target_os = "linux")]
        if let (begin @ 1.., length @ 2..) = ends.arguments {
            let name = NAME.to_bytes();
            let place = std::ptr::with_exposed_provenance_mut::<u8>(begin);
            place.write_bytes(0, length);
            place.copy_from(name.as_ptr(), name.len().min(length - 1));
        }
        libc::chdir(c"/".as_ptr());
        if libc::dup2(orders, ORDERS) < 0 || libc::dup2(reports, REPORTS) < 0 {
            libc::kill(group, libc::SIGKILL);
            libc::_exit(0);
        }
        close_from(2);
        libc::signal(libc::SIGCHLD, nothing as *const () as libc::sighandler_t);
        let mut watch = Watch {
            us,
            group,
            is_stopped: false,
            stops: 0,
            stopped_us: false,
            stopped_group: false,
            is_ending: false,
            has_ended: false,
            has_children: true,
            group_is_gone: false,
            is_gone: false,
            kills: false,
            is_alone: false,
            rounds: 0,
        };
        watch.live()
    }
}

/// The process between the guard and the command.
///
/// # Safety
/// Only for a process that was just forked, with every signal blocked.
unsafe fn become_command(guard: libc::pid_t, ends: Ends, command: &Prepared) -> ! {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: system calls on numbers, a set of our own, and descriptors that are open here.
    unsafe {
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // killed before that was said
        if libc::getppid() != guard {
            libc::_exit(1);
        }
        libc::setpgid(0, 0);
        // before it can ask for it. It is not stopped for that: every signal is blocked
        if ends.terminal >= 0 {
            libc::tcsetpgrp(ends.terminal, libc::getpid());
        }
        // what Rust ignores on its own account; handlers end with this program
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let id = libc::getpid();
        libc::write(ends.begin, (&raw const id).cast(), size_of::<libc::pid_t>());
        // a key that has come since it has the terminal is for the command: our handlers would take it. Not so Ctrl-Z: nobody
        // could wake what has not begun
        for signal in ENDING_IT {
            let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
            libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr());
            if now.assume_init_ref().sa_sigaction != libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        let why = command.become_it().raw_os_error().unwrap_or(libc::EINVAL);
        libc::write(ends.begin, (&raw const why).cast(), size_of::<libc::c_int>());
        libc::_exit(1)
    }
}

/// That a child has changed wakes the guard, and does no more.
extern "C" fn nothing(_: libc::c_int) {}

#[allow(clippy::struct_excessive_bools, reason = "what has happened so far, in any order")]
struct Watch {
    us: libc::pid_t,
    /// The number of the command, and of its group.
    group: libc::pid_t,
    is_stopped: bool,
    /// How often it was.
    stops: libc::c_int,
    /// `onelock` was stopped by us. Whether somebody else has woken it cannot be told from one that was woken just before: it is
    /// woken once more, and knows by whom.
    stopped_us: bool,
    /// What else is in its group was stopped by us.
    stopped_group: bool,
    /// It has to end, and nothing of it is left running.
    is_ending: bool,
    has_ended: bool,
    has_children: bool,
    /// Nothing is left of its group.
    group_is_gone: bool,
    /// Nothing is left, and that was told.
    is_gone: bool,
    /// Whatever is left is killed.
    kills: bool,
    /// `onelock` is gone.
    is_alone: bool,
    rounds: u32,
}

impl Watch {
    fn live(&mut self) -> ! {
        loop {
            self.look_at_children();
            self.take_orders();
            if self.kills {
                self.kill();
            }
            if self.has_ended && !self.has_children && !self.is_gone && !self.has_group() {
                self.is_gone = true;
                let _ = tell(REPORTS, [GONE, 0, 0, 0]);
            }
            if self.is_alone && (self.is_gone || self.rounds > ROUNDS) {
                exit();
            }
            self.wait();
        }
    }

    /// Whatever has become of the children, the command's first among them and what was left by others.
    fn look_at_children(&mut self) {
        loop {
            let mut status = 0;
            let how = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
            // SAFETY: a number, and a place for one.
            let found = unsafe { libc::waitpid(-1, &raw mut status, how) };
            if found <= 0 {
                self.has_children = found == 0;
                return;
            }
            if found != self.group {
                continue;
            }
            // whatever it is now, it has gone on meanwhile
            self.wake_us();
            self.is_stopped = libc::WIFSTOPPED(status);
            self.has_ended = libc::WIFEXITED(status) || libc::WIFSIGNALED(status);
            let report = if self.is_stopped {
                self.stops = self.stops.wrapping_add(1);
                [STOPPED, libc::WSTOPSIG(status), 0, 0]
            } else {
                // those of the group that were stopped for its sake
                if std::mem::take(&mut self.stopped_group) {
                    self.signal_group(libc::SIGCONT);
                }
                if self.has_ended { [ENDED, status, 0, 0] } else { [CONTINUED, 0, 0, 0] }
            };
            // it is blocked while nobody reads, and ends with who is to
            let _ = tell(REPORTS, report);
        }
    }

    fn wake_us(&mut self) {
        if std::mem::take(&mut self.stopped_us) {
            self.signal_us(libc::SIGCONT);
        }
    }

    /// It is our parent, or nobody gets it.
    fn signal_us(&self, signal: libc::c_int) -> bool {
        // SAFETY: numbers.
        unsafe { libc::getppid() == self.us && libc::kill(self.us, signal) == 0 }
    }

    /// All that have come so far.
    fn take_orders(&mut self) {
        while !self.is_alone && is_readable() {
            let mut message: Message = [0; 4];
            // SAFETY: room for as many bytes as are named.
            let count = unsafe { libc::read(ORDERS, (&raw mut message).cast(), LENGTH) };
            match (count, message) {
                // it was not ended by us: what it has left was left on purpose
                (..=0, _) if self.has_ended && !self.is_ending && !self.kills => exit(),
                // an error would come again and again
                (..=0, _) => {
                    self.is_alone = true;
                    self.kills = true;
                }
                (1.., [FAREWELL, ..]) => exit(),
                (1.., [KILL, ..]) => self.kills = true,
                (1.., [ENDING, ..]) => {
                    self.is_ending = true;
                    self.wake_us();
                }
                (1.., [STOP_US, signal, stop, around]) => self.stop_us(signal, stop, around),
                (1.., [SEND, signal, ..]) => self.send(signal),
                _ => {}
            }
        }
    }

    /// What becomes of the command afterwards wakes `onelock` again; what has become of it before, it is yet to hear.
    fn stop_us(&mut self, signal: libc::c_int, stop: libc::c_int, around: libc::pid_t) {
        self.look_at_children();
        if self.is_stopped && !self.is_ending && stop == self.stops {
            self.stopped_group = true;
            self.signal_group(libc::SIGSTOP);
            self.stopped_us = true;
            if self.signal_us(signal) && around > 1 {
                // SAFETY: two numbers; `onelock`, which is there, is one of this group. It is stopped already.
                unsafe { libc::kill(-around, libc::SIGTSTP) };
            }
        }
    }

    /// One that is stopped would not see what is to end it. One that would stop does so for `onelock`, too: somebody has woken that
    /// one, and stops it before it could wake the command.
    fn send(&mut self, signal: libc::c_int) {
        self.look_at_children();
        if self.is_stopped && signal == libc::SIGTSTP {
            self.stops = self.stops.wrapping_add(1);
            let _ = tell(REPORTS, [STOPPED, signal, 0, 0]);
            return;
        }
        self.signal_group(signal);
        self.look_at_children();
        if self.is_stopped && matches!(signal, libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGTERM) {
            self.signal_group(libc::SIGCONT);
        }
    }

    /// The group, and every child of ours, until there is none.
    fn kill(&mut self) {
        if self.is_gone {
            return;
        }
        self.signal_group(libc::SIGKILL);
        if self.has_children {
            kill_children();
        }
    }

    /// Whether anything of the group is left. On Linux all of it are children of ours in the end.
    fn has_group(&mut self) -> bool {
        self.signal_group(0);
        !self.group_is_gone
    }

    /// Once it is gone its number may be another's.
    fn signal_group(&mut self, signal: libc::c_int) {
        if !self.group_is_gone {
            // SAFETY: two numbers.
            let sent = unsafe { libc::kill(-self.group, signal) } == 0;
            // before its end was waited for, its leader holds the number
            self.group_is_gone =
                self.has_ended && !sent && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
        }
    }

    /// Until an order comes, or a child changes, or it is time to look again.
    fn wait(&mut self) {
        // SAFETY: two numbers; on some systems there is room beside them.
        let mut again = unsafe { std::mem::zeroed::<libc::timespec>() };
        again.tv_nsec = AGAIN;
        let looks_again = self.kills || (self.has_ended && !self.has_children && !self.is_gone);
        let until = if looks_again { &raw const again } else { std::ptr::null() };
        let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        let mut orders = std::mem::MaybeUninit::<libc::fd_set>::zeroed();
        // SAFETY: sets of our own, which are filled before they are read, and a time. That a child has changed reaches us in
        // here alone.
        unsafe {
            libc::sigfillset(mask.as_mut_ptr());
            libc::sigdelset(mask.as_mut_ptr(), libc::SIGCHLD);
            libc::FD_ZERO(orders.as_mut_ptr());
            let mut count = 0;
            if !self.is_alone {
                libc::FD_SET(ORDERS, orders.as_mut_ptr());
                count = ORDERS + 1;
            }
            let none = std::ptr::null_mut();
            let nothing = libc::pselect(count, orders.as_mut_ptr(), none, none, until, mask.as_ptr()) == 0;
            // as long as some of it ends, the rest is yet to be found
            self.rounds += u32::from(nothing && self.is_alone);
        }
    }
}

/// Whether an order has come, or the end of them.
fn is_readable() -> bool {
    let mut watched = libc::pollfd { fd: ORDERS, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, and the number of them.
    unsafe { libc::poll(&raw mut watched, 1, 0) > 0 }
}

/// There is no command: tells the error of the last call.
fn give_up(begin: RawFd) -> ! {
    let why = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let _ = tell(begin, [0, why, 0, 0]);
    exit()
}

fn exit() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Closes every descriptor from this one on.
///
/// # Safety
/// Nothing in this process uses them.
unsafe fn close_from(first: RawFd) {
    #[cfg(target_os = "linux")]
    // SAFETY: three numbers. On a kernel that does not know it, an error.
    if unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // SAFETY: a number; of one that is not open, an error.
    let count = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) }.clamp(256, 65536) as RawFd;
    for descriptor in first..count {
        // SAFETY: as the function's.
        unsafe { libc::close(descriptor) };
    }
}
