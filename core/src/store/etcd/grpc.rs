//! gRPC over one HTTP/2 connection: a request and its answer, and streams of both.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_TYPE, HeaderMap, TE};
use http::{Method, Request, StatusCode, Uri};

use super::messages::ReceivedMessage;
use super::protobuf::Message;

/// A larger answer is no answer of etcd's.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// The codes of gRPC that mean something here.
pub(super) mod code {
    pub(crate) const CANCELLED: u32 = 1;
    pub(crate) const UNKNOWN: u32 = 2;
    pub(crate) const INVALID_ARGUMENT: u32 = 3;
    pub(crate) const DEADLINE_EXCEEDED: u32 = 4;
    pub(crate) const NOT_FOUND: u32 = 5;
    pub(crate) const PERMISSION_DENIED: u32 = 7;
    pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(crate) const FAILED_PRECONDITION: u32 = 9;
    pub(crate) const ABORTED: u32 = 10;
    pub(crate) const UNIMPLEMENTED: u32 = 12;
    pub(crate) const INTERNAL: u32 = 13;
    pub(crate) const UNAVAILABLE: u32 = 14;
    pub(crate) const UNAUTHENTICATED: u32 = 16;
}

/// How a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallError {
    pub(super) code: u32,
    /// The server's words, or those of the connection.
    pub(super) words: String,
    /// The server has certainly not seen it.
    pub(super) unsent: bool,
    /// The connection is of no more use.
    pub(super) broken: bool,
}

impl CallError {
    fn broken(words: impl Into<String>) -> CallError {
        CallError { code: code::UNAVAILABLE, words: words.into(), unsent: false, broken: true }
    }

    fn unsent(error: &h2::Error) -> CallError {
        CallError { unsent: true, ..CallError::broken(error.to_string()) }
    }

    pub(super) fn malformed() -> CallError {
        CallError { code: code::INTERNAL, ..CallError::broken("the answer is none of etcd's") }
    }
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> CallError {
        // a stream that the server refused was not looked at
        let unsent = error.reason() == Some(Reason::REFUSED_STREAM);
        CallError { unsent, ..CallError::broken(error.to_string()) }
    }
}

/// The way to a server over a connection.
#[derive(Clone)]
pub(super) struct GrpcChannel {
    pub(super) requests: SendRequest<Bytes>,
    /// `http://host:port` or `https://host:port`.
    pub(super) origin: String,
}

/// What a call says beside its message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Metadata<'a> {
    /// What the server gave for user and password.
    pub(super) token: Option<&'a str>,
    /// How long the server may work on it; `None` for a stream.
    pub(super) limit: Option<Duration>,
}

/// The message behind its prefix: not compressed, and its length.
fn framed(message: Message) -> Bytes {
    let message = message.into_bytes();
    let mut frame = Vec::with_capacity(5 + message.len());
    frame.push(0);
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(&message);
    frame.into()
}

impl GrpcChannel {
    fn request(&self, path: &str, metadata: Metadata<'_>) -> Result<Request<()>, CallError> {
        let invalid =
            |words: String| CallError { code: code::INVALID_ARGUMENT, unsent: true, ..CallError::broken(words) };
        let uri: Uri = format!("{}{path}", self.origin).parse().map_err(|error| invalid(format!("{error}")))?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers");
        if let Some(token) = metadata.token {
            request = request.header("token", token);
        }
        request = match metadata.limit {
            Some(limit) => request.header("grpc-timeout", format!("{}m", limit.as_millis().max(1))),
            // a server that knows of no leader answers no stream
            None => request.header("hasleader", "true"),
        };
        request.body(()).map_err(|error| invalid(error.to_string()))
    }

    /// Opens a stream of requests and answers.
    pub(super) async fn open(&self, path: &str, metadata: Metadata<'_>) -> Result<Sending, CallError> {
        let request = self.request(path, metadata)?;
        let mut ready = self.requests.clone().ready().await.map_err(|error| CallError::unsent(&error))?;
        let (answer, sender) = ready.send_request(request, false).map_err(|error| CallError::unsent(&error))?;
        Ok(Sending { sender, answer })
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn ask<R: ReceivedMessage>(
        &self,
        path: &str,
        message: Message,
        metadata: Metadata<'_>,
    ) -> Result<R, CallError> {
        let mut sending = self.open(path, metadata).await?;
        sending.send(message, true)?;
        let mut answers = sending.answers().await?;
        let answer = answers.next().await?.ok_or_else(CallError::malformed)?;
        // the trailers say whether it is one
        match answers.next().await? {
            None => R::read(&answer).map_err(|_| CallError::malformed()),
            Some(_) => Err(CallError::malformed()),
        }
    }
}

/// A stream whose answers have not begun yet.
pub(super) struct Sending {
    sender: SendStream<Bytes>,
    answer: h2::client::ResponseFuture,
}

impl Sending {
    /// Hands a message over to the connection, without waiting: messages of locks are small.
    pub(super) fn send(&mut self, message: Message, is_last: bool) -> Result<(), CallError> {
        Ok(self.sender.send_data(framed(message), is_last)?)
    }

    /// Waits for the beginning of the answers.
    pub(super) async fn answers(self) -> Result<AnswerStream, CallError> {
        let answer = self.answer.await?;
        if answer.status() != StatusCode::OK {
            return Err(CallError::broken(format!("the server answered with HTTP status {}", answer.status())));
        }
        // an answer may consist of its end alone
        if answer.headers().contains_key("grpc-status") {
            ended(answer.headers())?;
        }
        Ok(AnswerStream { _sender: self.sender, body: answer.into_body(), rest: BytesMut::new() })
    }
}

/// What the end of a stream says.
fn ended(trailers: &HeaderMap) -> Result<(), CallError> {
    let text = |name| trailers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let status = text("grpc-status").and_then(|status| status.parse().ok()).ok_or_else(CallError::malformed)?;
    if status == 0 {
        return Ok(());
    }
    let words = text("grpc-message").unwrap_or_default();
    let words = percent_encoding::percent_decode_str(&words).decode_utf8_lossy().into_owned();
    // some servers give Go's words for it, and no code
    let code = match (status, words.as_str()) {
        (code::UNKNOWN, "context deadline exceeded") => code::DEADLINE_EXCEEDED,
        (code::UNKNOWN, "context canceled") => code::CANCELLED,
        (other, _) => other,
    };
    Err(CallError { code, words, unsent: false, broken: false })
}

/// The answers of a stream. Dropping it cancels the stream.
pub(super) struct AnswerStream {
    _sender: SendStream<Bytes>,
    body: RecvStream,
    rest: BytesMut,
}

impl AnswerStream {
    /// The next message; `None` at the end of a stream that went well.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        loop {
            if let Some((prefix, _)) = self.rest.split_at_checked(5) {
                let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
                if prefix[0] != 0 || length > ANSWER_MAX {
                    return Err(CallError::malformed());
                }
                if self.rest.len() >= 5 + length {
                    self.rest.advance(5);
                    return Ok(Some(self.rest.split_to(length).freeze()));
                }
            }
            match self.body.data().await {
                Some(data) => {
                    let data = data?;
                    // the server may send as much again
                    self.body.flow_control().release_capacity(data.len())?;
                    self.rest.extend_from_slice(&data);
                }
                None if self.rest.is_empty() => {
                    let trailers = self.body.trailers().await?;
                    return ended(&trailers.ok_or_else(CallError::malformed)?).map(|()| None);
                }
                None => return Err(CallError::malformed()),
            }
        }
    }

    /// The next message, read; an end is a failure.
    pub(super) async fn read<R: ReceivedMessage>(&mut self) -> Result<R, CallError> {
        let message = self.next().await?.ok_or_else(|| CallError::broken("the server ended the stream"))?;
        R::read(&message).map_err(|_| CallError::malformed())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_time_limit_that_passed_in_the_server_is_known_by_its_code_or_its_words() {
        let of = |code: u32, words: &'static str| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", code.into());
            trailers.insert("grpc-message", http::HeaderValue::from_static(words));
            ended(&trailers).unwrap_err().code
        };
        assert_eq!(of(4, "context deadline exceeded"), code::DEADLINE_EXCEEDED);
        assert_eq!(of(2, "context deadline exceeded"), code::DEADLINE_EXCEEDED);
        assert_eq!(of(2, "context%20canceled"), code::CANCELLED);
        assert_eq!(of(2, "something else"), code::UNKNOWN);
        assert_eq!(of(14, "context deadline exceeded"), code::UNAVAILABLE);
    }
}
