//! The command for an operation.

use redis::Cmd;

use super::call::{Announce, CommandForm, begin};
use super::scripts::SCRIPTS;
use super::{rw, semaphore};
use crate::machine::{Claim, HoldLayout, Key, Kind, Op, Proposal, naming};

/// Whether a plain command suffices: taking a mutex without fencing.
pub(crate) fn is_plain(op: &Op) -> bool {
    matches!(op, Op::Acquire { claim, fence_ttl_ms: None, .. } if claim.kind == Kind::Mutex)
}

/// The request for `op`.
pub(crate) fn command(op: &Op, form: CommandForm, announce: Announce) -> Cmd {
    let scripts = &*SCRIPTS;
    if let Some(command) = semaphore::command(op, form, announce).or_else(|| rw::command(op, form, announce)) {
        return command;
    }
    match op {
        Op::Acquire { claim, ttl_ms, fence_ttl_ms, info } => {
            let terms = AcquireTerms { ttl_ms: *ttl_ms, fence_ttl_ms: *fence_ttl_ms, proposed: None };
            acquire(claim, &terms, info.as_deref(), form)
        }
        Op::AcquireMany { claims, fenced } => acquire_many(claims, *fenced, form),
        Op::ReleaseMany { claims } => release_many(claims, announce, form),
        Op::Enter { claim, ttl_ms, fence_ttl_ms, info, entry } => {
            let verb = if entry.window_ms == 0 { "try" } else { "enter" };
            let mut command = queue(claim, verb, form, announce, 7);
            command.arg(*ttl_ms).arg(*fence_ttl_ms).arg(entry.window_ms).arg(entry.place.unwrap_or(0));
            command.arg(entry.client.to_string()).arg(u8::from(entry.listens)).arg(info.as_deref().unwrap_or_default());
            command
        }
        Op::Vote { claim, ttl_ms, fence, info } => {
            let fence_ttl_ms = fence.map(|fence| fence.ttl_ms);
            let proposed = fence.map_or(0, |Proposal { base, .. }| base);
            let terms = AcquireTerms { ttl_ms: *ttl_ms, fence_ttl_ms, proposed: Some(proposed) };
            acquire(claim, &terms, info.as_deref(), form)
        }
        Op::WriteBack { claim, fence, fence_ttl_ms } => {
            let size = 2 * claim.key.len() + claim.token.len() + 64;
            let mut command = begin(&scripts.write_back, form, 2, 6, size);
            command.arg(&*claim.key).arg(naming::fence_key(&claim.key));
            command.arg(letter(claim.kind)).arg(&*claim.token).arg(*fence).arg(*fence_ttl_ms);
            command
        }
        Op::Attach { claim, from, ttl_ms, info } => attach(claim, from, *ttl_ms, info.as_deref(), form),
        Op::Renew { holds } => renew(holds, form),
        Op::SetCount { claim, count, ttl_ms } => {
            let mut command = begin(&scripts.set_count, form, 1, 4, claim.key.len() + claim.token.len());
            command.arg(&*claim.key).arg(&*claim.token).arg(*ttl_ms).arg(*count);
            command
        }
        Op::Retain { claim, rest_ms, .. } => retain(claim, *rest_ms, announce, form),
        Op::Release { claim } => release(claim, false, announce, form),
        Op::Undo { claim, quiet, .. } => release(claim, *quiet, announce, form),
        Op::Inspect { key } => {
            let mut command = begin(&scripts.inspect, form, 2, 2, 2 * key.len() + 32);
            command.arg(&**key).arg(naming::fence_key(key));
            command
        }
        Op::InspectQueue { key } => {
            let mut command = begin(&scripts.waiters, form, 2, 2, 2 * key.len() + 48);
            command.arg(naming::queue_key(key)).arg(naming::waiters_key(key));
            command
        }
        Op::ForceRelease { key, foreign } => force_release(key, *foreign, form, announce),
        // permits and read/write locks: above
        Op::Downgrade { .. }
        | Op::AcquirePermits { .. }
        | Op::InspectPermits { .. }
        | Op::SetPermits { .. }
        | Op::ForceReleasePermits { .. } => Cmd::new(),
    }
}

/// The arguments of an acquire.
struct AcquireTerms {
    ttl_ms: u64,
    fence_ttl_ms: Option<u64>,
    /// The fencing token proposed to one server of several, 0 for none.
    proposed: Option<u64>,
}

fn acquire(claim: &Claim, terms: &AcquireTerms, info: Option<&str>, form: CommandForm) -> Cmd {
    if form == CommandForm::Plain {
        let mut command = Cmd::with_capacity(6, claim.key.len() + claim.token.len() + 64);
        command.arg("SET").arg(&*claim.key).arg(&*claim.token).arg("NX").arg("PX").arg(terms.ttl_ms);
        return command;
    }
    let keys = if terms.fence_ttl_ms.is_some() { 2 } else { 1 };
    let (script, info) = match claim.kind {
        Kind::Reentrant => (&SCRIPTS.acquire_reentrant, Some(info.unwrap_or_default())),
        // a kind that queues is entered, never acquired, and so is a semaphore
        Kind::Mutex | Kind::Fair | Kind::Read | Kind::Write | Kind::Semaphore => (&SCRIPTS.acquire_lock, None),
    };
    let words = 2 * keys + 3 + usize::from(info.is_some());
    let size = 2 * claim.key.len() + claim.token.len() + info.map_or(0, str::len) + 80;
    let mut command = begin(script, form, keys, words, size);
    command.arg(&*claim.key);
    if terms.fence_ttl_ms.is_some() {
        command.arg(naming::fence_key(&claim.key));
    }
    command.arg(&*claim.token).arg(terms.ttl_ms);
    if let Some(info) = info {
        command.arg(info);
    }
    if terms.fence_ttl_ms.is_some() || terms.proposed.is_some() {
        command.arg(terms.fence_ttl_ms.unwrap_or(0));
    }
    if let Some(proposed) = terms.proposed {
        command.arg(proposed);
    }
    command
}

fn acquire_many(claims: &[(Claim, u64)], fenced: bool, form: CommandForm) -> Cmd {
    let keys = if fenced { 2 * claims.len() } else { claims.len() };
    let size = claims.iter().map(|(claim, _)| 2 * claim.key.len() + claim.token.len() + 80).sum();
    let mut command = begin(&SCRIPTS.acquire_many, form, keys, keys + 1 + 3 * claims.len(), size);
    for (claim, _) in claims {
        command.arg(&*claim.key);
    }
    for (claim, _) in claims.iter().filter(|_| fenced) {
        command.arg(naming::fence_key(&claim.key));
    }
    command.arg(claims.len());
    for (claim, ttl_ms) in claims {
        let fence_ttl_ms = if fenced { naming::fence_ttl_ms(*ttl_ms) } else { 0 };
        command.arg(&*claim.token).arg(*ttl_ms).arg(fence_ttl_ms);
    }
    command
}

fn release_many(claims: &[Claim], announce: Announce, form: CommandForm) -> Cmd {
    let size = claims.iter().map(|claim| 2 * claim.key.len() + claim.token.len() + 64).sum();
    let mut command = begin(&SCRIPTS.release_many, form, claims.len(), 3 * claims.len() + 2, size);
    for claim in claims {
        command.arg(&*claim.key);
    }
    for claim in claims {
        command.arg(&*claim.token).arg(naming::channel(claim.kind, &claim.key));
    }
    announce.add_to(&mut command);
    command
}

fn attach(claim: &Claim, from: &str, ttl_ms: u64, info: Option<&str>, form: CommandForm) -> Cmd {
    let is_text = claim.kind.row().layout == HoldLayout::Text;
    let keys = if is_text { 2 } else { 1 };
    let size = 2 * (claim.key.len() + claim.token.len()) + from.len() + info.map_or(0, str::len) + 64;
    let mut command = begin(&SCRIPTS.attach, form, keys, keys + 5, size);
    command.arg(&*claim.key);
    if is_text {
        command.arg(naming::fence_key(&claim.key));
    }
    command.arg(letter(claim.kind)).arg(from).arg(&*claim.token).arg(ttl_ms);
    if !is_text {
        command.arg(info.unwrap_or_default());
    }
    command
}

/// Begins a call of the script of a kind that queues, with `more` arguments of its own.
fn queue(claim: &Claim, verb: &str, form: CommandForm, announce: Announce, more: usize) -> Cmd {
    let size = 6 * claim.key.len() + claim.token.len() + 160;
    let mut command = begin(&SCRIPTS.fair_lock, form, 4, 9 + more, size);
    command.arg(&*claim.key).arg(naming::queue_key(&claim.key));
    command.arg(naming::waiters_key(&claim.key)).arg(naming::fence_key(&claim.key));
    command.arg(verb).arg(&*claim.token).arg(naming::channel(claim.kind, &claim.key));
    let (publish, count) = announce.for_grants();
    command.arg(publish).arg(count);
    command
}

fn release(claim: &Claim, quiet: bool, announce: Announce, form: CommandForm) -> Cmd {
    // quiet, and so without the queue: works while the slot moves, one key at a time
    if claim.kind.row().queues && !quiet {
        return queue(claim, "leave", form, announce, 0);
    }
    let channel = if quiet { Vec::new() } else { naming::channel(claim.kind, &claim.key) };
    let size = claim.key.len() + claim.token.len() + channel.len();
    let mut command = begin(&SCRIPTS.release, form, 1, 4, size);
    command.arg(&*claim.key).arg(letter(claim.kind)).arg(&*claim.token).arg(channel);
    match announce {
        // the other scripts return it in any case
        Announce::Timed => drop(command.arg("TIME")),
        _ if quiet => {}
        _ => announce.add_to(&mut command),
    }
    command
}

fn retain(claim: &Claim, rest_ms: u64, announce: Announce, form: CommandForm) -> Cmd {
    if claim.kind.row().queues {
        let mut command = queue(claim, "retain", form, announce, 1);
        command.arg(rest_ms);
        return command;
    }
    let channel = naming::channel(claim.kind, &claim.key);
    let size = claim.key.len() + claim.token.len() + channel.len() + 64;
    let mut command = begin(&SCRIPTS.retain, form, 1, 5, size);
    command.arg(&*claim.key).arg(letter(claim.kind)).arg(&*claim.token).arg(rest_ms).arg(channel);
    announce.add_to(&mut command);
    command
}

fn renew(holds: &[(Claim, u64)], form: CommandForm) -> Cmd {
    let size = holds.iter().map(|(claim, _)| 2 * claim.key.len() + claim.token.len() + 64).sum();
    let beside = |claim: &Claim| match claim.kind.row().layout {
        HoldLayout::Text | HoldLayout::Hash => 0,
        HoldLayout::Permits => 1,
        HoldLayout::Shared => 2,
    };
    let keys = holds.iter().map(|(claim, _)| 1 + beside(claim)).sum();
    let mut command = begin(&SCRIPTS.renew, form, keys, keys + 3 * holds.len(), size);
    for (claim, _) in holds {
        command.arg(&*claim.key);
        match claim.kind.row().layout {
            HoldLayout::Text | HoldLayout::Hash => {}
            HoldLayout::Permits => drop(command.arg(naming::permits_key(&claim.key))),
            HoldLayout::Shared => {
                command.arg(naming::readers_key(&claim.key)).arg(naming::timeout_key(&claim.key, &claim.token));
            }
        }
    }
    for (claim, ttl_ms) in holds {
        match semaphore::permits(claim) {
            Some((prefix, count)) => command.arg(format!("p{count}")).arg(&prefix),
            None => command.arg(letter(claim.kind)).arg(&*claim.token),
        };
        command.arg(*ttl_ms);
    }
    command
}

fn force_release(key: &Key, foreign: bool, form: CommandForm, announce: Announce) -> Cmd {
    let mut command = begin(&SCRIPTS.force_release, form, 1, 5, 4 * key.len() + 120);
    command.arg(&**key).arg(naming::channel(Kind::Mutex, key)).arg(naming::channel(Kind::Reentrant, key));
    command.arg(naming::channel(Kind::Read, key)).arg(u8::from(foreign));
    announce.add_to(&mut command);
    command
}

/// The letter of a kind in the scripts that serve several.
fn letter(kind: Kind) -> &'static str {
    kind.row().layout.letter()
}

#[cfg(test)]
mod tests {
    use redis::Arg;

    use super::*;

    fn claim(kind: Kind) -> Claim {
        Claim { kind, key: b"k"[..].into(), token: "tok".into() }
    }

    /// The arguments after the script's hash.
    fn words(op: &Op) -> Vec<String> {
        let word = |arg: Arg<&[u8]>| match arg {
            Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => panic!("a cursor"),
        };
        command(op, CommandForm::Sha, Announce::Classic).args_iter().skip(2).map(word).collect()
    }

    #[test]
    fn a_mutex_without_fencing_is_taken_by_a_plain_command() {
        let acquire = |kind, fence_ttl_ms| Op::Acquire { claim: claim(kind), ttl_ms: 5, fence_ttl_ms, info: None };
        let plain = acquire(Kind::Mutex, None);
        assert!(is_plain(&plain));
        assert!(!is_plain(&acquire(Kind::Mutex, Some(9))) && !is_plain(&acquire(Kind::Reentrant, None)));
        assert!(!is_plain(&Op::Vote { claim: claim(Kind::Mutex), ttl_ms: 5, fence: None, info: None }));
        let packed = command(&plain, CommandForm::Plain, Announce::Classic).get_packed_command();
        assert_eq!(packed, redis::cmd("SET").arg(&["k", "tok", "NX", "PX", "5"]).get_packed_command());
    }

    #[test]
    fn every_operation_declares_its_keys() {
        let op = |kind, fence_ttl_ms, info: Option<&str>| Op::Acquire {
            claim: claim(kind),
            ttl_ms: 5,
            fence_ttl_ms,
            info: info.map(Into::into),
        };
        assert_eq!(words(&op(Kind::Mutex, Some(9), None)), ["2", "k", "onelock_fence:{k}", "tok", "5", "9"]);
        assert_eq!(words(&op(Kind::Mutex, None, Some("i"))), ["1", "k", "tok", "5"]);
        assert_eq!(words(&op(Kind::Reentrant, Some(9), None)), ["2", "k", "onelock_fence:{k}", "tok", "5", "", "9"]);
        assert_eq!(words(&op(Kind::Reentrant, None, Some("i"))), ["1", "k", "tok", "5", "i"]);
        let attach = |kind| Op::Attach { claim: claim(kind), from: "old".into(), ttl_ms: 5, info: Some("i".into()) };
        assert_eq!(words(&attach(Kind::Mutex)), ["2", "k", "onelock_fence:{k}", "m", "old", "tok", "5"]);
        assert_eq!(words(&attach(Kind::Reentrant)), ["1", "k", "r", "old", "tok", "5", "i"]);
        assert_eq!(
            words(&Op::Renew { holds: vec![(claim(Kind::Mutex), 1), (claim(Kind::Reentrant), 2)] }),
            ["2", "k", "k", "m", "tok", "1", "r", "tok", "2"]
        );
        assert_eq!(
            words(&Op::SetCount { claim: claim(Kind::Reentrant), count: 3, ttl_ms: 5 }),
            ["1", "k", "tok", "5", "3"]
        );
        assert_eq!(
            words(&Op::Release { claim: claim(Kind::Reentrant) }),
            ["1", "k", "r", "tok", "redisson_lock__channel:{k}"]
        );
        let timed = command(&Op::Release { claim: claim(Kind::Mutex) }, CommandForm::Sha, Announce::Timed);
        assert!(timed.args_iter().last() == Some(Arg::Simple(&b"TIME"[..])));
        let vote = |kind, fence| Op::Vote { claim: claim(kind), ttl_ms: 5, fence, info: None };
        let fence = Some(Proposal { base: 7, ttl_ms: 9 });
        assert_eq!(words(&vote(Kind::Mutex, fence)), ["2", "k", "onelock_fence:{k}", "tok", "5", "9", "7"]);
        assert_eq!(words(&vote(Kind::Mutex, None)), ["1", "k", "tok", "5", "0", "0"]);
        assert_eq!(words(&vote(Kind::Reentrant, fence)), ["2", "k", "onelock_fence:{k}", "tok", "5", "", "9", "7"]);
        assert_eq!(words(&vote(Kind::Reentrant, None)), ["1", "k", "tok", "5", "", "0", "0"]);
        assert_eq!(
            words(&Op::WriteBack { claim: claim(Kind::Mutex), fence: 8, fence_ttl_ms: 9 }),
            ["2", "k", "onelock_fence:{k}", "m", "tok", "8", "9"]
        );
        assert_eq!(
            words(&Op::Retain { claim: claim(Kind::Mutex), nodes: crate::machine::NodeSet::ALL, rest_ms: 7 }),
            ["1", "k", "m", "tok", "7", "onelock_channel:{k}"]
        );
        let second = Claim { key: b"l"[..].into(), ..claim(Kind::Mutex) };
        let take = |fenced| Op::AcquireMany { claims: vec![(claim(Kind::Mutex), 5), (second.clone(), 6)], fenced };
        assert_eq!(
            words(&take(true)),
            [
                "4",
                "k",
                "l",
                "onelock_fence:{k}",
                "onelock_fence:{l}",
                "2",
                "tok",
                "5",
                "604800000",
                "tok",
                "6",
                "604800000"
            ]
        );
        assert_eq!(words(&take(false)), ["2", "k", "l", "2", "tok", "5", "0", "tok", "6", "0"]);
        assert_eq!(
            words(&Op::ReleaseMany { claims: vec![claim(Kind::Mutex), second] }),
            ["2", "k", "l", "tok", "onelock_channel:{k}", "tok", "onelock_channel:{l}"]
        );
        let undo = Op::Undo { claim: claim(Kind::Mutex), nodes: crate::machine::NodeSet::ALL, quiet: true };
        assert_eq!(words(&undo), ["1", "k", "m", "tok", ""]);
        assert_eq!(words(&Op::Inspect { key: b"k"[..].into() }), ["2", "k", "onelock_fence:{k}"]);
        assert_eq!(
            words(&Op::ForceRelease { key: b"k"[..].into(), foreign: false }),
            ["1", "k", "onelock_channel:{k}", "redisson_lock__channel:{k}", "redisson_rwlock:{k}", "0"]
        );
    }
}
