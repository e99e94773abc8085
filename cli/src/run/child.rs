//! The command as a process: a group of its own, which ends with us.

#![allow(unsafe_code, reason = "what a new process does before it becomes the command, `std` offers as unsafe only")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getppid, kill_process, kill_process_group, test_kill_process_group, wait, waitpid,
};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};

use super::Environment;
use super::events::{Event, Events};
use super::guard::Guard;
use super::terminal::{Keys, Terminal, tell_group};
use crate::arguments::Run;
use crate::say;
use crate::status::{Failure, Status};

/// How often it is looked whether a group that was ended is gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long it is waited for what was killed.
const AFTER_KILL: Duration = Duration::from_secs(5);

pub(super) struct Child {
    /// Its number, which is that of its group as well.
    id: Pid,
    terminal: Option<Terminal>,
    /// It has been given the terminal, now or before.
    had_terminal: bool,
    is_stopped: bool,
    /// When it is killed.
    until: Option<Instant>,
    /// It does not run to its own end.
    has_to_end: bool,
}

impl Child {
    pub(super) fn spawn(
        options: &Run,
        environment: &Environment,
        events: &Events,
        guard: &Guard,
    ) -> Result<Child, Failure> {
        let mut words = options.command.iter();
        let mut command = match (&options.shell, words.next()) {
            (Some(line), _) => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(line);
                command
            }
            (None, Some(program)) => Command::new(program),
            (None, None) => return Err(Failure::usage("there is no command")),
        };
        command.args(words).process_group(0);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        guard.over(&mut command);
        end_with_us(&mut command);
        let terminal = Terminal::open();
        // before there is one: what comes in between waits in line, and none is lost
        events.begin_passing_on();
        // by this very thread, which lives as long as the process: on Linux the command ends with the thread that made it
        let spawned = command.spawn().map_err(|error| cannot_run(&command, &error))?;
        let id = Pid::from_child(&spawned);
        let mut child = Child { id, terminal, had_terminal: false, is_stopped: false, until: None, has_to_end: false };
        if Terminal::is_for_the_command() {
            child.give_terminal();
        }
        attend(id, events.sender());
        Ok(child)
    }

    /// When it is killed, if it has to end.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn pass_on(&mut self, signal: i32) {
        if signal == SIGCONT {
            // if the shell has brought us to the foreground again, and not to the background
            if self.had_terminal || Terminal::is_for_the_command() {
                self.give_terminal();
            }
            self.go_on();
        } else if let Some(named) = Signal::from_named_raw(signal) {
            self.send(named);
            // one that is stopped would not see it
            if self.is_stopped && matches!(signal, SIGTERM | SIGHUP | SIGINT | SIGQUIT) {
                self.go_on();
            }
        }
    }

    /// It was stopped: for the sake of the terminal, or as the whole job.
    pub(super) fn stopped(&mut self, signal: i32) {
        self.is_stopped = true;
        if self.terminal.is_none() {
            return;
        }
        let keys = self.keys();
        let asks = matches!(signal, SIGTTIN | SIGTTOU);
        // the command's already: it asked for it before it was given, and this is told only now
        if asks && (keys == Keys::Command || self.give_terminal()) {
            self.go_on();
            return;
        }
        self.take_back(keys);
        // a `run` in between stops by the latter
        if keys == Keys::Command && matches!(signal, SIGTSTP | SIGSTOP) {
            tell_group(SIGTSTP);
        }
        // the shell is to see that its job has stopped; when it goes on, so do we, and see whether the lock is still ours. A
        // `run` around us is to see why; to a session of ours alone nobody would bring the terminal
        let why = Signal::from_named_raw(signal).filter(|_| asks && is_of_parents_session());
        let _ = kill_process(rustix::process::getpid(), why.unwrap_or(Signal::STOP));
    }

    /// Gives it the terminal if that is ours to give; whether it was.
    fn give_terminal(&mut self) -> bool {
        let give = |terminal: &Terminal| terminal.keys(None) == Keys::Us && terminal.give(self.id);
        let worked = self.terminal.as_ref().is_some_and(give);
        self.had_terminal |= worked;
        worked
    }

    fn take_back(&self, keys: Keys) {
        if let Some(terminal) = self.terminal.as_ref().filter(|_| keys == Keys::Command) {
            terminal.take_back();
        }
    }

    fn keys(&self) -> Keys {
        self.terminal.as_ref().map_or(Keys::Others, |terminal| terminal.keys(Some(self.id)))
    }

    fn go_on(&mut self) {
        self.is_stopped = false;
        self.send(Signal::CONT);
    }

    /// Whether it was ended by us.
    pub(super) fn had_to_end(&self) -> bool {
        self.has_to_end
    }

    /// It has to end. Who says so twice gives it no more time.
    pub(super) fn end_within(&mut self, grace: Duration) {
        if self.has_to_end {
            return;
        }
        self.has_to_end = true;
        self.until = Some(Instant::now() + grace);
        self.send(Signal::TERM);
        // one that was stopped ends, too
        self.go_on();
    }

    /// The grace is over.
    pub(super) fn kill(&mut self) {
        self.until = None;
        self.send(Signal::KILL);
    }

    /// It has ended: whom the keys reached then. If it had to end, nothing that it started goes on without the lock.
    pub(super) fn ended(&mut self) -> Keys {
        let keys = self.keys();
        self.take_back(keys);
        if self.has_to_end && !self.is_gone_by(self.until.unwrap_or_else(Instant::now)) {
            self.send(Signal::KILL);
            // what the kernel does not end at once, it may not end for long
            if !self.is_gone_by(Instant::now() + AFTER_KILL) {
                say("some of what the command has started was killed and has not ended");
            }
        }
        // what it never had, it has not changed
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.has_to_end && self.had_terminal) {
            terminal.restore();
        }
        keys
    }

    /// Waits for the end of everything that belongs to it.
    fn is_gone_by(&self, until: Instant) -> bool {
        while test_kill_process_group(self.id) != Err(Errno::SRCH) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        true
    }

    fn send(&self, signal: Signal) {
        // one that has gone meanwhile needs none
        let _ = kill_process_group(self.id, signal);
    }
}

/// Tells what becomes of a process, until it has ended. As the first process of a container we are the parent of every orphan
/// there, too, and whoever ends has to be waited for.
fn attend(id: Pid, events: Sender<Event>) {
    let whom = (!rustix::process::getpid().is_init()).then_some(id);
    std::thread::spawn(move || {
        loop {
            let found = match whom {
                Some(id) => waitpid(Some(id), WaitOptions::UNTRACED),
                None => wait(WaitOptions::UNTRACED),
            };
            let status = match found {
                Ok(Some((ended, status))) if ended == id => Some(status),
                Ok(_) | Err(Errno::INTR) => continue,
                // it is gone, and nobody knows how
                Err(_) => None,
            };
            let numbers =
                status.map(|status| (status.stopping_signal(), status.exit_status(), status.terminating_signal()));
            let event = match numbers {
                Some((Some(signal), _, _)) => Event::Stopped(signal),
                Some((_, Some(code), _)) => Event::Ended(Status::Other(code as u8)),
                Some((_, _, Some(signal))) => Event::Ended(Status::Signal(signal as u8)),
                _ => Event::Ended(Status::Software),
            };
            let over = matches!(event, Event::Ended(_));
            if events.send(event).is_err() || over {
                break;
            }
        }
        // the orphans, until there is none
        while whom.is_none() && !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    });
}

/// The command is killed when we are, whoever does that.
#[cfg(target_os = "linux")]
fn end_with_us(command: &mut Command) {
    use rustix::process::{getpid, set_parent_process_death_signal};
    let us = getpid();
    let before = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // killed before that was said
        if getppid() == Some(us) { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: the closure makes two system calls and no more: no lock, no memory.
    unsafe { command.pre_exec(before) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_us(_: &mut Command) {}

/// Whether there may be somebody above us who watches which of its jobs stop, and why.
fn is_of_parents_session() -> bool {
    let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    // SAFETY: asks for two numbers; 0 is one of outside of our PID namespace.
    parent != 0 && unsafe { libc::getsid(parent) == libc::getsid(0) }
}

fn cannot_run(command: &Command, error: &io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(Status::Other(127), format!("{program}: there is no such command")),
        _ => Failure::new(Status::Other(126), format!("{program}: the command cannot be run: {error}")),
    }
}
