//! The clock of the host.

use std::sync::Mutex;
use std::time::Duration;

use crate::machine::Time;
use crate::sys::host_clock::HostClock;
use crate::sys::lock;

static CLOCK: Mutex<HostClock> = Mutex::new(HostClock::new());

/// Now.
pub(crate) fn now() -> Time {
    let host = super::host();
    lock(&CLOCK).at(host.monotonic_ns(), host.wall_us())
}

/// The time left until `moment`.
pub(crate) fn left_until(moment: Time) -> Duration {
    moment.since(now())
}
