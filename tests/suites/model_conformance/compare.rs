//! What counts as equal, and how a difference is shown.

use std::fmt::Write as _;

use onelock::machine::model::Model;
use onelock::machine::{Outcome, Renewal, Reply};

use crate::observed::{Stored, sorted};

/// How far times to live may be apart; the tests' own are minutes apart, or short and waited for.
const TTL_SLACK_MS: u64 = 5_000;

pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: &T, modelled: &T) -> Result<(), String> {
    if real == modelled { Ok(()) } else { Err(format!("{what}: the server {real:?}, the model {modelled:?}")) }
}

fn same_ttl(real: Option<u64>, modelled: Option<u64>) -> bool {
    match (real, modelled) {
        (Some(real), Some(modelled)) => real.abs_diff(modelled) <= TTL_SLACK_MS,
        (real, modelled) => real == modelled,
    }
}

pub(crate) fn same_reply(real: &Outcome<Reply>, modelled: &Outcome<Reply>) -> Result<(), String> {
    if let (
        Outcome::Applied(Reply::RefusedAt { index: one, reply: real }),
        Outcome::Applied(Reply::RefusedAt { index: other, reply: modelled }),
    ) = (real, modelled)
    {
        same("refused at", one, other)?;
        return same_reply(&Outcome::Applied((**real).clone()), &Outcome::Applied((**modelled).clone()));
    }
    let mut levelled = modelled.clone();
    let both = match (real, &mut levelled) {
        (
            Outcome::Applied(Reply::Denied { ttl_left_ms: real, .. }),
            Outcome::Applied(Reply::Denied { ttl_left_ms: modelled, .. }),
        )
        | (
            Outcome::Applied(Reply::Taken { ttl_left_ms: real, .. }),
            Outcome::Applied(Reply::Taken { ttl_left_ms: modelled, .. }),
        )
        | (
            Outcome::Applied(Reply::Queued { look_in_ms: real, .. }),
            Outcome::Applied(Reply::Queued { look_in_ms: modelled, .. }),
        ) => Some((*real, modelled)),
        (Outcome::Applied(Reply::Inspected(Some(real))), Outcome::Applied(Reply::Inspected(Some(modelled)))) => {
            Some((real.ttl_left_ms, &mut modelled.ttl_left_ms))
        }
        (Outcome::Applied(Reply::Permits(Some(real))), Outcome::Applied(Reply::Permits(Some(modelled)))) => {
            Some((real.ttl_left_ms, &mut modelled.ttl_left_ms))
        }
        _ => None,
    };
    if let Some((real, modelled)) = both
        && same_ttl(real, *modelled)
    {
        *modelled = real;
    }
    if *real == levelled { Ok(()) } else { Err(format!("reply: the server {real:?}, the model {modelled:?}")) }
}

pub(crate) fn same_state(real: &[Stored], model: &Model, now_us: u64) -> Result<(), String> {
    let modelled: Vec<Stored> = model
        .live(now_us)
        .into_iter()
        .map(|live| Stored { key: live.key, value: sorted(live.value), ttl_left_ms: live.ttl_left_ms })
        .collect();
    let keys = |stored: &[Stored]| stored.iter().map(|it| it.key.escape_ascii().to_string()).collect::<Vec<_>>();
    same("keys", &keys(real), &keys(&modelled))?;
    for (real, modelled) in real.iter().zip(&modelled) {
        if real.value != modelled.value || !same_ttl(real.ttl_left_ms, modelled.ttl_left_ms) {
            return Err(format!("stored: the server {real:?}, the model {modelled:?}"));
        }
    }
    Ok(())
}

/// Every kind of reply there is, as [`shapes`] calls them.
pub(crate) const SHAPES: [&str; 48] = [
    "granted",
    "granted again",
    "granted without fencing",
    "gone",
    "denied by ours",
    "denied by a stranger",
    "denied for ever",
    "wrong kind hash",
    "wrong kind list",
    "wrong kind string",
    "queued",
    "queued unheard",
    "renewed",
    "not mine",
    "counted true",
    "counted false",
    "released true",
    "released false",
    "forced true",
    "forced false",
    "inspected nothing",
    "inspected lock",
    "inspected reentrant_lock",
    "inspected fair_lock",
    "inspected read_lock",
    "inspected write_lock",
    "inspected list",
    "inspected hash",
    "inspected semaphore",
    "mismatch",
    "mismatch nothing",
    "permits nothing",
    "permits held",
    "permits queued",
    "permits told",
    "queue empty",
    "queue of the nameless",
    "queue with a name",
    "wrong kind semaphore",
    "each granted",
    "each granted again",
    "each granted without fencing",
    "each released true",
    "each released false",
    "none, the first denied by ours",
    "none, a later one denied by ours",
    "none, a later one denied by a stranger",
    "none, a later one wrong kind hash",
];

/// What kinds of reply this is.
pub(crate) fn shapes(outcome: &Outcome<Reply>) -> Vec<String> {
    let Outcome::Applied(reply) = outcome else { return Vec::new() };
    let one = |shape: &str| vec![shape.to_owned()];
    match reply {
        Reply::Granted { fence: None, .. } => one("granted without fencing"),
        Reply::Granted { again, .. } => one(if *again { "granted again" } else { "granted" }),
        Reply::Many(replies) => {
            let each = replies.iter().flat_map(|reply| shapes(&Outcome::Applied(reply.clone())));
            each.map(|shape| format!("each {shape}")).collect()
        }
        Reply::RefusedAt { index, reply } => {
            let refused = shapes(&Outcome::Applied((**reply).clone())).into_iter();
            refused
                .map(|shape| format!("none, {} {shape}", if *index == 0 { "the first" } else { "a later one" }))
                .collect()
        }
        Reply::Unconfirmed(_) => one("unconfirmed"),
        Reply::Gone => one("gone"),
        // one server of several: the same verdicts with other words
        Reply::Taken { .. } => one("taken"),
        Reply::Written(fence) => vec![format!("written back {}", fence.is_some())],
        Reply::Split { .. } | Reply::PartlyReleased { .. } => one("of several servers"),
        Reply::Denied { ttl_left_ms: None, .. } => one("denied for ever"),
        Reply::Denied { announces, .. } => one(if *announces { "denied by ours" } else { "denied by a stranger" }),
        Reply::Queued { unheard, .. } => one(if *unheard { "queued unheard" } else { "queued" }),
        Reply::WrongKind { found } => vec![format!("wrong kind {found}")],
        Reply::Mismatch { total, .. } => one(if *total == 0 { "mismatch nothing" } else { "mismatch" }),
        Reply::Permits(None) => one("permits nothing"),
        Reply::Permits(Some(count)) => one(if count.held > 0 { "permits held" } else { "permits free" }),
        Reply::Renewed(verdicts) => verdicts
            .iter()
            .map(|verdict| if *verdict == Renewal::Renewed { "renewed" } else { "not mine" }.to_owned())
            .collect(),
        Reply::Counted(done) => vec![format!("counted {done}")],
        Reply::Released(done) => vec![format!("released {done}")],
        Reply::ReleasedToWaiters => vec!["released true".to_owned()],
        Reply::Queue(found) if found.places.is_empty() => one("queue empty"),
        Reply::Queue(found) => {
            let named = found.places.iter().any(|place| !place.info.is_empty());
            one(if named { "queue with a name" } else { "queue of the nameless" })
        }
        Reply::Forced(done) => vec![format!("forced {done}")],
        Reply::Inspected(None) => one("inspected nothing"),
        Reply::Inspected(Some(standing)) => {
            vec![format!("inspected {}", standing.kind.as_ref().map_or_else(String::as_str, |kind| kind.as_str()))]
        }
    }
}

/// Shows lists of bytes, as the debug form of a key has them, as text.
pub(crate) fn readable(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, list)) = rest.split_once('[') {
        out.push_str(before);
        let bytes = list.split_once(']').and_then(|(inside, after)| {
            let bytes: Option<Vec<u8>> = inside.split(", ").map(|byte| byte.parse().ok()).collect();
            Some((bytes?, after))
        });
        if let Some((bytes, after)) = bytes {
            let shown = &bytes[..bytes.len().min(64)];
            let cut = if shown.len() < bytes.len() { ".." } else { "" };
            let _ = write!(out, "\"{}{cut}\"", shown.escape_ascii());
            rest = after;
        } else {
            out.push('[');
            rest = list;
        }
    }
    out + rest
}
