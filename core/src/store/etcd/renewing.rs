//! Renewing holds, and giving them longer leases.

use super::LEASE_MIN_S;
use super::failure;
use super::grpc::CallError;
use super::messages::{self, KeyValue, Lease, TxnReply, path};
use super::names::{self, PlaceEntry};
use super::request::CallRequest;
use crate::machine::{Claim, Renewal, SessionState, Time, whole_seconds};
use crate::sys::{clock, lock};

/// How often both halves of a proof are asked for: a hold may get a longer lease, and a new leader may be elected, meanwhile.
const ROUNDS: usize = 5;
/// So many leases further than the one that is known, a key is believed to hang on one of its own: extensions whose replies
/// were lost.
const GENERATIONS: u32 = 16;

impl CallRequest<'_> {
    /// Renews holds: the keepalive of each lease, then one read of all keys from a majority. The read proves that the
    /// keepalive was heard by the leader, that the key is there, and that it hangs on the lease that was kept.
    pub(super) async fn renew(&self, holds: &[(Claim, u64)]) -> Result<(Time, Vec<Renewal>, TxnReply), CallError> {
        let directories: Vec<Vec<u8>> = holds.iter().map(|(claim, _)| self.directory(&claim.key)).collect();
        let at = |at: usize| (&directories[at], &*holds[at].0.token);
        let reads =
            (0..holds.len()).map(|each| messages::range_op(&messages::one(&names::place(at(each).0, at(each).1))));
        let reads: Vec<_> = reads.collect();
        let mut rounds = 0;
        loop {
            rounds += 1;
            let since = clock::now();
            let generations: Vec<u32> =
                holds.iter().map(|(claim, _)| self.held(claim).map_or(0, |held| held.generation)).collect();
            let leases = generations.iter().enumerate();
            let leases: Vec<i64> = leases.map(|(each, number)| names::lease(at(each).0, at(each).1, *number)).collect();
            let kept = self.keep_alive(&leases).await;
            // one lease that the server does not answer for costs the others nothing
            let failed = kept.iter().filter_map(|kept| kept.as_ref().err());
            if let Some(error) =
                failed.clone().find(|error| failed.clone().count() == kept.len() || self.concerns_all(error))
            {
                return Err(error.clone());
            }
            let answer: TxnReply = self.ask(path::TXN, messages::txn(&[], &reads, &[])).await?;
            let (mut verdicts, mut asks_again) = (Vec::with_capacity(holds.len()), false);
            for (each, ((claim, ttl_ms), kept)) in holds.iter().zip(&kept).enumerate() {
                // the next round would wait for the same silence
                let mut is_silent = false;
                let verdict = match (self.own(claim, answer.keys(each)), kept) {
                    (None, _) => Renewal::NotMine,
                    (Some(found), _) if found.lease != leases[each] => {
                        if self.adopt(claim, at(each).0, generations[each], found.lease) {
                            Renewal::Failed("it hangs on another lease of its own".to_owned())
                        } else {
                            Renewal::NotMine
                        }
                    }
                    (Some(_), Err(error)) => {
                        is_silent = true;
                        Renewal::Failed(error.words.clone())
                    }
                    (Some(found), Ok(kept)) => match kept.confirmed_in(answer.header.term, *ttl_ms) {
                        SessionState::AliveSince(_) => Renewal::Renewed,
                        // the key is there: the word that its lease is over is older, or will come true
                        SessionState::Unproven | SessionState::Over => {
                            Renewal::Failed(CallRequest::leader_moves().words)
                        }
                        SessionState::TooShort => match self.lengthen(claim, generations[each], found, *ttl_ms).await {
                            Ok(()) => Renewal::Failed("its lease was replaced by a longer one".to_owned()),
                            Err(error) if holds.len() == 1 || self.concerns_all(&error) => return Err(error),
                            Err(error) => Renewal::Failed(error.words),
                        },
                    },
                };
                asks_again |= matches!(verdict, Renewal::Failed(_)) && !is_silent;
                verdicts.push(verdict);
            }
            if !asks_again || rounds == ROUNDS {
                return Ok((since, verdicts, answer));
            }
        }
    }

    fn concerns_all(&self, error: &CallError) -> bool {
        failure::refusal(error, &self.connection.place).ends_connection
    }

    /// Its key, if this is the one that was made for this hold.
    fn own<'a>(&self, claim: &Claim, found: &'a [KeyValue]) -> Option<&'a KeyValue> {
        let found = found.first()?;
        let is_own = PlaceEntry::read(&found.value).token == claim.token.as_bytes();
        let is_known = self.held(claim).is_none_or(|held| held.created == found.created);
        (is_own && is_known).then_some(found)
    }

    /// The key of a hold hangs on another lease than the one that was kept: that of an extension whose reply was lost, or
    /// that ended meanwhile. `false`: it is none of its leases, so somebody else has written the key.
    fn adopt(&self, claim: &Claim, directory: &[u8], known: u32, lease: i64) -> bool {
        let mut further = known + 1..=known + GENERATIONS;
        let Some(generation) = further.find(|number| names::lease(directory, &claim.token, *number) == lease) else {
            return false;
        };
        self.moved(claim, generation);
        self.revoke_later(names::lease(directory, &claim.token, known));
        true
    }

    /// Its key hangs on this lease by now. A reply that comes late tells of an earlier one.
    fn moved(&self, claim: &Claim, generation: u32) {
        if let Some(held) = lock(&self.shared.holds).get_mut(claim) {
            held.generation = held.generation.max(generation);
        }
    }

    /// Gives a hold a longer lease, in one step with the look whether it still hangs on the former one: a request that comes
    /// late moves nothing back.
    async fn lengthen(&self, claim: &Claim, generation: u32, found: &KeyValue, ttl_ms: u64) -> Result<(), CallError> {
        let longer = names::lease(&self.directory(&claim.key), &claim.token, generation + 1);
        let asked = messages::lease_grant(longer, whole_seconds(ttl_ms, LEASE_MIN_S));
        match self.ask::<Lease>(path::LEASE_GRANT, asked).await {
            Err(error) if !failure::is_lease_there(&error) => return Err(error),
            _ => {}
        }
        let compare = [messages::created_at(&found.key, found.created), messages::on_lease(&found.key, found.lease)];
        let put = messages::put_op(&messages::put_lease(&found.key, longer));
        let own = messages::range_op(&messages::one(&found.key));
        let answer: TxnReply = self.write(path::TXN, messages::txn(&compare, &[put], &[own])).await?;
        if answer.succeeded {
            self.moved(claim, generation + 1);
            self.revoke_later(found.lease);
        } else if answer.keys(0).first().is_none_or(|own| own.lease != longer) {
            // it is gone, or an extension that was faster moved it further: nobody can move it here any more
            self.revoke_later(longer);
        }
        Ok(())
    }
}
