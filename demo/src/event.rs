//! What a worker reports: one line of text each, over its standard output.

use std::fmt;
use std::str::FromStr;

/// A step of a worker. Times are microseconds of [`crate::clock`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It holds the lock (checked after `at` was read) and has waited since `since`.
    Entered { at: u64, since: u64, token: u64 },
    /// It was asked to stay in the middle of its work, and does.
    Stalled,
    /// It goes on after having been stopped: what `is_held()` says then.
    Woke { at: u64, held: bool },
    /// The counter was written; `at` is when `is_held()` was last true before it.
    Wrote { at: u64 },
    /// The ledger refused the write, because it has seen the higher token `highest`.
    Refused { highest: u64 },
    /// The lease was lost, and the worker stopped without writing.
    Lost,
    /// It releases the lock; nothing is held from `at` on.
    Left { at: u64 },
    /// It cannot go on.
    Failed(String),
    /// Its output has ended.
    Gone,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Entered { at, since, token } => write!(f, "entered {at} {since} {token}"),
            Event::Stalled => write!(f, "stalled"),
            Event::Woke { at, held } => write!(f, "woke {at} {}", u8::from(*held)),
            Event::Wrote { at } => write!(f, "wrote {at}"),
            Event::Refused { highest } => write!(f, "refused {highest}"),
            Event::Lost => write!(f, "lost"),
            Event::Left { at } => write!(f, "left {at}"),
            Event::Failed(why) => write!(f, "failed {}", why.replace('\n', " ")),
            Event::Gone => write!(f, "gone"),
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(line: &str) -> Result<Event, String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "failed" {
            return Ok(Event::Failed(rest.to_owned()));
        }
        let numbers: Option<Vec<u64>> = rest.split_whitespace().map(|number| number.parse().ok()).collect();
        match (word, numbers.as_deref()) {
            ("entered", Some(&[at, since, token])) => Ok(Event::Entered { at, since, token }),
            ("stalled", Some([])) => Ok(Event::Stalled),
            ("woke", Some(&[at, held])) => Ok(Event::Woke { at, held: held == 1 }),
            ("wrote", Some(&[at])) => Ok(Event::Wrote { at }),
            ("refused", Some(&[highest])) => Ok(Event::Refused { highest }),
            ("lost", Some([])) => Ok(Event::Lost),
            ("left", Some(&[at])) => Ok(Event::Left { at }),
            ("gone", Some([])) => Ok(Event::Gone),
            _ => Err(format!("a worker said something odd: {line:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_the_same_after_the_way_through_the_pipe() {
        for event in [
            Event::Entered { at: 3, since: 2, token: 7 },
            Event::Stalled,
            Event::Woke { at: 4, held: false },
            Event::Wrote { at: 5 },
            Event::Refused { highest: 9 },
            Event::Lost,
            Event::Left { at: 6 },
            Event::Failed("no server".to_owned()),
            Event::Gone,
        ] {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        assert!("wrote soon".parse::<Event>().is_err());
    }
}
