//! A setter for each option that a client has and a lock may set for itself.

use crate::enums::duration;
use crate::error::onelock_error;
use crate::lock_options::{onelock_lock_options, set};
use crate::status::onelock_status;

// written by tools/options.py: lock
/// Length of a lease: how long others wait after a crash of the holder (10 ms to one year).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_ttl(
    options: *mut onelock_lock_options,
    ttl_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set ttl", || {
        let ttl = duration(ttl_ms, "ttl_ms", "set ttl")?;
        Ok(Box::new(move |settings| settings.ttl = Some(ttl)))
    })
}

/// Whether leases are renewed in the background, every third of the ttl, until they are released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_auto_renew(
    options: *mut onelock_lock_options,
    auto_renew: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set auto_renew", || Ok(Box::new(move |settings| settings.auto_renew = Some(auto_renew))))
}

/// How long a lock stays taken at least, even if it is released earlier (at most the ttl).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_min_hold(
    options: *mut onelock_lock_options,
    min_hold_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set min_hold", || {
        let min_hold = duration(min_hold_ms, "min_hold_ms", "set min_hold")?;
        Ok(Box::new(move |settings| settings.min_hold = Some(min_hold)))
    })
}

/// The longest time a lease may be held; then renewal stops and the lease is lost (at least 1 ms).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_max_hold(
    options: *mut onelock_lock_options,
    max_hold_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set max_hold", || {
        let max_hold = duration(max_hold_ms, "max_hold_ms", "set max_hold")?;
        Ok(Box::new(move |settings| settings.max_hold = Some(max_hold)))
    })
}

/// How much longer than the lease the key lives: others wait that much longer after a crash.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_lock_delay(
    options: *mut onelock_lock_options,
    lock_delay_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set lock_delay", || {
        let lock_delay = duration(lock_delay_ms, "lock_delay_ms", "set lock_delay")?;
        Ok(Box::new(move |settings| settings.lock_delay = Some(lock_delay)))
    })
}

/// How much of a lease must be left when its grant arrives (less than the ttl).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_min_validity(
    options: *mut onelock_lock_options,
    min_validity_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set min_validity", || {
        let min_validity = duration(min_validity_ms, "min_validity_ms", "set min_validity")?;
        Ok(Box::new(move |settings| settings.min_validity = Some(min_validity)))
    })
}

/// Whether each grant draws a fencing token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_fencing(
    options: *mut onelock_lock_options,
    fencing: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set fencing", || Ok(Box::new(move |settings| settings.fencing = Some(fencing))))
}
// end of lock
