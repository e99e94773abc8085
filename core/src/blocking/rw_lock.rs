//! A read/write lock, for threads.

use super::{Client, Lease, Lock};
use crate::driver::downgrade;
use crate::error::Error;
use crate::machine::Kind;
use crate::multi_handle::AnyHandle;
use crate::rw_lock::of_several;

/// The two sides of a read/write lock, for threads, from [`Client::rw_lock`]; see [`crate::RwLock`].
///
/// ```
/// # fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::blocking::Client::connect("memory://")?;
/// let catalogue = client.rw_lock("catalogue");
/// let reading = catalogue.read().acquire()?;
/// assert!(catalogue.write().try_acquire()?.is_none());
/// reading.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    read: Lock,
    write: Lock,
}

impl RwLock {
    /// The reading side; see [`crate::RwLock::read`].
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// The writing side; see [`crate::RwLock::write`].
    pub fn write(&self) -> Lock {
        self.write.clone()
    }
}

impl Client {
    /// The read/write lock of this name; see [`crate::Client::rw_lock`]. No I/O.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let lease = client.rw_lock("catalogue").write().acquire()?;
    /// # lease.release()?; Ok(()) }
    /// ```
    pub fn rw_lock(&self, name: impl AsRef<[u8]>) -> RwLock {
        let name = name.as_ref();
        RwLock { read: self.lock_of(Kind::Read, name), write: self.lock_of(Kind::Write, name) }
    }
}

impl Lease {
    /// Makes a write lease a read lease, in place; see [`crate::Lease::downgrade`].
    ///
    /// # Errors
    /// As [`crate::Lease::downgrade`]; `Unsupported` inside an async runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let lease = client.rw_lock("catalogue").write().acquire()?;
    /// lease.downgrade()?;
    /// assert_eq!(lease.kind(), onelock::Kind::Read);
    /// # lease.release()?; Ok(()) }
    /// ```
    pub fn downgrade(&self) -> Result<(), Error> {
        super::check_outside_runtime("downgrade")?;
        let AnyHandle::One(handle) = &self.handle else { return Err(of_several(self.name())) };
        handle.check_held("downgrade")?;
        if !downgrade::begin(&handle.engine, &handle.hold, &handle.name)? {
            return Ok(());
        }
        downgrade::downgrade_blocking(&handle.engine, &handle.hold, &handle.name, self.interrupt.get())
    }
}
