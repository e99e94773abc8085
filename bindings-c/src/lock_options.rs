//! The options of one lock, set one by one.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use onelock::Owner;

use crate::boundary::{expose, free, live, status, value};
use crate::error::{Failure, onelock_error};
use crate::listeners::{Callback, onelock_jeopardy_fn, onelock_lost_fn};
use crate::names::duration;
use crate::object::exposed;
use crate::owner::onelock_owner;
use crate::status::{ONELOCK_OK, onelock_status};

/// The options of a lock. What is not set has the client's value.
pub struct onelock_lock_options {
    _private: [u8; 0],
}

/// What was set.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    ttl: Option<Duration>,
    auto_renew: Option<bool>,
    min_hold: Option<Duration>,
    max_hold: Option<Duration>,
    lock_delay: Option<Duration>,
    min_validity: Option<Duration>,
    fencing: Option<bool>,
    renew_every: Option<Duration>,
    owner: Option<Owner>,
    pub(crate) on_lost: Option<Callback<onelock_lost_fn>>,
    pub(crate) on_jeopardy: Option<Callback<onelock_jeopardy_fn>>,
}

/// Sets them on a lock of either face.
macro_rules! apply {
    ($settings:expr, $lock:expr) => {{
        let (settings, mut lock) = ($settings, $lock);
        if let Some(ttl) = settings.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(auto_renew) = settings.auto_renew {
            lock = lock.auto_renew(auto_renew);
        }
        if let Some(min_hold) = settings.min_hold {
            lock = lock.min_hold(min_hold);
        }
        if let Some(max_hold) = settings.max_hold {
            lock = lock.max_hold(max_hold);
        }
        if let Some(lock_delay) = settings.lock_delay {
            lock = lock.lock_delay(lock_delay);
        }
        if let Some(min_validity) = settings.min_validity {
            lock = lock.min_validity(min_validity);
        }
        if let Some(fencing) = settings.fencing {
            lock = lock.fencing(fencing);
        }
        if let Some(renew_every) = settings.renew_every {
            lock = lock.renew_every(renew_every);
        }
        if let Some(owner) = &settings.owner {
            lock = lock.owner(owner);
        }
        lock
    }};
}

impl Settings {
    pub(crate) fn apply(&self, lock: onelock::blocking::Lock) -> onelock::blocking::Lock {
        apply!(self, lock)
    }

    pub(crate) fn apply_async(&self, lock: onelock::Lock) -> onelock::Lock {
        apply!(self, lock)
    }
}

/// Setters replace the whole, so that two threads (or a fork between) do no harm.
pub(crate) struct LockOptions(ArcSwap<Settings>);

exposed!(LockOptions, LockOptions, onelock_lock_options, "lock_options");

impl LockOptions {
    pub(crate) fn settings(&self) -> Settings {
        (**self.0.load()).clone()
    }
}

fn set(
    options: *mut onelock_lock_options,
    error: *mut *mut onelock_error,
    tried: &str,
    change: impl FnOnce() -> Result<Box<dyn Fn(&mut Settings)>, Failure>,
) -> onelock_status {
    status(error, tried, || {
        let options = live::<LockOptions>(options, tried)?;
        let change = change()?;
        options.0.rcu(|settings| {
            let mut settings = (**settings).clone();
            change(&mut settings);
            Arc::new(settings)
        });
        Ok(ONELOCK_OK)
    })
}

/// All options at the client's values. `NULL` when there is no room for another handle. Free them with
/// `onelock_lock_options_free`; locks that were made with them keep them.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_lock_options_new() -> *mut onelock_lock_options {
    value(std::ptr::null_mut(), || expose(LockOptions(ArcSwap::default()), "make options").ok())
}

/// Frees the options. NULL and dead handles are left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_free(options: *mut onelock_lock_options) {
    free::<LockOptions>(options, |_| ());
}

/// The length of the lease, from 10 ms to one year.
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

/// Whether the lease is renewed in the background until it is released; false gives a fixed lease of `ttl`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_auto_renew(
    options: *mut onelock_lock_options,
    auto_renew: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set auto_renew", || Ok(Box::new(move |settings| settings.auto_renew = Some(auto_renew))))
}

/// How long the lock stays taken at least, counted from the start of the hold and at most the ttl: a lease that is given
/// back earlier, in whatever way, leaves the key standing for the rest, nobody's. With `onelock_lock_try_acquire` only one
/// of many machines runs each tick of a job, although their clocks differ.
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

/// After this long renewal stops and the lease is lost with `ONELOCK_LOSS_MAX_HOLD`: bounds a hung holder.
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

/// How much longer than the lease the key lives on the server.
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

/// A grant that arrives with less than this left is not a grant.
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

/// Whether grants carry a fencing token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_fencing(
    options: *mut onelock_lock_options,
    fencing: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set fencing", || Ok(Box::new(move |settings| settings.fencing = Some(fencing))))
}

/// The renewal period, a third of the ttl by itself. For tests only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_renew_every(
    options: *mut onelock_lock_options,
    renew_every_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set renew_every", || {
        let renew_every = duration(renew_every_ms, "renew_every_ms", "set renew_every")?;
        Ok(Box::new(move |settings| settings.renew_every = Some(renew_every)))
    })
}

/// Who re-enters; only for `ONELOCK_KIND_REENTRANT`. Without an owner every acquire is its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_owner(
    options: *mut onelock_lock_options,
    owner: *const onelock_owner,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set owner", || {
        let owner = Owner::clone(&*live::<Owner>(owner, "set owner")?);
        Ok(Box::new(move |settings| settings.owner = Some(owner.clone())))
    })
}

/// The loss callback that every lease of the lock begins with; see `onelock_lease_on_lost`. `NULL` takes it away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_on_lost(
    options: *mut onelock_lock_options,
    callback: onelock_lost_fn,
    user_data: *mut c_void,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set on_lost", || {
        Ok(Box::new(move |settings| settings.on_lost = Callback::new(callback, user_data)))
    })
}

/// The jeopardy callback that every lease of the lock begins with; see `onelock_lease_on_jeopardy`. `NULL` takes it away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_on_jeopardy(
    options: *mut onelock_lock_options,
    callback: onelock_jeopardy_fn,
    user_data: *mut c_void,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set on_jeopardy", || {
        Ok(Box::new(move |settings| settings.on_jeopardy = Callback::new(callback, user_data)))
    })
}
