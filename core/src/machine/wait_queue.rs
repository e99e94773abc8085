//! The local wait queue: per client and lock all waiters queue, and only the head talks to the server.
//!
//! So a release costs one attempt per waiting process, not per waiting task. Generic over the waiter: the driver stores
//! a waker, the simulator a task number.

use std::collections::VecDeque;

use crate::machine::Spacing;

/// Identifies a waiter in its queue.
pub type WaiterId = u64;

/// The waiters of one lock.
#[derive(Clone, Debug)]
pub struct WaitQueue<W> {
    waiting: VecDeque<(WaiterId, W)>,
    next: WaiterId,
    spacing: Spacing,
}

impl<W> Default for WaitQueue<W> {
    fn default() -> WaitQueue<W> {
        WaitQueue { waiting: VecDeque::new(), next: 0, spacing: Spacing::default() }
    }
}

impl<W> WaitQueue<W> {
    /// Joins the end. The first waiter is the head at once.
    pub fn join(&mut self, waiter: W) -> WaiterId {
        let waiter_id = self.next;
        self.next += 1;
        self.waiting.push_back((waiter_id, waiter));
        waiter_id
    }

    /// Whether this waiter is the head.
    pub fn is_head(&self, waiter_id: WaiterId) -> bool {
        self.waiting.front().is_some_and(|(first, _)| *first == waiter_id)
    }

    /// Leaves the queue from any position. When the head left, the new head is returned: let it try at once, since its
    /// predecessor may have consumed the wake-up.
    pub fn leave(&mut self, waiter_id: WaiterId) -> Option<&W> {
        let index = self.waiting.iter().position(|(other, _)| *other == waiter_id)?;
        self.waiting.remove(index);
        if index == 0 { self.waiting.front().map(|(_, waiter)| waiter) } else { None }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits; the queue can be dropped.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// All waiters, head first.
    pub fn waiters(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter().map(|(_, waiter)| waiter)
    }

    /// Stores the spacing that the next head has to keep.
    pub fn set_spacing(&mut self, spacing: Spacing) {
        self.spacing = spacing;
    }

    /// The distance that the next head has to keep.
    pub fn spacing(&self) -> Spacing {
        self.spacing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_and_leaving_anywhere() {
        let mut line = WaitQueue::default();
        let (a, b, c) = (line.join('a'), line.join('b'), line.join('c'));
        assert!(line.is_head(a) && !line.is_head(b));
        assert_eq!(line.leave(b), None, "not the head: nobody moves up");
        assert_eq!(line.leave(a), Some(&'c'));
        assert!(line.is_head(c));
        assert_eq!(line.leave(a), None, "gone already");
        assert_eq!(line.leave(c), None);
        assert!(line.is_empty());
    }
}
