//! Taking permits of a semaphore, in the order of the queue.

use super::queue::{DirectGrant, Looks, Next};
use super::semaphore::{Semaphore, end, ids, signed_len};
use super::{Model, ModelReply, Moment, Value, decimal};
use crate::machine::kind::Kind;
use crate::machine::naming::{fence_ttl_ms, permits_key};
use crate::machine::op::{Claim, Key, QueueEntry, Reply};

/// What giving permits to those who wait came to.
struct HandedOver {
    /// Who asked has its own.
    asker: bool,
    stopped: LookEnd,
}

/// Where it stopped looking.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LookEnd {
    AtTheEnd,
    /// No more permits are free, or too few for the next place.
    Earlier,
    /// The call has looked at as many places as it may.
    UsedUp,
}

impl Model {
    pub(super) fn acquire_permits(
        &mut self,
        now: Moment,
        claim: &Claim,
        (total, ttl_ms): (Option<u32>, u64),
        info: Option<&str>,
        entry: &QueueEntry,
    ) -> ModelReply {
        let (key, keep_ms) = (&claim.key, fence_ttl_ms(ttl_ms));
        let mut semaphore = match self.semaphore(now, key) {
            Ok(semaphore) => semaphore,
            Err(found) => return Reply::WrongKind { found }.into(),
        };
        let all = ids(&claim.token, 0);
        let count = all.len() as u16;
        semaphore.sweep(now);
        if semaphore.held.is_empty() {
            // with the last one the key is gone, and its time to live
            self.keys.remove(now.ms, &permits_key(key));
        }
        let mismatch = |total: i64, expected| Reply::Mismatch { total: total.max(0) as u64, expected, count };
        if semaphore.free.is_none() {
            let Some(total) = total else {
                self.store(now, key, semaphore);
                self.forget(now, key, claim.token.as_bytes());
                return mismatch(0, None).into();
            };
            semaphore.free = Some(i64::from(total) - signed_len(semaphore.held.len()));
            self.keys.put(now.ms, key.clone(), Value::Text(decimal(0)), Some(keep_ms));
        }
        let there = semaphore.total();
        if total.is_some_and(|total| i64::from(total) != there) || i64::from(count) > there {
            self.store(now, key, semaphore);
            let left = self.forget(now, key, claim.token.as_bytes());
            let granted = if left { self.pass_on_permits(now, key) } else { Vec::new() };
            return ModelReply { granted, ..mismatch(there, total).into() };
        }
        let mine = semaphore.count(now, &all);
        if mine == all.len() {
            semaphore.raise(&all, end(now, ttl_ms));
            self.store(now, key, semaphore);
            self.outlive(now, key, keep_ms, true);
            return Reply::Granted { fence: None, again: true }.into();
        }
        if mine > 0 {
            // one of them was deleted: the holder may count on the others until they end
            let stop = all.iter().filter_map(|id| semaphore.held.get(id)).max().copied().unwrap_or(0);
            self.store(now, key, semaphore);
            return Reply::Denied { ttl_left_ms: Some(stop.saturating_sub(now.ms)), announces: true }.into();
        }
        let (is_try, asker) = (entry.window_ms == 0, Some((claim.token.as_bytes(), ttl_ms)));
        let mut queued = self.is_queued(now, key);
        let mut granted = Vec::new();
        if is_try && queued && semaphore.free.is_some_and(|free| free > 0) {
            let over;
            (over, granted) = self.hand_permits_over(now, key, &mut semaphore, asker);
            queued = over.stopped != LookEnd::AtTheEnd;
            if over.asker {
                // a late copy of a request, from one who had a place by now
                return ModelReply { granted, ..Reply::Granted { fence: None, again: false }.into() };
            }
        }
        let free = semaphore.free.unwrap_or(0);
        if free >= i64::from(count) && !queued {
            self.take(now, key, &mut semaphore, &all, (ttl_ms, keep_ms));
            return ModelReply { granted, ..Reply::Granted { fence: None, again: false }.into() };
        }
        if is_try {
            let more = i64::from(count) - free;
            let ttl_left_ms = if more > 0 { semaphore.left_until(now, more) } else { None };
            self.store(now, key, semaphore);
            return ModelReply { granted, ..Reply::Denied { ttl_left_ms, announces: true }.into() };
        }
        let (place, unheard) = self.take_place(now, claim, keep_ms, info.unwrap_or_default(), entry);
        let (over, granted) = self.hand_permits_over(now, key, &mut semaphore, asker);
        if over.asker {
            return ModelReply { granted, ..Reply::Granted { fence: None, again: false }.into() };
        }
        let more = (i64::from(count) - semaphore.free.unwrap_or(0)).max(1);
        let look_in_ms = if over.stopped == LookEnd::UsedUp { Some(0) } else { semaphore.left_until(now, more) };
        self.store(now, key, semaphore);
        let ahead = self.place_of(now, key, claim.token.as_bytes());
        ModelReply { granted, ..Reply::Queued { place, ahead, look_in_ms, unheard, horizon: None }.into() }
    }

    /// Takes free permits, and writes the semaphore.
    fn take(&mut self, now: Moment, key: &Key, semaphore: &mut Semaphore, all: &[Key], terms: (u64, u64)) {
        let again = !semaphore.held.is_empty();
        semaphore.held.extend(all.iter().map(|id| (id.clone(), end(now, terms.0))));
        semaphore.free = semaphore.free.map(|free| free - signed_len(all.len()));
        self.store(now, key, semaphore.clone());
        self.outlive(now, key, terms.1, again);
    }

    /// Gives free permits to the first places that are alive and heard, as far as they go. The asker gets its own for its ttl, and
    /// is not told.
    fn hand_permits_over(
        &mut self,
        now: Moment,
        key: &Key,
        semaphore: &mut Semaphore,
        asker: Option<(&[u8], u64)>,
    ) -> (HandedOver, Vec<DirectGrant>) {
        let (mut looks, mut granted) = (Looks::default(), Vec::new());
        let mut over = HandedOver { asker: false, stopped: LookEnd::Earlier };
        while semaphore.free.is_some_and(|free| free > 0) {
            let (head, waiter) = match self.place_after(now, key, asker.map(|(token, _)| token), &mut looks) {
                Next::Place(head, waiter) => (head, waiter),
                Next::End => {
                    over.stopped = LookEnd::AtTheEnd;
                    break;
                }
                Next::UsedUp => break,
            };
            let token = String::from_utf8_lossy(&head).into_owned();
            let all = ids(&token, 0);
            if all.is_empty() || signed_len(all.len()) > semaphore.total() {
                // it could never be served, and would hold up all behind it
                self.forget(now, key, &head);
                continue;
            }
            if semaphore.free.is_some_and(|free| signed_len(all.len()) > free) {
                break;
            }
            let own_ttl_ms = asker.filter(|(token, _)| **token == *head).map(|(_, ttl_ms)| ttl_ms);
            let ttl_ms = own_ttl_ms.unwrap_or(waiter.first_ttl_ms(now));
            self.take(now, key, semaphore, &all, (ttl_ms, waiter.fence_ttl_ms));
            self.forget(now, key, &head);
            if own_ttl_ms.is_some() {
                over.asker = true;
            } else {
                let claim = Claim { kind: Kind::Semaphore, key: key.clone(), token: token.into() };
                granted.push(DirectGrant { client: waiter.client, claim, fence: 0 });
            }
        }
        if over.stopped == LookEnd::Earlier && looks.left == 0 {
            over.stopped = LookEnd::UsedUp;
        }
        (over, granted)
    }

    /// The same after permits came free.
    pub(super) fn pass_on_permits(&mut self, now: Moment, key: &Key) -> Vec<DirectGrant> {
        let Ok(mut semaphore) = self.semaphore(now, key) else { return Vec::new() };
        if !self.is_queued(now, key) {
            return Vec::new();
        }
        self.hand_permits_over(now, key, &mut semaphore, None).1
    }
}
