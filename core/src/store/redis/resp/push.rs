//! What a server sends unasked: messages of subscriptions, and confirmations of their changes.

use redis::{PushKind, Value};

use super::value::text;

/// What a server sent that is no reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Push {
    Message {
        channel: Vec<u8>,
        payload: Vec<u8>,
    },
    /// The subscription to this channel has begun.
    Subscribed(Vec<u8>),
    /// The subscription to this channel has ended.
    Unsubscribed(Vec<u8>),
    Other,
}

impl Push {
    /// What `value` says; `Err` with the value when it is a reply. Under RESP2 a subscribed connection gets arrays in
    /// place of pushes.
    pub(crate) fn read(value: Value, subscribed: bool) -> Result<Push, Value> {
        match value {
            Value::Push { kind, data } => Ok(match kind {
                PushKind::Message | PushKind::SMessage => message(&data),
                PushKind::Subscribe | PushKind::SSubscribe => bytes(data.first()).map(Push::Subscribed),
                PushKind::Unsubscribe | PushKind::SUnsubscribe => bytes(data.first()).map(Push::Unsubscribed),
                _ => None,
            }
            .unwrap_or(Push::Other)),
            Value::Array(items) if subscribed && items.len() == 3 => {
                let read = match items.first().and_then(text) {
                    Some(b"message" | b"smessage") => message(&items[1..]),
                    Some(b"subscribe" | b"ssubscribe") => bytes(items.get(1)).map(Push::Subscribed),
                    Some(b"unsubscribe" | b"sunsubscribe") => bytes(items.get(1)).map(Push::Unsubscribed),
                    _ => None,
                };
                read.ok_or(Value::Array(items))
            }
            reply => Err(reply),
        }
    }
}

fn bytes(value: Option<&Value>) -> Option<Vec<u8>> {
    value.and_then(text).map(<[u8]>::to_vec)
}

fn message(items: &[Value]) -> Option<Push> {
    Some(Push::Message { channel: bytes(items.first())?, payload: bytes(items.get(1)).unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(bytes: &str, subscribed: bool) -> Option<Push> {
        Push::read(redis::parse_redis_value(bytes.as_bytes()).unwrap(), subscribed).ok()
    }

    #[test]
    fn both_protocols_say_the_same() {
        let message = Push::Message { channel: b"c".to_vec(), payload: b"p".to_vec() };
        let (begun, ended) = (Push::Subscribed(b"c".to_vec()), Push::Unsubscribed(b"c".to_vec()));
        for (word, last, push) in [
            ("message", "$1\r\np", message.clone()),
            ("smessage", "$1\r\np", message),
            ("subscribe", ":1", begun.clone()),
            ("ssubscribe", ":1", begun),
            ("unsubscribe", ":0", ended.clone()),
            ("sunsubscribe", ":0", ended),
        ] {
            let words = format!("3\r\n${}\r\n{word}\r\n$1\r\nc\r\n{last}\r\n", word.len());
            assert_eq!(read(&format!(">{words}"), false), Some(push.clone()), "{word}");
            assert_eq!(read(&format!("*{words}"), true), Some(push), "{word}");
            assert_eq!(read(&format!("*{words}"), false), None, "{word}: a reply, unless subscribed");
        }
    }

    #[test]
    fn what_is_no_message_is_none() {
        for reply in [
            "*0\r\n",
            "*1\r\n$7\r\nmessage\r\n",
            "*2\r\n$7\r\nmessage\r\n:2\r\n",
            "*3\r\n:1\r\n:2\r\n:3\r\n",
            "+message\r\n",
            "-ERR no\r\n",
        ] {
            assert_eq!(read(reply, true), None, "{reply:?}");
        }
        for push in [">1\r\n+message\r\n", ">2\r\n+message\r\n*0\r\n", ">2\r\n+invalidate\r\n$1\r\nk\r\n"] {
            assert_eq!(read(push, false), Some(Push::Other), "{push:?}");
        }
    }
}
