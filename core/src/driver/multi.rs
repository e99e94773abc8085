//! Several holds that are one lease: the first loss of a member is the loss of the whole. And what an acquire of several
//! locks asks of its members before it hands them out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::engine::Engine;
use super::hold::{Hold, OnLost};
use super::lock_spec::LockSpec;
use crate::error::{Error, invalid};
use crate::machine::LossReason;
use crate::machine::multi::{MemberFault, MemberId, MemberLook, PlacedMember, SharedLoss, arrange};
use crate::sys::{clock, lock};

/// A member that is held.
pub(crate) type HeldMember = (Arc<Engine>, Arc<Hold>);

/// The order of these members; each with the store that its engine uses.
pub(crate) fn order(
    tried: &str,
    specs: &[&LockSpec],
    engines: Option<&[Arc<Engine>]>,
    same_client: impl Fn(usize, usize) -> bool,
) -> Result<Vec<PlacedMember>, Error> {
    let same_store = |one: usize, other: usize| {
        let stores = engines.and_then(|engines| Some((&engines.get(one)?.store, &engines.get(other)?.store)));
        // every unnamed store in memory has this address
        same_client(one, other)
            || stores.is_some_and(|(one, other)| one.address() == other.address() && one.address() != "memory://")
    };
    let members: Vec<MemberId> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| MemberId {
            key: spec.key.clone(),
            kind: spec.kind,
            address: engines.and_then(|engines| engines.get(index)).map_or("", |engine| engine.store.address()).into(),
            store: (0..index).find(|before| same_store(*before, index)).unwrap_or(index),
            count: spec.count,
            owner: spec.owner.clone(),
        })
        .collect();
    arrange(&members).map_err(|fault| match fault {
        MemberFault::Nothing => invalid(tried, "no lock was named; name at least one"),
        MemberFault::TooMany(count) => invalid(tried, format!("these are {count} locks; 32 at most go together")),
        MemberFault::TwoKinds(one, other) => {
            let kind = |index: usize| specs.get(index).map_or("", |spec| spec.kind.as_str());
            let detail =
                format!("it is named as {} and as {}, and a name belongs to one kind of lock", kind(one), kind(other));
            let name = specs.get(one).map_or(&[][..], |spec| &spec.name);
            invalid(tried, detail).on(name)
        }
        MemberFault::TwoWays(one, _) => {
            let detail = "it is named twice, with different owners or numbers of permits; name it once";
            invalid(tried, detail).on(specs.get(one).map_or(&[][..], |spec| &spec.name))
        }
    })
}

/// One look at a held member: what is left of it, and what has to be.
pub(crate) fn look(hold: &Hold, spec: &LockSpec) -> MemberLook {
    let terms = hold.terms();
    let needed = terms.min_validity.max(terms.drift(terms.ttl));
    // a re-entered hold keeps the terms of its first entry
    let fixed = is_ours(hold, spec) && spec.limits_hold();
    MemberLook { left: hold.lease.remaining(clock::now()), needed, fixed }
}

/// Whether this hold began with the acquire of the whole: then its terms are those of the acquire.
fn is_ours(hold: &Hold, spec: &LockSpec) -> bool {
    **hold.terms() == *spec.while_acquiring().terms
}

/// The time that all held members are asked to last now.
pub(crate) fn full_length(hold: &Hold) -> Duration {
    hold.terms().ttl
}

/// How often a hold is entered; 1 without an owner.
pub(crate) fn entries(engine: &Engine, hold: &Hold) -> u64 {
    hold.owner.as_ref().map_or(1, |owner| lock(&engine.registry).count(hold.key(), owner, hold.id))
}

/// All were held: what limits a hold counts from here on.
pub(crate) fn begin_limits(member: &HeldMember, spec: &LockSpec) {
    let (engine, hold) = member;
    if spec.limits_hold() && is_ours(hold, spec) {
        engine.set_terms(hold, spec.bounded().terms);
    }
}

/// Waits until one of these is lost.
pub(crate) async fn any_lost(holds: Vec<Arc<Hold>>) {
    if holds.is_empty() {
        return std::future::pending().await;
    }
    let lost: Vec<_> = holds.iter().map(|hold| Box::pin(hold.lost())).collect();
    futures_util::future::select_all(lost).await;
}

/// Whether one of these is not held any more.
pub(crate) fn is_any_lost(holds: &[Arc<Hold>]) -> bool {
    let now = clock::now();
    holds.iter().any(|hold| !hold.lease.is_held(now))
}

#[derive(Default)]
struct GroupListeners {
    told: bool,
    lost: Vec<OnLost>,
}

/// The members of one lease. The holds own it, so it goes with the last of them.
pub(crate) struct LeaseGroup {
    members: Vec<(Weak<Engine>, Weak<Hold>)>,
    loss: SharedLoss,
    listeners: Mutex<GroupListeners>,
    lost: Notify,
    /// Its members were released: what becomes of them does not concern the others.
    ended: AtomicBool,
}

impl LeaseGroup {
    /// Joins these holds.
    pub(crate) fn join(members: &[HeldMember]) -> Arc<LeaseGroup> {
        let group = Arc::new(LeaseGroup {
            members: members.iter().map(|(engine, hold)| (Arc::downgrade(engine), Arc::downgrade(hold))).collect(),
            loss: SharedLoss::default(),
            listeners: Mutex::default(),
            lost: Notify::new(),
            ended: AtomicBool::new(false),
        });
        for (engine, hold) in members {
            let (number, group, engine) = (group.number(), group.clone(), Arc::downgrade(engine));
            hold.on_lost_at_once(number, Box::new(move |reason, tell| group.member_lost(&engine, reason, tell)));
        }
        group
    }

    /// Tells it from other groups of the same holds.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// What becomes of this hold from now on is not told any more: it goes on without the whole.
    pub(crate) fn leave(&self, hold: &Hold) {
        hold.forget_at_once(self.number());
    }

    /// Why the whole was lost, if it was.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.loss.reason()
    }

    /// A member was seen lost; its callbacks come later.
    pub(crate) fn note(&self, reason: LossReason) {
        self.loss.note(reason);
    }

    /// Its members are released from here on.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// The first member is lost: so are the others, which are not renewed any more, and the holder is notified, once.
    fn member_lost(&self, engine: &Weak<Engine>, reason: LossReason, tell: bool) {
        let reason = self.loss.note(reason);
        let callbacks = {
            let mut listeners = lock(&self.listeners);
            if listeners.told {
                return;
            }
            listeners.told = true;
            std::mem::take(&mut listeners.lost)
        };
        self.lost.notify_waiters();
        if !self.ended.load(Ordering::Acquire) {
            self.lose_others(reason, tell);
        }
        let Some(engine) = engine.upgrade() else { return };
        for callback in callbacks {
            if tell {
                engine.run_callback(Box::new(move || callback(reason)));
            }
        }
    }

    fn lose_others(&self, reason: LossReason, tell: bool) {
        for (engine, hold) in &self.members {
            let (Some(engine), Some(hold)) = (engine.upgrade(), hold.upgrade()) else { continue };
            // an outer hold of the same owner goes on
            if engine.is_here() && entries(&engine, &hold) <= 1 && hold.lease.lose(reason) {
                engine.disarm(&hold);
                drop(hold.take_loss_callbacks(reason, tell));
            }
        }
    }

    /// Waits until the whole is lost; for ever if it never is.
    pub(crate) async fn lost(&self) -> LossReason {
        loop {
            let told = self.lost.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if let Some(reason) = self.told() {
                return reason;
            }
            told.await;
        }
    }

    fn told(&self) -> Option<LossReason> {
        if lock(&self.listeners).told { self.loss.reason() } else { None }
    }

    /// Adds a loss callback; returns it, with the reason, when the loss was notified before.
    pub(crate) fn on_lost(&self, callback: OnLost) -> Option<(OnLost, LossReason)> {
        let mut listeners = lock(&self.listeners);
        if listeners.told
            && let Some(reason) = self.loss.reason()
        {
            return Some((callback, reason));
        }
        listeners.lost.push(callback);
        None
    }
}
