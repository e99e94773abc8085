//! Voting as one of several independent stores: a vote on an acquire, and the token that the others acknowledged.

use tokio_postgres::error::Error as DriverError;
use tokio_postgres::types::Type;

use super::operations::{Parameter, RACES, Replied, Statement, applied, kind, left_ms, number, us};
use crate::error::ErrorKind;
use crate::machine::naming::RELEASED_VALUE;
use crate::machine::{Claim, Failure, Kind, Outcome, Proposal, Reply, token};

impl Statement<'_> {
    /// Takes the lock if it is free here. The fencing counter goes up to the proposal, or by one where it is further on.
    pub(super) async fn vote(
        &self,
        claim: &Claim,
        ttl_ms: u64,
        fence: Option<Proposal>,
        info: Option<&str>,
    ) -> Result<Replied, DriverError> {
        let (owner, wanted, span_us, fenced) = (&*claim.token, number(claim.kind), us(ttl_ms), fence.is_some());
        let proposed = fence.map(|fence| i64::try_from(fence.base).unwrap_or(i64::MAX));
        let parameters: [Parameter<'_>; 7] = [
            (&&*claim.key, Type::BYTEA),
            (&owner, Type::TEXT),
            (&wanted, Type::INT2),
            (&span_us, Type::INT8),
            (&info, Type::TEXT),
            (&fenced, Type::BOOL),
            (&proposed, Type::INT8),
        ];
        let mut race = 0;
        loop {
            let row = self.row(&self.statements.vote, &parameters).await?;
            let now_us = row.try_get(0)?;
            if let Some(fence) = row.try_get::<_, Option<i64>>(1)? {
                let table: Option<i64> = row.try_get(6)?;
                if self.table.is_some() && table != self.table {
                    // what was held in the former one is forgotten: this vote counts only once that is known
                    let detail = format!("{}: the table of locks was made anew", self.place);
                    let failure = Failure::transient(ErrorKind::Unavailable, detail);
                    return Ok((Outcome::Indeterminate(failure), None));
                }
                let (fence, again) = (fenced.then_some(fence.cast_unsigned()), row.try_get(4)?);
                return Ok(applied(Reply::Granted { fence, again }, now_us));
            }
            let announces = self.announces;
            match row.try_get::<_, Option<i16>>(2)? {
                Some(found) if found != wanted => {
                    let found = kind(found).map_or_else(|what| what, |kind| kind.as_str().to_owned());
                    return Ok(applied(Reply::WrongKind { found }, now_us));
                }
                Some(_) => {
                    let ttl_left_ms = left_ms(row.try_get(3)?);
                    let owner = row.try_get::<_, &str>(5)?;
                    // a reentrant lock that nobody holds for the rest of its shortest time has no owner elsewhere
                    let is_nobody = claim.kind == Kind::Reentrant && owner == RELEASED_VALUE;
                    let holder = token::digest(if is_nobody { "" } else { owner }.as_bytes());
                    return Ok(applied(Reply::Taken { ttl_left_ms, announces, holder }, now_us));
                }
                // somebody else took it between the look and the write
                None if race < RACES => race += 1,
                None => {
                    return Ok(applied(Reply::Taken { ttl_left_ms: Some(1), announces, holder: 0 }, now_us));
                }
            }
        }
    }

    /// Raises the counter of a hold that is still there.
    pub(super) async fn write_back(&self, claim: &Claim, fence: u64) -> Result<Replied, DriverError> {
        let (owner, fence) = (&*claim.token, i64::try_from(fence).unwrap_or(i64::MAX));
        let parameters: [Parameter<'_>; 3] = [(&&*claim.key, Type::BYTEA), (&owner, Type::TEXT), (&fence, Type::INT8)];
        let row = self.row(&self.statements.write_back, &parameters).await?;
        let written: Option<i64> = row.try_get(1)?;
        Ok(applied(Reply::Written(written.map(i64::cast_unsigned)), row.try_get(0)?))
    }
}
