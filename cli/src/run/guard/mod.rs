//! A small process between `onelock` and the command: it makes the command, tells what becomes of it, and ends everything
//! that the command has started, if that has to be or if `onelock` is gone.
//!
//! `onelock` -> guard -> command -> ... On Linux whatever loses its parent below the guard becomes a child of the guard
//! (`PR_SET_CHILD_SUBREAPER`), wherever it has gone: to another process group, to another session. So it is found, and waited
//! for. The guard holds two pipes and nothing else: no descriptor of the user's, no folder, and no signal reaches it but SIGKILL
//! and SIGSTOP, from which it is woken at once. The end of the first pipe without a farewell means that `onelock` is gone. If the
//! guard is killed, so is the command, by the kernel, and the rest by `onelock`, whose children they become.
//!
//! | file | is |
//! |---|---|
//! | `prepared` | the command, as the system wants it |
//! | `watch` | the life of the guard |
//! | `descendants` | what the command has started, wherever it is |
//! | `process` | one of those, which keeps its number only until it has ended |
//! | `adopting` | what is left of them when somebody kills the guard |

#![allow(unsafe_code, reason = "a process that runs no other program is made by `fork` alone")]

mod adopting;
mod descendants;
mod prepared;
mod process;
mod watch;

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use rustix::process::{Pid, Signal};

use self::adopting::Adopting;
pub(super) use self::prepared::Prepared;
pub(super) use self::process::Process;
use self::watch::Ends;
use super::events::Event;
use super::terminal::Terminal;
use crate::status::Status;

/// What is written on either pipe: what, and numbers that go with it. So short a text is written whole.
type Message = [libc::c_int; 4];
const LENGTH: usize = size_of::<Message>();

/// To the guard: there is nothing to do any more; whatever is left goes on.
const FAREWELL: libc::c_int = 1;
/// To the guard: kill whatever is left.
const KILL: libc::c_int = 2;
/// To the guard: if the command still is stopped, for so many times now, stop what else is in its group, `onelock` by this
/// signal, and this group of processes as Ctrl-Z does; and wake `onelock` when the command goes on or has ended.
const STOP_US: libc::c_int = 3;
/// To the guard: the command has to end, so `onelock` is to be awake.
const ENDING: libc::c_int = 4;
/// To the guard: send this signal to the group of the command, and wake it for what it may end by.
const SEND: libc::c_int = 5;
/// From the guard: the command was stopped, by this signal.
const STOPPED: libc::c_int = 1;
/// From the guard: the command has ended, with this status of `waitpid`.
const ENDED: libc::c_int = 2;
/// From the guard: nothing is left of what the command has started.
const GONE: libc::c_int = 3;
/// From the guard: the command was stopped, and goes on.
const CONTINUED: libc::c_int = 4;

/// Why there is no command.
pub(super) enum NotStarted {
    /// The system makes no more processes or threads.
    NoProcess(io::Error),
    /// This is no program, or none that may be run.
    NoProgram(io::Error),
}

pub(super) struct Guard {
    id: Pid,
    pipe: Option<PipeWriter>,
    /// Waits for its end, and is the only one that does.
    awaiting: Option<JoinHandle<()>>,
    adopting: Adopting,
}

impl Guard {
    /// Makes the guard, and by it the command, whose number this gives: the leader of a group of its own. What becomes of it is
    /// told to `events`. `terminal`: what it is given before it begins.
    pub(super) fn start(
        command: &Prepared,
        terminal: Option<&Terminal>,
        events: Sender<Event>,
    ) -> Result<(Guard, Pid), NotStarted> {
        let failed = NotStarted::NoProcess;
        // no other program inherits any of these ends
        let (orders, writer) = io::pipe().map_err(failed)?;
        let (reports, told) = io::pipe().map_err(failed)?;
        let (mut started, begin) = io::pipe().map_err(failed)?;
        let attending = Builder::new().name("command".to_owned());
        attending.spawn(move || attend(reports, &events)).map_err(failed)?;
        let (start, forked) = channel();
        let awaiting = Builder::new().name("guard".to_owned());
        let await_it = move || forked.recv().map_or((), keep_awake);
        let awaiting = awaiting.spawn(await_it).map_err(failed)?;
        let terminal = terminal.map_or(-1, Terminal::descriptor);
        let ends = Ends {
            orders: orders.as_raw_fd(),
            reports: told.as_raw_fd(),
            begin: begin.as_raw_fd(),
            terminal,
            #[cfg(target_os = "linux")]
            arguments: arguments().unwrap_or_default(),
        };
        let adopting = Adopting::begin();
        let id = fork(ends, command).map_err(failed)?;
        let _ = start.send(id);
        let guard = Guard { id, pipe: Some(writer), awaiting: Some(awaiting), adopting };
        drop((orders, told, begin));
        // the end of this is the beginning of the command: every other end of it is closed then
        let mut found = Vec::new();
        started.read_to_end(&mut found).map_err(failed)?;
        let number = |at: usize| found.get(at * 4..at * 4 + 4).and_then(|bytes| bytes.try_into().ok());
        let number = |at: usize| number(at).map_or(0, libc::c_int::from_ne_bytes);
        match (Pid::from_raw(number(0)), number(1)) {
            (Some(command), 0) => Ok((guard, command)),
            (Some(_), error) => Err(NotStarted::NoProgram(io::Error::from_raw_os_error(error))),
            (None, 0) => Err(NotStarted::NoProcess(io::Error::other("it was killed before it began"))),
            (None, error) => Err(NotStarted::NoProcess(io::Error::from_raw_os_error(error))),
        }
    }

    pub(super) fn id(&self) -> Pid {
        self.id
    }

    /// Sends this signal to the group of the command: the guard does, which knows whether there still is one.
    pub(super) fn send(&self, signal: Signal) {
        self.tell([SEND, signal.as_raw(), 0, 0]);
    }

    /// Sends this signal to what has left the group of the command. That of the group itself is not sent again.
    pub(super) fn send_beyond(&self, group: Pid, signal: Signal) {
        descendants::send_beyond(self.id, group, signal);
    }

    /// Stops all that the command has started, but not itself. Gives what was not stopped before.
    pub(super) fn stop_all_but(&self, command: Pid) -> Vec<Process> {
        descendants::stop_all_but(self.id, command)
    }

    /// Where the guard was killed: kills what it has left, until nothing of it is there or until then. Whether nothing is.
    pub(super) fn kill_what_it_left(&mut self, command: Pid, until: Instant) -> bool {
        if let Some(awaiting) = self.awaiting.take() {
            // only now it is all ours
            let _ = awaiting.join();
        }
        self.adopting.kill_all(command, until)
    }

    /// The command has to end: `onelock` is stopped no more, and woken if it was.
    pub(super) fn will_end(&self) {
        self.tell([ENDING, 0, 0, 0]);
    }

    /// Kills what is left, in the group and beyond.
    pub(super) fn kill(&self) {
        self.tell([KILL, 0, 0, 0]);
    }

    /// Stops `onelock` by this signal for as long as the command is stopped. `stops`: how often that was told. `around`: the
    /// group of processes to stop as Ctrl-Z does, once we are: who stops with it must find us stopped.
    pub(super) fn stop_us(&self, signal: Signal, stops: i32, around: Option<Pid>) {
        let around = around.map_or(0, |group| group.as_raw_nonzero().get());
        self.tell([STOP_US, signal.as_raw(), stops, around]);
    }

    /// There is nothing to kill any more.
    pub(super) fn dismiss(&mut self) {
        self.tell([FAREWELL, 0, 0, 0]);
        self.pipe = None;
    }

    fn tell(&self, message: Message) {
        if let Some(pipe) = &self.pipe {
            // to one that was killed nothing can be told
            let _ = tell(pipe.as_raw_fd(), message);
        }
    }
}

impl Drop for Guard {
    /// It ends at once, and is waited for: there may be nobody else who does that.
    fn drop(&mut self) {
        if std::thread::panicking() {
            // without a farewell
            self.pipe = None;
        }
        self.dismiss();
        if let Some(awaiting) = self.awaiting.take() {
            let _ = awaiting.join();
        }
    }
}

/// Waits for the end of the guard, and wakes it whenever somebody stops it: one that stands still neither kills nor tells.
fn keep_awake(guard: Pid) {
    let id = guard.as_raw_nonzero().get();
    let mut status = 0;
    loop {
        // SAFETY: a child of ours, and a place for its status.
        let found = unsafe { libc::waitpid(id, &raw mut status, libc::WUNTRACED) };
        if found == id && libc::WIFSTOPPED(status) {
            // SAFETY: two numbers; it is there, since nobody else waits for its end.
            unsafe { libc::kill(id, libc::SIGCONT) };
        } else if found == id || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Where our arguments are in memory, as `ps` finds them.
#[cfg(target_os = "linux")]
fn arguments() -> Option<(usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // behind our name, in which there may be anything: the 48th and 49th of all
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace().skip(45);
    let (begin, end) = (rest.next()?.parse().ok()?, rest.next()?.parse::<usize>().ok()?);
    Some((begin, end.checked_sub(begin)?))
}

fn fork(ends: Ends, command: &Prepared) -> io::Result<Pid> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: two sets of our own, the first filled before it is read. In the child only `watch` runs, which does not return,
    // and makes system calls alone. Our handlers do not run there: everything is blocked before.
    let (id, error) = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let us = libc::getpid();
        let id = libc::fork();
        if id == 0 {
            watch::watch(us, ends, command);
        }
        // of another call the error would be lost
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        (id, error)
    };
    Pid::from_raw(id.max(0)).ok_or(error)
}

/// Tells what becomes of the command, until the guard has ended.
fn attend(mut reports: PipeReader, events: &Sender<Event>) {
    let mut bytes = [0; LENGTH];
    let mut is_gone = false;
    while reports.read_exact(&mut bytes).is_ok() {
        let [what, number] = [0, 4].map(|at| libc::c_int::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte])));
        let event = match what {
            STOPPED => Event::Stopped(number),
            CONTINUED => Event::Continued,
            ENDED => Event::Ended(status(number)),
            _ => Event::Gone,
        };
        is_gone |= what == GONE;
        if events.send(event).is_err() {
            return;
        }
    }
    if !is_gone {
        let _ = events.send(Event::Unguarded);
    }
}

/// What the command ended with.
fn status(number: libc::c_int) -> Status {
    if libc::WIFEXITED(number) {
        Status::Other(libc::WEXITSTATUS(number) as u8)
    } else {
        Status::Signal(libc::WTERMSIG(number) as u8)
    }
}

fn tell(pipe: RawFd, message: Message) -> io::Result<()> {
    // SAFETY: so many bytes of numbers.
    let written = unsafe { libc::write(pipe, (&raw const message).cast(), LENGTH) };
    if written == LENGTH.cast_signed() { Ok(()) } else { Err(io::Error::last_os_error()) }
}
