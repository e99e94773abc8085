//! A read/write lock: many readers at a time, or one writer.

use crate::Client;
use crate::driver::downgrade;
use crate::error::{Error, invalid};
use crate::lease::Lease;
use crate::lock::Lock;
use crate::machine::Kind;
use crate::multi_handle::AnyHandle;

/// The two sides of a read/write lock, from [`Client::rw_lock`]. Each is a [`Lock`], and its leases are like any other's.
///
/// A waiting writer keeps new readers out, and after a writer the readers that waited go first: neither side starves.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::Client::connect("memory://").await?;
/// let catalogue = client.rw_lock("catalogue");
/// let (one, two) = (catalogue.read().acquire().await?, catalogue.read().acquire().await?);
/// assert!(catalogue.write().try_acquire().await?.is_none());
/// one.release().await?;
/// two.release().await?;
/// catalogue.write().acquire().await?.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    read: Lock,
    write: Lock,
}

impl RwLock {
    pub(crate) fn new(client: &Client, name: &[u8]) -> RwLock {
        RwLock { read: client.lock_of(Kind::Read, name), write: client.lock_of(Kind::Write, name) }
    }

    /// The reading side: any number of leases at a time, while nobody writes.
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// The writing side: one lease, and nobody reads meanwhile.
    ///
    /// An [`owner`](Lock::owner) that writes may read and write again. One that reads gets `WouldDeadlock`: it would wait for
    /// itself.
    pub fn write(&self) -> Lock {
        self.write.clone()
    }
}

impl Client {
    /// The read/write lock of this name: many readers at a time, or one writer. `Unsupported` on Redlock. On the server it is
    /// a hash that Redisson's `RReadWriteLock` shares. No I/O.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.rw_lock("catalogue").read().acquire().await?;
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub fn rw_lock(&self, name: impl AsRef<[u8]>) -> RwLock {
        RwLock::new(self, name.as_ref())
    }
}

impl Lease {
    /// Makes a write lease a read lease, in place: other readers may enter from now on, and at no moment could another
    /// writer. The fencing token is a new one. A read lease stays what it is. One round trip; returns within
    /// `connect_timeout + 2 x request_timeout`.
    ///
    /// # Errors
    /// `InvalidArgument` for another kind of lock, before any I/O; `Busy` while its owner enters or leaves it; `Lost` or `NotHeld` when there is nothing to downgrade;
    /// `Unavailable` when no server answered: it counts as a read lease then, and a further call asks again.
    ///
    /// # Cancel safety
    /// If the future is dropped the lease counts as a read lease; a further call asks again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let catalogue = client.rw_lock("catalogue");
    /// let lease = catalogue.write().acquire().await?;
    /// lease.downgrade().await?;
    /// assert!(catalogue.read().try_acquire().await?.is_some());
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub async fn downgrade(&self) -> Result<(), Error> {
        let AnyHandle::One(handle) = &self.handle else { return Err(of_several(self.name())) };
        handle.check_held("downgrade")?;
        if !downgrade::begin(&handle.engine, &handle.hold, &handle.name)? {
            return Ok(());
        }
        downgrade::downgrade_async(&handle.engine, &handle.hold, &handle.name).await
    }
}

/// Why a lease of several locks is not downgraded.
pub(crate) fn of_several(name: &[u8]) -> Error {
    invalid("downgrade", "this lease holds several locks; downgrade one that is held alone").on(name)
}
