//! The same lock for callers without a runtime: same names, same order, same defaults.
//!
//! Attempt, extend and release go over a connection that the calling thread drives itself; waiting, renewal and clean-up
//! run on one background runtime ([`crate::runtime`]). Inside an async runtime every call that would block is an
//! `Unsupported` error instead: use [`crate::Client`] there.
//!
//! ```
//! # fn main() -> Result<(), onelock::Error> {
//! use onelock::blocking::Client;
//! let client = Client::connect("memory://")?;
//! let lease = client.lock("orders:42").acquire()?;
//! assert!(lease.is_held());
//! lease.release()?;
//! client.close();
//! # Ok(()) }
//! ```

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::backend::{Facts, Uninterrupted};
use crate::client::{self, ClientBuilder, Shared};
use crate::driver::acquiring::{cancelled, failed};
use crate::driver::engine::Engine;
use crate::driver::entering::{self, OnThread};
use crate::driver::hold::Hold;
use crate::driver::tally::Stats;
use crate::driver::{adopting, giving};
use crate::error::{Error, ErrorKind};
use crate::inspect::{self, Inspection};
use crate::lease::{Handle as LeaseHandle, Release};
use crate::lock::{Description, lock_setters};
use crate::machine::{Grade, Kind, LossReason, Op, Owner};

pub use crate::backend::Interrupt;

/// How often a waiting thread looks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Cancels waiting acquires from another thread. Clones share one flag.
///
/// ```
/// # fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::blocking::Client::connect("memory://")?;
/// let cancel = onelock::blocking::Cancel::new();
/// cancel.cancel(); // from anywhere
/// let error = client.lock("a").interrupt(cancel).acquire().unwrap_err();
/// assert_eq!(error.kind(), onelock::ErrorKind::Cancelled);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Not cancelled.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Ends every acquire that looks at this flag, within 50 ms. Safe to call from a signal handler: one atomic store.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Interrupt for Cancel {
    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

fn check_outside_runtime(tried: &str) -> Result<(), Error> {
    if Handle::try_current().is_err() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        tried,
        "this would block an async runtime; use onelock::Client there, or a plain thread (std::thread) here",
    ))
}

/// Runs `work` on the background runtime while this thread waits, looking up now and then.
fn wait_for<T: Send + 'static>(
    engine: &Arc<Engine>,
    interrupt: &dyn Interrupt,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Stopped> {
    let (sender, receiver) = sync_channel(1);
    // an undelivered result is dropped by the channel, and with it whatever it holds
    let task = engine.runtime.spawn(async move {
        let _ = sender.send(work.await);
    });
    loop {
        match receiver.recv_timeout(LOOK_EVERY) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => return Err(Stopped::Ended),
            Err(RecvTimeoutError::Timeout) if interrupt.interrupted() => {
                task.abort();
                return Err(Stopped::Interrupted);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Stopped {
    Interrupted,
    Ended,
}

/// A client of one lock server, for threads. Cheap to clone; clones share connections, renewal and clean-up.
///
/// Opens no socket and starts no thread until it is used. After a fork the child's copy connects anew.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// A client of the server at `url`, connected and checked. An empty `url` means `$ONELOCK_URL`.
    ///
    /// # Errors
    /// As [`crate::Client::connect`]; `Unsupported` inside an async runtime.
    pub fn connect(url: &str) -> Result<Client, Error> {
        Client::builder().connect_blocking(url)
    }

    /// A client that connects when it is first used.
    ///
    /// # Errors
    /// As [`crate::Client::new`].
    ///
    /// ```
    /// let client = onelock::blocking::Client::new("redis://127.0.0.1:6379/0").unwrap();
    /// ```
    pub fn new(url: &str) -> Result<Client, Error> {
        Client::builder().build_blocking(url)
    }

    /// Options first, then the address: finish with
    /// [`build_blocking`](ClientBuilder::build_blocking) or [`connect_blocking`](ClientBuilder::connect_blocking).
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Client {
        Client { shared }
    }

    /// The mutual exclusion lock of this name; see [`crate::Client::lock`].
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.clone(), Kind::Mutex, name.as_ref())
    }

    /// The reentrant lock of this name; see [`crate::Client::reentrant_lock`].
    pub fn reentrant_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.clone(), Kind::Reentrant, name.as_ref())
    }

    /// The async face of the same client: same connections, same background work, same leases.
    ///
    /// For event loops of other languages: run its futures on [`crate::runtime::handle`].
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// let client = onelock::blocking::Client::connect("memory://")?;
    /// let later = client.to_async();
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// onelock::runtime::handle()?.spawn(async move {
    ///     let lease = later.lock("orders:42").acquire().await;
    ///     let _ = sender.send(lease);
    /// });
    /// let lease = onelock::blocking::Lease::from(receiver.recv().unwrap()?);
    /// lease.release()?;
    /// # Ok(()) }
    /// ```
    pub fn to_async(&self) -> crate::Client {
        crate::Client::from_shared(self.shared.clone())
    }

    fn engine(&self, tried: &str) -> Result<Arc<Engine>, Error> {
        check_outside_runtime(tried)?;
        let engine = self.shared.engine()?;
        engine.check_open(tried)?;
        Ok(engine)
    }

    /// Who holds the lock of this name; see [`crate::Client::inspect`].
    ///
    /// # Errors
    /// As [`crate::Client::inspect`]; `Unsupported` inside an async runtime.
    pub fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Option<Inspection>, Error> {
        let what = Description::new(&self.shared.options, Kind::Mutex, name.as_ref());
        what.check("inspect")?;
        let engine = self.engine("inspect")?;
        let answer =
            engine.store.call_blocking(&Op::Inspect { key: what.key }, inspect::limit(&engine), &Uninterrupted);
        inspect::looked(&engine, &what.name, answer)
    }

    /// Takes the lock of this name away from whoever holds it; see [`crate::Client::force_release`].
    ///
    /// # Errors
    /// As [`crate::Client::force_release`]; `Unsupported` inside an async runtime.
    pub fn force_release(&self, name: impl AsRef<[u8]>) -> Result<bool, Error> {
        let what = Description::new(&self.shared.options, Kind::Mutex, name.as_ref());
        what.check("force_release")?;
        let engine = self.engine("force_release")?;
        let key = what.key.clone();
        let worker = engine.clone();
        let work = async move { inspect::force_release(&worker, &what.name, key).await };
        wait_for(&engine, &Uninterrupted, work).unwrap_or_else(|_| Err(ended("force_release")))
    }

    /// Looks at the server: its fencing grade and what breaks locks on it.
    ///
    /// # Errors
    /// As [`crate::Client::connect`]; `Unsupported` inside an async runtime.
    pub fn check(&self) -> Result<Facts, Error> {
        let engine = self.engine("check")?;
        let worker = engine.clone();
        wait_for(&engine, &Uninterrupted, async move { client::check(&worker).await })
            .unwrap_or_else(|_| Err(ended("check")))
    }

    /// What this client has done so far. No I/O.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Gives back what is held, waits for clean-up (at most `close_timeout`, 1 s), and ends background work. Idempotent.
    ///
    /// Inside an async runtime it does not wait; the work goes on in the background.
    pub fn close(&self) {
        let Some(engine) = self.shared.begin_close() else { return };
        let worker = engine.clone();
        let work = async move { client::close(&worker).await };
        if Handle::try_current().is_ok() {
            engine.runtime.spawn(work);
        } else {
            let _ = wait_for(&engine, &Uninterrupted, work);
        }
    }
}

fn ended(tried: &str) -> Error {
    Error::new(ErrorKind::Closed, tried, "the background runtime has ended")
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("blocking::Client").finish_non_exhaustive()
    }
}

/// A lock by name, for threads; see [`crate::Lock`].
#[derive(Clone)]
pub struct Lock {
    client: Client,
    what: Description,
    interrupt: Arc<dyn Interrupt + Send + Sync>,
}

impl Lock {
    fn new(client: Client, kind: Kind, name: &[u8]) -> Lock {
        let what = Description::new(&client.shared.options, kind, name);
        Lock { client, what, interrupt: Arc::new(Uninterrupted) }
    }

    lock_setters!();

    /// Who may end a waiting acquire from outside: asked at least every 50 ms. The acquire then says `Cancelled`, and
    /// nothing is left held.
    pub fn interrupt(mut self, interrupt: impl Interrupt + Send + Sync + 'static) -> Self {
        self.interrupt = Arc::new(interrupt);
        self
    }

    /// Waits until the lock is held, as long as it takes; see [`crate::Lock::acquire`].
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`]; `Cancelled` when interrupted; `Unsupported` inside an async runtime.
    pub fn acquire(&self) -> Result<Lease, Error> {
        self.enter("acquire", None)
    }

    /// Waits at most `wait`; see [`crate::Lock::acquire_within`].
    ///
    /// # Errors
    /// As [`crate::Lock::acquire_within`]; `Cancelled` when interrupted; `Unsupported` inside an async runtime.
    pub fn acquire_within(&self, wait: Duration) -> Result<Lease, Error> {
        self.enter("acquire", Some(wait))
    }

    /// One try: `None` when somebody else holds the lock.
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
        let lease = self.acquire()?;
        let outcome = body(&lease);
        let held_to_the_end = lease.is_held();
        let release = lease.release();
        let value = outcome?;
        if held_to_the_end || lease.loss().is_none() {
            release?;
            return Ok(value);
        }
        Err(entering::lost(&lease.handle.hold, &self.what.name).into())
    }

    /// Goes on with a hold that another process gave away; see [`crate::Lock::attach`].
    ///
    /// # Errors
    /// As [`crate::Lock::attach`]; `Unsupported` inside an async runtime.
    pub fn attach(&self, proof: &str) -> Result<Lease, Error> {
        self.what.check("attach")?;
        self.what.check_owner("attach")?;
        let engine = self.client.engine("attach")?;
        let (worker, what, proof) = (engine.clone(), self.what.clone(), proof.to_owned());
        let work = async move { adopting::attach(&worker, &what, &proof).await };
        let hold = wait_for(&engine, &*self.interrupt, work).unwrap_or_else(|stopped| Err(self.stopped(stopped)))?;
        Ok(self.lease(engine, hold))
    }

    /// Whether anybody holds it; see [`crate::Lock::is_locked`].
    ///
    /// # Errors
    /// As [`crate::Lock::is_locked`]; `Unsupported` inside an async runtime.
    pub fn is_locked(&self) -> Result<bool, Error> {
        self.what.check("is_locked")?;
        inspect::same_kind(self.client.inspect(&self.what.name)?, &self.what)
    }

    fn enter(&self, tried: &str, wait: Option<Duration>) -> Result<Lease, Error> {
        self.what.check_wait(tried, wait)?;
        self.what.check_owner(tried)?;
        let engine = self.client.engine(tried).map_err(|error| error.on(&self.what.name))?;
        let interrupt = &*self.interrupt;
        if !engine.is_checked() {
            let worker = engine.clone();
            if engine.options.min_fencing_grade == Grade::None {
                client::check_later(&engine);
            } else {
                wait_for(&engine, interrupt, async move { client::check_once(&worker).await })
                    .unwrap_or_else(|stopped| Err(self.stopped(stopped)))?;
            }
        }
        if interrupt.interrupted() {
            return Err(failed(&engine, tried, &self.what.name, &cancelled()));
        }
        let span = tracing::debug_span!(
            "acquire",
            lock = %self.what.name.escape_ascii(),
            kind = self.what.kind.as_str(),
            wait_ms = wait.map(|wait| wait.as_millis() as u64),
        );
        let _inside = span.enter();
        let waited = match entering::enter_on_thread(&engine, &self.what, wait, interrupt)? {
            OnThread::Held(hold) => return Ok(self.lease(engine, hold)),
            OnThread::Continue(acquiring, place) => {
                let (name, worker) = (self.what.name.clone(), engine.clone());
                wait_for(&engine, interrupt, async move {
                    let hold = entering::go_on(*acquiring, place).await?;
                    // a handle from here on: undelivered, it is given back
                    Ok(LeaseHandle::new(worker, hold, name))
                })
            }
            OnThread::Queue => {
                let (what, worker) = (self.what.clone(), engine.clone());
                wait_for(&engine, interrupt, async move {
                    let hold = entering::enter(worker.clone(), &what, wait).await?;
                    Ok(LeaseHandle::new(worker, hold, what.name))
                })
            }
        };
        waited
            .unwrap_or_else(|stopped| Err(self.stopped(stopped)))
            .map(|handle| Lease { handle, interrupt: self.interrupt.clone() })
    }

    fn stopped(&self, stopped: Stopped) -> Error {
        match stopped {
            Stopped::Interrupted => {
                Error::new(ErrorKind::Cancelled, "acquire", "the caller stopped waiting").on(&self.what.name)
            }
            Stopped::Ended => ended("acquire").on(&self.what.name),
        }
    }

    fn lease(&self, engine: Arc<Engine>, hold: Arc<Hold>) -> Lease {
        Lease { handle: LeaseHandle::new(engine, hold, self.what.name.clone()), interrupt: self.interrupt.clone() }
    }
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("blocking::Lock")
            .field("kind", &self.what.kind.as_str())
            .field("name", &format_args!("{}", self.what.name.escape_ascii()))
            .finish_non_exhaustive()
    }
}

/// One granted hold, for threads; see [`crate::Lease`]. May be released from another thread than the one that acquired.
pub struct Lease {
    handle: LeaseHandle,
    interrupt: Arc<dyn Interrupt + Send + Sync>,
}

impl Lease {
    /// The name that is locked, as it was given.
    pub fn name(&self) -> &[u8] {
        &self.handle.name
    }

    /// The kind of lock.
    pub fn kind(&self) -> Kind {
        self.handle.hold.claim.kind
    }

    /// The fencing token of this hold; see [`crate::Lease::fencing_token`].
    pub fn fencing_token(&self) -> Option<u64> {
        self.handle.hold.fence
    }

    /// How strong the fencing token is, as far as the server's configuration tells; [`Grade::None`] without fencing.
    /// See [`crate::Lease::fencing_grade`].
    pub fn fencing_grade(&self) -> Grade {
        self.handle.fencing_grade()
    }

    /// Whether this handle holds the lock right now; see [`crate::Lease::is_held`].
    pub fn is_held(&self) -> bool {
        self.handle.is_held()
    }

    /// What is left until the deadline; zero when it is not held.
    pub fn remaining(&self) -> Duration {
        self.handle.remaining()
    }

    /// Why the lease was lost, if it was.
    pub fn loss(&self) -> Option<LossReason> {
        self.handle.loss()
    }

    /// How often the owner has entered; 0 when it is not held.
    pub fn hold_count(&self) -> u64 {
        self.handle.hold_count()
    }

    /// Waits for the loss of the lease, at most `limit`; `None` when it has not been lost by then.
    ///
    /// # Errors
    /// `Cancelled` when interrupted; `Unsupported` inside an async runtime.
    pub fn wait_lost(&self, limit: Duration) -> Result<Option<LossReason>, Error> {
        check_outside_runtime("wait_lost")?;
        if !self.handle.engine.is_here() {
            return Ok(None);
        }
        let hold = Arc::clone(&self.handle.hold);
        let work = async move { tokio::time::timeout(limit, hold.lost()).await.ok() };
        wait_for(&self.handle.engine, &*self.interrupt, work).map_err(|_| {
            Error::new(ErrorKind::Cancelled, "wait_lost", "the caller stopped waiting").on(&self.handle.name)
        })
    }

    /// Calls back once when the lease is lost; see [`crate::Lease::on_lost`].
    pub fn on_lost(&self, callback: impl FnOnce(LossReason) + Send + 'static) {
        self.handle.on_lost(callback);
    }

    /// Calls back when a renewal round was missed; see [`crate::Lease::on_jeopardy`].
    pub fn on_jeopardy(&self, callback: impl Fn() + Send + Sync + 'static) {
        self.handle.hold.on_jeopardy(Arc::new(callback));
    }

    /// Makes the lease last `ttl` from now, unless it lasts longer already; see [`crate::Lease::extend`].
    ///
    /// # Errors
    /// As [`crate::Lease::extend`]; `Unsupported` inside an async runtime.
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        check_outside_runtime("extend")?;
        let handle = &self.handle;
        giving::check_extension(&handle.hold, ttl, &handle.name)?;
        handle.check_held("extend")?;
        giving::extend_on_thread(&handle.engine, &handle.hold, ttl, &handle.name, &*self.interrupt)
    }

    /// Gives the lock back and tells what the server found; see [`crate::Lease::release`].
    ///
    /// Inside an async runtime it does not wait for the server: the outcome is [`Release::Unconfirmed`].
    ///
    /// # Errors
    /// Only `Forked`, in a forked child.
    pub fn release(&self) -> Result<Release, Error> {
        if !self.handle.begin_release()? {
            return Ok(Release::AlreadyReleased);
        }
        let (engine, hold) = (&self.handle.engine, &self.handle.hold);
        if Handle::try_current().is_ok() {
            return Ok(giving::give_up(engine, hold));
        }
        match giving::release(engine, hold) {
            giving::Step::Done(release) => Ok(release),
            giving::Step::Send(sending) => {
                let answer = engine.store.call_blocking(&sending.op(), sending.until(), &Uninterrupted);
                Ok(sending.judge(&answer))
            }
            giving::Step::Wait => {
                let (worker, hold) = (Arc::clone(engine), Arc::clone(hold));
                let work = async move { giving::release_async(&worker, &hold).await };
                Ok(wait_for(engine, &Uninterrupted, work).unwrap_or(Release::Unconfirmed))
            }
        }
    }

    /// Hands the lease to another process; see [`crate::Lease::detach`].
    ///
    /// # Errors
    /// As [`crate::Lease::detach`].
    pub fn detach(&self) -> Result<String, Error> {
        self.handle.detach()
    }
}

impl From<crate::Lease> for Lease {
    /// The blocking face of a lease. Its client must have been made for callers without a runtime, or its runtime must
    /// go on while this is used.
    fn from(lease: crate::Lease) -> Lease {
        Lease { handle: lease.handle, interrupt: Arc::new(Uninterrupted) }
    }
}

impl From<Lease> for crate::Lease {
    /// The async face of a lease.
    fn from(lease: Lease) -> crate::Lease {
        crate::Lease { handle: lease.handle }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("blocking::Lease")
            .field("name", &format_args!("{}", self.handle.name.escape_ascii()))
            .field("held", &self.is_held())
            .field("fencing_token", &self.fencing_token())
            .finish_non_exhaustive()
    }
}
