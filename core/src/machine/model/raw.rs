//! What other clients and operators do to a server, and what tests look at. None of it announces anything.

use std::collections::BTreeSet;

use super::queue::{fair_count, fair_holder, is_fair};
use super::{Model, Moment, Value, is_lock, is_owner, number};
use crate::machine::kind::Kind;
use crate::machine::naming::{FENCE_WORD, INFO_FIELD, fence_key};
use crate::machine::op::{InspectedKey, Key};

/// One key of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// The key.
    pub key: Key,
    /// What stands there.
    pub value: Value,
    /// Milliseconds left, `None` for a key without time to live (no operation of ours leaves one).
    pub ttl_left_ms: Option<u64>,
}

impl Model {
    /// Writes a key as some other client would, over whatever stands there; `ttl_ms: None` lets it live for ever.
    ///
    /// A string stands for redis-py and its like, a hash `{owner: count}` for Redisson, a list for anything else.
    pub fn set_foreign(&mut self, server_time_us: u64, key: &[u8], value: Value, ttl_ms: Option<u64>) {
        self.keys.put(Moment::at(server_time_us).ms, key.into(), value, ttl_ms);
    }

    /// `DEL` of any key, lock or counter. Says whether it was there.
    pub fn del(&mut self, server_time_us: u64, key: &[u8]) -> bool {
        self.keys.remove(Moment::at(server_time_us).ms, key)
    }

    /// `FLUSHALL`: locks and counters are gone.
    pub fn flush(&mut self) {
        self.keys.clear();
    }

    /// The server ran out of memory and evicted a lock; its counter stays. Says whether it was there.
    pub fn evict(&mut self, server_time_us: u64, key: &[u8]) -> bool {
        self.del(server_time_us, key)
    }

    /// The server ran out of memory and evicted the counter of a lock; the lock stays. Says whether it was there.
    pub fn evict_fence(&mut self, server_time_us: u64, key: &[u8]) -> bool {
        self.del(server_time_us, &fence_key(key))
    }

    /// The server process died and was started again, with its data or without. Expiry went on meanwhile.
    pub fn crash(&mut self, keep_data: bool) {
        if !keep_data {
            self.keys.clear();
        }
    }

    /// Every live key in the order of the bytes, counters included.
    pub fn live(&self, server_time_us: u64) -> Vec<Live> {
        let now_ms = Moment::at(server_time_us).ms;
        self.keys
            .live(now_ms)
            .map(|(key, entry)| Live {
                key: key.clone(),
                value: entry.value.clone(),
                ttl_left_ms: entry.ttl_left_ms(now_ms),
            })
            .collect()
    }

    /// The first `count` live keys behind `after` in the order of the bytes, and whether there are more.
    pub fn keys_after(&self, server_time_us: u64, after: Option<&[u8]>, count: usize) -> (Vec<Key>, bool) {
        let mut keys: Vec<Key> = self.keys.live_after(Moment::at(server_time_us).ms, after).take(count + 1).collect();
        let more = keys.len() > count;
        keys.truncate(count);
        (keys, more)
    }

    /// How many keys take memory, expired ones that were not purged yet included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key takes memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The present value of a lock's fencing counter, held or not.
    pub fn fence_of(&self, server_time_us: u64, key: &[u8]) -> Option<u64> {
        self.counter(Moment::at(server_time_us), key)
    }

    /// Who holds a key: the string, or the first owner field of the hash; of one that was released before its shortest time
    /// was over, the text that says so.
    pub fn holder_of(&self, server_time_us: u64, key: &[u8]) -> Option<(Kind, Key)> {
        if let Some(found) = self.shared_of(server_time_us, key) {
            return Some((found.kind.ok()?, Key::from(&found.holder[..])));
        }
        let value = &self.keys.peek(Moment::at(server_time_us).ms, key)?.value;
        match value {
            Value::Text(holder) => Some((Kind::Mutex, holder.clone())),
            Value::Hash(fields) if is_fair(fields) => {
                let holder = fair_holder(fields).map(|(token, _)| token);
                Some((Kind::Fair, holder.or_else(|| value.field(INFO_FIELD.as_bytes()))?.clone()))
            }
            Value::Hash(fields) if is_lock(fields) => {
                let owner = fields.iter().find(|(field, _)| is_owner(field)).map(|(field, _)| field);
                Some((Kind::Reentrant, owner.or_else(|| value.field(INFO_FIELD.as_bytes()))?.clone()))
            }
            Value::Hash(_) | Value::Sorted(_) | Value::List => None,
        }
    }

    /// The hold count that stands under a key: 1 for a held mutex, `None` when nobody holds it.
    pub fn count_of(&self, server_time_us: u64, key: &[u8]) -> Option<u64> {
        if let Some(found) = self.shared_of(server_time_us, key) {
            return Some(found.count).filter(|count| *count > 0);
        }
        let value = &self.keys.peek(Moment::at(server_time_us).ms, key)?.value;
        match value {
            Value::Text(_) => Some(1),
            Value::Hash(fields) if is_fair(fields) => Some(fair_count(fields)).filter(|count| *count > 0),
            Value::Hash(fields) if is_lock(fields) => number(&fields.iter().find(|(field, _)| is_owner(field))?.1),
            Value::Hash(_) | Value::Sorted(_) | Value::List => None,
        }
    }

    /// What stands there, if it is a read/write lock.
    fn shared_of(&self, server_time_us: u64, key: &[u8]) -> Option<InspectedKey> {
        let now = Moment::at(server_time_us);
        self.inspect_shared(now, &key.into(), &self.keys.peek(now.ms, key)?.value)
    }

    /// Purges what has expired, and the fencing counters that nobody could miss: those of free locks that are behind
    /// the clock, since the next token comes from the clock anyway. Only for a server whose clock never goes back. (Noticed by one thing
    /// only: `inspect` of a hold *without* fencing, which shows the counter of an earlier hold as long as there is one.)
    pub fn compact(&mut self, server_time_us: u64) {
        let now = Moment::at(server_time_us);
        let needed: BTreeSet<Vec<u8>> = self.keys.live(now.ms).map(|(key, _)| fence_key(key)).collect();
        self.keys.retain(now.ms, |key, entry| {
            let counter = match &entry.value {
                Value::Text(text) if key.starts_with(FENCE_WORD.as_bytes()) => number(text),
                _ => None,
            };
            counter.is_none_or(|counter| counter >= now.us || needed.contains(&**key))
        });
    }
}
