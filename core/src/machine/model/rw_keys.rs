//! What stands on the modelled server under the name of a read/write lock, and changing it field by field.

use std::collections::BTreeMap;

use super::queue::IDLE_MS;
use super::{Model, Moment, Value, decimal, number};
use crate::machine::kind::Kind;
use crate::machine::naming::{
    FENCE_FIELD, INFO_FIELD, MODE_FIELD, RELEASED_VALUE, queue_key, readers_key, timeout_key, waiters_key,
};
use crate::machine::op::{Claim, InspectedKey, Key};
use crate::machine::stored_token;
use crate::machine::token;

/// How long the notes are kept when nobody has a place, in milliseconds.
const NOTES_MS: u64 = 2_000;
pub(super) const READ: &[u8] = b"read";
pub(super) const WRITE: &[u8] = b"write";

/// Whom a hash lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

/// What stands under the key of a claim.
#[derive(Default)]
pub(super) struct Standing {
    pub(super) mode: Option<Mode>,
    /// The type of what is no read/write lock.
    pub(super) foreign: Option<&'static str>,
    pub(super) fence: Option<u64>,
    /// Whether the claim has a reader's field, however dead.
    pub(super) has_field: bool,
    /// The end of its read hold.
    pub(super) reading: Option<u64>,
    pub(super) writing: bool,
    /// It reads no more, but stays for a while.
    pub(super) retained: bool,
    /// It was released by a writer, and stays for a while.
    pub(super) kept: bool,
}

impl Standing {
    pub(super) fn is_free(&self) -> bool {
        self.mode.is_none() && self.foreign.is_none()
    }

    pub(super) fn is_mine(&self) -> bool {
        self.reading.is_some() || self.writing
    }
}

/// Whether a hash is a read/write lock; which side holds it.
pub(super) fn mode_of(value: &Value) -> Option<Mode> {
    match &**value.field(MODE_FIELD.as_bytes())? {
        READ => Some(Mode::Read),
        WRITE => Some(Mode::Write),
        _ => None,
    }
}

pub(super) fn fence_of(value: &Value) -> Option<u64> {
    stored_token(value.field(FENCE_FIELD.as_bytes())?.strip_prefix(b"t")?)
}

pub(super) fn fence_text(fence: u64) -> Key {
    [b"t", &*decimal(fence)].concat().into()
}

pub(super) fn write_field(owner: &str) -> Vec<u8> {
    [owner.as_bytes(), b":write"].concat()
}

pub(super) fn is_note(field: &[u8]) -> bool {
    field == MODE_FIELD.as_bytes() || !super::is_owner(field)
}

fn is_released(timeout: &Value) -> bool {
    matches!(timeout, Value::Text(text) if **text == *RELEASED_VALUE.as_bytes())
}

/// Whether a hash is recognisably a read/write lock, ours or Redisson's.
pub(super) fn is_shared(fields: &[(Key, Key)]) -> bool {
    let owner = |field: &[u8]| token::is_owner(field.strip_suffix(b":write").unwrap_or(field));
    fields.iter().any(|(field, mode)| field[..] == *MODE_FIELD.as_bytes() && (**mode == *READ || **mode == *WRITE))
        && fields.iter().all(|(field, _)| is_note(field) || owner(field))
        && fields.iter().any(|(field, _)| !is_note(field) || field[..] == *INFO_FIELD.as_bytes())
}

/// The end of what begins now: rounded up, while the present is rounded down.
pub(super) fn end(now: Moment, ttl_ms: u64) -> u64 {
    now.us.div_ceil(1000) + ttl_ms
}

impl Model {
    pub(super) fn standing(&self, now: Moment, claim: &Claim) -> Standing {
        let nothing = Standing::default();
        let Some(entry) = self.keys.peek(now.ms, &claim.key) else { return nothing };
        let Some(mode) = mode_of(&entry.value) else {
            return Standing { foreign: Some(entry.value.type_name()), ..nothing };
        };
        let has_field = mode == Mode::Read && entry.value.field(claim.token.as_bytes()).is_some();
        Standing {
            mode: Some(mode),
            fence: fence_of(&entry.value),
            has_field,
            retained: has_field && self.is_retained(now, &claim.key, &claim.token),
            reading: if has_field { self.reading(now, &claim.key, &claim.token) } else { None },
            kept: mode == Mode::Write
                && entry.value.field(INFO_FIELD.as_bytes()).is_some_and(|info| **info == *RELEASED_VALUE.as_bytes()),
            writing: mode == Mode::Write && entry.value.field(&write_field(&claim.token)).is_some(),
            ..nothing
        }
    }

    /// The end of the read hold of an owner who has a field.
    pub(super) fn reading(&self, now: Moment, key: &Key, owner: &str) -> Option<u64> {
        let stop = self.reader_end(now, key, owner.as_bytes()).filter(|stop| *stop > now.ms)?;
        let timeout = self.keys.peek(now.ms, &timeout_key(key, owner))?;
        timeout.last_ms.filter(|_| !is_released(&timeout.value)).map(|_| stop)
    }

    /// Whether an owner who has a field reads no more, but stays for a while.
    fn is_retained(&self, now: Moment, key: &Key, owner: &str) -> bool {
        self.keys.peek(now.ms, &timeout_key(key, owner)).is_some_and(|timeout| is_released(&timeout.value))
    }

    pub(super) fn reader_end(&self, now: Moment, key: &Key, owner: &[u8]) -> Option<u64> {
        match &self.keys.peek(now.ms, &readers_key(key))?.value {
            Value::Sorted(readers) => readers.get(owner).copied(),
            _ => None,
        }
    }

    pub(super) fn readers(&mut self, now: Moment, key: &Key, change: impl FnOnce(&mut BTreeMap<Key, u64>)) {
        let name: Key = readers_key(key).into();
        if self.keys.peek(now.ms, &name).is_none() {
            self.keys.put(now.ms, name.clone(), Value::Sorted(BTreeMap::new()), None);
        }
        let mut empty = false;
        if let Some(entry) = self.keys.get(now.ms, &name)
            && let Value::Sorted(readers) = &mut entry.value
        {
            change(readers);
            empty = readers.is_empty();
        }
        if empty {
            self.keys.remove(now.ms, &name);
        }
    }

    pub(super) fn lengthen(&mut self, now: Moment, key: &[u8], ttl_ms: u64) {
        if let Some(entry) = self.keys.get(now.ms, key) {
            let wanted = now.ms + ttl_ms;
            entry.last_ms = Some(entry.last_ms.map_or(wanted, |last| last.max(wanted)));
        }
    }

    pub(super) fn raise(&mut self, now: Moment, key: &Key, reader: Option<&str>, ttl_ms: u64) {
        self.lengthen(now, key, ttl_ms);
        if let Some(owner) = reader {
            self.lengthen(now, &timeout_key(key, owner), ttl_ms);
            self.lengthen(now, &readers_key(key), ttl_ms);
            self.readers(now, key, |readers| {
                if let Some(stop) = readers.get_mut(owner.as_bytes()) {
                    *stop = (*stop).max(end(now, ttl_ms));
                }
            });
        }
    }

    pub(super) fn set_fields(&mut self, now: Moment, key: &Key, fields: &[(&[u8], Key)]) {
        if self.keys.peek(now.ms, key).is_none() {
            self.keys.put(now.ms, key.clone(), Value::Hash(Vec::new()), None);
        }
        if let Some(entry) = self.keys.get(now.ms, key) {
            for (field, value) in fields {
                entry.value.set_field(field, value.clone());
            }
        }
    }

    pub(super) fn drop_fields(&mut self, now: Moment, key: &[u8], gone: &[&[u8]]) {
        let mut empty = false;
        if let Some(entry) = self.keys.get(now.ms, key)
            && let Value::Hash(fields) = &mut entry.value
        {
            fields.retain(|(field, _)| !gone.contains(&&**field));
            empty = fields.is_empty();
        }
        if empty {
            self.keys.remove(now.ms, key);
        }
    }

    pub(super) fn note(&mut self, now: Moment, key: &Key, field: &[u8], until_ms: u64) {
        let records: Key = waiters_key(key).into();
        let queued = self.is_queued(now, key);
        self.set_fields(now, &records, &[(field, decimal(until_ms))]);
        if let Some(entry) = self.keys.get(now.ms, &records) {
            entry.last_ms = Some(now.ms + if queued { IDLE_MS } else { NOTES_MS });
        }
    }

    pub(super) fn is_queued(&self, now: Moment, key: &[u8]) -> bool {
        self.keys.peek(now.ms, &queue_key(key)).is_some()
    }

    /// The notes do not stay for long once nobody has a place.
    pub(super) fn rest(&mut self, now: Moment, key: &[u8]) {
        if !self.is_queued(now, key)
            && let Some(entry) = self.keys.get(now.ms, &waiters_key(key))
        {
            entry.last_ms = Some(now.ms + NOTES_MS);
        }
    }

    pub(super) fn noted(&self, now: Moment, key: &Key, field: &[u8], most_ms: u64) -> Option<u64> {
        let until = number(self.keys.peek(now.ms, &waiters_key(key))?.value.field(field)?)?;
        (until > now.ms && until <= now.ms + most_ms + 1).then_some(until)
    }

    /// What a look at a read/write lock finds.
    pub(super) fn inspect_shared(&self, now: Moment, key: &Key, value: &Value) -> Option<InspectedKey> {
        let (Value::Hash(fields), Some(mode)) = (value, mode_of(value)) else { return None };
        let ttl_left_ms = self.keys.peek(now.ms, key).and_then(|entry| entry.ttl_left_ms(now.ms));
        let owners: Vec<&Key> = fields.iter().map(|(field, _)| field).filter(|field| !is_note(field)).collect();
        let fence = fence_of(value);
        if mode == Mode::Write {
            let owner = owners.first().map_or(&b""[..], |owner| owner.strip_suffix(b":write").unwrap_or(owner));
            return Some(InspectedKey {
                kind: Ok(Kind::Write),
                holder: owner.to_vec(),
                count: u64::from(!owners.is_empty()),
                ttl_left_ms,
                fence,
                info: value.field(INFO_FIELD.as_bytes()).map(|info| info.to_vec()),
            });
        }
        let dead = |owner: &Key| self.reader_end(now, key, owner).is_some_and(|stop| stop <= now.ms);
        let live = owners.iter().filter(|owner| !dead(owner)).count() as u64;
        let last = match self.keys.peek(now.ms, &readers_key(key)).map(|entry| &entry.value) {
            Some(Value::Sorted(readers)) if fence.is_some() => {
                readers.iter().max_by_key(|(owner, stop)| (**stop, (*owner).clone())).map(|(owner, _)| owner)
            }
            _ => None,
        };
        let holder = last.or(owners.first().copied()).map_or_else(Vec::new, |owner| owner.to_vec());
        let timeout = timeout_key(key, &String::from_utf8_lossy(&holder));
        let info = match self.keys.peek(now.ms, &timeout).map(|entry| &entry.value) {
            Some(Value::Text(text)) if **text != *b"1" => Some(text.to_vec()),
            _ => None,
        };
        Some(InspectedKey { kind: Ok(Kind::Read), holder, count: live, ttl_left_ms, fence, info })
    }
}
