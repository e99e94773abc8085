//! Read/write locks, as `rw_lock/rw.lua` has them.

use super::queue::{DirectGrant, Next, PlaceRecord};
use super::rw_keys::{Mode, READ, WRITE, end, fence_text, is_note, write_field};
use super::{Model, ModelReply, Moment, Value, decimal, number};
use crate::machine::kind::Kind;
use crate::machine::naming::{
    FENCE_FIELD, INFO_FIELD, MODE_FIELD, RELEASED_VALUE, readers_key, timeout_key, waiters_key,
};
use crate::machine::op::{Claim, Key, Op, QueueEntry, Renewal, Reply};
use crate::machine::outcome::Outcome;

/// How long readers go first after a writer, and how long a refused reader counts as waiting, in milliseconds.
const DOOR_MS: u64 = 50;
const WANT_MS: u64 = 600;
const DOOR: &[u8] = b":door";
const WANT: &[u8] = b":want";
/// So many foreign readers, and so many holds of one, are looked at.
const FOREIGN: u64 = 1024;

impl Model {
    /// Carries out an operation on a read/write lock; `None` if it is one on another kind of lock.
    pub(super) fn apply_to_shared(&mut self, now: Moment, op: &Op) -> Option<ModelReply> {
        Some(match op {
            Op::Enter { claim, ttl_ms, fence_ttl_ms, info, entry } if claim.kind == Kind::Read => {
                self.read(now, claim, (*ttl_ms, *fence_ttl_ms), info.as_deref(), entry.window_ms == 0).into()
            }
            Op::Enter { claim, ttl_ms, fence_ttl_ms, info, entry } if claim.kind == Kind::Write => {
                self.write(now, claim, (*ttl_ms, *fence_ttl_ms), info.as_deref(), entry)
            }
            Op::Downgrade { claim, ttl_ms, fence_ttl_ms, info } => {
                self.downgrade(now, claim, (*ttl_ms, *fence_ttl_ms), info.as_deref())
            }
            Op::SetCount { claim, ttl_ms, .. } if claim.kind.is_shared() => {
                Reply::Counted(self.renew_shared(now, claim, *ttl_ms) == Renewal::Renewed).into()
            }
            Op::Attach { claim, from, ttl_ms, info } if claim.kind.is_shared() => {
                self.attach_shared(now, claim, from, *ttl_ms, info.as_deref()).into()
            }
            Op::Release { claim } | Op::Undo { claim, .. } if claim.kind.is_shared() => self.leave_shared(now, claim),
            Op::Retain { claim, rest_ms, .. } if claim.kind.is_shared() => {
                Reply::Released(self.retain_shared(now, claim, *rest_ms)).into()
            }
            _ => return None,
        })
    }

    /// Readers go first for a moment, once so much time is over.
    fn open_door(&mut self, now: Moment, key: &Key, rest_ms: u64) {
        self.drop_fields(now, &waiters_key(key), &[WANT]);
        self.note(now, key, DOOR, now.ms + rest_ms + DOOR_MS);
    }

    fn hold_write(&mut self, now: Moment, claim: &Claim, ttl_ms: u64, fence: u64, info: &str) {
        let owner = write_field(&claim.token);
        let mut fields: Vec<(&[u8], Key)> = vec![
            (MODE_FIELD.as_bytes(), Key::from(WRITE)),
            (&owner, decimal(1)),
            (FENCE_FIELD.as_bytes(), fence_text(fence)),
        ];
        if !info.is_empty() {
            fields.push((INFO_FIELD.as_bytes(), Key::from(info.as_bytes())));
        }
        self.set_fields(now, &claim.key, &fields);
        self.lengthen(now, &claim.key, ttl_ms);
    }

    /// Enters a reader; a phase without a token of ours begins with it.
    fn hold_read(&mut self, now: Moment, claim: &Claim, terms: (u64, u64), info: &str, fence: Option<u64>) -> u64 {
        let ((ttl_ms, fence_ttl_ms), key) = (terms, &claim.key);
        let fence = fence.unwrap_or_else(|| {
            self.keys.remove(now.ms, &readers_key(key));
            self.draw(now, key, fence_ttl_ms)
        });
        let timeout: Key = timeout_key(key, &claim.token).into();
        let text = if info.is_empty() { "1" } else { info };
        self.keys.put(now.ms, timeout, Value::Text(Key::from(text.as_bytes())), Some(ttl_ms));
        self.readers(now, key, |readers| _ = readers.insert(claim.token.as_bytes().into(), end(now, ttl_ms)));
        self.lengthen(now, &readers_key(key), ttl_ms);
        let fields = [
            (MODE_FIELD.as_bytes(), Key::from(READ)),
            (claim.token.as_bytes(), decimal(1)),
            (FENCE_FIELD.as_bytes(), fence_text(fence)),
        ];
        self.set_fields(now, key, &fields);
        self.lengthen(now, key, ttl_ms);
        fence
    }

    fn grant_write(&mut self, now: Moment, key: &Key, (head, waiter): (Key, PlaceRecord)) -> DirectGrant {
        let token = String::from_utf8_lossy(&head).into_owned();
        let claim = Claim { kind: Kind::Write, key: key.clone(), token: token.into() };
        let fence = self.draw(now, key, waiter.fence_ttl_ms);
        self.forget(now, key, &head);
        self.rest(now, key);
        let ttl_ms = waiter.first_ttl_ms(now);
        self.hold_write(now, &claim, ttl_ms, fence, &waiter.info);
        DirectGrant { client: waiter.client, claim, fence }
    }

    fn next_writer(&mut self, now: Moment, key: &Key, asker: Option<&[u8]>) -> Next {
        let next = self.next_place(now, key, asker);
        if matches!(next, Next::End) {
            self.rest(now, key);
        }
        next
    }

    fn read(&mut self, now: Moment, claim: &Claim, terms: (u64, u64), info: Option<&str>, is_try: bool) -> Reply {
        let (standing, key) = (self.standing(now, claim), &claim.key);
        if let Some(found) = standing.foreign {
            return Reply::WrongKind { found: found.to_owned() };
        }
        if standing.reading.is_some() {
            self.raise(now, key, Some(&claim.token), terms.0);
            return Reply::Granted { fence: standing.fence, again: true };
        }
        if standing.retained {
            return self.denied(now, key);
        }
        let mut barred = standing.mode == Some(Mode::Write);
        if !barred && self.is_queued(now, key) && self.noted(now, key, DOOR, DOOR_MS).is_none() {
            barred = !matches!(self.next_writer(now, key, None), Next::End);
        }
        if !barred {
            let fence = self.hold_read(now, claim, terms, info.unwrap_or_default(), standing.fence);
            return Reply::Granted { fence: Some(fence), again: false };
        }
        if !is_try && standing.kept {
            let left = self.keys.peek(now.ms, key).and_then(|entry| entry.ttl_left_ms(now.ms)).unwrap_or(0);
            self.note(now, key, DOOR, now.ms + left + DOOR_MS);
        } else if !is_try {
            self.note(now, key, WANT, end(now, WANT_MS));
        }
        self.denied(now, key)
    }

    fn denied(&self, now: Moment, key: &[u8]) -> Reply {
        let ttl_left_ms = self.keys.peek(now.ms, key).and_then(|entry| entry.ttl_left_ms(now.ms));
        Reply::Denied { ttl_left_ms, announces: true }
    }

    fn write(
        &mut self,
        now: Moment,
        claim: &Claim,
        terms: (u64, u64),
        info: Option<&str>,
        entry: &QueueEntry,
    ) -> ModelReply {
        let (standing, key, info) = (self.standing(now, claim), &claim.key, info.unwrap_or_default());
        if let Some(found) = standing.foreign {
            return Reply::WrongKind { found: found.to_owned() }.into();
        }
        if standing.writing {
            self.raise(now, key, None, terms.0);
            return Reply::Granted { fence: standing.fence, again: true }.into();
        }
        if standing.reading.is_some() || standing.retained {
            return self.denied(now, key).into();
        }
        let free = standing.is_free();
        let door = if free { self.noted(now, key, DOOR, DOOR_MS) } else { None };
        let queued = self.is_queued(now, key);
        if entry.window_ms == 0 {
            if !free || door.is_some() {
                return self.denied(now, key).into();
            }
            match if queued { self.next_writer(now, key, None) } else { Next::End } {
                Next::UsedUp => return self.denied(now, key).into(),
                Next::Place(head, waiter) => {
                    let granted = vec![self.grant_write(now, key, (head, waiter))];
                    return ModelReply { granted, ..self.denied(now, key).into() };
                }
                Next::End => {}
            }
        }
        if entry.window_ms == 0 || free && door.is_none() && !queued {
            let fence = self.draw(now, key, terms.1);
            self.hold_write(now, claim, terms.0, fence, info);
            return Reply::Granted { fence: Some(fence), again: false }.into();
        }
        let (place, unheard) = self.take_place(now, claim, terms.1, info, entry);
        let mut look_in_ms = self.keys.peek(now.ms, key).and_then(|entry| entry.ttl_left_ms(now.ms));
        let mut granted = Vec::new();
        if let Some(door) = door {
            look_in_ms = Some(door - now.ms);
        } else if free {
            look_in_ms = Some(0);
            if let Next::Place(head, waiter) = self.next_writer(now, key, Some(claim.token.as_bytes())) {
                let asks = *head == *claim.token.as_bytes();
                let grant = self.grant_write(now, key, (head, waiter));
                if asks {
                    self.lengthen(now, key, terms.0);
                    return Reply::Granted { fence: Some(grant.fence), again: false }.into();
                }
                look_in_ms = self.keys.peek(now.ms, key).and_then(|entry| entry.ttl_left_ms(now.ms));
                granted.push(grant);
            }
        }
        let ahead = self.place_of(now, key, claim.token.as_bytes());
        let horizon = Some(self.horizon(now, key, standing.fence));
        ModelReply { granted, ..Reply::Queued { place, ahead, look_in_ms, unheard, horizon }.into() }
    }

    fn downgrade(&mut self, now: Moment, claim: &Claim, terms: (u64, u64), info: Option<&str>) -> ModelReply {
        let (standing, key) = (self.standing(now, claim), &claim.key);
        if standing.reading.is_some() {
            self.raise(now, key, Some(&claim.token), terms.0);
            return Reply::Granted { fence: standing.fence, again: true }.into();
        }
        if !standing.writing {
            return Reply::Gone.into();
        }
        let fence = self.hold_read(now, claim, terms, info.unwrap_or_default(), None);
        self.drop_fields(now, key, &[&write_field(&claim.token), INFO_FIELD.as_bytes()]);
        if self.noted(now, key, WANT, WANT_MS).is_some() {
            self.open_door(now, key, 0);
        }
        told_all(Reply::Granted { fence: Some(fence), again: false }, key)
    }

    /// Somebody left the free lock: who is next.
    fn pass_on(&mut self, now: Moment, key: &Key, after_writer: bool) -> ModelReply {
        let door = self.noted(now, key, DOOR, DOOR_MS);
        let next = self.next_writer(now, key, None);
        let reply = Reply::Released(true);
        match (door, next) {
            (Some(_), Next::Place(head, waiter)) => {
                let token = String::from_utf8_lossy(&head).into_owned();
                let claim = Claim { kind: Kind::Write, key: key.clone(), token: token.into() };
                let granted = vec![DirectGrant { client: waiter.client, claim, fence: 0 }];
                ModelReply { granted, ..reply.into() }
            }
            (Some(_), _) => reply.into(),
            (None, _) if after_writer && self.noted(now, key, WANT, WANT_MS).is_some() => {
                self.open_door(now, key, 0);
                told_all(reply, key)
            }
            (None, Next::Place(head, waiter)) => {
                let granted = vec![self.grant_write(now, key, (head, waiter))];
                ModelReply { granted, ..reply.into() }
            }
            (None, _) => told_all(reply, key),
        }
    }

    /// Our readers that have ended are gone, and the lock lives as long as the last of the others. Whether it is still held.
    fn settle(&mut self, now: Moment, key: &Key) -> bool {
        let mut readers: Vec<(Key, u64)> = match self.keys.peek(now.ms, &readers_key(key)).map(|entry| &entry.value) {
            Some(Value::Sorted(readers)) => readers.iter().map(|(owner, stop)| (owner.clone(), *stop)).collect(),
            _ => Vec::new(),
        };
        readers.sort_by_key(|(_, stop)| *stop);
        let ended: Vec<Key> =
            readers.iter().filter(|(_, stop)| *stop <= now.ms).take(256).map(|(owner, _)| owner.clone()).collect();
        for owner in &ended {
            self.drop_fields(now, key, &[owner]);
        }
        self.readers(now, key, |readers| readers.retain(|owner, _| !ended.contains(owner)));
        readers.retain(|(owner, _)| !ended.contains(owner));
        let mut left = readers.last().map_or(0, |(_, stop)| stop.saturating_sub(now.ms));
        let fields = match self.keys.peek(now.ms, key).map(|entry| entry.value.clone()) {
            Some(Value::Hash(fields)) => fields,
            _ => Vec::new(),
        };
        let others: Vec<(Key, u64)> = fields
            .into_iter()
            .filter(|(field, _)| !is_note(field) && !readers.iter().any(|(owner, _)| owner == field))
            .map(|(field, count)| (field, number(&count).unwrap_or(0)))
            .collect();
        if others.len() as u64 > FOREIGN {
            return true;
        }
        for (owner, count) in others {
            let first = timeout_key(key, &String::from_utf8_lossy(&owner));
            for n in 1..=count.min(FOREIGN) {
                let name = [&first[..first.len() - 1], n.to_string().as_bytes()].concat();
                let ttl = self.keys.peek(now.ms, &name).and_then(|entry| entry.ttl_left_ms(now.ms));
                left = left.max(ttl.unwrap_or(0));
            }
        }
        if left == 0 {
            self.keys.remove(now.ms, key);
            self.keys.remove(now.ms, &readers_key(key));
            return false;
        }
        if let Some(entry) = self.keys.get(now.ms, key) {
            entry.last_ms = Some(now.ms + left);
        }
        true
    }

    fn leave_shared(&mut self, now: Moment, claim: &Claim) -> ModelReply {
        let (standing, key) = (self.standing(now, claim), &claim.key);
        if standing.writing {
            self.keys.remove(now.ms, key);
            return self.pass_on(now, key, true);
        }
        if standing.has_field && !standing.retained {
            let found = Outcome::Applied(Reply::Released(standing.reading.is_some()));
            self.drop_fields(now, key, &[claim.token.as_bytes()]);
            self.readers(now, key, |readers| _ = readers.remove(claim.token.as_bytes()));
            self.keys.remove(now.ms, &timeout_key(key, &claim.token));
            if self.settle(now, key) {
                return ModelReply { outcome: found, announced: None, granted: Vec::new() };
            }
            return ModelReply { outcome: found, ..self.pass_on(now, key, false) };
        }
        let was = self.forget(now, key, claim.token.as_bytes());
        self.rest(now, key);
        let waited = was && standing.mode != Some(Mode::Write) && self.noted(now, key, WANT, WANT_MS).is_some();
        if waited && !matches!(self.next_writer(now, key, None), Next::Place(..)) {
            return told_all(Reply::Released(false), key);
        }
        Reply::Released(false).into()
    }

    fn retain_shared(&mut self, now: Moment, claim: &Claim, rest_ms: u64) -> bool {
        let (standing, key) = (self.standing(now, claim), &claim.key);
        if standing.writing {
            self.drop_fields(now, key, &[&write_field(&claim.token), FENCE_FIELD.as_bytes()]);
            self.set_fields(now, key, &[(INFO_FIELD.as_bytes(), Key::from(RELEASED_VALUE.as_bytes()))]);
            if let Some(entry) = self.keys.get(now.ms, key) {
                entry.last_ms = Some(now.ms + rest_ms);
            }
            if self.noted(now, key, WANT, WANT_MS).is_some() {
                self.open_door(now, key, rest_ms);
            }
        } else if standing.reading.is_some() {
            let (timeout, nobody) = (timeout_key(key, &claim.token), Key::from(RELEASED_VALUE.as_bytes()));
            self.keys.put(now.ms, timeout.into(), Value::Text(nobody), Some(rest_ms));
            self.readers(now, key, |readers| _ = readers.insert(claim.token.as_bytes().into(), end(now, rest_ms)));
            self.settle(now, key);
        }
        standing.is_mine()
    }

    fn attach_shared(&mut self, now: Moment, claim: &Claim, from: &str, ttl_ms: u64, info: Option<&str>) -> Reply {
        let (key, info) = (&claim.key, info.unwrap_or_default());
        let new = self.standing(now, claim);
        let old = self.standing(now, &Claim { token: from.into(), ..claim.clone() });
        let granted = |again| Reply::Granted { fence: new.fence, again };
        if claim.kind == Kind::Write {
            if !new.writing && !old.writing {
                return Reply::Gone;
            }
            self.lengthen(now, key, ttl_ms);
            if new.writing {
                return granted(true);
            }
            self.set_fields(now, key, &[(&write_field(&claim.token), decimal(1))]);
            self.drop_fields(now, key, &[&write_field(from), INFO_FIELD.as_bytes()]);
            if !info.is_empty() {
                self.set_fields(now, key, &[(INFO_FIELD.as_bytes(), Key::from(info.as_bytes()))]);
            }
            return granted(false);
        }
        if new.reading.is_some() {
            self.raise(now, key, Some(&claim.token), ttl_ms);
            return granted(true);
        }
        let Some(present) = old.reading else { return Reply::Gone };
        self.lengthen(now, key, ttl_ms);
        let stop = present.max(end(now, ttl_ms));
        let old_timeout = timeout_key(key, from);
        let left = self.keys.peek(now.ms, &old_timeout).and_then(|entry| entry.ttl_left_ms(now.ms)).unwrap_or(0);
        let text = if info.is_empty() { "1" } else { info };
        let timeout: Key = timeout_key(key, &claim.token).into();
        self.keys.put(now.ms, timeout, Value::Text(Key::from(text.as_bytes())), Some(left.max(ttl_ms)));
        self.readers(now, key, |readers| {
            readers.insert(claim.token.as_bytes().into(), stop);
            readers.remove(from.as_bytes());
        });
        self.lengthen(now, &readers_key(key), ttl_ms);
        self.set_fields(now, key, &[(claim.token.as_bytes(), decimal(1))]);
        self.drop_fields(now, key, &[from.as_bytes()]);
        self.keys.remove(now.ms, &old_timeout);
        granted(false)
    }

    pub(super) fn renew_shared(&mut self, now: Moment, claim: &Claim, ttl_ms: u64) -> Renewal {
        let standing = self.standing(now, claim);
        if !standing.is_mine() {
            return Renewal::NotMine;
        }
        self.raise(now, &claim.key, standing.reading.map(|_| &*claim.token), ttl_ms);
        Renewal::Renewed
    }
}

fn told_all(reply: Reply, key: &Key) -> ModelReply {
    ModelReply { outcome: Outcome::Applied(reply), announced: Some((Kind::Read, key.clone())), granted: Vec::new() }
}
