//! `onelock`, the command: run a command under a lock, and see what is locked.
//!
//! | file | is |
//! |---|---|
//! | `arguments/` | every option, once: help, completion and man pages are made of it |
//! | `status` | the exit statuses |
//! | `span` | durations, as they are written and shown |
//! | `server` | the client, from the options that all subcommands share |
//! | `run/` | `run`: the lock, the command, and what passes between them |
//! | `list`, `inspect`, `free`, `release` | the other subcommands |
//! | `bench` | how fast locks are on a server |
//! | `doctor` | looking at the servers step by step |
//! | `export` | metrics of locks for Prometheus |
//! | `top/` | the locks of a server on the whole screen |
//! | `show` | locks for people and for programs |
//! | `columns`, `width` | tables and texts in the room that a terminal has |
//! | `generate` | completion and man pages |
//!
//! On standard output there is what was asked for, and nothing else. What goes wrong is told on standard error.

mod arguments;
mod bench;
mod columns;
mod doctor;
mod export;
mod free;
mod generate;
mod inspect;
mod list;
mod release;
mod run;
mod server;
mod show;
mod span;
mod status;
mod top;
mod width;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ErrorKind as Usage};

use crate::arguments::{Arguments, Subcommand};
use crate::status::{Failure, Status};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let result = match arguments.command {
        Subcommand::Run(options) => run::run(&options),
        Subcommand::List(options) => list::list(&options),
        Subcommand::Top(options) => top::top(&options),
        Subcommand::Inspect(options) => inspect::inspect(&options),
        Subcommand::Wait(options) => free::wait(&options),
        Subcommand::Release(options) => release::release(&options),
        Subcommand::ForceRelease(options) => release::force(&options),
        Subcommand::Doctor(options) => doctor::doctor(options),
        Subcommand::Bench(options) => bench::bench(options),
        Subcommand::Export(options) => export::export(&options),
        Subcommand::Completions(options) => generate::completions(&options),
        Subcommand::Man(options) => generate::man(&options),
    };
    match result {
        Ok(status) => status.into(),
        Err(failure) => {
            if let Some(text) = &failure.text {
                say(text);
            }
            failure.status.into()
        }
    }
}

/// Help and version are an answer; anything else is bad usage.
fn refuse(error: &clap::Error) -> ExitCode {
    let asked = matches!(error.kind(), Usage::DisplayHelp | Usage::DisplayVersion);
    // nobody is left to tell that nobody listens
    let _ = error.print();
    let is_option = error.get(ContextKind::InvalidArg).is_some_and(|word| word.to_string().starts_with('-'));
    if error.kind() == Usage::UnknownArgument && !is_option && lacks_separator(std::env::args_os().skip(1)) {
        say("the command stands behind `--`: onelock run NAME -- COMMAND");
    }
    if asked { Status::Done.into() } else { Status::Usage.into() }
}

/// Whether it is `run` with a command that follows the name as in `flock FILE COMMAND`.
fn lacks_separator(mut words: impl Iterator<Item = std::ffi::OsString>) -> bool {
    words.next().is_some_and(|word| word == "run") && !words.any(|word| word == "--")
}

/// Tells people something, on standard error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "onelock: {text}");
}

/// Writes to standard output. A reader who has gone away has read enough.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::of_output(&error))
}
