//! The incremental decoder of one connection, with a bound on the size of a reply.

use std::io::{self, Read};

use redis::{Parser, Value};

use super::script_reply;

/// Larger than any reply to our requests. (The parser scans an unfinished line from its start each time, so a larger
/// bound would also cost time.)
pub(crate) const MAX_REPLY_BYTES: usize = 1 << 20;

/// Why there is no reply.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// The source failed. After `WouldBlock`, the next call continues where this one stopped.
    Io(io::Error),
    /// The bytes are no reply; the connection cannot be used any more.
    Malformed,
}

/// The decoder of one connection.
pub(crate) struct ReplyDecoder {
    parser: Parser,
    buffer: ReadBuffer,
    /// How many bytes the present reply has taken so far.
    consumed: usize,
    /// Whether the parser is between two replies.
    at_boundary: bool,
    /// Whether pushes are returned as replies.
    delivers_pushes: bool,
}

impl ReplyDecoder {
    pub(crate) fn new() -> ReplyDecoder {
        ReplyDecoder {
            parser: Parser::new(),
            buffer: ReadBuffer::default(),
            consumed: 0,
            at_boundary: true,
            delivers_pushes: false,
        }
    }

    /// Returns pushes as replies from now on.
    pub(crate) fn deliver_pushes(&mut self) {
        self.delivers_pushes = true;
    }

    /// For a subscribed connection.
    pub(crate) fn with_pushes() -> ReplyDecoder {
        ReplyDecoder { delivers_pushes: true, ..ReplyDecoder::new() }
    }

    /// The next reply. Pushes are dropped unless they are delivered as replies.
    pub(crate) fn next(&mut self, source: &mut impl Read) -> Result<Value, DecodeError> {
        if self.at_boundary {
            self.buffer.fill(source).map_err(DecodeError::Io)?;
            if let Some((value, length)) = script_reply::read(self.buffer.bytes()) {
                self.buffer.consume(length);
                return Ok(value);
            }
        }
        loop {
            let mut reader =
                LimitedReader { source, buffer: &mut self.buffer, consumed: &mut self.consumed, failed: None };
            let parsed = self.parser.parse_value(&mut reader);
            self.at_boundary = parsed.is_ok();
            match (parsed, reader.failed) {
                (Ok(value), _) => {
                    self.consumed = 0;
                    if self.delivers_pushes || !matches!(value, Value::Push { .. }) {
                        return Ok(value);
                    }
                }
                // possibly in the middle of a reply
                (Err(_), Some(error)) => return Err(DecodeError::Io(error)),
                (Err(_), None) => return Err(DecodeError::Malformed),
            }
        }
    }

    /// The next reply, if it is complete in the buffer; otherwise `WouldBlock`.
    pub(crate) fn next_buffered(&mut self) -> Result<Value, DecodeError> {
        self.next(&mut EmptySource)
    }

    /// Whether nothing is left in the buffer. A complete reply that was not asked for would be taken for the next one.
    pub(crate) fn is_empty(&mut self) -> bool {
        let surely = self.at_boundary && self.buffer.bytes().is_empty();
        surely || matches!(self.next_buffered(), Err(DecodeError::Io(_)))
    }
}

/// Bytes that were read and not parsed yet.
#[derive(Default)]
struct ReadBuffer {
    storage: Box<[u8]>,
    from: usize,
    to: usize,
}

impl ReadBuffer {
    /// Enough for the replies that usually arrive together.
    const CAPACITY: usize = 4096;

    fn bytes(&self) -> &[u8] {
        &self.storage[self.from..self.to]
    }

    fn consume(&mut self, count: usize) {
        self.from += count;
    }

    /// Reads once, if the buffer is empty.
    fn fill(&mut self, source: &mut impl Read) -> io::Result<()> {
        if self.from < self.to {
            return Ok(());
        }
        if self.storage.is_empty() {
            self.storage = vec![0; ReadBuffer::CAPACITY].into();
        }
        let read = source.read(&mut self.storage)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (self.from, self.to) = (0, read);
        Ok(())
    }
}

/// Passes bytes on to the parser, one line at a time, with a limit. Replies end where lines do, so no byte of the next
/// reply enters the parser.
struct LimitedReader<'a, R> {
    source: &'a mut R,
    buffer: &'a mut ReadBuffer,
    consumed: &'a mut usize,
    failed: Option<io::Error>,
}

impl<R: Read> Read for LimitedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if *self.consumed > MAX_REPLY_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if let Err(error) = self.buffer.fill(self.source) {
            // a kind that the parser does not retry; the caller gets the original error
            self.failed = Some(error);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = self.buffer.bytes();
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let count = line.min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.buffer.consume(count);
        *self.consumed += count;
        Ok(count)
    }
}

/// A source without bytes.
struct EmptySource;

impl Read for EmptySource {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Bytes that have arrived, for a source that is not a `Read`.
#[derive(Default)]
pub(crate) struct ReceivedBytes(pub(crate) Vec<u8>);

impl Read for ReceivedBytes {
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
            let (mut replies, mut drip) = (ReplyDecoder::new(), Drip(bytes, false));
            let mut pauses = 0;
            let got = loop {
                match replies.next(&mut drip) {
                    Ok(value) => break value,
                    Err(DecodeError::Io(error)) if error.kind() == io::ErrorKind::Interrupted => pauses += 1,
                    Err(error) => panic!("{}: {error:?}", bytes.escape_ascii()),
                }
            };
            assert_eq!((got, pauses), (value, bytes.len()), "{}", bytes.escape_ascii());
            assert!(replies.is_empty());
        }
    }

    #[test]
    fn a_reply_too_many_is_noticed() {
        let mut replies = ReplyDecoder::new();
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
                let alone = ReplyDecoder::new().next(&mut second.as_bytes()).unwrap();
                let both = format!("{first}{second}");
                let (mut replies, mut source) = (ReplyDecoder::new(), both.as_bytes());
                assert!(replies.next(&mut source).is_ok());
                assert!(replies.at_boundary && !replies.buffer.bytes().is_empty(), "{both:?}");
                // as one that nobody asked for, and as the next one
                assert_eq!(replies.next(&mut source).unwrap(), alone, "{both:?}");
                assert!(replies.is_empty());
                let mut replies = ReplyDecoder::new();
                assert!(replies.next(&mut both.as_bytes()).is_ok() && !replies.is_empty(), "{both:?}");
            }
        }
    }

    #[test]
    fn many_replies_at_once_are_as_many() {
        let many = "*2\r\n:7\r\n$2\r\n\r\n\r\n+x\r\n".repeat(2000);
        let (mut replies, mut source) = (ReplyDecoder::new(), many.as_bytes());
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
            let got = ReplyDecoder::new().next(&mut &bytes[..]);
            assert!(matches!(got, Err(DecodeError::Malformed)), "{}: {got:?}", bytes.escape_ascii());
        }
    }

    #[test]
    fn nothing_makes_us_keep_without_bound_or_fall_over() {
        for start in [&b"+"[..], b"$", b"$9223372036854775807\r\n", b"*9223372036854775807\r\n", b"=-1\r\n", b"%-1\r\n"]
        {
            let mut read = 0;
            let mut endless = io::repeat(b'a').take(100 << 20);
            let mut source = start.chain(Counted(&mut endless, &mut read));
            let got = ReplyDecoder::new().next(&mut source);
            assert!(matches!(got, Err(DecodeError::Malformed)) || got.is_ok(), "{}: {got:?}", start.escape_ascii());
            assert!(read <= 2 * MAX_REPLY_BYTES, "{}: {read}", start.escape_ascii());
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
        let got = ReplyDecoder::new().next(&mut &b"*2\r\n:1\r\n"[..]);
        assert!(matches!(got, Err(DecodeError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof));
    }
}
