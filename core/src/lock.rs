//! A lock: a description (kind, name, options, client). Cheap and shareable; it holds no state of any hold.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;

use crate::client::Client;
use crate::driver::engine::Engine;
use crate::driver::hold::Hold;
use crate::driver::lock_spec::LockSpec;
use crate::driver::spans::AcquireSpan;
use crate::driver::{attach, enter};
use crate::error::{Error, ErrorKind};
use crate::inspect;
use crate::lease::Lease;
use crate::machine::{Kind, LossReason, Owner};
use crate::server_check::check_once;

/// The setters that the async and the blocking lock share.
macro_rules! lock_setters {
    () => {
        /// The length of the lease, from 10 ms to one year. Default: the client's (30 s).
        ///
        /// With renewal this is how long others wait after a crash; the work may take longer.
        pub fn ttl(mut self, ttl: Duration) -> Self {
            Arc::make_mut(&mut self.what.terms).ttl = ttl;
            self
        }

        /// Whether the lease is renewed in the background until it is released. Default: the client's (true).
        ///
        /// `false` gives a fixed lease of `ttl`, to be extended by hand.
        pub fn auto_renew(mut self, auto_renew: bool) -> Self {
            Arc::make_mut(&mut self.what.terms).auto_renew = auto_renew;
            self
        }

        /// How long a lease may be held at most, above 0: after that it is lost with [`LossReason::MaxHold`], and its key
        /// does not outlive that by much (1 s). Bounds a holder that hangs. Default: the client's (no limit).
        pub fn max_hold(mut self, max_hold: Duration) -> Self {
            Arc::make_mut(&mut self.what.terms).max_hold = Some(max_hold);
            self
        }

        /// How long the lock stays taken at least, counted from the start of the hold and at most the ttl; a lease that is
        /// released earlier, in whatever way, keeps the key for the rest, held by nobody. Default: the client's (0).
        ///
        /// "Only one of many machines runs this tick" is `try_acquire` with a `min_hold` above what their clocks differ by
        /// and below the time between ticks.
        pub fn min_hold(mut self, min_hold: Duration) -> Self {
            Arc::make_mut(&mut self.what.terms).min_hold = min_hold;
            self
        }

        /// How much longer than the lease the key lives on the server: after an unclean end the next holder waits that
        /// much longer. Default: the client's (0).
        pub fn lock_delay(mut self, lock_delay: Duration) -> Self {
            Arc::make_mut(&mut self.what.terms).lock_delay = lock_delay;
            self
        }

        /// How much of a lease must be left when its grant arrives; a later one is released, and waiting goes on.
        /// Default: the client's (0).
        pub fn min_validity(mut self, min_validity: Duration) -> Self {
            Arc::make_mut(&mut self.what.terms).min_validity = min_validity;
            self
        }

        /// Whether grants carry a fencing token; see [`Lease::fencing_token`]. Default: the client's (true).
        pub fn fencing(mut self, fencing: bool) -> Self {
            self.what.fencing = fencing;
            self
        }

        /// Who re-enters: acquires of a reentrant lock with equal owners, through one client, share one hold. Without an
        /// owner every acquire is its own. Only for [`Kind::Reentrant`]; else acquiring is `InvalidArgument`.
        pub fn owner(mut self, owner: &Owner) -> Self {
            self.what.owner = Some(owner.clone());
            self
        }

        /// What to do whenever a lease that was acquired through this description is lost: called with the reason, on a
        /// thread kept for callbacks. A later setter replaces an earlier one.
        ///
        /// May come late; [`Lease::is_held`] is the truth. A panic in it is logged and harms nothing.
        pub fn on_lost(mut self, callback: impl Fn(LossReason) + Send + Sync + 'static) -> Self {
            self.what.on_lost(Arc::new(callback));
            self
        }

        /// How many permits a semaphore has in all, 1 to 1024: the same in every program that uses it. Default: as many as
        /// are set. Only for [`Kind::Semaphore`]; else acquiring is `InvalidArgument`.
        pub fn total_permits(mut self, total: u32) -> Self {
            self.what.permits = Some(total);
            self
        }

        /// How many permits one acquire takes, all or none. Default: 1. Only for [`Kind::Semaphore`]; else acquiring is
        /// `InvalidArgument`.
        pub fn count(mut self, count: u32) -> Self {
            self.what.count = count;
            self
        }

        /// What to do when a renewal round was missed while the lease is still valid: called on the thread kept for
        /// callbacks. An early sign that the lease may be lost.
        pub fn on_jeopardy(mut self, callback: impl Fn() + Send + Sync + 'static) -> Self {
            self.what.on_jeopardy(Arc::new(callback));
            self
        }

        /// The renewal period. For tests only.
        #[doc(hidden)]
        pub fn renew_every(mut self, period: Duration) -> Self {
            Arc::make_mut(&mut self.what.terms).renew_every = Some(period);
            self
        }

        /// Whether name, options and owner make sense together: what every acquire looks at first. No I/O. For those who
        /// want to know when they describe a lock, not when they use it.
        ///
        /// # Errors
        /// `InvalidArgument`, which says what is wrong; `Unsupported` for a kind or an option that the store lacks.
        pub fn validate(&self) -> Result<(), $crate::Error> {
            self.what.check("describe a lock").and_then(|()| self.what.check_owner("describe a lock"))
        }

        /// The name, as it was given.
        pub fn name(&self) -> &[u8] {
            &self.what.name
        }

        /// The kind of lock.
        pub fn kind(&self) -> Kind {
            self.what.kind
        }
    };
}
pub(crate) use lock_setters;

/// A lock by name, from [`Client::lock`] or [`Client::reentrant_lock`]. Says what is wanted; holds nothing.
///
/// Setters return it, so that a description reads in one line. They are checked when it is used, before any I/O.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::Client::connect("memory://").await?;
/// let lock = client.lock("orders:42").ttl(Duration::from_secs(10));
/// let lease = lock.acquire().await?;                              // waits as long as it takes
/// assert!(lock.try_acquire().await?.is_none());                   // one look
/// let late = lock.acquire_within(Duration::from_millis(20)).await; // a bounded wait
/// assert_eq!(late.unwrap_err().kind(), onelock::ErrorKind::Timeout);
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lock {
    client: Client,
    what: LockSpec,
}

impl Lock {
    pub(crate) fn new(client: Client, kind: Kind, name: &[u8]) -> Lock {
        let what = LockSpec::new(client.options(), client.capabilities(), kind, name);
        Lock { client, what }
    }

    pub(crate) fn described(client: Client, what: LockSpec) -> Lock {
        Lock { client, what }
    }

    lock_setters!();

    /// Waits until the lock is held, as long as it takes. Uncontended: one round trip.
    ///
    /// Waiting does not poll: a release wakes the next. A server that cannot be reached is tried again for 30 s
    /// (`unreachable_limit`). The lease is fresh when it is granted; waiting takes nothing off it.
    ///
    /// # Errors
    /// `InvalidArgument` before any I/O; `Unavailable`, `ServerRefused`, `NotPermitted`, `AuthFailed` from the server;
    /// `WrongKind` when something else stands under the name; `Lost` when a lost hold would be re-entered; `Closed`.
    ///
    /// # Cancel safety
    /// Drop the future at any point (also through `tokio::time::timeout`): nothing is left held.
    pub async fn acquire(&self) -> Result<Lease, Error> {
        self.enter("acquire", None).await
    }

    /// Waits at most `wait` until the lock is held. Zero is a single try that fails with `Busy`.
    ///
    /// Returns within `wait + connect_timeout + 2 x request_timeout` whatever the network does. `wait` up to one year.
    /// A server that cannot be reached is tried again until the wait is used up.
    ///
    /// # Errors
    /// `Timeout` when it was held by others all the time, `Busy` for a zero wait; else as [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// # let holder = client.lock("orders:42").acquire().await?;
    /// match client.lock("orders:42").acquire_within(Duration::from_millis(20)).await {
    ///     Ok(lease) => println!("ours, {:?} left", lease.remaining()),
    ///     Err(error) if error.is_not_acquired() => println!("somebody else has it: {error}"),
    ///     Err(error) => return Err(error), // the server, the arguments ...
    /// }
    /// # holder.release().await?; Ok(()) }
    /// ```
    pub async fn acquire_within(&self, wait: Duration) -> Result<Lease, Error> {
        self.enter("acquire", Some(wait)).await
    }

    /// One try: `None` when somebody else holds the lock. One round trip, no waiting.
    ///
    /// Returns within `connect_timeout + 2 x request_timeout`.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        match self.enter("try_acquire", Some(Duration::ZERO)).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `body` while the lock is held, cancels it when the lease is lost, and releases at the end. Waits for the lock
    /// as [`Lock::acquire`] does.
    ///
    /// The body's own error is never replaced by a release problem. Returns `Lost` when the lease was lost before the
    /// body ended, also when only the release finds that out, unless the body had failed by itself. Cancelled means dropped at its next `await`: look at
    /// [`Lease::is_held`] before steps that cannot be taken back. Any error type will do that is `From<onelock::Error>`.
    ///
    /// # Errors
    /// The body's, or as [`Lock::acquire`], or `Lost`.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and releases the lock in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let sum = client.lock("orders:42").with(|lease| async move {
    ///     assert!(lease.is_held());
    ///     Ok::<_, onelock::Error>(1 + 1)
    /// }).await?;
    /// assert_eq!(sum, 2);
    /// # Ok(()) }
    /// ```
    pub async fn with<F, Fut, T, E>(&self, body: F) -> Result<T, E>
    where
        F: FnOnce(Arc<Lease>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        run(self.acquire().await?, body).await
    }

    /// The same with a bounded wait; see [`Lock::acquire_within`].
    ///
    /// # Errors
    /// The body's, or as [`Lock::acquire_within`], or `Lost`.
    ///
    /// # Cancel safety
    /// As [`Lock::with`].
    pub async fn with_within<F, Fut, T, E>(&self, wait: Duration, body: F) -> Result<T, E>
    where
        F: FnOnce(Arc<Lease>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        run(self.acquire_within(wait).await?, body).await
    }

    /// The same with one try: `None`, and `body` does not run, when somebody else holds the lock.
    ///
    /// # Errors
    /// The body's, or as [`Lock::try_acquire`], or `Lost`.
    ///
    /// # Cancel safety
    /// As [`Lock::with`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lock = client.lock("nightly");
    /// let done = lock.try_with(|_| async { Ok::<_, onelock::Error>("done") }).await?;
    /// assert_eq!(done, Some("done"));
    /// # Ok(()) }
    /// ```
    pub async fn try_with<F, Fut, T, E>(&self, body: F) -> Result<Option<T>, E>
    where
        F: FnOnce(Arc<Lease>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        match self.try_acquire().await? {
            Some(lease) => run(lease, body).await.map(Some),
            None => Ok(None),
        }
    }

    /// Takes over a hold that another process detached with [`Lease::detach`]. One round trip. The lock's ttl counts
    /// from here; name, kind and prefix must be those of the lock that was detached.
    ///
    /// The server exchanges the token of the hold for a new one, so a proof attaches once, however often it arrives. The
    /// fencing token and the count stay the same (Redlock: the fencing token may be higher). A lost reply is asked for
    /// once more and finds the exchange done. Returns within `connect_timeout + 2 x request_timeout`.
    ///
    /// # Errors
    /// `InvalidArgument` for a text that is no such proof, and for an owner who has the lock already; `Lost` when the hold
    /// has ended meanwhile, or somebody has attached with this proof before; else as [`Lock::acquire`]. After an error that
    /// leaves it open whether the server did it, such as `Unavailable`, the hold is released if it did.
    ///
    /// # Cancel safety
    /// If the future is dropped, a hold that was taken over is released in the background, and is free. If the request
    /// never reached the server, the hold stays as it was and the proof can be used again.
    pub async fn attach(&self, proof: &str) -> Result<Lease, Error> {
        self.what.check("attach")?;
        self.what.require("attach", "attach")?;
        self.what.check_owner("attach")?;
        let engine = self.client.engine()?;
        let hold = attach::attach(&engine, &self.what.bounded(), proof).await?;
        Ok(self.lease(engine, hold))
    }

    /// Whether anybody holds it, this client included. One round trip.
    ///
    /// When the answer arrives it may be old: to act on it, use [`Lock::try_acquire`].
    ///
    /// # Errors
    /// `WrongKind` when something else stands under the name; else as [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        self.what.check("is_locked")?;
        let engine = self.client.engine()?;
        inspect::is_locked(&engine, &self.what).await
    }

    /// A member of several locks, as it is acquired; and what it is once all are held.
    pub(crate) fn as_member(&self) -> (Lock, LockSpec) {
        (Lock { client: self.client.clone(), what: self.what.while_acquiring() }, self.what.clone())
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn spec(&self) -> &LockSpec {
        &self.what
    }

    pub(crate) async fn enter(&self, tried: &str, wait: Option<Duration>) -> Result<Lease, Error> {
        self.what.check_use(tried, wait)?;
        let engine = self.client.engine()?;
        let acquire = AcquireSpan::begin(&self.what, wait);
        let span = acquire.inside(|| self.what.acquire_span(wait));
        let entered = async {
            check_once(&engine).await?;
            enter::enter(engine.clone(), &self.what, wait).await
        };
        let entered = acquire.follow(entered.instrument(span)).await;
        acquire.end(entered.as_deref());
        Ok(self.lease(engine, entered?))
    }

    fn lease(&self, engine: Arc<Engine>, hold: Arc<Hold>) -> Lease {
        hold.span.begin(&hold, &self.what.name);
        Lease::new(engine, hold, self.what.name.clone())
    }
}

/// Runs `body` while this lease is held, and releases it.
pub(crate) async fn run<F, Fut, T, E>(lease: Lease, body: F) -> Result<T, E>
where
    F: FnOnce(Arc<Lease>) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: From<Error>,
{
    let lease = Arc::new(lease);
    let lost = lease.lost();
    let outcome = tokio::select! {
        // a body that is ready wins over a loss that is ready
        biased;
        outcome = body(lease.clone()) => Some(outcome),
        _ = lost => None,
    };
    let release = lease.release().await;
    match outcome {
        Some(Err(error)) => Err(error),
        Some(Ok(value)) if lease.loss().is_none() => {
            release?;
            Ok(value)
        }
        _ => Err(lease.handle.lost_error().into()),
    }
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock")
            .field("kind", &self.what.kind.as_str())
            .field("name", &format_args!("{}", self.what.name.escape_ascii()))
            .field("ttl", &self.what.terms.ttl)
            .finish_non_exhaustive()
    }
}
