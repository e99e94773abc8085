//! One of several requests on a connection: whether it was sent, and what came of it.

use std::future::poll_fn;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use redis::Value;

use crate::machine::{Outcome, Time};

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Ending {
    /// This, at that time.
    Came(Outcome<Value>, Time),
    /// Not a byte of it left.
    Unsent,
}

/// What connection and caller know of a request.
pub(crate) struct Ticket {
    /// When it was handed in.
    pub(crate) since: Time,
    stage: Mutex<Stage>,
}

enum Stage {
    Queued(Option<Waker>),
    Sent(Option<Waker>),
    Ended(Ending),
    /// The caller has gone.
    Left,
}

/// The caller stops waiting when this is dropped.
pub(crate) struct Waiting<'a>(pub(crate) &'a Ticket);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Ticket {
    /// Queued.
    pub(crate) fn new(since: Time) -> Ticket {
        Ticket { since, stage: Mutex::new(Stage::Queued(None)) }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is sent now. False when nobody wants that any more.
    pub(crate) fn depart(&self) -> bool {
        let mut stage = self.stage();
        match mem::replace(&mut *stage, Stage::Left) {
            Stage::Queued(waker) => *stage = Stage::Sent(waker),
            Stage::Left => return false,
            other => *stage = other,
        }
        true
    }

    /// It has ended. Whoever is to be woken for that.
    pub(crate) fn end(&self, ending: Ending) -> Option<Waker> {
        let mut stage = self.stage();
        match mem::replace(&mut *stage, Stage::Left) {
            Stage::Queued(waker) | Stage::Sent(waker) => {
                *stage = Stage::Ended(ending);
                waker
            }
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> Ending {
        let ended = poll_fn(|context| {
            let mut stage = self.stage();
            match mem::replace(&mut *stage, Stage::Left) {
                Stage::Ended(ending) => return Poll::Ready(ending),
                Stage::Queued(_) => *stage = Stage::Queued(Some(context.waker().clone())),
                Stage::Sent(_) => *stage = Stage::Sent(Some(context.waker().clone())),
                Stage::Left => {}
            }
            Poll::Pending
        });
        ended.await
    }

    /// The caller goes: how it has ended, `Unsent` if it is not to be sent any more, and nothing when it was sent.
    pub(crate) fn leave(&self) -> Option<Ending> {
        match mem::replace(&mut *self.stage(), Stage::Left) {
            Stage::Ended(ending) => Some(ending),
            Stage::Queued(_) => Some(Ending::Unsent),
            Stage::Sent(_) | Stage::Left => None,
        }
    }
}
