//! What remains of a renewal after its caller got the result: slower nodes answer later, and a node that lost the hold
//! is repaired. Nothing waits for this, and nothing is sent for a hold that has ended.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::RedlockState;
use crate::error::ErrorKind;
use crate::machine::quorum::QuorumRound;
use crate::machine::{Answer, Claim, Failure, Op, Outcome, Time};
use crate::store::Boxed;
use crate::store::redis::node::not_sent;
use crate::sys::clock;
use crate::sys::task;

/// A round that tells the quorum of its end, however it ends: completed, dropped by its caller, or with its runtime.
pub(crate) struct RoundInProgress {
    pub(crate) store: Arc<RedlockState>,
    pub(crate) round: QuorumRound,
}

impl Drop for RoundInProgress {
    fn drop(&mut self) {
        self.round.end(&mut self.store.quorum());
    }
}

/// The nodes to which a request was, or may have been, sent.
#[derive(Default)]
pub(crate) struct SentNodes(AtomicU16);

/// Outside the bits of the nodes.
const CLOSED: u16 = 1 << 15;

impl SentNodes {
    /// Marks this node as sent to. False when the set is closed.
    pub(crate) fn try_mark(&self, node: usize) -> bool {
        self.0.fetch_or(1 << node, Ordering::AcqRel) & CLOSED == 0
    }

    /// Closes the set: no request is sent to further nodes. Tells for each node whether it was sent to.
    pub(crate) fn close(&self) -> impl Fn(usize) -> bool + use<> {
        let sent = self.0.fetch_or(CLOSED, Ordering::AcqRel);
        move |node| sent & (1 << node) != 0
    }
}

/// Reads the answers that are still to come.
pub(crate) async fn read_late_replies<F>(mut progress: RoundInProgress, mut requests: FuturesUnordered<F>)
where
    F: Future<Output = (usize, Answer)>,
{
    while !progress.round.late_nodes().is_empty()
        && let Some((node, answer)) = requests.next().await
    {
        let now = clock::now();
        let store = progress.store.clone();
        progress.round.answered(&mut store.quorum(), now, node, &answer);
        repairs(&mut progress, now).into_iter().for_each(Repair::spawn);
    }
}

/// The background work that a blocking renewal leaves, if any.
pub(crate) fn background_work(mut progress: RoundInProgress, op: &Op) -> Option<Boxed<()>> {
    let repairs = repairs(&mut progress, clock::now());
    let nothing = repairs.is_empty() && progress.round.late_nodes().is_empty();
    (!nothing).then(|| -> Boxed<()> { Box::pin(finish_in_background(progress, repairs, op.clone())) })
}

/// Repairs nodes that lost the hold, and asks nodes that did not answer in time once more: the connections of the
/// thread are not read any more.
async fn finish_in_background(progress: RoundInProgress, repairs: Vec<Repair>, op: Op) {
    repairs.into_iter().for_each(Repair::spawn);
    let store = progress.store.clone();
    let until = store.limit(clock::now(), Time::MAX);
    let requests = progress.round.late_nodes().iter().map(|number| {
        let (store, op) = (store.clone(), op.clone());
        async move {
            let (begun, member) = (clock::now(), &store.members[number]);
            if let Err(failure) = member.prepare(&op, until).await {
                return (number, not_sent(begun, failure).answer);
            }
            if !store.is_renewed(&op) {
                return (number, not_sent(begun, hold_is_over()).answer);
            }
            (number, member.call(&op, until).await)
        }
    });
    let requests = requests.collect::<FuturesUnordered<_>>();
    read_late_replies(progress, requests).await;
}

fn hold_is_over() -> Failure {
    Failure::lasting(ErrorKind::NotHeld, "the hold is over")
}

/// The repairs that the round knows of by now.
pub(crate) fn repairs(progress: &mut RoundInProgress, now: Time) -> Vec<Repair> {
    let repairs = progress.round.repairs(&mut progress.store.quorum(), now, clock::wall_us());
    let store = &progress.store;
    let repair = |(claim, node, op)| Repair {
        store: store.clone(),
        claim,
        node,
        op,
        answer: not_sent(now, hold_is_over()).answer,
    };
    repairs.into_iter().map(repair).collect()
}

/// The repair of one node that lost a hold. The quorum learns of its end in any case.
pub(crate) struct Repair {
    store: Arc<RedlockState>,
    claim: Claim,
    node: usize,
    op: Op,
    answer: Answer,
}

impl Drop for Repair {
    fn drop(&mut self) {
        self.store.quorum().repair_ended(&self.claim, self.node, &self.answer);
    }
}

impl Repair {
    /// Sends it, in the background.
    pub(crate) fn spawn(self) {
        task::spawn(self.send());
    }

    async fn send(mut self) {
        let until = self.store.limit(clock::now(), Time::MAX);
        let store = self.store.clone();
        let member = &store.members[self.node];
        if member.prepare(&self.op, until).await.is_err() || !store.quorum().is_repair_wanted(&self.claim) {
            return;
        }
        tracing::debug!(server = member.name(), "gives a node the hold again that it had lost");
        // in case that this is dropped before the answer
        let failure = Failure::transient(ErrorKind::Unavailable, "nobody waits for the answer any more");
        self.answer.outcome = Outcome::Indeterminate(failure);
        self.answer = member.call(&self.op, until).await;
    }
}
