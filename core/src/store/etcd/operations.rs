//! The operations on what is held or stands there: counts, releases, looks.

use std::sync::Arc;

use super::ClusterClient;
use super::claiming::WantedLock;
use super::failure;
use super::grpc::{CallError, code};
use super::messages::{self, Deleted, Done, KeyValue, Lease, Ranged, TxnReply, path};
use super::names::{self, PlaceEntry};
use super::request::{CallRequest, VouchedReply};
use crate::machine::{Claim, Failure, InspectedKey, Key, Op, QueuePlace, QueueSight, Renewal, Reply, Time, glob};
use crate::store::{Scan, Scanned, foreign_cursor};
use crate::sys::{clock, lock};

/// So many places of a queue are told.
const PLACES_TOLD: i64 = 16;
/// So often a lock is looked at anew that changed hands before it could be taken away.
const RACES: usize = 8;

impl CallRequest<'_> {
    pub(super) async fn carry_out(&self, op: &Op) -> Result<VouchedReply, CallError> {
        match op {
            Op::Acquire { claim, ttl_ms, fence_ttl_ms, info } => {
                let (fenced, info) = (fence_ttl_ms.is_some(), info.as_deref());
                self.enter(&WantedLock { claim, ttl_ms: *ttl_ms, info, fenced, waits: false }).await
            }
            Op::Enter { claim, ttl_ms, info, entry, .. } => {
                let (waits, info) = (entry.window_ms > 0, info.as_deref());
                let wanted = WantedLock { claim, ttl_ms: *ttl_ms, info, fenced: true, waits };
                match entry.place {
                    Some(place) => self.look_again(&wanted, place.cast_signed(), false).await,
                    None => self.enter(&wanted).await,
                }
            }
            Op::Renew { holds } => {
                let (since, verdicts, _) = self.renew(holds).await?;
                Ok((since, Reply::Renewed(verdicts)))
            }
            Op::SetCount { claim, count, ttl_ms } => self.set_count(claim, *count, *ttl_ms).await,
            Op::Release { claim } | Op::Undo { claim, .. } => self.release(claim).await,
            Op::Inspect { key } => self.inspect(key).await,
            Op::InspectQueue { key } => self.inspect_queue(key).await,
            Op::ForceRelease { key, foreign } => self.force_release(key, *foreign).await,
            // refused above the store, by its capabilities
            _ => {
                let words = format!("etcd:// has no {}", op.name());
                Err(CallError { code: code::UNIMPLEMENTED, words, unsent: true, broken: false })
            }
        }
    }

    /// Verifies a hold, renews it, and writes how often its owner has it.
    async fn set_count(&self, claim: &Claim, count: u64, ttl_ms: u64) -> Result<VouchedReply, CallError> {
        let (since, verdicts, found) = self.renew(&[(claim.clone(), ttl_ms)]).await?;
        match (verdicts.first(), found.keys(0).first()) {
            (Some(Renewal::Renewed), Some(found)) => {
                let entry = PlaceEntry::read(&found.value);
                if entry.count == count {
                    return Ok((since, Reply::Counted(true)));
                }
                // an extension may be moving it to another lease
                let put = messages::put_op(&messages::put_value(&found.key, &PlaceEntry { count, ..entry }.write()));
                let compare = [messages::created_at(&found.key, found.created)];
                let answer: TxnReply = self.write(path::TXN, messages::txn(&compare, &[put], &[])).await?;
                Ok((since, Reply::Counted(answer.succeeded)))
            }
            (Some(Renewal::Failed(_)), _) => Err(CallRequest::leader_moves()),
            _ => Ok((since, Reply::Counted(false))),
        }
    }

    /// Deletes its key. Its lease goes, too, and with it what is still under way to make the key.
    pub(super) async fn release(&self, claim: &Claim) -> Result<VouchedReply, CallError> {
        let (directory, begun) = (self.directory(&claim.key), clock::now());
        let generation = self.held(claim).map_or(0, |held| held.generation);
        let key = names::place(&directory, &claim.token);
        let deleted: Deleted = self.write(path::DELETE_RANGE, messages::delete(&key)).await?;
        lock(&self.shared.holds).remove(claim);
        // an extension may have moved it to another lease than is known
        // more than this key may hang on the lease of somebody else who wrote it
        let is_own = |found: &&KeyValue| PlaceEntry::read(&found.value).token == claim.token.as_bytes();
        let lease = deleted.previous.first().filter(is_own).map(|previous| previous.lease).filter(|lease| *lease != 0);
        let lease = lease.unwrap_or_else(|| names::lease(&directory, &claim.token, generation));
        // a request that makes the key may be under way; that the lease is gone already is no failure
        match self.ask::<Done>(path::LEASE_REVOKE, messages::lease(lease)).await {
            Err(error) if deleted.count == 0 && !failure::is_lease_gone(&error) => return Err(error),
            _ => {}
        }
        Ok((begun, Reply::Released(deleted.count > 0)))
    }

    async fn inspect(&self, key: &Key) -> Result<VouchedReply, CallError> {
        let (directory, begun) = (self.directory(key), clock::now());
        let found: Ranged = self.ask(path::RANGE, messages::oldest(&directory, 1)).await?;
        let Some(first) = found.keys.first() else { return Ok((begun, Reply::Inspected(None))) };
        let mut ttl_left_ms = None;
        if first.lease != 0 {
            let left: Lease = self.ask(path::LEASE_TIME_TO_LIVE, messages::lease(first.lease)).await?;
            ttl_left_ms = Some(u64::try_from(left.ttl).unwrap_or(0).saturating_mul(1000));
        }
        if !names::is_place(&directory, first) {
            let (kind, holder) = (Err(names::FOREIGN.to_owned()), first.value.clone());
            let seen = InspectedKey { kind, holder, count: 0, ttl_left_ms, fence: None, info: None };
            return Ok((begun, Reply::Inspected(Some(seen))));
        }
        let PlaceEntry { token, count, info } = PlaceEntry::read(&first.value);
        // other clients write nothing: their key tells who it is
        let holder = if token.is_empty() { &first.key[directory.len()..] } else { token };
        let seen = InspectedKey {
            kind: Ok(names::kind(token)),
            holder: holder.to_vec(),
            count,
            ttl_left_ms,
            fence: Some(self.fence(first.created)),
            info: info.map(<[u8]>::to_vec),
        };
        Ok((begun, Reply::Inspected(Some(seen))))
    }

    async fn inspect_queue(&self, key: &Key) -> Result<VouchedReply, CallError> {
        let (directory, begun) = (self.directory(key), clock::now());
        let found: Ranged = self.ask(path::RANGE, messages::oldest(&directory, 1 + PLACES_TOLD)).await?;
        let place = |found: &KeyValue| {
            let PlaceEntry { token, info, .. } = PlaceEntry::read(&found.value);
            QueuePlace { number: found.created.cast_unsigned(), info: info.unwrap_or(token).to_vec() }
        };
        let length = u64::try_from(found.count).unwrap_or(0).saturating_sub(1);
        let places = found.keys.iter().skip(1).map(place).collect();
        Ok((begun, Reply::Queue(QueueSight { length, places })))
    }

    async fn force_release(&self, key: &Key, foreign: bool) -> Result<VouchedReply, CallError> {
        let (directory, begun) = (self.directory(key), clock::now());
        for _ in 0..RACES {
            let found: Ranged = self.ask(path::RANGE, messages::oldest(&directory, 1)).await?;
            let Some(first) = found.keys.first() else { return Ok((begun, Reply::Forced(false))) };
            if !foreign && !names::is_claim(&directory, first) {
                return Ok((begun, Reply::WrongKind { found: names::FOREIGN.to_owned() }));
            }
            let compare = [messages::created_at(&first.key, first.created)];
            let txn = messages::txn(&compare, &[messages::delete_op(&first.key)], &[]);
            let answer: TxnReply = self.write(path::TXN, txn).await?;
            if answer.succeeded {
                return Ok((begun, Reply::Forced(true)));
            }
        }
        let words = "the lock changed hands again and again".to_owned();
        Err(CallError { code: code::ABORTED, words, unsent: true, broken: false })
    }
}

/// What every match of a pattern begins with.
fn literal(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
    &pattern[..end]
}

/// One step of a listing. A cursor is the last key that was looked at, in hex.
pub(super) async fn scan(shared: &Arc<ClusterClient>, scan: &Scan, until: Time) -> Result<Scanned, Failure> {
    let cluster = &shared.connector.cluster;
    let mut prefix = names::directory(cluster, literal(&scan.pattern));
    // without the / behind a name
    prefix.pop();
    let from = match &scan.cursor {
        Some(cursor) => {
            let mut last = from_hex(cursor).filter(|key| key.starts_with(&prefix)).ok_or_else(foreign_cursor)?;
            last.push(0);
            last
        }
        None if prefix.is_empty() => vec![0],
        None => prefix.clone(),
    };
    let limit = i64::from(scan.count.max(1));
    let found: Ranged = shared
        .query(until, |connection, until| {
            let (from, prefix) = (from.clone(), prefix.clone());
            async move {
                let request = CallRequest::new(shared, &connection, until);
                request.ask(path::RANGE, messages::listed(&prefix, &from, limit)).await
            }
        })
        .await?;
    let mut keys: Vec<Key> = found.keys.iter().filter_map(|found| names::name(cluster, found)).collect();
    keys.dedup();
    keys.retain(|key| glob::matches(&scan.pattern, key));
    let next = found.keys.last().filter(|_| found.more).map(|last| hex(&last.key));
    Ok(Scanned { keys, next })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    if text.len().is_multiple_of(2) { digits.collect() } else { None }
}
