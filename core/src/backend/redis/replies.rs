//! Reads replies from a blocking source, piece by piece, with a bound on what a peer may make us keep.

use std::io::{self, Read};

use redis::{Parser, Value};

use super::plain;

/// No reply to one of our requests comes near this; what claims to be longer is not a server of ours. (The parser looks at
/// an unfinished line from its start each time, so a larger bound would also cost time.)
pub(crate) const MAX_REPLY: usize = 1 << 20;

/// Why there is no reply.
#[derive(Debug)]
pub(crate) enum NoReply {
    /// The source failed. If it only had nothing to give (`WouldBlock`), the next call goes on where this one stopped.
    Source(io::Error),
    /// The bytes are no reply; the connection can't be used any longer.
    Garbage,
}

/// The reading end of one connection.
pub(crate) struct Replies {
    parser: Parser,
    ahead: Ahead,
    /// What the reply under way has taken so far.
    taken: usize,
    /// Whether the parser has nothing of a reply yet.
    between: bool,
    /// Whether pushes are replies too.
    pushes: bool,
}

impl Replies {
    pub(crate) fn new() -> Replies {
        Replies { parser: Parser::new(), ahead: Ahead::default(), taken: 0, between: true, pushes: false }
    }

    /// From now on pushes are replies too.
    pub(crate) fn take_pushes(&mut self) {
        self.pushes = true;
    }

    /// For a connection that is subscribed to something.
    pub(crate) fn with_pushes() -> Replies {
        Replies { pushes: true, ..Replies::new() }
    }

    /// The next reply. Pushes are left out, unless something was subscribed to.
    pub(crate) fn next(&mut self, source: &mut impl Read) -> Result<Value, NoReply> {
        if self.between {
            self.ahead.fill(source).map_err(NoReply::Source)?;
            if let Some((value, length)) = plain::read(self.ahead.bytes()) {
                self.ahead.take(length);
                return Ok(value);
            }
        }
        loop {
            let mut guard = Guard { source, ahead: &mut self.ahead, taken: &mut self.taken, failed: None };
            let parsed = self.parser.parse_value(&mut guard);
            self.between = parsed.is_ok();
            match (parsed, guard.failed) {
                (Ok(value), _) => {
                    self.taken = 0;
                    if self.pushes || !matches!(value, Value::Push { .. }) {
                        return Ok(value);
                    }
                }
                // perhaps in the middle of a reply
                (Err(_), Some(error)) => return Err(NoReply::Source(error)),
                (Err(_), None) => return Err(NoReply::Garbage),
            }
        }
    }

    /// The next reply, if all of it came along with the one before; else the source has nothing to give.
    pub(crate) fn at_hand(&mut self) -> Result<Value, NoReply> {
        self.next(&mut Nothing)
    }

    /// Whether nothing is left of what was read. A whole reply that nobody asked for would be taken for the next one.
    pub(crate) fn is_empty(&mut self) -> bool {
        let surely = self.between && self.ahead.bytes().is_empty();
        surely || matches!(self.at_hand(), Err(NoReply::Source(_)))
    }
}

/// What was read and not looked at yet.
#[derive(Default)]
struct Ahead {
    room: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Ahead {
    /// As many replies as usually come together.
    const ROOM: usize = 4096;

    fn bytes(&self) -> &[u8] {
        &self.room[self.from..self.to]
    }

    fn take(&mut self, count: usize) {
        self.from += count;
    }

    /// Reads once, if there is nothing.
    fn fill(&mut self, source: &mut impl Read) -> io::Result<()> {
        if self.from < self.to {
            return Ok(());
        }
        if self.room.is_empty() {
            self.room = vec![0; Ahead::ROOM].into();
        }
        let read = source.read(&mut self.room)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (self.from, self.to) = (0, read);
        Ok(())
    }
}

/// Hands bytes on, remembers why it could not, and stops a reply without end. Never more than a line at a time: replies end
/// where lines do, so nothing of the next one gets into the parser.
struct Guard<'a, R> {
    source: &'a mut R,
    ahead: &'a mut Ahead,
    taken: &'a mut usize,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Guard<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if *self.taken > MAX_REPLY {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if let Err(error) = self.ahead.fill(self.source) {
            // the parser gets a kind that it doesn't try again by itself; the caller sees the error as it was
            self.failed = Some(error);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = self.ahead.bytes();
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let count = line.min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.ahead.take(count);
        *self.taken += count;
        Ok(count)
    }
}

/// Has nothing.
struct Nothing;

impl Read for Nothing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Bytes that have arrived, for a source that is not read by a `Read`.
#[derive(Default)]
pub(crate) struct Arrived(pub(crate) Vec<u8>);

impl Read for Arrived {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = buffer.len().min(self.0.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0.drain(..count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    /// Gives one byte at a time, with a pause before each.
    struct Drip<'a>(&'a [u8], bool);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let Some((first, rest)) = self.0.split_first() else { return Err(io::ErrorKind::TimedOut.into()) };
            (buffer[0], self.0) = (*first, rest);
            Ok(1)
        }
    }

    #[test]
    fn a_reply_in_pieces_is_the_same_reply() {
        let cases: [(&[u8], Value); 8] = [
            (b":1785000000000000\r\n", Value::Int(1_785_000_000_000_000)),
            (b"$4\r\na\r\n\r\r\n", text("a\r\n\r")),
            (b"$-1\r\n", Value::Nil),
            (b"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", Value::Array(vec![Value::Int(1), Value::Array(vec![text("x")])])),
            (b"%1\r\n+a\r\n:1\r\n", Value::Map(vec![(Value::SimpleString("a".into()), Value::Int(1))])),
            (b"=7\r\ntxt:abc\r\n", Value::VerbatimString { format: redis::VerbatimFormat::Text, text: "abc".into() }),
            (b">2\r\n+message\r\n+c\r\n+OK\r\n", Value::Okay),
            (b"_\r\n", Value::Nil),
        ];
        for (bytes, value) in cases {
            let (mut replies, mut drip) = (Replies::new(), Drip(bytes, false));
            let mut pauses = 0;
            let got = loop {
                match replies.next(&mut drip) {
                    Ok(value) => break value,
                    Err(NoReply::Source(error)) if error.kind() == io::ErrorKind::Interrupted => pauses += 1,
                    Err(error) => panic!("{}: {error:?}", bytes.escape_ascii()),
                }
            };
            assert_eq!((got, pauses), (value, bytes.len()), "{}", bytes.escape_ascii());
            assert!(replies.is_empty());
        }
    }

    #[test]
    fn a_reply_too_many_is_noticed() {
        let mut replies = Replies::new();
        assert!(replies.next(&mut &b":1\r\n:2\r\n"[..]).is_ok());
        assert!(!replies.is_empty());
    }

    #[test]
    fn what_comes_behind_a_reply_is_not_part_of_it() {
        let replies = [
            "*4\r\n:1785000000000000\r\n:0\r\n:-1\r\n$3\r\nabc\r\n",
            ":10\r\n",
            "$5\r\n\n\r\n\r\n\r\n",
            "*1\r\n*1\r\n$1\r\nx\r\n",
            "%1\r\n+a\r\n:1\r\n",
            "+OK\r\n",
            "-NOPERM no\r\n",
            "_\r\n",
        ];
        for first in replies {
            for second in replies {
                let alone = Replies::new().next(&mut second.as_bytes()).unwrap();
                let both = format!("{first}{second}");
                let (mut replies, mut source) = (Replies::new(), both.as_bytes());
                assert!(replies.next(&mut source).is_ok());
                assert!(replies.between && !replies.ahead.bytes().is_empty(), "{both:?}");
                // as one that nobody asked for, and as the next one
                assert_eq!(replies.next(&mut source).unwrap(), alone, "{both:?}");
                assert!(replies.is_empty());
                let mut replies = Replies::new();
                assert!(replies.next(&mut both.as_bytes()).is_ok() && !replies.is_empty(), "{both:?}");
            }
        }
    }

    #[test]
    fn many_replies_at_once_are_as_many() {
        let many = "*2\r\n:7\r\n$2\r\n\r\n\r\n+x\r\n".repeat(2000);
        let (mut replies, mut source) = (Replies::new(), many.as_bytes());
        for _ in 0..2000 {
            assert_eq!(replies.next(&mut source).unwrap(), Value::Array(vec![Value::Int(7), text("\r\n")]));
            assert_eq!(replies.next(&mut source).unwrap(), Value::SimpleString("x".into()));
        }
        assert!(replies.is_empty());
    }

    #[test]
    fn garbage_is_told_at_once() {
        let cases: [&[u8]; 6] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"\x15\x03\x03\x00\x02\x02\x28",
            b":12x\r\n",
            b"$1\r\nab\r\n",
            b"*x\r\n",
            &b"*1\r\n".repeat(200),
        ];
        for bytes in cases {
            let got = Replies::new().next(&mut &bytes[..]);
            assert!(matches!(got, Err(NoReply::Garbage)), "{}: {got:?}", bytes.escape_ascii());
        }
    }

    #[test]
    fn nothing_makes_us_keep_without_bound_or_fall_over() {
        for start in [&b"+"[..], b"$", b"$9223372036854775807\r\n", b"*9223372036854775807\r\n", b"=-1\r\n", b"%-1\r\n"]
        {
            let mut read = 0;
            let mut endless = io::repeat(b'a').take(100 << 20);
            let mut source = start.chain(Counted(&mut endless, &mut read));
            let got = Replies::new().next(&mut source);
            assert!(matches!(got, Err(NoReply::Garbage)) || got.is_ok(), "{}: {got:?}", start.escape_ascii());
            assert!(read <= 2 * MAX_REPLY, "{}: {read}", start.escape_ascii());
        }
    }

    struct Counted<'a, R>(&'a mut R, &'a mut usize);

    impl<R: Read> Read for Counted<'_, R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(buffer)?;
            *self.1 += read;
            Ok(read)
        }
    }

    #[test]
    fn the_end_is_an_end() {
        let got = Replies::new().next(&mut &b"*2\r\n:1\r\n"[..]);
        assert!(matches!(got, Err(NoReply::Source(error)) if error.kind() == io::ErrorKind::UnexpectedEof));
    }
}
