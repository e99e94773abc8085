//! The way back to JavaScript: what has happened is queued here, from any thread, and fetched by the session in batches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status, sys};
use onelock::event_loop::is_cancelled;
use onelock::{CredentialsRequest, Facts, Inspection, Lease, LossReason, Release};

use crate::data::Failure;

/// What wakes JavaScript, as JavaScript gave it.
pub(crate) type BellFunction<'a> = Function<'a, (), ()>;

/// Weak: it does not keep the event loop alive, except while the session says so.
pub(crate) type Bell = ThreadsafeFunction<(), (), (), Status, false, true>;

/// What came of a call.
pub(crate) enum Outcome {
    Granted(Lease),
    /// Busy, or nobody there: `null`.
    Nothing,
    Done,
    Flag(bool),
    Released {
        outcome: Release,
        loss: Option<LossReason>,
    },
    Inspected(Box<Inspection>),
    Checked(Facts),
    Failed(Box<Failure>),
}

/// With so much queued, an event loop that is blocked hears of no more log lines.
const TALK: usize = 4096;

/// Something to tell JavaScript.
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
    Said {
        level: u32,
        text: String,
    },
    Asked {
        provider: u32,
        request: CredentialsRequest,
    },
    /// It is asked no more.
    Unasked {
        provider: u32,
    },
}

pub(crate) struct Pump {
    queue: Mutex<VecDeque<Message>>,
    /// Whether JavaScript was woken and has not come yet.
    rung: AtomicBool,
    closed: AtomicBool,
    bell: Bell,
}

impl Pump {
    pub(crate) fn new(bell: Bell) -> Pump {
        Pump { queue: Mutex::default(), rung: AtomicBool::new(false), closed: AtomicBool::new(false), bell }
    }

    /// Queues it and wakes the event loop, unless it was woken already. A lease that nobody can fetch any more is given
    /// back: dropping it does that.
    pub(crate) fn tell(&self, message: Message) {
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let unwanted = matches!(message, Message::Outcome { .. }) && is_cancelled();
            if unwanted || (queue.len() >= TALK && matches!(message, Message::Said { .. })) {
                drop(queue);
                // a lease in it is given back now, however long the event loop stays away
                drop(message);
                return;
            }
            queue.push_back(message);
        }
        if !self.rung.swap(true, Ordering::SeqCst) {
            self.bell.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
        if self.closed.load(Ordering::SeqCst) {
            // closed meanwhile, and `close` may not have seen it
            self.clear();
        }
    }

    /// Nobody will fetch the outcome of this call any more: it is dropped. The call was ended before.
    pub(crate) fn withdraw(&self, call: u32) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let its = |message: &Message| matches!(message, Message::Outcome { call: known, .. } if *known == call);
        let at = queue.iter().position(its);
        let withdrawn = at.and_then(|at| queue.remove(at));
        drop(queue);
        drop(withdrawn);
    }

    /// At most `limit` messages, the oldest first.
    pub(crate) fn fetch(&self, limit: usize, into: &mut Vec<Message>) {
        // first: what is queued from here on rings again
        self.rung.store(false, Ordering::SeqCst);
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let count = queue.len().min(limit);
        into.extend(queue.drain(..count));
    }

    /// The thread of JavaScript is about to look by itself: nothing has to wake it until [`Pump::attended`].
    pub(crate) fn attend(&self) {
        self.rung.store(true, Ordering::SeqCst);
    }

    /// After `attend`: whether there is anything to fetch.
    pub(crate) fn attended(&self) -> bool {
        self.rung.store(false, Ordering::SeqCst);
        !self.queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// What there is to fetch, if it is one message.
    pub(crate) fn only(&self) -> Option<Message> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() == 1 { queue.pop_front() } else { None }
    }

    /// The thread of JavaScript ends: nobody fetches anything any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.clear();
    }

    fn clear(&self) {
        let left = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        drop(left);
    }

    /// Whether the event loop is kept alive for what is under way. Only on the thread of `env`.
    pub(crate) fn keep_alive(&self, env: &Env, alive: bool) {
        if self.bell.aborted() {
            return;
        }
        let change = if alive { sys::napi_ref_threadsafe_function } else { sys::napi_unref_threadsafe_function };
        // SAFETY: called on the thread of this environment, and the function was not finalized: it is marked as aborted
        // then, on this same thread.
        unsafe { change(env.raw(), self.bell.raw()) };
    }
}
