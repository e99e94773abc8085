//! What both faces of a lease share: the handle of one hold, or of several that are one lease.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::driver::hold::OnJeopardy;
use crate::driver::lock_spec::LockSpec;
use crate::driver::multi::{self, HeldMember, LeaseGroup};
use crate::driver::{extend, failures};
use crate::error::{Error, ErrorKind};
use crate::lease::LeaseHandle;
use crate::machine::{Grade, Kind, LossReason};

/// Several holds that are one lease.
pub(crate) struct MultiHandle {
    /// In the order in which they were acquired; at least one.
    pub(crate) members: Vec<LeaseHandle>,
    /// The members as their holder named them: places in `members`.
    given: Vec<usize>,
    /// The names, one after the other.
    pub(crate) name: Arc<[u8]>,
    pub(crate) group: Arc<LeaseGroup>,
    released: AtomicBool,
    /// Its release has ended: what becomes of outer holds after that is not its loss.
    settled: AtomicBool,
}

/// A member that is held, as the driver sees it.
pub(crate) fn held(handle: &LeaseHandle) -> HeldMember {
    (handle.engine.clone(), handle.hold.clone())
}

impl MultiHandle {
    /// Joins members that are all held; returns them to the caller when one of them is not any more.
    pub(crate) fn hand_out(
        members: Vec<LeaseHandle>,
        specs: &[&LockSpec],
        given: Vec<usize>,
    ) -> Result<Box<MultiHandle>, Vec<LeaseHandle>> {
        let holds: Vec<HeldMember> = members.iter().map(held).collect();
        let group = LeaseGroup::join(&holds);
        // after joining: a loss before is seen here, one from now on reaches the group
        if !members.iter().all(LeaseHandle::is_held) {
            group.end();
            for (_, hold) in &holds {
                group.leave(hold);
            }
            return Err(members);
        }
        for (member, spec) in holds.iter().zip(specs) {
            multi::begin_limits(member, spec);
        }
        let shown: Vec<&[u8]> = given.iter().filter_map(|at| members.get(*at)).map(|member| &*member.name).collect();
        let name = shown.join(&b", "[..]).into();
        let handle = MultiHandle {
            members,
            given,
            name,
            group,
            released: AtomicBool::new(false),
            settled: AtomicBool::new(false),
        };
        Ok(Box::new(handle))
    }

    fn first(&self) -> Option<&LeaseHandle> {
        self.members.first()
    }

    fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    fn is_held(&self) -> bool {
        !self.is_released() && self.loss().is_none() && self.members.iter().all(LeaseHandle::is_held)
    }

    fn loss(&self) -> Option<LossReason> {
        if self.group.loss().is_none()
            && !self.settled.load(Ordering::Acquire)
            && let Some(reason) = self.members.iter().find_map(LeaseHandle::loss)
        {
            self.group.note(reason);
        }
        self.group.loss()
    }

    /// Begins a release: false when it was released before.
    pub(crate) fn begin_release(&self) -> Result<bool, Error> {
        if let Some(first) = self.first().filter(|first| !first.engine.is_here()) {
            return first.begin_release();
        }
        let begins = !self.released.swap(true, Ordering::AcqRel);
        if begins {
            self.group.end();
        }
        Ok(begins)
    }

    /// Its release has ended. Its loss stays what it is by now.
    pub(crate) fn settle(&self) {
        let _ = self.loss();
        self.settled.store(true, Ordering::Release);
        self.leave_outer_holds();
    }

    /// Leaves the holds that go on without it: those that the same owner has entered otherwise, too.
    fn leave_outer_holds(&self) {
        for member in self.members.iter().filter(|member| member.engine.is_here() && member.hold.owner.is_some()) {
            let ours = u64::from(!member.is_released());
            if multi::entries(&member.engine, &member.hold) > ours {
                self.group.leave(&member.hold);
            }
        }
    }

    /// The proofs of the members, one a line. When one of them was lost meanwhile, the others end with their ttl.
    fn detach(&self) -> Result<String, Error> {
        self.check_held("detach")?;
        self.members.iter().try_for_each(LeaseHandle::check_detachable)?;
        self.group.end();
        let proofs = self.given.iter().filter_map(|at| self.members.get(*at)).map(LeaseHandle::detach);
        let proofs = proofs.collect::<Result<Vec<_>, _>>()?;
        self.released.store(true, Ordering::Release);
        Ok(proofs.join("\n"))
    }

    fn lost_error(&self) -> Error {
        let why = self.loss().map_or("it ended", LossReason::explain);
        Error::new(ErrorKind::Lost, "use the lease", format!("the lease was lost: {why}")).on(&self.name)
    }

    /// Whether an operation on a held lease may begin.
    pub(crate) fn check_held(&self, tried: &str) -> Result<(), Error> {
        if self.is_released() {
            return Err(Error::new(ErrorKind::NotHeld, tried, "it was released").on(&self.name));
        }
        if self.loss().is_some() {
            return Err(self.lost_error());
        }
        self.members.iter().try_for_each(|member| member.check_held(tried))
    }

    pub(crate) fn check_extension(&self, ttl: Duration) -> Result<(), Error> {
        self.members.iter().try_for_each(|member| extend::check(&member.engine, &member.hold, ttl, &member.name))
    }

    pub(crate) fn on_lost(&self, callback: Box<dyn FnOnce(LossReason) + Send>) {
        let Some(first) = self.first().filter(|first| first.engine.is_here()) else { return };
        if let Some((callback, reason)) = self.group.on_lost(callback) {
            first.engine.run_callback(Box::new(move || callback(reason)));
        }
    }

    pub(crate) fn on_jeopardy(&self, callback: &OnJeopardy) {
        for member in self.members.iter().filter(|member| member.engine.is_here()) {
            member.hold.on_jeopardy(callback.clone());
        }
    }
}

impl Drop for MultiHandle {
    fn drop(&mut self) {
        // the members are released one by one; what one of them finds is no reason to keep the others
        self.group.end();
        self.leave_outer_holds();
    }
}

/// The handle of a lease.
pub(crate) enum AnyHandle {
    /// Of one lock.
    One(LeaseHandle),
    /// Of several.
    Many(Box<MultiHandle>),
}

impl AnyHandle {
    pub(crate) fn name(&self) -> &Arc<[u8]> {
        match self {
            AnyHandle::One(handle) => &handle.name,
            AnyHandle::Many(handles) => &handles.name,
        }
    }

    /// The members, in the order in which their holder named them.
    fn members(&self) -> impl Iterator<Item = &LeaseHandle> {
        let (one, many) = match self {
            AnyHandle::One(handle) => (Some(handle), None),
            AnyHandle::Many(handles) => (None, Some(handles)),
        };
        let many = many.into_iter().flat_map(|many| many.given.iter().filter_map(|at| many.members.get(*at)));
        one.into_iter().chain(many)
    }

    pub(crate) fn names(&self) -> Vec<&[u8]> {
        self.members().map(|member| &*member.name).collect()
    }

    pub(crate) fn fencing_token_of(&self, name: &[u8]) -> Option<u64> {
        self.members().find(|member| *member.name == *name).and_then(|member| member.hold.fence())
    }

    /// The one hold that is meant where only one can be: of several the first.
    pub(crate) fn first(&self) -> Option<&LeaseHandle> {
        match self {
            AnyHandle::One(handle) => Some(handle),
            AnyHandle::Many(handles) => handles.first(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.members().next().map_or(Kind::Mutex, |member| member.hold.kind())
    }

    pub(crate) fn fencing_token(&self) -> Option<u64> {
        match self {
            AnyHandle::One(handle) => handle.hold.fence(),
            AnyHandle::Many(_) => None,
        }
    }

    pub(crate) fn token(&self) -> &str {
        match self {
            AnyHandle::One(handle) => &handle.hold.claim.token,
            AnyHandle::Many(_) => "",
        }
    }

    pub(crate) fn fencing_grade(&self) -> Grade {
        self.members().map(LeaseHandle::fencing_grade).min().unwrap_or_default()
    }

    pub(crate) fn is_held(&self) -> bool {
        match self {
            AnyHandle::One(handle) => handle.is_held(),
            AnyHandle::Many(handles) => handles.is_held(),
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self {
            AnyHandle::One(handle) => handle.remaining(),
            AnyHandle::Many(handles) if handles.is_held() => {
                handles.members.iter().map(LeaseHandle::remaining).min().unwrap_or_default()
            }
            AnyHandle::Many(_) => Duration::ZERO,
        }
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        match self {
            AnyHandle::One(handle) => handle.loss(),
            AnyHandle::Many(handles) => handles.loss(),
        }
    }

    pub(crate) fn hold_count(&self) -> u64 {
        match self {
            AnyHandle::One(handle) => handle.hold_count(),
            AnyHandle::Many(handles) => u64::from(handles.is_held()),
        }
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.first().map_or(0, LeaseHandle::process_id)
    }

    pub(crate) fn detach(&self) -> Result<String, Error> {
        match self {
            AnyHandle::One(handle) => handle.detach(),
            AnyHandle::Many(handles) => handles.detach(),
        }
    }

    pub(crate) fn on_lost(&self, callback: impl FnOnce(LossReason) + Send + 'static) {
        match self {
            AnyHandle::One(handle) => handle.on_lost(callback),
            AnyHandle::Many(handles) => handles.on_lost(Box::new(callback)),
        }
    }

    pub(crate) fn on_jeopardy(&self, callback: impl Fn() + Send + Sync + 'static) {
        match self {
            AnyHandle::One(handle) => handle.on_jeopardy(callback),
            AnyHandle::Many(handles) => handles.on_jeopardy(&(Arc::new(callback) as OnJeopardy)),
        }
    }

    /// The error of its loss.
    pub(crate) fn lost_error(&self) -> Error {
        match self {
            AnyHandle::One(handle) => failures::lost(&handle.hold, &handle.name),
            AnyHandle::Many(handles) => handles.lost_error(),
        }
    }

    /// Waits for the loss; for ever in a forked child, which touches nothing that a thread of its parent may have locked.
    pub(crate) fn lost(&self) -> impl Future<Output = LossReason> + Send + 'static + use<> {
        let here = self.first().is_some_and(|first| first.engine.is_here());
        let (hold, group) = match self {
            AnyHandle::One(handle) => (here.then(|| Arc::clone(&handle.hold)), None),
            AnyHandle::Many(handles) => (None, here.then(|| Arc::clone(&handles.group))),
        };
        async move {
            match (hold, group) {
                (Some(hold), _) => hold.lost().await,
                (None, Some(group)) => group.lost().await,
                (None, None) => std::future::pending().await,
            }
        }
    }
}
