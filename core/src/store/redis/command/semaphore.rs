//! The commands for the permits of a semaphore, and the replies to them.

use redis::Cmd;

use super::call::{Announce, CommandForm, begin};
use super::scripts::SCRIPTS;
use crate::machine::token::{PREFIX_BYTES, parse_permits};
use crate::machine::{Claim, Key, Kind, Op, naming};

/// What the ids of a claim's permits begin with, and how many there are; `None` for any other kind.
pub(super) fn permits(claim: &Claim) -> Option<([u8; PREFIX_BYTES], u16)> {
    (claim.kind == Kind::Semaphore).then(|| parse_permits(&claim.token).unwrap_or_default())
}

/// The request for `op`, if it is about permits and not a renewal.
pub(super) fn command(op: &Op, form: CommandForm, announce: Announce) -> Option<Cmd> {
    match op {
        Op::AcquirePermits { claim, total, ttl_ms, info, entry } => {
            let verb = if entry.window_ms == 0 { "try" } else { "enter" };
            let mut command = call_for(verb, claim, Told::All, form, announce)?;
            command.arg(*ttl_ms).arg(total.unwrap_or(0)).arg(naming::fence_ttl_ms(*ttl_ms));
            command.arg(entry.window_ms).arg(entry.place.unwrap_or(0)).arg(entry.client.to_string());
            command.arg(u8::from(entry.listens)).arg(info.as_deref().unwrap_or_default());
            Some(command)
        }
        Op::Attach { claim, from, ttl_ms, .. } => {
            let (prefix, count) = permits(claim)?;
            // of another number of permits: then nothing is there that could be exchanged
            let (old, _) = parse_permits(from).filter(|(_, old)| *old == count).unwrap_or_default();
            let mut command = call("attach", &claim.key, "", Told::Nobody, form, announce);
            command.arg(&old).arg(count).arg(*ttl_ms).arg(naming::fence_ttl_ms(*ttl_ms)).arg(&prefix);
            Some(command)
        }
        Op::Release { claim } => call_for("release", claim, Told::All, form, announce),
        Op::Undo { claim, quiet, .. } => {
            call_for("release", claim, if *quiet { Told::Nobody } else { Told::All }, form, announce)
        }
        Op::Retain { claim, rest_ms, .. } => {
            let mut command = call_for("retain", claim, Told::All, form, announce)?;
            command.arg(*rest_ms);
            Some(command)
        }
        Op::InspectPermits { key } => Some(call("look", key, "", Told::Nobody, form, announce)),
        Op::SetPermits { key, total } => {
            let mut command = call("set", key, "", Told::All, form, announce);
            command.arg(*total).arg(naming::FENCE_TTL_MIN_MS);
            Some(command)
        }
        Op::ForceReleasePermits { key } => Some(call("force", key, "", Told::All, form, announce)),
        _ => None,
    }
}

/// Who learns of free permits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The first places in the queue, and Redisson's clients.
    All,
    /// Nobody, and the queue is left alone: works while the slot moves, with the keys that are there.
    Nobody,
}

/// Begins a call for the permits of a claim; `None` for any other kind.
fn call_for(verb: &str, claim: &Claim, told: Told, form: CommandForm, announce: Announce) -> Option<Cmd> {
    let (prefix, count) = permits(claim)?;
    let mut command = call(verb, &claim.key, &claim.token, told, form, announce);
    command.arg(&prefix).arg(count);
    Some(command)
}

/// Begins a call of the script: the keys, what to do, for whom, and where to tell it.
fn call(verb: &str, key: &Key, token: &str, told: Told, form: CommandForm, announce: Announce) -> Cmd {
    let mut command = begin(&SCRIPTS.semaphore, form, 5, 22, 8 * key.len() + 2 * token.len() + 240);
    command.arg(&**key);
    if told == Told::All {
        command.arg(naming::queue_key(key)).arg(naming::waiters_key(key));
    } else {
        command.arg(&**key).arg(&**key);
    }
    command.arg(naming::fence_key(key)).arg(naming::permits_key(key));
    let (publish, count) = announce.for_grants();
    command.arg(verb).arg(token).arg(naming::channel(Kind::Semaphore, key)).arg(publish).arg(count);
    let channel = if told == Told::All { naming::permits_channel(key) } else { Vec::new() };
    let (one, other) = announce.to_all();
    command.arg(channel).arg(one).arg(other);
    command
}
