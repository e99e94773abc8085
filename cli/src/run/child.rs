//! The command as a process: a group of its own, which ends with us.

#![allow(unsafe_code, reason = "a call of the system for which the safe wrappers would be one more dependency")]

use std::ffi::OsStr;
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getppid, kill_process_group, test_kill_process_group, wait};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU};

use super::Environment;
use super::events::Events;
use super::guard::{Guard, NotStarted, Prepared};
use super::telling::Telling;
use super::terminal::{Keys, Terminal, tell_group};
use crate::arguments::Run;
use crate::status::{Failure, Status};

/// How often it is looked whether a group is gone over which no guard watches any more.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long it is waited for what was killed.
const AFTER_KILL: Duration = Duration::from_secs(5);

pub(super) struct Child {
    /// Its number, which is that of its group as well.
    id: Pid,
    guard: Guard,
    terminal: Option<Terminal>,
    /// It has been given the terminal, now or before.
    had_terminal: bool,
    is_stopped: bool,
    /// How often it was.
    stops: i32,
    /// When it is killed.
    until: Option<Instant>,
    /// It does not run to its own end.
    has_to_end: bool,
}

impl Child {
    pub(super) fn spawn(options: &Run, environment: &Environment, events: &Events) -> Result<Child, Failure> {
        let words: Vec<&OsStr> = match &options.shell {
            Some(line) => vec![OsStr::new("/bin/sh"), OsStr::new("-c"), line],
            None => options.command.iter().map(OsStr::new).collect(),
        };
        let Some(program) = words.first() else { return Err(Failure::usage("there is no command")) };
        let no_process = |error: io::Error| Failure::new(Status::Software, format!("no process can be made: {error}"));
        let prepared = Prepared::new(&words, environment).map_err(|error| cannot_run(program, &error))?;
        let (start, started) = channel();
        let is_first = rustix::process::getpid().is_init();
        if is_first {
            let orphans = std::thread::Builder::new().name("orphans".to_owned());
            orphans.spawn(move || wait_for_orphans(&started)).map_err(no_process)?;
        }
        let terminal = Terminal::open();
        // before there is one: what comes in between waits in line, and none is lost
        events.begin_passing_on();
        let is_ours = |terminal: &&Terminal| Terminal::is_for_the_command() && terminal.keys(None) == Keys::Us;
        let given = terminal.as_ref().filter(is_ours);
        let had_terminal = given.is_some();
        let (guard, id) = Guard::start(&prepared, given, events.sender()).map_err(|why| {
            given.inspect(|terminal| terminal.take_back());
            match why {
                NotStarted::NoProcess(error) => no_process(error),
                NotStarted::NoProgram(error) => cannot_run(program, &error),
            }
        })?;
        let _ = start.send(());
        Ok(Child { id, guard, terminal, had_terminal, is_stopped: false, stops: 0, until: None, has_to_end: false })
    }

    /// When it is killed, if it has to end.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn pass_on(&mut self, signal: i32) {
        if signal == SIGCONT {
            self.give_back();
            self.go_on();
        } else if let Some(named) = Signal::from_named_raw(signal) {
            self.send(named);
            // one that is stopped would not see it
            if self.is_stopped && matches!(signal, SIGTERM | SIGHUP | SIGINT | SIGQUIT) {
                self.go_on();
            }
        }
    }

    /// Gives it the terminal if the shell has brought us to the foreground again, and not to the background.
    pub(super) fn give_back(&mut self) {
        if self.had_terminal || Terminal::is_for_the_command() {
            self.give_terminal();
        }
    }

    /// It was stopped: for the sake of the terminal, or as the whole job.
    pub(super) fn stopped(&mut self, signal: i32) {
        self.is_stopped = true;
        self.stops = self.stops.wrapping_add(1);
        // one that has to end is killed, stopped or not, and that is for us to do
        if self.terminal.is_none() || self.has_to_end {
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
        // `run` around us is to see why; to a session of ours alone nobody would bring the terminal. If somebody wakes or ends
        // the command alone, the guard wakes us
        let why = Signal::from_named_raw(signal).filter(|_| asks && is_of_parents_session());
        self.guard.stop_us(why.unwrap_or(Signal::STOP), self.stops);
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
        self.guard.will_end();
        self.send(Signal::TERM);
        self.guard.send_beyond(self.id, Signal::TERM);
        // one that was stopped ends, too
        self.go_on();
        self.guard.send_beyond(self.id, Signal::CONT);
    }

    /// The grace is over.
    pub(super) fn kill(&mut self) {
        self.until = None;
        self.guard.kill();
    }

    /// It has ended: whom the keys reached then. If it had to end, nothing that it started goes on without the lock.
    pub(super) fn ended(&mut self, events: &Events, telling: &Telling) -> Keys {
        let keys = self.keys();
        self.take_back(keys);
        if self.has_to_end {
            let is_gone = |until| events.is_gone_by(until);
            if !is_gone(self.until.unwrap_or_else(Instant::now)) {
                self.guard.kill();
                // what the kernel does not end at once, it may not end for long
                if !is_gone(Instant::now() + AFTER_KILL) {
                    let text = "some of what the command has started was killed and has not ended";
                    telling.say(text.to_owned());
                }
            }
            // what it never had, it has not changed
            if let Some(terminal) = self.terminal.as_ref().filter(|_| self.had_terminal) {
                terminal.restore();
            }
        }
        self.guard.dismiss();
        keys
    }

    /// Nobody watches over it any more: it has ended, and what it has started in its group is to.
    pub(super) fn unguarded(&mut self) -> Keys {
        let keys = self.keys();
        self.take_back(keys);
        self.send(Signal::KILL);
        let until = Instant::now() + AFTER_KILL;
        while test_kill_process_group(self.id) != Err(Errno::SRCH) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        keys
    }

    /// What is to be waited for at the very end.
    pub(super) fn into_guard(self) -> Guard {
        self.guard
    }

    fn send(&self, signal: Signal) {
        // one that has gone meanwhile needs none
        let _ = kill_process_group(self.id, signal);
    }
}

/// As the first process of a container we are the parent of every orphan there that is none of the command's, and whoever ends
/// has to be waited for. From the beginning of the command until no child is left.
fn wait_for_orphans(started: &Receiver<()>) {
    if started.recv().is_ok() {
        while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    }
}

/// Whether there may be somebody above us who watches which of its jobs stop, and why.
fn is_of_parents_session() -> bool {
    let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    // SAFETY: asks for two numbers; 0 is one of outside of our PID namespace.
    parent != 0 && unsafe { libc::getsid(parent) == libc::getsid(0) }
}

fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(Status::Other(127), format!("{program}: there is no such command")),
        _ => Failure::new(Status::Other(126), format!("{program}: the command cannot be run: {error}")),
    }
}
