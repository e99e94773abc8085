//! What stands in the file of a lock: who waited, whether it is held, and who holds or held it with which fencing token.
//! Text, for people.
//!
//! ```text
//! waited 00000000001a2b3c        when somebody last waited: the clock in nanoseconds since the start of the machine
//! held                           or `free`
//! onelock1 <checksum> <length>   of what follows
//! fence=1764284000000000
//! kind=lock
//! ...
//! ```
//!
//! The lock itself is the kernel's. Its holder alone writes here, but for the first line; whoever reads may see half of a
//! record, which the checksum tells.

use std::fmt::Write;

use super::name;
use crate::machine::{Kind, Time, token};

/// `waited <16 hex>` and the end of the line.
const WAITED: &str = "waited ";
const WAITED_LEN: usize = 24;
/// Where `held` or `free` stands.
pub(super) const STATE_AT: u64 = WAITED_LEN as u64;
const HELD: &str = "held\n";
/// What stands there when nobody holds it.
pub(super) const FREE: &[u8] = b"free\n";
const MAGIC: &str = "onelock1 ";
/// `onelock1 <16 hex> <5 digits>` and the end of the line.
const HEADER_LEN: usize = MAGIC.len() + 16 + 1 + 5 + 1;
/// Where the record's own text begins.
const BODY_AT: usize = WAITED_LEN + HELD.len() + HEADER_LEN;
/// A shorter file is filled up, so that nothing of an earlier record stands behind it.
const PADDED: usize = 512;
/// The longest file that is read.
pub(super) const LENGTH_MAX: usize = 16 * 1024;
/// Tokens stay below, so that every language can count with them. A higher one in a file is no token.
const FENCE_MAX: u64 = 1 << 53;
/// A clock that says more (the year 2112) is wrong, and leaves no room for further tokens.
const CLOCK_MAX_US: u64 = 1 << 52;

/// The fencing token behind this one. The clock is what is left when a counter is lost.
pub(super) fn next_fence(last: u64, wall_us: u64) -> u64 {
    wall_us.min(CLOCK_MAX_US).max(last + 1)
}

/// A hold, or the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// The fencing token of the latest grant; 0 before the first.
    pub(super) fence: u64,
    pub(super) kind: Kind,
    pub(super) count: u64,
    pub(super) pid: u32,
    /// What tells this process from another one with its number, as [`super::holder`] writes it; empty if unknown.
    pub(super) process: &'a str,
    /// When its lease ends unless it is renewed: wall clock, milliseconds since 1970. For people.
    pub(super) until_ms: u64,
    /// Whether the holder has a fencing token.
    pub(super) fenced: bool,
    pub(super) token: &'a str,
    pub(super) info: Option<&'a str>,
    /// The key, as [`name::encode`] writes it.
    pub(super) key: &'a str,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content<'a> {
    /// When somebody last waited.
    pub(super) waited_at: Option<Time>,
    /// Whether its last holder has not released it.
    pub(super) held: bool,
    pub(super) record: Option<Record<'a>>,
}

/// The first line.
pub(super) fn waited(at: Time) -> String {
    format!("{WAITED}{:016x}\n", at.as_nanos())
}

impl Record<'_> {
    /// A whole file: held, and nobody waits.
    pub(super) fn file(&self) -> Vec<u8> {
        let mut body = String::with_capacity(PADDED);
        let Record { fence, count, pid, process, until_ms, token, key, .. } = self;
        let kind = self.kind.as_str();
        let fenced = u8::from(self.fenced);
        let _ = write!(
            body,
            "fence={fence}\nkind={kind}\ncount={count}\npid={pid}\nprocess={process}\nuntil={until_ms}\nfenced={fenced}\ntoken={token}\nkey={key}\n"
        );
        if let Some(info) = self.info {
            let _ = writeln!(body, "info={info}");
        }
        let mut file = String::with_capacity(PADDED.max(BODY_AT + body.len()));
        file.push_str(&waited(Time::ZERO));
        file.push_str(HELD);
        let _ = writeln!(file, "{MAGIC}{:016x} {:05}", token::digest(body.as_bytes()), body.len());
        file.push_str(&body);
        let mut file = file.into_bytes();
        while file.len() < PADDED {
            file.push(if file.len() + 1 == PADDED { b'\n' } else { b' ' });
        }
        file
    }
}

/// Reads a file; what is not there or broken is left out.
pub(super) fn read(file: &[u8]) -> Content<'_> {
    let part = |from: usize, length: usize| file.get(from..from + length).and_then(|part| str::from_utf8(part).ok());
    let waited_at = part(0, WAITED_LEN)
        .and_then(|line| line.strip_prefix(WAITED))
        .and_then(|text| u64::from_str_radix(text.trim_end(), 16).ok())
        .filter(|nanos| *nanos > 0)
        .map(Time::from_nanos);
    let held = part(WAITED_LEN, HELD.len()) == Some(HELD);
    Content { waited_at, held, record: read_record(file) }
}

/// Whether this is the text of a lock: an empty file, or one that a client of this library has written.
pub(super) fn is_ours(file: &[u8]) -> bool {
    file.is_empty() || file.starts_with(WAITED.as_bytes())
}

/// The longest line of another program that gives way, such as the number of its process.
const NOTE_MAX: usize = 64;

/// Whether this is what another program keeps in a file of its own, and no note of who had the lock last.
pub(super) fn is_data(file: &[u8]) -> bool {
    let line = file.strip_suffix(b"\n").unwrap_or(file);
    !is_ours(file) && (file.len() > NOTE_MAX || line.contains(&b'\n'))
}

/// How long the record says that the file is; 0 without one.
pub(super) fn length(file: &[u8]) -> usize {
    header(file).map_or(0, |(_, length)| BODY_AT + length)
}

/// Checksum and length.
fn header(file: &[u8]) -> Option<(u64, usize)> {
    let header = str::from_utf8(file.get(BODY_AT - HEADER_LEN..BODY_AT)?).ok()?;
    let (checksum, length) = header.strip_prefix(MAGIC)?.strip_suffix('\n')?.split_once(' ')?;
    Some((u64::from_str_radix(checksum, 16).ok()?, length.parse().ok()?))
}

fn read_record(file: &[u8]) -> Option<Record<'_>> {
    let (checksum, length) = header(file)?;
    let body = file.get(BODY_AT..BODY_AT + length)?;
    if token::digest(body) != checksum {
        return None;
    }
    let mut record = Record {
        fence: 0,
        kind: Kind::Mutex,
        count: 0,
        pid: 0,
        process: "",
        until_ms: 0,
        fenced: false,
        token: "",
        info: None,
        key: "",
    };
    for (word, value) in str::from_utf8(body).ok()?.lines().filter_map(|line| line.split_once('=')) {
        match word {
            "fence" => record.fence = value.parse().ok().filter(|fence| *fence < FENCE_MAX)?,
            "kind" => record.kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == value)?,
            "count" => record.count = value.parse().ok()?,
            "pid" => record.pid = value.parse().ok()?,
            "process" => record.process = value,
            "until" => record.until_ms = value.parse().ok()?,
            "fenced" => record.fenced = value == "1",
            "token" => record.token = value,
            "info" => record.info = Some(value),
            "key" => record.key = value,
            _ => {}
        }
    }
    Some(record)
}

impl Record<'_> {
    /// The key of the lock.
    pub(super) fn key(&self) -> Vec<u8> {
        name::decode(self.key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record() -> Record<'static> {
        Record {
            fence: 1_764_284_000_000_000,
            kind: Kind::Reentrant,
            count: 2,
            pid: 7,
            process: "4026531836.4711",
            until_ms: 1_764_284_030_000,
            fenced: true,
            token: "ffffffff-ffff-4fff-bfff-ffffffffffff:7",
            info: Some("onelock1:ab:a,7,h,1"),
            key: "a%2Fb",
        }
    }

    #[test]
    fn a_file_says_what_was_written() {
        let file = record().file();
        assert_eq!(file.len(), PADDED);
        let content = read(&file);
        assert_eq!(content, Content { waited_at: None, held: true, record: Some(record()) });
        assert_eq!(content.record.unwrap().key(), b"a/b");
        assert!(length(&file) < PADDED && length(&file) > BODY_AT);
        let long = Record { token: &"t".repeat(4096), ..record() };
        assert_eq!(read(&long.file()).record, Some(long.clone()));
        assert!(long.file().len() < LENGTH_MAX && length(&long.file()) == long.file().len());
    }

    #[test]
    fn the_first_lines_change_without_the_record() {
        let mut file = record().file();
        file[..WAITED_LEN].copy_from_slice(waited(Time::from_nanos(77)).as_bytes());
        file[STATE_AT as usize..][..FREE.len()].copy_from_slice(FREE);
        let content = read(&file);
        assert_eq!(content, Content { waited_at: Some(Time::from_nanos(77)), held: false, record: Some(record()) });
        // an empty file in which somebody waited
        assert_eq!(read(waited(Time::from_nanos(1)).as_bytes()).waited_at, Some(Time::from_nanos(1)));
    }

    #[test]
    fn a_wrong_clock_leaves_room_for_tokens() {
        assert_eq!(next_fence(0, 1_764_284_000_000_000), 1_764_284_000_000_000);
        assert_eq!(next_fence(1_764_284_000_000_000, 5), 1_764_284_000_000_001);
        let first = next_fence(0, u64::MAX);
        assert!(first < FENCE_MAX);
        let second = next_fence(first, u64::MAX);
        assert_eq!(second, first + 1);
        assert_eq!(read(&Record { fence: second, ..record() }.file()).record.unwrap().fence, second);
    }

    #[test]
    fn what_is_broken_is_no_record() {
        let file = record().file();
        assert_eq!(read(b""), Content::default());
        for at in BODY_AT - HEADER_LEN..length(&file) {
            let mut broken = file.clone();
            broken[at] ^= 1;
            assert!(read(&broken).record.is_none(), "byte {at}");
        }
        for length in 0..length(&file) {
            assert!(read(&file[..length]).record.is_none(), "{length} bytes");
        }
        let high = Record { fence: FENCE_MAX, ..record() };
        assert!(read(&high.file()).record.is_none());
    }
}
