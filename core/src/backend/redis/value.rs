//! Small questions to a server's reply, asked in several places.

use redis::{ServerError, Value};

/// The bytes, if the reply is text of any kind.
pub(crate) fn text(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.as_bytes()),
        Value::Okay => Some(b"OK"),
        _ => None,
    }
}

/// The value behind a key: of a map, or of the flat array that stands for one under RESP2.
pub(crate) fn entry<'v>(reply: &'v Value, key: &[u8]) -> Option<&'v Value> {
    match reply {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| text(name) == Some(key)).map(|(_, value)| value),
        Value::Array(items) => items.chunks_exact(2).find(|pair| text(&pair[0]) == Some(key)).map(|pair| &pair[1]),
        _ => None,
    }
}

/// The server's words, put together again from code and rest.
pub(crate) fn words(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}
