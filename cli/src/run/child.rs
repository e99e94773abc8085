//! The command as a process: a group of its own, which ends with us.

#![allow(unsafe_code, reason = "a call of the system for which the safe wrappers would be one more dependency")]

use std::ffi::OsStr;
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, wait};
use signal_hook::consts::{SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};

use super::Environment;
use super::events::{Events, Rest};
use super::guard::{Guard, NotStarted, Prepared, Process};
use super::telling::Telling;
use super::terminal::{Keys, Terminal, tell_group};
use crate::arguments::Run;
use crate::status::{Failure, Status};

/// How long it is waited for what was killed.
const AFTER_KILL: Duration = Duration::from_secs(5);

pub(super) struct Child {
    /// Its number, which is that of its group as well.
    id: Pid,
    guard: Guard,
    terminal: Option<Terminal>,
    /// It has been given the terminal, now or before.
    had_terminal: bool,
    /// How often it was stopped.
    stops: i32,
    /// What was stopped for its sake, in its group and beyond.
    stopped_with_it: Vec<Process>,
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
        if getpid().is_init() {
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
        events.guarded_by(guard.id());
        let _ = start.send(());
        let stopped_with_it = Vec::new();
        Ok(Child { id, guard, terminal, had_terminal, stops: 0, stopped_with_it, until: None, has_to_end: false })
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
            self.guard.send(named);
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
        // no signal stops the first process of a container, and nobody is there who would bring the job back
        if getpid().is_init() {
            if signal == SIGTSTP {
                self.go_on();
            }
            return;
        }
        // the lock is renewed no more: what has not stopped would work without it
        self.stopped_with_it.extend(self.guard.stop_all_but(self.id));
        self.take_back(keys);
        // a `run` in between stops by the latter
        let is_for_all = keys == Keys::Command && matches!(signal, SIGTSTP | SIGSTOP);
        let around = is_for_all.then(own_group).flatten();
        if is_for_all && around.is_none() {
            tell_group(SIGTSTP);
        }
        // the shell is to see that its job has stopped; when it goes on, so do we, and see whether the lock is still ours. A
        // `run` around us is to see why; to a session of ours alone nobody would bring the terminal. If somebody wakes or ends
        // the command alone, the guard wakes us
        let why = Signal::from_named_raw(signal).filter(|_| asks && is_of_parents_session());
        self.guard.stop_us(why.unwrap_or(Signal::STOP), self.stops, around);
    }

    /// It goes on: somebody has woken it, or we have.
    pub(super) fn continued(&mut self) {
        self.give_back();
        self.wake_the_rest();
    }

    /// Whatever it was that had started a process has perhaps not been told yet that this one was stopped: it is to go on last.
    fn wake_the_rest(&mut self) {
        for process in self.stopped_with_it.drain(..).rev() {
            process.send(Signal::CONT);
        }
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
        self.wake_the_rest();
        self.guard.send(Signal::CONT);
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
        self.guard.send(Signal::TERM);
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
        self.wake_the_rest();
        if self.has_to_end {
            let mut rest = events.rest_by(self.until.unwrap_or_else(Instant::now), true);
            if rest == Rest::Left {
                self.guard.kill();
                // what the kernel does not end at once, it may not end for long
                rest = events.rest_by(Instant::now() + AFTER_KILL, false);
            }
            self.leave(rest, telling);
        }
        self.guard.dismiss();
        keys
    }

    /// Nobody watches over it any more: it has ended, and what it has started is to.
    pub(super) fn unguarded(&mut self, telling: &Telling) -> Keys {
        let keys = self.keys();
        self.take_back(keys);
        self.leave(Rest::Unguarded, telling);
        keys
    }

    /// Nothing of it is to go on without the lock, and the terminal is to be as it was.
    fn leave(&mut self, rest: Rest, telling: &Telling) {
        let is_gone = match rest {
            Rest::Gone => true,
            Rest::Left => false,
            Rest::Unguarded => self.guard.kill_what_it_left(self.id, Instant::now() + AFTER_KILL),
        };
        if !is_gone {
            telling.say("some of what the command has started was killed and has not ended".to_owned());
        }
        // what it never had, it has not changed
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.had_terminal) {
            terminal.restore();
        }
    }

    /// What is to be waited for at the very end.
    pub(super) fn into_guard(self) -> Guard {
        self.guard
    }
}

/// Our group, if it has a number in our PID namespace, and if we know a signal that the guard has sent to it.
fn own_group() -> Option<Pid> {
    // SAFETY: asks for a number.
    Pid::from_raw(unsafe { libc::getpgrp() }).filter(|_| cfg!(target_os = "linux"))
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
