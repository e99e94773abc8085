//! The terms of a lease: how long, how much of it the holder may believe, and whether it is renewed.

use std::time::Duration;

use crate::machine::Time;

/// The shortest time to live that is accepted.
pub const TTL_MIN: Duration = Duration::from_millis(10);
/// The longest time to live, wait or hold that is accepted: one year.
pub const SPAN_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// The fixed part of the drift allowance.
pub const DRIFT_FLOOR: Duration = Duration::from_millis(2);

/// However short `max_hold` is, a lease is asked for this long: a slow reply would use up a shorter one.
const SHORTEST_BOUND: Duration = Duration::from_secs(1);

/// What was agreed about a lease, fixed when the lock was described.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Length of the lease that the holder believes in.
    pub ttl: Duration,
    /// How much longer than `ttl` the key lives on the server, so that an unclean end delays the next holder.
    pub lock_delay: Duration,
    /// The share of the ttl that clocks may run apart, 0.01 by default.
    pub drift_factor: f64,
    /// A grant with less than this left when it arrives is not a grant.
    pub min_validity: Duration,
    /// How long the key stays at least after the hold began, however early it is released.
    pub min_hold: Duration,
    /// After this long renewal stops and the lease is lost, however healthy; `None` for no limit.
    pub max_hold: Option<Duration>,
    /// Whether the watchdog renews the lease.
    pub auto_renew: bool,
    /// Renewal period; `None` for a third of the ttl. Only tests set it.
    pub renew_every: Option<Duration>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
            drift_factor: 0.01,
            min_validity: Duration::ZERO,
            min_hold: Duration::ZERO,
            max_hold: None,
            auto_renew: true,
            renew_every: None,
        }
    }
}

impl Terms {
    /// The drift allowance of a lease of length `ttl`: `ttl * drift_factor + 2 ms`.
    pub fn drift(&self, ttl: Duration) -> Duration {
        ttl.mul_f64(self.drift_factor) + DRIFT_FLOOR
    }

    /// The local instant after which a lease confirmed by a request sent at `sent_at` must be treated as gone.
    pub fn deadline(&self, sent_at: Time, ttl: Duration) -> Time {
        sent_at + ttl.saturating_sub(self.drift(ttl))
    }

    /// When the request of a deadline was sent, or a moment before it.
    pub fn sent_at(&self, deadline: Time, ttl: Duration) -> Time {
        deadline - ttl.saturating_sub(self.drift(ttl))
    }

    /// Until when the key of a hold that began at `granted_at` has to stay, however early it is released. The server's
    /// clock may be fast, so it stays a little longer.
    pub fn stays_until(&self, granted_at: Time) -> Time {
        granted_at + self.min_hold.mul_f64(1.0 + self.drift_factor)
    }

    /// The time to live on the server, in whole milliseconds, never less than the holder believes.
    pub fn server_ttl_ms(&self, ttl: Duration) -> u64 {
        let span = ttl + self.lock_delay;
        u64::try_from(span.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// The length of lease to request when the holder may use it for `left` more at most (`max_hold`): not much longer
    /// than that, or a hung holder's key would stay for the rest. Its deadline is not before the end of `left`.
    pub fn bounded(&self, ttl: Duration, left: Duration) -> Duration {
        let left = left.max(SHORTEST_BOUND).max(self.min_hold) + self.min_validity;
        let needed = (left + DRIFT_FLOOR).div_f64(1.0 - self.drift_factor.min(0.5)) + Duration::from_millis(1);
        ttl.min(needed)
    }

    /// The same for a lease that begins now.
    #[must_use]
    pub fn within_max_hold(mut self) -> Terms {
        if let Some(hold) = self.max_hold {
            self.ttl = self.bounded(self.ttl, hold);
        }
        self
    }

    /// How often a lease of length `ttl` is renewed.
    pub fn period(&self, ttl: Duration) -> Duration {
        self.renew_every.unwrap_or(ttl / 3)
    }

    /// Whether the terms make sense; the text names the option, the value and the limit.
    pub fn check(&self) -> Result<(), String> {
        check_ttl(self.ttl)?;
        if !(0.0..=0.5).contains(&self.drift_factor) {
            return Err(format!("drift_factor is {}; it must be between 0 and 0.5", self.drift_factor));
        }
        if self.lock_delay > SPAN_MAX {
            return Err(format!("lock_delay is {:?}; it may be one year at most", self.lock_delay));
        }
        self.check_validity(self.ttl)?;
        if self.min_hold > self.ttl {
            return Err(format!(
                "min_hold is {:?}, but ttl is {:?}, and a holder that crashes keeps the lock for no longer; use a longer ttl",
                self.min_hold, self.ttl
            ));
        }
        match self.max_hold {
            Some(hold) if hold.is_zero() => Err("max_hold is 0; leave it out for no limit".to_owned()),
            Some(hold) if hold > SPAN_MAX => Err(format!("max_hold is {hold:?}; it may be one year at most")),
            _ => Ok(()),
        }
    }

    /// Whether something is left of a lease of length `ttl` once drift and `min_validity` are taken off.
    pub fn check_validity(&self, ttl: Duration) -> Result<(), String> {
        let needed = self.drift(ttl).saturating_add(self.min_validity);
        if ttl <= needed {
            return Err(format!(
                "ttl is {ttl:?}, but drift ({:?}) and min_validity ({:?}) leave nothing of it; use a longer ttl",
                self.drift(ttl),
                self.min_validity
            ));
        }
        Ok(())
    }
}

/// Whether `ttl` is within the limits; the text names the value and the limits.
pub fn check_ttl(ttl: Duration) -> Result<(), String> {
    if ttl < TTL_MIN || ttl > SPAN_MAX {
        return Err(format!("ttl is {ttl:?}; it must be between 10 ms and one year"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(ttl_ms: u64) -> Terms {
        Terms { ttl: Duration::from_millis(ttl_ms), ..Terms::default() }
    }

    #[test]
    fn the_deadline_counts_from_the_send_and_takes_drift_off() {
        let terms = terms(1000);
        let deadline = terms.deadline(Time::from_millis(5000), terms.ttl);
        assert_eq!(deadline, Time::from_millis(5000 + 1000 - 10 - 2));
        assert_eq!(terms.sent_at(deadline, terms.ttl), Time::from_millis(5000));
    }

    #[test]
    fn the_server_keeps_the_key_at_least_as_long_as_the_holder_believes() {
        let mut terms = terms(10);
        terms.ttl = Duration::from_micros(10_500);
        terms.lock_delay = Duration::from_millis(3);
        assert_eq!(terms.server_ttl_ms(terms.ttl), 14);
    }

    #[test]
    fn the_key_stays_for_its_shortest_time_by_a_clock_that_is_fast_too() {
        let begun = Time::from_millis(5000);
        let terms = Terms { min_hold: Duration::from_millis(500), ..terms(1000) };
        assert_eq!(terms.stays_until(begun), Time::from_millis(5505));
        assert_eq!(Terms { min_hold: Duration::ZERO, ..terms }.stays_until(begun), begun);
    }

    #[test]
    fn max_hold_bounds_the_ttl_and_the_deadline_is_not_before_it() {
        for drift_factor in [0.0, 0.01, 0.5] {
            for (hold_ms, most_ms) in [(1, 2100), (1500, 3100), (20_000, 40_100), (60_000, 30_000)] {
                let max_hold = Duration::from_millis(hold_ms);
                let terms = Terms { drift_factor, max_hold: Some(max_hold), ..terms(30_000) }.within_max_hold();
                assert!(terms.ttl <= Duration::from_millis(most_ms), "{terms:?}");
                assert!(
                    terms.ttl == Duration::from_secs(30)
                        || terms.deadline(Time::ZERO, terms.ttl) >= Time::ZERO + max_hold
                );
                assert!(terms.check().is_ok());
            }
        }
        let narrow =
            Terms { min_validity: Duration::from_secs(9), max_hold: Some(Duration::from_millis(5)), ..terms(30_000) };
        assert!(narrow.within_max_hold().check().is_ok());
        assert_eq!(terms(700).within_max_hold(), terms(700));
    }

    #[test]
    fn limits_are_named() {
        assert!(terms(9).check().unwrap_err().contains("10 ms"));
        assert!(terms(10).check().is_ok());
        let narrow = Terms { min_validity: Duration::from_millis(8), ..terms(10) };
        assert!(narrow.check().unwrap_err().contains("min_validity"));
        let brief = Terms { min_hold: Duration::from_millis(11), ..terms(10) };
        assert!(brief.check().unwrap_err().contains("min_hold is 11ms, but ttl is 10ms"));
        assert!(Terms { min_hold: Duration::MAX, ..terms(10) }.check().unwrap_err().contains("min_hold"));
        assert!(Terms { min_hold: Duration::from_millis(100), ..terms(100) }.check().is_ok());
        assert!(Terms { min_validity: Duration::MAX, ..terms(10) }.check().unwrap_err().contains("min_validity"));
        assert!(Terms { drift_factor: f64::NAN, ..terms(100) }.check().unwrap_err().contains("drift_factor"));
        let year = Terms { ttl: SPAN_MAX + Duration::from_millis(1), ..Terms::default() };
        assert!(year.check().unwrap_err().contains("one year"));
    }
}
