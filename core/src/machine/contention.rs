//! How many others go for a lock at the moment it becomes free, as far as a client's own luck tells.
//!
//! A release is heard by every process that waits. If all of them ask at once, the answer to the one who gets it stands
//! in line with the answers to all the others. So after a lost race a client leaves more of the next ones to others: it
//! asks a moment later. Where many go for the lock, one who lost does not even listen for a while, so that the next release
//! wakes fewer. Who has never lost a race listens and asks at once, always.

use std::time::Duration;

use crate::machine::{Jitter, Outcome, Reply, Time};

/// What one client expects of the race for one lock. Starts without rivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HerdBackoff(u8);

/// A step up after each race lost, two down after each one won: in balance about three go at once.
const STEPS_TO_HALVE: u8 = 2;
/// Somebody goes at once every 64th time at least.
const MOST: u8 = 6 * STEPS_TO_HALVE;
/// Who does not go at once asks this much later, at least and at most.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_micros(400), Duration::from_micros(1200));
/// From this step on there are many: who loses then stays away from the next races,
const MANY: u8 = 3 * STEPS_TO_HALVE;
/// for so long at least and at most.
const ABSENCE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));

/// After so many lost races an acquire joins every race at once, and no longer stays away.
const LOST_MAX: u16 = 8;
/// A client that took a lock so many times in a row, while others waited for it, leaves it to them once. Each time costs a
/// hand-over; never doing it would let the client that is nearest to the server keep the lock for seconds.
pub const RETAKEN_MAX: u8 = 4;
/// It leaves the lock to them for so long: they hear of the release and ask.
pub const YIELD: Duration = Duration::from_micros(300);

impl HerdBackoff {
    /// What was kept as a number.
    pub fn from_steps(steps: u8) -> HerdBackoff {
        HerdBackoff(steps.min(MOST))
    }

    /// As a number, to be kept.
    pub fn steps(self) -> u8 {
        self.0
    }

    /// How long to leave the lock to others that has just become free; mostly not at all.
    pub fn delay(self, jitter: &mut Jitter) -> Duration {
        if jitter.below(1 << (self.0 / STEPS_TO_HALVE)) == 0 {
            Duration::ZERO
        } else {
            jitter.between(RETRY_DELAY.0, RETRY_DELAY.1)
        }
    }

    /// How long to stay away after somebody else got it; mostly not at all.
    fn absence(self, jitter: &mut Jitter) -> Duration {
        if self.0 < MANY { Duration::ZERO } else { jitter.between(ABSENCE.0, ABSENCE.1) }
    }

    /// It went at once, and somebody else got it.
    pub fn lost(&mut self) {
        self.0 = (self.0 + 1).min(MOST);
    }

    /// It got the lock, at once or later.
    pub fn won(&mut self) {
        self.0 = self.0.saturating_sub(STEPS_TO_HALVE);
    }
}

/// One acquire's part in the races for its lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WakeRace {
    pub(crate) backoff: HerdBackoff,
    entry: RaceEntry,
    /// Until then it stays away.
    pub(crate) away_until: Time,
    /// How many it has lost.
    lost: u16,
}

/// What the next attempt is in answer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RaceEntry {
    /// No message.
    #[default]
    None,
    Immediate,
    Delayed,
}

impl WakeRace {
    /// A message came to who sleeps until `until`: when to ask instead.
    pub(crate) fn begin(&mut self, now: Time, until: Time, jitter: &mut Jitter) -> Time {
        if now < self.away_until {
            // asks when it comes back: perhaps all were away
            self.entry = RaceEntry::Delayed;
            return until.min(self.away_until);
        }
        let step_back = if self.lost >= LOST_MAX { Duration::ZERO } else { self.backoff.delay(jitter) };
        self.entry = if step_back.is_zero() { RaceEntry::Immediate } else { RaceEntry::Delayed };
        until.min(now + step_back)
    }

    /// The attempt that followed was answered.
    pub(crate) fn answered(&mut self, now: Time, outcome: &Outcome<Reply>, jitter: &mut Jitter) {
        let part = std::mem::take(&mut self.entry);
        match outcome {
            Outcome::Applied(Reply::Granted { .. }) if part != RaceEntry::None => self.backoff.won(),
            Outcome::Applied(Reply::Denied { .. } | Reply::Split { .. }) => {
                if part == RaceEntry::Immediate {
                    self.backoff.lost();
                }
                if part != RaceEntry::None {
                    self.lost = self.lost.saturating_add(1);
                }
                self.away_until = if self.lost >= LOST_MAX { now } else { now + self.backoff.absence(jitter) };
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_rivals_never_steps_back() {
        let mut jitter = Jitter::new(1);
        let mut rivalry = HerdBackoff::default();
        for _ in 0..1000 {
            assert_eq!(rivalry.delay(&mut jitter), Duration::ZERO);
            rivalry.won();
        }
    }

    #[test]
    fn an_acquire_that_lost_many_races_goes_at_once() {
        let mut jitter = Jitter::new(3);
        let mut race = WakeRace { backoff: HerdBackoff::from_steps(MOST), ..WakeRace::default() };
        let refused = Outcome::Applied(Reply::Denied { ttl_left_ms: Some(1000), announces: true });
        let mut now = Time::from_millis(1000);
        let mut late = 0;
        for _ in 0..LOST_MAX {
            now = now.max(race.away_until);
            late += u16::from(race.begin(now, Time::MAX, &mut jitter) > now);
            race.answered(now, &refused, &mut jitter);
        }
        assert!(late >= LOST_MAX / 2, "{late} of {LOST_MAX} stepped back");
        for _ in 0..100 {
            assert!(race.away_until <= now, "it listens");
            assert_eq!(race.begin(now, Time::MAX, &mut jitter), now);
            race.answered(now, &refused, &mut jitter);
        }
    }

    #[test]
    fn a_crowd_thins_out_and_one_who_is_left_is_quick_again() {
        let mut jitter = Jitter::new(7);
        let mut crowd = [HerdBackoff::default(); 32];
        let (mut at_once, mut nobody) = (0, 0);
        for race in 0..2000 {
            let waits: Vec<Duration> = crowd.iter().map(|rivalry| rivalry.delay(&mut jitter)).collect();
            assert!(waits.iter().all(|wait| *wait <= RETRY_DELAY.1));
            let going: Vec<usize> = (0..crowd.len()).filter(|index| waits[*index].is_zero()).collect();
            let first = jitter.below(going.len() as u64) as usize;
            for (place, index) in going.iter().enumerate() {
                if place == first { crowd[*index].won() } else { crowd[*index].lost() }
            }
            if race >= 1000 {
                at_once += going.len();
                nobody += usize::from(going.is_empty());
            }
            if going.is_empty() {
                let soonest = (0..crowd.len()).min_by_key(|index| waits[*index]).unwrap();
                crowd[soonest].won();
            }
        }
        assert!((1500..5000).contains(&at_once), "{at_once} went at once in 1000 races");
        assert!(nobody < 200, "nobody went at once in {nobody} of 1000 races");

        let mut last = HerdBackoff::from_steps(u8::MAX);
        for _ in 0..MOST / STEPS_TO_HALVE {
            last.won();
        }
        assert_eq!(last, HerdBackoff::default());
    }
}
