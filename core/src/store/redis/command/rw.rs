//! The commands for read/write locks.

use redis::Cmd;

use super::call::{Announce, CommandForm, begin};
use super::scripts::SCRIPTS;
use crate::machine::{Claim, Kind, Op, naming};

/// The request for `op`, if it is about a read/write lock and not a renewal.
pub(super) fn command(op: &Op, form: CommandForm, announce: Announce) -> Option<Cmd> {
    match op {
        Op::Enter { claim, ttl_ms, fence_ttl_ms, info, entry } if claim.kind.is_shared() => {
            let verb = match (claim.kind, entry.window_ms) {
                (Kind::Read, 0) => "tryread",
                (Kind::Read, _) => "read",
                (_, 0) => "try",
                _ => "enter",
            };
            let mut command = call(verb, claim, form, announce);
            command.arg(*ttl_ms).arg(*fence_ttl_ms).arg(info.as_deref().unwrap_or_default()).arg(entry.window_ms);
            command.arg(entry.place.unwrap_or(0)).arg(entry.client.to_string()).arg(u8::from(entry.listens));
            Some(command)
        }
        Op::Downgrade { claim, ttl_ms, fence_ttl_ms, info } => {
            let mut command = call("downgrade", claim, form, announce);
            command.arg(*ttl_ms).arg(*fence_ttl_ms).arg(info.as_deref().unwrap_or_default());
            Some(command)
        }
        Op::SetCount { claim, ttl_ms, .. } if claim.kind.is_shared() => {
            let mut command = call("keep", claim, form, announce);
            command.arg(*ttl_ms);
            Some(command)
        }
        Op::Attach { claim, from, ttl_ms, info } if claim.kind.is_shared() => {
            let old = Claim { token: from.clone(), ..claim.clone() };
            let side = if claim.kind == Kind::Read { "read" } else { "write" };
            let more = Some(naming::timeout_key(&claim.key, &claim.token));
            let mut command = begin_call("attach", &old, more, form, announce);
            command.arg(*ttl_ms).arg(&*claim.token).arg(info.as_deref().unwrap_or_default()).arg(side);
            Some(command)
        }
        Op::Release { claim } | Op::Undo { claim, .. } if claim.kind.is_shared() => {
            Some(call("leave", claim, form, announce))
        }
        Op::Retain { claim, rest_ms, .. } if claim.kind.is_shared() => {
            let mut command = call("retain", claim, form, announce);
            command.arg(*rest_ms);
            Some(command)
        }
        _ => None,
    }
}

fn call(verb: &str, claim: &Claim, form: CommandForm, announce: Announce) -> Cmd {
    begin_call(verb, claim, None, form, announce)
}

/// Begins a call of the script: the keys, what to do, for whom, and where to tell it.
fn begin_call(verb: &str, claim: &Claim, more: Option<Vec<u8>>, form: CommandForm, announce: Announce) -> Cmd {
    let Claim { key, token, .. } = claim;
    let keys = 6 + usize::from(more.is_some());
    let mut command = begin(&SCRIPTS.rw_lock, form, keys, keys + 15, 10 * key.len() + 3 * token.len() + 240);
    command.arg(&**key).arg(naming::queue_key(key)).arg(naming::waiters_key(key)).arg(naming::fence_key(key));
    command.arg(naming::readers_key(key)).arg(naming::timeout_key(key, token));
    if let Some(more) = more {
        command.arg(more);
    }
    let (publish, count) = announce.for_grants();
    command.arg(verb).arg(&**token).arg(naming::channel(Kind::Write, key)).arg(publish).arg(count);
    let (one, other) = announce.to_all();
    command.arg(naming::channel(Kind::Read, key)).arg(one).arg(other);
    command
}
