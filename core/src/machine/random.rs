//! Randomness as an argument: a small seeded generator for jitter, so that a simulated schedule repeats exactly.
//!
//! Never used for tokens; those come from the operating system (see `token`).

use std::time::Duration;

/// A `SplitMix64` generator. Good enough to spread timers, nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Jitter(u64);

impl Jitter {
    /// A generator that repeats for the same seed.
    pub const fn new(seed: u64) -> Jitter {
        Jitter(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// A span between `low` and `high`, both included.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let spread = high.saturating_sub(low).as_nanos().min(u128::from(u64::MAX - 1)) as u64;
        low + Duration::from_nanos(self.below(spread + 1))
    }
}
