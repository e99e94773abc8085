//! What is told unasked. A thread of the other language fetches it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::words::LossReason;

/// One thing that happened to a lease, which has the number that was chosen for it.
#[derive(Clone, Debug, PartialEq, Eq, uniffi::Enum)]
pub enum NativeEvent {
    /// The lease was lost.
    Lost { lease: i64, reason: LossReason },
    /// A renewal was missed; the lease is still valid.
    Jeopardy { lease: i64 },
    /// A lease that was held was dropped without a release; it is released now.
    Unreleased { name: Vec<u8> },
    /// The last handle of a lease with a number is gone: nothing more is told of it.
    Gone { lease: i64 },
}

/// A queue from any thread to the one that waits.
pub(crate) struct Queue<T> {
    waiting: Mutex<VecDeque<T>>,
    arrived: Condvar,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Queue<T> {
        Queue { waiting: Mutex::new(VecDeque::new()), arrived: Condvar::new() }
    }

    fn locked(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: T) {
        self.locked().push_back(item);
        self.arrived.notify_one();
    }

    /// Waits for one.
    pub(crate) fn next(&self) -> T {
        let mut waiting = self.locked();
        loop {
            if let Some(item) = waiting.pop_front() {
                return item;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

static EVENTS: Queue<NativeEvent> = Queue::new();

pub(crate) fn tell(event: NativeEvent) {
    EVENTS.push(event);
}

/// Waits for the next event, for ever. For one thread of the process.
#[uniffi::export]
pub fn next_event() -> NativeEvent {
    EVENTS.next()
}
