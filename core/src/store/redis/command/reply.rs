//! The outcome that a server's reply means.

use redis::Value;

use super::{request, server_error};
use crate::error::ErrorKind;
use crate::machine::{
    Claim, Failure, InspectedKey, Kind, Op, Outcome, PermitCount, Renewal, Reply, naming, stored_token, token,
};
use crate::store::redis::resp::value;

#[path = "reply_many.rs"]
mod many;

/// Fencing tokens are below this: from here on Lua and JavaScript round them, and two holders could have the same. A
/// larger one does not come from our script.
const FENCE_END: u64 = 1 << 53;

/// A decoded reply to a script call.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodedReply {
    /// The server's clock, if the reply has it.
    pub(crate) server_time_us: Option<u64>,
    /// The outcome of the operation.
    pub(crate) outcome: Outcome<Reply>,
    /// Released, but the server refused to announce it.
    pub(crate) publish_refused: bool,
}

/// Reads the reply to `op`. A reply that does not fit leaves the outcome indeterminate.
pub(crate) fn read(op: &Op, value: Value) -> DecodedReply {
    match (op, &value) {
        // taken by the plain command
        (_, Value::Okay) if request::is_plain(op) => {
            return bare(Reply::Granted { fence: None, again: false }, false);
        }
        (Op::Release { .. } | Op::Undo { .. }, Value::Int(found @ 0..=2)) => {
            return bare(Reply::Released(*found != 0), *found == 2);
        }
        (Op::Release { .. } | Op::Undo { .. }, Value::Int(3)) => return bare(Reply::ReleasedToWaiters, false),
        _ => {}
    }
    let mut items = match value {
        Value::Array(items) => Items(items.into_iter()),
        Value::ServerError(error) => return refused(&value::words(&error)),
        _ => return unusable(op),
    };
    let Some(server_time_us) = items.count() else { return unusable(op) };
    let reply = match op {
        Op::Acquire { .. } | Op::Enter { .. } => acquired(&mut items),
        Op::AcquireMany { claims, .. } => many::acquired(&mut items, claims.len()).map(|reply| (reply, false)),
        Op::ReleaseMany { claims } => many::released(&mut items, claims.len()),
        Op::AcquirePermits { claim, total, .. } => permitted(&mut items, &claim.token, *total),
        Op::InspectPermits { .. } | Op::SetPermits { .. } => counted_permits(&mut items).map(|reply| (reply, false)),
        Op::ForceReleasePermits { .. } => forced_permits(&mut items),
        Op::Attach { .. } | Op::Downgrade { .. } => attached(&mut items).map(|reply| (reply, false)),
        Op::Vote { .. } => acquired(&mut items).and_then(|(reply, unheard)| match reply {
            Reply::Denied { ttl_left_ms, announces } => {
                let holder = token::digest(&items.text()?);
                Some((Reply::Taken { ttl_left_ms, announces, holder }, unheard))
            }
            reply => Some((reply, unheard)),
        }),
        Op::WriteBack { .. } => match items.int() {
            Some(0) => Some((Reply::Written(None), false)),
            Some(1) => {
                items.count().filter(|fence| *fence < FENCE_END).map(|fence| (Reply::Written(Some(fence)), false))
            }
            _ => None,
        },
        Op::Renew { holds } => match renewed(&mut items, holds.len()) {
            Some(renewals) => return renewal(server_time_us, renewals),
            None => None,
        },
        Op::SetCount { .. } => items.count().map(|done| (Reply::Counted(done == 1), false)),
        Op::Release { claim } | Op::Undo { claim, .. } if leaves(claim) => match items.int() {
            Some(found @ 0..=2) => Some((Reply::Released(found == 1), false)),
            _ => None,
        },
        Op::Release { .. } | Op::Undo { .. } => match items.int() {
            Some(found @ 0..=2) => Some((Reply::Released(found != 0), found == 2)),
            Some(3) => Some((Reply::ReleasedToWaiters, false)),
            _ => None,
        },
        Op::Retain { claim, .. } if leaves(claim) => items.count().map(|done| (Reply::Released(done == 1), false)),
        Op::Retain { .. } => deleted(&mut items).map(|(done, unheard)| (Reply::Released(done), unheard)),
        Op::Inspect { .. } => inspected(&mut items).map(|reply| (reply, false)),
        Op::InspectQueue { .. } => many::places(&mut items).map(|reply| (reply, false)),
        Op::ForceRelease { .. } => forced(&mut items),
    };
    match reply {
        Some((reply, unheard)) => DecodedReply {
            server_time_us: Some(server_time_us),
            outcome: Outcome::Applied(reply),
            publish_refused: unheard,
        },
        None => unusable(op),
    }
}

/// Whether a release is answered with what was left: a hold, a place or nothing.
fn leaves(claim: &Claim) -> bool {
    claim.kind.is_shared() || claim.kind.row().queues && claim.kind != Kind::Semaphore
}

/// Whether the reply to an acquire or an attach says that the lock is held by it now.
pub(crate) fn is_grant(value: &Value) -> bool {
    match value {
        Value::Okay => true,
        Value::Array(items) => matches!(items.get(1), Some(Value::Int(0 | 1))),
        _ => false,
    }
}

/// A reply without the server's clock.
fn bare(reply: Reply, unheard: bool) -> DecodedReply {
    DecodedReply { server_time_us: None, outcome: Outcome::Applied(reply), publish_refused: unheard }
}

fn refused(text: &str) -> DecodedReply {
    DecodedReply {
        server_time_us: None,
        outcome: Outcome::NotApplied(server_error::classify(text)),
        publish_refused: false,
    }
}

fn unusable(op: &Op) -> DecodedReply {
    let detail = format!("the reply to {} makes no sense", op.name());
    let failure = Failure::transient(ErrorKind::Unavailable, detail);
    DecodedReply { server_time_us: None, outcome: Outcome::Indeterminate(failure), publish_refused: false }
}

/// The items of a reply, in order.
struct Items(std::vec::IntoIter<Value>);

impl Items {
    fn int(&mut self) -> Option<i64> {
        match self.0.next()? {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// A number that is not negative.
    fn count(&mut self) -> Option<u64> {
        u64::try_from(self.int()?).ok()
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        match self.0.next()? {
            Value::BulkString(text) => Some(text),
            _ => None,
        }
    }

    fn word(&mut self) -> Option<String> {
        String::from_utf8(self.text()?).ok()
    }
}

/// The result of `PTTL`: negative for a key without time to live.
fn left(pttl: i64) -> Option<u64> {
    u64::try_from(pttl).ok()
}

fn acquired(items: &mut Items) -> Option<(Reply, bool)> {
    let reply = match items.int()? {
        verdict @ (0 | 1) => {
            let fence = items.count()?;
            if fence >= FENCE_END {
                return None;
            }
            Reply::Granted { fence: (fence != 0).then_some(fence), again: verdict == 1 }
        }
        2 => Reply::Denied { ttl_left_ms: left(items.int()?), announces: items.int()? == 1 },
        3 => Reply::WrongKind { found: value::printable(&items.word()?) },
        4 => Reply::Queued {
            place: items.count()?,
            ahead: items.count()?,
            look_in_ms: left(items.int()?),
            unheard: items.int()? == 1,
            // only where a grant has a number of its own
            horizon: items.count(),
        },
        _ => return None,
    };
    Some((reply, false))
}

fn permitted(items: &mut Items, token: &str, expected: Option<u32>) -> Option<(Reply, bool)> {
    let mut ahead = items.0.clone();
    if let Some(Value::Int(6)) = ahead.next() {
        items.int()?;
        let count = token::parse_permits(token)?.1;
        return Some((Reply::Mismatch { total: items.count()?, expected, count }, false));
    }
    acquired(items)
}

fn counted_permits(items: &mut Items) -> Option<Reply> {
    match items.int()? {
        0 => Some(Reply::Permits(None)),
        1 => {
            let (total, held, ttl_left_ms) = (items.count()?, items.count()?, left(items.int()?));
            Some(Reply::Permits(Some(PermitCount { total, held, ttl_left_ms })))
        }
        3 => Some(Reply::WrongKind { found: value::printable(&items.word()?) }),
        _ => None,
    }
}

fn forced_permits(items: &mut Items) -> Option<(Reply, bool)> {
    match items.int()? {
        1 => Some((Reply::Forced(true), items.int()? == 0)),
        2 => Some((Reply::Forced(false), false)),
        3 => Some((Reply::WrongKind { found: value::printable(&items.word()?) }, false)),
        _ => None,
    }
}

fn attached(items: &mut Items) -> Option<Reply> {
    match items.int()? {
        2 => Some(Reply::Gone),
        verdict @ (0 | 1) => {
            let fence = items.count().filter(|fence| *fence < FENCE_END)?;
            Some(Reply::Granted { fence: (fence != 0).then_some(fence), again: verdict == 1 })
        }
        _ => None,
    }
}

fn renewed(items: &mut Items, expected: usize) -> Option<Vec<Renewal>> {
    let renewals: Option<Vec<Renewal>> = items
        .0
        .by_ref()
        .map(|item| match item {
            Value::Int(1) => Some(Renewal::Renewed),
            Value::Int(0) => Some(Renewal::NotMine),
            Value::BulkString(text) => Some(Renewal::Failed(String::from_utf8_lossy(&text).into_owned())),
            _ => None,
        })
        .collect();
    renewals.filter(|renewals| renewals.len() == expected)
}

/// When the server refused every single key, it refused the whole request.
fn renewal(server_time_us: u64, mut renewals: Vec<Renewal>) -> DecodedReply {
    let outcome = match &renewals[..] {
        [Renewal::Failed(text), rest @ ..] if rest.iter().all(|renewal| matches!(renewal, Renewal::Failed(_))) => {
            Outcome::NotApplied(server_error::classify(text))
        }
        _ => {
            for renewal in &mut renewals {
                if let Renewal::Failed(text) = renewal {
                    *text = server_error::classify(text).detail;
                }
            }
            Outcome::Applied(Reply::Renewed(renewals))
        }
    };
    DecodedReply { server_time_us: Some(server_time_us), outcome, publish_refused: false }
}

/// Whether a key was deleted, and whether the announcement was refused.
fn deleted(items: &mut Items) -> Option<(bool, bool)> {
    match items.int()? {
        0 => Some((false, false)),
        1 => Some((true, items.int()? == 0)),
        _ => None,
    }
}

fn forced(items: &mut Items) -> Option<(Reply, bool)> {
    match items.int()? {
        0 => Some((Reply::Forced(false), false)),
        1 => Some((Reply::Forced(true), items.int()? == 0)),
        2 => Some((Reply::WrongKind { found: items.word()? }, false)),
        _ => None,
    }
}

fn inspected(items: &mut Items) -> Option<Reply> {
    let found = items.word()?;
    if found == "none" {
        return Some(Reply::Inspected(None));
    }
    standing(found, items).map(|standing| Reply::Inspected(Some(standing)))
}

fn standing(found: String, items: &mut Items) -> Option<InspectedKey> {
    let ttl_left_ms = left(items.int()?);
    let Some(holder) = items.text() else {
        let holder = Vec::new();
        let kind = if found == naming::SEMAPHORE_MARK { Ok(Kind::Semaphore) } else { Err(found) };
        return Some(InspectedKey { kind, holder, count: 0, ttl_left_ms, fence: None, info: None });
    };
    let (kind, count) = match found.as_str() {
        "string" => (Kind::Mutex, 1),
        "hash" => (Kind::Reentrant, items.word().and_then(|count| count.parse().ok()).unwrap_or(0)),
        "read" => (Kind::Read, items.word().and_then(|count| count.parse().ok()).unwrap_or(0)),
        "write" => (Kind::Write, items.word().and_then(|count| count.parse().ok()).unwrap_or(0)),
        "fair" => (Kind::Fair, items.word().and_then(|count| count.parse().ok()).unwrap_or(0)),
        _ => return None,
    };
    let fence = stored_token(&items.text()?);
    let info = items.text().filter(|info| !info.is_empty());
    Some(InspectedKey { kind: Ok(kind), holder, count, ttl_left_ms, fence, info })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> Op {
        Op::Release { claim: Claim { kind: Kind::Mutex, key: b"k"[..].into(), token: "t".into() } }
    }

    fn renew(holds: usize) -> Op {
        let claim = Claim { kind: Kind::Mutex, key: b"k"[..].into(), token: "t".into() };
        Op::Renew { holds: vec![(claim, 1); holds] }
    }

    fn array(items: &[Value]) -> Value {
        Value::Array(items.to_vec())
    }

    #[test]
    fn a_reply_that_does_not_fit_leaves_it_open_what_happened() {
        let odd = [
            Value::Nil,
            Value::Okay,
            Value::Int(4),
            Value::Int(-1),
            array(&[]),
            array(&[Value::Int(-5), Value::Int(0)]),
            array(&[Value::Int(5)]),
            array(&[Value::Int(5), Value::Int(7)]),
            array(&[Value::Int(5), Value::BulkString(b"1".to_vec())]),
        ];
        for value in odd {
            assert!(matches!(read(&release(), value).outcome, Outcome::Indeterminate(_)));
        }
        // one verdict is missing
        assert!(matches!(read(&renew(2), array(&[Value::Int(5), Value::Int(1)])).outcome, Outcome::Indeterminate(_)));
    }

    #[test]
    fn a_token_that_cannot_be_told_from_the_next_one_is_not_believed() {
        let claim = Claim { kind: Kind::Mutex, key: b"k"[..].into(), token: "t".into() };
        let acquire = Op::Acquire { claim: claim.clone(), ttl_ms: 1, fence_ttl_ms: Some(1), info: None };
        let vote = Op::Vote { claim: claim.clone(), ttl_ms: 1, fence: None, info: None };
        for op in [&acquire, &vote] {
            for verdict in [0, 1] {
                let reply = |fence| read(op, array(&[Value::Int(5), Value::Int(verdict), Value::Int(fence)])).outcome;
                assert!(matches!(reply((1 << 53) - 1), Outcome::Applied(Reply::Granted { .. })));
                assert!(matches!(reply(1 << 53), Outcome::Indeterminate(_)), "it may be held, and is released");
            }
        }
        let attach = Op::Attach { claim: claim.clone(), from: "old".into(), ttl_ms: 1, info: None };
        let attached =
            |items: &[i64]| read(&attach, array(&items.iter().copied().map(Value::Int).collect::<Vec<_>>())).outcome;
        assert!(matches!(attached(&[5, 0, (1 << 53) - 1]), Outcome::Applied(Reply::Granted { .. })));
        assert!(matches!(attached(&[5, 0, 1 << 53]), Outcome::Indeterminate(_)));
        assert_eq!(attached(&[5, 1, 0]), Outcome::Applied(Reply::Granted { fence: None, again: true }));
        assert_eq!(attached(&[5, 2]), Outcome::Applied(Reply::Gone));
        let write_back = Op::WriteBack { claim, fence: 8, fence_ttl_ms: 9 };
        let written = |fence| read(&write_back, array(&[Value::Int(5), Value::Int(1), Value::Int(fence)])).outcome;
        assert!(matches!(written(8), Outcome::Applied(_)) && matches!(written(1 << 53), Outcome::Indeterminate(_)));
    }

    #[test]
    fn what_a_plain_command_answers_is_no_grant_of_a_fencing_token() {
        let acquire = |fence_ttl_ms| {
            let Op::Release { claim } = release() else { unreachable!() };
            Op::Acquire { claim, ttl_ms: 5, fence_ttl_ms, info: None }
        };
        let granted = Outcome::Applied(Reply::Granted { fence: None, again: false });
        assert_eq!(read(&acquire(None), Value::Okay).outcome, granted);
        assert!(matches!(read(&acquire(Some(9)), Value::Okay).outcome, Outcome::Indeterminate(_)));
    }

    #[test]
    fn each_of_several_is_told_or_nothing_is_known() {
        let claim = |key: &[u8]| Claim { kind: Kind::Mutex, key: key.into(), token: "t".into() };
        let claims = vec![(claim(b"a"), 5), (claim(b"b"), 5)];
        let take = Op::AcquireMany { claims, fenced: true };
        let numbers = |items: &[i64]| array(&items.iter().copied().map(Value::Int).collect::<Vec<_>>());
        let granted = |fence, again| Reply::Granted { fence: Some(fence), again };
        let taken = Reply::Many(vec![granted(7, false), granted(8, true)]);
        assert_eq!(read(&take, numbers(&[5, 0, 0, 7, 1, 8])).outcome, Outcome::Applied(taken));
        let denied = Box::new(Reply::Denied { ttl_left_ms: Some(9), announces: true });
        let refused = Outcome::Applied(Reply::RefusedAt { index: 1, reply: denied });
        assert_eq!(read(&take, numbers(&[5, 1, 2, 2, 9, 1])).outcome, refused);
        let odd: [&[i64]; 6] = [
            &[5, 0, 0, 7],
            &[5, 0, 0, 7, 2, 9, 1],
            &[5, 0, 0, 1 << 53, 0, 7],
            &[5, 1, 0, 2, 9, 1],
            &[5, 1, 3, 2, 9, 1],
            &[5, 1, 1, 0, 7],
        ];
        for items in odd {
            assert!(matches!(read(&take, numbers(items)).outcome, Outcome::Indeterminate(_)), "{items:?}");
        }
        let release = Op::ReleaseMany { claims: vec![claim(b"a"), claim(b"b"), claim(b"c")] };
        let reading = read(&release, numbers(&[5, 3, 2, 0]));
        let replies = vec![Reply::ReleasedToWaiters, Reply::Released(true), Reply::Released(false)];
        assert_eq!((reading.outcome, reading.publish_refused), (Outcome::Applied(Reply::Many(replies)), true));
        assert!(matches!(read(&release, numbers(&[5, 1, 1])).outcome, Outcome::Indeterminate(_)));
        assert!(matches!(read(&release, numbers(&[5, 1, 1, 4])).outcome, Outcome::Indeterminate(_)));
    }

    #[test]
    fn a_refused_publish_is_noticed() {
        let released = |found| Outcome::Applied(Reply::Released(found));
        for (number, found, unheard) in [(0, false, false), (1, true, false), (2, true, true)] {
            let expected = DecodedReply { server_time_us: None, outcome: released(found), publish_refused: unheard };
            assert_eq!(read(&release(), Value::Int(number)), expected);
            let timed = DecodedReply { server_time_us: Some(5), ..expected };
            assert_eq!(read(&release(), array(&[Value::Int(5), Value::Int(number)])), timed);
        }
        assert_eq!(read(&release(), Value::Int(3)).outcome, Outcome::Applied(Reply::ReleasedToWaiters));
        let Op::Release { claim } = release() else { unreachable!() };
        let retain = Op::Retain { claim, nodes: crate::machine::NodeSet::ALL, rest_ms: 1 };
        let reading = read(&retain, array(&[Value::Int(5), Value::Int(1), Value::Int(0)]));
        assert_eq!(reading, DecodedReply { server_time_us: Some(5), outcome: released(true), publish_refused: true });
    }

    #[test]
    fn one_bad_key_is_its_own_trouble_and_a_refusing_server_everybodys() {
        let text = || Value::BulkString(b"NOPERM this user has no permissions".to_vec());
        let one = read(&renew(2), array(&[Value::Int(5), Value::Int(1), text()]));
        let Outcome::Applied(Reply::Renewed(renewals)) = one.outcome else { panic!("{one:?}") };
        assert!(matches!(&renewals[..], [Renewal::Renewed, Renewal::Failed(_)]));
        let all = read(&renew(2), array(&[Value::Int(5), text(), text()]));
        let Outcome::NotApplied(failure) = all.outcome else { panic!("{all:?}") };
        assert_eq!(failure.kind, ErrorKind::NotPermitted);
    }
}
