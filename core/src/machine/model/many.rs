//! Several mutexes at once.

use super::{Model, Moment, Relation};
use crate::machine::naming::fence_ttl_ms;
use crate::machine::op::{Claim, Proposal, Reply};
use crate::machine::outcome::Outcome;

impl Model {
    /// Looks at all before it takes any.
    pub(super) fn acquire_many(&mut self, now: Moment, claims: &[(Claim, u64)], fenced: bool) -> Reply {
        for (index, (claim, _)) in claims.iter().enumerate() {
            let refusal = match self.relation(now, claim, fenced) {
                Relation::Free | Relation::Mine => continue,
                Relation::Others { ttl_left_ms, announces } => Reply::Denied { ttl_left_ms, announces },
                Relation::Wrong(found) => Reply::WrongKind { found: found.to_owned() },
            };
            return Reply::RefusedAt { index, reply: Box::new(refusal) };
        }
        let take = |(claim, ttl_ms): &(Claim, u64)| {
            let fence = fenced.then(|| Proposal { base: now.us, ttl_ms: fence_ttl_ms(*ttl_ms) });
            self.acquire(now, claim, *ttl_ms, fence, None)
        };
        Reply::Many(claims.iter().map(take).collect())
    }

    /// Each as if alone.
    pub(super) fn release_many(&mut self, now: Moment, claims: &[Claim]) -> Reply {
        let one = |claim: &Claim| match self.release(now, claim).outcome {
            Outcome::Applied(reply) => reply,
            Outcome::NotApplied(_) | Outcome::Indeterminate(_) => Reply::Released(false),
        };
        Reply::Many(claims.iter().map(one).collect())
    }
}
