//! Clocks that disagree. The world has one true time in nanoseconds; nobody but the simulator sees it.

use onelock::machine::Time;

const MILLION: i64 = 1_000_000;

fn skewed(now: u64, ppm: i64) -> i64 {
    let now = now.cast_signed();
    now + now * ppm / MILLION
}

/// The monotonic clock of one process: its own zero and its own rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessClock {
    pub(super) origin: u64,
    pub(super) ppm: i64,
}

impl ProcessClock {
    /// What the process reads at the true time `now`.
    pub(super) fn local(self, now: u64) -> Time {
        Time::from_nanos(self.origin + skewed(now, self.ppm) as u64)
    }

    /// The first true instant at which the process reads `local` or more; `u64::MAX` for never.
    pub(super) fn world(self, local: Time) -> u64 {
        if local == Time::MAX {
            return u64::MAX;
        }
        let reading = local.as_nanos().saturating_sub(self.origin);
        let mut now = (reading as f64 / (1.0 + self.ppm as f64 / MILLION as f64)) as u64;
        now = now.saturating_sub(2048);
        // the estimate is good to some nanoseconds: correct it by its own error until it is exact
        while self.local(now) < local {
            now += (local.since(self.local(now)).as_nanos() as u64 * 9 / 10).max(1);
        }
        while now > 0 && self.local(now - 1) >= local {
            now -= 1;
        }
        now
    }
}

/// The wall clock of a server: rate and steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClock {
    pub(super) origin: u64,
    pub(super) ppm: i64,
    pub(super) stepped: i64,
}

impl ServerClock {
    /// Microseconds since 1970 at the true time `now`.
    pub(super) fn micros(self, now: u64) -> u64 {
        (self.origin.cast_signed() + skewed(now, self.ppm) + self.stepped).cast_unsigned() / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_exact() {
        for ppm in [-50_000, -4500, 0, 1, 4500, 50_000] {
            let clock = ProcessClock { origin: 7_000_000_123, ppm };
            for now in [0, 1, 999, 1_000_000, 123_456_789, 600_000_000_000] {
                let local = clock.local(now);
                let back = clock.world(local);
                assert!(back <= now && clock.local(back) == local, "{ppm} {now} {back}");
                assert!(back == 0 || clock.local(back - 1) < local);
            }
        }
    }
}
