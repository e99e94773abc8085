//! The wire format: packing a command into one buffer, and reading replies out of whatever has arrived so far.
//!
//! Written for this store instead of using a driver's: a request is one allocation, a peer that talks nonsense is told
//! at once and never buffered without bound, and a push that nobody asked for can't be taken for a reply.

/// No reply to one of our requests comes near this; what claims to be longer is not a server of ours.
const MAX_MESSAGE: usize = 8 << 20;
/// Our replies are two deep, those of the handshake three or four.
const MAX_DEPTH: u8 = 16;

/// One message from the server. RESP2 and RESP3 differ only where it matters: pushes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Nothing.
    Nil,
    /// A number.
    Int(i64),
    /// Every kind of text: simple, bulk, verbatim, and the spelling of a double, big number or boolean.
    Text(Vec<u8>),
    /// The server's refusal.
    Error(String),
    /// An array, a set, or a map with its keys and values in turn.
    Array(Vec<Value>),
    /// A message out of turn, only under RESP3.
    Push(Vec<Value>),
}

impl Value {
    /// The number, if it is one.
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The bytes, if it is text.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Text(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The bytes are no RESP; the connection can't be used any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

/// Reads one message from the front of `bytes`: the message and its length, or `None` if it is not complete yet.
///
/// Starts from the front each time. Replies are short, and an incomplete bulk text is recognised by its length alone.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<(Value, usize)>, Garbage> {
    let mut reader = Reader { bytes, at: 0 };
    match reader.value(0) {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(Stop::Incomplete) if bytes.len() > MAX_MESSAGE => Err(Garbage),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Garbage) => Err(Garbage),
    }
}

enum Stop {
    Incomplete,
    Garbage,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: u8) -> Result<Value, Stop> {
        if depth > MAX_DEPTH {
            return Err(Stop::Garbage);
        }
        let kind = *self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        self.at += 1;
        match kind {
            b':' => Ok(Value::Int(self.number()?)),
            b'+' | b',' | b'#' | b'(' => Ok(Value::Text(self.line()?.to_vec())),
            b'$' => self.bulk(),
            b'=' => self.verbatim(),
            b'-' => Ok(Value::Error(String::from_utf8_lossy(self.line()?).into_owned())),
            b'!' => match self.bulk()? {
                Value::Text(text) => Ok(Value::Error(String::from_utf8_lossy(&text).into_owned())),
                _ => Err(Stop::Garbage),
            },
            b'*' | b'~' => self.items(1, depth).map(|items| items.map_or(Value::Nil, Value::Array)),
            b'%' => self.items(2, depth).map(|items| items.map_or(Value::Nil, Value::Array)),
            b'>' => self.items(1, depth).map(|items| Value::Push(items.unwrap_or_default())),
            b'|' => {
                // attributes describe the value behind them; nobody here wants to know
                self.items(2, depth)?;
                self.value(depth + 1)
            }
            b'_' => self.line().map(|_| Value::Nil),
            _ => Err(Stop::Garbage),
        }
    }

    /// Up to the line's end, which is left behind.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\r').ok_or(Stop::Incomplete)?;
        match rest.get(end + 1) {
            Some(b'\n') => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            Some(_) => Err(Stop::Garbage),
            None => Err(Stop::Incomplete),
        }
    }

    fn number(&mut self) -> Result<i64, Stop> {
        // no number is longer than this: a peer that sends a letter instead is found out without waiting for a line end
        let head = &self.bytes[self.at..self.bytes.len().min(self.at + 24)];
        let stops = |byte: &u8| !byte.is_ascii_digit() && *byte != b'-' && *byte != b'+';
        match head.iter().position(stops) {
            Some(end) if head[end] != b'\r' => return Err(Stop::Garbage),
            None if head.len() == 24 => return Err(Stop::Garbage),
            _ => {}
        }
        let text = std::str::from_utf8(self.line()?).map_err(|_| Stop::Garbage)?;
        text.parse().map_err(|_| Stop::Garbage)
    }

    /// A length or count; `None` for RESP2's nil.
    fn length(&mut self) -> Result<Option<usize>, Stop> {
        match self.number()? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) if length <= MAX_MESSAGE => Ok(Some(length)),
                _ => Err(Stop::Garbage),
            },
        }
    }

    fn bulk(&mut self) -> Result<Value, Stop> {
        let Some(length) = self.length()? else { return Ok(Value::Nil) };
        let rest = &self.bytes[self.at..];
        let text = rest.get(..length).ok_or(Stop::Incomplete)?;
        match rest.get(length..length + 2) {
            Some(b"\r\n") => {}
            Some(_) => return Err(Stop::Garbage),
            None => return Err(Stop::Incomplete),
        }
        self.at += length + 2;
        Ok(Value::Text(text.to_vec()))
    }

    /// Text that begins with its format and a colon, such as `txt:`.
    fn verbatim(&mut self) -> Result<Value, Stop> {
        match self.bulk()? {
            Value::Text(mut text) if text.len() >= 4 && text[3] == b':' => {
                text.drain(..4);
                Ok(Value::Text(text))
            }
            _ => Err(Stop::Garbage),
        }
    }

    fn items(&mut self, width: usize, depth: u8) -> Result<Option<Vec<Value>>, Stop> {
        let Some(count) = self.length()? else { return Ok(None) };
        // every item takes three bytes at least, so what has arrived bounds what is reserved
        let expected = (self.bytes.len() - self.at) / 3 + 1;
        let mut items = Vec::with_capacity((count * width).min(expected));
        for _ in 0..count * width {
            items.push(self.value(depth + 1)?);
        }
        Ok(Some(items))
    }
}

/// Packs commands into one buffer, ready to be written.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    /// A packer whose buffer will not grow before `capacity` bytes.
    pub(crate) fn with_capacity(capacity: usize) -> Packer {
        Packer { bytes: Vec::with_capacity(capacity) }
    }

    /// Begins a command of `count` words, the command's name included.
    pub(crate) fn begin(&mut self, count: usize) -> &mut Packer {
        self.bytes.push(b'*');
        self.decimal(count as u64);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// One word.
    pub(crate) fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Packer {
        let word = word.as_ref();
        self.bytes.push(b'$');
        self.decimal(word.len() as u64);
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// A number as a word.
    pub(crate) fn number(&mut self, number: u64) -> &mut Packer {
        let mut digits = [0; 20];
        let from = write_decimal(number, &mut digits);
        self.word(&digits[from..])
    }

    /// Words that were packed before.
    pub(crate) fn packed(&mut self, words: &[u8]) -> &mut Packer {
        self.bytes.extend_from_slice(words);
        self
    }

    /// A whole command.
    pub(crate) fn command(&mut self, words: &[&[u8]]) -> &mut Packer {
        self.begin(words.len());
        for word in words {
            self.word(word);
        }
        self
    }

    /// The packed bytes.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn decimal(&mut self, number: u64) {
        let mut digits = [0; 20];
        let from = write_decimal(number, &mut digits);
        self.bytes.extend_from_slice(&digits[from..]);
    }
}

/// Writes the digits at the end of `digits`; returns where they begin.
fn write_decimal(mut number: u64, digits: &mut [u8; 20]) -> usize {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn every_type_at_every_cut() {
        let cases: [(&[u8], Value); 17] = [
            (b"+OK\r\n", text("OK")),
            (b"-ERR no\r\n", Value::Error("ERR no".into())),
            (b":-12\r\n", Value::Int(-12)),
            (b":1785000000000000\r\n", Value::Int(1_785_000_000_000_000)),
            (b"$3\r\na\r\n\r\n", text("a\r\n")),
            (b"$0\r\n\r\n", text("")),
            (b"$-1\r\n", Value::Nil),
            (b"*-1\r\n", Value::Nil),
            (b"_\r\n", Value::Nil),
            (b"*0\r\n", Value::Array(vec![])),
            (b"*2\r\n:1\r\n*1\r\n+x\r\n", Value::Array(vec![Value::Int(1), Value::Array(vec![text("x")])])),
            (b"%1\r\n+a\r\n:1\r\n", Value::Array(vec![text("a"), Value::Int(1)])),
            (b"~1\r\n#t\r\n", Value::Array(vec![text("t")])),
            (b"=7\r\ntxt:abc\r\n", text("abc")),
            (b"!6\r\nERR no\r\n", Value::Error("ERR no".into())),
            (b">2\r\n+message\r\n+c\r\n", Value::Push(vec![text("message"), text("c")])),
            (b"|1\r\n+ttl\r\n:9\r\n,1.5\r\n", text("1.5")),
        ];
        for (bytes, value) in cases {
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), Ok(None), "{} cut at {cut}", bytes.escape_ascii());
            }
            let mut more = bytes.to_vec();
            more.extend_from_slice(b"+next");
            assert_eq!(decode(&more), Ok(Some((value, bytes.len()))), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn garbage_is_told_at_once() {
        let deep = b"*1\r\n".repeat(40);
        let cases: [&[u8]; 12] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"\x15\x03\x03\x00\x02\x02\x28",
            b":12x",
            b":1234567890123456789012345",
            b"$-2\r\n",
            b"$99999999999\r\n",
            b"*99999999999\r\n",
            b"$1\r\nab\r\n",
            b"+a\rb",
            b"=3\r\nabc\r\n",
            b"!-1\r\n",
            &deep,
        ];
        for bytes in cases {
            assert_eq!(decode(bytes), Err(Garbage), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn an_endless_line_is_not_buffered_for_ever() {
        let mut line = vec![b'a'; MAX_MESSAGE + 2];
        line[0] = b'+';
        assert_eq!(decode(&line), Err(Garbage));
        assert_eq!(decode(&line[..1000]), Ok(None));
    }

    #[test]
    fn a_count_alone_reserves_nothing() {
        // eight million items announced, none there: the reservation follows what has arrived
        assert_eq!(decode(b"*8000000\r\n"), Ok(None));
        assert_eq!(decode(b"%8000000\r\n:1\r\n"), Ok(None));
    }

    #[test]
    fn commands_are_packed() {
        let mut packer = Packer::with_capacity(8);
        packer.begin(3).word("SET").word(b"k\0").number(u64::MAX);
        packer.command(&[b"PING"]);
        assert_eq!(
            packer.finish().escape_ascii().to_string(),
            "*3\\r\\n$3\\r\\nSET\\r\\n$2\\r\\nk\\x00\\r\\n$20\\r\\n18446744073709551615\\r\\n*1\\r\\n$4\\r\\nPING\\r\\n"
        );
    }
}
