//! One clock made of the host's two. A monotonic clock may stand while the machine is suspended, and a wall clock may be set:
//! time that passed on either of them has passed.

use crate::machine::Time;

/// By so much the wall clock may be ahead without being believed: it is coarse, and slewed now and then.
const TOLERANCE_US: i64 = 20_000;
/// The clock begins there, so that "a little earlier" never is before its beginning.
const BEGINNING_NS: u64 = 1_000_000_000;

/// The clock of a host.
pub(crate) struct HostClock {
    /// The first reading of both.
    first: Option<(u64, u64)>,
    /// How far the wall clock was ahead of the monotonic one, since the first reading, in microseconds.
    lead_us: i64,
    /// What the monotonic clock missed.
    missed_us: u64,
    /// The last time told.
    last_ns: u64,
}

impl HostClock {
    pub(crate) const fn new() -> HostClock {
        HostClock { first: None, lead_us: 0, missed_us: 0, last_ns: BEGINNING_NS }
    }

    /// The time at these readings.
    pub(crate) fn at(&mut self, monotonic_ns: u64, wall_us: u64) -> Time {
        let first = *self.first.get_or_insert((monotonic_ns, wall_us));
        let passed_ns = monotonic_ns.saturating_sub(first.0);
        let lead_us = wall_us.wrapping_sub(first.1).wrapping_sub(passed_ns / 1000).cast_signed();
        let ahead_us = lead_us.wrapping_sub(self.lead_us);
        if ahead_us > TOLERANCE_US {
            self.missed_us = self.missed_us.saturating_add(ahead_us.unsigned_abs());
        }
        if ahead_us.unsigned_abs() > TOLERANCE_US.unsigned_abs() {
            self.lead_us = lead_us;
        }
        let now_ns = BEGINNING_NS.saturating_add(passed_ns).saturating_add(self.missed_us.saturating_mul(1000));
        self.last_ns = self.last_ns.max(now_ns);
        Time::from_nanos(self.last_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the clock tells after these readings of seconds on the monotonic and the wall clock, in milliseconds since the first.
    fn told(readings: &[(f64, f64)]) -> Vec<u64> {
        let mut clock = HostClock::new();
        let first = clock.at(5_000, 1_700_000_000_000_000);
        let read = |(monotonic, wall): &(f64, f64)| {
            let wall_us = 1_700_000_000_000_000_i64 + (wall * 1e6) as i64;
            clock.at(5_000 + (monotonic * 1e9) as u64, wall_us.unsigned_abs()).since(first).as_millis() as u64
        };
        readings.iter().map(read).collect()
    }

    #[test]
    fn suspend_counts_though_the_monotonic_clock_stood() {
        assert_eq!(told(&[(1.0, 1.0), (1.0, 61.0), (2.0, 62.0)]), [1000, 61_000, 62_000]);
    }

    #[test]
    fn a_wall_clock_that_is_set_back_changes_nothing_and_suspend_counts_after_it() {
        assert_eq!(told(&[(1.0, 1.0), (2.0, -3600.0), (3.0, -3599.0), (4.0, -3500.0)]), [1000, 2000, 3000, 102_000]);
    }

    #[test]
    fn a_coarse_wall_clock_adds_nothing() {
        let readings: Vec<_> =
            (0..10_000).map(|n| (f64::from(n) * 1e-4, (f64::from(n) * 1e-4 * 66.0).floor() / 66.0)).collect();
        assert_eq!(told(&readings).last(), Some(&999));
    }

    #[test]
    fn it_never_goes_back_and_stands_with_both() {
        assert_eq!(told(&[(1.0, 1.0), (0.99, 0.99), (1.0, 1.0), (1.0, 1.0)]), [1000, 1000, 1000, 1000]);
    }
}
