//! Several locks for threads, held all together or not at all.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::lease::{extend_together, release_together};
use super::lock::{self, Lock};
use super::{Interrupt, Interrupter, Lease};
use crate::driver::engine::Engine;
use crate::driver::hold::Hold;
use crate::driver::lock_spec::LockSpec;
use crate::driver::multi;
use crate::driver::together::Together;
use crate::error::{Error, ErrorKind};
use crate::lease::LeaseHandle;
use crate::machine::multi::{AllAtOnce, MultiAcquire, MultiStep, PlacedMember};
use crate::machine::{Jitter, LossReason, Time};
use crate::multi_handle::AnyHandle;
use crate::multi_lock::multi_setters;
use crate::multi_members::{Arranged, WholeCallbacks, grace, impossible, is_loss, renewals};
use crate::sys::clock;

/// Several locks as one, for threads, from [`Client::multi_lock`](super::Client::multi_lock) or [`MultiLock::new`]: all are held, or none. See
/// [`crate::MultiLock`].
///
/// ```
/// # fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::blocking::Client::connect("memory://")?;
/// use onelock::blocking::MultiLock;
/// let both = MultiLock::new([client.lock("account:1"), client.reentrant_lock("audit")]);
/// let lease = both.acquire()?;
/// assert!(lease.fencing_token_of("audit").is_some());
/// assert!(both.try_acquire()?.is_none());
/// lease.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MultiLock {
    locks: Vec<Lock>,
    callbacks: WholeCallbacks,
    interrupt: Interrupter,
}

/// Ends a step when the caller says so, when a member that is held is lost, or at the hard limit.
struct LossOr {
    caller: Interrupter,
    held: Vec<Arc<Hold>>,
    until: Time,
}

impl Interrupt for LossOr {
    fn interrupted(&self) -> bool {
        self.caller.get().interrupted() || clock::now() >= self.until || multi::is_any_lost(&self.held)
    }
}

impl MultiLock {
    multi_setters!(Lock);

    fn of(locks: Vec<Lock>) -> MultiLock {
        MultiLock { locks, callbacks: WholeCallbacks::default(), interrupt: Interrupter::nobody() }
    }

    /// Who may end a waiting acquire from outside; see [`Lock::interrupt`]. What the members' descriptions say of this does
    /// not count.
    pub fn interrupt(mut self, interrupt: impl Interrupt + Send + Sync + 'static) -> Self {
        self.interrupt = Interrupter::new(interrupt);
        self
    }

    /// Waits until all of them are held, as long as it takes; see [`crate::MultiLock::acquire`].
    ///
    /// # Errors
    /// As [`crate::MultiLock::acquire`]; `Cancelled` when interrupted; `Unsupported` inside an async runtime.
    pub fn acquire(&self) -> Result<Lease, Error> {
        self.enter("acquire", None)
    }

    /// Waits at most `wait`, all in all, until all of them are held; see [`crate::MultiLock::acquire_within`].
    ///
    /// # Errors
    /// As [`crate::MultiLock::acquire_within`]; `Cancelled` when interrupted; `Unsupported` inside an async runtime.
    pub fn acquire_within(&self, wait: Duration) -> Result<Lease, Error> {
        self.enter("acquire", Some(wait))
    }

    /// One try: `None`, and nothing is held, when somebody else holds one of them.
    ///
    /// # Errors
    /// As [`MultiLock::acquire`].
    pub fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        match self.enter("try_acquire", Some(Duration::ZERO)) {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs `body` while all of them are held, and releases at the end; see [`Lock::with`].
    ///
    /// # Errors
    /// The body's, or as [`MultiLock::acquire`], or `Lost`.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::blocking::Client::connect("memory://")?;
    /// let moved = client.multi_lock(["account:1", "account:2"]).with(|lease| {
    ///     assert!(lease.is_held());
    ///     Ok::<_, onelock::Error>(30)
    /// })?;
    /// # assert_eq!(moved, 30); Ok(()) }
    /// ```
    pub fn with<T, E: From<Error>>(&self, body: impl FnOnce(&Lease) -> Result<T, E>) -> Result<T, E> {
        lock::run(&self.acquire()?, body)
    }

    /// The same with a bounded wait; see [`MultiLock::acquire_within`].
    ///
    /// # Errors
    /// The body's, or as [`MultiLock::acquire_within`], or `Lost`.
    pub fn with_within<T, E: From<Error>>(
        &self,
        wait: Duration,
        body: impl FnOnce(&Lease) -> Result<T, E>,
    ) -> Result<T, E> {
        lock::run(&self.acquire_within(wait)?, body)
    }

    /// The same with one try: `None`, and `body` does not run, when somebody else holds one of them.
    ///
    /// # Errors
    /// The body's, or as [`MultiLock::try_acquire`], or `Lost`.
    pub fn try_with<T, E: From<Error>>(&self, body: impl FnOnce(&Lease) -> Result<T, E>) -> Result<Option<T>, E> {
        self.try_acquire()?.map(|lease| lock::run(&lease, body)).transpose()
    }

    /// Whether anybody holds one of them; see [`crate::MultiLock::is_locked`].
    ///
    /// # Errors
    /// As [`Lock::is_locked`].
    pub fn is_locked(&self) -> Result<bool, Error> {
        let Some(first) = self.locks.first() else { return Ok(false) };
        let all = crate::MultiLock::new(self.locks.iter().map(Lock::to_async));
        let waits = first.interrupted_by(self.interrupt.clone());
        waits.waited("is_locked", async move { all.is_locked().await })
    }

    /// The order of the members; with engines as the servers know them.
    fn check(&self, tried: &str, engines: Option<&[Arc<Engine>]>) -> Result<Vec<PlacedMember>, Error> {
        let specs: Vec<&LockSpec> = self.locks.iter().map(Lock::spec).collect();
        let client = |at: usize| self.locks.get(at).map(Lock::client);
        let same = |one, other| client(one).zip(client(other)).is_some_and(|(one, other)| one.is_same(other));
        multi::order(tried, &specs, engines, same)
    }

    fn enter(&self, tried: &str, wait: Option<Duration>) -> Result<Lease, Error> {
        for lock in &self.locks {
            lock.spec().check_use(tried, wait)?;
        }
        self.check(tried, None)?;
        let engines = self.locks.iter().map(|lock| lock.client().engine(tried)).collect::<Result<Vec<_>, _>>()?;
        let order = self.check(tried, Some(&engines))?;
        let jitter = engines.first().map_or(Jitter::new(0), |engine| engine.jitter());
        let arranged = Arranged::new(order, &engines, |at| self.locks.get(at).map(Lock::as_member));
        let mut machine = MultiAcquire::new(&arranged.order, wait, grace(&engines), clock::now());
        if let (Some(engine), Some(first)) = (arranged.one_engine(), arranged.locks.first()) {
            first.look_at_server(engine)?;
            machine = machine.at_once();
        }
        self.acquire_all(tried, machine, &arranged, jitter)
    }

    /// Acquires all, one after the other. What it returns without is released.
    fn acquire_all(
        &self,
        tried: &str,
        mut machine: MultiAcquire,
        arranged: &Arranged<Lock>,
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
                    let answer = all.send_blocking(until, self.interrupt.get());
                    match machine.took_all(clock::now(), &answer.outcome) {
                        AllAtOnce::Held => held = arranged.taken(all, &answer)?,
                        AllAtOnce::Refused(member, failure) => return Err(all.refused(member, &failure)),
                        _ if self.interrupt.get().interrupted() => return Err(all.interrupted()),
                        AllAtOnce::Again => together = Some(all),
                        AllAtOnce::Separately => all.give_up(),
                    }
                }
                MultiStep::Enter { member, wait } => {
                    let Some(lock) = arranged.locks.get(member) else { break };
                    let holds: Vec<Arc<Hold>> = held.iter().map(|member| member.hold.clone()).collect();
                    let until = machine.hard_limit();
                    let waits = LossOr { caller: self.interrupt.clone(), held: holds.clone(), until };
                    match lock.interrupted_by(Interrupter::new(waits)).enter(tried, wait) {
                        Ok(Lease { handle: AnyHandle::One(handle), .. }) => {
                            held.push(handle);
                            machine.entered();
                        }
                        Ok(_) => break,
                        Err(error)
                            if error.kind() == ErrorKind::Cancelled
                                && !self.interrupt.get().interrupted()
                                && multi::is_any_lost(&holds) =>
                        {
                            machine.lost(clock::now());
                        }
                        // what is to be done then, the machine says
                        Err(error)
                            if error.kind() == ErrorKind::Cancelled
                                && !self.interrupt.get().interrupted()
                                && clock::now() >= until => {}
                        Err(error) if machine.not_entered(clock::now(), error.kind(), &mut jitter) => {}
                        Err(error) => {
                            if error.is_not_acquired() {
                                // so that nothing is held when the caller hears it
                                release_together(&held);
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
                    let until = machine.hard_limit();
                    let waits = LossOr { caller: self.interrupt.clone(), held: Vec::new(), until };
                    for renewed in extend_together(renewals(&held, &due), &waits) {
                        match renewed {
                            // what is to be done then, the machine says
                            Err(_) if !self.interrupt.get().interrupted() && clock::now() >= until => {}
                            Err(error) if !is_loss(&error) => return Err(error),
                            Ok(()) | Err(_) => {} // the next look tells
                        }
                    }
                }
                MultiStep::Release { until } => {
                    release_together(&held);
                    held.clear();
                    thread::park_timeout(until.since(clock::now()));
                    machine.released();
                }
                MultiStep::HandOut => match arranged.hand_out(std::mem::take(&mut held), &self.callbacks) {
                    Ok(handle) => return Ok(Lease { handle, interrupt: self.interrupt.clone() }),
                    Err(members) => {
                        held = members;
                        machine.lost(clock::now());
                    }
                },
                MultiStep::GiveUp(why) => {
                    let error = arranged.given_up(tried, why, machine.held());
                    if error.is_not_acquired() {
                        release_together(&held);
                    }
                    return Err(error);
                }
            }
            step = machine.next(clock::now(), &mut jitter);
        }
        Err(impossible(tried))
    }
}

impl std::fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("blocking::MultiLock").field("locks", &self.locks).finish_non_exhaustive()
    }
}
