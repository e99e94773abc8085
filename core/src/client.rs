//! The client: where the locks are kept, and the defaults of every lock made from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;

use crate::address;
use crate::builder::ClientBuilder;
use crate::config::Options;
use crate::driver::close::{self, LossCallbacks};
use crate::driver::durations::Durations;
use crate::driver::engine::Engine;
use crate::driver::metrics::{Metrics, Stats};
use crate::error::{Error, ErrorKind};
use crate::exit::{self, EngineSet};
use crate::lock::Lock;
use crate::machine::Kind;
use crate::server_check;
use crate::store::{Capabilities, Facts, address::StoreAddress, schemes};
use crate::sys::runtime;
use crate::sys::task::Handle;

/// What the async and the blocking client share. Opens no socket and starts no thread until it is used.
pub(crate) struct ClientState {
    pub(crate) options: Arc<Options>,
    pub(crate) address: Box<dyn StoreAddress>,
    /// The present life. A forked child finds its parent's here, leaves it alone and starts its own.
    engine: ArcSwapOption<Engine>,
    closed: AtomicBool,
    /// Whether background work runs on the library's own runtime instead of the caller's.
    background: bool,
    /// The set that its engine is added to, beside that of the process.
    group: Option<Arc<EngineSet>>,
    /// Who is told each time waited and held, in whatever life.
    pub(crate) durations: Arc<Durations>,
}

impl ClientState {
    pub(crate) fn new(url: &str, options: Options, background: bool) -> Result<ClientState, Error> {
        options.check()?;
        let address = address::read(url, &options)?;
        ClientState::at(address, options, background)
    }

    /// Of several servers, each with an address of its own.
    pub(crate) fn of_nodes<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        options: Options,
        background: bool,
    ) -> Result<ClientState, Error> {
        options.check()?;
        let address = schemes::read_list(urls, &options)?;
        ClientState::at(address, options, background)
    }

    fn at(address: Box<dyn StoreAddress>, options: Options, background: bool) -> Result<ClientState, Error> {
        address.capabilities().check_client(&options)?;
        Ok(ClientState {
            options: Arc::new(options),
            address,
            engine: ArcSwapOption::empty(),
            closed: AtomicBool::new(false),
            background,
            group: None,
            durations: Arc::default(),
        })
    }

    /// What the store of this client can do.
    pub(crate) fn capabilities(&self) -> &'static Capabilities {
        self.address.capabilities()
    }

    /// Adds its engine to a set.
    pub(crate) fn in_group(mut self, group: Arc<EngineSet>) -> ClientState {
        self.group = Some(group);
        self
    }

    /// The engine of this process, made on first use, and anew when the runtime of its background work has ended. Lock-free.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>, Error> {
        loop {
            let present = self.engine.load_full();
            if let Some(engine) = &present
                && engine.stamp.is_here()
            {
                if !engine.is_runtime_ended() {
                    return Ok(engine.clone());
                }
                self.address.check_reopen()?;
            }
            if self.closed.load(Ordering::Acquire) {
                leak_inherited(present);
                return Err(Error::new(ErrorKind::Closed, "use the client", "this client was closed"));
            }
            let store = self.address.open(&self.options);
            let (options, metrics) = (self.options.clone(), Metrics::new(self.durations.clone()));
            let fresh = Engine::start(options, store, self.runtime()?, self.background, metrics)?;
            exit::watch(&fresh, self.background);
            self.group.iter().for_each(|group| group.add(&fresh));
            let seen = self.engine.compare_and_swap(&present, Some(fresh));
            leak_inherited(present);
            leak_inherited(arc_swap::Guard::into_inner(seen));
            if self.closed.load(Ordering::SeqCst)
                && let Some(engine) = self.present()
            {
                // closed meanwhile, and `close` may not have seen it
                engine.begin_close();
            }
        }
    }

    fn runtime(&self) -> Result<Handle, Error> {
        if self.background {
            return runtime::handle();
        }
        Handle::try_current().map_err(|_| {
            Error::new(
                ErrorKind::Unsupported,
                "use the client",
                "there is no tokio runtime here; use onelock::blocking::Client outside of async code",
            )
        })
    }

    /// The engine if there is one in this process.
    fn present(&self) -> Option<Arc<Engine>> {
        let engine = self.engine.load_full();
        match engine {
            Some(engine) if engine.stamp.is_here() => Some(engine),
            other => {
                leak_inherited(other);
                None
            }
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.present().map(|engine| engine.stats()).unwrap_or_default()
    }

    pub(crate) fn begin_close(&self) -> Option<Arc<Engine>> {
        self.closed.store(true, Ordering::SeqCst);
        self.present()
    }
}

impl Drop for ClientState {
    fn drop(&mut self) {
        leak_inherited(self.engine.swap(None));
    }
}

/// Drops an engine of this process; a forked child must not drop its parent's, whose sockets it shares.
fn leak_inherited(engine: Option<Arc<Engine>>) {
    if engine.as_ref().is_some_and(|engine| !engine.stamp.is_here()) {
        std::mem::forget(engine);
    }
}

/// A client of one lock server, for async code: the way to locks. One for the whole program is enough.
///
/// Cheap to clone; clones share connections, renewal and cleanup. May be used from any task and any thread of one tokio
/// runtime: background work runs on the runtime on which the client is first used, and ends with it. `await` [`close`]
/// (or [`release`](crate::Lease::release)) before that: a guard that is dropped at the end of `main` comes too late.
///
/// [`close`]: Client::close
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
/// let client = onelock::Client::connect("memory://").await?;
/// let lease = client.lock("orders:42").acquire().await?;
/// lease.release().await?;
/// client.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<ClientState>,
}

impl Client {
    /// A client of the server at `url`, connected and checked. An empty `url` means `$ONELOCK_URL`.
    ///
    /// | address | what |
    /// |---|---|
    /// | `redis://[user[:password]@]host[:port][/db]` | one Redis or Valkey server; `valkey://` means the same |
    /// | `rediss://...`, `valkeys://...` | the same over TLS |
    /// | `unix:///path/to/socket` | one server through a socket in the file system; `?db=1` chooses the database |
    /// | `redis+sentinel://s1:26379,s2:26379/GROUP[/db]` | the master of a group, found through any of its Sentinels |
    /// | `redis+cluster://h1:6379,h2:6379` | a Redis or Valkey cluster; one node is enough, it tells the others |
    /// | `redlock://h1:6379,h2:6379,h3:6379[/db]` | Redlock: several independent servers, of which a majority holds the lock |
    /// | `file:///dir` | one machine without a server: a directory, in which each lock is a file that the kernel locks |
    /// | `postgres://user[:password]@host[:port][/database]` | PostgreSQL 12 or newer: each lock is a row of a table |
    /// | `memcached://[user:password@]host[:port]` | memcached 1.6.12 or newer, best effort only: each lock is an item |
    /// | `etcd://[user:password@]h1:2379,h2:2379[/NAMESPACE]` | etcd 3.4 or newer: each lock is a queue of keys |
    /// | `memory://` | inside the client, for unit tests; `memory://NAME` is shared within the process |
    /// | (empty) | the address in `$ONELOCK_URL` |
    ///
    /// What breaks locks there is logged, and told by [`Client::check`]. Takes `connect_timeout + request_timeout` (3 s) at most.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad address, `Unsupported` for a store that is not built in and for an option that the store
    /// lacks, and what the server says: `Unavailable`, `AuthFailed`, `NotPermitted`, `ReadOnly`, `ServerRefused`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Client, Error> {
        Client::builder().connect(url).await
    }

    /// A client that connects when it is first used. Opens no socket, starts no thread, and needs no runtime yet.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad address, `Unsupported` for a store that is not built in and for an option that the store
    /// lacks. Whether the server is there, the first use will tell.
    ///
    /// ```
    /// let client = onelock::Client::new("redis://127.0.0.1:6379/0").unwrap();
    /// assert_eq!(onelock::Client::new("localhost").unwrap_err().kind(), onelock::ErrorKind::InvalidArgument);
    /// ```
    pub fn new(url: &str) -> Result<Client, Error> {
        Client::builder().build(url)
    }

    /// A client with options: set them one after the other, then finish with [`ClientBuilder::connect`] or
    /// [`ClientBuilder::build`].
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    pub(crate) fn from_shared(shared: Arc<ClientState>) -> Client {
        Client { shared }
    }

    /// Whether this is the other one, or a clone of it.
    pub(crate) fn is_same(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(crate) fn capabilities(&self) -> &'static Capabilities {
        self.shared.capabilities()
    }

    pub(crate) fn engine(&self) -> Result<Arc<Engine>, Error> {
        self.shared.engine()
    }

    pub(crate) fn address(&self) -> &dyn StoreAddress {
        &*self.shared.address
    }

    /// The lock of this name: one holder at a time, among everybody who uses the same server, prefix and name. No I/O.
    ///
    /// A name has 1 to 512 bytes, any bytes, and does not begin with a word kept for companion keys (`onelock_fence:` ...);
    /// it is checked when the lock is used. Not re-entrant: who acquires it twice waits for himself. On the server it is a
    /// string that any `SET NX PX` client respects.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.lock("orders:42").acquire().await?;
    /// assert!(client.lock("orders:42").try_acquire().await?.is_none()); // the same lock, described twice
    /// assert!(client.lock("orders:43").try_acquire().await?.is_some()); // another one
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.lock_of(Kind::Mutex, name)
    }

    /// The reentrant lock of this name: its holder may enter again. Who that is, an [`owner`](Lock::owner) says. No I/O.
    ///
    /// Without an owner every acquire is its own, as with [`Client::lock`]. A name belongs to one kind of lock. On the
    /// server it is a hash that Redisson's `RLock` shares.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let request = onelock::Owner::new();
    /// let lock = client.reentrant_lock("cart:7").owner(&request);
    /// let outer = lock.acquire().await?;
    /// let inner = lock.acquire().await?;                 // the same owner: enters again
    /// assert_eq!(inner.hold_count(), 2);
    /// inner.release().await?;
    /// assert!(outer.is_held());
    /// # outer.release().await?; Ok(()) }
    /// ```
    pub fn reentrant_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.lock_of(Kind::Reentrant, name)
    }

    /// The fair lock of this name: first come, first served among the processes that wait. Whoever releases it makes the
    /// first in the queue the holder. A client has one place there, and its own waiters take turns. It is slower than
    /// [`Client::lock`], and `Unsupported` on Redlock. No I/O.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.fair_lock("printer").acquire().await?; // when all who came before are done
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub fn fair_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.lock_of(Kind::Fair, name)
    }

    /// The semaphore of this name: at most `permits` holders at a time, in all programs together. `None`: whatever number is
    /// set; else it must be the same everywhere, or acquiring is `PermitsMismatch`. No I/O.
    ///
    /// Every permit is a lease with an end of its own, so those of a program that died come back after their ttl. There is
    /// no fencing token: several hold at once. Who waits is served first come, first served, between programs too: a request
    /// for many permits is not passed by small ones, nor by [`Lock::try_acquire`]. Only clients of Redisson do not queue.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let downloads = client.semaphore("downloads", 2);
    /// let (one, two) = (downloads.acquire().await?, downloads.acquire().await?);
    /// assert!(downloads.try_acquire().await?.is_none());
    /// one.release().await?;
    /// assert!(downloads.try_acquire().await?.is_some());
    /// # two.release().await?; Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: impl Into<Option<u32>>) -> Lock {
        let semaphore = self.lock_of(Kind::Semaphore, name);
        match permits.into() {
            Some(total) => semaphore.total_permits(total),
            None => semaphore,
        }
    }

    /// The lock of this kind and name, for programs that learn the kind when they run. No I/O.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.lock_of(onelock::Kind::Mutex, "orders:42").acquire().await?;
    /// assert!(client.lock("orders:42").try_acquire().await?.is_none()); // the same lock
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub fn lock_of(&self, kind: Kind, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.clone(), kind, name.as_ref())
    }

    /// Looks at the server: its version, its fencing grade, and what breaks locks on it. [`Client::connect`] does so too.
    ///
    /// # Errors
    /// As [`Client::connect`].
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn check(&self) -> Result<Facts, Error> {
        let engine = self.engine()?;
        engine.check_open("check")?;
        server_check::check(&engine).await
    }

    /// What this client and its clones have done so far: counters, and histograms of waiting and holding. No I/O.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// client.lock("orders:42").acquire().await?.release().await?;
    /// let stats = client.stats();
    /// assert_eq!((stats.held, stats.acquired, stats.released), (0, 1, 1));
    /// # Ok(()) }
    /// ```
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Releases what is held, waits for cleanup (at most `close_timeout`, 1 s), and ends background work.
    ///
    /// Every holder is told first: a lease that is still held is lost, with the reason [`LossReason::Closed`], and only
    /// then released. It does not wait for the holder's work to end: let that end before, or stop it at the loss.
    /// Waiting acquires end with `Closed`, and so does every later call but release and drop; clones are closed too.
    /// Idempotent. What could not be released in time ends with its ttl.
    ///
    /// [`LossReason::Closed`]: crate::LossReason::Closed
    ///
    /// # Cancel safety
    /// From the first poll on the client is closed. If the future is dropped, what was not yet released ends with its ttl.
    pub async fn close(&self) {
        if let Some(engine) = self.shared.begin_close() {
            close::close(&engine, LossCallbacks::Run).await;
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("held", &self.stats().held).finish_non_exhaustive()
    }
}
