//! The part of memcached's text protocol that is used: four meta commands and their replies. No I/O.

use std::str::SplitAsciiWhitespace;

/// No reply of the commands that are used is longer; a value of a lock has a few hundred bytes.
const LINE_MAX: usize = 64 * 1024;
/// A longer value is no lock, and is not kept.
const VALUE_MAX: usize = 64 * 1024;
/// The largest item that a server keeps: 1 GiB.
const ITEM_MAX: usize = 1 << 30;

/// A command for one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    /// `mg`: what the item holds, its number, and how long it is kept.
    Look { key: &'a str },
    /// `ms` in the mode of "add": write the item if it is not there.
    Add { key: &'a str, value: &'a str, ttl_s: u64 },
    /// `ms` with a compare: write the item if its number is this one.
    Replace { key: &'a str, value: &'a str, ttl_s: u64, number: u64 },
    /// `md` that marks the item as stale if its number is this one: a new number and time to live, and no new memory.
    Prolong { key: &'a str, ttl_s: u64, number: u64 },
    /// `md`: delete the item if its number is this one.
    Delete { key: &'a str, number: u64 },
}

impl Command<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let text = match self {
            Command::Look { key } => format!("mg {key} v c t\r\n"),
            Command::Add { key, value, ttl_s } => {
                format!("ms {key} {} T{ttl_s} ME c\r\n{value}\r\n", value.len())
            }
            Command::Replace { key, value, ttl_s, number } => {
                format!("ms {key} {} T{ttl_s} C{number} c\r\n{value}\r\n", value.len())
            }
            Command::Prolong { key, ttl_s, number } => format!("md {key} I T{ttl_s} C{number}\r\n"),
            Command::Delete { key, number } => format!("md {key} C{number}\r\n"),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// One reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CacheReply {
    /// `HD`: done. With the number of the item where that was asked for.
    Done { number: Option<u64> },
    /// `VA`: the item. Without its value where that is too long for a lock.
    Item { value: Vec<u8>, number: u64, left_s: Option<u64> },
    /// `NS`: not stored, since the item is there.
    There,
    /// `EX`: the item has another number.
    Changed,
    /// `NF`, `EN`: there is no item.
    Absent,
    /// `STAT`: a setting.
    Setting(String, String),
    /// Another single line: `MN`, `VERSION`, `STORED`, `END`.
    Line(String),
    /// `ERROR`, `CLIENT_ERROR`, `SERVER_ERROR`, with the server's words.
    Refused(String),
}

/// What the server sent is no reply to what was asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbled(pub(super) String);

/// What has arrived and is no whole reply yet.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    /// A reply whose value is passed over, and how many bytes of that are to come.
    passed_over: Option<(usize, CacheReply)>,
}

/// Takes the first reply off the bytes that have arrived, if all of it has.
pub(super) fn read(input: &mut Input) -> Result<Option<CacheReply>, Garbled> {
    if let Some((left, reply)) = input.passed_over.take() {
        let count = left.min(input.bytes.len());
        input.bytes.drain(..count);
        if count == left {
            return Ok(Some(reply));
        }
        input.passed_over = Some((left - count, reply));
        return Ok(None);
    }
    let Input { bytes: input, passed_over } = input;
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return if input.len() > LINE_MAX { Err(Garbled("a line without end".to_owned())) } else { Ok(None) };
    };
    let Ok(line) = str::from_utf8(&input[..end]) else { return Err(Garbled("a line that is no text".to_owned())) };
    let line = line.trim_end_matches('\r');
    let mut words = line.split_ascii_whitespace();
    let reply = match words.next().unwrap_or("") {
        "HD" => CacheReply::Done { number: flags(words)?.number },
        "VA" => {
            let size = words.next().and_then(|size| size.parse().ok()).filter(|size| *size <= ITEM_MAX);
            let size: usize = size.ok_or_else(|| garbled(line))?;
            let Flags { number, left_s } = flags(words)?;
            let (Some(number), Some(left_s)) = (number, left_s) else { return Err(garbled(line)) };
            let left_s = u64::try_from(left_s).ok();
            if size > VALUE_MAX {
                let arrived = (input.len() - end - 1).min(size + 2);
                input.drain(..end + 1 + arrived);
                let item = CacheReply::Item { value: Vec::new(), number, left_s };
                if arrived == size + 2 {
                    return Ok(Some(item));
                }
                *passed_over = Some((size + 2 - arrived, item));
                return Ok(None);
            }
            let (begin, needed) = (end + 1, end + 1 + size + 2);
            if input.len() < needed {
                return Ok(None);
            }
            let value = input[begin..begin + size].to_vec();
            input.drain(..needed);
            return Ok(Some(CacheReply::Item { value, number, left_s }));
        }
        "NS" => CacheReply::There,
        "EX" => CacheReply::Changed,
        "NF" | "EN" => CacheReply::Absent,
        "STAT" => CacheReply::Setting(words.next().unwrap_or("").to_owned(), words.collect::<Vec<_>>().join(" ")),
        "ERROR" | "CLIENT_ERROR" | "SERVER_ERROR" => CacheReply::Refused(line.to_owned()),
        "MN" | "VERSION" | "STORED" | "END" => CacheReply::Line(line.to_owned()),
        _ => return Err(garbled(line)),
    };
    input.drain(..=end);
    Ok(Some(reply))
}

fn garbled(line: &str) -> Garbled {
    Garbled(format!("{:?}", line.chars().take(40).collect::<String>()))
}

#[derive(Default)]
struct Flags {
    number: Option<u64>,
    /// -1 for an item that is kept for ever.
    left_s: Option<i64>,
}

fn flags(words: SplitAsciiWhitespace<'_>) -> Result<Flags, Garbled> {
    let mut flags = Flags::default();
    for word in words {
        let broken = || garbled(word);
        match word.split_at_checked(1) {
            Some(("c", number)) => flags.number = Some(number.parse().map_err(|_| broken())?),
            Some(("t", left)) => flags.left_s = Some(left.parse().map_err(|_| broken())?),
            // marks of what is stale: W, X, Z
            _ => {}
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn arrived(bytes: &[u8]) -> Input {
        Input { bytes: bytes.to_vec(), ..Input::default() }
    }

    fn written(command: &Command<'_>) -> String {
        let mut out = Vec::new();
        command.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn commands() {
        let (key, value) = ("YQ", "onelock1:ab");
        assert_eq!(written(&Command::Look { key }), "mg YQ v c t\r\n");
        assert_eq!(written(&Command::Add { key, value, ttl_s: 31 }), "ms YQ 11 T31 ME c\r\nonelock1:ab\r\n");
        let replace = Command::Replace { key, value, ttl_s: 31, number: 7 };
        assert_eq!(written(&replace), "ms YQ 11 T31 C7 c\r\nonelock1:ab\r\n");
        assert_eq!(written(&Command::Prolong { key, ttl_s: 31, number: 7 }), "md YQ I T31 C7\r\n");
        assert_eq!(written(&Command::Delete { key, number: 7 }), "md YQ C7\r\n");
    }

    #[test]
    fn replies_however_they_arrive() {
        let text = b"HD c17\r\nHD\r\nVA 4 c3 t30 W X\r\na\r\nb\r\nVA 0 c4 t-1\r\n\r\nNS c0\r\nEX\r\nNF\r\nEN\r\n\
            STAT evictions on\r\nEND\r\nSERVER_ERROR out of memory storing object\r\n";
        let item = |value: &[u8], number, left_s| CacheReply::Item { value: value.to_vec(), number, left_s };
        let expected = [
            CacheReply::Done { number: Some(17) },
            CacheReply::Done { number: None },
            item(b"a\r\nb", 3, Some(30)),
            item(b"", 4, None),
            CacheReply::There,
            CacheReply::Changed,
            CacheReply::Absent,
            CacheReply::Absent,
            CacheReply::Setting("evictions".into(), "on".into()),
            CacheReply::Line("END".into()),
            CacheReply::Refused("SERVER_ERROR out of memory storing object".into()),
        ];
        for step in [1, 2, 7, text.len()] {
            let (mut input, mut found) = (Input::default(), Vec::new());
            for part in text.chunks(step) {
                input.bytes.extend_from_slice(part);
                while let Some(reply) = read(&mut input).unwrap() {
                    found.push(reply);
                }
            }
            assert_eq!(found, expected, "{step} bytes at a time");
            assert!(input.bytes.is_empty());
        }
    }

    #[test]
    fn a_value_that_is_too_long_for_a_lock_is_passed_over() {
        let size = VALUE_MAX * 10;
        let text = [format!("VA {size} c3 t30\r\n").as_bytes(), &vec![b'\n'; size], b"\r\nNS\r\n"].concat();
        let expected = [CacheReply::Item { value: Vec::new(), number: 3, left_s: Some(30) }, CacheReply::There];
        for step in [4099, text.len()] {
            let (mut input, mut found) = (Input::default(), Vec::new());
            for part in text.chunks(step) {
                input.bytes.extend_from_slice(part);
                while let Some(reply) = read(&mut input).unwrap() {
                    found.push(reply);
                }
                assert!(input.bytes.len() <= 8, "{} bytes are kept", input.bytes.len());
            }
            assert_eq!(found, expected, "{step} bytes at a time");
        }
    }

    #[test]
    fn what_is_no_reply_is_told() {
        for text in
            [&b"HTTP/1.1 400\r\n"[..], b"VA x c1 t1\r\n", b"VA 1 t1\r\n", b"VA 1 c1\r\n", b"HD cx\r\n", b"\xff\n"]
        {
            assert!(read(&mut arrived(text)).is_err(), "{text:?}");
        }
        assert!(read(&mut arrived(&vec![b'x'; LINE_MAX + 1])).is_err());
        assert_eq!(read(&mut arrived(b"HD")), Ok(None));
    }
}
