//! Both faces of the library behind one: the async client, driven from a plain thread, and the blocking one. A test
//! that is written against this holds for both.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use onelock::{
    ClientBuilder, Error, ErrorKind, Facts, Inspection, Kind, LockEntry, LockPage, LossReason, Owner, Release, Stats,
    blocking as b,
};
use tokio::runtime::Runtime;

use crate::servers::{Flavor, all_flavors};

/// The runtime that the async face runs on, one for all tests of a program.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("async face")
        .enable_all()
        .build()
        .expect("a runtime can be started")
});

/// Runs a future to its end on the runtime of the async face.
pub fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// Which face a client shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// `onelock::Client`.
    Async,
    /// `onelock::blocking::Client`.
    Blocking,
}

impl Face {
    /// Both.
    pub const ALL: [Face; 2] = [Face::Async, Face::Blocking];
}

/// Runs a test on both faces, side by side.
pub fn on_both(test: impl Fn(Face) + Sync) {
    side_by_side(&Face::ALL.map(|face| (format!("{face:?}"), face)), |face| test(*face));
}

/// Runs a test on every server and both faces, side by side.
pub fn everywhere(test: impl Fn(Flavor, Face) + Sync) {
    let cases: Vec<_> = all_flavors()
        .into_iter()
        .flat_map(|flavor| Face::ALL.map(|face| (format!("{flavor:?} {face:?}"), (flavor, face))))
        .collect();
    side_by_side(&cases, |(flavor, face)| test(*flavor, *face));
}

/// Runs a test for every case at once, each on a thread that carries its name.
///
/// # Panics
/// When one of them does, after all have ended.
pub fn side_by_side<T: Sync>(cases: &[(String, T)], test: impl Fn(&T) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        let threads: Vec<_> = cases
            .iter()
            .map(|(name, case)| {
                let thread = std::thread::Builder::new().name(name.clone());
                (name, thread.spawn_scoped(scope, move || test(case)).expect("a thread can be started"))
            })
            .collect();
        let failed: Vec<_> = threads.into_iter().filter_map(|(name, it)| it.join().is_err().then_some(name)).collect();
        assert!(failed.is_empty(), "failed for {failed:?}; see above");
    });
}

/// A client with either face.
#[derive(Clone)]
pub enum Client {
    /// The async one.
    Async(onelock::Client),
    /// The blocking one.
    Blocking(b::Client),
}

impl Client {
    /// A client that connects when it is first used.
    pub fn build(face: Face, builder: ClientBuilder, url: &str) -> Result<Client, Error> {
        Ok(match face {
            Face::Async => Client::Async(builder.build(url)?),
            Face::Blocking => Client::Blocking(builder.build_blocking(url)?),
        })
    }

    /// A client that is connected and checked.
    pub fn connect(face: Face, builder: ClientBuilder, url: &str) -> Result<Client, Error> {
        Ok(match face {
            Face::Async => Client::Async(block_on(builder.connect(url))?),
            Face::Blocking => Client::Blocking(builder.connect_blocking(url)?),
        })
    }

    /// The mutex of this name.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        match self {
            Client::Async(client) => Lock::Async(client.lock(name)),
            Client::Blocking(client) => Lock::Blocking(client.lock(name)),
        }
    }

    /// The reentrant lock of this name.
    pub fn reentrant_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        match self {
            Client::Async(client) => Lock::Async(client.reentrant_lock(name)),
            Client::Blocking(client) => Lock::Blocking(client.reentrant_lock(name)),
        }
    }

    /// The semaphore of this name, with two permits.
    fn semaphore(&self, name: impl AsRef<[u8]>) -> Lock {
        match self {
            Client::Async(client) => Lock::Async(client.semaphore(name, 2)),
            Client::Blocking(client) => Lock::Blocking(client.semaphore(name, 2)),
        }
    }

    /// The lock of this name and kind.
    pub fn lock_of(&self, kind: Kind, name: impl AsRef<[u8]>) -> Lock {
        if kind == Kind::Semaphore {
            return self.semaphore(name);
        }
        match self {
            Client::Async(client) => Lock::Async(client.lock_of(kind, name)),
            Client::Blocking(client) => Lock::Blocking(client.lock_of(kind, name)),
        }
    }

    /// See [`onelock::Client::multi_lock`].
    pub fn multi_lock<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        match self {
            Client::Async(client) => MultiLock::Async(client.multi_lock(names)),
            Client::Blocking(client) => MultiLock::Blocking(client.multi_lock(names)),
        }
    }

    /// See [`onelock::Client::inspect`].
    pub fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Option<Inspection>, Error> {
        match self {
            Client::Async(client) => block_on(client.inspect(name)),
            Client::Blocking(client) => client.inspect(name),
        }
    }

    /// See [`onelock::Client::list`].
    pub fn list(&self, pattern: impl AsRef<[u8]>, limit: u32, cursor: Option<&str>) -> Result<LockPage, Error> {
        match self {
            Client::Async(client) => block_on(client.list(pattern, limit, cursor)),
            Client::Blocking(client) => client.list(pattern, limit, cursor),
        }
    }

    /// See [`onelock::Client::listing`]: all that it tells.
    pub fn listing(&self, pattern: impl AsRef<[u8]>) -> Result<Vec<LockEntry>, Error> {
        match self {
            Client::Async(client) => block_on(async {
                let (mut listing, mut found) = (client.listing(pattern), Vec::new());
                while let Some(entry) = listing.next().await? {
                    found.push(entry);
                }
                Ok(found)
            }),
            Client::Blocking(client) => client.listing(pattern).collect(),
        }
    }

    /// See [`onelock::Client::force_release`].
    pub fn force_release(&self, name: impl AsRef<[u8]>) -> Result<bool, Error> {
        match self {
            Client::Async(client) => block_on(client.force_release(name)),
            Client::Blocking(client) => client.force_release(name),
        }
    }

    /// See [`onelock::Client::force_release_foreign`].
    pub fn force_release_foreign(&self, name: impl AsRef<[u8]>) -> Result<bool, Error> {
        match self {
            Client::Async(client) => block_on(client.force_release_foreign(name)),
            Client::Blocking(client) => client.force_release_foreign(name),
        }
    }

    /// See [`onelock::Client::check`].
    pub fn check(&self) -> Result<Facts, Error> {
        match self {
            Client::Async(client) => block_on(client.check()),
            Client::Blocking(client) => client.check(),
        }
    }

    /// See [`onelock::Client::stats`].
    pub fn stats(&self) -> Stats {
        match self {
            Client::Async(client) => client.stats(),
            Client::Blocking(client) => client.stats(),
        }
    }

    /// See [`onelock::Client::close`].
    pub fn close(&self) {
        match self {
            Client::Async(client) => block_on(client.close()),
            Client::Blocking(client) => client.close(),
        }
    }
}

/// A lock with either face.
#[derive(Clone)]
pub enum Lock {
    /// The async one.
    Async(onelock::Lock),
    /// The blocking one.
    Blocking(b::Lock),
}

macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            /// As the method of this name of either lock.
            pub fn $name(self, value: $type) -> Self {
                match self {
                    Lock::Async(lock) => Lock::Async(lock.$name(value)),
                    Lock::Blocking(lock) => Lock::Blocking(lock.$name(value)),
                }
            }
        )*
    };
}

impl Lock {
    setters!(
        ttl: Duration,
        auto_renew: bool,
        min_hold: Duration,
        max_hold: Duration,
        lock_delay: Duration,
        min_validity: Duration,
        fencing: bool,
        owner: &Owner,
        renew_every: Duration,
    );

    /// As the method of this name of either lock.
    pub fn on_lost(self, callback: impl Fn(LossReason) + Send + Sync + 'static) -> Self {
        match self {
            Lock::Async(lock) => Lock::Async(lock.on_lost(callback)),
            Lock::Blocking(lock) => Lock::Blocking(lock.on_lost(callback)),
        }
    }

    /// As the method of this name of either lock.
    pub fn on_jeopardy(self, callback: impl Fn() + Send + Sync + 'static) -> Self {
        match self {
            Lock::Async(lock) => Lock::Async(lock.on_jeopardy(callback)),
            Lock::Blocking(lock) => Lock::Blocking(lock.on_jeopardy(callback)),
        }
    }

    /// See [`onelock::Lock::acquire`].
    pub fn acquire(&self) -> Result<Lease, Error> {
        Ok(match self {
            Lock::Async(lock) => Lease::Async(Arc::new(block_on(lock.acquire())?)),
            Lock::Blocking(lock) => Lease::Blocking(Arc::new(lock.acquire()?)),
        })
    }

    /// See [`onelock::Lock::acquire_within`].
    pub fn acquire_within(&self, wait: Duration) -> Result<Lease, Error> {
        Ok(match self {
            Lock::Async(lock) => Lease::Async(Arc::new(block_on(lock.acquire_within(wait))?)),
            Lock::Blocking(lock) => Lease::Blocking(Arc::new(lock.acquire_within(wait)?)),
        })
    }

    /// See [`onelock::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        Ok(match self {
            Lock::Async(lock) => block_on(lock.try_acquire())?.map(|lease| Lease::Async(Arc::new(lease))),
            Lock::Blocking(lock) => lock.try_acquire()?.map(|lease| Lease::Blocking(Arc::new(lease))),
        })
    }

    /// See [`onelock::Lock::attach`].
    pub fn attach(&self, proof: &str) -> Result<Lease, Error> {
        Ok(match self {
            Lock::Async(lock) => Lease::Async(Arc::new(block_on(lock.attach(proof))?)),
            Lock::Blocking(lock) => Lease::Blocking(Arc::new(lock.attach(proof)?)),
        })
    }

    /// See [`onelock::Lock::validate`].
    pub fn validate(&self) -> Result<(), Error> {
        match self {
            Lock::Async(lock) => lock.validate(),
            Lock::Blocking(lock) => lock.validate(),
        }
    }

    /// See [`onelock::Lock::is_locked`].
    pub fn is_locked(&self) -> Result<bool, Error> {
        match self {
            Lock::Async(lock) => block_on(lock.is_locked()),
            Lock::Blocking(lock) => lock.is_locked(),
        }
    }

    /// The kind of the error that an acquire of at most `wait` ends with.
    ///
    /// # Panics
    /// When it is granted.
    pub fn refusal(&self, wait: Duration) -> ErrorKind {
        match self.acquire_within(wait) {
            Ok(_) => panic!("granted"),
            Err(error) => error.kind(),
        }
    }
}

/// Several locks with either face.
#[derive(Clone)]
pub enum MultiLock {
    /// The async ones.
    Async(onelock::MultiLock),
    /// The blocking ones.
    Blocking(b::MultiLock),
}

impl MultiLock {
    /// See [`onelock::MultiLock::new`].
    ///
    /// # Panics
    /// When the locks have different faces.
    pub fn of(locks: impl IntoIterator<Item = Lock>) -> MultiLock {
        let (mut waiting, mut blocking) = (Vec::new(), Vec::new());
        for lock in locks {
            match lock {
                Lock::Async(lock) => waiting.push(lock),
                Lock::Blocking(lock) => blocking.push(lock),
            }
        }
        match (waiting.is_empty(), blocking.is_empty()) {
            (_, true) => MultiLock::Async(onelock::MultiLock::new(waiting)),
            (true, false) => MultiLock::Blocking(b::MultiLock::new(blocking)),
            (false, false) => panic!("locks of one face"),
        }
    }

    /// See [`onelock::MultiLock::on_lost`].
    #[must_use]
    pub fn on_lost(self, callback: impl Fn(LossReason) + Send + Sync + 'static) -> Self {
        match self {
            MultiLock::Async(lock) => MultiLock::Async(lock.on_lost(callback)),
            MultiLock::Blocking(lock) => MultiLock::Blocking(lock.on_lost(callback)),
        }
    }

    /// See [`onelock::MultiLock::validate`].
    pub fn validate(&self) -> Result<(), Error> {
        match self {
            MultiLock::Async(lock) => lock.validate(),
            MultiLock::Blocking(lock) => lock.validate(),
        }
    }

    /// See [`onelock::MultiLock::is_locked`].
    pub fn is_locked(&self) -> Result<bool, Error> {
        match self {
            MultiLock::Async(lock) => block_on(lock.is_locked()),
            MultiLock::Blocking(lock) => lock.is_locked(),
        }
    }

    /// See [`onelock::MultiLock::acquire`].
    pub fn acquire(&self) -> Result<Lease, Error> {
        Ok(match self {
            MultiLock::Async(lock) => Lease::Async(Arc::new(block_on(lock.acquire())?)),
            MultiLock::Blocking(lock) => Lease::Blocking(Arc::new(lock.acquire()?)),
        })
    }

    /// See [`onelock::MultiLock::acquire_within`].
    pub fn acquire_within(&self, wait: Duration) -> Result<Lease, Error> {
        Ok(match self {
            MultiLock::Async(lock) => Lease::Async(Arc::new(block_on(lock.acquire_within(wait))?)),
            MultiLock::Blocking(lock) => Lease::Blocking(Arc::new(lock.acquire_within(wait)?)),
        })
    }

    /// See [`onelock::MultiLock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        Ok(match self {
            MultiLock::Async(lock) => block_on(lock.try_acquire())?.map(|lease| Lease::Async(Arc::new(lease))),
            MultiLock::Blocking(lock) => lock.try_acquire()?.map(|lease| Lease::Blocking(Arc::new(lease))),
        })
    }
}

/// A lease with either face. Clones are one handle.
#[derive(Clone, Debug)]
pub enum Lease {
    /// The async one.
    Async(Arc<onelock::Lease>),
    /// The blocking one.
    Blocking(Arc<b::Lease>),
}

macro_rules! both {
    ($self:ident, $lease:ident => $what:expr) => {
        match $self {
            Lease::Async($lease) => $what,
            Lease::Blocking($lease) => $what,
        }
    };
}

impl Lease {
    /// See [`onelock::Lease::is_held`].
    pub fn is_held(&self) -> bool {
        both!(self, lease => lease.is_held())
    }

    /// See [`onelock::Lease::remaining`].
    pub fn remaining(&self) -> Duration {
        both!(self, lease => lease.remaining())
    }

    /// See [`onelock::Lease::loss`].
    pub fn loss(&self) -> Option<LossReason> {
        both!(self, lease => lease.loss())
    }

    /// See [`onelock::Lease::hold_count`].
    pub fn hold_count(&self) -> u64 {
        both!(self, lease => lease.hold_count())
    }

    /// See [`onelock::Lease::token`].
    pub fn token(&self) -> &str {
        both!(self, lease => lease.token())
    }

    /// The fencing token.
    ///
    /// # Panics
    /// When there is none.
    pub fn fence(&self) -> u64 {
        self.fencing_token().expect("a fencing token")
    }

    /// See [`onelock::Lease::fencing_token`].
    pub fn fencing_token(&self) -> Option<u64> {
        both!(self, lease => lease.fencing_token())
    }

    /// See [`onelock::Lease::fencing_token_of`].
    pub fn fencing_token_of(&self, name: &str) -> Option<u64> {
        both!(self, lease => lease.fencing_token_of(name))
    }

    /// See [`onelock::Lease::on_lost`].
    pub fn on_lost(&self, callback: impl FnOnce(LossReason) + Send + 'static) {
        both!(self, lease => lease.on_lost(callback));
    }

    /// See [`onelock::Lease::on_jeopardy`].
    pub fn on_jeopardy(&self, callback: impl Fn() + Send + Sync + 'static) {
        both!(self, lease => lease.on_jeopardy(callback));
    }

    /// Waits for the loss, at most `limit`.
    pub fn wait_lost(&self, limit: Duration) -> Option<LossReason> {
        match self {
            Lease::Async(lease) => block_on(async { tokio::time::timeout(limit, lease.lost()).await.ok() }),
            Lease::Blocking(lease) => lease.wait_lost(limit).expect("not interrupted"),
        }
    }

    /// See [`onelock::Lease::extend`].
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        match self {
            Lease::Async(lease) => block_on(lease.extend(ttl)),
            Lease::Blocking(lease) => lease.extend(ttl),
        }
    }

    /// See [`onelock::Lease::release`].
    pub fn release(&self) -> Result<Release, Error> {
        match self {
            Lease::Async(lease) => block_on(lease.release()),
            Lease::Blocking(lease) => lease.release(),
        }
    }

    /// The outcome of a release.
    ///
    /// # Panics
    /// When it is an error.
    pub fn released(&self) -> Release {
        self.release().expect("a release fails in a forked child only")
    }

    /// See [`onelock::Lease::detach`].
    pub fn detach(&self) -> Result<String, Error> {
        both!(self, lease => lease.detach())
    }
}
