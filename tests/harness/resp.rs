//! The wire protocol of Redis, as far as tests need it: where a message ends, what a request says, and a raw client.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use redis::Value;

/// The bytes are not the protocol (an HTTP page, say).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotResp(pub String);

impl fmt::Display for NotResp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not RESP: {}", self.0)
    }
}

impl std::error::Error for NotResp {}

/// Reads the line that starts at `at`: its content and where the next one starts.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let length = bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[at..at + length], at + length + 2))
}

fn number(digits: &[u8]) -> Result<i64, NotResp> {
    let text = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| NotResp(format!("{:?} where a length belongs", String::from_utf8_lossy(digits))))
}

/// How many bytes the first message in `bytes` takes, or `None` while it is incomplete.
///
/// Knows RESP2 and RESP3. An attribute counts as part of the reply that it precedes; a push is a message of its own.
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, NotResp> {
    let mut at = 0;
    let mut values_left: i64 = 1;
    while values_left > 0 {
        let Some(&kind) = bytes.get(at) else { return Ok(None) };
        if !b"+-:_,#($!=*~>%|".contains(&kind) {
            return Err(NotResp(format!("a message starts with {:?}", char::from(kind))));
        }
        let Some((rest, next)) = line(bytes, at + 1) else { return Ok(None) };
        at = next;
        values_left -= 1;
        match kind {
            b'$' | b'!' | b'=' => {
                let length = number(rest)?;
                if length >= 0 {
                    at += length as usize + 2;
                }
            }
            b'*' | b'~' | b'>' => values_left += number(rest)?.max(0),
            b'%' => values_left += 2 * number(rest)?,
            b'|' => values_left += 2 * number(rest)? + 1,
            _ => {}
        }
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// Whether a message is a push, which answers no request.
pub fn is_push(frame: &[u8]) -> bool {
    frame.first() == Some(&b'>')
}

/// One request: its bytes on the wire, and its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many bytes it took.
    pub length: usize,
    /// The command and its arguments.
    pub args: Vec<Vec<u8>>,
}

/// Reads the first request in `bytes`, or `None` while it is incomplete. A line of plain words is a request, too.
pub fn parse_request(bytes: &[u8]) -> Result<Option<Request>, NotResp> {
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes[0] != b'*' {
        if !bytes[0].is_ascii_graphic() {
            return Err(NotResp(format!("a request starts with {:?}", char::from(bytes[0]))));
        }
        let Some((words, length)) = line(bytes, 0) else { return Ok(None) };
        let args = words.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
        return Ok(Some(Request { length, args }));
    }
    let Some(length) = frame_length(bytes)? else { return Ok(None) };
    let mut args = Vec::new();
    let (_, mut at) = line(bytes, 0).expect("a complete frame has a first line");
    while at < length {
        if bytes[at] != b'$' {
            return Err(NotResp("a request holds something else than bulk strings".into()));
        }
        let (digits, start) = line(bytes, at + 1).expect("a complete frame has complete lines");
        let end = start + usize::try_from(number(digits)?).map_err(|_| NotResp("a null in a request".into()))?;
        args.push(bytes[start..end].to_vec());
        at = end + 2;
    }
    Ok(Some(Request { length, args }))
}

/// Writes a request as it goes over the wire.
pub fn encode(args: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Text of a reply for people and for `assert_eq!`: strings as they are, errors with a leading `-`.
pub fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Okay => "OK".into(),
        Value::Int(number) => number.to_string(),
        Value::Nil => "(nil)".into(),
        Value::ServerError(error) => format!("-{} {}", error.code(), error.details().unwrap_or_default()),
        other => format!("{other:?}"),
    }
}

/// The texts of a reply that is a list, those of lists in it included.
pub fn words(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(words).collect(),
        other => vec![text(other)],
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A raw blocking client: one socket, no retry, no pool, nothing hidden. Every wait has a limit (10 s unless changed).
pub struct Connection {
    stream: Stream,
    received: Vec<u8>,
}

impl Connection {
    const LIMIT: Duration = Duration::from_secs(10);

    /// Connects to a port of this machine.
    pub fn port(port: u16) -> io::Result<Self> {
        Self::tcp(("127.0.0.1", port))
    }

    /// Connects to a TCP address.
    pub fn tcp(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Self::new(Stream::Tcp(stream))
    }

    /// Connects to a Unix socket.
    pub fn unix(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(Stream::Unix(UnixStream::connect(path)?))
    }

    fn new(stream: Stream) -> io::Result<Self> {
        let mut connection = Self { stream, received: Vec::new() };
        connection.limit(Some(Self::LIMIT))?;
        Ok(connection)
    }

    /// Changes how long a read or write may take; `None` waits for ever.
    pub fn limit(&mut self, limit: Option<Duration>) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)),
            Stream::Unix(stream) => stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)),
        }
    }

    /// Sends one command and waits for its reply. An error reply is a value.
    pub fn cmd(&mut self, args: &[impl AsRef<[u8]>]) -> io::Result<Value> {
        self.send(args)?;
        self.read()
    }

    /// Sends one command and does not wait.
    pub fn send(&mut self, args: &[impl AsRef<[u8]>]) -> io::Result<()> {
        self.send_raw(&encode(args))
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Waits for the next reply or push.
    pub fn read(&mut self) -> io::Result<Value> {
        let frame = self.read_frame()?;
        redis::parse_redis_value(&frame).map_err(io::Error::other)
    }

    /// Waits for the next message and returns its bytes.
    pub fn read_frame(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(length) = frame_length(&self.received).map_err(io::Error::other)? {
                let rest = self.received.split_off(length);
                return Ok(std::mem::replace(&mut self.received, rest));
            }
            if self.read_some()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Waits until the other side has closed, and returns what came before that and was not read yet.
    pub fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        while self.read_some()? > 0 {}
        Ok(std::mem::take(&mut self.received))
    }

    fn read_some(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 16 * 1024];
        let count = loop {
            let read = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(&mut chunk),
                Stream::Unix(stream) => stream.read(&mut chunk),
            };
            match read {
                // a signal, such as that of a child that ended
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.received.extend_from_slice(&chunk[..count]);
        Ok(count)
    }

    /// A second handle that can close this connection from another thread.
    pub fn closer(&self) -> io::Result<impl FnOnce() + Send + use<>> {
        let stream = match &self.stream {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        };
        Ok(move || {
            // Closed by the other side already: then there is nothing to do.
            let _ = match stream {
                Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
                Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
            };
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of message, each complete.
    const FRAMES: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":17\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$4\r\na\r\nb\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:3\r\n",
        b"_\r\n",
        b",3.25\r\n",
        b"#t\r\n",
        b"(12345678901234567890\r\n",
        b"!9\r\nERR\r\nmore\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"~1\r\n:1\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
        b"|1\r\n+ttl\r\n:9\r\n$1\r\nx\r\n",
        b">3\r\n+message\r\n$1\r\nc\r\n$1\r\nm\r\n",
    ];

    #[test]
    fn finds_the_end_of_every_kind_of_message_however_it_is_split() {
        for frame in FRAMES {
            for cut in 0..frame.len() {
                assert_eq!(frame_length(&frame[..cut]), Ok(None), "{:?}", String::from_utf8_lossy(&frame[..cut]));
            }
            let mut with_more = frame.to_vec();
            with_more.extend_from_slice(b"+next\r\n");
            assert_eq!(frame_length(&with_more), Ok(Some(frame.len())), "{:?}", String::from_utf8_lossy(frame));
        }
    }

    #[test]
    fn refuses_what_is_not_the_protocol() {
        assert!(frame_length(b"HTTP/1.1 400 Bad Request\r\n").is_err());
        assert!(frame_length(b"$abc\r\n").is_err());
        assert!(parse_request(b"*1\r\n:3\r\n").is_err());
    }

    #[test]
    fn reads_back_the_requests_that_it_writes() {
        let args: [&[u8]; 4] = [b"SET", b"a\r\nb", b"", &[0, 255, 10]];
        let wire = encode(&args);
        for cut in 0..wire.len() {
            assert_eq!(parse_request(&wire[..cut]), Ok(None));
        }
        let request = parse_request(&[wire.clone(), b"*1\r\n".to_vec()].concat()).unwrap().unwrap();
        assert_eq!(request.length, wire.len());
        assert_eq!(request.args, args.map(<[u8]>::to_vec));
        assert_eq!(parse_request(b"PING  a\r\n").unwrap().unwrap().args, [b"PING".to_vec(), b"a".to_vec()]);
    }
}
