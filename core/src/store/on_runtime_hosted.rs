//! A call of a thread that waits: a host that is an event loop has none.

use super::{Boxed, Interrupt};
use crate::error::ErrorKind;
use crate::machine::{Answer, Failure, Outcome, Time};
use crate::sys::clock;

/// Refuses.
pub(crate) fn wait(_: impl FnOnce() -> Boxed<Answer>, _: Time, _: &dyn Interrupt) -> Answer {
    let now = clock::now();
    let outcome = Outcome::NotApplied(Failure::lasting(ErrorKind::Unsupported, "nothing may wait in this host"));
    Answer { sent_at: now, received_at: now, connection: 0, server_time_us: None, outcome }
}
