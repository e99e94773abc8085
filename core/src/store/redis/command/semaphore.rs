//! The commands for the permits of a semaphore, and the replies to them.

use redis::Cmd;

use super::request::{Announce, CommandForm, begin};
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
        Op::AcquirePermits { claim, total, ttl_ms } => {
            let (prefix, count) = permits(claim)?;
            let mut command = call("acquire", &claim.key, form);
            command.arg(&prefix).arg(count).arg(*ttl_ms).arg(total.unwrap_or(0)).arg(naming::fence_ttl_ms(*ttl_ms));
            Some(command)
        }
        Op::Attach { claim, from, ttl_ms, .. } => {
            let (prefix, count) = permits(claim)?;
            // of another number of permits: then nothing is there that could be exchanged
            let (old, _) = parse_permits(from).filter(|(_, old)| *old == count).unwrap_or_default();
            let mut command = call("attach", &claim.key, form);
            command.arg(&old).arg(count).arg(*ttl_ms).arg(naming::fence_ttl_ms(*ttl_ms)).arg(&prefix);
            Some(command)
        }
        Op::Release { claim } => release(claim, false, form, announce),
        Op::Undo { claim, quiet, .. } => release(claim, *quiet, form, announce),
        Op::Retain { claim, rest_ms, .. } => {
            let (prefix, count) = permits(claim)?;
            let mut command = call("retain", &claim.key, form);
            command.arg(&prefix).arg(count).arg(*rest_ms);
            tell(&mut command, &claim.key, announce);
            Some(command)
        }
        Op::InspectPermits { key } => Some(call("look", key, form)),
        Op::SetPermits { key, total } => {
            let mut command = call("set", key, form);
            command.arg(*total).arg(naming::FENCE_TTL_MIN_MS);
            tell(&mut command, key, announce);
            Some(command)
        }
        Op::ForceReleasePermits { key } => {
            let mut command = call("force", key, form);
            tell(&mut command, key, announce);
            Some(command)
        }
        _ => None,
    }
}

fn release(claim: &Claim, quiet: bool, form: CommandForm, announce: Announce) -> Option<Cmd> {
    let (prefix, count) = permits(claim)?;
    let mut command = call("release", &claim.key, form);
    command.arg(&prefix).arg(count);
    if quiet {
        command.arg("");
    } else {
        tell(&mut command, &claim.key, announce);
    }
    Some(command)
}

/// Begins a call of the script: the keys, and what to do.
fn call(verb: &str, key: &Key, form: CommandForm) -> Cmd {
    let mut command = begin(&SCRIPTS.semaphore, form, 3, 10, 4 * key.len() + 128);
    command.arg(&**key).arg(naming::permits_key(key)).arg(naming::fence_key(key)).arg(verb);
    command
}

/// Adds where to publish the number of free permits.
fn tell(command: &mut Cmd, key: &Key, announce: Announce) {
    command.arg(naming::channel(Kind::Semaphore, key));
    announce.add_to(command);
}
