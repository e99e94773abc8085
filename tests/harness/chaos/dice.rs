//! Chance that can be repeated.

use std::ops::Range;
use std::time::Duration;

/// A generator of random numbers (`SplitMix64`): the same seed, the same numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Starts from a seed; `stream` tells generators of the same seed apart.
    pub const fn new(seed: u64, stream: u64) -> Dice {
        Dice(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Any number.
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range.
    pub const fn pick(&mut self, range: Range<u64>) -> u64 {
        range.start + self.roll() % (range.end - range.start)
    }

    /// A duration in milliseconds of the range.
    pub const fn ms(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.pick(range))
    }

    /// True in so many of a hundred cases.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.pick(0..100) < percent
    }

    /// One of the items.
    pub fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.pick(0..items.len() as u64) as usize]
    }
}
