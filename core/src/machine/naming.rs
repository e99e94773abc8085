//! Names on the server: companion keys and channels share the cluster slot of the lock they belong to.

use crate::machine::kind::Kind;
use crate::machine::token::{ClientTag, is_owner};
pub use crate::machine::words::*;

/// How long a fencing counter lives at least after its last grant: seven days.
pub const FENCE_TTL_MIN_MS: u64 = 7 * 24 * 3600 * 1000;

/// `<word>:{key}`, or `<word>:key` when the key contains a `{`.
fn companion(word: &str, key: &[u8]) -> Vec<u8> {
    let tagged = key.contains(&b'{');
    let mut name = Vec::with_capacity(word.len() + key.len() + 3);
    name.extend_from_slice(word.as_bytes());
    name.push(b':');
    if !tagged {
        name.push(b'{');
    }
    name.extend_from_slice(key);
    if !tagged {
        name.push(b'}');
    }
    name
}

/// The key of the fencing counter that belongs to the lock at `key`.
pub fn fence_key(key: &[u8]) -> Vec<u8> {
    companion(FENCE_WORD, key)
}

/// The key of the permits that are held of the semaphore at `key`: `{key}:timeout`, or `key:timeout` when the key contains a
/// `{`, as Redisson writes it.
pub fn permits_key(key: &[u8]) -> Vec<u8> {
    let (open, close): (&[u8], &[u8]) = if key.contains(&b'{') { (b"", b"") } else { (b"{", b"}") };
    [open, key, close, b":timeout"].concat()
}

/// The channel that announces the free permits of the semaphore at `key` to clients without a place: Redisson's own.
pub fn permits_channel(key: &[u8]) -> Vec<u8> {
    companion(SEMAPHORE_CHANNEL_WORD, key)
}

/// The key of the readers of the read/write lock at `key`.
pub fn readers_key(key: &[u8]) -> Vec<u8> {
    companion(READERS_WORD, key)
}

/// The key that lives as long as the read hold of an owner: `{key}:<owner>:rwlock_timeout:1`, or without the braces when the
/// key contains a `{`, as Redisson writes it.
pub fn timeout_key(key: &[u8], owner: &str) -> Vec<u8> {
    let (open, close): (&[u8], &[u8]) = if key.contains(&b'{') { (b"", b"") } else { (b"{", b"}") };
    [open, key, close, b":", owner.as_bytes(), b":rwlock_timeout:1"].concat()
}

/// The key of the queue that belongs to the lock at `key`.
pub fn queue_key(key: &[u8]) -> Vec<u8> {
    companion(QUEUE_WORD, key)
}

/// The key of the records of the places in that queue.
pub fn waiters_key(key: &[u8]) -> Vec<u8> {
    companion(WAITERS_WORD, key)
}

/// The channel with the wake-ups of a client for the lock at `key`: of a kind that queues it is the client's own.
pub fn wake_up_channel(kind: Kind, key: &[u8], client: ClientTag) -> Vec<u8> {
    let mut name = channel(kind, key);
    if kind.row().queues {
        name.extend_from_slice(format!(":{client}").as_bytes());
    }
    name
}

/// The channel on which the release of the lock at `key` is announced. Of a kind that queues: what the channels of its
/// clients begin with.
pub fn channel(kind: Kind, key: &[u8]) -> Vec<u8> {
    companion(kind.row().channel_word, key)
}

/// The reserved word that a name begins with, colon included, if it does: what stands there may be another lock's.
pub fn reserved_word(name: &[u8]) -> Option<&'static str> {
    RESERVED_WORDS
        .into_iter()
        .find(|word| name.strip_prefix(word.as_bytes()).is_some_and(|rest| rest.first() == Some(&b':')))
}

/// Whether a key is the timeout key of a read hold, ours or Redisson's: no lock, though it looks like a foreign one.
pub fn is_timeout_key(key: &[u8]) -> bool {
    let digits = key.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let Some(rest) = key[..key.len() - digits].strip_suffix(b":rwlock_timeout:") else { return false };
    let Some(at) = rest.iter().rposition(|byte| *byte == b':').and_then(|colon| colon.checked_sub(36)) else {
        return false;
    };
    digits > 0 && rest[..at].ends_with(b":") && is_owner(&rest[at..])
}

/// How many slots a cluster has.
pub const SLOTS: u16 = 16384;

/// The slot of a cluster in which `key` lives: that of what stands between its first pair of braces, if anything does.
pub fn slot(key: &[u8]) -> u16 {
    let crc = tag(key).iter().fold(0u16, |crc, byte| {
        let mut crc = crc ^ (u16::from(*byte) << 8);
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
        crc
    });
    crc % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let inside = &key[open + 1..];
    match inside.iter().position(|byte| *byte == b'}') {
        Some(length) if length > 0 => &inside[..length],
        _ => key,
    }
}

/// Whether the companions of the lock at `key` live in its slot. They do not when its braces enclose nothing, or when
/// it has only one of the two.
pub fn shares_slot(key: &[u8]) -> bool {
    tag(key) == tag(&fence_key(key))
}

/// The fencing counter's time to live: the larger of seven days and twice the lock's own.
pub fn fence_ttl_ms(server_ttl_ms: u64) -> u64 {
    FENCE_TTL_MIN_MS.max(server_ttl_ms.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // 0x31C3 is the check value of this checksum
        assert_eq!(slot(b"123456789"), 0x31C3);
        assert_eq!(slot(b""), 0);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
    }

    #[test]
    fn names_whose_companions_go_astray_are_known() {
        for good in ["a", "orders:42", "{orders}:42", "a{b}c", "{a}{", "{a}}", ""] {
            assert!(shares_slot(good.as_bytes()) || good.is_empty(), "{good}");
            assert!(good.is_empty() || slot(good.as_bytes()) == slot(&fence_key(good.as_bytes())), "{good}");
        }
        for bad in ["a{b", "a}b", "{}", "a{}b", "}", "{", "}{"] {
            assert!(!shares_slot(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn companions_share_the_slot_of_their_lock() {
        assert_eq!(fence_key(b"orders:42"), b"onelock_fence:{orders:42}");
        assert_eq!(fence_key(b"{orders}:42"), b"onelock_fence:{orders}:42");
        assert_eq!(channel(Kind::Mutex, b"a"), b"onelock_channel:{a}");
        assert_eq!(channel(Kind::Reentrant, b"a"), b"redisson_lock__channel:{a}");
        assert_eq!(channel(Kind::Reentrant, b"a{b"), b"redisson_lock__channel:a{b");
        assert_eq!(channel(Kind::Semaphore, b"a"), b"onelock_grant:{a}");
        assert_eq!(permits_channel(b"a"), b"redisson_sc:{a}");
        assert_eq!(permits_key(b"a"), b"{a}:timeout");
        assert_eq!(permits_key(b"{a}:b"), b"{a}:b:timeout");
        assert_eq!((slot(&permits_key(b"a")), slot(&permits_key(b"{a}:b"))), (slot(b"a"), slot(b"a")));
    }
}
