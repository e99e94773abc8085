//! An operation as commands for one item, and their replies as its outcome.
//!
//! Nothing is changed but by a compare with the item's number, which the server gives anew at each change, and which was told
//! together with the token. So what is another holder's is never touched.

use std::sync::Arc;

use super::connection::{CacheConnection, NoReply, numbers_nothing};
use super::item::LockItem;
use super::name::item_key;
use super::protocol::{CacheReply as Told, Command};
use crate::error::ErrorKind;
use crate::machine::{Claim, Failure, InspectedKey, Key, Kind, Op, Outcome, Renewal, Reply, token};

/// How often something is tried again because the item was changed between a look and a write.
const RACES: usize = 4;
/// From this number on the server takes a time to live for a date: 30 days.
const TTL_MAX_S: u64 = 60 * 60 * 24 * 30;
/// What stands under a name and is no lock.
const FOREIGN: &str = "item of another program";

/// Operations on one connection.
pub(super) struct Operations<'a> {
    pub(super) connection: &'a CacheConnection,
    pub(super) place: &'a str,
}

/// An item that is there.
struct Found {
    value: Vec<u8>,
    number: u64,
    /// `None` for ever.
    left_s: Option<u64>,
}

impl Found {
    fn lock(&self) -> Option<LockItem> {
        LockItem::read(&self.value)
    }

    fn is_held_by(&self, claim: &Claim) -> bool {
        self.lock().is_some_and(|item| item.kind == claim.kind && item.token == *claim.token)
    }

    /// A time to live that does not shorten what is left.
    fn at_least(&self, ttl_ms: u64) -> u64 {
        seconds(ttl_ms).max(self.left_s.unwrap_or(0))
    }
}

/// What became of a write.
enum Written {
    Done,
    /// The item was changed meanwhile.
    Changed,
    Absent,
}

/// An item may die up to a second early: the server's clock ticks in whole ones.
fn seconds(ttl_ms: u64) -> u64 {
    ttl_ms.div_ceil(1000) + 1
}

/// Whether the server takes a time to live of this length for one.
pub(super) fn fits(op: &Op) -> bool {
    let longest = match op {
        Op::Acquire { ttl_ms, .. } | Op::Attach { ttl_ms, .. } | Op::SetCount { ttl_ms, .. } => *ttl_ms,
        Op::Renew { holds } => holds.iter().map(|(_, ttl_ms)| *ttl_ms).max().unwrap_or(0),
        _ => 0,
    };
    seconds(longest) < TTL_MAX_S
}

fn is_full(words: &str) -> bool {
    words.starts_with("SERVER_ERROR out of memory storing")
}

/// Longer than `-I` of this server permits.
fn is_too_large(words: &str) -> bool {
    words.starts_with("SERVER_ERROR object too large")
}

/// What the server's words mean, which it says in place of a reply.
fn refusal(place: &str, words: &str) -> Outcome<Reply> {
    let detail = format!("{place}: {words}");
    if is_full(words) {
        let detail = format!("{detail}; it has no room and removes nothing");
        return Outcome::NotApplied(Failure::transient(ErrorKind::ServerRefused, detail));
    }
    if is_too_large(words) {
        let detail = format!("{detail}; shorten name and label, or let it take larger items (-I)");
        return Outcome::NotApplied(Failure::lasting(ErrorKind::ServerRefused, detail));
    }
    Outcome::Indeterminate(Failure::transient(ErrorKind::ServerRefused, detail))
}

type Tried<T> = Result<T, Outcome<Reply>>;

impl Operations<'_> {
    fn failed(&self, detail: &str) -> Failure {
        Failure::transient(ErrorKind::Unavailable, format!("{}: {detail}", self.place))
    }

    async fn ask(&self, commands: &[Command<'_>]) -> Tried<Vec<Told>> {
        self.connection.exchange(commands).await.map_err(|NoReply { sent, why }| {
            let failure = self.failed(&why);
            if sent { Outcome::Indeterminate(failure) } else { Outcome::NotApplied(failure) }
        })
    }

    /// What a reply means that fits no question.
    fn refused(&self, told: Option<&Told>) -> Outcome<Reply> {
        match told {
            Some(Told::Refused(words)) => refusal(self.place, words),
            other => Outcome::Indeterminate(self.failed(&format!("it answered {other:?}"))),
        }
    }

    fn found(&self, told: Option<Told>) -> Tried<Option<Found>> {
        match told {
            Some(Told::Item { number: 0, .. }) => Err(Outcome::NotApplied(numbers_nothing(self.place))),
            Some(Told::Item { value, number, left_s }) => Ok(Some(Found { value, number, left_s })),
            Some(Told::Absent) => Ok(None),
            other => Err(self.refused(other.as_ref())),
        }
    }

    fn written(&self, told: Option<&Told>) -> Tried<Written> {
        match told {
            Some(Told::Done { .. }) => Ok(Written::Done),
            Some(Told::Changed) => Ok(Written::Changed),
            Some(Told::Absent) => Ok(Written::Absent),
            other => Err(self.refused(other)),
        }
    }

    async fn look(&self, key: &str) -> Tried<Option<Found>> {
        let told = self.ask(&[Command::Look { key }]).await?;
        self.found(told.into_iter().next())
    }

    async fn write(&self, command: Command<'_>) -> Tried<Written> {
        let told = self.ask(&[command]).await?;
        self.written(told.first())
    }

    /// Somebody else changed the item again and again: the next attempt may have more luck.
    fn restless(&self) -> Outcome<Reply> {
        let detail = format!("{}: the item was changed by others again and again", self.place);
        Outcome::NotApplied(Failure::transient(ErrorKind::ServerRefused, detail))
    }

    pub(super) async fn carry_out(&self, op: &Op) -> Outcome<Reply> {
        let done = match op {
            Op::Acquire { claim, ttl_ms, info, .. } => self.acquire(claim, *ttl_ms, info.as_ref()).await,
            Op::Attach { claim, from, ttl_ms, info } => self.attach(claim, from, *ttl_ms, info.as_ref()).await,
            Op::Renew { holds } => self.renew(holds).await,
            Op::SetCount { claim, count, ttl_ms } => self.set_count(claim, *count, *ttl_ms).await,
            Op::Release { claim } | Op::Undo { claim, .. } => self.release(claim).await,
            Op::Inspect { key } => self.inspect(key).await,
            Op::ForceRelease { key, foreign } => self.force_release(key, *foreign).await,
            // refused above the store, by its capabilities
            _ => {
                let detail = format!("memcached:// has no {}", op.name());
                Err(Outcome::NotApplied(Failure::lasting(ErrorKind::Unsupported, detail)))
            }
        };
        done.map_or_else(|outcome| outcome, Outcome::Applied)
    }

    /// Looks first: an item that finds no memory makes the server delete the one that is there, whoever's it is.
    async fn acquire(&self, claim: &Claim, ttl_ms: u64, info: Option<&Arc<str>>) -> Tried<Reply> {
        let (key, value) = (item_key(&claim.key), LockItem::of(claim, info).write());
        for _ in 0..RACES {
            let Some(found) = self.look(&key).await? else {
                let add = Command::Add { key: &key, value: &value, ttl_s: seconds(ttl_ms) };
                match self.ask(&[add]).await?.first() {
                    Some(Told::Done { number: Some(0) }) => {
                        return Err(Outcome::Indeterminate(numbers_nothing(self.place)));
                    }
                    Some(Told::Done { number }) => {
                        if let Some(number) = number {
                            self.connection.remember(&claim.token, *number);
                        }
                        return Ok(Reply::Granted { fence: None, again: false });
                    }
                    // somebody was faster
                    Some(Told::There) => continue,
                    other => return Err(self.refused(other)),
                }
            };
            if found.is_held_by(claim) {
                // the answer to an earlier request was lost
                match self.prolong(&key, &found, ttl_ms).await? {
                    Written::Done => return Ok(Reply::Granted { fence: None, again: true }),
                    _ => continue,
                }
            }
            return Ok(match found.lock() {
                Some(item) if item.kind == claim.kind => {
                    let left_ms = found.left_s.map(|left_s| left_s.max(1) * 1000);
                    Reply::Denied { ttl_left_ms: left_ms, announces: false }
                }
                Some(item) => Reply::WrongKind { found: item.kind.as_str().to_owned() },
                None => Reply::WrongKind { found: FOREIGN.to_owned() },
            });
        }
        Ok(Reply::Denied { ttl_left_ms: Some(1), announces: false })
    }

    async fn prolong(&self, key: &str, found: &Found, ttl_ms: u64) -> Tried<Written> {
        self.write(Command::Prolong { key, ttl_s: found.at_least(ttl_ms), number: found.number }).await
    }

    /// Exchanges what stands in the item. Where there is no memory for that, or it is too long, the server deletes the item.
    async fn replace(&self, key: &str, found: &Found, item: &LockItem, ttl_ms: u64) -> Tried<Written> {
        let value = item.write();
        let replace = Command::Replace { key, value: &value, ttl_s: found.at_least(ttl_ms), number: found.number };
        let told = self.ask(&[replace]).await?;
        match told.first() {
            Some(Told::Refused(words)) if is_full(words) || is_too_large(words) => Ok(Written::Absent),
            told => self.written(told),
        }
    }

    async fn attach(&self, claim: &Claim, from: &str, ttl_ms: u64, info: Option<&Arc<str>>) -> Tried<Reply> {
        let key = item_key(&claim.key);
        for _ in 0..RACES {
            let Some(found) = self.look(&key).await? else { return Ok(Reply::Gone) };
            let again = found.is_held_by(claim);
            let written = match found.lock() {
                _ if again => self.prolong(&key, &found, ttl_ms).await?,
                Some(item) if item.kind == claim.kind && item.token == from => {
                    let next = LockItem { count: item.count, ..LockItem::of(claim, info) };
                    self.replace(&key, &found, &next, ttl_ms).await?
                }
                _ => return Ok(Reply::Gone),
            };
            match written {
                Written::Done => return Ok(Reply::Granted { fence: None, again }),
                Written::Absent => return Ok(Reply::Gone),
                Written::Changed => {}
            }
        }
        Err(self.restless())
    }

    /// All are looked at by one request, and all that are there are prolonged by another one.
    async fn renew(&self, holds: &[(Claim, u64)]) -> Tried<Reply> {
        let keys: Vec<String> = holds.iter().map(|(claim, _)| item_key(&claim.key)).collect();
        let mut verdicts = vec![Renewal::Failed(format!("{}: others changed the item", self.place)); holds.len()];
        let mut open: Vec<usize> = (0..holds.len()).collect();
        for _ in 0..RACES {
            let looks: Vec<Command<'_>> = open.iter().map(|at| Command::Look { key: &keys[*at] }).collect();
            let mut told = self.ask(&looks).await?.into_iter();
            let mut mine = Vec::new();
            for at in std::mem::take(&mut open) {
                match self.found(told.next())? {
                    Some(found) if found.is_held_by(&holds[at].0) => mine.push((at, found)),
                    _ => verdicts[at] = Renewal::NotMine,
                }
            }
            let prolong = |(at, found): &(usize, Found)| {
                let ttl_s = found.at_least(holds[*at].1);
                Command::Prolong { key: &keys[*at], ttl_s, number: found.number }
            };
            let commands: Vec<Command<'_>> = mine.iter().map(prolong).collect();
            if commands.is_empty() {
                break;
            }
            let told = self.ask(&commands).await?;
            for (place, (at, _)) in mine.iter().enumerate() {
                match self.written(told.get(place))? {
                    Written::Done => {
                        // it has another number now
                        self.connection.take_number(&holds[*at].0.token);
                        verdicts[*at] = Renewal::Renewed;
                    }
                    Written::Absent => verdicts[*at] = Renewal::NotMine,
                    Written::Changed => open.push(*at),
                }
            }
            if open.is_empty() {
                break;
            }
        }
        Ok(Reply::Renewed(verdicts))
    }

    /// The count is the client's; in the item it is for people. Where writing it could cost the item it is left as it is.
    async fn set_count(&self, claim: &Claim, count: u64, ttl_ms: u64) -> Tried<Reply> {
        let key = item_key(&claim.key);
        for _ in 0..RACES {
            let found = match self.look(&key).await? {
                Some(found) if found.is_held_by(claim) => found,
                _ => return Ok(Reply::Counted(false)),
            };
            self.connection.take_number(&claim.token);
            let written = match found.lock() {
                Some(item) if self.connection.makes_room() => {
                    self.replace(&key, &found, &LockItem { count, ..item }, ttl_ms).await?
                }
                _ => self.prolong(&key, &found, ttl_ms).await?,
            };
            match written {
                Written::Done => return Ok(Reply::Counted(true)),
                Written::Absent => return Ok(Reply::Counted(false)),
                Written::Changed => {}
            }
        }
        Err(self.restless())
    }

    async fn release(&self, claim: &Claim) -> Tried<Reply> {
        let key = item_key(&claim.key);
        let mut known = self.connection.take_number(&claim.token);
        for _ in 0..RACES {
            let number = match known.take() {
                Some(number) => number,
                None => match self.look(&key).await? {
                    Some(found) if found.is_held_by(claim) => found.number,
                    _ => return Ok(Reply::Released(false)),
                },
            };
            match self.write(Command::Delete { key: &key, number }).await? {
                Written::Done => return Ok(Reply::Released(true)),
                Written::Absent => return Ok(Reply::Released(false)),
                Written::Changed => {}
            }
        }
        Err(self.restless())
    }

    async fn inspect(&self, key: &Key) -> Tried<Reply> {
        let Some(found) = self.look(&item_key(key)).await? else { return Ok(Reply::Inspected(None)) };
        // without the second that is added when it is written
        let ttl_left_ms = found.left_s.map(|left_s| left_s.saturating_sub(1) * 1000);
        let seen = match found.lock() {
            Some(LockItem { kind, token, count, info }) => InspectedKey {
                kind: Ok(kind),
                holder: token.into_bytes(),
                count,
                ttl_left_ms,
                fence: None,
                info: info.map(String::into_bytes),
            },
            None => InspectedKey {
                kind: Err(FOREIGN.to_owned()),
                holder: found.value,
                count: 0,
                ttl_left_ms,
                fence: None,
                info: None,
            },
        };
        Ok(Reply::Inspected(Some(seen)))
    }

    async fn force_release(&self, key: &Key, foreign: bool) -> Tried<Reply> {
        let key = item_key(key);
        for _ in 0..RACES {
            let Some(found) = self.look(&key).await? else { return Ok(Reply::Forced(false)) };
            if found.lock().is_none() && !foreign {
                return Ok(Reply::WrongKind { found: FOREIGN.to_owned() });
            }
            match self.write(Command::Delete { key: &key, number: found.number }).await? {
                Written::Done => return Ok(Reply::Forced(true)),
                Written::Absent => return Ok(Reply::Forced(false)),
                Written::Changed => {}
            }
        }
        Err(self.restless())
    }
}

/// What a mutex of this store could be named by: the token that a look at a server step by step takes.
pub(super) fn trial(name: &[u8], random: [u8; 16]) -> Claim {
    let mut key = name.to_vec();
    key.extend_from_slice(b"onelock-doctor");
    Claim { kind: Kind::Mutex, key: key.into(), token: token::value(random, None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_be_refused_again_is_not_asked_again() {
        let kind = |words: &str| match refusal("memcached://h", words) {
            Outcome::NotApplied(failure) => (true, failure.transient),
            Outcome::Indeterminate(failure) => (false, failure.transient),
            Outcome::Applied(_) => (false, false),
        };
        assert_eq!(kind("SERVER_ERROR object too large for cache"), (true, false));
        assert_eq!(kind("SERVER_ERROR out of memory storing object"), (true, true));
        assert_eq!(kind("SERVER_ERROR temporary failure"), (false, true));
    }
}
