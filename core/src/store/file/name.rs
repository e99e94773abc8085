//! The file of a lock: `<name>.lock`. Letters, digits and `.`, `_`, `-` stand for themselves, everything else is
//! percent-encoded, so that other programs find the file by the name of the lock. A name that would be longer than a file
//! name may be is `%h` and its SHA-256; no other name has `%h`, since `h` is no hex digit.

use std::fmt::Write;

use percent_encoding::percent_decode;

use crate::store::sha256;

/// How the name of each lock's file ends.
pub(super) const ENDING: &str = ".lock";
/// A longer one is hashed.
const ENCODED_MAX: usize = 200;
const HASHED: &str = "%h";

/// The key in the form that it has in a file name of any length.
pub(super) fn encode(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len() + ENDING.len());
    for byte in key {
        if byte.is_ascii_alphanumeric() || b"._-".contains(byte) {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The name of the file of this key.
pub(super) fn file_name(key: &[u8]) -> String {
    let mut text = encode(key);
    if text.len() > ENCODED_MAX {
        HASHED.clone_into(&mut text);
        for byte in sha256::digest(key) {
            let _ = write!(text, "{byte:02x}");
        }
    }
    text.push_str(ENDING);
    text
}

/// What a file of this name is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// The file of the lock with this key.
    Key(Vec<u8>),
    /// That of a lock whose key stands in the file only.
    Hashed,
    /// Something else.
    Nothing,
}

/// Which lock's file has this name.
pub(super) fn read(file: &[u8]) -> Named {
    let Some(text) = file.strip_suffix(ENDING.as_bytes()) else { return Named::Nothing };
    if text.starts_with(HASHED.as_bytes()) {
        return Named::Hashed;
    }
    let key: Vec<u8> = percent_decode(text).collect();
    // one spelling for each key: a file of another spelling is nobody's
    if !key.is_empty() && file_name(&key).as_bytes() == file { Named::Key(key) } else { Named::Nothing }
}

/// The key from the form that [`encode`] gave it.
pub(super) fn decode(text: &str) -> Vec<u8> {
    percent_decode(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_file_of_its_own() {
        for (key, file) in [
            (&b"orders"[..], "orders.lock"),
            (b"a/b", "a%2Fb.lock"),
            (b"..", "...lock"),
            (b"a%2Fb", "a%252Fb.lock"),
            (b"A a\0\xff", "A%20a%00%FF.lock"),
            (b"x.lock", "x.lock.lock"),
        ] {
            assert_eq!(file_name(key), file);
            assert_eq!(read(file.as_bytes()), Named::Key(key.to_vec()));
            assert_eq!(decode(&encode(key)), key);
        }
        for other in ["orders", ".lock", "a%2fb.lock", "a b.lock", "%41.lock", ".%t0.tmp"] {
            assert_eq!(read(other.as_bytes()), Named::Nothing, "{other}");
        }
    }

    #[test]
    fn a_long_key_is_hashed() {
        let long = "k".repeat(201);
        let file = file_name(long.as_bytes());
        assert_eq!(file.len(), 2 + 64 + 5);
        assert_eq!(read(file.as_bytes()), Named::Hashed);
        assert_ne!(file, file_name("l".repeat(201).as_bytes()));
        assert_eq!(file_name("k".repeat(200).as_bytes()).len(), 205);
        // the longest prefix and name, all of it encoded
        assert!(file_name(&[0xff; 1024]).len() < 255);
    }
}
