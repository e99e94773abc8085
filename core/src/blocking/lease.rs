//! A lease for threads.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::{Interrupt, Interrupter, check_outside_runtime, is_inside_task, wait_for};
use crate::driver::extend::{self, Extension};
use crate::driver::release;
use crate::driver::release_many::ReleasesTogether;
use crate::driver::spans::ReleaseSpan;
use crate::error::{Error, ErrorKind};
use crate::lease::LeaseHandle;
use crate::machine::multi::worst_release;
use crate::machine::{Grade, Kind, LossReason, Release};
use crate::multi_handle::AnyHandle;
use crate::store::Uninterrupted;

/// One granted hold, for threads, from [`Lock::acquire`](super::Lock::acquire); see [`crate::Lease`]. Dropping it gives the
/// lock back in the background.
///
/// May be used and released from another thread than the one that acquired.
///
/// ```
/// # fn main() -> Result<(), onelock::Error> {
/// # let client = onelock::blocking::Client::connect("memory://")?;
/// let lease = client.lock("orders:42").acquire()?;
/// lease.on_lost(|reason| eprintln!("stop: {}", reason.explain()));
/// std::thread::scope(|scope| {
///     scope.spawn(|| assert!(lease.is_held()));
/// });
/// assert_eq!(lease.release()?, onelock::Release::Released);
/// # Ok(()) }
/// ```
pub struct Lease {
    pub(super) handle: AnyHandle,
    pub(super) interrupt: Interrupter,
}

impl Lease {
    /// The name that is locked, as it was given; see [`crate::Lease::name`].
    pub fn name(&self) -> &[u8] {
        self.handle.name()
    }

    /// The names of the locks that are held together; see [`crate::Lease::names`].
    pub fn names(&self) -> Vec<&[u8]> {
        self.handle.names()
    }

    /// The kind of lock; of several that of the first.
    pub fn kind(&self) -> Kind {
        self.handle.kind()
    }

    /// The fencing token of this hold; see [`crate::Lease::fencing_token`].
    pub fn fencing_token(&self) -> Option<u64> {
        self.handle.fencing_token()
    }

    /// The fencing token of one of the locks that this lease holds together; see [`crate::Lease::fencing_token_of`].
    pub fn fencing_token_of(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        self.handle.fencing_token_of(name.as_ref())
    }

    /// The owner token: the proof of this hold, as it stands on the server; see [`crate::Lease::token`].
    pub fn token(&self) -> &str {
        self.handle.token()
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

    /// The number of the process that was granted it; see [`crate::Lease::process_id`].
    pub fn process_id(&self) -> u32 {
        self.handle.process_id()
    }

    /// Why the lease was lost, if it was.
    pub fn loss(&self) -> Option<LossReason> {
        self.handle.loss()
    }

    /// How often the owner has entered; 0 when it is not held.
    pub fn hold_count(&self) -> u64 {
        self.handle.hold_count()
    }

    /// Waits for the loss of the lease, at most `limit`; `None` when it has not been lost by then, so also when it was
    /// released.
    ///
    /// # Errors
    /// `Cancelled` when interrupted; `Unsupported` inside an async runtime.
    pub fn wait_lost(&self, limit: Duration) -> Result<Option<LossReason>, Error> {
        check_outside_runtime("wait_lost")?;
        let Some(first) = self.handle.first().filter(|first| first.engine.is_here()) else { return Ok(None) };
        let lost = self.handle.lost();
        let work = async move { tokio::time::timeout(limit, lost).await.ok() };
        wait_for(&first.engine, self.interrupt.get(), work)
            .map_err(|_| Error::new(ErrorKind::Cancelled, "wait_lost", "the caller stopped waiting").on(self.name()))
    }

    /// Calls back once when the lease is lost; see [`crate::Lease::on_lost`].
    pub fn on_lost(&self, callback: impl FnOnce(LossReason) + Send + 'static) {
        self.handle.on_lost(callback);
    }

    /// Calls back when a renewal round was missed; see [`crate::Lease::on_jeopardy`].
    pub fn on_jeopardy(&self, callback: impl Fn() + Send + Sync + 'static) {
        self.handle.on_jeopardy(callback);
    }

    /// Makes the lease last `ttl` from now, unless it lasts longer already; see [`crate::Lease::extend`].
    ///
    /// # Errors
    /// As [`crate::Lease::extend`]; `Unsupported` inside an async runtime.
    pub fn extend(&self, ttl: Duration) -> Result<(), Error> {
        check_outside_runtime("extend")?;
        match &self.handle {
            AnyHandle::One(handle) => {
                extend::check(&handle.engine, &handle.hold, ttl, &handle.name)?;
                handle.check_held("extend")?;
                extend::extend_blocking(&handle.engine, &handle.hold, ttl, &handle.name, self.interrupt.get())
            }
            AnyHandle::Many(handles) => {
                handles.check_extension(ttl)?;
                handles.check_held("extend")?;
                let all = handles.members.iter().map(|member| member.extension(ttl)).collect();
                extend_together(all, self.interrupt.get()).into_iter().collect()
            }
        }
    }

    /// Releases the lock and tells what the server found; see [`crate::Lease::release`].
    ///
    /// Inside an async task it does not wait for the server: the outcome is [`Release::Unconfirmed`].
    ///
    /// # Errors
    /// Only `Forked`, in a forked child.
    pub fn release(&self) -> Result<Release, Error> {
        match &self.handle {
            AnyHandle::One(handle) => {
                Ok(if handle.begin_release()? { release_begun(handle) } else { Release::AlreadyReleased })
            }
            AnyHandle::Many(handles) => {
                if !handles.begin_release()? {
                    return Ok(Release::AlreadyReleased);
                }
                let worst = release_together(&handles.members);
                handles.settle();
                Ok(worst)
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

/// Extends all at once, while this thread waits.
pub(super) fn extend_together(all: Vec<Extension>, interrupt: &dyn Interrupt) -> Vec<Result<(), Error>> {
    let Some((engine, name)) = all.first().map(|first| (first.engine.clone(), first.name.clone())) else {
        return Vec::new();
    };
    wait_for(&engine, interrupt, extend::extend_together(all))
        .unwrap_or_else(|_| vec![Err(extend::timed_out(&engine, &name))])
}

/// Releases a handle whose release has begun.
fn release_begun(handle: &LeaseHandle) -> Release {
    let (engine, hold) = (&handle.engine, &handle.hold);
    let span = ReleaseSpan::begin(hold);
    if is_inside_task() {
        return span.end(release::release_in_background(engine, hold));
    }
    match release::release(engine, hold) {
        release::ReleaseStep::Done(release) => span.end(release),
        release::ReleaseStep::Send(sending) => span.end(release::send_blocking(engine, sending)),
        release::ReleaseStep::Wait => {
            let work = release::release_async(release::PendingRelease::new(engine, hold, span));
            wait_for(engine, &Uninterrupted, work).unwrap_or(Release::Unconfirmed)
        }
    }
}

/// Releases handles all at once, the last one on this thread, and tells the worst result.
pub(super) fn release_together(handles: &[LeaseHandle]) -> Release {
    let begun: Vec<&LeaseHandle> = handles.iter().filter(|handle| handle.begin_release().unwrap_or(false)).collect();
    let Some((last, others)) = begun.split_last() else { return Release::AlreadyReleased };
    if is_inside_task() {
        return begun.iter().map(|handle| release_begun(handle)).fold(Release::AlreadyReleased, worst_release);
    }
    let holds = || begun.iter().map(|handle| (&handle.engine, &handle.hold));
    if ReleasesTogether::are_one_request(holds()) {
        return ReleasesTogether::begin(holds()).send_blocking().unwrap_or_else(|rest| {
            wait_for(&last.engine, &Uninterrupted, rest.send_async()).unwrap_or(Release::Unconfirmed)
        });
    }
    let (sender, results) = sync_channel(others.len());
    for handle in others {
        let sender = sender.clone();
        let pending = handle.pending_release();
        handle.engine.runtime.spawn(async move {
            let _ = sender.send(release::release_async(pending).await);
        });
    }
    drop(sender);
    let mut worst = release_begun(last);
    // a runtime that has ended drops what it was given
    for _ in others {
        worst = worst_release(worst, results.recv().unwrap_or(Release::Unconfirmed));
    }
    worst
}

impl From<crate::Lease> for Lease {
    /// The blocking form of a lease. Its client must have been made for callers without a runtime, or its runtime must
    /// go on while this is used.
    fn from(lease: crate::Lease) -> Lease {
        Lease { handle: lease.handle, interrupt: Interrupter::nobody() }
    }
}

impl From<Lease> for crate::Lease {
    /// The async form of a lease.
    fn from(lease: Lease) -> crate::Lease {
        crate::Lease { handle: lease.handle }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("blocking::Lease")
            .field("name", &format_args!("{}", self.name().escape_ascii()))
            .field("held", &self.is_held())
            .field("fencing_token", &self.fencing_token())
            .finish_non_exhaustive()
    }
}
