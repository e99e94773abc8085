//! The members of one acquire of several locks, as both faces of it see them.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::engine::Engine;
use crate::driver::extend::Extension;
use crate::driver::hold::OnJeopardy;
use crate::driver::lock_spec::{LockSpec, LossCallback};
use crate::driver::multi;
use crate::driver::together::{self, Together};
use crate::error::{Error, ErrorKind};
use crate::lease::LeaseHandle;
use crate::machine::Answer;
use crate::machine::multi::{GiveUpReason, MultiAcquire, MultiStep, PlacedMember};
use crate::multi_handle::{AnyHandle, MultiHandle};
use crate::sys::clock;

/// The callbacks of the whole.
#[derive(Clone, Default)]
pub(crate) struct WholeCallbacks {
    pub(crate) on_lost: Option<LossCallback>,
    pub(crate) on_jeopardy: Option<OnJeopardy>,
}

/// The members of one acquire, in their order.
pub(crate) struct Arranged<L> {
    pub(crate) order: Vec<PlacedMember>,
    /// As they are acquired.
    pub(crate) locks: Vec<L>,
    /// As they are once all are held.
    pub(crate) specs: Vec<LockSpec>,
    pub(crate) engines: Vec<Arc<Engine>>,
}

impl<L> Arranged<L> {
    pub(crate) fn new(
        order: Vec<PlacedMember>,
        engines: &[Arc<Engine>],
        member: impl Fn(usize) -> Option<(L, LockSpec)>,
    ) -> Arranged<L> {
        let (locks, specs) = order.iter().filter_map(|placed| member(placed.given)).unzip();
        let engines = order.iter().filter_map(|placed| engines.get(placed.given).cloned()).collect();
        Arranged { order, locks, specs, engines }
    }

    /// The engine of all members, if one request can take them.
    pub(crate) fn one_engine(&self) -> Option<&Arc<Engine>> {
        self.engines.first().filter(|_| together::is_possible(&self.engines, &self.specs))
    }

    /// An acquire of all by one request.
    pub(crate) fn together(&self, tried: &str, wait: Option<Duration>) -> Result<Together, Error> {
        let engine = self.engines.first().ok_or_else(|| impossible(tried))?;
        engine.check_open(tried)?;
        Together::new(engine.clone(), &self.specs, wait)
    }

    /// All are held.
    pub(crate) fn taken(&self, together: Together, answer: &Answer) -> Result<Vec<LeaseHandle>, Error> {
        let holds = together.finish(answer)?;
        let members = holds.into_iter().zip(&self.engines).zip(&self.specs);
        Ok(members.map(|((hold, engine), spec)| LeaseHandle::new(engine.clone(), hold, spec.name.clone())).collect())
    }

    /// Joins the members into one lease.
    pub(crate) fn hand_out(
        &self,
        held: Vec<LeaseHandle>,
        callbacks: &WholeCallbacks,
    ) -> Result<AnyHandle, Vec<LeaseHandle>> {
        let mut given: Vec<usize> = (0..self.order.len()).collect();
        given.sort_by_key(|at| self.order.get(*at).map(|placed| placed.given));
        let specs: Vec<&LockSpec> = self.specs.iter().collect();
        let handle = MultiHandle::hand_out(held, &specs, given)?;
        let of_members = self.specs.iter().map(LockSpec::callbacks);
        for (on_lost, on_jeopardy) in of_members.chain([(callbacks.on_lost.clone(), callbacks.on_jeopardy.clone())]) {
            if let Some(callback) = on_lost {
                handle.on_lost(Box::new(move |reason| callback(reason)));
            }
            if let Some(callback) = on_jeopardy {
                handle.on_jeopardy(&callback);
            }
        }
        Ok(AnyHandle::Many(handle))
    }

    /// The error of an acquire that gives up while so many members are held.
    pub(crate) fn given_up(&self, tried: &str, why: GiveUpReason, held: usize) -> Error {
        let about = if why == GiveUpReason::TooSlow { held.min(self.specs.len().saturating_sub(1)) } else { 0 };
        let name = self.specs.get(about).map_or(&[][..], |spec| &spec.name);
        Error::new(why.kind(), tried, why.explain()).on(name)
    }

    /// What one look at all held members says.
    pub(crate) fn looked(&self, machine: &mut MultiAcquire, held: &[LeaseHandle]) -> MultiStep {
        let looks: Vec<_> =
            held.iter().zip(&self.specs).map(|(member, spec)| multi::look(&member.hold, spec)).collect();
        machine.looked(clock::now(), &looks)
    }
}

/// How much later than its wait an acquire of locks of these clients ends at the latest.
pub(crate) fn grace(engines: &[Arc<Engine>]) -> Duration {
    let of = |engine: &Arc<Engine>| engine.options.connect_timeout + engine.options.request_timeout * 2;
    engines.iter().map(of).max().unwrap_or_default()
}

/// Whether a member's renewal failed because it is not held any more.
pub(crate) fn is_loss(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld)
}

/// The error of a member that is not there, or is no single lock.
pub(crate) fn impossible(tried: &str) -> Error {
    Error::new(ErrorKind::Internal, tried, "a member of several locks is not one lock")
}

/// The renewals of these members, for the full time.
pub(crate) fn renewals(held: &[LeaseHandle], due: &[usize]) -> Vec<Extension> {
    let due = due.iter().filter_map(|at| held.get(*at));
    due.map(|member| member.extension(multi::full_length(&member.hold))).collect()
}
