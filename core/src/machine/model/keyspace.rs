//! The keys of the modelled server: values, expiry in milliseconds, and purging.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::machine::op::Key;

/// Below this many keys a sweep is not worth its while.
const SWEEP_FLOOR: usize = 256;

/// What stands under a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A string: a mutex, a fencing counter in decimal, or anybody's text.
    Text(Key),
    /// A hash, its fields in the order they were first written: a reentrant lock, or anybody's hash.
    Hash(Vec<(Key, Key)>),
    /// A sorted set of whole numbers: the permits of a semaphore, the places of a queue, or anybody's.
    Sorted(BTreeMap<Key, u64>),
    /// A list, standing for every type that is never a lock. Its elements are of no interest.
    List,
}

impl Value {
    /// The type as a server's `TYPE` command names it.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::Hash(_) => "hash",
            Value::Sorted(_) => "zset",
            Value::List => "list",
        }
    }

    /// The value of one field of a hash.
    pub fn field(&self, name: &[u8]) -> Option<&Key> {
        match self {
            Value::Hash(fields) => fields.iter().find(|(field, _)| **field == *name).map(|(_, value)| value),
            Value::Text(_) | Value::Sorted(_) | Value::List => None,
        }
    }

    /// Writes one field of a hash; anything else is left as it is.
    pub(super) fn set_field(&mut self, name: &[u8], value: Key) {
        if let Value::Hash(fields) = self {
            match fields.iter_mut().find(|(field, _)| **field == *name) {
                Some((_, old)) => *old = value,
                None => fields.push((Key::from(name), value)),
            }
        }
    }
}

/// A value and when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyEntry {
    pub(super) value: Value,
    /// The last millisecond of the server's clock in which the key is still there; `None`: it never expires.
    pub(super) last_ms: Option<u64>,
}

impl KeyEntry {
    fn is_live(&self, now_ms: u64) -> bool {
        self.last_ms.is_none_or(|last| now_ms <= last)
    }

    /// What `PTTL` would say.
    pub(super) fn ttl_left_ms(&self, now_ms: u64) -> Option<u64> {
        self.last_ms.map(|last| last.saturating_sub(now_ms))
    }

    /// Makes the entry live at least `ttl_ms` from now, and never without end: what every script of ours does to a hold.
    pub(super) fn extend(&mut self, now_ms: u64, ttl_ms: u64) {
        let wanted = now_ms.saturating_add(ttl_ms);
        self.last_ms = Some(self.last_ms.map_or(wanted, |last| last.max(wanted)));
    }
}

/// All keys. Ordered, so that listing them repeats exactly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Keyspace {
    entries: BTreeMap<Key, KeyEntry>,
    sweep_at: usize,
}

impl Default for Keyspace {
    fn default() -> Keyspace {
        Keyspace { entries: BTreeMap::new(), sweep_at: SWEEP_FLOOR }
    }
}

impl Keyspace {
    /// The entry under a key; one that has expired is purged and not seen.
    pub(super) fn get(&mut self, now_ms: u64, key: &[u8]) -> Option<&mut KeyEntry> {
        if !self.entries.get(key)?.is_live(now_ms) {
            self.entries.remove(key);
            return None;
        }
        self.entries.get_mut(key)
    }

    /// The entry under a key, nothing touched.
    pub(super) fn peek(&self, now_ms: u64, key: &[u8]) -> Option<&KeyEntry> {
        self.entries.get(key).filter(|entry| entry.is_live(now_ms))
    }

    /// Writes a key, whatever stood there; `ttl_ms: None` lets it live for ever.
    pub(super) fn put(&mut self, now_ms: u64, key: Key, value: Value, ttl_ms: Option<u64>) {
        if self.entries.len() >= self.sweep_at {
            self.sweep(now_ms);
        }
        self.entries.insert(key, KeyEntry { value, last_ms: ttl_ms.map(|ttl| now_ms.saturating_add(ttl)) });
    }

    /// Deletes a key and says whether it was there.
    pub(super) fn remove(&mut self, now_ms: u64, key: &[u8]) -> bool {
        self.entries.remove(key).is_some_and(|entry| entry.is_live(now_ms))
    }

    /// Deletes every key.
    pub(super) fn clear(&mut self) {
        *self = Keyspace::default();
    }

    /// Every live key, in the order of their bytes.
    pub(super) fn live(&self, now_ms: u64) -> impl Iterator<Item = (&Key, &KeyEntry)> {
        self.entries.iter().filter(move |(_, entry)| entry.is_live(now_ms))
    }

    /// Every live key behind `after`, in the order of their bytes.
    pub(super) fn live_after(&self, now_ms: u64, after: Option<&[u8]>) -> impl Iterator<Item = Key> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.entries.range::<[u8], _>((from, Bound::Unbounded));
        behind.filter(move |(_, entry)| entry.is_live(now_ms)).map(|(key, _)| key.clone())
    }

    /// Keys that take memory, expired ones not yet purged included.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps only the live entries that `keep` wants.
    pub(super) fn retain(&mut self, now_ms: u64, mut keep: impl FnMut(&Key, &KeyEntry) -> bool) {
        self.entries.retain(|key, entry| entry.is_live(now_ms) && keep(key, entry));
        self.sweep_at = SWEEP_FLOOR.max(self.entries.len() * 2);
    }

    /// Purges what has expired. The next sweep comes when the number of keys has doubled, so that a write costs
    /// constant time on average.
    fn sweep(&mut self, now_ms: u64) {
        self.retain(now_ms, |_, _| true);
    }
}
