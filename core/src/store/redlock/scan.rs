//! Listing what stands on several servers: one after the other, each key once.

use futures_util::future::join_all;

use super::member::is_refusal;
use super::{RedlockState, server_info};
use crate::machine::{Failure, Key, Kind, Time};
use crate::store::{Scan, Scanned, foreign_cursor};
use crate::sys::clock;

/// One step on one server. A cursor is `<server>:<its own>`.
///
/// What an earlier server has too was told with that one. A server that cannot be asked is passed over, since whatever a
/// majority holds stands on others as well; without a majority there is nothing to tell.
pub(super) async fn step(inner: &RedlockState, scan: &Scan, until: Time) -> Result<Scanned, Failure> {
    let (number, cursor) = match &scan.cursor {
        None => (0, ""),
        Some(cursor) => {
            let parts = cursor.split_once(':').and_then(|(number, rest)| Some((number.parse().ok()?, rest)));
            parts.ok_or_else(foreign_cursor)?
        }
    };
    let member = inner.members.get(number).ok_or_else(foreign_cursor)?;
    let following = (number + 1 < inner.members.len()).then(|| format!("{}:", number + 1));
    match member.scan(scan, cursor, inner.limit(clock::now(), until)).await {
        Ok(Scanned { keys, next }) => {
            let next = next.map(|next| format!("{number}:{next}")).or(following);
            Ok(Scanned { keys: new(inner, number, keys, until).await, next })
        }
        Err(failure) if is_refusal(&failure) => Err(failure),
        Err(_) => {
            majority_is_there(inner, until).await?;
            Ok(Scanned { keys: Vec::new(), next: following })
        }
    }
}

/// Those that no server before this one has.
async fn new(inner: &RedlockState, number: usize, keys: Vec<Key>, until: Time) -> Vec<Key> {
    let known = join_all(keys.iter().map(|key| async {
        let limit = inner.limit(clock::now(), until);
        let looks = inner.members[..number].iter().map(|member| member.has(key, limit));
        join_all(looks).await.contains(&true)
    }));
    keys.iter().zip(known.await).filter(|(_, known)| !known).map(|(key, _)| key.clone()).collect()
}

async fn majority_is_there(inner: &RedlockState, until: Time) -> Result<(), Failure> {
    let limit = inner.limit(clock::now(), until);
    let pings = join_all(inner.members.iter().map(|member| member.ping(limit))).await;
    let failures: Vec<&Failure> = pings.iter().filter_map(|ping| ping.as_ref().err()).collect();
    let (number, majority) = (inner.members.len(), inner.members.len() / 2 + 1);
    if number - failures.len() < majority { Err(server_info::failure(&failures, majority, number)) } else { Ok(()) }
}

/// As many as wait on the server where most do: who waits, waits on all of them.
pub(super) async fn listening(inner: &RedlockState, locks: &[(Kind, Key)], until: Time) -> Vec<Option<u64>> {
    let limit = inner.limit(clock::now(), until);
    let told = join_all(inner.members.iter().map(|member| member.listening(locks, limit))).await;
    let most = |lock: usize| told.iter().filter_map(|of_node| of_node.get(lock).copied().flatten()).max();
    (0..locks.len()).map(most).collect()
}
