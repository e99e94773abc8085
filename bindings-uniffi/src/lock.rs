//! A lock by name, or several as one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cancel::NativeCancel;
use crate::entered::entered;
use crate::error::NativeError;
use crate::lease::NativeLease;
use crate::options::{count, span};
use crate::records::Permits;

/// `wait_ms` of an acquire: for ever.
const FOR_EVER: i64 = -1;

/// A lock, for threads and for coroutines. It holds nothing by itself.
#[derive(uniffi::Object)]
pub struct NativeLock(Locks);

#[allow(clippy::large_enum_variant)] // each is behind an Arc of its own
enum Locks {
    One { blocking: onelock::blocking::Lock, asynchronous: onelock::Lock },
    Several { blocking: onelock::blocking::MultiLock, asynchronous: onelock::MultiLock },
}

impl NativeLock {
    pub(crate) fn one(blocking: onelock::blocking::Lock, asynchronous: onelock::Lock) -> NativeLock {
        NativeLock(Locks::One { blocking, asynchronous })
    }

    /// The lock, if it is one.
    fn single(&self, tried: &str) -> Result<(&onelock::blocking::Lock, &onelock::Lock), NativeError> {
        match &self.0 {
            Locks::One { blocking, asynchronous } => Ok((blocking, asynchronous)),
            Locks::Several { .. } => Err(NativeError::invalid(tried, "these are several locks; ask one of them")),
        }
    }
}

/// Leases that futures were granted, by the numbers that the other language chose. A future must not return them itself: a
/// result that is not fetched, since the coroutine was cancelled in that moment, is never dropped by uniffi.
static GRANTED: LazyLock<Mutex<HashMap<i64, Arc<NativeLease>>>> = LazyLock::new(Mutex::default);

fn granted() -> MutexGuard<'static, HashMap<i64, Arc<NativeLease>>> {
    GRANTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn grant(number: i64, lease: onelock::Lease) {
    granted().insert(number, NativeLease::of_coroutine(lease));
}

/// The lease that a future was granted under this number.
#[uniffi::export]
pub fn take_granted(number: i64) -> Option<Arc<NativeLease>> {
    granted().remove(&number)
}

/// Gives back what a future may have been granted under this number, after it was cancelled.
#[uniffi::export]
pub fn forget_granted(number: i64) {
    let lease = granted().remove(&number);
    if let Some(lease) = lease {
        lease.forget();
    }
}

/// What `acquire` may wait; `None` for ever.
fn wait(wait_ms: i64) -> Result<Option<Duration>, NativeError> {
    if wait_ms == FOR_EVER { Ok(None) } else { span(wait_ms, "wait", "acquire").map(Some) }
}

#[uniffi::export]
impl NativeLock {
    /// Several locks as one, all or none. No I/O.
    #[uniffi::constructor]
    pub fn several(locks: Vec<Arc<NativeLock>>) -> Result<Arc<NativeLock>, NativeError> {
        let (mut blocking, mut asynchronous) = (Vec::new(), Vec::new());
        for lock in &locks {
            let (one, other) = lock.single("make a lock")?;
            blocking.push(one.clone());
            asynchronous.push(other.clone());
        }
        let blocking = onelock::blocking::MultiLock::new(blocking);
        blocking.validate()?;
        let asynchronous = onelock::MultiLock::new(asynchronous);
        Ok(Arc::new(NativeLock(Locks::Several { blocking, asynchronous })))
    }

    /// The same semaphore, of which an acquire takes so many permits.
    pub fn taking(&self, permits: i32) -> Result<Arc<NativeLock>, NativeError> {
        let (blocking, asynchronous) = self.single("acquire")?;
        let permits = count(permits, "permits", "acquire")?;
        Ok(Arc::new(NativeLock::one(blocking.clone().count(permits), asynchronous.clone().count(permits))))
    }

    /// Fails when name or options are not valid. No I/O.
    pub fn validate(&self) -> Result<(), NativeError> {
        match &self.0 {
            Locks::One { blocking, .. } => blocking.validate()?,
            Locks::Several { blocking, .. } => blocking.validate()?,
        }
        Ok(())
    }

    /// Waits its turn on this thread; -1 is for ever.
    pub fn acquire_blocking(&self, wait_ms: i64, cancel: &NativeCancel) -> Result<Arc<NativeLease>, NativeError> {
        let wait = wait(wait_ms)?;
        let lease = match &self.0 {
            Locks::One { blocking, .. } => {
                let lock = blocking.clone().interrupt(cancel.flag());
                wait.map_or_else(|| lock.acquire(), |wait| lock.acquire_within(wait))?
            }
            Locks::Several { blocking, .. } => {
                let lock = blocking.clone().interrupt(cancel.flag());
                wait.map_or_else(|| lock.acquire(), |wait| lock.acquire_within(wait))?
            }
        };
        Ok(NativeLease::of_thread(lease))
    }

    pub fn try_acquire_blocking(&self) -> Result<Option<Arc<NativeLease>>, NativeError> {
        let lease = match &self.0 {
            Locks::One { blocking, .. } => blocking.try_acquire()?,
            Locks::Several { blocking, .. } => blocking.try_acquire()?,
        };
        Ok(lease.map(NativeLease::of_thread))
    }

    /// Waits its turn; -1 is for ever. The lease is fetched with `take_granted`.
    pub async fn acquire(&self, wait_ms: i64, number: i64) -> Result<(), NativeError> {
        let lease = match (&self.0, wait(wait_ms)?) {
            (Locks::One { asynchronous, .. }, None) => entered(asynchronous.acquire()).await??,
            (Locks::One { asynchronous, .. }, Some(wait)) => entered(asynchronous.acquire_within(wait)).await??,
            (Locks::Several { asynchronous, .. }, None) => entered(asynchronous.acquire()).await??,
            (Locks::Several { asynchronous, .. }, Some(wait)) => entered(asynchronous.acquire_within(wait)).await??,
        };
        grant(number, lease);
        Ok(())
    }

    /// The same, of a lock that is free.
    pub async fn try_acquire(&self, number: i64) -> Result<(), NativeError> {
        let lease = match &self.0 {
            Locks::One { asynchronous, .. } => entered(asynchronous.try_acquire()).await??,
            Locks::Several { asynchronous, .. } => entered(asynchronous.try_acquire()).await??,
        };
        if let Some(lease) = lease {
            grant(number, lease);
        }
        Ok(())
    }

    pub fn attach_blocking(&self, proof: String) -> Result<Arc<NativeLease>, NativeError> {
        Ok(NativeLease::of_thread(self.single("attach")?.0.attach(&proof)?))
    }

    pub async fn attach(&self, proof: String, number: i64) -> Result<(), NativeError> {
        grant(number, entered(self.single("attach")?.1.attach(&proof)).await??);
        Ok(())
    }

    pub fn is_locked_blocking(&self) -> Result<bool, NativeError> {
        Ok(match &self.0 {
            Locks::One { blocking, .. } => blocking.is_locked()?,
            Locks::Several { blocking, .. } => blocking.is_locked()?,
        })
    }

    pub async fn is_locked(&self) -> Result<bool, NativeError> {
        Ok(match &self.0 {
            Locks::One { asynchronous, .. } => entered(asynchronous.is_locked()).await??,
            Locks::Several { asynchronous, .. } => entered(asynchronous.is_locked()).await??,
        })
    }

    pub fn permits_blocking(&self) -> Result<Option<Permits>, NativeError> {
        Ok(self.single("permits")?.0.permits()?.map(Permits::from))
    }

    pub async fn permits(&self) -> Result<Option<Permits>, NativeError> {
        Ok(entered(self.single("permits")?.1.permits()).await??.map(Permits::from))
    }

    pub fn set_permits_blocking(&self, total: i32) -> Result<Permits, NativeError> {
        let total = count(total, "total", "set_permits")?;
        Ok(self.single("set_permits")?.0.set_permits(total)?.into())
    }

    pub async fn set_permits(&self, total: i32) -> Result<Permits, NativeError> {
        let total = count(total, "total", "set_permits")?;
        Ok(entered(self.single("set_permits")?.1.set_permits(total)).await??.into())
    }
}
