//! The command as a process: a group of its own, which ends with us.

#![allow(unsafe_code, reason = "what a new process does before it becomes the command, `std` offers as unsafe only")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process_group, waitpid};
use signal_hook::consts::{SIGCONT, SIGTTIN, SIGTTOU};

use super::Environment;
use super::events::{Event, Events};
use super::guard::Guard;
use super::terminal::Terminal;
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
        let terminal = Terminal::ours();
        // by this very thread, which lives as long as the process: on Linux the command ends with the thread that made it
        let spawned = command.spawn().map_err(|error| cannot_run(&command, &error))?;
        let id = Pid::from_child(&spawned);
        let child = Child { id, terminal, until: None, has_to_end: false };
        if child.terminal.is_some() && Terminal::is_for_the_command() {
            Terminal::give(id);
        }
        attend(id, events.sender());
        events.begin_passing_on();
        Ok(child)
    }

    /// When it is killed, if it has to end.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn pass_on(&self, signal: i32) {
        if signal == SIGCONT
            && let Some(terminal) = &self.terminal
        {
            terminal.give_again(self.id);
        }
        if let Some(signal) = Signal::from_named_raw(signal) {
            self.send(signal);
        }
    }

    /// It was stopped: for the sake of the terminal, or as the whole job.
    pub(super) fn stopped(&self, signal: i32) {
        let Some(terminal) = &self.terminal else { return };
        // the command's already: it asked for it before it was given, and this is told only now
        if matches!(signal, SIGTTIN | SIGTTOU) && (terminal.is_ours() || Terminal::is_of(self.id)) {
            Terminal::give(self.id);
            self.send(Signal::CONT);
            return;
        }
        terminal.take_back();
        // the shell is to see that its job has stopped; when it goes on, so do we, and see whether the lock is still ours
        let _ = kill_process(rustix::process::getpid(), Signal::STOP);
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
        self.send(Signal::CONT);
    }

    /// The grace is over.
    pub(super) fn kill(&mut self) {
        self.until = None;
        self.send(Signal::KILL);
    }

    /// It has ended. If it had to, nothing that it started goes on without the lock.
    pub(super) fn ended(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
        if self.has_to_end && !self.is_gone_by(self.until.unwrap_or_else(Instant::now)) {
            self.send(Signal::KILL);
            // what the kernel does not end at once, it may not end for long
            if !self.is_gone_by(Instant::now() + AFTER_KILL) {
                say("some of what the command has started was killed and has not ended");
            }
        }
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

/// Tells what becomes of a process, until it has ended.
fn attend(id: Pid, events: Sender<Event>) {
    std::thread::spawn(move || {
        loop {
            let event = match waitpid(Some(id), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) => match (status.stopping_signal(), status.exit_status()) {
                    (Some(signal), _) => Event::Stopped(signal),
                    (None, Some(code)) => Event::Ended(code as u8),
                    (None, None) => Event::Ended(128 + status.terminating_signal().unwrap_or_default() as u8),
                },
                Ok(None) | Err(Errno::INTR) => continue,
                // it is gone, and nobody knows how
                Err(_) => Event::Ended(Status::Software.number()),
            };
            let over = matches!(event, Event::Ended(_));
            if events.send(event).is_err() || over {
                return;
            }
        }
    });
}

/// The command is killed when we are, whoever does that.
#[cfg(target_os = "linux")]
fn end_with_us(command: &mut Command) {
    use rustix::process::{getpid, getppid, set_parent_process_death_signal};
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

fn cannot_run(command: &Command, error: &io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(Status::Other(127), format!("{program}: there is no such command")),
        _ => Failure::new(Status::Other(126), format!("{program}: the command cannot be run: {error}")),
    }
}
