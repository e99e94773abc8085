//! The key of a lock's item: the name of the lock in base64url, or its SHA-256 where that is too long for the server.

use std::fmt::Write;

use crate::store::sha256;

/// A longer name is hashed: the server takes keys of 250 bytes.
const NAME_MAX: usize = 180;
/// What a hashed name begins with. No letter of base64url is a colon.
const HASHED: &str = "h:";
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The key of the item of the lock with this name.
pub(super) fn item_key(name: &[u8]) -> String {
    if name.len() <= NAME_MAX {
        return base64url(name);
    }
    let mut text = HASHED.to_owned();
    for byte in sha256::digest(name) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Without padding.
fn base64url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| group.get(index).copied().unwrap_or(0);
        let bits = u32::from_be_bytes([0, at(0), at(1), at(2)]);
        for place in 0..=group.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * place)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_key_of_its_own_that_the_server_takes() {
        for (name, key) in [
            (&b"a"[..], "YQ"),
            (b"ab", "YWI"),
            (b"abc", "YWJj"),
            (b"orders:42", "b3JkZXJzOjQy"),
            (b"\xff\xfe\xfd", "__79"),
            (b" \r\n\0", "IA0KAA"),
        ] {
            assert_eq!(item_key(name), key);
        }
        assert_eq!(item_key(&[b'x'; NAME_MAX]).len(), 240);
        let (long, longer) = (item_key(&[b'x'; NAME_MAX + 1]), item_key(&[b'x'; NAME_MAX + 2]));
        assert!(long.starts_with("h:") && long.len() == 66 && long != longer, "{long} {longer}");
    }
}
