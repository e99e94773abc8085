//! The one place that reads clocks.

#[cfg(not(target_family = "wasm"))]
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::machine::Time;

/// Now, on the monotonic clock that also counts suspend.
///
/// Linux and Android: `CLOCK_BOOTTIME`. Apple's systems: `CLOCK_MONOTONIC`, which counts sleep there; the standard
/// library's clock does not. Elsewhere the standard library's monotonic clock, counted from its first use.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
pub(crate) fn now() -> Time {
    #[cfg(not(target_vendor = "apple"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(target_vendor = "apple")]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let spec = rustix::time::clock_gettime(CLOCK);
    let seconds = u64::try_from(spec.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(spec.tv_nsec).unwrap_or(0);
    Time::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Now, on the clock made of the host's.
#[cfg(target_family = "wasm")]
pub(crate) use super::hosted::clock::now;

/// Now, on the monotonic clock.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple", target_family = "wasm")))]
#[allow(clippy::disallowed_methods)] // this is the one place
pub fn now() -> Time {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    // one second ahead of zero, so that "a little earlier" never saturates
    Time::from_nanos(1_000_000_000) + START.get_or_init(Instant::now).elapsed()
}

/// The wall clock, microseconds since 1970. Only for people and for proposing fencing tokens, never for deadlines.
#[cfg(not(target_family = "wasm"))]
#[allow(clippy::disallowed_methods)] // this is the one place
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The host's wall clock, for the same.
#[cfg(target_family = "wasm")]
pub(crate) fn wall_us() -> u64 {
    super::hosted::host().wall_us()
}
