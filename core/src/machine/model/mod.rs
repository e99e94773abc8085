//! A lock server in memory, as this library's scripts see it: the same operations, the same replies, no I/O.
//!
//! It stands in for a real server in the simulator and the model checker, and it *is* the server of `memory://`. That
//! it answers like Redis and Valkey is checked against real ones by the conformance suite. Time is an argument: the
//! server's wall clock in microseconds. Keys expire in whole milliseconds of it, as on a real server.
//!
//! ```
//! use onelock::machine::{Claim, Kind, Op, Outcome, Reply, model::Model};
//! let mut server = Model::new();
//! let claim = Claim { kind: Kind::Mutex, key: (*b"orders:42").into(), token: "onelock1:01".into() };
//! let acquire = Op::Acquire { claim, ttl_ms: 30_000, fence_ttl_ms: Some(604_800_000), info: None };
//! let granted = server.apply(1_700_000_000_000_000, &acquire);
//! assert_eq!(granted.outcome, Outcome::Applied(Reply::Granted { fence: Some(1_700_000_000_000_000), again: false }));
//! ```

mod hash;
mod keyspace;
mod many;
mod permit_queue;
mod queue;
mod raw;
mod rw;
mod rw_keys;
mod semaphore;

use std::collections::BTreeSet;
use std::sync::Arc;

use hash::{decimal, fresh_hash, is_lock, is_number, is_owner, number, reowned, stored_fence};
pub use keyspace::Value;
use keyspace::{KeyEntry, Keyspace};
pub use queue::DirectGrant;
use queue::{fair_count, fair_holder, is_fair};
pub use raw::Live;
use rw_keys::is_shared;

use crate::machine::kind::{HoldLayout, Kind};
use crate::machine::naming::{FENCE_FIELD, INFO_FIELD, MODE_FIELD, RELEASED_VALUE, fence_key};
use crate::machine::op::{Claim, InspectedKey, Key, Op, Proposal, Renewal, Reply};
use crate::machine::outcome::Outcome;
use crate::machine::stored_token;
use crate::machine::token::{ClientTag, digest, is_ours};

/// How far past its own clock a server lets a proposed fencing token go: an hour, in microseconds.
const PROPOSAL_AHEAD_US: u64 = 3_600_000_000;
/// How much of a string `inspect` shows.
const HOLDER_MAX: usize = 4096;

/// The state of one server: its keys and their expiry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Model {
    keys: Keyspace,
    /// Which clients listen for their grants of which locks.
    listeners: BTreeSet<(Key, ClientTag)>,
}

/// What the server answers, and what it tells its subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReply {
    /// Always applied: a server that runs its scripts to the end. Whoever wraps the model adds the faults.
    pub outcome: Outcome<Reply>,
    /// The lock whose release was published, on the channel of that kind.
    pub announced: Option<(Kind, Key)>,
    /// The grants that waiting clients were told, each on the channel of its own.
    pub granted: Vec<DirectGrant>,
}

impl From<Reply> for ModelReply {
    fn from(reply: Reply) -> ModelReply {
        ModelReply { outcome: Outcome::Applied(reply), announced: None, granted: Vec::new() }
    }
}

/// How a claim stands to what is under its key.
enum Relation {
    Free,
    Mine,
    Others { ttl_left_ms: Option<u64>, announces: bool },
    Wrong(&'static str),
}

/// The moment a script runs, in the two units that matter.
#[derive(Clone, Copy)]
struct Moment {
    us: u64,
    ms: u64,
}

impl Moment {
    const fn at(server_time_us: u64) -> Moment {
        Moment { us: server_time_us, ms: server_time_us / 1000 }
    }
}

impl Model {
    /// A server without any key.
    pub fn new() -> Model {
        Model::default()
    }

    /// Carries out one operation at `server_time_us`, the server's wall clock in microseconds since 1970.
    ///
    /// Of [`Op::ReleaseMany`] it announces nothing: whoever has subscribers to tell carries out the releases that it stands
    /// for, one after the other at the same time.
    pub fn apply(&mut self, server_time_us: u64, op: &Op) -> ModelReply {
        let now = Moment::at(server_time_us);
        if let Some(reply) = self.apply_to_permits(now, op).or_else(|| self.apply_to_shared(now, op)) {
            return reply;
        }
        match op {
            Op::Acquire { claim, ttl_ms, fence_ttl_ms, info } => {
                // the server's clock is what a single server proposes to itself
                let fence = fence_ttl_ms.map(|ttl_ms| Proposal { base: now.us, ttl_ms });
                self.acquire(now, claim, *ttl_ms, fence, info.as_deref()).into()
            }
            Op::AcquireMany { claims, fenced } => self.acquire_many(now, claims, *fenced).into(),
            Op::ReleaseMany { claims } => self.release_many(now, claims).into(),
            Op::Enter { claim, ttl_ms, fence_ttl_ms, info, entry } => {
                self.enter(now, claim, (*ttl_ms, *fence_ttl_ms), info.as_deref(), entry)
            }
            Op::Attach { claim, from, ttl_ms, info } => self.attach(now, claim, from, *ttl_ms, info.as_deref()).into(),
            Op::Vote { claim, ttl_ms, fence, info } => {
                let ahead = now.us + PROPOSAL_AHEAD_US;
                let fence = fence.map(|fence| Proposal { base: fence.base.min(ahead), ..fence });
                let holder = self.holder(now, claim);
                match self.acquire(now, claim, *ttl_ms, fence, info.as_deref()) {
                    Reply::Denied { ttl_left_ms, announces } => Reply::Taken { ttl_left_ms, announces, holder }.into(),
                    reply => reply.into(),
                }
            }
            Op::WriteBack { claim, fence, fence_ttl_ms } => {
                Reply::Written(self.write_back(now, claim, *fence, *fence_ttl_ms)).into()
            }
            Op::Undo { claim, quiet, .. } => {
                let mut done = if *quiet { self.release_alone(now, claim) } else { self.release(now, claim) };
                done.announced = done.announced.filter(|_| !quiet);
                done
            }
            Op::Renew { holds } => {
                Reply::Renewed(holds.iter().map(|(claim, ttl_ms)| self.renew(now, claim, *ttl_ms)).collect()).into()
            }
            Op::SetCount { claim, count, ttl_ms } => self.set_count(now, claim, *count, *ttl_ms).into(),
            Op::Release { claim } => self.release(now, claim),
            Op::Retain { claim, rest_ms, .. } => self.retain(now, claim, *rest_ms),
            Op::Inspect { key } => Reply::Inspected(self.inspect(now, key)).into(),
            Op::InspectQueue { key } => Reply::Queue(self.look_at_queue(now, key)).into(),
            Op::ForceRelease { key, foreign } => self.force_release(now, key, *foreign),
            Op::Downgrade { .. }
            | Op::AcquirePermits { .. }
            | Op::InspectPermits { .. }
            | Op::SetPermits { .. }
            | Op::ForceReleasePermits { .. } => Reply::WrongKind { found: "none".to_owned() }.into(),
        }
    }

    fn relation(&mut self, now: Moment, claim: &Claim, fenced: bool) -> Relation {
        let marked = fenced && self.is_marked(now, &claim.key);
        let Some(entry) = self.keys.get(now.ms, &claim.key) else { return Relation::Free };
        if owns(entry, claim) {
            return Relation::Mine;
        }
        let ttl_left_ms = entry.ttl_left_ms(now.ms);
        match (&entry.value, claim.kind.row().layout) {
            (Value::Text(holder), HoldLayout::Text) if marked && is_number(holder) => {
                Relation::Wrong(Kind::Semaphore.as_str())
            }
            (Value::Text(holder), HoldLayout::Text) => Relation::Others { ttl_left_ms, announces: is_ours(holder) },
            (Value::Hash(fields), HoldLayout::Hash) if is_lock(fields) => {
                Relation::Others { ttl_left_ms, announces: true }
            }
            (other, _) => Relation::Wrong(other.type_name()),
        }
    }

    /// The entry of a hold, provided that it is still this claim's.
    fn held(&mut self, now: Moment, claim: &Claim) -> Option<&mut KeyEntry> {
        self.keys.get(now.ms, &claim.key).filter(|entry| owns(entry, claim))
    }

    fn acquire(
        &mut self,
        now: Moment,
        claim: &Claim,
        ttl_ms: u64,
        fence: Option<Proposal>,
        info: Option<&str>,
    ) -> Reply {
        match self.relation(now, claim, fence.is_some()) {
            Relation::Free => {
                let fence = fence.map(|fence| self.draw_fence(now, &claim.key, fence));
                let value = match claim.kind.row().layout {
                    HoldLayout::Text | HoldLayout::Permits => Value::Text(claim.token.clone().into()),
                    HoldLayout::Hash | HoldLayout::Shared => fresh_hash(claim, fence, info),
                };
                self.keys.put(now.ms, claim.key.clone(), value, Some(ttl_ms));
                Reply::Granted { fence, again: false }
            }
            Relation::Mine => {
                if let Some(entry) = self.keys.get(now.ms, &claim.key) {
                    entry.extend(now.ms, ttl_ms);
                }
                let fence = fence.map(|fence| self.fence_again(now, claim, fence));
                Reply::Granted { fence, again: true }
            }
            Relation::Others { ttl_left_ms, announces } => Reply::Denied { ttl_left_ms, announces },
            Relation::Wrong(found) => Reply::WrongKind { found: found.to_owned() },
        }
    }

    /// Exchanges the token of a hold that was handed over.
    fn attach(&mut self, now: Moment, claim: &Claim, from: &Arc<str>, ttl_ms: u64, info: Option<&str>) -> Reply {
        let again = self.held(now, claim).is_some();
        let handed = Claim { token: from.clone(), ..claim.clone() };
        let counter = self.counter(now, &claim.key);
        let Some(entry) = self.held(now, if again { claim } else { &handed }) else { return Reply::Gone };
        let (value, fence) = match &entry.value {
            Value::Hash(fields) if again || is_lock(fields) || is_fair(fields) => {
                let (fence, count) = (stored_fence(&entry.value), entry.value.field(from.as_bytes()));
                let mode = entry.value.field(MODE_FIELD.as_bytes()).filter(|_| is_fair(fields));
                (reowned(claim, count, mode, entry.value.field(FENCE_FIELD.as_bytes()), info), fence)
            }
            Value::Text(_) => (Value::Text(claim.token.clone().into()), counter),
            // an owner's field in what is no lock
            Value::Hash(_) | Value::Sorted(_) | Value::List => return Reply::Gone,
        };
        if !again {
            entry.value = value;
        }
        entry.extend(now.ms, ttl_ms);
        Reply::Granted { fence, again }
    }

    /// A new fencing token: above the one before and not behind what is proposed, so that a lost counter does no harm.
    fn draw_fence(&mut self, now: Moment, key: &Key, Proposal { base, ttl_ms }: Proposal) -> u64 {
        let fence = base.max(self.counter(now, key).unwrap_or(0).saturating_add(1));
        self.store_fence(now, key, fence, ttl_ms)
    }

    /// The token that the present hold has already; a new one if the server lost it.
    fn fence_again(&mut self, now: Moment, claim: &Claim, proposal: Proposal) -> u64 {
        match claim.kind.row().layout {
            // the counter is the store: it is read and written back, so that it lives as long as after a fresh grant
            HoldLayout::Text | HoldLayout::Permits => match self.counter(now, &claim.key) {
                Some(fence) => self.store_fence(now, &claim.key, fence, proposal.ttl_ms),
                None => self.draw_fence(now, &claim.key, proposal),
            },
            HoldLayout::Hash | HoldLayout::Shared => {
                let stored = self.keys.peek(now.ms, &claim.key).and_then(|entry| stored_fence(&entry.value));
                stored.unwrap_or_else(|| {
                    let fence = self.draw_fence(now, &claim.key, proposal);
                    self.note_fence(now, claim, fence);
                    fence
                })
            }
        }
    }

    /// The token of a reentrant hold stands in its hash too.
    fn note_fence(&mut self, now: Moment, claim: &Claim, fence: u64) {
        if claim.kind.row().layout == HoldLayout::Hash
            && let Some(entry) = self.keys.get(now.ms, &claim.key)
        {
            entry.value.set_field(FENCE_FIELD.as_bytes(), decimal(fence));
        }
    }

    /// Raises the counter to the token that other servers have, if the hold is still there.
    fn write_back(&mut self, now: Moment, claim: &Claim, fence: u64, fence_ttl_ms: u64) -> Option<u64> {
        self.held(now, claim)?;
        let fence = fence.max(self.counter(now, &claim.key).unwrap_or(0));
        self.store_fence(now, &claim.key, fence, fence_ttl_ms);
        self.note_fence(now, claim, fence);
        Some(fence)
    }

    /// Who stands under a claim's key, as a number; 0 for nobody.
    fn holder(&self, now: Moment, claim: &Claim) -> u64 {
        match self.keys.peek(now.ms, &claim.key).map(|entry| &entry.value) {
            Some(Value::Text(holder)) => digest(holder),
            Some(Value::Hash(fields)) => {
                // without an owner: released before its shortest time was over
                digest(fields.iter().find(|(field, _)| is_owner(field)).map_or(&b""[..], |(owner, _)| &**owner))
            }
            Some(Value::Sorted(_) | Value::List) | None => 0,
        }
    }

    fn store_fence(&mut self, now: Moment, key: &Key, fence: u64, fence_ttl_ms: u64) -> u64 {
        self.keys.put(now.ms, fence_key(key).into(), Value::Text(decimal(fence)), Some(fence_ttl_ms));
        fence
    }

    fn counter(&self, now: Moment, key: &[u8]) -> Option<u64> {
        match &self.keys.peek(now.ms, &fence_key(key))?.value {
            Value::Text(text) => stored_token(text),
            Value::Hash(_) | Value::Sorted(_) | Value::List => None,
        }
    }

    fn renew(&mut self, now: Moment, claim: &Claim, ttl_ms: u64) -> Renewal {
        if claim.kind == Kind::Semaphore {
            return self.renew_permits(now, claim, ttl_ms);
        }
        if claim.kind.is_shared() {
            return self.renew_shared(now, claim, ttl_ms);
        }
        match self.held(now, claim) {
            Some(entry) => {
                entry.extend(now.ms, ttl_ms);
                Renewal::Renewed
            }
            None => Renewal::NotMine,
        }
    }

    fn set_count(&mut self, now: Moment, claim: &Claim, count: u64, ttl_ms: u64) -> Reply {
        let field = claim.token.as_bytes();
        match self.keys.get(now.ms, &claim.key).filter(|entry| entry.value.field(field).is_some()) {
            Some(entry) => {
                entry.extend(now.ms, ttl_ms);
                entry.value.set_field(field, decimal(count));
                Reply::Counted(true)
            }
            None => Reply::Counted(false),
        }
    }

    fn release(&mut self, now: Moment, claim: &Claim) -> ModelReply {
        if claim.kind.row().queues {
            return self.leave(now, claim);
        }
        self.release_alone(now, claim)
    }

    /// Without the queue of a kind that has one.
    fn release_alone(&mut self, now: Moment, claim: &Claim) -> ModelReply {
        if self.held(now, claim).is_none() {
            return Reply::Released(false).into();
        }
        self.keys.remove(now.ms, &claim.key);
        ModelReply {
            outcome: Outcome::Applied(Reply::Released(true)),
            announced: Some((claim.kind, claim.key.clone())),
            granted: Vec::new(),
        }
    }

    fn retain(&mut self, now: Moment, claim: &Claim, rest_ms: u64) -> ModelReply {
        if claim.kind.row().queues {
            return self.retain_fair(now, claim, rest_ms).into();
        }
        if self.held(now, claim).is_none() {
            return Reply::Released(false).into();
        }
        let nobody = Key::from(RELEASED_VALUE.as_bytes());
        let value = match self.keys.peek(now.ms, &claim.key).map(|entry| &entry.value) {
            // an owner's field in what is no lock of this kind: the others stay
            Some(Value::Hash(fields)) => {
                let gone = [claim.token.as_bytes(), FENCE_FIELD.as_bytes(), INFO_FIELD.as_bytes()];
                let kept = fields.iter().filter(|(field, _)| !gone.contains(&&**field)).cloned();
                Value::Hash(kept.chain([(Key::from(INFO_FIELD.as_bytes()), nobody)]).collect())
            }
            _ => Value::Text(nobody),
        };
        self.keys.put(now.ms, claim.key.clone(), value, Some(rest_ms));
        ModelReply {
            outcome: Outcome::Applied(Reply::Released(true)),
            announced: Some((claim.kind, claim.key.clone())),
            granted: Vec::new(),
        }
    }

    fn force_release(&mut self, now: Moment, key: &Key, foreign: bool) -> ModelReply {
        let Some(entry) = self.keys.peek(now.ms, key) else { return Reply::Forced(false).into() };
        let kind = match &entry.value {
            Value::Text(holder) if foreign || entry.last_ms.is_some() || is_ours(holder) => Kind::Mutex,
            Value::Hash(fields) if is_lock(fields) => Kind::Reentrant,
            Value::Hash(fields) if is_fair(fields) => Kind::Fair,
            Value::Hash(fields) if is_shared(fields) => Kind::Read,
            other => return Reply::WrongKind { found: other.type_name().to_owned() }.into(),
        };
        self.keys.remove(now.ms, key);
        ModelReply {
            outcome: Outcome::Applied(Reply::Forced(true)),
            announced: (!kind.row().queues).then(|| (kind, key.clone())),
            granted: Vec::new(),
        }
    }

    fn inspect(&self, now: Moment, key: &Key) -> Option<InspectedKey> {
        let entry = self.keys.peek(now.ms, key)?;
        let (ttl_left_ms, nobody) = (entry.ttl_left_ms(now.ms), Vec::new());
        Some(match &entry.value {
            Value::Text(holder) if is_number(holder) && self.is_marked(now, key) => InspectedKey {
                kind: Ok(Kind::Semaphore),
                holder: nobody,
                count: 0,
                ttl_left_ms,
                fence: None,
                info: None,
            },
            Value::Text(holder) => InspectedKey {
                kind: Ok(Kind::Mutex),
                holder: holder[..holder.len().min(HOLDER_MAX)].to_vec(),
                count: 1,
                ttl_left_ms,
                // the counter outlives its holds: it says nothing about a foreign client's
                fence: if is_ours(holder) { self.counter(now, key) } else { None },
                info: None,
            },
            Value::Hash(fields) if is_fair(fields) => InspectedKey {
                kind: Ok(Kind::Fair),
                holder: fair_holder(fields).map_or(nobody, |(token, _)| token.to_vec()),
                count: fair_count(fields),
                ttl_left_ms,
                fence: stored_fence(&entry.value),
                info: entry.value.field(INFO_FIELD.as_bytes()).map(|info| info.to_vec()),
            },
            Value::Hash(fields) if is_shared(fields) => return self.inspect_shared(now, key, &entry.value),
            Value::Hash(fields) if is_lock(fields) => {
                let owner = fields.iter().find(|(field, _)| is_owner(field));
                InspectedKey {
                    kind: Ok(Kind::Reentrant),
                    holder: owner.map_or(nobody, |(field, _)| field.to_vec()),
                    count: owner.and_then(|(_, count)| number(count)).unwrap_or(0),
                    ttl_left_ms,
                    fence: stored_fence(&entry.value),
                    info: entry.value.field(INFO_FIELD.as_bytes()).map(|info| info.to_vec()),
                }
            }
            Value::Hash(_) | Value::Sorted(_) | Value::List => InspectedKey {
                kind: Err(entry.value.type_name().to_owned()),
                holder: nobody,
                count: 0,
                ttl_left_ms,
                fence: None,
                info: None,
            },
        })
    }
}

/// Whether an entry is the hold that a claim proves.
fn owns(entry: &KeyEntry, claim: &Claim) -> bool {
    match claim.kind.row().layout {
        HoldLayout::Text => matches!(&entry.value, Value::Text(holder) if **holder == *claim.token.as_bytes()),
        HoldLayout::Hash => entry.value.field(claim.token.as_bytes()).is_some(),
        HoldLayout::Permits | HoldLayout::Shared => false,
    }
}
