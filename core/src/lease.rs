//! A lease: one granted hold. Release, extend and loss belong to it, never to the lock.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::Error;
use crate::driver::engine::Engine;
use crate::driver::extend::Extension;
use crate::driver::hold::Hold;
use crate::driver::release_many::ReleasesTogether;
use crate::driver::spans::ReleaseSpan;
use crate::driver::{extend, failures, release};
use crate::machine::multi::worst_release;
use crate::machine::{Grade, LossReason, Phase, Release};
use crate::multi_handle::AnyHandle;
use crate::sys::{clock, lock};
use crate::{ErrorKind, Kind};

/// What both kinds of lease handle share.
pub(crate) struct LeaseHandle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) name: Arc<[u8]>,
    released: AtomicBool,
}

impl LeaseHandle {
    pub(crate) fn new(engine: Arc<Engine>, hold: Arc<Hold>, name: Arc<[u8]>) -> LeaseHandle {
        LeaseHandle { engine, hold, name, released: AtomicBool::new(false) }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.is_released() && self.engine.is_here() && self.hold.lease.is_held(clock::now())
    }

    /// What an extension of it to `ttl` takes.
    pub(crate) fn extension(&self, ttl: Duration) -> Extension {
        Extension { engine: self.engine.clone(), hold: self.hold.clone(), name: self.name.clone(), ttl }
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.is_held() { self.hold.lease.remaining(clock::now()) } else { Duration::ZERO }
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        let _ = self.hold.lease.is_held(clock::now());
        self.hold.lease.loss()
    }

    pub(crate) fn fencing_grade(&self) -> Grade {
        if self.hold.fence().is_none() || !self.engine.is_here() {
            return Grade::None;
        }
        self.engine.grade()
    }

    pub(crate) fn hold_count(&self) -> u64 {
        if !self.is_held() {
            return 0;
        }
        match &self.hold.owner {
            Some(owner) => lock(&self.engine.registry).count(self.hold.key(), owner, self.hold.id),
            None => 1,
        }
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.engine.stamp.pid()
    }

    fn check_here(&self, tried: &str) -> Result<(), Error> {
        if self.engine.is_here() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Forked, tried, "this lease belongs to the parent process").on(&self.name))
    }

    /// Begins a release: false when this handle was released before.
    pub(crate) fn begin_release(&self) -> Result<bool, Error> {
        self.check_here("release")?;
        Ok(!self.released.swap(true, Ordering::AcqRel))
    }

    /// Whether an operation on a held lease may begin.
    pub(crate) fn check_held(&self, tried: &str) -> Result<(), Error> {
        self.check_here(tried)?;
        if self.engine.is_closed() {
            self.engine.check_open(tried).map_err(|error| error.on(&self.name))?;
        }
        if self.is_released() && self.hold.lease.phase() == Phase::Held {
            // an inner handle of a hold that goes on
            return Err(Error::new(ErrorKind::NotHeld, tried, "this handle was released").on(&self.name));
        }
        if self.hold.lease.is_held(clock::now()) { Ok(()) } else { Err(failures::not_held(&self.hold, &self.name)) }
    }

    pub(crate) fn check_detachable(&self) -> Result<(), Error> {
        self.check_held("detach")?;
        release::check_detach(&self.engine, &self.hold, &self.name)
    }

    pub(crate) fn detach(&self) -> Result<String, Error> {
        self.check_held("detach")?;
        let token = release::detach(&self.engine, &self.hold, &self.name)?;
        self.released.store(true, Ordering::Release);
        Ok(token)
    }

    pub(crate) fn on_lost(&self, callback: impl FnOnce(LossReason) + Send + 'static) {
        if !self.engine.is_here() {
            return;
        }
        if let Some((callback, reason)) = self.hold.on_lost(Box::new(callback)) {
            self.engine.run_callback(Box::new(move || callback(reason)));
        }
    }
}

impl LeaseHandle {
    /// The release of a handle that has begun.
    pub(crate) fn pending_release(&self) -> release::PendingRelease {
        release::PendingRelease::new(&self.engine, &self.hold, ReleaseSpan::begin(&self.hold))
    }

    pub(crate) fn on_jeopardy(&self, callback: impl Fn() + Send + Sync + 'static) {
        if self.engine.is_here() {
            self.hold.on_jeopardy(Arc::new(callback));
        }
    }
}

impl Drop for LeaseHandle {
    fn drop(&mut self) {
        if !self.released.swap(true, Ordering::AcqRel) && self.engine.is_here() {
            release::release_in_background(&self.engine, &self.hold);
        }
    }
}

/// Releases handles all at once, and tells the worst result.
pub(crate) async fn release_together(handles: &[LeaseHandle]) -> Release {
    let begun = handles.iter().filter(|handle| handle.begin_release().unwrap_or(false));
    let (plain, owned): (Vec<_>, Vec<_>) = begun.partition(|handle| ReleasesTogether::accepts(&handle.hold));
    let together = ReleasesTogether::begin(plain.iter().map(|handle| (&handle.engine, &handle.hold)));
    let owned = join_all(owned.into_iter().map(|handle| Box::pin(release::release_async(handle.pending_release()))));
    let (worst, owned) = join(Box::pin(together.send_async()), owned).await;
    owned.into_iter().fold(worst, worst_release)
}

/// One granted hold of a lock, from [`Lock::acquire`](crate::Lock::acquire). Dropping it releases the lock in the
/// background; [`Lease::release`] also tells what became of it.
///
/// It is renewed in the background until then. Any thread or task may use it, also another one than acquired it.
/// [`Lease::is_held`] is the truth; the loss event ([`Lease::lost`], [`Lease::on_lost`]) is a courtesy that may come late.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::Client::connect("memory://").await?;
/// let lease = client.lock("orders:42").acquire().await?;
/// assert!(lease.is_held());
/// assert_eq!(lease.release().await?, onelock::Release::Released);
/// assert!(!lease.is_held());
/// # Ok(()) }
/// ```
pub struct Lease {
    pub(crate) handle: AnyHandle,
}

impl Lease {
    pub(crate) fn new(engine: Arc<Engine>, hold: Arc<Hold>, name: Arc<[u8]>) -> Lease {
        Lease { handle: AnyHandle::One(LeaseHandle::new(engine, hold, name)) }
    }

    /// The name that is locked, as it was given (without the prefix). Of several locks all names, with `, ` between them,
    /// for messages; see [`Lease::names`].
    pub fn name(&self) -> &[u8] {
        self.handle.name()
    }

    /// The names of the locks that are held together, in the order in which they were named; one for a lease of one lock.
    pub fn names(&self) -> Vec<&[u8]> {
        self.handle.names()
    }

    /// The kind of lock; of several that of the first.
    pub fn kind(&self) -> Kind {
        self.handle.kind()
    }

    /// The fencing token of this hold: a number for the protected resource, which refuses a lower one than it has seen.
    /// `None` when fencing is off, and for a lease of several locks, each of which has its own:
    /// [`Lease::fencing_token_of`].
    ///
    /// Grows with every grant of the name, but not by one; below 2^53. Stays the same for as long as the lease is held,
    /// and is still readable after.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let gate = onelock::FenceGate::new(); // beside the resource
    /// let lease = client.lock("ledger").acquire().await?;
    /// assert!(gate.admit(lease.fencing_token().unwrap()).is_ok());
    /// # Ok(()) }
    /// ```
    pub fn fencing_token(&self) -> Option<u64> {
        self.handle.fencing_token()
    }

    /// The fencing token of one of the locks that this lease holds together; `None` when fencing is off, or for a name that
    /// it does not hold. Of several locks of one name (in several stores) that of the first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.multi_lock(["account:1", "account:2"]).acquire().await?;
    /// assert!(lease.fencing_token_of("account:2").is_some());
    /// assert_eq!(lease.fencing_token(), None);
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub fn fencing_token_of(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        self.handle.fencing_token_of(name.as_ref())
    }

    /// The owner token: the proof of this hold, as it stands on the server. Whoever has it can end the hold, so keep it
    /// secret. To hand a hold to another process use [`Lease::detach`]: who attaches with the token of a lease that is held
    /// takes the hold away from it, and the lease learns of its loss at its next renewal. Empty for a lease of several locks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.lock("orders:42").acquire().await?;
    /// assert!(lease.token().starts_with("onelock1:"));
    /// # Ok(()) }
    /// ```
    pub fn token(&self) -> &str {
        self.handle.token()
    }

    /// How strong the fencing token is, as far as the server's configuration tells; [`Grade::None`] without fencing.
    ///
    /// A client that was made without connecting looks at the server in the background; until it has, this is the
    /// weakest grade, [`Grade::BestEffort`].
    pub fn fencing_grade(&self) -> Grade {
        self.handle.fencing_grade()
    }

    /// Whether this handle holds the lock right now: not released, not lost, same process, deadline ahead.
    ///
    /// No I/O, no lock, no runtime: an atomic load and a look at the clock. A process that was stopped sees `false` on
    /// its first look after waking.
    pub fn is_held(&self) -> bool {
        self.handle.is_held()
    }

    /// What is left until the deadline if nothing more is renewed; zero when it is not held. No I/O.
    pub fn remaining(&self) -> Duration {
        self.handle.remaining()
    }

    /// The number of the process that was granted it. In a forked child this is the parent's, and the lease is not the
    /// child's to use.
    pub fn process_id(&self) -> u32 {
        self.handle.process_id()
    }

    /// Why the lease was lost; `None` while it is held, and when it was released. A release that finds the hold gone
    /// before its deadline is a loss. No I/O.
    pub fn loss(&self) -> Option<LossReason> {
        self.handle.loss()
    }

    /// How often the owner has entered; 1 for a lock that is not reentrant, 0 when it is not held. No I/O.
    pub fn hold_count(&self) -> u64 {
        self.handle.hold_count()
    }

    /// Waits for the loss of the lease. Never completes if it is released instead (and the release finds it), so use it
    /// in a `select!`.
    ///
    /// Cancel-safe. The future owns what it needs and may outlive the lease.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// # async fn work() -> u32 { 7 }
    /// let lease = client.lock("orders:42").acquire().await?;
    /// let done = tokio::select! {
    ///     result = work() => Some(result),
    ///     reason = lease.lost() => { eprintln!("stopped: {}", reason.explain()); None }
    /// };
    /// # assert_eq!(done, Some(7)); Ok(()) }
    /// ```
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        self.handle.lost()
    }

    /// Calls back once when the lease is lost, with the reason, on a thread kept for callbacks; at once if it is lost
    /// already, never if it is released and the release finds it.
    ///
    /// A panic in it is logged and harms nothing. Callbacks of one client run one after the other, so keep them short.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.lock("orders:42").acquire().await?;
    /// lease.on_lost(|reason| eprintln!("stop: {}", reason.explain()));
    /// # lease.release().await?; Ok(()) }
    /// ```
    pub fn on_lost(&self, callback: impl FnOnce(LossReason) + Send + 'static) {
        self.handle.on_lost(callback);
    }

    /// Calls back when a renewal round was missed while the lease is still valid, on the thread kept for callbacks: an
    /// early sign that the lease may be lost. Called for every such round.
    pub fn on_jeopardy(&self, callback: impl Fn() + Send + Sync + 'static) {
        self.handle.on_jeopardy(callback);
    }

    /// Makes the lease last `ttl` from now, unless it lasts longer already: sets, never adds, never shortens.
    ///
    /// `ttl` from 10 ms to one year. With automatic renewal the watchdog goes on with the longer of both lengths. Where
    /// `max_hold` is set, it asks for no more than that leaves.
    /// One round trip; a lost reply is asked for once more. Returns within `connect_timeout + 2 x request_timeout`.
    ///
    /// # Errors
    /// `InvalidArgument` before any I/O; `Lost` or `NotHeld` when there is nothing to extend; `Unavailable` when no
    /// server answered (the deadline stays where it was).
    ///
    /// # Cancel safety
    /// If the future is dropped the extension may or may not have reached the server; the local deadline did not move.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.lock("report").ttl(Duration::from_secs(5)).auto_renew(false).acquire().await?;
    /// lease.extend(Duration::from_secs(60)).await?;
    /// assert!(lease.remaining() > Duration::from_secs(50));
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        match &self.handle {
            AnyHandle::One(handle) => {
                extend::check(&handle.engine, &handle.hold, ttl, &handle.name)?;
                handle.check_held("extend")?;
                extend::extend_async(&handle.engine, &handle.hold, ttl, &handle.name).await
            }
            AnyHandle::Many(handles) => {
                handles.check_extension(ttl)?;
                handles.check_held("extend")?;
                let all = handles.members.iter().map(|member| member.extension(ttl)).collect();
                extend::extend_together(all).await.into_iter().collect()
            }
        }
    }

    /// Releases the lock, wakes a waiter, and tells what the server found. Idempotent; one round trip, within
    /// `request_timeout`.
    ///
    /// Of several locks all are released at once, and the worst result counts: [`Release::Unconfirmed`], then
    /// [`Release::AlreadyExpired`]. Of a reentrant lock that was entered more than once, this handle's entry is released; the last one releases
    /// the lock.
    ///
    /// # Errors
    /// Only `Forked`, in a forked child. Everything else is an outcome, see [`Release`].
    ///
    /// # Cancel safety
    /// From the first poll on the lease is not held; if the future is dropped, cleanup goes on in the background.
    pub async fn release(&self) -> Result<Release, Error> {
        match &self.handle {
            AnyHandle::One(handle) => {
                if !handle.begin_release()? {
                    return Ok(Release::AlreadyReleased);
                }
                Ok(release::release_async(handle.pending_release()).await)
            }
            AnyHandle::Many(handles) => {
                if !handles.begin_release()? {
                    return Ok(Release::AlreadyReleased);
                }
                let worst = release_together(&handles.members).await;
                handles.settle();
                Ok(worst)
            }
        }
    }

    /// Hands the lease to another process: the returned text is the proof of the hold for
    /// [`Lock::attach`](crate::Lock::attach), and this handle holds nothing from now on. It
    /// waits for nothing; a hold of a fair or write lock that was granted less than about 20 ms ago is renewed in the
    /// background once, which [`Client::close`](crate::Client::close) waits for.
    ///
    /// Attach within what is left of the ttl; nobody renews meanwhile. Whoever attaches first with the text has the lock, and
    /// anybody after that gets `Lost`: keep it secret. A release of this handle sends nothing and says
    /// [`Release::AlreadyReleased`]. Of several locks it is one proof a line, in the order of [`Lease::names`]; attach with
    /// each to its lock.
    ///
    /// # Errors
    /// `Lost` or `NotHeld` when there is nothing to hand over; `InvalidArgument` when it was entered more than once, or when
    /// its downgrade was not answered.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lock = client.lock("job:7");
    /// let proof = lock.acquire().await?.detach()?;       // send it to the worker ...
    /// let lease = lock.attach(&proof).await?;            // ... which goes on with the hold
    /// assert!(lease.is_held());
    /// # Ok(()) }
    /// ```
    pub fn detach(&self) -> Result<String, Error> {
        self.handle.detach()
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("name", &format_args!("{}", self.name().escape_ascii()))
            .field("kind", &self.kind())
            .field("held", &self.is_held())
            .field("fencing_token", &self.fencing_token())
            .finish_non_exhaustive()
    }
}
