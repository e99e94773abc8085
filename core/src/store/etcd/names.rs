//! Names as keys of etcd: `<namespace><prefix><name>/<lease in hex>`, where Go's `concurrency.Mutex` and `etcdctl lock` put
//! theirs.

use percent_encoding::percent_decode;

use super::cluster::Cluster;
use super::messages::KeyValue;
use crate::machine::{Key, Kind, token};
use crate::store::sha256;

/// What the keys of everybody who wants this lock begin with.
pub(super) fn directory(cluster: &Cluster, key: &[u8]) -> Vec<u8> {
    let mut directory = cluster.namespace.clone();
    for byte in key {
        match byte {
            b'/' if cluster.escapes => directory.extend_from_slice(b"%2F"),
            b'%' if cluster.escapes => directory.extend_from_slice(b"%25"),
            other => directory.push(*other),
        }
    }
    directory.push(b'/');
    directory
}

/// What stands among the keys of a lock and is none of them.
pub(super) const FOREIGN: &str = "key of another program";

/// Whether a key in this directory is one that a claim to the lock has, ours or another client's: a key with a lease, whose
/// number stands behind the directory.
pub(super) fn is_place(directory: &[u8], found: &KeyValue) -> bool {
    let rest = found.key.strip_prefix(directory).unwrap_or_default();
    found.lease != 0 && !rest.is_empty() && rest.iter().all(u8::is_ascii_hexdigit)
}

/// Whether a claim to the lock wrote this key and its value: ours has the key of its token, another client's the number of its
/// lease. Before something is taken by force, more is wanted than a lease and a name of hex digits.
pub(super) fn is_claim(directory: &[u8], found: &KeyValue) -> bool {
    let rest = found.key.strip_prefix(directory).and_then(|rest| str::from_utf8(rest).ok()).unwrap_or_default();
    let token = str::from_utf8(PlaceEntry::read(&found.value).token).unwrap_or_default();
    let is_of_lease = i64::from_str_radix(rest, 16).is_ok_and(|number| number == found.lease);
    is_place(directory, found) && (is_of_lease || place(directory, token) == found.key)
}

/// The lock that a key under the namespace belongs to.
pub(super) fn name(cluster: &Cluster, found: &KeyValue) -> Option<Key> {
    let rest = found.key.strip_prefix(&*cluster.namespace)?;
    let end = rest.iter().rposition(|byte| *byte == b'/')?;
    let name = &rest[..end];
    let is_place = is_place(&found.key[..=cluster.namespace.len() + end], found);
    if name.is_empty() || !is_place || (cluster.escapes && name.contains(&b'/')) {
        return None;
    }
    Some(if cluster.escapes { percent_decode(name).collect::<Vec<u8>>().into() } else { name.into() })
}

/// The number of the lease of a token in this directory. `generation` counts the leases that it has had: a longer one takes
/// the place of the former.
///
/// Whoever knows the token knows its leases, so an undo needs nothing else, and a repeated request makes no second one. It is
/// the same in every version and on every machine.
pub(super) fn lease(directory: &[u8], token: &str, generation: u32) -> i64 {
    let mut text = directory.to_vec();
    text.push(0);
    text.extend_from_slice(token.as_bytes());
    text.push(0);
    text.extend_from_slice(generation.to_string().as_bytes());
    let digest = sha256::digest(&text);
    let number = digest.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    // positive, and 0 asks the server to choose
    (number >> 1).max(1).cast_signed()
}

/// The key of this token.
pub(super) fn place(directory: &[u8], token: &str) -> Vec<u8> {
    let mut key = directory.to_vec();
    key.extend_from_slice(format!("{:x}", lease(directory, token, 0)).as_bytes());
    key
}

/// What stands under that key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlaceEntry<'a> {
    pub(super) token: &'a [u8],
    /// How often its owner has it; 1 where that is not said.
    pub(super) count: u64,
    /// What an inspection shows, where the token does not have it.
    pub(super) info: Option<&'a [u8]>,
}

impl<'a> PlaceEntry<'a> {
    /// Reads what somebody wrote: a token, a count and an inspection text, separated by spaces.
    pub(super) fn read(value: &'a [u8]) -> PlaceEntry<'a> {
        let mut parts = value.split(|byte| *byte == b' ').peekable();
        let token = parts.next().unwrap_or_default();
        let count = parts.peek().and_then(|text| str::from_utf8(text).ok()?.parse().ok());
        if count.is_some() {
            parts.next();
        }
        PlaceEntry { token, count: count.unwrap_or(1), info: parts.next() }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut value = self.token.to_vec();
        if self.count != 1 {
            value.extend_from_slice(format!(" {}", self.count).as_bytes());
        }
        if let Some(info) = self.info {
            value.push(b' ');
            value.extend_from_slice(info);
        }
        value
    }
}

/// The kind of lock that somebody with this token has. Other clients, whose values may be anything, have plain locks.
pub(super) fn kind(token: &[u8]) -> Kind {
    if token::is_owner(token) { Kind::Reentrant } else { Kind::Mutex }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cluster(namespace: &str, escapes: bool) -> Cluster {
        Cluster {
            hosts: Vec::new(),
            user: String::new(),
            password: None,
            tls: None,
            namespace: namespace.into(),
            escapes,
            fence_base: 0,
        }
    }

    #[test]
    fn a_name_is_found_again_and_holds_no_other_name() {
        for (namespace, escapes, name_, expected) in [
            ("", true, &b"job"[..], &b"job/"[..]),
            ("app/", true, b"a/b%", b"app/a%2Fb%25/"),
            ("app/", false, b"a/b%", b"app/a/b%/"),
            ("", true, b"\xff\x00", b"\xff\x00/"),
        ] {
            let cluster = cluster(namespace, escapes);
            let directory = directory(&cluster, name_);
            assert_eq!(directory, expected);
            let key = place(&directory, "onelock1:token");
            assert_eq!(&*name(&cluster, &found(&key, 7)).unwrap(), name_);
            assert_eq!(name(&cluster, &found(&key, 0)), None, "no lease, no lock");
        }
        let escaped = cluster("ns/", true);
        assert_eq!(name(&escaped, &found(b"other/a/1", 7)), None);
        assert_eq!(name(&escaped, &found(b"ns/a/b/1", 7)), None, "nobody escaped that");
        assert_eq!(name(&escaped, &found(b"ns/a", 7)), None);
    }

    fn found(key: &[u8], lease: i64) -> KeyValue {
        KeyValue { key: key.to_vec(), lease, ..KeyValue::default() }
    }

    #[test]
    fn a_lease_has_the_same_number_in_every_version() {
        assert_eq!(lease(b"job/", "onelock1:token", 0), 0x2cf5_b4a1_7627_f7dd);
        assert_ne!(lease(b"job/", "onelock1:token", 1), lease(b"job/", "onelock1:token", 0));
    }

    #[test]
    fn a_claim_is_known_by_its_token_or_by_its_lease() {
        let found = |key: &[u8], value: &[u8], lease| KeyValue {
            key: key.to_vec(),
            value: value.to_vec(),
            lease,
            ..KeyValue::default()
        };
        assert!(is_claim(b"a/", &found(b"a/1f", b"", 31)), "of another client");
        assert!(!is_claim(b"a/", &found(b"a/1f", b"", 32)), "registered by a service");
        let key = place(b"a/", "onelock1:token");
        assert!(is_claim(b"a/", &found(&key, b"onelock1:token 2", 77)), "an extension gave it another lease");
        assert!(!is_claim(b"a/", &found(&key, b"onelock1:other", 77)));
        assert!(!is_claim(b"a/", &found(&key, b"onelock1:token", 0)));
    }

    #[test]
    fn a_place_is_a_key_with_a_lease_whose_number_it_has() {
        for (key, lease, is) in [
            (&b"a/1f"[..], 31, true),
            (b"a/1f", 0, false),
            (b"a/config", 31, false),
            (b"a/", 31, false),
            (b"a/b/1f", 31, false),
            (b"b/1f", 31, false),
        ] {
            assert_eq!(is_place(b"a/", &found(key, lease)), is, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_lease_is_a_positive_number_of_its_claim_alone() {
        let mut seen = std::collections::HashSet::new();
        for at in 0..10_000 {
            let token = format!("onelock1:{at:032x}");
            for generation in 0..2 {
                for directory in [&b"a/"[..], b"b/"] {
                    let lease = lease(directory, &token, generation);
                    assert!(lease > 0 && seen.insert(lease));
                }
            }
        }
        assert_eq!(lease(b"a/", "t", 0), lease(b"a/", "t", 0));
    }

    #[test]
    fn a_value_tells_the_token_the_count_and_who_it_is() {
        for (count, info, written) in [
            (1, None, &b"t"[..]),
            (3, None, b"t 3"),
            (1, Some(&b"onelock1:x"[..]), b"t onelock1:x"),
            (2, Some(b"onelock1:x"), b"t 2 onelock1:x"),
        ] {
            let entry = PlaceEntry { token: b"t", count, info };
            assert_eq!(entry.write(), written);
            assert_eq!(PlaceEntry::read(written), entry);
        }
        assert_eq!(PlaceEntry::read(b""), PlaceEntry { token: b"", count: 1, info: None });
        assert_eq!(kind(b"01234567-0123-4123-8123-0123456789ab:7"), Kind::Reentrant);
        assert_eq!((kind(b""), kind(b"onelock1:00")), (Kind::Mutex, Kind::Mutex));
    }
}
