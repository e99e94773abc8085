//! Taking several mutexes of one client by one request, where the store can: all of them or none.

use std::sync::Arc;
use std::time::Duration;

use super::claim::fresh_claim;
use super::engine::Engine;
use super::failures::{cancelled, closed, failed};
use super::gauge::WaitGauge;
use super::hold::Hold;
use super::lock_spec::LockSpec;
use super::metrics::count;
use super::release;
use super::spans::AcquireSpan;
use super::undo_guard::UndoGuard;
use crate::Error;
use crate::machine::{Answer, Failure, Kind, Op, Outcome, Reply, Time};
use crate::store::Interrupt;
use crate::sys::clock;

/// An acquire of several mutexes by one request. Dropped at any point, it leaves nothing held.
pub(crate) struct Together {
    engine: Arc<Engine>,
    members: Vec<PendingMember>,
    tried: &'static str,
    started: Time,
    /// Counted as cancelled if it is dropped before it has ended.
    gauge: WaitGauge,
}

struct PendingMember {
    spec: LockSpec,
    guard: UndoGuard,
    span: AcquireSpan,
}

/// Whether one request can take these: mutexes of one client that one server has in one slot, for which nobody of this
/// client waits.
pub(crate) fn is_possible(engines: &[Arc<Engine>], specs: &[LockSpec]) -> bool {
    let (Some(engine), Some(first)) = (engines.first(), specs.first()) else { return false };
    let store = &engine.store;
    specs.len() > 1
        && engines.iter().all(|other| Arc::ptr_eq(engine, other))
        && store.capabilities().together
        // each grant is confirmed by itself
        && engine.options.min_replicas == 0
        && specs.iter().all(|spec| {
            spec.kind == Kind::Mutex
                && spec.fencing == first.fencing
                && store.shard(&spec.key) == store.shard(&first.key)
                && !engine.wait_queues.is_contended(spec.kind, &spec.key)
        })
}

impl Together {
    /// Makes a claim for each, before the first byte is sent.
    pub(crate) fn new(engine: Arc<Engine>, specs: &[LockSpec], wait: Option<Duration>) -> Result<Together, Error> {
        let mut members = Vec::with_capacity(specs.len());
        for spec in specs {
            let spec = spec.while_acquiring();
            let (claim, _) = fresh_claim(&engine, &spec).map_err(|error| error.on(&spec.name))?;
            let ttl_ms = spec.terms.server_ttl_ms(spec.terms.ttl);
            let guard = UndoGuard::new(engine.clone(), claim, ttl_ms);
            let span = AcquireSpan::begin(&spec, wait);
            members.push(PendingMember { spec, guard, span });
        }
        let gauge = WaitGauge { engine: engine.clone(), ended: false, waiting: false };
        let tried = if wait == Some(Duration::ZERO) { "try_acquire" } else { "acquire" };
        Ok(Together { engine, members, tried, started: clock::now(), gauge })
    }

    fn op(&self) -> Op {
        let claim = |member: &PendingMember| {
            (member.guard.claim().clone(), member.spec.terms.server_ttl_ms(member.spec.terms.ttl))
        };
        let fenced = self.members.first().is_some_and(|member| member.spec.fencing);
        Op::AcquireMany { claims: self.members.iter().map(claim).collect(), fenced }
    }

    fn sending(&mut self, connection: u64) {
        for member in &mut self.members {
            member.guard.sending(connection);
        }
    }

    fn answered(&mut self, answer: &Answer) {
        self.engine.observe_clock(answer);
        for (index, member) in self.members.iter_mut().enumerate() {
            member.guard.answered(&answer.of_member(index));
        }
    }

    /// Sends the request, the same each time.
    pub(crate) async fn send_async(&mut self, until: Time) -> Answer {
        self.sending(self.engine.store.connection());
        let answer = self.engine.store.call(self.op(), until).await;
        self.answered(&answer);
        answer
    }

    /// The same from a thread.
    pub(crate) fn send_blocking(&mut self, until: Time, interrupt: &dyn Interrupt) -> Answer {
        self.sending(0);
        let answer = self.engine.store.call_blocking(&self.op(), until, interrupt);
        self.answered(&answer);
        answer
    }

    /// All are held: a hold for each, in their order. The deadlines count from the sending of the request.
    pub(crate) fn finish(mut self, answer: &Answer) -> Result<Vec<Arc<Hold>>, Error> {
        self.gauge.ended = true;
        if self.engine.is_closed() {
            return Err(self.fail(0, &closed()));
        }
        let now = clock::now();
        let mut holds = Vec::with_capacity(self.members.len());
        for (index, PendingMember { spec, mut guard, span }) in
            std::mem::take(&mut self.members).into_iter().enumerate()
        {
            let Outcome::Applied(Reply::Granted { fence, .. }) = answer.of_member(index).outcome else { continue };
            let claim = guard.claim().clone();
            let uncertainty = guard.settle();
            let fence = fence.filter(|_| spec.fencing);
            let id = self.engine.new_lease_id();
            let hold = Arc::new(Hold::new(id, claim, spec.terms.clone(), fence, now, uncertainty, None));
            hold.lease.grant(spec.terms.deadline(answer.sent_at, spec.terms.ttl));
            spec.listen(&hold);
            self.engine.arm(&hold, None);
            self.engine.metrics.record_wait(hold.kind(), now.since(self.started));
            count(&self.engine.metrics.acquired);
            span.end(Ok(&hold));
            hold.span.begin(&hold, &spec.name);
            tracing::debug!(lock = %spec.name.escape_ascii(), fence, "lock acquired");
            holds.push(hold);
        }
        if self.engine.is_closed() {
            // closed since the last check: `close` may have missed these holds
            for hold in &holds {
                release::release_in_background(&self.engine, hold);
            }
            let name = holds.first().map_or(&[][..], |hold| hold.key());
            return Err(failed(&self.engine, self.tried, name, &closed()));
        }
        Ok(holds)
    }

    /// It goes on one after the other, or begins anew: this one does not count.
    pub(crate) fn give_up(mut self) {
        self.gauge.ended = true;
    }

    /// The whole ends because of this member.
    pub(crate) fn refused(mut self, index: usize, failure: &Failure) -> Error {
        self.gauge.ended = true;
        self.fail(index, failure)
    }

    /// The caller stopped waiting.
    pub(crate) fn interrupted(mut self) -> Error {
        self.gauge.ended = true;
        self.fail(0, &cancelled())
    }

    fn fail(&mut self, index: usize, failure: &Failure) -> Error {
        self.engine.metrics.failed(failure.kind);
        if index >= self.members.len() {
            return failed(&self.engine, self.tried, &[], failure);
        }
        let PendingMember { spec, guard, span } = self.members.swap_remove(index);
        tracing::debug!(lock = %spec.name.escape_ascii(), cause = %failure.detail, "lock not acquired");
        let error = failed(&self.engine, self.tried, &spec.name, failure);
        span.end(Err(&error));
        drop(guard);
        error
    }
}
