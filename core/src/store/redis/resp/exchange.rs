//! One connection without I/O: requests and bytes to send go in and out on one side, received bytes and replies on the
//! other. A thread, a task or an event loop drives it with a socket.

use redis::{Cmd, Value};

use super::decoder::{Malformed, ReplyDecoder};
use super::push::Push;
use super::request_queue::{Expected, FailedRequest, RequestQueue, Unsolicited};
use crate::machine::Time;

/// With more unwanted replies to come, the server is not just slow.
const MAX_UNWANTED: usize = 4;

/// What has arrived.
#[derive(Debug, PartialEq)]
pub(crate) enum Received<T> {
    /// The reply to the request of this caller. A change of subscriptions is answered with `Okay`.
    Reply(T, Value),
    /// A message, a change of subscriptions that nobody asked for, or another push.
    Push(Push),
}

/// Why the connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ExchangeError {
    /// The bytes are no reply.
    Malformed,
    /// A reply that no request was sent for: later ones might be taken for those of other requests.
    Unsolicited,
}

impl From<Malformed> for ExchangeError {
    fn from(Malformed: Malformed) -> ExchangeError {
        ExchangeError::Malformed
    }
}

impl From<Unsolicited> for ExchangeError {
    fn from(Unsolicited: Unsolicited) -> ExchangeError {
        ExchangeError::Unsolicited
    }
}

/// The state of one connection. `T` stands for a caller.
pub(crate) struct Exchange<T> {
    pub(crate) decoder: ReplyDecoder,
    pub(crate) requests: RequestQueue<T>,
    /// Whether a subscription was made: then arrays may be messages, and pushes are wanted.
    subscribed: bool,
    failed: bool,
}

impl<T> Exchange<T> {
    pub(crate) fn new() -> Exchange<T> {
        Exchange { decoder: ReplyDecoder::new(), requests: RequestQueue::new(), subscribed: false, failed: false }
    }

    /// The same connection for callers of another kind. Replies that somebody waits for are dropped from now on.
    pub(crate) fn for_other_callers<U>(self) -> Exchange<U> {
        let Exchange { decoder, requests, subscribed, failed } = self;
        Exchange { decoder, requests: requests.for_other_callers(), subscribed, failed }
    }

    /// Queues a command.
    pub(crate) fn push(&mut self, caller: T, sent_at: Time, command: &Cmd) {
        self.requests.push(Some(caller), sent_at, Expected::Reply, |bytes| command.write_packed_command(bytes));
    }

    /// Queues a command whose reply nobody waits for.
    pub(crate) fn push_unawaited(&mut self, sent_at: Time, command: &Cmd) {
        self.requests.push(None, sent_at, Expected::Reply, |bytes| command.write_packed_command(bytes));
    }

    /// Queues commands that are packed already, one for each caller. All have left with their first byte.
    pub(crate) fn push_packed(&mut self, callers: impl IntoIterator<Item = T>, sent_at: Time, packed: &[u8]) {
        // those without bytes come first: a request that begins behind the last byte has not left
        let mut callers = callers.into_iter().peekable();
        while let Some(caller) = callers.next() {
            let bytes = if callers.peek().is_none() { packed } else { &[] };
            self.requests.push(Some(caller), sent_at, Expected::Reply, |queued| queued.extend_from_slice(bytes));
        }
    }

    /// Queues the command `word` about all of `channels`, which begins or ends subscriptions.
    pub(crate) fn push_subscription(
        &mut self,
        caller: Option<T>,
        sent_at: Time,
        (word, begins): (&str, bool),
        channels: Vec<Vec<u8>>,
    ) {
        self.subscribed = true;
        let mut command = Cmd::new();
        command.arg(word).arg(&channels);
        let expected = if begins { Expected::Subscribed(channels) } else { Expected::Unsubscribed(channels) };
        self.requests.push(caller, sent_at, expected, |bytes| command.write_packed_command(bytes));
    }

    /// What has arrived next; `None` when more bytes are needed. Replies that nobody waits for are dropped, and so are
    /// pushes before the first subscription.
    pub(crate) fn next(&mut self) -> Result<Option<Received<T>>, ExchangeError> {
        let next = self.look();
        self.failed |= next.is_err();
        next
    }

    fn look(&mut self) -> Result<Option<Received<T>>, ExchangeError> {
        while let Some(value) = self.decoder.next()? {
            let push = match Push::read(value, self.subscribed) {
                Ok(push) => push,
                Err(reply) => match self.requests.replied()? {
                    Some(caller) => return Ok(Some(Received::Reply(caller, reply))),
                    None => continue,
                },
            };
            let (asked, caller) = match &push {
                Push::Subscribed(channel) => self.requests.confirmed(true, channel),
                Push::Unsubscribed(channel) => self.requests.confirmed(false, channel),
                Push::Message { .. } | Push::Other => (false, None),
            };
            match caller {
                Some(caller) => return Ok(Some(Received::Reply(caller, Value::Okay))),
                None if asked || !self.subscribed => {}
                None => return Ok(Some(Received::Push(push))),
            }
        }
        Ok(None)
    }

    /// The connection has failed, or was given up: its requests with callers, in order.
    pub(crate) fn fail(&mut self) -> impl Iterator<Item = FailedRequest<T>> + use<T> {
        self.failed = true;
        self.requests.fail()
    }

    /// Whether another request can be sent and gets its own reply: nobody waits, and not too much is owed or left over.
    pub(crate) fn is_reusable(&mut self) -> bool {
        !self.failed
            && match self.requests.len() {
                0 => self.decoder.is_drained(),
                owed => owed <= MAX_UNWANTED && self.requests.callers().next().is_none(),
            }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::super::decoder::MAX_REPLY_BYTES;
    use super::*;

    /// An exchange that has sent the requests of callers 0, 1, 2 …; those in `unwanted` have none.
    fn sent(count: usize, unwanted: &[usize]) -> Exchange<usize> {
        let mut exchange = Exchange::new();
        for caller in 0..count {
            let command = redis::cmd("PING");
            if unwanted.contains(&caller) {
                exchange.push_unawaited(Time::ZERO, &command);
            } else {
                exchange.push(caller, Time::ZERO, &command);
            }
        }
        exchange.requests.assume_sent();
        exchange
    }

    /// The same with a subscription.
    fn subscribed(count: usize, unwanted: &[usize]) -> Exchange<usize> {
        let mut exchange = Exchange::new();
        exchange.subscribed = true;
        let Exchange { requests, .. } = sent(count, unwanted);
        Exchange { requests, ..exchange }
    }

    /// What comes of `bytes` that arrive in these pieces, one after the other.
    fn receive(exchange: &mut Exchange<usize>, pieces: &[&[u8]]) -> (Vec<Received<usize>>, Option<ExchangeError>) {
        let mut received = Vec::new();
        for piece in pieces.iter().flat_map(|piece| piece.chunks(4096)) {
            exchange.decoder.space()[..piece.len()].copy_from_slice(piece);
            exchange.decoder.received(piece.len());
            loop {
                match exchange.next() {
                    Ok(Some(one)) => received.push(one),
                    Ok(None) => break,
                    Err(error) => return (received, Some(error)),
                }
            }
        }
        (received, None)
    }

    fn encode(value: &Value, bytes: &mut Vec<u8>) {
        let line = |bytes: &mut Vec<u8>, line: String| bytes.extend_from_slice(format!("{line}\r\n").as_bytes());
        match value {
            Value::Nil => line(bytes, "$-1".to_owned()),
            Value::Int(number) => line(bytes, format!(":{number}")),
            Value::SimpleString(text) => line(bytes, format!("+{text}")),
            Value::BulkString(text) => {
                line(bytes, format!("${}", text.len()));
                bytes.extend_from_slice(text);
                bytes.extend_from_slice(b"\r\n");
            }
            Value::Array(items) => {
                line(bytes, format!("*{}", items.len()));
                for item in items {
                    encode(item, bytes);
                }
            }
            Value::ServerError(error) => line(bytes, format!("-{} {}", error.code(), error.details().unwrap())),
            other => panic!("{other:?}"),
        }
    }

    fn error(text: &str) -> Value {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap()
    }

    fn reply() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<i64>().prop_map(Value::Int),
            "[a-z]{0,12}".prop_map(Value::SimpleString),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::BulkString),
            "[A-Z]{1,8} [a-z ]{1,12}".prop_map(|text| error(&text)),
        ];
        leaf.prop_recursive(4, 24, 6, |item| proptest::collection::vec(item, 0..6).prop_map(Value::Array))
    }

    const MESSAGE: &[u8] = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\np\r\n";

    fn message() -> Received<usize> {
        Received::Push(Push::Message { channel: b"c".to_vec(), payload: b"p".to_vec() })
    }

    proptest! {
        /// Replies and pushes in any order, cut anywhere: each caller gets its reply, and nobody another one's.
        #[test]
        fn each_reply_reaches_its_caller(
            replies in proptest::collection::vec((reply(), any::<bool>(), any::<bool>()), 1..8),
            cuts in proptest::collection::vec(1..40usize, 1..60),
        ) {
            let unwanted: Vec<_> = (0..replies.len()).filter(|at| replies[*at].1).collect();
            let mut exchange = subscribed(replies.len(), &unwanted);
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            for (caller, (value, dropped, pushed)) in replies.into_iter().enumerate() {
                if pushed {
                    bytes.extend_from_slice(MESSAGE);
                    expected.push(message());
                }
                encode(&value, &mut bytes);
                if !dropped {
                    expected.push(Received::Reply(caller, value));
                }
            }
            let (mut pieces, mut rest) = (Vec::new(), &bytes[..]);
            for cut in cuts.into_iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, behind) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = behind;
            }
            let received = receive(&mut exchange, &pieces);
            // "+OK" has a value of its own
            prop_assert_eq!(format!("{received:?}").replace("simple-string(\"OK\")", "ok"),
                format!("{:?}", (expected, None::<ExchangeError>)).replace("simple-string(\"OK\")", "ok"));
            prop_assert!(exchange.is_reusable());
        }

        /// Whatever a peer sends: there is an end, and nothing is replied to more callers than there are.
        #[test]
        fn hostile_bytes_end_without_harm(
            parts in proptest::collection::vec(prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..30),
                "[*$%~>:+_,(=#|-]-?[0-9]{0,20}\r\n".prop_map(String::into_bytes),
                Just(b"*1\r\n".repeat(120)),
                Just(MESSAGE.to_vec()),
            ], 0..20),
            size in 1..200usize,
        ) {
            let bytes = parts.concat();
            let mut exchange = sent(3, &[1]);
            let (received, failed) = receive(&mut exchange, &bytes.chunks(size).collect::<Vec<_>>());
            let callers: Vec<_> = received.iter().filter_map(|one| match one {
                Received::Reply(caller, _) => Some(*caller),
                Received::Push(_) => None,
            }).collect();
            prop_assert!([&[][..], &[0], &[0, 2]].contains(&&callers[..]), "{:?}", callers);
            prop_assert!(failed.is_none() || !exchange.is_reusable());
        }
    }

    #[test]
    fn a_reply_too_many_ends_the_connection() {
        for (bytes, failed) in [(":1\r\n:2\r\n", true), (":1\r\n", false)] {
            let mut exchange = sent(1, &[]);
            let expected = (vec![Received::Reply(0, Value::Int(1))], failed.then_some(ExchangeError::Unsolicited));
            assert_eq!(receive(&mut exchange, &[bytes.as_bytes()]), expected);
            assert_eq!(exchange.is_reusable(), !failed);
        }
        // also one that is found only when the connection is looked at
        let mut exchange = sent(1, &[]);
        exchange.decoder.space()[..8].copy_from_slice(b":1\r\n:2\r\n");
        exchange.decoder.received(8);
        assert!(exchange.next().unwrap().is_some());
        assert!(!exchange.is_reusable());
    }

    #[test]
    fn a_request_that_waits_makes_it_unusable_for_another() {
        assert!(!sent(1, &[]).is_reusable());
        assert!(sent(MAX_UNWANTED, &[0, 1, 2, 3]).is_reusable());
        assert!(!sent(MAX_UNWANTED + 1, &[0, 1, 2, 3, 4]).is_reusable(), "the server is not just slow");
        let mut failed = sent(0, &[]);
        assert!(failed.is_reusable());
        drop(failed.fail());
        assert!(!failed.is_reusable());
    }

    #[test]
    fn a_subscription_is_confirmed_by_push_or_array_or_refused() {
        let subscribed = |mark: char, word: &str, channel: char| {
            format!("{mark}3\r\n${}\r\n{word}\r\n$1\r\n{channel}\r\n:1\r\n", word.len())
        };
        for mark in ['>', '*'] {
            let mut exchange = Exchange::new();
            let channels = vec![b"a".to_vec(), b"b".to_vec()];
            exchange.push(7, Time::ZERO, &redis::cmd("PING"));
            exchange.push_subscription(Some(8), Time::ZERO, ("SUBSCRIBE", true), channels.clone());
            exchange.push_subscription(Some(9), Time::ZERO, ("UNSUBSCRIBE", false), channels);
            exchange.push_subscription(None, Time::ZERO, ("UNSUBSCRIBE", false), vec![b"a".to_vec()]);
            exchange.requests.assume_sent();
            let bytes = [
                subscribed(mark, "unsubscribe", 'a'),
                "+PONG\r\n".to_owned(),
                subscribed(mark, "subscribe", 'b'),
                subscribed(mark, "message", 'b'),
                subscribed(mark, "subscribe", 'a'),
                "-NOPERM no\r\n".to_owned(),
                subscribed(mark, "unsubscribe", 'a'),
                subscribed(mark, "unsubscribe", 'a'),
            ];
            let message = Push::Message { channel: b"b".to_vec(), payload: Vec::new() };
            let expected = vec![
                Received::Push(Push::Unsubscribed(b"a".to_vec())),
                Received::Reply(7, Value::SimpleString("PONG".into())),
                Received::Push(message),
                Received::Reply(8, Value::Okay),
                Received::Reply(9, error("NOPERM no")),
                // the last one nobody has asked for any more
                Received::Push(Push::Unsubscribed(b"a".to_vec())),
            ];
            let all = bytes.concat();
            let pieces: Vec<_> = all.as_bytes().chunks(3).collect();
            assert_eq!(receive(&mut exchange, &pieces), (expected, None), "{mark}");
        }
    }

    #[test]
    fn who_has_not_subscribed_gets_no_pushes() {
        let bytes = [MESSAGE, b":1\r\n", MESSAGE].concat();
        let reply = || Received::Reply(0, Value::Int(1));
        assert_eq!(receive(&mut sent(1, &[]), &[&bytes]), (vec![reply()], None));
        assert_eq!(receive(&mut subscribed(1, &[]), &[&bytes]), (vec![message(), reply(), message()], None));
    }

    #[test]
    fn a_reply_without_end_is_given_up() {
        let endless = [&b"$1073741824\r\n"[..], &vec![b'a'; 2 * MAX_REPLY_BYTES]].concat();
        let mut exchange = sent(1, &[]);
        assert_eq!(receive(&mut exchange, &[&endless]), (vec![], Some(ExchangeError::Malformed)));
        assert_eq!(exchange.fail().map(|request| request.left).collect::<Vec<_>>(), [true]);
    }
}
