//! From an operation to the bytes that are sent: one buffer, sized before it is filled.

use super::resp::Packer;
use super::scripts::{SCRIPTS, Script};
use crate::machine::{Claim, Key, Kind, Op, naming};

/// How a script is named in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By its hash; the server may answer that it doesn't know it.
    Sha,
    /// By its text, which the server remembers.
    Text,
}

/// The packed request for `op`.
pub(crate) fn pack(op: &Op, form: Form) -> Vec<u8> {
    let scripts = &*SCRIPTS;
    match op {
        Op::Acquire { claim, ttl_ms, fence_ttl_ms, info } => {
            acquire(claim, *ttl_ms, *fence_ttl_ms, info.as_deref(), form)
        }
        Op::Renew { holds } => renew(holds, form),
        Op::SetCount { claim, count, ttl_ms } => {
            let mut packer = begin(&scripts.set_count, form, 1, 4, claim.key.len() + claim.token.len());
            packer.word(&claim.key).word(&*claim.token).number(*ttl_ms).number(*count);
            packer.finish()
        }
        Op::Release { claim } => {
            let channel = naming::channel(claim.kind, &claim.key);
            let size = claim.key.len() + claim.token.len() + channel.len();
            let mut packer = begin(&scripts.release, form, 1, 4, size);
            packer.word(&claim.key).word(letter(claim.kind)).word(&*claim.token).word(channel);
            packer.finish()
        }
        Op::Inspect { key } => {
            let mut packer = begin(&scripts.inspect, form, 2, 2, 2 * key.len() + 32);
            packer.word(key).word(naming::fence_key(key));
            packer.finish()
        }
        Op::ForceRelease { key } => force_release(key, form),
    }
}

fn acquire(claim: &Claim, ttl_ms: u64, fence_ttl_ms: Option<u64>, info: Option<&str>, form: Form) -> Vec<u8> {
    let keys = if fence_ttl_ms.is_some() { 2 } else { 1 };
    let (script, info) = match claim.kind {
        Kind::Mutex => (&SCRIPTS.acquire_lock, None),
        Kind::Reentrant => (&SCRIPTS.acquire_reentrant, Some(info.unwrap_or_default())),
    };
    let words = 2 * keys + 1 + usize::from(info.is_some());
    let size = 2 * claim.key.len() + claim.token.len() + info.map_or(0, str::len) + 64;
    let mut packer = begin(script, form, keys, words, size);
    packer.word(&claim.key);
    if fence_ttl_ms.is_some() {
        packer.word(naming::fence_key(&claim.key));
    }
    packer.word(&*claim.token).number(ttl_ms);
    if let Some(info) = info {
        packer.word(info);
    }
    if let Some(fence_ttl_ms) = fence_ttl_ms {
        packer.number(fence_ttl_ms);
    }
    packer.finish()
}

fn renew(holds: &[(Claim, u64)], form: Form) -> Vec<u8> {
    let size = holds.iter().map(|(claim, _)| claim.key.len() + claim.token.len() + 64).sum();
    let mut packer = begin(&SCRIPTS.renew, form, holds.len(), 4 * holds.len(), size);
    for (claim, _) in holds {
        packer.word(&claim.key);
    }
    for (claim, ttl_ms) in holds {
        packer.word(letter(claim.kind)).word(&*claim.token).number(*ttl_ms);
    }
    packer.finish()
}

fn force_release(key: &Key, form: Form) -> Vec<u8> {
    let mut packer = begin(&SCRIPTS.force_release, form, 1, 3, 3 * key.len() + 96);
    packer.word(key).word(naming::channel(Kind::Mutex, key)).word(naming::channel(Kind::Reentrant, key));
    packer.finish()
}

/// How the scripts spell a kind.
fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "m",
        Kind::Reentrant => "r",
    }
}

/// Begins a script call with `keys` keys and, these included, `words` words behind their number. `size` is what the
/// words themselves need, roughly.
fn begin(script: &Script, form: Form, keys: usize, words: usize, size: usize) -> Packer {
    let name = match form {
        Form::Sha => &script.by_sha,
        Form::Text => &script.by_text,
    };
    let mut packer = Packer::with_capacity(name.len() + size + 24 + words * 10);
    packer.begin(3 + words).packed(name).number(keys as u64);
    packer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::resp::{Value, decode};
    use super::*;

    fn claim(kind: Kind) -> Claim {
        Claim { kind, key: b"k"[..].into(), token: "tok".into() }
    }

    /// The words behind the script's hash.
    fn words(op: &Op) -> Vec<String> {
        let bytes = pack(op, Form::Sha);
        let (value, length) = decode(&bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        let Value::Array(words) = value else { panic!("no array") };
        words[2..].iter().map(|word| String::from_utf8(word.text().unwrap().to_vec()).unwrap()).collect()
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
        assert_eq!(words(&Op::Inspect { key: b"k"[..].into() }), ["2", "k", "onelock_fence:{k}"]);
        assert_eq!(
            words(&Op::ForceRelease { key: b"k"[..].into() }),
            ["1", "k", "onelock_channel:{k}", "redisson_lock__channel:{k}"]
        );
    }
}
