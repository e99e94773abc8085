//! The queue of messages for one JavaScript thread: any thread adds to it, and the bridge fetches in batches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status, sys};
use onelock::event_loop::is_cancelled;
use onelock::{CredentialsRequest, Diagnosis, Facts, Inspection, Lease, LockPage, LossReason, Permits, Release};

use crate::data::Failure;

/// The JavaScript function that is called when there are messages.
pub(crate) type WakeupFunction<'a> = Function<'a, (), ()>;

/// Weak: it keeps the event loop alive only while the bridge asks for that.
pub(crate) type Wakeup = ThreadsafeFunction<(), (), (), Status, false, true>;

/// The result of a call.
pub(crate) enum Outcome {
    Granted(Lease),
    /// `null`: the lock is busy, or not held.
    Nothing,
    Done,
    Permits(Permits),
    Flag(bool),
    Released {
        outcome: Release,
        loss: Option<LossReason>,
    },
    Inspected(Box<Inspection>),
    Listed(LockPage),
    Checked(Facts),
    Diagnosed(Diagnosis),
    Failed(Box<Failure>),
}

/// Log lines are dropped while this many messages are queued, because the event loop is blocked.
const MAX_LOG_BACKLOG: usize = 4096;

/// A message for JavaScript.
pub(crate) enum Message {
    Outcome {
        call: u32,
        outcome: Outcome,
    },
    Lost {
        lease: u64,
        reason: LossReason,
    },
    Jeopardy {
        lease: u64,
    },
    LogLine {
        level: u32,
        text: String,
    },
    CredentialsWanted {
        provider: u32,
        request: CredentialsRequest,
    },
    /// No connection will ask this provider again.
    ProviderDropped {
        provider: u32,
    },
}

pub(crate) struct Pump {
    queue: Mutex<VecDeque<Message>>,
    /// Whether JavaScript was woken and has not fetched yet.
    woken: AtomicBool,
    closed: AtomicBool,
    wakeup: Wakeup,
}

impl Pump {
    pub(crate) fn new(wakeup: Wakeup) -> Pump {
        Pump { queue: Mutex::default(), woken: AtomicBool::new(false), closed: AtomicBool::new(false), wakeup }
    }

    /// Queues a message and wakes the event loop, unless it was woken already. When the pump is closed the message is dropped,
    /// which releases a lease in it.
    pub(crate) fn push(&self, message: Message) {
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let unwanted = matches!(message, Message::Outcome { .. }) && is_cancelled();
            if unwanted || (queue.len() >= MAX_LOG_BACKLOG && matches!(message, Message::LogLine { .. })) {
                drop(queue);
                // a lease in it is released now, even if the event loop is blocked
                drop(message);
                return;
            }
            queue.push_back(message);
        }
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.wakeup.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
        if self.closed.load(Ordering::SeqCst) {
            // closed meanwhile, and `close` may not have seen it
            self.clear();
        }
    }

    /// Drops the outcome of a call that was cancelled.
    pub(crate) fn withdraw(&self, call: u32) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let is_outcome = |message: &Message| matches!(message, Message::Outcome { call: known, .. } if *known == call);
        let at = queue.iter().position(is_outcome);
        let withdrawn = at.and_then(|at| queue.remove(at));
        drop(queue);
        drop(withdrawn);
    }

    /// Takes at most `limit` messages, the oldest first.
    pub(crate) fn fetch(&self, limit: usize, into: &mut Vec<Message>) {
        // first: a message that is queued from here on wakes the loop again
        self.woken.store(false, Ordering::SeqCst);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let count = queue.len().min(limit);
        into.extend(queue.drain(..count));
    }

    /// No wake-up is needed until [`Pump::end_batch`]: the JavaScript thread itself will look.
    pub(crate) fn begin_batch(&self) {
        self.woken.store(true, Ordering::SeqCst);
    }

    /// Ends a batch. Returns whether there are messages to fetch.
    pub(crate) fn end_batch(&self) -> bool {
        self.woken.store(false, Ordering::SeqCst);
        !self.queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The queued message, if it is the only one.
    pub(crate) fn only(&self) -> Option<Message> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() == 1 { queue.pop_front() } else { None }
    }

    /// Drops all messages and those that come later: the JavaScript thread ends.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.clear();
    }

    fn clear(&self) {
        let left = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        drop(left);
    }

    /// Sets whether the event loop is kept alive. To be called on the thread of `env`.
    pub(crate) fn keep_alive(&self, env: &Env, alive: bool) {
        if self.wakeup.aborted() {
            return;
        }
        let change = if alive { sys::napi_ref_threadsafe_function } else { sys::napi_unref_threadsafe_function };
        // SAFETY: called on the thread of this environment, and the function is not finalized: that would mark it as
        // aborted, on this same thread.
        unsafe { change(env.raw(), self.wakeup.raw()) };
    }
}
