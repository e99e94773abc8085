//! The same lock for threads, without an async runtime of yours: same names, same order, same defaults.
//!
//! Attempt, extend and release go over a connection that the calling thread drives itself, or, when many threads are at
//! it, over one that they share. So does waiting for a wake-up, for the first few threads that do; for the others, and for
//! renewal and cleanup, there is one background runtime ([`crate::runtime`]). Inside an async task every call that would
//! block is an `Unsupported` error instead: use [`crate::Client`] there, or `tokio::task::spawn_blocking`, where it works as
//! on any thread.
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

mod lease;
mod listing;
mod lock;
mod looking;
mod multi_lock;
mod rw_lock;
mod semaphore;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop::poll_proceed;

use crate::builder::ClientBuilder;
use crate::client::ClientState;
use crate::diagnosis;
use crate::driver::close::{self, LossCallbacks};
use crate::driver::engine::Engine;
use crate::driver::lock_spec::LockSpec;
use crate::driver::metrics::Stats;
use crate::error::{Error, ErrorKind};
use crate::inspect;
use crate::machine::Kind;
use crate::server_check;
use crate::store::{Diagnosis, Facts, Uninterrupted};

pub use self::lease::Lease;
pub use self::listing::Listing;
pub use self::lock::Lock;
pub use self::multi_lock::MultiLock;
pub use self::rw_lock::RwLock;
pub use crate::store::Interrupt;

/// How often a waiting thread looks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Cancels waiting acquires from another thread, or from a signal handler. Clones share one flag.
///
/// Give a clone to [`Lock::interrupt`]. Once cancelled it stays so.
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

/// Who may end a wait from outside; usually nobody, which costs nothing.
#[derive(Clone)]
struct Interrupter(Option<Arc<dyn Interrupt + Send + Sync>>);

impl Interrupter {
    fn nobody() -> Interrupter {
        Interrupter(None)
    }

    fn new(interrupt: impl Interrupt + Send + Sync + 'static) -> Interrupter {
        Interrupter(Some(Arc::new(interrupt)))
    }

    fn get(&self) -> &dyn Interrupt {
        self.0.as_deref().map_or(&Uninterrupted, |interrupt| interrupt)
    }
}

/// Whether this thread is inside a task: then blocking it keeps others from running, perhaps the one that is waited for.
/// `spawn_blocking`, `block_in_place` and a thread that only has entered a runtime are made for it, and no task.
///
/// A task has a budget of steps, 128 in all, and everybody else has none: so whoever can take more is not in a task. What
/// is taken is put back. (A task inside `tokio::task::unconstrained` has none either, and is not recognised.)
fn is_inside_task() -> bool {
    const MORE_THAN_A_BUDGET: usize = 256;
    if Handle::try_current().is_err() {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut taken = Vec::with_capacity(MORE_THAN_A_BUDGET);
    let mut spent = false;
    while !spent && taken.len() < MORE_THAN_A_BUDGET {
        match poll_proceed(&mut context) {
            Poll::Ready(one) => taken.push(one),
            Poll::Pending => spent = true,
        }
    }
    // each puts back what there was before it, so the first one last
    while taken.pop().is_some() {}
    spent
}

fn check_outside_runtime(tried: &str) -> Result<(), Error> {
    if !is_inside_task() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        tried,
        "this would block an async runtime; use onelock::Client there, or tokio::task::spawn_blocking here",
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

/// A client of one lock server, for threads: the way to locks. One for the whole program is enough; see
/// [`crate::Client`].
///
/// Cheap to clone; clones share connections, renewal and cleanup. Opens no socket and starts no thread until it is used.
/// After a fork the child's copy connects again. What is still held, or was dropped just before, is released when the
/// program ends, within a second; [`close`](Client::close) does so at once.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<ClientState>,
}

impl Client {
    /// A client of the server at `url`, connected and checked. An empty `url` means `$ONELOCK_URL`. For the forms of an
    /// address see [`crate::Client::connect`].
    ///
    /// # Errors
    /// As [`crate::Client::connect`]; `Unsupported` inside an async runtime.
    pub fn connect(url: &str) -> Result<Client, Error> {
        Client::builder().connect_blocking(url)
    }

    /// A client that connects when it is first used. Opens no socket and starts no thread.
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

    /// A client with options: set them one after the other, then finish with
    /// [`build_blocking`](ClientBuilder::build_blocking) or [`connect_blocking`](ClientBuilder::connect_blocking).
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) fn from_shared(shared: Arc<ClientState>) -> Client {
        Client { shared }
    }

    /// The lock of this name: one holder at a time; see [`crate::Client::lock`]. No I/O.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.lock_of(Kind::Mutex, name)
    }

    /// The reentrant lock of this name: its holder may enter again; see [`crate::Client::reentrant_lock`]. No I/O.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let lock = client.reentrant_lock("cart:7").owner(&onelock::Owner::named("request 12"));
    /// let (outer, inner) = (lock.acquire()?, lock.acquire()?);
    /// assert_eq!(outer.hold_count(), 2);
    /// inner.release()?;
    /// outer.release()?;
    /// # Ok(()) }
    /// ```
    pub fn reentrant_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.lock_of(Kind::Reentrant, name)
    }

    /// The fair lock of this name: first come, first served among the processes that wait; see [`crate::Client::fair_lock`].
    /// No I/O.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let lease = client.fair_lock("printer").acquire()?; // when all who came before are done
    /// lease.release()?;
    /// # Ok(()) }
    /// ```
    pub fn fair_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.lock_of(Kind::Fair, name)
    }

    /// The semaphore of this name: at most `permits` holders at a time; see [`crate::Client::semaphore`]. No I/O.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let downloads = client.semaphore("downloads", 2);
    /// let (one, two) = (downloads.acquire()?, downloads.acquire()?);
    /// assert!(downloads.try_acquire()?.is_none());
    /// one.release()?;
    /// two.release()?;
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: impl Into<Option<u32>>) -> Lock {
        let semaphore = self.lock_of(Kind::Semaphore, name);
        match permits.into() {
            Some(total) => semaphore.total_permits(total),
            None => semaphore,
        }
    }

    /// The lock of this kind and name, for programs that learn the kind when they run; see [`crate::Client::lock_of`].
    /// No I/O.
    pub fn lock_of(&self, kind: Kind, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.clone(), kind, name.as_ref())
    }

    /// The locks of these names, held all together or not at all; see [`crate::Client::multi_lock`]. No I/O.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let lease = client.multi_lock(["account:1", "account:2"]).acquire()?;
    /// assert!(client.lock("account:2").try_acquire()?.is_none());
    /// lease.release()?;
    /// # Ok(()) }
    /// ```
    pub fn multi_lock<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| self.lock(name)))
    }

    /// Whether this is the other one, or a clone of it.
    fn is_same(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The async form of the same client: same connections, same background work, same leases.
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

    /// A name to look at, whatever kind of lock stands there.
    fn description(&self, name: &[u8]) -> LockSpec {
        LockSpec::new(&self.shared.options, self.shared.capabilities(), Kind::Mutex, name)
    }

    /// Takes the lock of this name away from whoever holds it; see [`crate::Client::force_release`].
    ///
    /// # Errors
    /// As [`crate::Client::force_release`]; `Unsupported` inside an async runtime.
    pub fn force_release(&self, name: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.force(name.as_ref(), false)
    }

    /// The same where a string without a time to live is a lock, too; see [`crate::Client::force_release_foreign`].
    ///
    /// # Errors
    /// As [`crate::Client::force_release`]; `Unsupported` inside an async runtime.
    pub fn force_release_foreign(&self, name: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.force(name.as_ref(), true)
    }

    fn force(&self, name: &[u8], foreign: bool) -> Result<bool, Error> {
        let what = self.description(name);
        what.check("force_release")?;
        what.require("force_release", "force_release")?;
        let engine = self.engine("force_release")?;
        let key = what.key.clone();
        let worker = engine.clone();
        let work = async move { inspect::force_release(&worker, &what.name, key, foreign).await };
        wait_for(&engine, &Uninterrupted, work).unwrap_or_else(|_| Err(ended("force_release")))
    }

    /// Looks at the server: its version, its fencing grade, and what breaks locks on it.
    ///
    /// # Errors
    /// As [`crate::Client::connect`]; `Unsupported` inside an async runtime.
    pub fn check(&self) -> Result<Facts, Error> {
        let engine = self.engine("check")?;
        let worker = engine.clone();
        wait_for(&engine, &Uninterrupted, async move { server_check::check(&worker).await })
            .unwrap_or_else(|_| Err(ended("check")))
    }

    /// Looks at the servers step by step, and tells which step fails and what to do; see [`crate::Client::diagnose`].
    ///
    /// # Errors
    /// As [`crate::Client::diagnose`]; `Unsupported` inside an async runtime.
    pub fn diagnose(&self, name: impl AsRef<[u8]>) -> Result<Diagnosis, Error> {
        let engine = self.engine("diagnose")?;
        let steps = diagnosis::steps(&*self.shared.address, &engine, name.as_ref());
        let worker = engine.clone();
        wait_for(&engine, &Uninterrupted, async move { diagnosis::diagnose(worker, steps).await })
            .map_err(|_| ended("diagnose"))
    }

    /// What this client and its clones have done so far; see [`crate::Client::stats`]. No I/O.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Runs `job` on the thread kept for callbacks, after those that were queued before. For bindings that call back.
    ///
    /// # Errors
    /// `Closed` when the client was closed before it was used.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// let client = onelock::blocking::Client::new("memory://")?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// client.run_callback(move || { let _ = sender.send(7); })?;
    /// assert_eq!(receiver.recv().unwrap(), 7);
    /// # Ok(()) }
    /// ```
    pub fn run_callback(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        self.shared.engine()?.run_callback(Box::new(job));
        Ok(())
    }

    /// Releases what is held, waits for cleanup (at most `close_timeout`, 1 s), and ends background work. Idempotent.
    ///
    /// Inside an async task it does not wait; the work goes on in the background.
    pub fn close(&self) {
        let Some(engine) = self.shared.begin_close() else { return };
        let worker = engine.clone();
        let work = async move { close::close(&worker, LossCallbacks::Run).await };
        if is_inside_task() {
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
