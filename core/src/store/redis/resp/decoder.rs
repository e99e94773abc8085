//! The incremental decoder of one connection, with a bound on the size of a reply. It does no I/O: the caller reads into
//! [`ReplyDecoder::space`].

use std::io::{self, Read};

use redis::{Parser, Value};

use super::script_reply;

/// Larger than any reply to our requests. (The parser scans an unfinished line from its start each time, so a larger
/// bound would also cost time.)
pub(crate) const MAX_REPLY_BYTES: usize = 1 << 20;

/// As many bytes as are read at a time: enough for the replies that usually arrive together.
pub(crate) const MAX_READ_BYTES: usize = 4096;

/// The bytes are no reply; the connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Malformed;

/// The decoder of one connection.
pub(crate) struct ReplyDecoder {
    parser: Parser,
    buffer: ReadBuffer,
    /// How many bytes the present reply has taken so far.
    consumed: usize,
    /// Whether the parser is between two replies.
    at_boundary: bool,
    /// A reply that was decoded before its time.
    decoded: Option<Value>,
}

impl ReplyDecoder {
    pub(crate) fn new() -> ReplyDecoder {
        ReplyDecoder {
            parser: Parser::new(),
            buffer: ReadBuffer::default(),
            consumed: 0,
            at_boundary: true,
            decoded: None,
        }
    }

    /// Where the next bytes go; valid when [`ReplyDecoder::next`] has returned `None`.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.buffer.space()
    }

    /// So many bytes were read into the space.
    pub(crate) fn received(&mut self, count: usize) {
        self.buffer.to = count;
    }

    /// The next reply or push; `None` when it is not complete.
    pub(crate) fn next(&mut self) -> Result<Option<Value>, Malformed> {
        if self.decoded.is_some() {
            return Ok(self.decoded.take());
        }
        let bytes = self.buffer.bytes();
        if bytes.is_empty() {
            return Ok(None);
        }
        if self.at_boundary
            && let Some((value, length)) = script_reply::read(bytes)
        {
            self.buffer.from += length;
            return Ok(Some(value));
        }
        let mut reader = LimitedReader { buffer: &mut self.buffer, consumed: &mut self.consumed, drained: false };
        let parsed = self.parser.parse_value(&mut reader);
        self.at_boundary = parsed.is_ok();
        match parsed {
            Ok(value) => {
                self.consumed = 0;
                Ok(Some(value))
            }
            // possibly in the middle of a reply
            Err(_) if reader.drained => Ok(None),
            Err(_) => Err(Malformed),
        }
    }

    /// The next reply. Pushes are dropped.
    pub(crate) fn next_reply(&mut self) -> Result<Option<Value>, Malformed> {
        loop {
            match self.next()? {
                Some(Value::Push { .. }) => {}
                reply => return Ok(reply),
            }
        }
    }

    /// Whether no complete reply is left. One that was not asked for would be taken for the next one. Pushes are dropped.
    pub(crate) fn is_drained(&mut self) -> bool {
        match self.next_reply() {
            Ok(reply) => self.decoded = reply,
            Err(Malformed) => return false,
        }
        self.decoded.is_none()
    }
}

/// Bytes that were received and not decoded yet.
#[derive(Default)]
struct ReadBuffer {
    storage: Box<[u8]>,
    from: usize,
    to: usize,
}

impl ReadBuffer {
    fn bytes(&self) -> &[u8] {
        &self.storage[self.from..self.to]
    }

    fn space(&mut self) -> &mut [u8] {
        debug_assert!(self.from == self.to, "bytes are left");
        if self.storage.is_empty() {
            self.storage = vec![0; MAX_READ_BYTES].into();
        }
        (self.from, self.to) = (0, 0);
        &mut self.storage
    }
}

/// Passes bytes on to the parser, one line at a time, with a limit. Replies end where lines do, so no byte of the next
/// reply enters the parser.
struct LimitedReader<'a> {
    buffer: &'a mut ReadBuffer,
    consumed: &'a mut usize,
    drained: bool,
}

impl Read for LimitedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if *self.consumed > MAX_REPLY_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let bytes = self.buffer.bytes();
        if bytes.is_empty() {
            self.drained = true;
            // a kind that the parser does not retry
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let count = line.min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.buffer.from += count;
        *self.consumed += count;
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

    /// Gives the decoder `bytes` in pieces of `size` bytes: all replies, and whether it accepted everything.
    fn decode(bytes: &[u8], size: usize) -> (Vec<Value>, Result<(), Malformed>) {
        let (mut decoder, mut replies) = (ReplyDecoder::new(), Vec::new());
        for piece in bytes.chunks(size) {
            decoder.space()[..piece.len()].copy_from_slice(piece);
            decoder.received(piece.len());
            loop {
                match decoder.next() {
                    Ok(Some(value)) => replies.push(value),
                    Ok(None) => break,
                    Err(Malformed) => return (replies, Err(Malformed)),
                }
            }
        }
        (replies, Ok(()))
    }

    #[test]
    fn a_reply_in_pieces_is_the_same_reply() {
        let push = Value::Push { kind: redis::PushKind::Message, data: vec![Value::SimpleString("c".into())] };
        let cases: [(&[u8], Value); 9] = [
            (b":1785000000000000\r\n", Value::Int(1_785_000_000_000_000)),
            (b"$4\r\na\r\n\r\r\n", text("a\r\n\r")),
            (b"$-1\r\n", Value::Nil),
            (b"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", Value::Array(vec![Value::Int(1), Value::Array(vec![text("x")])])),
            (b"%1\r\n+a\r\n:1\r\n", Value::Map(vec![(Value::SimpleString("a".into()), Value::Int(1))])),
            (b"=7\r\ntxt:abc\r\n", Value::VerbatimString { format: redis::VerbatimFormat::Text, text: "abc".into() }),
            (b">2\r\n+message\r\n+c\r\n", push),
            (b"+OK\r\n", Value::Okay),
            (b"_\r\n", Value::Nil),
        ];
        for (bytes, value) in cases {
            for size in 1..=bytes.len() {
                assert_eq!(decode(bytes, size), (vec![value.clone()], Ok(())), "{}", bytes.escape_ascii());
            }
        }
    }

    #[test]
    fn a_reply_too_many_is_noticed_and_a_push_is_none() {
        for (bytes, drained) in [(":1\r\n:2\r\n", false), (":1\r\n>1\r\n+message\r\n", true), (":1\r\n", true)] {
            let mut decoder = ReplyDecoder::new();
            decoder.space()[..bytes.len()].copy_from_slice(bytes.as_bytes());
            decoder.received(bytes.len());
            assert_eq!(decoder.next(), Ok(Some(Value::Int(1))));
            assert_eq!((decoder.is_drained(), decoder.is_drained()), (drained, drained), "{bytes:?}");
            // it is not lost by the look
            assert_eq!(decoder.next(), Ok((!drained).then_some(Value::Int(2))), "{bytes:?}");
        }
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
                let alone = [first, second].map(|one| decode(one.as_bytes(), one.len()).0.remove(0));
                let both = format!("{first}{second}");
                for size in 1..=both.len() {
                    assert_eq!(decode(both.as_bytes(), size), (alone.to_vec(), Ok(())), "{both:?}");
                }
            }
        }
    }

    #[test]
    fn many_replies_at_once_are_as_many() {
        let many = "*2\r\n:7\r\n$2\r\n\r\n\r\n+x\r\n".repeat(2000);
        let both = [Value::Array(vec![Value::Int(7), text("\r\n")]), Value::SimpleString("x".into())];
        assert_eq!(decode(many.as_bytes(), MAX_READ_BYTES), (vec![both; 2000].concat(), Ok(())));
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
            assert_eq!(decode(bytes, bytes.len()), (vec![], Err(Malformed)), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn nothing_makes_us_keep_without_bound_or_fall_over() {
        for start in [&b"+"[..], b"$", b"$9223372036854775807\r\n", b"*9223372036854775807\r\n", b"=-1\r\n", b"%-1\r\n"]
        {
            let endless = [start, &vec![b'a'; 2 * MAX_REPLY_BYTES]].concat();
            let (replies, accepted) = decode(&endless, MAX_READ_BYTES);
            assert_eq!(accepted, Err(Malformed), "{}: {replies:?}", start.escape_ascii());
        }
    }
}
