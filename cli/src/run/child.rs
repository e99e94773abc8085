//! The command as a process: a group of its own, which ends with us.

#![allow(unsafe_code, reason = "what a new process does before it becomes the command, `std` offers as unsafe only")]

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, test_kill_process_group, waitpid};
use signal_hook::consts::{SIGCONT, SIGTTIN, SIGTTOU};

use super::events::{Event, Events};
use super::terminal::Terminal;
use crate::arguments::Run;
use crate::status::{Failure, Status};

/// How often it is looked whether a group that was ended is gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Child {
    /// Its number, which is that of its group as well.
    id: Pid,
    terminal: Option<Terminal>,
    /// When it is killed.
    until: Option<Instant>,
}

impl Child {
    pub(super) fn spawn(
        options: &Run,
        environment: &[(&'static str, OsString)],
        events: &Events,
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
        command.args(words).process_group(0).envs(environment.iter().map(|(name, value)| (name, value)));
        end_with_us(&mut command);
        let terminal = Terminal::ours();
        // by this very thread, which lives as long as the process: on Linux the command ends with the thread that made it
        let spawned = command.spawn().map_err(|error| cannot_run(&command, &error))?;
        let id = Pid::from_child(&spawned);
        let child = Child { id, terminal, until: None };
        if child.terminal.is_some() && Terminal::is_for_the_command() {
            Terminal::give(id);
        }
        attend(id, events.sender());
        events.begin_passing_on();
        Ok(child)
    }

    /// How long to wait for the next event, if not for ever.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
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

    pub(super) fn end_within(&mut self, grace: Duration) {
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

    /// It has ended. Of what it started, nothing goes on without the lock if that was lost.
    pub(super) fn ended(&mut self, lost: bool) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
        if lost {
            let until = self.until.unwrap_or_else(Instant::now);
            while test_kill_process_group(self.id).is_ok() {
                if Instant::now() >= until {
                    self.send(Signal::KILL);
                    return;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
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
                Ok(None) | Err(rustix::io::Errno::INTR) => continue,
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
