//! The clock of histories and logs: counted from the boot of the machine, the same for all of its processes.

/// Nanoseconds since boot, time asleep included. Values of different processes can be compared.
pub fn boot_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that lives through the call, and the clock is a constant of the system.
    #[allow(unsafe_code, reason = "the standard library offers no clock that runs on while the machine sleeps")]
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    assert_eq!(result, 0, "the system has no boot clock");
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn runs_at_the_pace_of_time() {
        let (start, clock) = (Instant::now(), boot_ns());
        std::thread::sleep(Duration::from_millis(20));
        let (passed, counted) = (start.elapsed(), boot_ns() - clock);
        assert!(u128::from(counted) >= 20_000_000 && u128::from(counted) < passed.as_nanos() + 20_000_000);
    }
}
