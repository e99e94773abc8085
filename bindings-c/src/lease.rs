//! A lease: one granted hold.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onelock::ErrorKind;
use onelock::blocking::Lease;

use crate::boundary::{expose, free, live, output, peek, put_if_wanted, status, value};
use crate::client::ClientShare;
use crate::enums::{ONELOCK_KIND_MULTI, duration, grade_number, kind_number, loss_number, ms, release_number};
use crate::error::{Failure, onelock_error};
use crate::listeners::{Callback, Listeners, onelock_jeopardy_fn, onelock_lost_fn};
use crate::lock_options::Settings;
use crate::object::exposed;
use crate::proof::{Proof, onelock_proof};
use crate::status::{ONELOCK_OK, onelock_status};
use crate::text::{bytes, c_text};

/// One granted hold of a lock. Any thread may use it. `onelock_lease_is_held` is always correct.
pub struct onelock_lease {
    _private: [u8; 0],
}

pub(crate) struct LeaseObject {
    lease: Lease,
    /// Made with the first listener: most leases have none.
    listeners: OnceLock<Arc<Listeners>>,
    several: bool,
    // after the lease: its release is handed over before the clients are dropped
    _clients: Vec<Arc<ClientShare>>,
}

/// What a lease has from its lock.
#[derive(Clone)]
pub(crate) struct LeaseOrigin {
    /// At least one.
    pub(crate) clients: Vec<Arc<ClientShare>>,
    pub(crate) settings: Settings,
    pub(crate) several: bool,
}

exposed!(LeaseObject, Lease, onelock_lease, "lease");

impl LeaseObject {
    /// Makes a handle for a granted lease, with the callbacks of its lock.
    pub(crate) fn expose(lease: Lease, origin: LeaseOrigin, tried: &str) -> Result<*mut onelock_lease, Failure> {
        let LeaseOrigin { clients, settings, several } = origin;
        let handle = expose(LeaseObject { lease, listeners: OnceLock::new(), several, _clients: clients }, tried)?;
        if settings.on_lost.is_some() || settings.on_jeopardy.is_some() {
            let object = live::<LeaseObject>(handle, tried)?;
            let listeners = object.listeners(handle);
            listeners.on_jeopardy(&object.lease, settings.on_jeopardy, tried)?;
            listeners.on_lost(&object.lease, settings.on_lost, tried)?;
        }
        Ok(handle)
    }

    fn listeners(&self, handle: *const onelock_lease) -> &Arc<Listeners> {
        self.listeners.get_or_init(|| Listeners::new(handle as usize, self.lease.process_id()))
    }
}

/// Whether this handle holds the lock now: not released, not lost, same process, before the deadline. False for NULL
/// and dead handles.
///
/// Without locks and I/O: a table look-up, an atomic load and a clock reading. May be called everywhere but in signal
/// handlers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_is_held(lease: *const onelock_lease) -> bool {
    value(false, || peek(lease, |object: &LeaseObject| object.lease.is_held()))
}

/// The fencing token of this hold, for the protected resource. 0 when fencing is off, and for a lease of several locks:
/// `onelock_lease_fencing_token_of`. It grows with every grant of the
/// name; it is below 2^53.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_fencing_token(lease: *const onelock_lease) -> u64 {
    value(0, || peek(lease, |object: &LeaseObject| object.lease.fencing_token())?)
}

/// The fencing token of one of the locks that a lease of several holds, by its name; of a lease of one lock, its own. 0
/// when fencing is off, and for a name that it does not hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_fencing_token_of(
    lease: *const onelock_lease,
    name: *const c_char,
    name_length: usize,
) -> u64 {
    value(0, || {
        let name = bytes(name, name_length, "name", "look at a lease").ok()?;
        peek(lease, |object: &LeaseObject| object.lease.fencing_token_of(name))?
    })
}

/// The grade of the fencing token, from the server's configuration: an `ONELOCK_GRADE_`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_fencing_grade(lease: *const onelock_lease) -> u32 {
    value(0, || peek(lease, |object: &LeaseObject| grade_number(object.lease.fencing_grade())))
}

/// The time until the deadline, without further renewals, in milliseconds; 0 when it is not held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_remaining_ms(lease: *const onelock_lease) -> i64 {
    value(0, || peek(lease, |object: &LeaseObject| ms(object.lease.remaining())))
}

/// Why the lease was lost, an `ONELOCK_LOSS_`; `ONELOCK_LOSS_NONE` when it was not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_loss(lease: *const onelock_lease) -> u32 {
    value(0, || peek(lease, |object: &LeaseObject| loss_number(object.lease.loss())))
}

/// `ONELOCK_ERR_LOST`, with an error that names the reason, if the lease was lost; `ONELOCK_OK` while it is held and
/// after a release. No I/O.
///
/// At the end of the work, release, then call this. A release that finds the hold gone before its deadline counts as a
/// loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_check_loss(
    lease: *const onelock_lease,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "use the lease";
    status(error, TRIED, || {
        let object = live::<LeaseObject>(lease, TRIED)?;
        let Some(reason) = object.lease.loss() else { return Ok(ONELOCK_OK) };
        let detail = format!("the lease was lost: {}", reason.explain());
        Err(Failure::new(ErrorKind::Lost, TRIED, &detail).on(object.lease.name()))
    })
}

/// The hold count of the owner; 1 for a lock that is not reentrant, 0 when it is not held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_hold_count(lease: *const onelock_lease) -> u64 {
    value(0, || peek(lease, |object: &LeaseObject| object.lease.hold_count()))
}

/// The kind of lock, an `ONELOCK_KIND_`; 0 for a dead handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_kind(lease: *const onelock_lease) -> u32 {
    value(0, || {
        peek(
            lease,
            |object: &LeaseObject| if object.several { ONELOCK_KIND_MULTI } else { kind_number(object.lease.kind()) },
        )
    })
}

/// The name of the lock, not NUL-terminated; it belongs to the lease. Of several locks all names, with `, ` between them,
/// for messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_name(
    lease: *const onelock_lease,
    name: *mut *const c_char,
    name_length: *mut usize,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "look at a lease";
    status(error, TRIED, || {
        let object = live::<LeaseObject>(lease, TRIED)?;
        let (name, name_length) = (output(name, "name", TRIED)?, output(name_length, "name_length", TRIED)?);
        let found = object.lease.name();
        name.put(found.as_ptr().cast())?;
        name_length.put(found.len())
    })
}

/// Sets the loss callback of this lease, in place of the one before; `NULL` removes it. It is called once; at once if
/// the lease is lost already.
///
/// It runs on a thread for callbacks. This function waits for a running callback, so that the former one is never
/// called after it has returned, unless it is called from that callback itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_on_lost(
    lease: *const onelock_lease,
    callback: onelock_lost_fn,
    user_data: *mut c_void,
    error: *mut *mut onelock_error,
) -> onelock_status {
    status(error, "on_lost", || {
        let object = live::<LeaseObject>(lease, "on_lost")?;
        object.listeners(lease).on_lost(&object.lease, Callback::new(callback, user_data), "on_lost")?;
        Ok(ONELOCK_OK)
    })
}

/// Sets the callback for renewals that were missed while the lease is still valid; `NULL` removes it. Otherwise as
/// `onelock_lease_on_lost`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_on_jeopardy(
    lease: *const onelock_lease,
    callback: onelock_jeopardy_fn,
    user_data: *mut c_void,
    error: *mut *mut onelock_error,
) -> onelock_status {
    status(error, "on_jeopardy", || {
        let object = live::<LeaseObject>(lease, "on_jeopardy")?;
        object.listeners(lease).on_jeopardy(&object.lease, Callback::new(callback, user_data), "on_jeopardy")?;
        Ok(ONELOCK_OK)
    })
}

/// A file descriptor that becomes readable when the lease is lost, for `poll` and similar functions. It is always the
/// same one.
///
/// It belongs to the lease: do not read, write or close it, and stop watching it before the lease is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_lost_fd(
    lease: *const onelock_lease,
    fd: *mut c_int,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "lost_fd";
    status(error, TRIED, || {
        let object = live::<LeaseObject>(lease, TRIED)?;
        let fd = output(fd, "fd", TRIED)?;
        fd.put(object.listeners(lease).lost_fd(&object.lease, TRIED)?)
    })
}

/// Waits for the loss of the lease, at most `wait_ms` (-1: without limit; then it never returns if the lease is
/// released). Writes `ONELOCK_LOSS_NONE` when it has not been lost by then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_wait_lost(
    lease: *const onelock_lease,
    wait_ms: i64,
    reason: *mut u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "wait_lost";
    status(error, TRIED, || {
        let object = live::<LeaseObject>(lease, TRIED)?;
        let reason = output(reason, "reason", TRIED)?;
        let limit = crate::enums::wait(wait_ms, TRIED)?.unwrap_or(Duration::from_secs(100 * 365 * 24 * 3600));
        reason.put(loss_number(object.lease.wait_lost(limit)?))
    })
}

/// Sets the end of the lease to `ttl_ms` from now, unless it ends later already. It never adds or shortens.
///
/// From 10 ms to one year. Automatic renewal continues with the longer of the two lengths. One round trip; returns
/// within `connect_timeout` + 2 x `request_timeout`. `ONELOCK_ERR_LOST` or `ONELOCK_ERR_NOT_HELD` when the lease is not
/// held; `ONELOCK_ERR_UNAVAILABLE` when no server answered (the deadline is unchanged).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_extend(
    lease: *const onelock_lease,
    ttl_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "extend";
    status(error, TRIED, || {
        let object = live::<LeaseObject>(lease, TRIED)?;
        object.lease.extend(duration(ttl_ms, "ttl_ms", TRIED)?)?;
        Ok(ONELOCK_OK)
    })
}

/// Makes a write lease a read lease, in place: other readers may enter from now on, and at no moment could another writer.
/// The fencing token is a new one. A read lease stays what it is.
///
/// One round trip; returns within `connect_timeout` + 2 x `request_timeout`. `ONELOCK_ERR_INVALID_ARGUMENT` for another kind
/// of lock; `ONELOCK_ERR_BUSY` while its owner enters or leaves it; `ONELOCK_ERR_LOST` or `ONELOCK_ERR_NOT_HELD` when the lease
/// is not held; `ONELOCK_ERR_UNAVAILABLE` when no server answered: it counts as a read lease then, and a further call asks again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_downgrade(
    lease: *const onelock_lease,
    error: *mut *mut onelock_error,
) -> onelock_status {
    status(error, "downgrade", || {
        live::<LeaseObject>(lease, "downgrade")?.lease.downgrade()?;
        Ok(ONELOCK_OK)
    })
}

/// Releases the lock, and reports what the server found. Idempotent; one round trip, within `request_timeout`.
///
/// `outcome` may be `NULL`; it becomes `ONELOCK_RELEASED`, `ONELOCK_ALREADY_EXPIRED`, `ONELOCK_ALREADY_RELEASED` or
/// `ONELOCK_UNCONFIRMED`, none of which is an error. The only error for a living lease is `ONELOCK_ERR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_release(
    lease: *const onelock_lease,
    outcome: *mut u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    status(error, "release", || {
        let found = live::<LeaseObject>(lease, "release")?.lease.release()?;
        put_if_wanted(outcome, release_number(found));
        Ok(ONELOCK_OK)
    })
}

/// Detaches the hold for another process: this handle holds nothing from now on; the proof is for
/// `onelock_lock_attach`. Attach within the ttl; the hold is not renewed meanwhile. The first attach gets the lock. A
/// release of this handle sends nothing and reports `ONELOCK_ALREADY_RELEASED`. Free the proof with
/// `onelock_proof_free`. Of several locks it is one proof a line, in the order in which they were given to
/// `onelock_multi_new`; attach with each to its lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_detach(
    lease: *const onelock_lease,
    proof: *mut *mut onelock_proof,
    error: *mut *mut onelock_error,
) -> onelock_status {
    const TRIED: &str = "detach";
    status(error, TRIED, || {
        let object = live::<LeaseObject>(lease, TRIED)?;
        let proof = output(proof, "proof", TRIED)?;
        proof.put(expose(Proof(c_text(&object.lease.detach()?)), TRIED)?)
    })
}

/// Frees the lease. If it is still held it is released in the background, without waiting. Waits for a running callback
/// of this lease, so that none is called after this has returned; called from such a callback it takes effect when that
/// returns. Does nothing for NULL and dead handles. In a forked child it sends nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_lease_free(lease: *mut onelock_lease) {
    free::<LeaseObject>(lease, |object| {
        if let Some(listeners) = object.listeners.get() {
            listeners.close();
        }
    });
}
