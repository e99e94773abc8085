//! A request on a connection that many tasks share, from its submission to its completion.

use std::future::poll_fn;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use redis::Value;

use crate::machine::{Outcome, Time};

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Completion {
    /// This outcome, at that time.
    Received(Outcome<Value>, Time),
    /// No byte of it was sent.
    NotSent,
}

/// What the connection and the caller share about a request.
pub(crate) struct PendingRequest {
    /// When it was submitted.
    pub(crate) submitted_at: Time,
    /// Whether it is sent even if it was abandoned: what was queued before it is meant for it.
    sent_anyway: bool,
    state: Mutex<RequestState>,
}

enum RequestState {
    Queued(Option<Waker>),
    Sent(Option<Waker>),
    Completed(Completion),
    /// The caller has gone.
    Abandoned,
}

/// Abandons the request when dropped.
pub(crate) struct AbandonOnDrop<'a>(pub(crate) &'a PendingRequest);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Leaves the request to itself when dropped.
pub(crate) struct LeaveOnDrop<'a>(pub(crate) &'a PendingRequest);

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl PendingRequest {
    /// A queued request.
    pub(crate) fn new(since: Time) -> PendingRequest {
        PendingRequest { submitted_at: since, sent_anyway: false, state: Mutex::new(RequestState::Queued(None)) }
    }

    /// A queued request that is sent even if it is abandoned, and counts as sent at once.
    pub(crate) fn sent_anyway(since: Time) -> PendingRequest {
        PendingRequest { submitted_at: since, sent_anyway: true, state: Mutex::new(RequestState::Sent(None)) }
    }

    fn state(&self) -> MutexGuard<'_, RequestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to be sent.
    pub(crate) fn is_wanted(&self) -> bool {
        self.sent_anyway || !matches!(*self.state(), RequestState::Abandoned)
    }

    /// Marks it as sent. False when it was abandoned.
    pub(crate) fn mark_sent(&self) -> bool {
        let mut state = self.state();
        match mem::replace(&mut *state, RequestState::Abandoned) {
            RequestState::Queued(waker) => *state = RequestState::Sent(waker),
            RequestState::Abandoned => return self.sent_anyway,
            other => *state = other,
        }
        true
    }

    /// Completes it. Returns the waker of the caller.
    pub(crate) fn complete(&self, completion: Completion) -> Option<Waker> {
        let mut state = self.state();
        match mem::replace(&mut *state, RequestState::Abandoned) {
            RequestState::Queued(waker) | RequestState::Sent(waker) => {
                *state = RequestState::Completed(completion);
                waker
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Waits for its completion.
    pub(crate) async fn completed(&self) -> Completion {
        let ended = poll_fn(|context| {
            let mut state = self.state();
            match mem::replace(&mut *state, RequestState::Abandoned) {
                RequestState::Completed(completion) => return Poll::Ready(completion),
                RequestState::Queued(_) => *state = RequestState::Queued(Some(context.waker().clone())),
                RequestState::Sent(_) => *state = RequestState::Sent(Some(context.waker().clone())),
                RequestState::Abandoned => {}
            }
            Poll::Pending
        });
        ended.await
    }

    /// The caller stops waiting, and what is queued is sent all the same: one of several servers that a lock is asked
    /// of still takes it when the others have settled the matter.
    fn leave(&self) {
        let mut state = self.state();
        match &*state {
            RequestState::Queued(_) | RequestState::Sent(_) => *state = RequestState::Sent(None),
            RequestState::Completed(_) | RequestState::Abandoned => {}
        }
    }

    /// The caller stops waiting if it is still queued, and it is not sent: whether it was.
    pub(crate) fn abandon_queued(&self) -> bool {
        let mut state = self.state();
        let queued = matches!(*state, RequestState::Queued(_));
        if queued {
            *state = RequestState::Abandoned;
        }
        queued
    }

    /// The caller stops waiting, and what is queued is not sent: its completion if it has ended, `NotSent` if it is
    /// still queued, `None` when it was sent.
    pub(crate) fn abandon(&self) -> Option<Completion> {
        match mem::replace(&mut *self.state(), RequestState::Abandoned) {
            RequestState::Completed(completion) => Some(completion),
            RequestState::Queued(_) => Some(Completion::NotSent),
            RequestState::Sent(_) | RequestState::Abandoned => None,
        }
    }
}

/// Wakes the callers of completed requests. No lock of the connection may be held, since they may use it at once.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        waker.wake();
    }
}
