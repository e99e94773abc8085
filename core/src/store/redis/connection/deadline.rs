//! The deadline of a blocking call, which an interrupt may end earlier.

use std::time::Duration;

use super::socket::NO_REPLY;
use crate::machine::Time;
use crate::store::Interrupt;
use crate::sys::clock;

/// How often a waiting caller's deadline and interrupt are checked.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// When a blocking call must end, and what may end it earlier.
#[derive(Clone, Copy)]
pub(crate) struct Deadline<'a> {
    pub(crate) until: Time,
    pub(crate) interrupt: &'a dyn Interrupt,
}

impl Deadline<'_> {
    /// The time left, or the reason why there is none.
    pub(crate) fn check(&self) -> Result<Duration, &'static str> {
        if self.interrupt.interrupted() {
            return Err("the caller was interrupted");
        }
        match self.until.since(clock::now()) {
            Duration::ZERO => Err(NO_REPLY),
            left => Ok(left),
        }
    }
}
