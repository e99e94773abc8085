//! A semaphore on the modelled server: the number of free permits, and the permits that are held with their ends.

use std::collections::BTreeMap;

use super::queue::DirectGrant;
use super::{Model, ModelReply, Moment, Value, decimal};
use crate::machine::kind::Kind;
use crate::machine::naming::{FENCE_TTL_MIN_MS, SEMAPHORE_MARK, fence_key, fence_ttl_ms, permits_key};
use crate::machine::op::{Claim, Key, Op, PermitCount, Renewal, Reply};
use crate::machine::outcome::Outcome;
use crate::machine::token::{PREFIX_BYTES, parse_permits, permit_id};

/// An end from here on means never: Redisson writes it for a permit that is taken without a lease.
const NEVER_MS: u64 = 922_337_203_685_477;
/// The permits of a hold that was released before its shortest time was over have numbers from here on: no hold has them.
const RETAINED: u16 = 1 << 15;

/// A semaphore, read from its keys.
#[derive(Clone)]
pub(super) struct Semaphore {
    /// The number of free permits; `None` when it was lost, or never was.
    pub(super) free: Option<i64>,
    pub(super) held: BTreeMap<Key, u64>,
}

impl Semaphore {
    /// How many there are in all.
    pub(super) fn total(&self) -> i64 {
        self.free.unwrap_or(0) + signed_len(self.held.len())
    }

    fn release(&mut self, ids: &[Key]) -> usize {
        let gone = ids.iter().filter(|id| self.held.remove(*id).is_some()).count();
        self.free = self.free.map(|free| free + signed_len(gone));
        gone
    }

    pub(super) fn sweep(&mut self, now: Moment) {
        let ended: Vec<Key> = self.held.iter().filter(|(_, end)| **end <= now.ms).map(|(id, _)| id.clone()).collect();
        self.release(&ended);
    }

    /// How many of these have not ended.
    pub(super) fn count(&self, now: Moment, ids: &[Key]) -> usize {
        ids.iter().filter(|id| self.held.get(*id).is_some_and(|end| *end > now.ms)).count()
    }

    pub(super) fn raise(&mut self, ids: &[Key], end: u64) {
        for id in ids {
            if let Some(old) = self.held.get_mut(id) {
                *old = (*old).max(end);
            }
        }
    }

    /// In how many ms `more` of them have ended.
    pub(super) fn left_until(&self, now: Moment, more: i64) -> Option<u64> {
        let mut ends: Vec<u64> = self.held.values().copied().collect();
        ends.sort_unstable();
        let end = *ends.get(usize::try_from(more - 1).ok()?)?;
        (end < NEVER_MS).then(|| end.saturating_sub(now.ms))
    }

    fn look(&self, now: Moment) -> Option<PermitCount> {
        self.free?;
        let held = self.held.values().filter(|end| **end > now.ms).count();
        let first = self.held.len() - held + 1;
        let ttl_left_ms = if held > 0 { self.left_until(now, signed_len(first)) } else { None };
        Some(PermitCount { total: self.total().max(0) as u64, held: held as u64, ttl_left_ms })
    }
}

/// The end of what begins now: rounded up, while the present is rounded down.
pub(super) fn end(now: Moment, ttl_ms: u64) -> u64 {
    now.us.div_ceil(1000) + ttl_ms
}

/// Whether a key that should live for `keep_ms` has less than three quarters of it left.
fn is_short(left_ms: u64, keep_ms: u64) -> bool {
    left_ms.saturating_mul(4) < keep_ms.saturating_mul(3)
}

/// The ids of a claim's permits; none for a token that is not one of permits.
pub(super) fn ids(token: &str, from: u16) -> Vec<Key> {
    let (prefix, count) = parse_permits(token).unwrap_or(([0; PREFIX_BYTES], 0));
    (from..from + count).map(|index| Key::from(permit_id(prefix, index).as_slice())).collect()
}

/// The number of free permits in its text; only as a server counts on it.
fn free_permits(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok().filter(|text| text.len() <= 10)?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

impl Model {
    /// Carries out an operation on permits; `None` if it is one on another kind of lock.
    pub(super) fn apply_to_permits(&mut self, now: Moment, op: &Op) -> Option<ModelReply> {
        Some(match op {
            Op::AcquirePermits { claim, total, ttl_ms, info, entry } => {
                self.acquire_permits(now, claim, (*total, *ttl_ms), info.as_deref(), entry)
            }
            Op::InspectPermits { key } => match self.semaphore(now, key) {
                Ok(semaphore) => Reply::Permits(semaphore.look(now)).into(),
                Err(found) => Reply::WrongKind { found }.into(),
            },
            Op::SetPermits { key, total } => self.set_permits(now, key, *total),
            Op::ForceReleasePermits { key } => self.force_permits(now, key),
            Op::Attach { claim, from, ttl_ms, .. } if claim.kind == Kind::Semaphore => {
                self.attach_permits(now, claim, from, *ttl_ms).into()
            }
            Op::Release { claim } | Op::Undo { claim, quiet: false, .. } if claim.kind == Kind::Semaphore => {
                self.release_permits(now, claim, false)
            }
            Op::Undo { claim, .. } if claim.kind == Kind::Semaphore => {
                ModelReply { announced: None, ..self.release_permits(now, claim, true) }
            }
            Op::Retain { claim, rest_ms, .. } if claim.kind == Kind::Semaphore => {
                self.retain_permits(now, claim, *rest_ms)
            }
            _ => return None,
        })
    }

    /// Whether the name is marked as a semaphore's, and a number stands there.
    pub(super) fn is_marked(&self, now: Moment, key: &[u8]) -> bool {
        self.keys
            .peek(now.ms, &fence_key(key))
            .is_some_and(|entry| matches!(&entry.value, Value::Text(text) if **text == *SEMAPHORE_MARK.as_bytes()))
    }

    /// Reads the semaphore under a name; the type of what else stands there.
    pub(super) fn semaphore(&self, now: Moment, key: &[u8]) -> Result<Semaphore, String> {
        let free = match self.keys.peek(now.ms, key).map(|entry| &entry.value) {
            None => None,
            Some(Value::Text(text)) => Some(free_permits(text).ok_or("string")?),
            Some(other) => return Err(other.type_name().to_owned()),
        };
        Ok(Semaphore { free, held: self.held_permits(now, key)? })
    }

    fn held_permits(&self, now: Moment, key: &[u8]) -> Result<BTreeMap<Key, u64>, String> {
        match self.keys.peek(now.ms, &permits_key(key)).map(|entry| &entry.value) {
            None => Ok(BTreeMap::new()),
            Some(Value::Sorted(held)) => Ok(held.clone()),
            Some(other) => Err(other.type_name().to_owned()),
        }
    }

    /// Writes it back. Times to live stay what they are, and a new key has none.
    pub(super) fn store(&mut self, now: Moment, key: &[u8], semaphore: Semaphore) {
        if let Some(free) = semaphore.free {
            self.rewrite(now, key, Value::Text(signed(free)));
        }
        let permits = permits_key(key);
        if semaphore.held.is_empty() {
            self.keys.remove(now.ms, &permits);
        } else {
            self.rewrite(now, &permits, Value::Sorted(semaphore.held));
        }
    }

    fn rewrite(&mut self, now: Moment, key: &[u8], value: Value) {
        match self.keys.get(now.ms, key) {
            Some(entry) => entry.value = value,
            None => self.keys.put(now.ms, key.into(), value, None),
        }
    }

    fn mark(&mut self, now: Moment, key: &[u8], keep_ms: u64) {
        let mark = Value::Text(Key::from(SEMAPHORE_MARK.as_bytes()));
        self.keys.put(now.ms, fence_key(key).into(), mark, Some(keep_ms));
    }

    /// What is left of a key that has less than three quarters of `keep_ms` becomes `keep_ms`. Says whether it did.
    fn keep(&mut self, now: Moment, key: &[u8], keep_ms: u64, even_for_ever: bool) -> bool {
        let Some(entry) = self.keys.get(now.ms, key) else { return false };
        let short = entry.ttl_left_ms(now.ms).map_or(even_for_ever, |left| is_short(left, keep_ms));
        if short {
            entry.last_ms = Some(now.ms + keep_ms);
        }
        short
    }

    /// The keys outlive every end. A semaphore without time to live keeps none.
    pub(super) fn outlive(&mut self, now: Moment, key: &[u8], keep_ms: u64, again: bool) {
        let renewed = self.keep(now, key, keep_ms, false);
        if self.keys.peek(now.ms, key).is_some_and(|entry| entry.last_ms.is_some()) {
            self.keep(now, &permits_key(key), keep_ms, true);
        }
        if renewed || !again {
            self.mark(now, key, keep_ms);
        }
    }

    /// Releases permits, or gives up a place. `alone`: the queue is left as it is.
    fn release_permits(&mut self, now: Moment, claim: &Claim, alone: bool) -> ModelReply {
        let Ok(mut semaphore) = self.semaphore(now, &claim.key) else { return Reply::Released(false).into() };
        let all = ids(&claim.token, 0);
        let gone = semaphore.release(&all);
        let waited = gone == 0 && !alone && self.forget(now, &claim.key, claim.token.as_bytes());
        if gone == 0 && !waited {
            return Reply::Released(false).into();
        }
        semaphore.sweep(now);
        self.store(now, &claim.key, semaphore);
        let granted = if alone { Vec::new() } else { self.pass_on_permits(now, &claim.key) };
        self.announced(now, Reply::Released(gone == all.len()), &claim.key, granted)
    }

    /// A reply that announces free permits, if there are any.
    fn announced(&self, now: Moment, reply: Reply, key: &Key, granted: Vec<DirectGrant>) -> ModelReply {
        let tells = self.semaphore(now, key).is_ok_and(|semaphore| semaphore.free.is_some_and(|free| free > 0));
        let announced = tells.then(|| (Kind::Semaphore, key.clone()));
        ModelReply { outcome: Outcome::Applied(reply), announced, granted }
    }

    fn retain_permits(&mut self, now: Moment, claim: &Claim, rest_ms: u64) -> ModelReply {
        let Ok(mut semaphore) = self.semaphore(now, &claim.key) else { return Reply::Released(false).into() };
        let all = ids(&claim.token, 0);
        if semaphore.count(now, &all) < all.len() {
            let some = semaphore.release(&all) > 0;
            self.store(now, &claim.key, semaphore);
            let granted = if some { self.pass_on_permits(now, &claim.key) } else { Vec::new() };
            return ModelReply { granted, ..Reply::Released(false).into() };
        }
        for id in &all {
            semaphore.held.remove(id);
        }
        semaphore.held.extend(ids(&claim.token, RETAINED).into_iter().map(|id| (id, end(now, rest_ms))));
        self.store(now, &claim.key, semaphore);
        let left = self.keys.peek(now.ms, &claim.key).and_then(|entry| entry.last_ms);
        if let (Some(left), Some(permits)) = (left, self.keys.get(now.ms, &permits_key(&claim.key))) {
            permits.last_ms = Some(left);
        }
        announced(Reply::Released(true), &claim.key)
    }

    fn attach_permits(&mut self, now: Moment, claim: &Claim, from: &str, ttl_ms: u64) -> Reply {
        let Ok(mut semaphore) = self.semaphore(now, &claim.key) else { return Reply::Gone };
        let (old, new) = (ids(from, 0), ids(&claim.token, 0));
        let again = semaphore.count(now, &new) == new.len();
        if again {
            semaphore.raise(&new, end(now, ttl_ms));
        } else {
            if semaphore.free.is_none() || old.len() != new.len() || semaphore.count(now, &old) < old.len() {
                return Reply::Gone;
            }
            for (old, new) in old.iter().zip(new) {
                let present = semaphore.held.remove(old).unwrap_or(0);
                semaphore.held.insert(new, present.max(end(now, ttl_ms)));
            }
        }
        self.store(now, &claim.key, semaphore);
        self.outlive(now, &claim.key, fence_ttl_ms(ttl_ms), true);
        Reply::Granted { fence: None, again }
    }

    /// Permits of one hold live and end together: where one is gone, none is renewed. The others stay until their end, since
    /// the holder counts on them until it has the answer.
    pub(super) fn renew_permits(&mut self, now: Moment, claim: &Claim, ttl_ms: u64) -> Renewal {
        let Ok(held) = self.held_permits(now, &claim.key) else { return Renewal::NotMine };
        let found = self.keys.peek(now.ms, &claim.key);
        let free = match found.map(|entry| &entry.value) {
            // lost: whoever holds permits keeps them, and the next acquire sets it anew
            None => None,
            Some(Value::Text(text)) => match free_permits(text) {
                Some(free) => Some(free),
                None => return Renewal::NotMine,
            },
            Some(_) => return Renewal::NotMine,
        };
        let all = ids(&claim.token, 0);
        let mut semaphore = Semaphore { free, held };
        if semaphore.count(now, &all) < all.len() {
            return Renewal::NotMine;
        }
        let permits = permits_key(&claim.key);
        let timed = if free.is_some() { &*claim.key } else { &*permits };
        let left = self.keys.peek(now.ms, timed).and_then(|entry| entry.ttl_left_ms(now.ms));
        semaphore.raise(&all, end(now, ttl_ms));
        self.store(now, &claim.key, semaphore);
        if let Some(left) = left {
            let keep_ms = fence_ttl_ms(ttl_ms);
            let left = if is_short(left, keep_ms) { keep_ms } else { left };
            for key in [&*claim.key, &permits] {
                if let Some(entry) = self.keys.get(now.ms, key) {
                    entry.last_ms = Some(now.ms + left);
                }
            }
        }
        Renewal::Renewed
    }

    fn set_permits(&mut self, now: Moment, key: &Key, total: u32) -> ModelReply {
        let mut semaphore = match self.semaphore(now, key) {
            Ok(semaphore) => semaphore,
            Err(found) => return Reply::WrongKind { found }.into(),
        };
        semaphore.sweep(now);
        if semaphore.free.is_none() {
            self.keys.put(now.ms, key.clone(), Value::Text(decimal(0)), Some(FENCE_TTL_MIN_MS));
        }
        semaphore.free = Some(i64::from(total) - signed_len(semaphore.held.len()));
        self.store(now, key, semaphore);
        self.mark(now, key, FENCE_TTL_MIN_MS);
        let granted = self.pass_on_permits(now, key);
        let count = self.semaphore(now, key).ok().and_then(|semaphore| semaphore.look(now));
        self.announced(now, Reply::Permits(count), key, granted)
    }

    fn force_permits(&mut self, now: Moment, key: &Key) -> ModelReply {
        let mut semaphore = match self.semaphore(now, key) {
            Ok(semaphore) => semaphore,
            Err(found) => return Reply::WrongKind { found }.into(),
        };
        let marked = self.is_marked(now, key);
        if semaphore.free.is_some() && semaphore.held.is_empty() && !marked {
            return Reply::WrongKind { found: "string".to_owned() }.into();
        }
        // without a count the mark tells that these are permits
        if semaphore.held.is_empty() || semaphore.free.is_none() && !marked {
            return Reply::Forced(false).into();
        }
        let all: Vec<Key> = semaphore.held.keys().cloned().collect();
        semaphore.release(&all);
        self.store(now, key, semaphore);
        let granted = self.pass_on_permits(now, key);
        ModelReply { granted, ..announced(Reply::Forced(true), key) }
    }
}

fn announced(reply: Reply, key: &Key) -> ModelReply {
    ModelReply {
        outcome: Outcome::Applied(reply),
        announced: Some((Kind::Semaphore, key.clone())),
        granted: Vec::new(),
    }
}

/// A number of permits, which are few.
pub(super) fn signed_len(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn signed(number: i64) -> Key {
    number.to_string().into_bytes().into()
}
