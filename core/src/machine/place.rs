//! The place of a waiting acquire in the queue that a lock has on the server: how long it lasts, and when it is kept.
//!
//! A place ends on the server unless its client asks again within the window. A message is a reason to ask, and so is the
//! time to keep the place; the answer to either may be the grant. What ended comes back under its old number.

use std::time::Duration;

use crate::machine::{ClientTag, Jitter, QueueEntry};

/// From this place on the queue is long: places last longer, and are kept less often.
pub const FAR_FROM: u64 = 64;
/// The longest time that a place lasts without being kept.
pub const PLACE_MAX: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_millis(600);
const KEEP_EVERY: Duration = Duration::from_millis(200);
const KEEP_EVERY_FAR: Duration = Duration::from_secs(1);

/// What an acquire knows of its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    number: Option<u64>,
    ahead: u64,
    /// It was asked for as long as a place in a long queue lasts.
    lasts: bool,
    /// The server counted no subscriber where there is one: whether the client listens is not said any more.
    miscounted: bool,
}

impl Place {
    /// The server has answered that it has this place.
    pub fn queued(&mut self, number: u64, ahead: u64, unheard: bool) {
        let (lasts, miscounted) = (self.is_far(), self.miscounted || unheard);
        *self = Place { number: Some(number), ahead, lasts, miscounted };
    }

    /// How many are before it, as far as is known.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    fn is_far(&self) -> bool {
        self.ahead >= FAR_FROM
    }

    /// What the next request says of it.
    pub fn entry(&self, client: ClientTag, subscribed: bool) -> QueueEntry {
        let window = if self.is_far() { PLACE_MAX } else { WINDOW };
        QueueEntry {
            client,
            window_ms: window.as_millis() as u64,
            place: self.number,
            listens: subscribed && !self.miscounted,
        }
    }

    /// What a single try says: it takes no place.
    pub fn no_entry(client: ClientTag) -> QueueEntry {
        QueueEntry { client, window_ms: 0, place: None, listens: false }
    }

    /// How long it waits for the confirmation of a subscription before it keeps the place.
    pub fn watch_for(&self) -> Duration {
        KEEP_EVERY
    }

    /// How long the acquire sleeps without a message. The head also asks when the holder's time is over, since nobody
    /// publishes that.
    pub fn keep_in(&self, look_in_ms: Option<u64>, jitter: &mut Jitter) -> Duration {
        // the answer that tells how long the queue is may be the first: then the place was asked for a short time
        let most = if self.is_far() && self.lasts { KEEP_EVERY_FAR } else { KEEP_EVERY };
        let keep = jitter.between(most.mul_f64(0.8), most);
        match look_in_ms {
            // 0: the server has more to forget before it comes to this place
            Some(ms) if self.ahead == 0 || ms == 0 => {
                keep.min(Duration::from_millis(ms) + jitter.between(Duration::from_millis(1), Duration::from_millis(8)))
            }
            _ => keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_in_time_and_named_again() {
        let (mut place, mut jitter) = (Place::default(), Jitter::new(1));
        let client = ClientTag(7);
        assert_eq!(place.entry(client, true), QueueEntry { client, window_ms: 600, place: None, listens: true });
        place.queued(41, 2, false);
        assert_eq!(place.entry(client, false), QueueEntry { client, window_ms: 600, place: Some(41), listens: false });
        for _ in 0..100 {
            let keep = place.keep_in(Some(1), &mut jitter);
            assert!(keep <= KEEP_EVERY && keep * 3 > Duration::from_millis(400), "{keep:?}");
        }
        place.queued(41, 0, false);
        assert!(
            place.keep_in(Some(20), &mut jitter) <= Duration::from_millis(28),
            "the head looks when the holder's end is due"
        );
        place.queued(41, FAR_FROM, false);
        assert!(place.keep_in(None, &mut jitter) <= KEEP_EVERY, "it was asked for 600 ms");
        assert_eq!(place.entry(client, true).window_ms, 3000);
        place.queued(41, FAR_FROM, false);
        assert!(place.keep_in(None, &mut jitter) > KEEP_EVERY);
    }

    #[test]
    fn a_place_that_was_passed_over_does_not_trust_in_the_count_again() {
        let mut place = Place::default();
        place.queued(41, 0, true);
        place.queued(41, 0, false);
        assert!(!place.entry(ClientTag(7), true).listens);
    }
}
