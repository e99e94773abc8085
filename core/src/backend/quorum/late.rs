//! A renewal goes on when its caller does: a node that is slower than the others answers a moment later, may have lost the
//! hold, and is given it again. Nothing of this is waited for, and nothing of it is sent for a hold that is over.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::{IN_QUORUM, Inner};
use crate::backend::Boxed;
use crate::backend::redis::node::not_sent;
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::quorum::Round;
use crate::machine::{Answer, Claim, Failure, Op, Outcome, Time};

/// A round, of which the quorum hears that it is over, however it ends: heard to the end, dropped by its caller, or with its
/// runtime.
pub(super) struct Underway {
    pub(super) store: Arc<Inner>,
    pub(super) round: Round,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.round.end(&mut self.store.quorum());
    }
}

/// The nodes that were, or may have been, sent a request.
#[derive(Default)]
pub(super) struct Sent(AtomicU16);

/// Beyond the bits of all nodes.
const CLOSED: u16 = 1 << 15;

impl Sent {
    /// Whether the request may leave for this node.
    pub(super) fn leaves(&self, node: usize) -> bool {
        self.0.fetch_or(1 << node, Ordering::AcqRel) & CLOSED == 0
    }

    /// From now on it leaves for nobody else. Whom did it leave for?
    pub(super) fn close(&self) -> impl Fn(usize) -> bool + use<> {
        let sent = self.0.fetch_or(CLOSED, Ordering::AcqRel);
        move |node| sent & (1 << node) != 0
    }
}

/// Listens to the answers that are still to come.
pub(super) async fn listen<F>(mut call: Underway, mut flights: FuturesUnordered<F>)
where
    F: Future<Output = (usize, Answer)>,
{
    while !call.round.late().is_empty()
        && let Some((node, answer)) = flights.next().await
    {
        let now = clock::now();
        let store = call.store.clone();
        call.round.answered(&mut store.quorum(), now, node, &answer);
        seeds(&mut call, now).into_iter().for_each(Seed::plant);
    }
}

/// What a renewal from a thread has left to be done, if anything.
pub(super) fn left_over(mut call: Underway, op: &Op) -> Option<Boxed<()>> {
    let seeds = seeds(&mut call, clock::now());
    let nothing = seeds.is_empty() && call.round.late().is_empty();
    (!nothing).then(|| -> Boxed<()> { Box::pin(catch_up(call, seeds, op.clone())) })
}

/// What was found lost is given again, and nodes that did not answer in time are asked once more: nobody reads the
/// connection on which they will answer.
async fn catch_up(call: Underway, seeds: Vec<Seed>, op: Op) {
    seeds.into_iter().for_each(Seed::plant);
    let store = call.store.clone();
    let until = store.limit(clock::now(), Time::MAX);
    let flights = call.round.late().iter().map(|number| {
        let (store, op) = (store.clone(), op.clone());
        async move {
            let (begun, node) = (clock::now(), &store.nodes[number]);
            if let Err(failure) = node.link.pipe(until).await {
                return (number, not_sent(begun, failure).answer);
            }
            if !store.is_renewed(&op) {
                return (number, not_sent(begun, over()).answer);
            }
            (number, node.call(&op, IN_QUORUM, until).await.answer)
        }
    });
    let flights = flights.collect::<FuturesUnordered<_>>();
    listen(call, flights).await;
}

fn over() -> Failure {
    Failure::lasting(ErrorKind::NotHeld, "the hold is over")
}

/// What is to be sent to nodes that lost a hold, as far as the round knows by now.
pub(super) fn seeds(call: &mut Underway, now: Time) -> Vec<Seed> {
    let seeds = call.round.seeds(&mut call.store.quorum(), now, clock::wall_us());
    let store = &call.store;
    let seed = |(claim, node, op)| Seed { store: store.clone(), claim, node, op, told: not_sent(now, over()).answer };
    seeds.into_iter().map(seed).collect()
}

/// A node that lost a hold is about to be given it again. However that ends, the quorum hears of it.
pub(super) struct Seed {
    store: Arc<Inner>,
    claim: Claim,
    node: usize,
    op: Op,
    told: Answer,
}

impl Drop for Seed {
    fn drop(&mut self) {
        self.store.quorum().seeded(&self.claim, self.node, &self.told);
    }
}

impl Seed {
    /// Sends it, in the background.
    pub(super) fn plant(self) {
        tokio::spawn(self.send());
    }

    async fn send(mut self) {
        let until = self.store.limit(clock::now(), Time::MAX);
        let store = self.store.clone();
        let node = &store.nodes[self.node];
        if node.link.pipe(until).await.is_err() || !store.quorum().still_seeds(&self.claim) {
            return;
        }
        tracing::debug!(server = %node.shared.name, "gives a node the hold again that it had lost");
        // for the case that this is dropped before the answer
        let failure = Failure::transient(ErrorKind::Unavailable, "nobody waits for the answer any more");
        self.told.outcome = Outcome::Indeterminate(failure);
        self.told = node.call(&self.op, IN_QUORUM, until).await.answer;
    }
}
