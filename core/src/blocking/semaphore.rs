//! What a lock can do that is a semaphore, for threads.

use std::time::Duration;

use super::{Lease, Lock, wait_for};
use crate::error::Error;
use crate::inspect::Permits;

impl Lock {
    /// Waits for `count` permits of a semaphore and takes them: all or none; see [`crate::Lock::acquire_many`].
    ///
    /// # Errors
    /// As [`crate::Lock::acquire_many`]; `Unsupported` inside an async runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let downloads = client.semaphore("downloads", 4);
    /// let lease = downloads.acquire_many(3)?;
    /// assert!(downloads.try_acquire_many(2)?.is_none()); // one is left
    /// lease.release()?;
    /// # Ok(()) }
    /// ```
    pub fn acquire_many(&self, count: u32) -> Result<Lease, Error> {
        self.clone().count(count).enter("acquire", None)
    }

    /// The same with a bounded wait; see [`crate::Lock::acquire_many_within`].
    ///
    /// # Errors
    /// As [`crate::Lock::acquire_many_within`].
    pub fn acquire_many_within(&self, count: u32, wait: Duration) -> Result<Lease, Error> {
        self.clone().count(count).enter("acquire", Some(wait))
    }

    /// The same with one try: `None` when too few permits are free.
    ///
    /// # Errors
    /// As [`Lock::acquire_many`].
    pub fn try_acquire_many(&self, count: u32) -> Result<Option<Lease>, Error> {
        self.clone().count(count).try_acquire()
    }

    /// How many permits a semaphore has, and how many of them are held; see [`crate::Lock::permits`].
    ///
    /// # Errors
    /// As [`crate::Lock::permits`]; `Unsupported` inside an async runtime.
    pub fn permits(&self) -> Result<Option<Permits>, Error> {
        let lock = self.to_async();
        self.waited("permits", async move { lock.permits().await })
    }

    /// Sets how many permits a semaphore has in all; see [`crate::Lock::set_permits`].
    ///
    /// # Errors
    /// As [`crate::Lock::set_permits`]; `Unsupported` inside an async runtime.
    pub fn set_permits(&self, total: u32) -> Result<Permits, Error> {
        let lock = self.to_async();
        self.waited("set_permits", async move { lock.set_permits(total).await })
    }

    /// The async form of the same description.
    pub(super) fn to_async(&self) -> crate::Lock {
        crate::Lock::described(self.client().to_async(), self.spec().clone())
    }

    /// Runs it on the background runtime and waits for it.
    pub(super) fn waited<T: Send + 'static>(
        &self,
        tried: &str,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let engine = self.client().engine(tried).map_err(|error| error.on(&self.spec().name))?;
        wait_for(&engine, self.interrupt.get(), work).unwrap_or_else(|stopped| Err(self.stopped(stopped)))
    }
}
