//! What clients saw, as lines of JSON that any language can write, and the check that it was right.
//!
//! Every process appends to a file of its own, one line per event, written before the next step is taken; so the file
//! of a killed process is complete up to its end. All times are nanoseconds of [`boot_ns`](crate::clock::boot_ns),
//! which all processes of the machine share. [`check()`] reads the files of one run together.
//!
//! ```text
//! {"event":"call","process":"py-1","call":1,"op":"acquire","lock":"a","at_ns":100,"limit_ns":5000}
//! {"event":"return","process":"py-1","call":1,"at_ns":180,"outcome":"ok","lease":1,"token":7,"valid_until_ns":900}
//! {"event":"sample","process":"py-1","lease":1,"at_ns":400,"held":true,"valid_until_ns":1300}
//! {"event":"call","process":"py-1","call":2,"op":"release","lock":"a","lease":1,"at_ns":500,"limit_ns":3000}
//! {"event":"return","process":"py-1","call":2,"at_ns":560,"outcome":"Released"}
//! {"event":"end","process":"py-1","at_ns":600}
//! ```

mod check;
mod intervals;
mod leases;
mod report;

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use check::{Limits, check};
pub use report::{Check, Report, Summary, Violation};

/// One event, one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Record {
    /// A call begins. Written before the library is entered.
    Call(Call),
    /// A call has ended.
    Return(Return),
    /// A holder looked whether it still holds.
    Sample(Sample),
    /// The loss event of a lease has fired.
    Lost {
        /// Whose lease.
        process: String,
        /// Which lease of that process.
        lease: u64,
        /// When the event fired.
        at_ns: u64,
    },
    /// Something stopped the process for a while (written by whoever did it). What is late because of it is excused.
    Paused {
        /// Which process.
        process: String,
        /// When it was stopped.
        from_ns: u64,
        /// When it could run on.
        to_ns: u64,
    },
    /// The process has come to its orderly end: all its calls must have returned.
    End {
        /// Which process.
        process: String,
        /// When.
        at_ns: u64,
    },
}

/// The beginning of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Who calls.
    pub process: String,
    /// Numbers the calls of the process.
    pub call: u64,
    /// What is called: `acquire`, `try_acquire`, `extend`, `release` ...; the moment of a `release` ends the hold.
    pub op: String,
    /// The lock.
    pub lock: String,
    /// The lease that is extended or released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<u64>,
    /// When, just before the library was entered.
    pub at_ns: u64,
    /// How long the call may take: its wait and the time limits that it was given. `None` if it may wait for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ns: Option<u64>,
}

/// The end of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Return {
    /// Who called.
    pub process: String,
    /// Which call.
    pub call: u64,
    /// When, just after the library was left.
    pub at_ns: u64,
    /// `ok`, or the name of the error kind or of the release's answer.
    pub outcome: String,
    /// A granted lease. Its number is new in that process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<u64>,
    /// The fencing token of that lease, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Until when the lease may be believed, after a grant or an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_ns: Option<u64>,
    /// The lease that this grant re-entered, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<u64>,
    /// With whom the lease may be held at the same time.
    #[serde(default, skip_serializing_if = "Mode::is_exclusive")]
    pub mode: Mode,
}

/// With whom a lease may be held at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// With nobody.
    #[default]
    Exclusive,
    /// With other shared leases: a reader.
    Shared,
    /// With so many in all: a permit of a semaphore.
    Permit(usize),
}

impl Mode {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    const fn is_exclusive(&self) -> bool {
        matches!(self, Mode::Exclusive)
    }
}

/// A look at a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Whose lease.
    pub process: String,
    /// Which lease of that process.
    pub lease: u64,
    /// When, just before the look.
    pub at_ns: u64,
    /// What the lease said.
    pub held: bool,
    /// Until when the lease said it may be believed, read after `held`: a renewal in between can then deceive nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until_ns: Option<u64>,
}

/// Appends to the history of one process.
pub struct Writer(File);

impl Writer {
    /// Opens or creates the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// Appends one line. It is out of this process when this returns.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// Reads the history of one process. A last line that was cut short by a kill is left out; any other is an error.
pub fn read(path: &Path) -> io::Result<Vec<Record>> {
    let text = std::fs::read_to_string(path)?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| io::Error::other(format!("{}:{}: {error}: {line}", path.display(), number + 1)))
    };
    complete.lines().enumerate().map(parse).collect()
}
