//! The minimum time between the attempts of the waiters for one lock.
//!
//! Attempts without a message are spaced: also the one after a subscription was confirmed, and the one of the next waiter
//! after a grant, which would only find the lock held. A message lifts the spacing: it mostly says that the lock is free,
//! and a prompt attempt keeps the lock busy. But any client may publish messages. So only a few messages in a row cause a
//! prompt attempt that is refused; after that, attempts are spaced as without messages.

use std::time::Duration;

use crate::machine::Time;

/// An attempt without a message comes at least this long after the previous one.
pub const ATTEMPT_SPACING: Duration = Duration::from_millis(2);

/// This many messages in a row may each cause a prompt attempt that is refused. After that, one more for each
/// [`ATTEMPT_SPACING`] that has passed.
pub const PROMPT_ANSWERS: u32 = 8;

/// The spacing of the attempts of one wait queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spacing {
    /// No attempt without a message before this.
    not_before: Time,
    /// The same for a waiter that is subscribed.
    granted_before: Time,
    /// When no refused prompt attempt counts any more. Each adds [`ATTEMPT_SPACING`].
    settled_at: Time,
}

impl Spacing {
    /// When the next attempt may be made.
    pub fn next(&self, has_reason: bool, listens: bool) -> Time {
        match (has_reason, listens) {
            (true, _) => self.settled_at - ATTEMPT_SPACING * (PROMPT_ANSWERS - 1),
            (false, true) => self.not_before.max(self.granted_before),
            (false, false) => self.not_before,
        }
    }

    /// An attempt was granted at `now`: the messages before it were true, and the next waiter waits for the holder's release.
    pub fn granted(&mut self, now: Time) {
        *self = Spacing { granted_before: now + ATTEMPT_SPACING, ..Spacing::default() };
    }

    /// The same for a lock with a queue on the server: while the lock is held the next waiter takes its place there, to
    /// which the holder's release hands it over.
    #[must_use]
    pub fn for_a_place(self) -> Spacing {
        Spacing { granted_before: Time::ZERO, ..self }
    }

    /// An attempt was refused at `now`.
    pub fn refused(&mut self, now: Time, had_reason: bool) {
        self.not_before = now + ATTEMPT_SPACING;
        if had_reason {
            self.settled_at = self.settled_at.max(now) + ATTEMPT_SPACING;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_messages_are_answered_at_once_and_a_storm_as_often_as_none() {
        let (mut spacing, step) = (Spacing::default(), Duration::from_micros(50));
        let (start, mut now) = (Time::from_millis(1000), Time::from_millis(1000));
        let (mut at_once, mut asked) = (0, 0);
        // a message every 50 us for a second
        while now < start + Duration::from_secs(1) {
            if spacing.next(true, true) <= now {
                spacing.refused(now, true);
                asked += 1;
                at_once += u32::from(now < start + step * PROMPT_ANSWERS);
            }
            now = now + step;
        }
        assert_eq!(at_once, PROMPT_ANSWERS);
        assert!((500..=500 + PROMPT_ANSWERS).contains(&asked), "{asked} attempts in a second");
    }

    #[test]
    fn without_a_reason_two_attempts_are_apart() {
        let (mut spacing, now) = (Spacing::default(), Time::from_millis(1000));
        assert!(spacing.next(false, true) <= now);
        spacing.refused(now, false);
        assert_eq!(spacing.next(false, true), now + ATTEMPT_SPACING);
        assert_eq!(spacing.next(false, false), now + ATTEMPT_SPACING);
        assert!(spacing.next(true, true) <= now, "but a message is answered");
    }

    #[test]
    fn after_a_grant_only_who_cannot_hear_the_release_asks_at_once() {
        let (mut spacing, now) = (Spacing::default(), Time::from_millis(1000));
        for _ in 0..PROMPT_ANSWERS {
            spacing.refused(now, true);
        }
        assert!(spacing.next(true, true) > now);
        spacing.granted(now);
        assert_eq!(spacing.next(false, true), now + ATTEMPT_SPACING);
        assert!(spacing.next(false, false) <= now);
        assert!(spacing.next(true, true) <= now, "all credit is back");
        let spacing = spacing.for_a_place();
        assert!(spacing.next(false, true) <= now, "who has to enter a queue does so at once");
    }
}
