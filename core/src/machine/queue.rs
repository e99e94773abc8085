//! The local queue: per client and lock all waiters stand in one line, and only its head talks to the server.
//!
//! So a release costs one attempt per waiting process, not per waiting task. Generic over what a place in the line
//! carries: the driver keeps a waker in it, the simulator a task number.

use std::collections::VecDeque;

use crate::machine::Spacing;

/// A place in a line.
pub type Ticket = u64;

/// One line of waiters.
#[derive(Clone, Debug)]
pub struct Line<W> {
    waiting: VecDeque<(Ticket, W)>,
    next: Ticket,
    spacing: Spacing,
}

impl<W> Default for Line<W> {
    fn default() -> Line<W> {
        Line { waiting: VecDeque::new(), next: 0, spacing: Spacing::default() }
    }
}

impl<W> Line<W> {
    /// Joins the end. The first in line is the head at once.
    pub fn join(&mut self, waiter: W) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.waiting.push_back((ticket, waiter));
        ticket
    }

    /// Whether this ticket is the head.
    pub fn is_head(&self, ticket: Ticket) -> bool {
        self.waiting.front().is_some_and(|(first, _)| *first == ticket)
    }

    /// Leaves the line, wherever it stood. When the head left, the new head is returned: tell it to try at once, since
    /// its predecessor may have eaten the wake-up.
    pub fn leave(&mut self, ticket: Ticket) -> Option<&W> {
        let index = self.waiting.iter().position(|(other, _)| *other == ticket)?;
        self.waiting.remove(index);
        if index == 0 { self.waiting.front().map(|(_, waiter)| waiter) } else { None }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits; the line can be forgotten.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Everybody in line, head first.
    pub fn waiters(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter().map(|(_, waiter)| waiter)
    }

    /// The head leaves word how far the next one has to keep its distance.
    pub fn keep(&mut self, spacing: Spacing) {
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
        let mut line = Line::default();
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
