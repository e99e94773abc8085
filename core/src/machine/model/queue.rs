//! Locks with a queue on the server, as `queue.lua` and `fair_lock/fair.lua` have them.

use super::{Model, ModelReply, Moment, Value, decimal, number, owns, stored_fence};
use crate::machine::kind::Kind;
use crate::machine::naming::{FENCE_FIELD, INFO_FIELD, MODE_FIELD, RELEASED_VALUE, queue_key, waiters_key};
use crate::machine::op::{Claim, Key, Proposal, QueueEntry, QueuePlace, QueueSight, Reply};
use crate::machine::outcome::Outcome;
use crate::machine::token::ClientTag;

/// What the hash of a fair lock says of its kind.
const FAIR: &[u8] = b"fair";
/// How long a grant to somebody who is told lasts, in milliseconds.
const SHORTEST_MS: u64 = 200;
const LONGEST_MS: u64 = 3_000;
/// So many places are looked at in one call.
const MOST: usize = 256;
/// So many places are looked at for inspection, and so many of them told.
const LOOKED_AT: usize = 64;
const TOLD: usize = 16;
/// How long a queue stays that nobody comes to, in milliseconds.
pub(super) const IDLE_MS: u64 = 10_000;
/// How many fields the hash of a fair lock has at most.
const FAIR_FIELDS: usize = 4;

/// A grant to a client that waits, which is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectGrant {
    /// The client that hears of it.
    pub client: ClientTag,
    /// Key, kind and token.
    pub claim: Claim,
    /// The fencing token; 0: it was not granted, but it is time to ask again.
    pub fence: u64,
}

/// The record of a place.
#[derive(Clone, Debug)]
pub(super) struct PlaceRecord {
    pub(super) alive_until_ms: u64,
    pub(super) fence_ttl_ms: u64,
    pub(super) client: ClientTag,
    /// 0, 1, or 2 for one that listens and was passed over.
    listens: u8,
    pub(super) info: String,
}

impl PlaceRecord {
    fn parse(text: &[u8]) -> Option<PlaceRecord> {
        let mut words = str::from_utf8(text).ok()?.splitn(5, ' ');
        Some(PlaceRecord {
            alive_until_ms: words.next()?.parse().ok()?,
            fence_ttl_ms: words.next()?.parse().ok()?,
            client: ClientTag(u64::from_str_radix(words.next()?, 16).ok()?),
            listens: words.next()?.parse().ok().filter(|listens| *listens <= 2)?,
            info: words.next().unwrap_or_default().to_owned(),
        })
    }

    /// How long a hold lasts that is given to this place, until its client asks for it.
    pub(super) fn first_ttl_ms(&self, now: Moment) -> u64 {
        (self.alive_until_ms - now.ms).clamp(SHORTEST_MS, LONGEST_MS)
    }

    /// Whether it counts: a place that was not entered again for as long as it said is forgotten.
    fn is_alive(&self, now: Moment) -> bool {
        self.alive_until_ms > now.ms && self.alive_until_ms <= now.ms + LONGEST_MS + 1
    }

    fn text(&self) -> Key {
        let PlaceRecord { alive_until_ms, fence_ttl_ms, client, listens, info } = self;
        let space = if info.is_empty() { "" } else { " " };
        format!("{alive_until_ms} {fence_ttl_ms} {client} {listens}{space}{info}").into_bytes().into()
    }
}

/// How far one call has looked into a queue.
pub(super) struct Looks {
    /// So many places are passed over.
    at: usize,
    pub(super) left: usize,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks { at: 0, left: MOST }
    }
}

/// The first place of a queue that can have the lock.
pub(super) enum Next {
    Place(Key, PlaceRecord),
    /// Nobody who waits can have it.
    End,
    /// The call has looked at as many places as it may.
    UsedUp,
}

/// What handing over came to.
enum HandOver {
    Given(Claim, u64, Option<DirectGrant>),
    /// Nobody who waits can have it.
    Nobody,
    /// The call has looked at as many places as it may.
    UsedUp,
}

/// Whether a hash is a fair lock.
pub(super) fn is_fair(fields: &[(Key, Key)]) -> bool {
    fields.len() <= FAIR_FIELDS && fields.iter().any(|(field, mode)| is_mode(field) && **mode == *FAIR)
}

fn is_mode(field: &[u8]) -> bool {
    field == MODE_FIELD.as_bytes()
}

/// The field of the holder, if the hash of a fair lock has one.
pub(super) fn fair_holder(fields: &[(Key, Key)]) -> Option<&(Key, Key)> {
    fields.iter().find(|(field, _)| !is_mode(field) && super::is_owner(field))
}

impl Model {
    /// Says whether a client listens for its grants of a lock. The server counts subscribers when it hands a lock over.
    pub fn listen(&mut self, key: &Key, client: ClientTag, listens: bool) {
        if listens {
            self.listeners.insert((key.clone(), client));
        } else {
            self.listeners.remove(&(key.clone(), client));
        }
    }

    /// The tokens in the queue of a lock, the head first.
    pub fn queue_of(&self, server_time_us: u64, key: &[u8]) -> Vec<Key> {
        self.queue(Moment::at(server_time_us), key).into_iter().map(|(token, _)| token).collect()
    }

    fn queue(&self, now: Moment, key: &[u8]) -> Vec<(Key, u64)> {
        match self.keys.peek(now.ms, &queue_key(key)).map(|entry| &entry.value) {
            Some(Value::Sorted(places)) => {
                let mut places: Vec<_> = places.iter().map(|(token, number)| (token.clone(), *number)).collect();
                places.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
                places
            }
            _ => Vec::new(),
        }
    }

    /// Who waits with a place, as `waiters.lua` tells it.
    pub(super) fn look_at_queue(&self, now: Moment, key: &[u8]) -> QueueSight {
        let queue = self.queue(now, key);
        let first: Vec<_> =
            queue.iter().take(LOOKED_AT).map(|place| (place, self.waiter(now, key, &place.0))).collect();
        let alive = |((_, number), waiter): &(&(Key, u64), Option<PlaceRecord>)| {
            let waiter = waiter.as_ref().filter(|waiter| waiter.is_alive(now))?;
            Some(QueuePlace { number: *number, info: waiter.info.clone().into_bytes() })
        };
        let mut places: Vec<_> = first.iter().filter_map(alive).collect();
        let length = (queue.len() - (first.len() - places.len())) as u64;
        places.truncate(TOLD);
        QueueSight { length, places }
    }

    fn waiter(&self, now: Moment, key: &[u8], token: &[u8]) -> Option<PlaceRecord> {
        PlaceRecord::parse(self.keys.peek(now.ms, &waiters_key(key))?.value.field(token)?)
    }

    /// Writes a record, and leaves the time to live of the hash as it is.
    fn write_waiter(&mut self, now: Moment, key: &Key, token: &[u8], waiter: &PlaceRecord) {
        let records: Key = waiters_key(key).into();
        if self.keys.peek(now.ms, &records).is_none() {
            self.keys.put(now.ms, records.clone(), Value::Hash(Vec::new()), None);
        }
        if let Some(entry) = self.keys.get(now.ms, &records) {
            entry.value.set_field(token, waiter.text());
        }
    }

    /// Takes a place out of the queue and says whether it was there.
    pub(super) fn forget(&mut self, now: Moment, key: &Key, token: &[u8]) -> bool {
        let (queue, records) = (queue_key(key), waiters_key(key));
        let mut was = false;
        let mut empty = (false, false);
        if let Some(entry) = self.keys.get(now.ms, &queue)
            && let Value::Sorted(places) = &mut entry.value
        {
            was = places.remove(token).is_some();
            empty.0 = places.is_empty();
        }
        if let Some(entry) = self.keys.get(now.ms, &records)
            && let Value::Hash(fields) = &mut entry.value
        {
            fields.retain(|(field, _)| **field != *token);
            empty.1 = fields.is_empty();
        }
        if empty.0 {
            self.keys.remove(now.ms, &queue);
        }
        if empty.1 {
            self.keys.remove(now.ms, &records);
        }
        was
    }

    /// Makes a claim the holder of a free lock.
    fn hold(&mut self, now: Moment, claim: &Claim, ttl_ms: u64, fence: u64, info: &str) {
        let mut fields = vec![
            (Key::from(MODE_FIELD.as_bytes()), Key::from(FAIR)),
            (claim.token.clone().into(), decimal(1)),
            (Key::from(FENCE_FIELD.as_bytes()), decimal(fence)),
        ];
        if !info.is_empty() {
            fields.push((Key::from(INFO_FIELD.as_bytes()), Key::from(info.as_bytes())));
        }
        self.keys.put(now.ms, claim.key.clone(), Value::Hash(fields), Some(ttl_ms));
    }

    pub(super) fn draw(&mut self, now: Moment, key: &Key, fence_ttl_ms: u64) -> u64 {
        self.draw_fence(now, key, Proposal { base: now.us, ttl_ms: fence_ttl_ms })
    }

    /// No grant of a lock so far has a higher fencing token.
    pub(super) fn horizon(&self, now: Moment, key: &Key, holders: Option<u64>) -> u64 {
        now.us.max(self.counter(now, key).unwrap_or(0)).max(holders.unwrap_or(0))
    }

    /// The first place that is alive and heard; dead ones are forgotten on the way.
    pub(super) fn next_place(&mut self, now: Moment, key: &Key, asker: Option<&[u8]>) -> Next {
        self.place_after(now, key, asker, &mut Looks::default())
    }

    /// The same from where an earlier look in the same call ended.
    pub(super) fn place_after(&mut self, now: Moment, key: &Key, asker: Option<&[u8]>, looks: &mut Looks) -> Next {
        while looks.left > 0 {
            looks.left -= 1;
            let Some((head, _)) = self.queue(now, key).get(looks.at).cloned() else { return Next::End };
            let Some(waiter) = self.waiter(now, key, &head).filter(|waiter| waiter.is_alive(now)) else {
                self.forget(now, key, &head);
                continue;
            };
            let asks = asker == Some(&*head);
            if waiter.listens > 0 && !asks && !self.listeners.contains(&(key.clone(), waiter.client)) {
                if waiter.listens == 1 {
                    self.write_waiter(now, key, &head, &PlaceRecord { listens: 2, ..waiter });
                }
                looks.at += 1;
                continue;
            }
            return Next::Place(head, waiter);
        }
        Next::UsedUp
    }

    /// Gives a free lock to the first place that is alive and heard.
    fn hand_over(&mut self, now: Moment, key: &Key, asker: Option<&[u8]>) -> HandOver {
        let (head, waiter) = match self.next_place(now, key, asker) {
            Next::Place(head, waiter) => (head, waiter),
            Next::End => return HandOver::Nobody,
            Next::UsedUp => return HandOver::UsedUp,
        };
        let token = String::from_utf8_lossy(&head).into_owned();
        let claim = Claim { kind: Kind::Fair, key: key.clone(), token: token.into() };
        let fence = self.draw(now, key, waiter.fence_ttl_ms);
        self.forget(now, key, &head);
        let ttl_ms = waiter.first_ttl_ms(now);
        self.hold(now, &claim, ttl_ms, fence, &waiter.info);
        let told = (asker != Some(&*head)).then(|| DirectGrant { client: waiter.client, claim: claim.clone(), fence });
        HandOver::Given(claim, fence, told)
    }

    pub(super) fn enter(
        &mut self,
        now: Moment,
        claim: &Claim,
        terms: (u64, u64),
        info: Option<&str>,
        entry: &QueueEntry,
    ) -> ModelReply {
        let (ttl_ms, fence_ttl_ms) = terms;
        let (key, info) = (&claim.key, info.unwrap_or_default());
        let mut ttl_left_ms = None;
        let mut free = true;
        let mut holder_fence = None;
        if let Some(standing) = self.keys.get(now.ms, key) {
            match &standing.value {
                Value::Hash(fields) if is_mode_fair(fields) => {}
                other => return Reply::WrongKind { found: other.type_name().to_owned() }.into(),
            }
            if owns(standing, claim) {
                standing.extend(now.ms, ttl_ms);
                return Reply::Granted { fence: stored_fence(&standing.value), again: true }.into();
            }
            ttl_left_ms = standing.ttl_left_ms(now.ms);
            holder_fence = stored_fence(&standing.value);
            free = false;
        }
        let queued = self.is_queued(now, key);
        if entry.window_ms == 0 && !free {
            return Reply::Denied { ttl_left_ms, announces: true }.into();
        }
        if entry.window_ms == 0 && queued {
            match self.hand_over(now, key, None) {
                HandOver::Nobody => {}
                HandOver::UsedUp => return Reply::Denied { ttl_left_ms: None, announces: true }.into(),
                HandOver::Given(_, _, granted) => {
                    let ttl_left_ms = self.keys.get(now.ms, key).and_then(|entry| entry.ttl_left_ms(now.ms));
                    let reply = Reply::Denied { ttl_left_ms, announces: true };
                    return ModelReply { granted: granted.into_iter().collect(), ..reply.into() };
                }
            }
        }
        if free && (entry.window_ms == 0 || !queued) {
            let fence = self.draw(now, key, fence_ttl_ms);
            self.hold(now, claim, ttl_ms, fence, info);
            return Reply::Granted { fence: Some(fence), again: false }.into();
        }
        let (place, unheard) = self.take_place(now, claim, fence_ttl_ms, info, entry);
        let mut granted = None;
        if free {
            match self.hand_over(now, key, Some(claim.token.as_bytes())) {
                HandOver::Given(given, fence, _) if given == *claim => {
                    if let Some(standing) = self.keys.get(now.ms, key) {
                        standing.extend(now.ms, ttl_ms);
                    }
                    return Reply::Granted { fence: Some(fence), again: false }.into();
                }
                HandOver::Given(_, _, told) => {
                    granted = told;
                    ttl_left_ms = self.keys.get(now.ms, key).and_then(|entry| entry.ttl_left_ms(now.ms));
                }
                HandOver::Nobody | HandOver::UsedUp => ttl_left_ms = Some(0),
            }
        }
        let ahead = self.place_of(now, key, claim.token.as_bytes());
        let horizon = Some(self.horizon(now, key, holder_fence));
        let reply = Reply::Queued { place, ahead, look_in_ms: ttl_left_ms, unheard, horizon };
        ModelReply { granted: granted.into_iter().collect(), ..reply.into() }
    }

    /// How many places are before that of a token.
    pub(super) fn place_of(&self, now: Moment, key: &[u8], token: &[u8]) -> u64 {
        self.queue(now, key).iter().position(|(other, _)| **other == *token).unwrap_or(0) as u64
    }

    /// Takes or keeps a place: its number, and whether it was passed over.
    pub(super) fn take_place(
        &mut self,
        now: Moment,
        claim: &Claim,
        fence_ttl_ms: u64,
        info: &str,
        entry: &QueueEntry,
    ) -> (u64, bool) {
        let (key, token) = (&claim.key, claim.token.as_bytes());
        let mut places = self.queue(now, key);
        let present = places.iter().find(|(other, _)| **other == *token).map(|(_, number)| *number);
        let number =
            present.or(entry.place).unwrap_or_else(|| places.last().map_or(0, |(_, last)| last + 1).max(now.us));
        if present.is_none() {
            places.push((Key::from(token), number));
        }
        let places = places.into_iter().collect();
        self.keys.put(now.ms, queue_key(key).into(), Value::Sorted(places), Some(IDLE_MS));
        let later_ms = now.us.div_ceil(1000);
        let before = self.waiter(now, key, token);
        let alive_until_ms = before.as_ref().map_or(0, |waiter| waiter.alive_until_ms);
        let waiter = PlaceRecord {
            alive_until_ms: alive_until_ms.max(later_ms + entry.window_ms).min(later_ms + LONGEST_MS),
            fence_ttl_ms,
            client: entry.client,
            listens: u8::from(entry.listens),
            info: info.to_owned(),
        };
        self.write_waiter(now, key, token, &waiter);
        if let Some(records) = self.keys.get(now.ms, &waiters_key(key)) {
            records.last_ms = Some(now.ms + IDLE_MS);
        }
        (number, before.is_some_and(|waiter| waiter.listens == 2))
    }

    pub(super) fn leave(&mut self, now: Moment, claim: &Claim) -> ModelReply {
        if self.held(now, claim).is_none() {
            self.forget(now, &claim.key, claim.token.as_bytes());
            return Reply::Released(false).into();
        }
        self.keys.remove(now.ms, &claim.key);
        let granted = match self.hand_over(now, &claim.key, None) {
            HandOver::Given(_, _, granted) => granted.into_iter().collect(),
            HandOver::Nobody | HandOver::UsedUp => Vec::new(),
        };
        ModelReply { outcome: Outcome::Applied(Reply::Released(true)), announced: None, granted }
    }

    pub(super) fn retain_fair(&mut self, now: Moment, claim: &Claim, rest_ms: u64) -> Reply {
        if self.held(now, claim).is_none() {
            return Reply::Released(false);
        }
        let fields = vec![
            (Key::from(MODE_FIELD.as_bytes()), Key::from(FAIR)),
            (Key::from(INFO_FIELD.as_bytes()), Key::from(RELEASED_VALUE.as_bytes())),
        ];
        self.keys.put(now.ms, claim.key.clone(), Value::Hash(fields), Some(rest_ms));
        Reply::Released(true)
    }
}

fn is_mode_fair(fields: &[(Key, Key)]) -> bool {
    fields.iter().any(|(field, mode)| is_mode(field) && **mode == *FAIR)
}

/// The hold count of a fair lock, if its hash says one.
pub(super) fn fair_count(fields: &[(Key, Key)]) -> u64 {
    fair_holder(fields).and_then(|(_, count)| number(count)).unwrap_or(0)
}
