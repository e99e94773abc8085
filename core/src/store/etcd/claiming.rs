//! Taking a lock: a key in its directory, the oldest of which holds it; and keeping a place there.

use super::failure;
use super::grpc::CallError;
use super::listener::Predecessor;
use super::messages::{self, KeyValue, Lease, Ranged, TxnReply, path};
use super::names::{self, PlaceEntry};
use super::request::{CallRequest, ROUNDS, VouchedReply};
use super::{Held, LEASE_MIN_S};
use crate::error::ErrorKind;
use crate::machine::{Claim, Failure, Kind, Reply, SessionState, Time, whole_seconds};
use crate::sys::{clock, lock};

/// So many of the places before one's own are counted.
const COUNTED: i64 = 64;

/// What is asked for.
pub(super) struct WantedLock<'a> {
    pub(super) claim: &'a Claim,
    pub(super) ttl_ms: u64,
    /// The inspection text, of a kind whose token does not have it.
    pub(super) info: Option<&'a str>,
    pub(super) fenced: bool,
    /// Whether it takes a place if it is not its turn.
    pub(super) waits: bool,
}

/// Where a claim stands.
struct ClaimStanding<'a> {
    /// The revision at which its key was made.
    created: i64,
    /// The keys before it, the newest first.
    before: &'a [KeyValue],
    /// The revision at which this was so.
    revision: i64,
    /// From when the server counts its lease.
    since: Time,
    /// It was there before this request.
    again: bool,
}

/// The token is of no more use; the next attempt makes another one.
fn dead(why: &str) -> Reply {
    Reply::Unconfirmed(Failure::transient(ErrorKind::Unavailable, why))
}

impl CallRequest<'_> {
    /// Asks for a lock, for the first time with this token as far as is known. A repeated request finds its key.
    pub(super) async fn enter(&self, wanted: &WantedLock<'_>) -> Result<VouchedReply, CallError> {
        let claim = wanted.claim;
        let (directory, begun) = (self.directory(&claim.key), clock::now());
        let (key, lease) = (names::place(&directory, &claim.token), names::lease(&directory, &claim.token, 0));
        let denied = (begun, Reply::Denied { ttl_left_ms: None, announces: true });
        if !wanted.waits {
            // a refusal writes nothing
            let found: Ranged = self.ask(path::RANGE, messages::oldest(&directory, 1)).await?;
            if let Some(first) = found.keys.first().filter(|first| first.key != key) {
                if names::is_place(&directory, first) {
                    return Ok(denied);
                }
                return Ok((begun, Reply::WrongKind { found: names::FOREIGN.to_owned() }));
            }
        }
        let since = clock::now();
        let asked = messages::lease_grant(lease, whole_seconds(wanted.ttl_ms, LEASE_MIN_S));
        let is_new = match self.grant(asked).await {
            Ok(Lease { ttl, .. }) if u64::try_from(ttl).unwrap_or(0).saturating_mul(1000) < wanted.ttl_ms => {
                return Ok((begun, dead("the server granted a shorter lease than it was asked for")));
            }
            Ok(_) => true,
            Err(error) if failure::is_lease_there(&error) => false,
            Err(error) => return Err(error),
        };
        let info = wanted.info.filter(|_| claim.kind != Kind::Mutex).map(str::as_bytes);
        let entry = PlaceEntry { token: claim.token.as_bytes(), count: 1, info };
        let put = messages::put_op(&messages::put(&key, &entry.write(), lease));
        let own = messages::range_op(&messages::one(&key));
        let txn = if wanted.waits {
            let others = messages::range_op(&messages::newest_before(&directory, None, COUNTED + 1));
            messages::txn(&[messages::created_at(&key, 0)], &[put, others], &[own])
        } else {
            messages::txn(&[messages::none_is_there(&directory)], &[put], &[own])
        };
        let answer: TxnReply = match self.write(path::TXN, txn).await {
            Err(error) if failure::is_lease_gone(&error) => {
                return Ok((begun, dead("its lease ended before the key was made")));
            }
            Err(error) => {
                self.refused_for_good(&error, lease);
                return Err(error);
            }
            Ok(answer) => answer,
        };
        let revision = answer.header.revision;
        match answer.keys(0).first() {
            _ if answer.succeeded && is_new => {
                let before: Vec<KeyValue> = answer.keys(1).iter().filter(|other| other.key != key).cloned().collect();
                let standing = ClaimStanding { created: revision, before: &before, revision, since, again: false };
                self.stands(wanted, &standing).await
            }
            // an earlier request made the lease, nobody knows when
            _ if answer.succeeded => self.look_again(wanted, revision, false).await,
            Some(own) if PlaceEntry::read(&own.value).token == claim.token.as_bytes() => {
                self.look_again(wanted, own.created, true).await
            }
            Some(_) => Ok((begun, dead("another token has the same lease"))),
            None => {
                self.revoke_later(lease);
                Ok(denied)
            }
        }
    }

    /// Keeps the place whose key was made at this revision, and looks whether it is its turn. A place that is gone is never
    /// made again under its token.
    pub(super) async fn look_again(
        &self,
        wanted: &WantedLock<'_>,
        created: i64,
        again: bool,
    ) -> Result<VouchedReply, CallError> {
        let claim = wanted.claim;
        let directory = self.directory(&claim.key);
        let (key, lease) = (names::place(&directory, &claim.token), names::lease(&directory, &claim.token, 0));
        for _ in 0..ROUNDS {
            let kept = self.keep_alive(&[lease]).await.into_iter().next().transpose()?;
            let before = messages::range_op(&messages::newest_before(&directory, Some(created), COUNTED));
            // a key on another lease was written by somebody else
            let compare = [messages::created_at(&key, created), messages::on_lease(&key, lease)];
            let txn = messages::txn(&compare, &[before], &[]);
            let answer: TxnReply = self.ask(path::TXN, txn).await?;
            if !answer.succeeded {
                return Ok((clock::now(), dead("its place in the queue is gone")));
            }
            let Some(kept) = kept else { continue };
            let since = match kept.confirmed_in(answer.header.term, wanted.ttl_ms) {
                SessionState::AliveSince(since) => since,
                // its key is there: the word that it is over is older, or will come true
                SessionState::Unproven | SessionState::Over => continue,
                SessionState::TooShort => {
                    return Ok((clock::now(), dead("its place was taken with a shorter lease")));
                }
            };
            let standing =
                ClaimStanding { created, before: answer.keys(0), revision: answer.header.revision, since, again };
            return self.stands(wanted, &standing).await;
        }
        Err(CallRequest::leader_moves())
    }

    async fn stands(&self, wanted: &WantedLock<'_>, standing: &ClaimStanding<'_>) -> Result<VouchedReply, CallError> {
        let claim = wanted.claim;
        let directory = self.directory(&claim.key);
        if !standing.before.iter().all(|other| names::is_place(&directory, other)) {
            // it would wait for what nobody releases
            self.release(claim).await?;
            return Ok((standing.since, Reply::WrongKind { found: names::FOREIGN.to_owned() }));
        }
        let Some(predecessor) = standing.before.first() else {
            let held = Held { created: standing.created, generation: 0 };
            lock(&self.shared.holds).insert(claim.clone(), held);
            let fence = wanted.fenced.then(|| self.fence(standing.created));
            return Ok((standing.since, Reply::Granted { fence, again: standing.again }));
        };
        self.shared.listeners.set(
            &(claim.kind, claim.key.clone()),
            Predecessor {
                key: predecessor.key.clone(),
                created: predecessor.created,
                from: standing.revision.saturating_add(1),
            },
        );
        let queued = Reply::Queued {
            place: standing.created.cast_unsigned(),
            ahead: standing.before.len() as u64,
            look_in_ms: None,
            unheard: false,
            horizon: Some(self.fence(standing.revision)),
        };
        Ok((standing.since, queued))
    }
}
