//! Every random choice of a schedule comes from one generator, so that its seed repeats it.

use std::time::Duration;

use onelock::machine::Jitter;

/// A seeded source of choices.
pub(super) struct Dice(Jitter);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        // neighbouring seeds are to have nothing in common
        let mut stir = Jitter::new(seed ^ 0x5EED_0F0E_10CC_0000);
        Dice(Jitter::new(stir.next_u64()))
    }

    /// A generator of its own for a part of the schedule.
    pub(super) fn jitter(&mut self) -> Jitter {
        Jitter::new(self.0.next_u64())
    }

    /// Another one, for what was added later: the choices of this one stay the same.
    pub(super) fn aside(&self) -> Dice {
        Dice::new(self.0.clone().next_u64() ^ 0xA51D)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// True so many times in a thousand.
    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.0.below(1000) < per_mille
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high.saturating_sub(low) + 1)
    }

    pub(super) fn span(&mut self, low: Duration, high: Duration) -> Duration {
        self.0.between(low, high)
    }

    pub(super) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.0.below(choices.len() as u64) as usize].clone()
    }
}
