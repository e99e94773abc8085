//! One clock for all processes of the demo, so that their reports can be put in order.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds on the machine's monotonic clock: the same in every process.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}
