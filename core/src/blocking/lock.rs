//! A lock for threads.

use std::sync::Arc;
use std::time::Duration;

use super::{Client, Interrupt, Interrupter, Lease, Stopped, ended, wait_for};
use crate::driver::attach;
use crate::driver::engine::Engine;
use crate::driver::enter::{self, BlockingProgress};
use crate::driver::failures::{cancelled, failed};
use crate::driver::lock_spec::LockSpec;
use crate::driver::spans::AcquireSpan;
use crate::error::{Error, ErrorKind};
use crate::inspect;
use crate::lease::LeaseHandle;
use crate::lock::lock_setters;
use crate::machine::{Grade, Kind, LossReason, Owner};
use crate::multi_handle::AnyHandle;
use crate::server_check;

/// A lock by name, for threads, from [`Client::lock`] or [`Client::reentrant_lock`]. Says what is wanted; holds nothing.
/// See [`crate::Lock`].
///
/// ```
/// # use std::time::Duration;
/// # fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::blocking::Client::connect("memory://")?;
/// let lock = client.lock("orders:42").ttl(Duration::from_secs(10));
/// let lease = lock.acquire()?;                                  // waits as long as it takes
/// assert!(lock.try_acquire()?.is_none());                       // one look
/// let late = lock.acquire_within(Duration::from_millis(20));    // a bounded wait
/// assert_eq!(late.unwrap_err().kind(), onelock::ErrorKind::Timeout);
/// lease.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lock {
    client: Client,
    what: LockSpec,
    pub(super) interrupt: Interrupter,
}

impl Lock {
    pub(super) fn new(client: Client, kind: Kind, name: &[u8]) -> Lock {
        let what = LockSpec::new(&client.shared.options, client.shared.capabilities(), kind, name);
        Lock { client, what, interrupt: Interrupter::nobody() }
    }

    lock_setters!();

    /// Who may end a waiting acquire from outside: a [`Cancel`](super::Cancel), or anything that is asked at least every
    /// 50 ms. The acquire then says `Cancelled`, and nothing is left held.
    pub fn interrupt(mut self, interrupt: impl Interrupt + Send + Sync + 'static) -> Self {
        self.interrupt = Interrupter::new(interrupt);
        self
    }

    /// Waits until the lock is held, as long as it takes; see [`crate::Lock::acquire`].
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`]; `Cancelled` when interrupted; `Unsupported` inside an async runtime.
    pub fn acquire(&self) -> Result<Lease, Error> {
        self.enter("acquire", None)
    }

    /// Waits at most `wait` until the lock is held; see [`crate::Lock::acquire_within`].
    ///
    /// # Errors
    /// As [`crate::Lock::acquire_within`]; `Cancelled` when interrupted; `Unsupported` inside an async runtime.
    pub fn acquire_within(&self, wait: Duration) -> Result<Lease, Error> {
        self.enter("acquire", Some(wait))
    }

    /// One try: `None` when somebody else holds the lock. One round trip, no waiting.
    ///
    /// # Errors
    /// As [`crate::Lock::try_acquire`]; `Unsupported` inside an async runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let lock = client.lock("nightly");
    /// if let Some(lease) = lock.try_acquire()? {
    ///     assert!(lock.try_acquire()?.is_none());
    ///     lease.release()?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        match self.enter("try_acquire", Some(Duration::ZERO)) {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `body` while the lock is held and releases at the end; see [`crate::Lock::with`]. The body is not cancelled
    /// at loss: it can look at `lease.is_held()`.
    ///
    /// # Errors
    /// The body's, or as [`Lock::acquire`], or `Lost`.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let sum = client.lock("orders:42").with(|lease| {
    ///     assert!(lease.is_held());
    ///     Ok::<_, onelock::Error>(1 + 1)
    /// })?;
    /// # assert_eq!(sum, 2); Ok(()) }
    /// ```
    pub fn with<T, E: From<Error>>(&self, body: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, E> {
        run(&self.acquire()?, body)
    }

    /// The same with a bounded wait; see [`crate::Lock::with_within`].
    ///
    /// # Errors
    /// The body's, or as [`Lock::acquire_within`], or `Lost`.
    pub fn with_within<T, E: From<Error>>(
        &self,
        wait: Duration,
        body: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<T, E> {
        run(&self.acquire_within(wait)?, body)
    }

    /// The same with one try: `None`, and `body` does not run, when somebody else holds the lock; see
    /// [`crate::Lock::try_with`].
    ///
    /// # Errors
    /// The body's, or as [`Lock::try_acquire`], or `Lost`.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let done = client.lock("nightly").try_with(|_| Ok::<_, onelock::Error>("done"))?;
    /// assert_eq!(done, Some("done"));
    /// # Ok(()) }
    /// ```
    pub fn try_with<T, E: From<Error>>(&self, body: impl FnOnce(&Lease) -> Result<T, E>) -> Result<Option<T>, E> {
        self.try_acquire()?.map(|lease| run(&lease, body)).transpose()
    }

    /// Takes over a hold that another process detached; see [`crate::Lock::attach`].
    ///
    /// # Errors
    /// As [`crate::Lock::attach`]; `Unsupported` inside an async runtime.
    pub fn attach(&self, proof: &str) -> Result<Lease, Error> {
        self.what.check("attach")?;
        self.what.require("attach", "attach")?;
        self.what.check_owner("attach")?;
        let engine = self.client.engine("attach")?;
        let (worker, what, proof) = (engine.clone(), self.what.bounded(), proof.to_owned());
        let work = async move {
            let hold = attach::attach(&worker, &what, &proof).await?;
            // a handle from here on: undelivered, it is released
            Ok(LeaseHandle::new(worker, hold, what.name))
        };
        wait_for(&engine, self.interrupt.get(), work)
            .unwrap_or_else(|stopped| Err(self.stopped(stopped)))
            .map(|handle| self.lease(handle))
    }

    /// Whether anybody holds it; see [`crate::Lock::is_locked`].
    ///
    /// # Errors
    /// As [`crate::Lock::is_locked`]; `Unsupported` inside an async runtime.
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.what.check("is_locked")?;
        if self.what.kind == Kind::Semaphore {
            let lock = self.to_async();
            return self.waited("is_locked", async move { lock.is_locked().await });
        }
        let until = inspect::limit(&*self.client.engine("is_locked")?);
        inspect::same_kind(self.client.held(&self.what, until)?, &self.what)
    }

    /// A member of several locks, as it is acquired; and what it is once all are held.
    pub(super) fn as_member(&self) -> (Lock, LockSpec) {
        let member = Lock { what: self.what.while_acquiring(), ..self.clone() };
        (member, self.what.clone())
    }

    /// The same, with another one who may end its wait.
    pub(super) fn interrupted_by(&self, interrupt: Interrupter) -> Lock {
        Lock { interrupt, ..self.clone() }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn spec(&self) -> &LockSpec {
        &self.what
    }

    pub(super) fn enter(&self, tried: &str, wait: Option<Duration>) -> Result<Lease, Error> {
        self.what.check_use(tried, wait)?;
        let engine = self.client.engine(tried).map_err(|error| error.on(&self.what.name))?;
        let interrupt = self.interrupt.get();
        self.look_at_server(&engine)?;
        if interrupt.interrupted() {
            return Err(failed(&engine, tried, &self.what.name, &cancelled()));
        }
        let acquire = AcquireSpan::begin(&self.what, wait);
        let entered = acquire.inside(|| self.what.acquire_span(wait).in_scope(|| self.entered(engine, wait)));
        acquire.end(entered.as_ref().map(|handle| &*handle.hold));
        entered.map(|handle| self.lease(handle))
    }

    /// Has the server checked, once per engine; waits for it only where the grade of its fencing tokens matters.
    pub(super) fn look_at_server(&self, engine: &Arc<Engine>) -> Result<(), Error> {
        if engine.is_checked() {
            return Ok(());
        }
        if engine.options.min_fencing_grade == Grade::None {
            server_check::check_later(engine);
            return Ok(());
        }
        let worker = engine.clone();
        wait_for(engine, self.interrupt.get(), async move { server_check::check_once(&worker).await })
            .unwrap_or_else(|stopped| Err(self.stopped(stopped)))
    }

    fn entered(&self, engine: Arc<Engine>, wait: Option<Duration>) -> Result<LeaseHandle, Error> {
        let interrupt = self.interrupt.get();
        match enter::enter_blocking(&engine, &self.what, wait, interrupt)? {
            BlockingProgress::Held(hold) => Ok(LeaseHandle::new(engine, hold, self.what.name.clone())),
            BlockingProgress::Continue(rest) => {
                let (what, worker) = (self.what.clone(), engine.clone());
                wait_for(&engine, interrupt, async move {
                    let hold = enter::continue_async(worker.clone(), &what, rest).await?;
                    // a handle from here on: undelivered, it is released
                    Ok(LeaseHandle::new(worker, hold, what.name))
                })
                .unwrap_or_else(|stopped| Err(self.stopped(stopped)))
            }
        }
    }

    pub(super) fn stopped(&self, stopped: Stopped) -> Error {
        match stopped {
            Stopped::Interrupted => {
                Error::new(ErrorKind::Cancelled, "acquire", "the caller stopped waiting").on(&self.what.name)
            }
            Stopped::Ended => ended("acquire").on(&self.what.name),
        }
    }

    fn lease(&self, handle: LeaseHandle) -> Lease {
        handle.hold.span.begin(&handle.hold, &self.what.name);
        Lease { handle: AnyHandle::One(handle), interrupt: self.interrupt.clone() }
    }
}

/// Runs `body` while this lease is held, and releases it.
pub(super) fn run<T, E: From<Error>>(lease: &Lease, body: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, E> {
    let outcome = body(lease);
    let release = lease.release();
    let value = outcome?;
    if lease.loss().is_none() {
        release?;
        return Ok(value);
    }
    Err(lease.handle.lost_error().into())
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("blocking::Lock")
            .field("kind", &self.what.kind.as_str())
            .field("name", &format_args!("{}", self.what.name.escape_ascii()))
            .finish_non_exhaustive()
    }
}
