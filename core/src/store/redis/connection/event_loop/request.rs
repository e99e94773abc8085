//! A request on a connection of an event loop, from its submission to its completion.

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

impl PendingRequest {
    /// A queued request.
    pub(crate) fn new(since: Time) -> PendingRequest {
        PendingRequest { submitted_at: since, state: Mutex::new(RequestState::Queued(None)) }
    }

    fn state(&self) -> MutexGuard<'_, RequestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks it as sent. False when it was abandoned.
    pub(crate) fn mark_sent(&self) -> bool {
        let mut state = self.state();
        match mem::replace(&mut *state, RequestState::Abandoned) {
            RequestState::Queued(waker) => *state = RequestState::Sent(waker),
            RequestState::Abandoned => return false,
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

    /// The caller stops waiting: its completion if it has ended, `NotSent` if it is still queued, `None` when it was
    /// sent.
    pub(crate) fn abandon(&self) -> Option<Completion> {
        match mem::replace(&mut *self.state(), RequestState::Abandoned) {
            RequestState::Completed(completion) => Some(completion),
            RequestState::Queued(_) => Some(Completion::NotSent),
            RequestState::Sent(_) | RequestState::Abandoned => None,
        }
    }
}
