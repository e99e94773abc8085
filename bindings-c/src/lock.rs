//! A lock by name: the description of what to acquire.

use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use onelock::ErrorKind;
use onelock::blocking::{Lease, Lock, MultiLock};
use onelock::machine::multi::MEMBERS_MAX;

use crate::acquisition::{self, onelock_acquisition};
use crate::boundary::{expose, free, live, output, peek, status, value};
use crate::cancel::{flag, onelock_cancel};
use crate::client::{ClientObject, ClientShare, onelock_client};
use crate::enums::{ONELOCK_KIND_MULTI, kind, kind_number, wait};
use crate::error::{Failure, onelock_error};
use crate::lease::{LeaseObject, LeaseOrigin, onelock_lease};
use crate::lock_options::{LockOptions, Settings, onelock_lock_options};
use crate::object::exposed;
use crate::status::{ONELOCK_OK, onelock_status};
use crate::text::{bytes, terminated, text};

/// A lock by name, with its options, for any number of threads. It holds nothing by itself.
pub struct onelock_lock {
    _private: [u8; 0],
}

/// One lock with its options.
#[derive(Clone)]
pub(crate) struct OneLock {
    lock: Lock,
    settings: Settings,
    client: Arc<ClientShare>,
}

impl OneLock {
    /// The same for event loops.
    fn shared(&self) -> onelock::Lock {
        self.settings.apply_async(self.client.client.to_async().lock_of(self.lock.kind(), self.lock.name()))
    }
}

/// One lock, or several that are held together.
#[allow(clippy::large_enum_variant)] // each is in a box of its own in the table of handles
pub(crate) enum LockObject {
    One(OneLock),
    Many { lock: MultiLock, members: Vec<OneLock>, name: Box<[u8]> },
}

exposed!(LockObject, Lock, onelock_lock, "lock");

impl LockObject {
    /// The lock, if it is one.
    fn one(&self, tried: &str) -> Result<&Lock, Failure> {
        match self {
            LockObject::One(one) => Ok(&one.lock),
            LockObject::Many { .. } => {
                let detail = "these are several locks, which have no permits of their own; ask the semaphore itself";
                Err(Failure::new(ErrorKind::InvalidArgument, tried, detail).on(self.name()))
            }
        }
    }

    fn members(&self) -> &[OneLock] {
        match self {
            LockObject::One(one) => std::slice::from_ref(one),
            LockObject::Many { members, .. } => members,
        }
    }

    fn name(&self) -> &[u8] {
        match self {
            LockObject::One(one) => one.lock.name(),
            LockObject::Many { name, .. } => name,
        }
    }

    /// What its leases have from it.
    fn origin(&self) -> LeaseOrigin {
        let clients = self.members().iter().map(|member| member.client.clone()).collect();
        match self {
            LockObject::One(one) => LeaseOrigin { clients, settings: one.settings.clone(), several: false },
            LockObject::Many { .. } => LeaseOrigin { clients, settings: Settings::default(), several: true },
        }
    }

    fn lease(&self, granted: Lease, tried: &str) -> Result<*mut onelock_lease, Failure> {
        LeaseObject::expose(granted, self.origin(), tried)
    }
}

/// Several locks as one, all or none: `count` locks of any kinds and clients. No I/O. It is a lock as any other (acquire,
/// try, start), but has no proof to attach with. Free it with `onelock_lock_free`; the members may be freed before.
///
/// The lease is held while all of them are, and the first loss is the loss of the whole; callbacks belong to the lease,
/// those of the members' options do not count. Plain locks on one server are taken by one request, if all are free; else
/// members are acquired one after the other, in an order that is the same for all programs, and held while later ones are
/// waited for: callers of overlapping sets never wait in a circle. A lock that is named twice is held once.
/// `ONELOCK_ERR_INVALID_ARGUMENT` for no lock, more than 32, one name as two kinds, and one lock with two owners or two
/// numbers of permits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_multi_new(
    locks: *const *const onelock_lock,
    count: usize,
    lock: *mut *mut onelock_lock,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "make a lock";
    status(error, TRIED, || {
        let lock = output(lock, "lock", TRIED)?;
        let handles = handles(locks, count, TRIED)?;
        let mut members = Vec::new();
        for handle in handles {
            let LockObject::One(one) = &*live::<LockObject>(handle, TRIED)? else {
                let detail = "a member is several locks itself; give the locks that it is made of";
                return Err(Failure::new(ErrorKind::InvalidArgument, TRIED, detail));
            };
            members.push(one.clone());
        }
        let made = MultiLock::new(members.iter().map(|member| member.lock.clone()));
        made.validate()?;
        let name = made.names().join(&b", "[..]).into();
        lock.put(expose(LockObject::Many { lock: made, members, name }, TRIED)?)
    })
}

/// The handles of an array of at most as many as go together, one more, so that the core says what is wrong.
fn handles(locks: *const *const onelock_lock, count: usize, tried: &str) -> Result<Vec<*const onelock_lock>, Failure> {
    if locks.is_null() && count > 0 {
        return Err(Failure::new(ErrorKind::InvalidArgument, tried, "locks is NULL"));
    }
    let count = if locks.is_null() { 0 } else { count };
    if count > MEMBERS_MAX * 2 {
        let detail = format!("these are {count} locks; 32 at most go together");
        return Err(Failure::new(ErrorKind::InvalidArgument, tried, &detail));
    }
    // SAFETY: the caller gives an array of `count` handles.
    Ok((0..count).map(|at| unsafe { *locks.add(at) }).collect())
}

fn make<'a>(
    client: *const onelock_client,
    lock_kind: u32,
    name: impl FnOnce(&str) -> Result<&'a [u8], Failure>,
    options: *const onelock_lock_options,
    lock: *mut *mut onelock_lock,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "make a lock";
    status(error, TRIED, || {
        let client = live::<ClientObject>(client, TRIED)?.0.clone();
        let lock = output(lock, "lock", TRIED)?;
        let lock_kind = kind(lock_kind, TRIED)?;
        let name = name(TRIED)?;
        if !(1..=512).contains(&name.len()) {
            let detail = format!("the name has {} bytes; a name has 1 to 512 bytes", name.len());
            return Err(Failure::new(ErrorKind::InvalidArgument, TRIED, &detail));
        }
        let settings =
            if options.is_null() { Settings::default() } else { live::<LockOptions>(options, TRIED)?.settings() };
        let made = settings.apply(client.client.lock_of(lock_kind, name));
        lock.put(expose(LockObject::One(OneLock { lock: made, settings, client }), TRIED)?)
    })
}

/// A lock of this kind (an `ONELOCK_KIND_`) and name. No I/O. `options` may be `NULL`. Free it with
/// `onelock_lock_free`.
///
/// A name has 1 to 512 bytes, any bytes. It belongs to one kind of lock. A wrong length names another lock: for names
/// without a NUL there is `onelock_lock_new_str`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_new(
    client: *const onelock_client,
    lock_kind: u32,
    name: *const c_char,
    name_length: usize,
    options: *const onelock_lock_options,
    lock: *mut *mut onelock_lock,
    error: *mut *mut onelock_error,
) -> onelock_status {
    make(client, lock_kind, |tried| bytes(name, name_length, "name", tried), options, lock, error)
}

/// As `onelock_lock_new`, for a NUL-terminated name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_new_str(
    client: *const onelock_client,
    lock_kind: u32,
    name: *const c_char,
    options: *const onelock_lock_options,
    lock: *mut *mut onelock_lock,
    error: *mut *mut onelock_error,
) -> onelock_status {
    make(client, lock_kind, |tried| terminated(name, "name", tried), options, lock, error)
}

fn acquire(
    lock: *const onelock_lock,
    limit: impl FnOnce() -> Result<Option<Duration>, Failure>,
    cancel: *const onelock_cancel,
    lease: *mut *mut onelock_lease,
    error: *mut *mut onelock_error,
    tried: &str,
) -> onelock_status {
    status(error, tried, || {
        let object = live::<LockObject>(lock, tried)?;
        let lease = output(lease, "lease", tried)?;
        let limit = limit()?;
        let flag = flag(cancel, tried)?;
        let granted = match &*object {
            LockObject::One(one) => {
                let with_token = flag.map(|flag| one.lock.clone().interrupt(flag));
                let lock = with_token.as_ref().unwrap_or(&one.lock);
                limit.map_or_else(|| lock.acquire(), |limit| lock.acquire_within(limit))?
            }
            LockObject::Many { lock, .. } => {
                let with_token = flag.map(|flag| lock.clone().interrupt(flag));
                let lock = with_token.as_ref().unwrap_or(lock);
                limit.map_or_else(|| lock.acquire(), |limit| lock.acquire_within(limit))?
            }
        };
        lease.put(object.lease(granted, tried)?)
    })
}

/// Waits until the lock is held. Release the lease with `onelock_lease_release`, free it with `onelock_lease_free`.
///
/// `wait_ms`: -1 waits without limit, 0 tries once (`ONELOCK_ERR_BUSY` when it is held), a positive number waits that
/// long (`ONELOCK_ERR_TIMEOUT`). `cancel` may be `NULL`; when the token is cancelled the wait ends with
/// `ONELOCK_ERR_CANCELLED`, and nothing is left held.
///
/// Returns within `wait_ms` + `connect_timeout` + 2 x `request_timeout`, whatever the network does. Without a limit an
/// unreachable server is retried for `unreachable_limit` (30 s).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_acquire(
    lock: *const onelock_lock,
    wait_ms: i64,
    cancel: *const onelock_cancel,
    lease: *mut *mut onelock_lease,
    error: *mut *mut onelock_error,
) -> onelock_status {
    acquire(lock, || wait(wait_ms, "acquire"), cancel, lease, error, "acquire")
}

/// One try, one round trip: `ONELOCK_ERR_BUSY` when it is held. Otherwise as `onelock_lock_acquire`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_try_acquire(
    lock: *const onelock_lock,
    lease: *mut *mut onelock_lease,
    error: *mut *mut onelock_error,
) -> onelock_status {
    acquire(lock, || Ok(Some(Duration::ZERO)), std::ptr::null(), lease, error, "try_acquire")
}

/// Starts an acquire and returns at once, for event loops. `wait_ms` as in `onelock_lock_acquire`.
///
/// Wait with `onelock_acquisition_fd` or `onelock_acquisition_on_ready`, then call `onelock_acquisition_finish`. Free
/// it with `onelock_acquisition_free`, which cancels it if it has not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_acquire_start(
    lock: *const onelock_lock,
    wait_ms: i64,
    acquisition: *mut *mut onelock_acquisition,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "acquire";
    status(error, TRIED, || {
        let object = live::<LockObject>(lock, TRIED)?;
        let acquisition = output(acquisition, "acquisition", TRIED)?;
        let limit = wait(wait_ms, TRIED)?;
        let acquiring = match &*object {
            LockObject::One(one) => {
                let lock = one.shared();
                acquisition::boxed(async move {
                    match limit {
                        None => lock.acquire().await,
                        Some(limit) => lock.acquire_within(limit).await,
                    }
                })
            }
            LockObject::Many { members, .. } => {
                let lock = onelock::MultiLock::new(members.iter().map(OneLock::shared));
                acquisition::boxed(async move {
                    match limit {
                        None => lock.acquire().await,
                        Some(limit) => lock.acquire_within(limit).await,
                    }
                })
            }
        };
        acquisition.put(acquisition::start(acquiring, object.name(), object.origin())?)
    })
}

/// Takes over a hold that another process detached with `onelock_lease_detach`. The ttl begins now.
///
/// `proof` is its text, NUL-terminated. The server replaces the token of the hold, so a proof attaches only once; the
/// fencing token stays the same (Redlock: it may be higher). `ONELOCK_ERR_LOST` when the hold has ended, or the proof
/// was used before. After an error that does not tell whether the server attached, such as `ONELOCK_ERR_UNAVAILABLE`,
/// the hold is released if it did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_attach(
    lock: *const onelock_lock,
    proof: *const c_char,
    lease: *mut *mut onelock_lease,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "attach";
    status(error, TRIED, || {
        let object = live::<LockObject>(lock, TRIED)?;
        let lease = output(lease, "lease", TRIED)?;
        let proof = text(proof, "proof", TRIED)?;
        let LockObject::One(one) = &*object else {
            let detail = "several locks have no proof of their own; attach to them one by one";
            return Err(Failure::new(ErrorKind::Unsupported, TRIED, detail).on(object.name()));
        };
        lease.put(object.lease(one.lock.attach(proof)?, TRIED)?)
    })
}

/// Whether the lock is held, by this client or another; of several locks, whether one of them is. One round trip for each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_is_locked(
    lock: *const onelock_lock,
    is_locked: *mut bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "is_locked";
    status(error, TRIED, || {
        let object = live::<LockObject>(lock, TRIED)?;
        let is_locked = output(is_locked, "is_locked", TRIED)?;
        is_locked.put(match &*object {
            LockObject::One(one) => one.lock.is_locked()?,
            LockObject::Many { lock, .. } => lock.is_locked()?,
        })
    })
}

/// How many permits a semaphore has, how many of them are held, and how many are free. `known` is false, and all are 0, when
/// no number is set yet. Any of the last three may be `NULL`. One round trip.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_permits(
    lock: *const onelock_lock,
    known: *mut bool,
    total: *mut u64,
    held: *mut u64,
    free: *mut u64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "permits";
    status(error, TRIED, || {
        let object = live::<LockObject>(lock, TRIED)?;
        let known = output(known, "known", TRIED)?;
        let found = object.one(TRIED)?.permits()?;
        let (all, taken, left) = found.map_or((0, 0, 0), |found| (found.total, found.held, found.free));
        for (place, number) in [(total, all), (held, taken), (free, left)] {
            if !place.is_null() {
                output(place, "total, held or free", TRIED)?.put(number)?;
            }
        }
        known.put(found.is_some())
    })
}

/// Sets how many permits a semaphore has in all, 1 to 1024. Whoever holds permits keeps them. Programs that name another
/// number get `ONELOCK_ERR_PERMITS_MISMATCH` from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_set_permits(
    lock: *const onelock_lock,
    permits: u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "set_permits";
    status(error, TRIED, || {
        live::<LockObject>(lock, TRIED)?.one(TRIED)?.set_permits(permits)?;
        Ok(ONELOCK_OK)
    })
}

/// The kind of lock, an `ONELOCK_KIND_`; 0 for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_kind(lock: *const onelock_lock) -> u32 {
    value(0, || {
        peek(lock, |object: &LockObject| match object {
            LockObject::One(one) => kind_number(one.lock.kind()),
            LockObject::Many { .. } => ONELOCK_KIND_MULTI,
        })
    })
}

/// The name of the lock, not NUL-terminated; it belongs to the lock. Of several locks all names, with `, ` between them,
/// for messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_name(
    lock: *const onelock_lock,
    name: *mut *const c_char,
    name_length: *mut usize,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "look at a lock";
    status(error, TRIED, || {
        let object = live::<LockObject>(lock, TRIED)?;
        let (name, name_length) = (output(name, "name", TRIED)?, output(name_length, "name_length", TRIED)?);
        let found = object.name();
        name.put(found.as_ptr().cast())?;
        name_length.put(found.len())
    })
}

/// Frees the lock. Its leases remain. Does nothing for NULL and dead handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lock_free(lock: *mut onelock_lock) {
    free::<LockObject>(lock, |_| ());
}
