//! Who waits for a lock: how many, and by name those that have a place in its queue on the server.

use std::sync::Arc;

use futures_util::future::join;
use futures_util::stream::{self, StreamExt};

use crate::driver::engine::Engine;
use crate::inspect::Inspection;
use crate::list::LOOKS_AT_ONCE;
use crate::machine::{Key, Kind, Op, Origin, Outcome, OwnerInfo, QueuePlace, QueueSight, Reply, Time, token};

/// Somebody who waits for a lock, with a place in its queue on the server: for a fair lock, permits of a semaphore, or to
/// write. From [`Inspection::waiters`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Who it is, when it is an `inspectable` client of this library. Its `since_ms` is when it asked last.
    pub client: Option<OwnerInfo>,
    /// Since when it has its place: the server's wall clock, milliseconds since 1970.
    pub since_ms: u64,
}

impl Waiter {
    fn new(place: &QueuePlace) -> Waiter {
        Waiter { client: token::owner_info(&place.info), since_ms: place.number / 1000 }
    }
}

/// Who waits for a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhoWaits {
    count: Option<u64>,
    first: Vec<Waiter>,
}

impl WhoWaits {
    pub(crate) fn tell(self, inspection: Inspection) -> Inspection {
        // a fair lock of Redisson's looks as its reentrant one does, and has a queue that is not looked into
        let may_be_fair = inspection.origin == Origin::Redisson && inspection.kind == Kind::Reentrant;
        let waiting = self.count.filter(|count| *count > 0 || !may_be_fair);
        Inspection { waiting, waiters: self.first, ..inspection }
    }
}

/// Who waits for each of these. What the server doesn't tell is not known, and no reason to fail.
pub(crate) async fn waiting(engine: &Arc<Engine>, locks: Vec<(Kind, Key)>, until: Time) -> Vec<WhoWaits> {
    if locks.is_empty() {
        return Vec::new();
    }
    let asked: Vec<_> = locks.iter().cloned().map(|lock| queue(engine.clone(), lock, until)).collect();
    let queues = stream::iter(asked).buffered(LOOKS_AT_ONCE).collect::<Vec<_>>();
    let (listening, queues) = join(engine.store.listening(locks, until), queues).await;
    let one = |(listening, queue): (Option<u64>, Option<QueueSight>)| {
        let count = listening.zip(queue.as_ref()).map(|(listening, queue)| listening + queue.length);
        let first = queue.map(|queue| queue.places.iter().map(Waiter::new).collect()).unwrap_or_default();
        WhoWaits { count, first }
    };
    listening.into_iter().zip(queues).map(one).collect()
}

/// The queue of a lock: an empty one of a kind that has none, `None` where the server doesn't tell.
async fn queue(engine: Arc<Engine>, (kind, key): (Kind, Key), until: Time) -> Option<QueueSight> {
    if !kind.has_a_queue() && engine.store.capabilities().place_min.is_none() {
        return Some(QueueSight::default());
    }
    match engine.store.call(Op::InspectQueue { key }, until).await.outcome {
        Outcome::Applied(Reply::Queue(found)) => Some(found),
        _ => None,
    }
}
