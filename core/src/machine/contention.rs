//! Backoff against the herd of waiters that one release wakes.
//!
//! A release wakes every process that waits. If all of them send an acquire at once, the server answers the winner along
//! with all the others, and the hand-over takes longer. So a client that lost a race delays its attempts in more of the
//! next races. Under high contention a loser also ignores messages for some milliseconds, so that the next release wakes
//! fewer. A client that has never lost a race always sends its acquire at once.

use std::time::Duration;

use crate::machine::{Jitter, Outcome, Reply, Time};

/// How much contention one client expects for one lock. Starts with none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HerdBackoff(u8);

/// One step up after a lost race, two down after one that was won: on average about three clients ask at once.
const STEPS_TO_HALVE: u8 = 2;
/// The highest step: the client still asks at once in one of 64 races.
const MOST: u8 = 6 * STEPS_TO_HALVE;
/// The delay of a client that does not ask at once, from and to.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_micros(400), Duration::from_micros(1200));
/// From this step on contention is high: a client that loses ignores messages
const MANY: u8 = 3 * STEPS_TO_HALVE;
/// for this long, from and to.
const ABSENCE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));

/// After this many races that an acquire lost although it asked at once, it asks at once in every race, and ignores no
/// messages. About three clients ask at once, however many wait, so only one of eleven acquires gets so far.
const LOST_MAX: u16 = 6;
/// A client that retook a lock this many times in a row, while others waited, delays its next acquire by [`YIELD`]. Each
/// delay costs one hand-over. Without it, the client that is nearest to the server could keep the lock for seconds.
pub const RETAKEN_MAX: u8 = 4;
/// Long enough for the waiters to receive the release and to ask.
pub const YIELD: Duration = Duration::from_micros(300);

impl HerdBackoff {
    /// From the number that [`HerdBackoff::steps`] returned.
    pub fn from_steps(steps: u8) -> HerdBackoff {
        HerdBackoff(steps.min(MOST))
    }

    /// As a number, to be stored.
    pub fn steps(self) -> u8 {
        self.0
    }

    /// How long to wait before asking for a lock that has just become free; zero without contention.
    pub fn delay(self, jitter: &mut Jitter) -> Duration {
        if jitter.below(1 << (self.0 / STEPS_TO_HALVE)) == 0 {
            Duration::ZERO
        } else {
            jitter.between(RETRY_DELAY.0, RETRY_DELAY.1)
        }
    }

    /// How long to ignore messages after a lost race; zero unless contention is high.
    fn absence(self, jitter: &mut Jitter) -> Duration {
        if self.0 < MANY { Duration::ZERO } else { jitter.between(ABSENCE.0, ABSENCE.1) }
    }

    /// The client asked at once, and another one got the lock.
    pub fn lost(&mut self) {
        self.0 = (self.0 + 1).min(MOST);
    }

    /// The client got the lock, at once or after a delay.
    pub fn won(&mut self) {
        self.0 = self.0.saturating_sub(STEPS_TO_HALVE);
    }
}

/// The races of one acquire for its lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WakeRace {
    pub(crate) backoff: HerdBackoff,
    entry: RaceEntry,
    /// It ignores messages until then.
    pub(crate) away_until: Time,
    /// How many races it has lost although it asked at once.
    lost: u16,
}

/// How the acquire takes part in the present race.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RaceEntry {
    /// No message.
    #[default]
    None,
    Immediate,
    Delayed,
}

impl WakeRace {
    /// A message came while the acquire sleeps until `until`: returns when to ask instead.
    pub(crate) fn begin(&mut self, now: Time, until: Time, jitter: &mut Jitter) -> Time {
        if now < self.away_until {
            // asks at the end of the pause: perhaps every other client pauses too
            self.entry = RaceEntry::Delayed;
            return until.min(self.away_until);
        }
        let delay = if self.lost >= LOST_MAX { Duration::ZERO } else { self.backoff.delay(jitter) };
        self.entry = if delay.is_zero() { RaceEntry::Immediate } else { RaceEntry::Delayed };
        until.min(now + delay)
    }

    /// The attempt that followed was answered.
    pub(crate) fn answered(&mut self, now: Time, outcome: &Outcome<Reply>, jitter: &mut Jitter) {
        let entry = std::mem::take(&mut self.entry);
        match outcome {
            Outcome::Applied(Reply::Granted { .. }) if entry != RaceEntry::None => self.backoff.won(),
            Outcome::Applied(Reply::Denied { .. } | Reply::Split { .. }) => {
                if entry == RaceEntry::Immediate {
                    self.backoff.lost();
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
    fn without_contention_nothing_is_delayed() {
        let mut jitter = Jitter::new(1);
        let mut backoff = HerdBackoff::default();
        for _ in 0..1000 {
            assert_eq!(backoff.delay(&mut jitter), Duration::ZERO);
            backoff.won();
        }
    }

    #[test]
    fn an_acquire_that_lost_many_races_asks_at_once_in_all() {
        let mut jitter = Jitter::new(3);
        let mut race = WakeRace { backoff: HerdBackoff::from_steps(MOST / 2), ..WakeRace::default() };
        let refused = Outcome::Applied(Reply::Denied { ttl_left_ms: Some(1000), announces: true });
        let mut now = Time::from_millis(1000);
        let (mut at_once, mut delayed) = (0, 0);
        while at_once < LOST_MAX {
            now = now.max(race.away_until);
            let asks = race.begin(now, Time::MAX, &mut jitter);
            if asks == now {
                at_once += 1;
            } else {
                delayed += 1;
            }
            race.answered(now, &refused, &mut jitter);
        }
        assert!(delayed > LOST_MAX, "{delayed} were delayed before");
        for _ in 0..100 {
            assert!(race.away_until <= now, "it ignores nothing");
            assert_eq!(race.begin(now, Time::MAX, &mut jitter), now);
            race.answered(now, &refused, &mut jitter);
        }
    }

    #[test]
    fn many_clients_thin_out_and_the_last_one_asks_at_once_again() {
        let mut jitter = Jitter::new(7);
        let mut clients = [HerdBackoff::default(); 32];
        let (mut at_once, mut nobody) = (0, 0);
        for race in 0..2000 {
            let waits: Vec<Duration> = clients.iter().map(|backoff| backoff.delay(&mut jitter)).collect();
            assert!(waits.iter().all(|wait| *wait <= RETRY_DELAY.1));
            let going: Vec<usize> = (0..clients.len()).filter(|index| waits[*index].is_zero()).collect();
            let first = jitter.below(going.len() as u64) as usize;
            for (place, index) in going.iter().enumerate() {
                if place == first { clients[*index].won() } else { clients[*index].lost() }
            }
            if race >= 1000 {
                at_once += going.len();
                nobody += usize::from(going.is_empty());
            }
            if going.is_empty() {
                let soonest = (0..clients.len()).min_by_key(|index| waits[*index]).unwrap();
                clients[soonest].won();
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
