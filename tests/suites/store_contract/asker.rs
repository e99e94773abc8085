//! Single operations on a store, and their replies without what is one store's own.

use std::time::Duration;

use onelock::machine::{Answer, Claim, Op, Outcome, Renewal, Reply, Time, TokenForm, quorum::NodeSet};
use onelock::store::{SharedStore, Uninterrupted};
use onelock::{ErrorKind, Kind};
use onelock_tests::face::block_on;

use crate::place::{Place, everywhere};

/// Far longer than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// How long a lock lives where the test doesn't care.
pub(crate) const TTL: u64 = 60_000;
const FENCE_TTL: u64 = 604_800_000;

/// How an operation is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Async,
    Blocking,
}

/// The kinds that are made of these operations.
pub(crate) const KINDS: [Kind; 2] = [Kind::Mutex, Kind::Reentrant];

/// What a reply says, whichever store it is from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// With its fencing token. Whether the token held it before is not compared: of several servers, another majority may
    /// answer.
    Granted(Option<u64>),
    Refused,
    Gone,
    WrongKind,
    Renewed(Vec<bool>),
    Counted(bool),
    Released(bool),
    Forced(bool),
    /// The count, and what is left of the time to live.
    Inspected(Option<(u64, Option<u64>)>),
}

pub(crate) struct Asker {
    pub(crate) store: SharedStore,
    pub(crate) way: Way,
}

/// Now, on the library's own clock.
pub(crate) fn now() -> Time {
    Time::from_nanos(onelock_tests::clock::boot_ns())
}

/// Runs a test on every store both ways, for every kind that it has; the name of the lock is another one each time.
pub(crate) fn every_way(test_name: &str, test: impl Fn(&Place, &Asker, Kind, &str) + Sync) {
    everywhere(test_name, |place| {
        for way in [Way::Async, Way::Blocking] {
            let asker = Asker { store: place.store(), way };
            for kind in KINDS.into_iter().filter(|kind| asker.store.capabilities().kinds.contains(kind)) {
                test(place, &asker, kind, &format!("{}{way:?} {}", place.test, kind.as_str()));
            }
            asker.store.close();
        }
    });
}

/// A claim with a token of the kind's form; `number` tells it from others.
pub(crate) fn claim(kind: Kind, name: &str, number: u32) -> Claim {
    let token = match kind.row().token {
        TokenForm::Owner => format!("ffffffff-ffff-4fff-bfff-ffffffffffff:{number}"),
        TokenForm::Value => format!("onelock1:{number:032x}"),
        TokenForm::Permits => format!("{number:028x}:1"),
    };
    Claim { kind, key: name.as_bytes().into(), token: token.into() }
}

pub(crate) fn acquire(claim: &Claim, ttl_ms: u64) -> Op {
    Op::Acquire { claim: claim.clone(), ttl_ms, fence_ttl_ms: Some(FENCE_TTL), info: None }
}

pub(crate) fn release(claim: &Claim) -> Op {
    Op::Release { claim: claim.clone() }
}

impl Asker {
    pub(crate) fn answer(&self, op: &Op) -> Answer {
        self.answer_until(op, now() + LONG)
    }

    pub(crate) fn answer_until(&self, op: &Op, until: Time) -> Answer {
        match self.way {
            Way::Async => block_on(async { self.store.call(op.clone(), until).await }),
            Way::Blocking => self.store.call_blocking(op, until, &Uninterrupted),
        }
    }

    /// What the reply of a request says that must be applied.
    pub(crate) fn ask(&self, op: &Op) -> Seen {
        let answer = self.answer(op);
        match answer.outcome {
            Outcome::Applied(reply) => seen(reply),
            Outcome::NotApplied(failure) if failure.kind == ErrorKind::WrongKind => Seen::WrongKind,
            other => panic!("{} {:?} {}: {other:?}", self.store.address(), self.way, op.name()),
        }
    }

    /// Takes a free lock. The fencing token is there if the store has any.
    pub(crate) fn take(&self, claim: &Claim, ttl_ms: u64) -> Option<u64> {
        match self.ask(&acquire(claim, ttl_ms)) {
            Seen::Granted(fence) => {
                assert_eq!(fence.is_some(), self.store.capabilities().fencing, "{fence:?}");
                fence
            }
            other => panic!("{}: {other:?}", self.store.address()),
        }
    }

    /// Tries to take a lock that somebody else may have, and takes the claim back, part of which may have been granted.
    pub(crate) fn try_to_take(&self, claim: &Claim) -> Seen {
        let seen = self.ask(&acquire(claim, TTL));
        let undo = Op::Undo { claim: claim.clone(), nodes: NodeSet::ALL, quiet: true };
        let undone = self.ask(&undo);
        assert!(matches!(undone, Seen::Released(_)), "{undone:?}");
        seen
    }

    /// Whether somebody else has it.
    pub(crate) fn is_refused(&self, claim: &Claim) -> bool {
        self.try_to_take(claim) == Seen::Refused
    }
}

fn seen(reply: Reply) -> Seen {
    match reply {
        Reply::Granted { fence, .. } => Seen::Granted(fence),
        Reply::Denied { .. } | Reply::Split { failure: None, .. } => Seen::Refused,
        Reply::Gone => Seen::Gone,
        Reply::WrongKind { .. } => Seen::WrongKind,
        Reply::Split { failure: Some(failure), .. } if failure.kind == ErrorKind::WrongKind => Seen::WrongKind,
        Reply::Renewed(all) => Seen::Renewed(all.into_iter().map(|verdict| verdict == Renewal::Renewed).collect()),
        Reply::Counted(found) => Seen::Counted(found),
        Reply::Released(found) | Reply::PartlyReleased { found, .. } => Seen::Released(found),
        Reply::ReleasedToWaiters => Seen::Released(true),
        Reply::Forced(found) => Seen::Forced(found),
        Reply::Inspected(found) => Seen::Inspected(found.map(|key| (key.count, key.ttl_left_ms))),
        other => panic!("{other:?}"),
    }
}
