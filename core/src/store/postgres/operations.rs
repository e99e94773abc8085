//! One operation as one statement, and its rows as a reply.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::error::Error as DriverError;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::statements::Statements;
use crate::error::ErrorKind;
use crate::machine::naming::RELEASED_VALUE;
use crate::machine::{Claim, Failure, InspectedKey, Key, Kind, Op, Outcome, Renewal, Reply};

/// After this time a renewal asks once more for what another session kept locked: mostly for the length of a commit.
const LOCKED_PAUSE: Duration = Duration::from_millis(5);
/// So often an acquire is repeated at once whose row changed hands while it looked.
pub(super) const RACES: usize = 8;

/// What a statement needs beside the operation.
pub(super) struct Statement<'a> {
    pub(super) client: &'a Client,
    pub(super) statements: &'a Statements,
    /// The server's address, for messages.
    pub(super) place: &'a str,
    /// Whether whoever waits hears of releases.
    pub(super) announces: bool,
    /// The table that was there when the connection was made, if that counts: where it votes as one of several.
    pub(super) table: Option<i64>,
}

/// A reply, and the server's clock in microseconds.
pub(super) type Replied = (Outcome<Reply>, Option<u64>);

/// A value and its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

pub(super) fn us(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX / 4)
}

pub(super) fn left_ms(us: Option<i64>) -> Option<u64> {
    // rounded up: it is not over before
    us.map(|us| (us.max(0).cast_unsigned()).div_ceil(1000))
}

pub(super) fn number(kind: Kind) -> i16 {
    if kind == Kind::Reentrant { 2 } else { 1 }
}

pub(super) fn kind(number: i16) -> Result<Kind, String> {
    match number {
        1 => Ok(Kind::Mutex),
        2 => Ok(Kind::Reentrant),
        other => Err(format!("kind {other}")),
    }
}

/// The length of the longest name in it.
pub(super) fn longest_name(op: &Op) -> usize {
    match op {
        Op::Acquire { claim, .. }
        | Op::Attach { claim, .. }
        | Op::SetCount { claim, .. }
        | Op::Release { claim }
        | Op::Undo { claim, .. }
        | Op::Retain { claim, .. }
        | Op::Vote { claim, .. }
        | Op::WriteBack { claim, .. } => claim.key.len(),
        Op::Inspect { key } | Op::ForceRelease { key, .. } => key.len(),
        Op::Renew { holds } => holds.iter().map(|(claim, _)| claim.key.len()).max().unwrap_or(0),
        // it has none of the others
        _ => 0,
    }
}

pub(super) fn applied(reply: Reply, now_us: i64) -> Replied {
    (Outcome::Applied(reply), Some(now_us.cast_unsigned()))
}

impl Statement<'_> {
    pub(super) async fn row(&self, text: &str, parameters: &[Parameter<'_>]) -> Result<Row, DriverError> {
        self.client.query_typed_one(text, parameters).await
    }

    pub(super) async fn carry_out(&self, op: &Op) -> Result<Replied, DriverError> {
        match op {
            Op::Acquire { claim, ttl_ms, fence_ttl_ms, info } => {
                self.acquire(claim, *ttl_ms, fence_ttl_ms.is_some(), info.as_ref()).await
            }
            Op::Attach { claim, from, ttl_ms, info } => self.attach(claim, from, *ttl_ms, info.as_ref()).await,
            Op::Renew { holds } => self.renew(holds).await,
            Op::SetCount { claim, count, ttl_ms } => {
                let count = i64::try_from(*count).unwrap_or(i64::MAX);
                let (now_us, found) = self.hold(claim, *ttl_ms, Some(count)).await?;
                Ok(applied(Reply::Counted(found), now_us))
            }
            Op::Release { claim } => self.release(claim, true).await,
            Op::Undo { claim, quiet, .. } => self.release(claim, !quiet).await,
            Op::Retain { claim, rest_ms, .. } => {
                let (token, rest_us, nobody) = (&*claim.token, us(*rest_ms), RELEASED_VALUE);
                let parameters: [Parameter<'_>; 4] =
                    [(&&*claim.key, Type::BYTEA), (&token, Type::TEXT), (&rest_us, Type::INT8), (&nobody, Type::TEXT)];
                let row = self.row(&self.statements.retain, &parameters).await?;
                Ok(applied(Reply::Released(row.try_get(1)?), row.try_get(0)?))
            }
            Op::Inspect { key } => self.inspect(key).await,
            Op::ForceRelease { key, .. } => {
                let row = self.row(&self.statements.force, &[(&&**key, Type::BYTEA)]).await?;
                Ok(applied(Reply::Forced(row.try_get(1)?), row.try_get(0)?))
            }
            Op::Vote { claim, ttl_ms, fence, info } => self.vote(claim, *ttl_ms, *fence, info.as_deref()).await,
            Op::WriteBack { claim, fence, .. } => self.write_back(claim, *fence).await,
            // refused above the store, by its capabilities
            _ => {
                let failure = Failure::lasting(ErrorKind::Unsupported, format!("postgres:// has no {}", op.name()));
                Ok((Outcome::NotApplied(failure), None))
            }
        }
    }

    async fn acquire(
        &self,
        claim: &Claim,
        ttl_ms: u64,
        fenced: bool,
        info: Option<&Arc<str>>,
    ) -> Result<Replied, DriverError> {
        let (token, wanted, span_us, info) = (&*claim.token, number(claim.kind), us(ttl_ms), info.map(|info| &**info));
        let parameters: [Parameter<'_>; 6] = [
            (&&*claim.key, Type::BYTEA),
            (&token, Type::TEXT),
            (&wanted, Type::INT2),
            (&span_us, Type::INT8),
            (&info, Type::TEXT),
            (&fenced, Type::BOOL),
        ];
        let mut race = 0;
        loop {
            let row = self.row(&self.statements.acquire, &parameters).await?;
            let now_us = row.try_get(0)?;
            if let Some(fence) = row.try_get::<_, Option<i64>>(1)? {
                let again = row.try_get(4)?;
                let fence = fenced.then_some(fence.cast_unsigned());
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
                    return Ok(applied(Reply::Denied { ttl_left_ms, announces }, now_us));
                }
                // somebody else took it between the look and the write
                None if race < RACES => race += 1,
                None => return Ok(applied(Reply::Denied { ttl_left_ms: Some(1), announces }, now_us)),
            }
        }
    }

    async fn attach(
        &self,
        claim: &Claim,
        from: &Arc<str>,
        ttl_ms: u64,
        info: Option<&Arc<str>>,
    ) -> Result<Replied, DriverError> {
        let (token, wanted, span_us, info, from) =
            (&*claim.token, number(claim.kind), us(ttl_ms), info.map(|info| &**info), &**from);
        let parameters: [Parameter<'_>; 6] = [
            (&&*claim.key, Type::BYTEA),
            (&token, Type::TEXT),
            (&wanted, Type::INT2),
            (&span_us, Type::INT8),
            (&info, Type::TEXT),
            (&from, Type::TEXT),
        ];
        let row = self.row(&self.statements.attach, &parameters).await?;
        let reply = match (row.try_get::<_, Option<i64>>(1)?, row.try_get::<_, Option<bool>>(2)?) {
            (Some(fence), Some(fenced)) => {
                Reply::Granted { fence: fenced.then_some(fence.cast_unsigned()), again: row.try_get(3)? }
            }
            _ => Reply::Gone,
        };
        Ok(applied(reply, row.try_get(0)?))
    }

    async fn hold(&self, claim: &Claim, ttl_ms: u64, count: Option<i64>) -> Result<(i64, bool), DriverError> {
        let (token, span_us) = (&*claim.token, us(ttl_ms));
        let parameters: [Parameter<'_>; 4] =
            [(&&*claim.key, Type::BYTEA), (&token, Type::TEXT), (&span_us, Type::INT8), (&count, Type::INT8)];
        let row = self.row(&self.statements.hold, &parameters).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// One hold waits for its row, as long as the server lets it. Several go in one statement, which waits for none.
    async fn renew(&self, holds: &[(Claim, u64)]) -> Result<Replied, DriverError> {
        if let [(claim, ttl_ms)] = holds {
            let (now_us, found) = self.hold(claim, *ttl_ms, None).await?;
            let verdict = if found { Renewal::Renewed } else { Renewal::NotMine };
            return Ok(applied(Reply::Renewed(vec![verdict]), now_us));
        }
        let locked =
            || Renewal::Failed(format!("{}: another transaction keeps the row of this lock locked", self.place));
        let mut verdicts = vec![Renewal::NotMine; holds.len()];
        let mut now_us = self.renew_these(holds, &mut verdicts, &locked).await?;
        if verdicts.iter().any(|verdict| matches!(verdict, Renewal::Failed(_))) {
            tokio::time::sleep(LOCKED_PAUSE).await;
            now_us = self.renew_these(holds, &mut verdicts, &locked).await?;
        }
        Ok((Outcome::Applied(Reply::Renewed(verdicts)), now_us))
    }

    /// Asks for all that are not renewed yet. What is there as ours but was not moved is locked by another session; the rest
    /// is gone.
    async fn renew_these(
        &self,
        holds: &[(Claim, u64)],
        verdicts: &mut [Renewal],
        locked: &impl Fn() -> Renewal,
    ) -> Result<Option<u64>, DriverError> {
        let asked: Vec<usize> = (0..holds.len()).filter(|at| verdicts[*at] != Renewal::Renewed).collect();
        let names: Vec<&[u8]> = asked.iter().map(|at| &*holds[*at].0.key).collect();
        let owners: Vec<&str> = asked.iter().map(|at| &*holds[*at].0.token).collect();
        let spans: Vec<i64> = asked.iter().map(|at| us(holds[*at].1)).collect();
        let parameters: [Parameter<'_>; 3] =
            [(&names, Type::BYTEA_ARRAY), (&owners, Type::TEXT_ARRAY), (&spans, Type::INT8_ARRAY)];
        let rows = self.client.query_typed(&self.statements.renew, &parameters).await?;
        for at in &asked {
            verdicts[*at] = Renewal::NotMine;
        }
        let mut now_us = None;
        for row in rows {
            now_us = Some(row.try_get::<_, i64>(0)?.cast_unsigned());
            let number = row.try_get::<_, Option<i64>>(1)?.and_then(|number| usize::try_from(number - 1).ok());
            if let Some(at) = number.and_then(|number| asked.get(number)) {
                verdicts[*at] = if row.try_get(2)? { Renewal::Renewed } else { locked() };
            }
        }
        Ok(now_us)
    }

    async fn release(&self, claim: &Claim, tell: bool) -> Result<Replied, DriverError> {
        let token = &*claim.token;
        let ask = |tell: bool| async move {
            let parameters: [Parameter<'_>; 3] =
                [(&&*claim.key, Type::BYTEA), (&token, Type::TEXT), (&tell, Type::BOOL)];
            self.row(&self.statements.release, &parameters).await
        };
        let row = match ask(tell).await {
            // the queue of announcements is full, which undid the statement; those who wait will look
            Err(error) if tell && error.code().is_some_and(|code| code.code() == "54000") => ask(false).await?,
            other => other?,
        };
        let reply = match (row.try_get(1)?, row.try_get(2)?) {
            (true, true) => Reply::ReleasedToWaiters,
            (found, _) => Reply::Released(found),
        };
        Ok(applied(reply, row.try_get(0)?))
    }

    async fn inspect(&self, key: &Key) -> Result<Replied, DriverError> {
        let row = self.row(&self.statements.inspect, &[(&&**key, Type::BYTEA)]).await?;
        let now_us = row.try_get(0)?;
        let Some(found) = row.try_get::<_, Option<i16>>(1)? else {
            return Ok(applied(Reply::Inspected(None), now_us));
        };
        let kind = kind(found);
        let owner: String = row.try_get(2)?;
        let is_nobody = owner == RELEASED_VALUE;
        let count: i64 = row.try_get(3)?;
        let info: Option<String> = row.try_get(6)?;
        let fence: Option<i64> = row.try_get(5)?;
        // a lock that is kept by nobody for the rest of its shortest time looks as it does on other servers
        let (holder, count, info, fence) = match &kind {
            Ok(Kind::Reentrant) if is_nobody => (Vec::new(), 0, Some(owner.into_bytes()), None),
            Ok(Kind::Mutex) => (owner.into_bytes(), 1, info.map(String::into_bytes), fence),
            _ => (owner.into_bytes(), count.max(0).cast_unsigned(), info.map(String::into_bytes), fence),
        };
        let fence = fence.map(i64::cast_unsigned);
        let seen = InspectedKey { kind, holder, count, ttl_left_ms: left_ms(row.try_get(4)?), fence, info };
        Ok(applied(Reply::Inspected(Some(seen)), now_us))
    }
}
