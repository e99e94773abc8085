//! What a lock can do that is a semaphore: several permits at once, and their number.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::inspect::{self, Permits};
use crate::lease::Lease;
use crate::lock::Lock;
use crate::machine::Op;

impl Lock {
    /// Waits for `count` permits of a semaphore and takes them: all or none. [`Lock::acquire`] takes one, or as many as
    /// [`count`](Lock::count) says.
    ///
    /// # Errors
    /// `InvalidArgument` when it has fewer permits than that, or is no semaphore; `PermitsMismatch`; else as
    /// [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let downloads = client.semaphore("downloads", 4);
    /// let lease = downloads.acquire_many(3).await?;
    /// assert!(downloads.try_acquire_many(2).await?.is_none()); // one is left
    /// lease.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire_many(&self, count: u32) -> Result<Lease, Error> {
        self.clone().count(count).enter("acquire", None).await
    }

    /// The same with a bounded wait; see [`Lock::acquire_within`].
    ///
    /// # Errors
    /// As [`Lock::acquire_many`]; `Timeout` when the wait was used up.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub async fn acquire_many_within(&self, count: u32, wait: Duration) -> Result<Lease, Error> {
        self.clone().count(count).enter("acquire", Some(wait)).await
    }

    /// The same with one try: `None` when too few permits are free.
    ///
    /// # Errors
    /// As [`Lock::acquire_many`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub async fn try_acquire_many(&self, count: u32) -> Result<Option<Lease>, Error> {
        self.clone().count(count).try_acquire().await
    }

    /// How many permits a semaphore has, and how many of them are held; `None` when no number is set yet. It may be
    /// outdated when it arrives.
    ///
    /// # Errors
    /// `InvalidArgument` for another kind of lock; `WrongKind` when no semaphore stands there; else from the server.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let downloads = client.semaphore("downloads", 4);
    /// let lease = downloads.acquire().await?;
    /// let permits = downloads.permits().await?.unwrap();
    /// assert_eq!((permits.total, permits.held, permits.free), (4, 1, 3));
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub async fn permits(&self) -> Result<Option<Permits>, Error> {
        let engine = self.semaphore_engine("permits")?;
        inspect::permits(&engine, "permits", &self.spec().name, Op::InspectPermits { key: self.spec().key.clone() })
            .await
    }

    /// Sets how many permits a semaphore has in all, 1 to 1024. Whoever holds permits keeps them, so for a while more may be
    /// held than there are. Programs that name another number get `PermitsMismatch` from now on.
    ///
    /// # Errors
    /// `InvalidArgument` for a number out of range, or another kind of lock; `WrongKind`; else from the server.
    ///
    /// # Cancel safety
    /// It may have been set.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let downloads = client.semaphore("downloads", None); // whatever is set
    /// assert_eq!(downloads.set_permits(8).await?.free, 8);
    /// # Ok(()) }
    /// ```
    pub async fn set_permits(&self, total: u32) -> Result<Permits, Error> {
        let sized = self.clone().count(1).total_permits(total);
        let engine = sized.semaphore_engine("set_permits")?;
        let op = Op::SetPermits { key: self.spec().key.clone(), total };
        let set = inspect::permits(&engine, "set_permits", &self.spec().name, op).await?;
        set.ok_or_else(|| Error::new(ErrorKind::Internal, "set_permits", "nothing was set").on(&self.spec().name))
    }

    fn semaphore_engine(&self, tried: &str) -> Result<Arc<Engine>, Error> {
        self.spec().check(tried)?;
        self.spec().check_is_semaphore(tried)?;
        let engine = self.client().engine()?;
        engine.check_open(tried).map_err(|error| error.on(&self.spec().name))?;
        Ok(engine)
    }
}
