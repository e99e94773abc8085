//! Downgrading: a writer's lease becomes a reader's, in place, with no moment at which another writer could enter.

use std::sync::Arc;

use super::claim::info_now;
use super::engine::Engine;
use super::extend::limit;
use super::failures::{failed, not_held};
use super::hold::Hold;
use crate::error::invalid;
use crate::machine::{Answer, Failure, LossReason, Op, Outcome, Reply, naming};
use crate::store::Interrupt;
use crate::sys::{clock, lock};
use crate::{Error, ErrorKind};

/// Whether there is something to send. From here on the lease counts as a reader's.
///
/// # Errors
/// `InvalidArgument` for another kind of lock, and for one that its owner has entered more than once; `Busy` while its owner
/// enters or leaves.
pub(crate) fn begin(engine: &Engine, hold: &Hold, name: &[u8]) -> Result<bool, Error> {
    if !hold.kind().is_shared() {
        let detail = format!("only a write lock becomes a read lock, and this is a {}", hold.kind().as_str());
        return Err(invalid("downgrade", detail).on(name));
    }
    if hold.is_downgraded() {
        return Ok(false);
    }
    let Some(owner) = &hold.owner else {
        hold.begin_downgrade();
        return Ok(true);
    };
    // under the lock of the registry: who enters later finds a reader's
    let registry = lock(&engine.registry);
    match registry.settled_count(hold.key(), owner, hold.id) {
        Some(..=1) => {
            hold.begin_downgrade();
            Ok(true)
        }
        Some(count) => {
            let detail = format!("it was entered {count} times; leave the inner holds first");
            Err(invalid("downgrade", detail).on(name))
        }
        None => {
            let detail = "the same owner is in the middle of an acquire or a release; try again";
            Err(Error::new(ErrorKind::Busy, "downgrade", detail).on(name))
        }
    }
}

fn request(engine: &Engine, hold: &Hold) -> Op {
    let ttl_ms = hold.terms().server_ttl_ms(hold.bounded(hold.terms().ttl, clock::now()));
    hold.note_requested_ttl_ms(ttl_ms);
    let (claim, fence_ttl_ms) = (hold.claim.clone(), naming::fence_ttl_ms(ttl_ms));
    Op::Downgrade { claim, ttl_ms, fence_ttl_ms, info: info_now(engine) }
}

/// What the answer means: done, repeat, or an error.
fn judge(engine: &Arc<Engine>, hold: &Arc<Hold>, name: &[u8], answer: &Answer) -> Result<bool, Error> {
    match &answer.outcome {
        Outcome::Applied(Reply::Granted { fence, .. }) => {
            let ttl = hold.bounded(hold.terms().ttl, clock::now());
            if !hold.lease.confirm(clock::now(), hold.terms().deadline(answer.sent_at, ttl)) {
                return Err(not_held(hold, name));
            }
            hold.downgraded(*fence);
            Ok(true)
        }
        Outcome::Applied(_) => {
            if hold.lease.lose(LossReason::Taken) {
                engine.notify_lost(hold.id, LossReason::Taken);
            }
            Err(not_held(hold, name))
        }
        Outcome::NotApplied(failure) => Err(failed(engine, "downgrade", name, failure)),
        Outcome::Indeterminate(_) => Ok(false),
    }
}

fn timed_out(engine: &Engine, name: &[u8]) -> Error {
    let detail = "no reply in time; the lease counts as a read lease, and may still keep readers out";
    failed(engine, "downgrade", name, &Failure::transient(ErrorKind::Unavailable, detail))
}

/// Downgrades from an async caller.
pub(crate) async fn downgrade_async(engine: &Arc<Engine>, hold: &Arc<Hold>, name: &[u8]) -> Result<(), Error> {
    let until = limit(engine);
    for _ in 0..2 {
        let answer = engine.store.call(request(engine, hold), until).await;
        engine.observe_clock(&answer);
        if judge(engine, hold, name, &answer)? {
            return Ok(());
        }
    }
    Err(timed_out(engine, name))
}

/// Downgrades on the calling thread.
pub(crate) fn downgrade_blocking(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    name: &[u8],
    interrupt: &dyn Interrupt,
) -> Result<(), Error> {
    let until = limit(engine);
    for _ in 0..2 {
        let answer = engine.store.call_blocking(&request(engine, hold), until, interrupt);
        engine.observe_clock(&answer);
        if judge(engine, hold, name, &answer)? {
            return Ok(());
        }
        if interrupt.interrupted() {
            break;
        }
    }
    Err(timed_out(engine, name))
}

#[cfg(test)]
mod tests {
    use crate::machine::Enter;
    use crate::sys::lock;
    use crate::{Client, ErrorKind, Owner};

    #[tokio::test]
    async fn who_enters_meanwhile_never_writes_beside_readers() {
        let client = Client::connect("memory://").await.unwrap();
        let (owner, catalogue) = (Owner::new(), client.rw_lock("x"));
        let lease = catalogue.write().owner(&owner).acquire().await.unwrap();
        let engine = client.engine().unwrap();
        let Enter::Again { hold, count: 2 } = lock(&engine.registry).enter(&b"x".as_slice().into(), &owner, |_| true)
        else {
            panic!("it is not held");
        };
        assert_eq!(lease.downgrade().await.unwrap_err().kind(), ErrorKind::Busy);
        assert!(catalogue.read().try_acquire().await.unwrap().is_none());
        assert!(lock(&engine.registry).entered(hold.key(), &owner, hold.id, true));
        assert_eq!(lease.downgrade().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
