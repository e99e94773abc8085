//! Medians and spreads.

use std::time::Duration;

/// The value below which this share of the values lies. Sorts them.
///
/// # Panics
/// When there are none.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1).expect("something was measured");
    values[(last as f64 * share).round() as usize]
}

/// The median of some durations.
///
/// # Panics
/// When there are none.
pub(crate) fn median(took: &mut [Duration]) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

/// What one side measured in every round, against what the other one did in the same rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    /// The median over the rounds.
    pub(crate) median: f64,
    /// A quarter of the rounds lies below.
    pub(crate) low: f64,
    /// A quarter of the rounds lies above.
    pub(crate) high: f64,
}

impl Ratio {
    /// `ours / theirs`, round by round: what disturbs the machine for longer than a round disturbs both.
    pub(crate) fn of(ours: &[f64], theirs: &[f64]) -> Ratio {
        let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        let [median, low, high] = [0.5, 0.25, 0.75].map(|share| quantile(&mut ratios, share));
        Ratio { median, low, high }
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.median, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        // the machine was ten times slower in the second round, for both
        let ratio = Ratio::of(&[2.0, 20.0, 2.2], &[1.0, 10.0, 1.0]);
        assert!((ratio.median - 2.0).abs() < 1e-9 && (ratio.high - 2.2).abs() < 0.21, "{ratio}");
        assert!((quantile(&mut [3.0, 1.0, 2.0], 0.5) - 2.0).abs() < 1e-9);
        assert_eq!(median(&mut [3, 1, 2].map(Duration::from_nanos)), Duration::from_nanos(2));
    }
}
