//! What the server may never do, whatever the clients believe.

use std::collections::{BTreeMap, BTreeSet};

use onelock::machine::model::{Model, ModelReply, Value};
use onelock::machine::{Claim, Kind, Op, Outcome, Renewal, Reply, naming};

use crate::world::NAME;

/// What stands under the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) writer: Option<String>,
    /// Those with a field, an end that is not over, and a timeout key.
    pub(crate) readers: BTreeSet<String>,
    queued: BTreeSet<String>,
    pub(crate) ttl_left_ms: Option<u64>,
}

impl Standing {
    fn holds(&self, token: &str) -> bool {
        self.writer.as_deref() == Some(token) || self.readers.contains(token)
    }
}

#[derive(Default)]
pub(crate) struct Watch {
    /// Until when, in ms of the server, each token may keep others out.
    ends: BTreeMap<String, u64>,
    /// Those that were released, at once or for the rest of their shortest time.
    released: BTreeSet<String>,
    /// The highest fencing token, and whether it was a writer's.
    fence: Option<(u64, Kind)>,
}

impl Watch {
    /// Checks what a script did.
    pub(crate) fn answered(
        &mut self,
        model: &Model,
        server_us: u64,
        before: &Standing,
        op: &Op,
        answer: &ModelReply,
    ) -> Result<(), String> {
        let (after, now_ms) = (look(model, server_us), server_us.div_ceil(1000));
        let Outcome::Applied(reply) = &answer.outcome else { return Ok(()) };
        if let Some(both) = after.readers.iter().find(|reader| after.queued.contains(*reader)) {
            return Err(format!("{both} reads and waits to write"));
        }
        holders(before, &after, op, reply)?;
        match op {
            Op::Enter { claim, ttl_ms, .. } | Op::Downgrade { claim, ttl_ms, .. } => {
                if let Reply::Granted { fence, again } = reply {
                    let kind = if matches!(op, Op::Downgrade { .. }) { Kind::Read } else { claim.kind };
                    if !again {
                        // a late copy of a request that was granted is one more acquire
                        self.released.remove(&*claim.token);
                        let fence = fence.ok_or("a grant without a fencing token")?;
                        self.drawn(fence, kind)?;
                    }
                    // who comes from a place keeps for as long as that was kept, too
                    let window_ms = if let Op::Enter { entry, .. } = op { entry.window_ms } else { 0 };
                    self.lives(claim, now_ms + window_ms.max(*ttl_ms));
                }
            }
            Op::Attach { claim, from, ttl_ms, .. } => {
                if let Reply::Granted { .. } = reply {
                    self.lives(claim, now_ms + ttl_ms);
                    if let Some(end) = self.ends.remove(&**from) {
                        self.lives(claim, end);
                    }
                }
            }
            Op::Renew { holds } => {
                if let Reply::Renewed(verdicts) = reply
                    && verdicts[0] == Renewal::Renewed
                {
                    self.revived(&holds[0].0)?;
                    self.lives(&holds[0].0, now_ms + holds[0].1);
                }
            }
            Op::SetCount { claim, ttl_ms, .. } => {
                if let Reply::Counted(true) = reply {
                    self.revived(claim)?;
                    self.lives(claim, now_ms + ttl_ms);
                }
            }
            Op::Release { claim } | Op::Undo { claim, .. } => {
                if *reply == Reply::Released(true) {
                    self.ends.remove(&*claim.token);
                }
                self.released.insert(claim.token.to_string());
            }
            Op::Retain { claim, rest_ms, .. } => {
                if let Reply::Released(true) = reply {
                    if !self.released.insert(claim.token.to_string()) {
                        return Err("a second copy of a release keeps the key once more".into());
                    }
                    self.ends.insert(claim.token.to_string(), now_ms + rest_ms);
                }
            }
            _ => {}
        }
        for grant in answer.granted.iter().filter(|grant| grant.fence > 0) {
            self.released.remove(&*grant.claim.token);
            self.drawn(grant.fence, Kind::Write)?;
            self.lives(&grant.claim, now_ms + 3_000);
        }
        let last = self.ends.values().max().copied().unwrap_or(0);
        match after.ttl_left_ms {
            Some(left) if server_us / 1000 + left > last + 1 => Err(format!(
                "others are kept out for {left} ms, and the last hold ends in {} ms",
                last.saturating_sub(now_ms)
            )),
            _ => Ok(()),
        }
    }

    fn drawn(&mut self, fence: u64, kind: Kind) -> Result<(), String> {
        let grows =
            self.fence.is_none_or(|(last, of)| fence > last || fence == last && of == kind && kind == Kind::Read);
        if !grows {
            return Err(format!("fencing token {fence} of a {kind:?} after {:?}", self.fence));
        }
        self.fence = Some((fence, kind));
        Ok(())
    }

    fn lives(&mut self, claim: &Claim, until_ms: u64) {
        let end = self.ends.entry(claim.token.to_string()).or_default();
        *end = (*end).max(until_ms);
    }

    fn revived(&self, claim: &Claim) -> Result<(), String> {
        if self.released.contains(&*claim.token) { Err("a released lease is renewed".into()) } else { Ok(()) }
    }
}

pub(crate) fn look(model: &Model, server_us: u64) -> Standing {
    let now_ms = server_us / 1000;
    let live = model.live(server_us);
    let value = |key: &[u8]| live.iter().find(|live| *live.key == *key);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let queued = model.queue_of(server_us, NAME).iter().map(|token| text(token)).collect();
    let mut standing = Standing { queued, ..Standing::default() };
    let Some(lock) = value(NAME) else { return standing };
    standing.ttl_left_ms = lock.ttl_left_ms.or(Some(u64::MAX / 2));
    let Value::Hash(fields) = &lock.value else { return standing };
    let ends = match value(&naming::readers_key(NAME)).map(|live| &live.value) {
        Some(Value::Sorted(ends)) => ends.clone(),
        _ => BTreeMap::new(),
    };
    for (field, _) in fields {
        let owner = text(field);
        if let Some(writer) = owner.strip_suffix(":write") {
            standing.writer = Some(writer.to_owned());
        } else if ends.get(field).is_some_and(|end| *end > now_ms)
            && value(&naming::timeout_key(NAME, &owner)).is_some()
        {
            standing.readers.insert(owner);
        }
    }
    standing
}

/// Nobody comes in beside somebody, and nobody who was in is thrown out, by somebody else's request.
fn holders(before: &Standing, after: &Standing, op: &Op, reply: &Reply) -> Result<(), String> {
    if after.writer.is_some() && !after.readers.is_empty() {
        return Err(format!("a writer beside readers: {after:?}"));
    }
    let (tokens, enters): (Vec<&str>, bool) = match op {
        Op::Enter { claim, .. } => (vec![&claim.token], true),
        Op::Downgrade { claim, .. } => (vec![&claim.token], false),
        Op::Attach { claim, from, .. } => (vec![&claim.token, from], true),
        Op::Renew { holds } => (vec![&holds[0].0.token], false),
        Op::SetCount { claim, .. } | Op::Release { claim } | Op::Undo { claim, .. } | Op::Retain { claim, .. } => {
            (vec![&claim.token], false)
        }
        _ => (vec![], false),
    };
    if let Some(gone) = before
        .readers
        .iter()
        .chain(&before.writer)
        .find(|holder| !after.holds(holder) && !tokens.contains(&holder.as_str()))
    {
        return Err(format!("{gone} is thrown out by a request of somebody else"));
    }
    if !enters && !before.holds(tokens[0]) && after.holds(tokens[0]) && before.writer != after.writer {
        return Err("a hold is made by what makes none".into());
    }
    if !enters && !before.holds(tokens[0]) && after.readers.contains(tokens[0]) {
        return Err("a hold is made by what makes none".into());
    }
    if let (Op::Downgrade { claim, .. }, true) = (op, before.writer.as_deref() == Some(tokens[0]))
        && !(matches!(reply, Reply::Granted { .. }) && after.readers.contains(&*claim.token))
    {
        return Err("a writer that becomes a reader holds nothing for a moment".into());
    }
    Ok(())
}
