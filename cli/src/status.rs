//! How the command ends. The numbers are those of `sysexits.h` where it has one, and those behind its last otherwise: none
//! of them is a shell's (126, 127, and 128 and a signal's number).

use std::io;
use std::process::ExitCode;

use onelock::{Error, ErrorKind};

/// The exit statuses, as `onelock --help` and the man page list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// 0
    Done,
    /// 1: `inspect`, `force-release` and `release`: there was nothing. `doctor`: something endangers locks.
    Nothing,
    /// 64: the command line makes no sense.
    Usage,
    /// 69: no server could be reached, or too few of several.
    Unavailable,
    /// 70: anything else.
    Software,
    /// 75, or what `-E` says: held by another, and `--wait 0`.
    Busy,
    /// 77: user or password were refused, or the user may not do it.
    NotPermitted,
    /// 79, or what `-E` says: held by another for as long as `--wait` lasted.
    Timeout,
    /// 80: the lock was lost while the command ran, or it ran for too long; it was ended for that reason.
    Lost,
    /// Anything that another program said.
    Other(u8),
    /// 128 and the number of the signal that ended it.
    Signal(u8),
}

/// What they mean, for help and man pages.
pub(crate) const STATUSES: &str = "\
Exit status:
  of the command  run: what the command ended with; 128 and the number of the
                  signal that ended it (after Ctrl-C and Ctrl-\\, onelock itself
                  ends by that signal)
  0               done
  1               inspect, release, force-release: there was no such lock, or it
                  was over; doctor: locks work, but something endangers them
  64              the command line makes no sense
  69              the server is away, or too few of several servers answer
  70              any other error
  75              the lock is held by somebody else, and --wait is 0
                  (-E changes this)
  77              user or password are refused, or the user may not do it
  79              the lock was held by somebody else for as long as --wait
                  lasted (-E changes this)
  80              the lock was lost while the command ran, or it ran for longer
                  than --max-hold; the command was ended
  126, 127        run: the command cannot be run; there is no such command";

impl Status {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Status::Done => 0,
            Status::Nothing => 1,
            Status::Usage => 64,
            Status::Unavailable => 69,
            Status::Software => 70,
            Status::Busy => 75,
            Status::NotPermitted => 77,
            Status::Timeout => 79,
            Status::Lost => 80,
            Status::Other(number) => number,
            Status::Signal(number) => 128 + number,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status.number())
    }
}

impl From<ErrorKind> for Status {
    fn from(kind: ErrorKind) -> Status {
        use ErrorKind as K;
        match kind {
            K::Busy => Status::Busy,
            K::Timeout => Status::Timeout,
            K::Lost | K::NotHeld => Status::Lost,
            K::Unavailable | K::NoQuorum | K::ReadOnly | K::ServerRefused => Status::Unavailable,
            K::AuthFailed | K::NotPermitted => Status::NotPermitted,
            K::InvalidArgument | K::Unsupported | K::PermitsMismatch | K::WouldDeadlock => Status::Usage,
            _ => Status::Software,
        }
    }
}

/// Why it did not work, and what the command ends with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    /// What is told on standard error, if anything.
    pub(crate) text: Option<String>,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Failure {
        Failure { status, text: Some(text.into()) }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure::new(Status::Usage, text)
    }

    /// Standard output does not take any more.
    pub(crate) fn of_output(error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { status: Status::Done, text: None };
        }
        Failure::new(Status::Software, format!("standard output cannot be written: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(error.kind().into(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_status_is_a_shells_and_each_is_its_own() {
        let all = [
            Status::Done,
            Status::Nothing,
            Status::Usage,
            Status::Unavailable,
            Status::Software,
            Status::Busy,
            Status::NotPermitted,
            Status::Timeout,
            Status::Lost,
        ];
        let mut numbers: Vec<u8> = all.iter().map(|status| status.number()).collect();
        assert!(numbers.iter().all(|number| *number < 126 && *number != 2));
        for number in &numbers {
            assert!(STATUSES.contains(&format!("\n  {number} ")), "{number}");
        }
        numbers.dedup();
        assert_eq!(numbers.len(), all.len());
    }

    #[test]
    fn every_kind_of_error_has_a_status() {
        for kind in ErrorKind::ALL {
            assert_ne!(Status::from(kind), Status::Done, "{kind:?}");
        }
    }
}
