//! The owner token: 128 fresh random bits per acquisition, in the text form that stands on the server.
//!
//! | kind | text |
//! |---|---|
//! | mutex | `onelock1:<32 hex>`, or `onelock1:<32 hex>:<label,pid,host,since>` when inspectable |
//! | reentrant lock | `<client uuid>:<decimal below 2^63>`, the number fresh for every outermost acquisition |
//! | semaphore | `<28 hex>:<permits>`: what the ids of the permits begin with (112 bits), and how many they are |

use std::fmt;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

use crate::machine::kind::{Kind, TokenForm};
use crate::machine::words::VALUE_PREFIX;

/// Everything but letters, digits and `-_.` is escaped, so that `,` and `:` keep their meaning.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Who holds a lock, for people: shown by `inspect`. Only written when the client is `inspectable`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct OwnerInfo {
    /// The client's label, free text.
    pub label: String,
    /// The process id.
    pub pid: u32,
    /// The host's name.
    pub host: String,
    /// When it was granted: wall clock, milliseconds since 1970.
    pub since_ms: u64,
}

impl OwnerInfo {
    fn encode(&self) -> String {
        let escape = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
        format!("{},{},{},{}", escape(&self.label), self.pid, escape(&self.host), self.since_ms)
    }

    fn decode(text: &[u8]) -> Option<OwnerInfo> {
        let mut parts = text.split(|byte| *byte == b',');
        let mut unescape = || Some(percent_decode(parts.next()?).decode_utf8_lossy().into_owned());
        let (label, pid, host, since) = (unescape()?, unescape()?, unescape()?, unescape()?);
        Some(OwnerInfo { label, pid: pid.parse().ok()?, host, since_ms: since.parse().ok()? })
    }
}

fn hex(random: [u8; 16]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let mut text = String::with_capacity(32);
    // made for every acquisition; going through `write!` for each byte took longer than asking the system for them
    for byte in random {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    text
}

/// The value of a mutex, and the `onelock_info` field of a reentrant hold.
pub fn value(random: [u8; 16], info: Option<&OwnerInfo>) -> Arc<str> {
    let mut text = String::with_capacity(VALUE_PREFIX.len() + 32);
    text.push_str(VALUE_PREFIX);
    text.push_str(&hex(random));
    if let Some(info) = info {
        text.push(':');
        text.push_str(&info.encode());
    }
    text.into()
}

/// A random (version 4) UUID in its text form: the first half of a reentrant owner.
pub fn client_uuid(mut random: [u8; 16]) -> String {
    random[6] = (random[6] & 0x0f) | 0x40;
    random[8] = (random[8] & 0x3f) | 0x80;
    let text = hex(random);
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

/// Names a client in the channels of its grants: 16 hex digits, the first half of its UUID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientTag(pub u64);

impl ClientTag {
    /// That of the client with this UUID.
    pub fn of(client_uuid: &str) -> ClientTag {
        let digits = client_uuid.bytes().filter_map(|byte| char::from(byte).to_digit(16)).take(16);
        ClientTag(digits.fold(0, |tag, digit| (tag << 4) | u64::from(digit)))
    }
}

impl fmt::Display for ClientTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The hash field of a reentrant hold.
pub fn field(client_uuid: &str, random: u64) -> Arc<str> {
    format!("{client_uuid}:{}", random >> 1).into()
}

/// How many permits a hold has at most, and a semaphore.
pub const PERMITS_MAX: u32 = 1024;
/// How many bytes the ids of the permits of one hold share.
pub const PREFIX_BYTES: usize = 14;

/// The token of a hold of `count` permits.
pub fn permits(random: [u8; 16], count: u16) -> Arc<str> {
    format!("{}:{count}", &hex(random)[..2 * PREFIX_BYTES]).into()
}

/// What the ids of the permits begin with, and how many there are; `None` when this is no token of permits.
pub fn parse_permits(token: &str) -> Option<([u8; PREFIX_BYTES], u16)> {
    let (text, count) = token.split_once(':')?;
    if text.len() != 2 * PREFIX_BYTES || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut prefix = [0; PREFIX_BYTES];
    for (byte, digits) in prefix.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    let number: u16 = count.parse().ok()?;
    let spelt_plainly = count == number.to_string();
    (spelt_plainly && (1..=PERMITS_MAX).contains(&u32::from(number))).then_some((prefix, number))
}

/// The id of one permit of a hold: 16 bytes.
pub fn permit_id(prefix: [u8; PREFIX_BYTES], index: u16) -> [u8; 16] {
    let mut id = [0; 16];
    id[..PREFIX_BYTES].copy_from_slice(&prefix);
    id[PREFIX_BYTES..].copy_from_slice(&index.to_be_bytes());
    id
}

/// The inspection text inside a value written by this library, if there is any.
pub fn owner_info(value: &[u8]) -> Option<OwnerInfo> {
    let rest = value.strip_prefix(VALUE_PREFIX.as_bytes())?;
    let (token, info) = rest.split_at_checked(32)?;
    if !token.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    OwnerInfo::decode(info.strip_prefix(b":")?)
}

/// What tells people who a foreign holder is, of what it wrote on the server; nothing where that could be a secret.
///
/// Such a value is the proof of the hold, and a string with a time to live may be no lock at all. So it is shown only when
/// it is made of words like names and numbers, and of a word of 16 letters or more only the beginning: a quarter of it, 8
/// letters at most. A single shorter word is not shown.
pub fn foreign_holder(value: &[u8]) -> Option<String> {
    const SEPARATORS: [char; 3] = [':', '@', '/'];
    let text = str::from_utf8(value).ok()?;
    let part_of_word = |letter: char| letter.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&letter);
    if text.is_empty() || !text.chars().all(|letter| part_of_word(letter) || SEPARATORS.contains(&letter)) {
        return None;
    }
    let is_number = |word: &str| (1..=10).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit());
    let words: Vec<&str> = text.split(SEPARATORS).collect();
    let single = words.len() == 1 && text.len() >= LONG_WORD;
    // a process or thread, and where: the form that people give to such values
    let process = words.len() > 1 && words.iter().any(|word| is_number(word));
    if !(single || process) || words.iter().any(|word| word.is_empty()) {
        return None;
    }
    let shown = text.split_inclusive(SEPARATORS).map(|part| {
        let word = part.trim_end_matches(SEPARATORS);
        let kept = if word.len() < LONG_WORD { word.len() } else { (word.len() / 4).min(8) };
        let (begin, rest) = part.split_at(kept);
        if kept == word.len() { part.to_owned() } else { format!("{begin}...{}", &rest[word.len() - kept..]) }
    });
    Some(shown.collect())
}

/// From this length on a word is taken for a random one.
const LONG_WORD: usize = 16;

/// A number that tells holders apart, of their text on the server (FNV-1a).
pub fn digest(holder: &[u8]) -> u64 {
    holder.iter().fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whether a value was written by this library, so that its release will be announced.
pub fn is_ours(value: &[u8]) -> bool {
    value.starts_with(VALUE_PREFIX.as_bytes())
}

/// Which client's lock it is, as far as what stands on the server tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// A client of this library.
    Onelock,
    /// Redisson, or another client that shares its layout.
    Redisson,
    /// Any other client: a string that `SET NX` may have written.
    Other,
}

impl Origin {
    /// Every origin, in the order of the documentation.
    pub const ALL: [Origin; 3] = [Origin::Onelock, Origin::Redisson, Origin::Other];

    /// The word for it in every language: `onelock`, `redisson` or `other`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Origin::Onelock => "onelock",
            Origin::Redisson => "redisson",
            Origin::Other => "other",
        }
    }

    /// The origin of a mutex, by its value.
    pub fn of_value(value: &[u8]) -> Origin {
        if is_ours(value) { Origin::Onelock } else { Origin::Other }
    }

    /// The origin of a reentrant lock: by our notes in its hash, else by the number of its owner, which is random here and
    /// that of a thread in Java, a small one.
    pub fn of_field(field: &[u8], noted: bool) -> Origin {
        const THREADS: u64 = 1 << 32;
        let number = field.rsplit(|byte| *byte == b':').next().and_then(|text| str::from_utf8(text).ok());
        let thread = number.and_then(|text| text.parse::<u64>().ok()).is_some_and(|number| number < THREADS);
        if thread && !noted { Origin::Redisson } else { Origin::Onelock }
    }
}

/// Whether a hash field is that of an owner, ours or Redisson's: `<uuid>:<number>`.
pub fn is_owner(field: &[u8]) -> bool {
    let Some((uuid, [b':', number @ ..])) = field.split_at_checked(36) else { return false };
    let groups = || uuid.split(|byte| *byte == b'-');
    groups().count() == 5
        && groups().all(|group| !group.is_empty() && group.iter().all(u8::is_ascii_hexdigit))
        && !number.is_empty()
        && number.iter().all(u8::is_ascii_digit)
}

/// Whether `token` has the form of a token of `kind`; checked before a handed-over token is believed.
pub fn is_well_formed(kind: Kind, token: &str) -> bool {
    if token.len() > 4096 || !token.is_ascii() {
        return false;
    }
    match kind.row().token {
        TokenForm::Value => token.strip_prefix(VALUE_PREFIX).is_some_and(|rest| {
            let (digits, info) = rest.split_at(rest.len().min(32));
            digits.len() == 32
                && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
                && (info.is_empty() || info.starts_with(':'))
        }),
        TokenForm::Owner => token.rsplit_once(':').is_some_and(|(uuid, number)| {
            uuid.len() == 36
                && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
                && number.parse::<i64>().is_ok_and(|number| number >= 0)
        }),
        TokenForm::Permits => parse_permits(token).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_foreign_holder_no_secret_is_shown() {
        let shown = |value: &str| foreign_holder(value.as_bytes());
        for (value, expected) in [
            ("c7f1e2d3-0000-4000-8000-0123456789ab:47", "c7f1e2d3...:47"),
            ("8d4e6b518d4e6b518d4e6b518d4e6b51", "8d4e6b51..."),
            ("web-3.example:4711", "web-3.example:4711"),
            ("4711@web-3", "4711@web-3"),
            ("0123456789abcdef", "0123..."),
            ("celery@web-3/12", "celery@web-3/12"),
        ] {
            assert_eq!(shown(value).as_deref(), Some(expected), "{value}");
        }
        for secret in
            ["", "hunter2", "493201", "1", "user:hunter2", "{\"a\":1}", "a b 1", "x:\x1b[2J:1", "grüße:1", ":1", "a::1"]
        {
            assert_eq!(shown(secret), None, "{secret}");
        }
        assert_eq!(foreign_holder(b"\xff:1"), None);
    }

    #[test]
    fn text_forms() {
        assert_eq!(&*value([0xab; 16], None), "onelock1:abababababababababababababababab");
        let uuid = client_uuid([0xff; 16]);
        assert_eq!(uuid, "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let field = field(&uuid, u64::MAX);
        assert_eq!(&*field, "ffffffff-ffff-4fff-bfff-ffffffffffff:9223372036854775807");
        assert!(is_well_formed(Kind::Reentrant, &field));
        assert!(is_well_formed(Kind::Mutex, "onelock1:abababababababababababababababab"));
        assert!(!is_well_formed(Kind::Mutex, "onelock1:abab"));
        assert!(!is_well_formed(Kind::Mutex, &field));
        assert!(is_owner(field.as_bytes()));
        for other in ["sku", "mode", "", "a:1", &field[..37], &field[1..], &format!("{field}:write")] {
            assert!(!is_owner(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn permits_have_ids_that_begin_alike() {
        let token = permits([0xab; 16], 300);
        assert_eq!(&*token, "abababababababababababababab:300");
        assert_eq!(parse_permits(&token), Some(([0xab; PREFIX_BYTES], 300)));
        assert_eq!(permit_id([1; PREFIX_BYTES], 299), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 43]);
        for other in ["", ":1", "ab:1", "abababababababababababababab", "abababababababababababababab:0"] {
            assert!(!is_well_formed(Kind::Semaphore, other), "{other}");
        }
        for count in ["1025", "+1", "01", "-1", "1:1"] {
            assert!(parse_permits(&format!("{}:{count}", "ab".repeat(14))).is_none(), "{count}");
        }
    }

    #[test]
    fn origins() {
        assert_eq!(Origin::of_value(b"onelock1:abababababababababababababababab"), Origin::Onelock);
        assert_eq!(Origin::of_value(b"1c1bd44c-5c6f-4f9f-a2f8-4a0a3f6c3f6d"), Origin::Other);
        let uuid = client_uuid([7; 16]);
        assert_eq!(Origin::of_field(format!("{uuid}:47").as_bytes(), false), Origin::Redisson);
        assert_eq!(Origin::of_field(format!("{uuid}:47").as_bytes(), true), Origin::Onelock);
        assert_eq!(Origin::of_field(field(&uuid, u64::MAX).as_bytes(), false), Origin::Onelock);
    }

    #[test]
    fn inspection_text_survives_every_character() {
        let info = OwnerInfo { label: "a,b:c%\u{e9}".into(), pid: 7, host: "h,1".into(), since_ms: 12 };
        let value = value([1; 16], Some(&info));
        assert!(value.is_ascii() && is_well_formed(Kind::Mutex, &value));
        assert_eq!(owner_info(value.as_bytes()), Some(info));
        assert_eq!(owner_info(b"onelock1:zz"), None);
        assert_eq!(owner_info(b"some other client"), None);
    }
}
