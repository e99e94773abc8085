//! How far apart the attempts of those are who wait for a lock.
//!
//! Who asks for no particular reason keeps its distance: also the one whose subscription has just been confirmed, and the
//! next in line after a grant, who would only meet the holder. A message lifts the pause: most say that the lock is free, and
//! the sooner it is asked for, the shorter it stands idle. But anybody may send messages. So only a few in a row
//! are answered at once that turn out to be of no use, and the others no more often than without a reason.

use std::time::Duration;

use crate::machine::Time;

/// Two attempts on one lock without a reason for the second are at least this far apart.
pub const ATTEMPT_SPACING: Duration = Duration::from_millis(2);

/// So many messages in a row are answered at once without the lock being got. After that, one more for each
/// [`ATTEMPT_SPACING`] that has passed.
pub const PROMPT_ANSWERS: u32 = 8;

/// The distance that the attempts of one line of waiters keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spacing {
    /// No attempt without a reason before this.
    not_before: Time,
    /// The same for who hears of the release.
    granted_before: Time,
    /// When none of the messages that were answered in vain counts any more. Each adds [`ATTEMPT_SPACING`].
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

    /// An attempt was granted at `now`: what was heard before was true, and the next in line waits for news of the holder.
    pub fn granted(&mut self, now: Time) {
        *self = Spacing { granted_before: now + ATTEMPT_SPACING, ..Spacing::default() };
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
    }
}
