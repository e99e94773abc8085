//! Several locks, held all together or not at all.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::client::Client;
use crate::driver::engine::Engine;
use crate::driver::extend;
use crate::driver::hold::Hold;
use crate::driver::lock_spec::LockSpec;
use crate::driver::together::Together;
use crate::driver::{multi, sleep_until};
use crate::error::{Error, ErrorKind};
use crate::lease::{Lease, LeaseHandle, release_together};
use crate::lock::{self, Lock};
use crate::machine::multi::{AllAtOnce, MultiAcquire, MultiStep, PlacedMember};
use crate::machine::{Jitter, LossReason};
use crate::multi_handle::AnyHandle;
use crate::multi_members::{Arranged, WholeCallbacks, grace, impossible, is_loss, renewals};
use crate::server_check::check_once;
use crate::sys::clock;

/// The setters that the async and the blocking form share.
macro_rules! multi_setters {
    ($lock:ty) => {
        /// These locks together: of any kind, of any clients, each with its own options. No I/O.
        ///
        /// A lock that is named twice is held once. What is wrong with them, the use or
        /// [`validate`](Self::validate) tells.
        pub fn new(locks: impl IntoIterator<Item = $lock>) -> Self {
            Self::of(locks.into_iter().collect())
        }

        /// What to do whenever a lease that was acquired through this description is lost: called once, with the reason
        /// of the member that was lost first, on a thread kept for callbacks. A later setter replaces an earlier one;
        /// callbacks of the members' own descriptions are called as well.
        pub fn on_lost(mut self, callback: impl Fn(LossReason) + Send + Sync + 'static) -> Self {
            self.callbacks.on_lost = Some(Arc::new(callback));
            self
        }

        /// What to do when a renewal round of a member was missed while the lease is still valid: called on the thread
        /// kept for callbacks.
        pub fn on_jeopardy(mut self, callback: impl Fn() + Send + Sync + 'static) -> Self {
            self.callbacks.on_jeopardy = Some(Arc::new(callback));
            self
        }

        /// Whether the members make sense, each and together: what every acquire looks at first. No I/O.
        ///
        /// # Errors
        /// `InvalidArgument`, which says what is wrong: no member, more than 32, one name as two kinds of lock, one lock with
        /// two owners or two numbers of permits, or what is wrong with one of them.
        pub fn validate(&self) -> Result<(), $crate::Error> {
            self.locks.iter().try_for_each(|lock| lock.validate())?;
            self.check("describe locks", None).map(|_| ())
        }

        /// The names, in the order in which they were given.
        pub fn names(&self) -> Vec<&[u8]> {
            self.locks.iter().map(|lock| lock.name()).collect()
        }
    };
}
pub(crate) use multi_setters;

/// Several locks as one, from [`Client::multi_lock`] or [`MultiLock::new`]: all are held, or none. Says what is wanted;
/// holds nothing.
///
/// The lease is held while all of them are, its time is that of the one that ends first, and the first loss is the loss of
/// the whole. Plain locks of one client that are free, and whose names are on one server (in a cluster: in one slot, as with
/// one `{tag}`), are taken and released by one request. Else members are acquired one after the other, in an order that is the
/// same for everybody (key, kind, address), and held while later ones are waited for: callers of overlapping sets never wait in a circle. So name the locks of one
/// piece of work together, instead of acquiring one while holding another.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::Client::connect("memory://").await?;
/// let both = client.multi_lock(["account:1", "account:2"]);
/// let lease = both.acquire().await?;
/// assert!(client.lock("account:2").try_acquire().await?.is_none());
/// assert!(both.try_acquire().await?.is_none());
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MultiLock {
    locks: Vec<Lock>,
    callbacks: WholeCallbacks,
}

impl MultiLock {
    multi_setters!(Lock);

    fn of(locks: Vec<Lock>) -> MultiLock {
        MultiLock { locks, callbacks: WholeCallbacks::default() }
    }

    /// Waits until all of them are held, as long as it takes. Uncontended: one round trip for plain locks on one server, else
    /// one for each.
    ///
    /// Each is waited for as its kind of lock is; those that are held already are renewed meanwhile, and what limits a hold
    /// (`auto_renew(false)`, `max_hold`) counts from the moment when all are held. When one of them is lost before that,
    /// all are released and it begins anew.
    ///
    /// # Errors
    /// `InvalidArgument` before any I/O, see [`MultiLock::validate`]; else as [`Lock::acquire`], of the member that it was.
    ///
    /// # Cancel safety
    /// Drop the future at any point: nothing is left held.
    pub async fn acquire(&self) -> Result<Lease, Error> {
        self.enter("acquire", None).await
    }

    /// Waits at most `wait`, all in all, until all of them are held. Zero is a single try that fails with `Busy`.
    ///
    /// What was held is released before it returns; that takes up to one `request_timeout` more than [`Lock::acquire_within`].
    ///
    /// # Errors
    /// `Timeout` or `Busy`, which name the member that others held; else as [`MultiLock::acquire`].
    ///
    /// # Cancel safety
    /// As [`MultiLock::acquire`].
    pub async fn acquire_within(&self, wait: Duration) -> Result<Lease, Error> {
        self.enter("acquire", Some(wait)).await
    }

    /// One try: `None`, and nothing is held, when somebody else holds one of them.
    ///
    /// # Errors
    /// As [`MultiLock::acquire`].
    ///
    /// # Cancel safety
    /// As [`MultiLock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        match self.enter("try_acquire", Some(Duration::ZERO)).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `body` while all of them are held, cancels it at the first loss, and releases at the end; see [`Lock::with`].
    ///
    /// # Errors
    /// The body's, or as [`MultiLock::acquire`], or `Lost`.
    ///
    /// # Cancel safety
    /// As [`Lock::with`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let moved = client.multi_lock(["account:1", "account:2"]).with(|lease| async move {
    ///     assert_eq!(lease.names(), [b"account:1", b"account:2"]);
    ///     Ok::<_, onelock::Error>(30)
    /// }).await?;
    /// assert_eq!(moved, 30);
    /// # Ok(()) }
    /// ```
    pub async fn with<F, Fut, T, E>(&self, body: F) -> Result<T, E>
    where
        F: FnOnce(Arc<Lease>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        lock::run(self.acquire().await?, body).await
    }

    /// The same with a bounded wait; see [`MultiLock::acquire_within`].
    ///
    /// # Errors
    /// The body's, or as [`MultiLock::acquire_within`], or `Lost`.
    ///
    /// # Cancel safety
    /// As [`Lock::with`].
    pub async fn with_within<F, Fut, T, E>(&self, wait: Duration, body: F) -> Result<T, E>
    where
        F: FnOnce(Arc<Lease>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        lock::run(self.acquire_within(wait).await?, body).await
    }

    /// The same with one try: `None`, and `body` does not run, when somebody else holds one of them.
    ///
    /// # Errors
    /// The body's, or as [`MultiLock::try_acquire`], or `Lost`.
    ///
    /// # Cancel safety
    /// As [`Lock::with`].
    pub async fn try_with<F, Fut, T, E>(&self, body: F) -> Result<Option<T>, E>
    where
        F: FnOnce(Arc<Lease>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        match self.try_acquire().await? {
            Some(lease) => lock::run(lease, body).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether anybody holds one of them, this client included. One round trip for each.
    ///
    /// When the answer arrives it may be old: to act on it, use [`MultiLock::try_acquire`].
    ///
    /// # Errors
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let found = join_all(self.locks.iter().map(|lock| Box::pin(lock.is_locked()))).await;
        Ok(found.into_iter().collect::<Result<Vec<_>, _>>()?.contains(&true))
    }

    /// The order of the members; with engines as the servers know them.
    fn check(&self, tried: &str, engines: Option<&[Arc<Engine>]>) -> Result<Vec<PlacedMember>, Error> {
        let specs: Vec<&LockSpec> = self.locks.iter().map(Lock::spec).collect();
        let client = |at: usize| self.locks.get(at).map(Lock::client);
        let same = |one, other| client(one).zip(client(other)).is_some_and(|(one, other)| one.is_same(other));
        multi::order(tried, &specs, engines, same)
    }

    async fn enter(&self, tried: &str, wait: Option<Duration>) -> Result<Lease, Error> {
        for lock in &self.locks {
            lock.spec().check_use(tried, wait)?;
        }
        self.check(tried, None)?;
        let engines = self.locks.iter().map(|lock| lock.client().engine()).collect::<Result<Vec<_>, _>>()?;
        let order = self.check(tried, Some(&engines))?;
        let jitter = engines.first().map_or(Jitter::new(0), |engine| engine.jitter());
        let arranged = Arranged::new(order, &engines, |at| self.locks.get(at).map(Lock::as_member));
        let mut machine = MultiAcquire::new(&arranged.order, wait, grace(&engines), clock::now());
        if let Some(engine) = arranged.one_engine() {
            check_once(engine).await?;
            machine = machine.at_once();
        }
        Box::pin(acquire_all(tried, machine, &arranged, &self.callbacks, jitter)).await
    }
}

/// Acquires all, one after the other. Dropped at any point, it leaves nothing held.
async fn acquire_all(
    tried: &str,
    mut machine: MultiAcquire,
    arranged: &Arranged<Lock>,
    callbacks: &WholeCallbacks,
    mut jitter: Jitter,
) -> Result<Lease, Error> {
    let mut held: Vec<LeaseHandle> = Vec::new();
    let mut together: Option<Together> = None;
    let mut step = machine.next(clock::now(), &mut jitter);
    loop {
        match step {
            MultiStep::TakeAll { until } => {
                let mut all = match together.take() {
                    Some(all) => all,
                    None => arranged.together(tried, machine.wait())?,
                };
                let answer = all.send_async(until).await;
                match machine.took_all(clock::now(), &answer.outcome) {
                    AllAtOnce::Held => held = arranged.taken(all, &answer)?,
                    AllAtOnce::Again => together = Some(all),
                    AllAtOnce::Separately => all.give_up(),
                    AllAtOnce::Refused(member, failure) => return Err(all.refused(member, &failure)),
                }
            }
            MultiStep::Enter { member, wait } => {
                let Some(lock) = arranged.locks.get(member) else { break };
                let holds: Vec<Arc<Hold>> = held.iter().map(|member| member.hold.clone()).collect();
                let entered = tokio::select! {
                    biased;
                    entered = lock.enter(tried, wait) => Some(entered),
                    () = multi::any_lost(holds) => {
                        machine.lost(clock::now());
                        None
                    }
                    // what is to be done then, the machine says
                    () = sleep_until(machine.hard_limit()) => None,
                };
                match entered {
                    None => {}
                    Some(Ok(Lease { handle: AnyHandle::One(handle) })) => {
                        held.push(handle);
                        machine.entered();
                    }
                    Some(Ok(_)) => break,
                    Some(Err(error)) if machine.not_entered(clock::now(), error.kind(), &mut jitter) => {}
                    Some(Err(error)) => {
                        if error.is_not_acquired() {
                            // so that nothing is held when the caller hears it
                            release_together(&held).await;
                        }
                        return Err(error);
                    }
                }
            }
            MultiStep::Look => {
                step = arranged.looked(&mut machine, &held);
                continue;
            }
            MultiStep::Renew(due) => {
                let renewed = tokio::select! {
                    renewed = extend::extend_together(renewals(&held, &due)) => renewed,
                    () = sleep_until(machine.hard_limit()) => Vec::new(),
                };
                for renewed in renewed {
                    match renewed {
                        Err(error) if !is_loss(&error) => return Err(error),
                        Ok(()) | Err(_) => {} // the next look tells
                    }
                }
            }
            MultiStep::Release { until } => {
                release_together(&held).await;
                held.clear();
                sleep_until(until).await;
                machine.released();
            }
            MultiStep::HandOut => match arranged.hand_out(std::mem::take(&mut held), callbacks) {
                Ok(handle) => return Ok(Lease { handle }),
                Err(members) => {
                    held = members;
                    machine.lost(clock::now());
                }
            },
            MultiStep::GiveUp(why) => {
                let error = arranged.given_up(tried, why, machine.held());
                if error.is_not_acquired() {
                    release_together(&held).await;
                }
                return Err(error);
            }
        }
        step = machine.next(clock::now(), &mut jitter);
    }
    Err(impossible(tried))
}

impl Client {
    /// The locks of these names, held all together or not at all; see [`MultiLock`]. No I/O.
    ///
    /// For locks of other kinds, clients or options: [`MultiLock::new`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let lease = client.multi_lock(["account:1", "account:2"]).acquire().await?;
    /// lease.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn multi_lock<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| self.lock(name)))
    }
}

impl std::fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiLock").field("locks", &self.locks).finish_non_exhaustive()
    }
}
