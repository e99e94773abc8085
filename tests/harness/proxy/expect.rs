//! Which reply belongs to which request.

use std::collections::VecDeque;
use std::sync::Arc;

use redis::Value;

use super::rule::{Data, ReplyAction};
use crate::resp::text;

/// What the server will send for one request, in the order of the requests.
pub(super) struct Expected {
    pub(super) record: Option<usize>,
    pub(super) action: ReplyAction,
    pub(super) rule: Option<Arc<Data>>,
    kind: Kind,
}

enum Kind {
    Reply,
    /// SUBSCRIBE and its kin are answered by one confirmation per channel, and by no reply.
    Confirmations {
        word: Vec<u8>,
        /// 0 for all that there are, which is known when the first one comes.
        left: usize,
    },
    /// The proxy itself answers this, when it is its turn.
    Ready(Vec<u8>),
    /// The second answer to a request that was sent twice.
    Surplus,
}

impl Expected {
    pub(super) fn ready(bytes: Vec<u8>, record: usize, rule: Arc<Data>) -> Self {
        Self { record: Some(record), action: ReplyAction::Deliver, rule: Some(rule), kind: Kind::Ready(bytes) }
    }

    pub(super) fn surplus() -> Self {
        Self { record: None, action: ReplyAction::Deliver, rule: None, kind: Kind::Surplus }
    }
}

/// What came from the server, put in its place.
pub(super) enum Arrived {
    /// It answers this request.
    Answer { record: Option<usize>, action: ReplyAction, rule: Option<Arc<Data>> },
    /// Nobody asked for it: a published message, say. These are its words.
    Push(Vec<Vec<u8>>),
    /// It goes to the client as it is.
    Unasked,
    /// It goes nowhere.
    Surplus,
}

/// The requests of one connection that still wait for their replies.
#[derive(Default)]
pub(super) struct Awaiting {
    queue: VecDeque<Expected>,
    subscriber: bool,
    subscriptions: usize,
}

impl Awaiting {
    /// What the server will send for `args`.
    pub(super) fn expectation(&mut self, args: &[Vec<u8>], record: usize) -> Expected {
        let word = args.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
        let kind = if word.ends_with(b"subscribe") {
            self.subscriber = true;
            Kind::Confirmations { word, left: args.len() - 1 }
        } else {
            Kind::Reply
        };
        Expected { record: Some(record), action: ReplyAction::Deliver, rule: None, kind }
    }

    pub(super) fn add(&mut self, expected: impl IntoIterator<Item = Expected>) {
        self.queue.extend(expected);
    }

    /// Takes the next answer that the proxy gives itself, once it is at the front.
    pub(super) fn take_ready(&mut self) -> Option<(Vec<u8>, Expected)> {
        let Kind::Ready(bytes) = &mut self.queue.front_mut()?.kind else { return None };
        let bytes = std::mem::take(bytes);
        self.queue.pop_front().map(|expected| (bytes, expected))
    }

    pub(super) fn arrived(&mut self, frame: &[u8]) -> Arrived {
        if let Some(words) = self.push_words(frame) {
            return self.arrived_push(words);
        }
        let Some(expected) = self.queue.pop_front() else { return Arrived::Unasked };
        match expected.kind {
            Kind::Surplus => Arrived::Surplus,
            _ => Arrived::Answer { record: expected.record, action: expected.action, rule: expected.rule },
        }
    }

    fn arrived_push(&mut self, words: Vec<Vec<u8>>) -> Arrived {
        let before = self.subscriptions;
        if words[0].ends_with(b"subscribe") {
            self.subscriptions = words.get(2).and_then(|n| std::str::from_utf8(n).ok()?.parse().ok()).unwrap_or(0);
        }
        match self.queue.front_mut() {
            Some(Expected { record, action, rule, kind: Kind::Confirmations { word, left } }) if *word == words[0] => {
                if *left == 0 {
                    *left = before.max(1);
                }
                *left -= 1;
                let answer = Arrived::Answer { record: *record, action: action.clone(), rule: rule.clone() };
                if *left == 0 {
                    self.queue.pop_front();
                }
                answer
            }
            _ => Arrived::Push(words),
        }
    }

    /// The words of a push, or of what stands for one under RESP2.
    fn push_words(&self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        let resp2 = self.subscriber && frame.first() == Some(&b'*');
        if !resp2 && frame.first() != Some(&b'>') {
            return None;
        }
        let words: Vec<Vec<u8>> = match redis::parse_redis_value(frame).ok()? {
            Value::Push { kind, data } => {
                std::iter::once(kind.to_string().into_bytes()).chain(data.iter().map(bytes)).collect()
            }
            Value::Array(items) => items.iter().map(bytes).collect(),
            _ => return None,
        };
        let first = words.first()?;
        (!resp2 || first.ends_with(b"message") || first.ends_with(b"subscribe")).then_some(words)
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes.clone(),
        other => text(other).into_bytes(),
    }
}
