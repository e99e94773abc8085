//! The options of one lock. `lock_setters.rs` sets those that a client has, too.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use onelock::Owner;

use crate::boundary::{expose, free, live, status, value};
use crate::enums::duration;
use crate::error::{Failure, onelock_error};
use crate::listeners::{Callback, onelock_jeopardy_fn, onelock_lost_fn};
use crate::object::exposed;
use crate::owner::onelock_owner;
use crate::status::{ONELOCK_OK, onelock_status};

/// The options of a lock. Those that are not set have the client's values.
pub struct onelock_lock_options {
    _private: [u8; 0],
}

/// The options that are set.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    // written by tools/options.py: fields
    pub(crate) ttl: Option<Duration>,
    pub(crate) auto_renew: Option<bool>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) lock_delay: Option<Duration>,
    pub(crate) min_validity: Option<Duration>,
    pub(crate) fencing: Option<bool>,
    // end of fields
    renew_every: Option<Duration>,
    owner: Option<Owner>,
    permits: Option<u32>,
    count: Option<u32>,
    pub(crate) on_lost: Option<Callback<onelock_lost_fn>>,
    pub(crate) on_jeopardy: Option<Callback<onelock_jeopardy_fn>>,
}

/// Sets them on a blocking or an async lock.
macro_rules! apply {
    ($settings:expr, $lock:expr) => {{
        let (settings, mut lock) = ($settings, $lock);
        // written by tools/options.py: applied
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
        // end of applied
        if let Some(renew_every) = settings.renew_every {
            lock = lock.renew_every(renew_every);
        }
        if let Some(owner) = &settings.owner {
            lock = lock.owner(owner);
        }
        if let Some(permits) = settings.permits {
            lock = lock.total_permits(permits);
        }
        if let Some(count) = settings.count {
            lock = lock.count(count);
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

/// Setters replace the whole value, so that two threads, or a fork in between, do no harm.
pub(crate) struct LockOptions(ArcSwap<Settings>);

exposed!(LockOptions, LockOptions, onelock_lock_options, "lock_options");

impl LockOptions {
    pub(crate) fn settings(&self) -> Settings {
        (**self.0.load()).clone()
    }
}

pub(crate) fn set(
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

/// Options that all have the client's values. `NULL` when there is no room for another handle. Free them with
/// `onelock_lock_options_free`; locks that were made with them keep a copy.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_lock_options_new() -> *mut onelock_lock_options {
    value(std::ptr::null_mut(), || expose(LockOptions(ArcSwap::default()), "make options").ok())
}

/// Frees the options. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_free(options: *mut onelock_lock_options) {
    free::<LockOptions>(options, |_| ());
}

/// The renewal period; by default a third of the ttl. For tests only.
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

/// The owner; only for `ONELOCK_KIND_REENTRANT`. Without it every acquire has an owner of its own.
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

/// How many permits a semaphore has in all, 1 to 1024: the same in every program. By default as many as are set. Only for
/// `ONELOCK_KIND_SEMAPHORE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_permits(
    options: *mut onelock_lock_options,
    permits: u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set permits", || Ok(Box::new(move |settings| settings.permits = Some(permits))))
}

/// How many permits one acquire takes, all or none; by default 1. Only for `ONELOCK_KIND_SEMAPHORE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_options_set_count(
    options: *mut onelock_lock_options,
    count: u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set count", || Ok(Box::new(move |settings| settings.count = Some(count))))
}

/// The loss callback of every lease of the lock; see `onelock_lease_on_lost`. `NULL` removes it.
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

/// The jeopardy callback of every lease of the lock; see `onelock_lease_on_jeopardy`. `NULL` removes it.
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
