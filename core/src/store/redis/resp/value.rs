//! Reading parts of a decoded reply.

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

/// The value of a key in a map, or in the flat array that stands for one under RESP2.
pub(crate) fn map_entry<'v>(reply: &'v Value, key: &[u8]) -> Option<&'v Value> {
    match reply {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| text(name) == Some(key)).map(|(_, value)| value),
        Value::Array(items) => items.chunks_exact(2).find(|pair| text(&pair[0]) == Some(key)).map(|pair| &pair[1]),
        _ => None,
    }
}

/// The text of a server's error, from code and details; printable.
pub(crate) fn words(error: &ServerError) -> String {
    match error.details() {
        Some(details) => printable(&format!("{} {details}", error.code())),
        None => printable(error.code()),
    }
}

/// Makes a text from elsewhere safe for terminals and logs: control characters are escaped.
pub(crate) fn printable(text: &str) -> String {
    /// Characters that change the direction of text.
    const TURNING: [std::ops::RangeInclusive<char>; 3] =
        ['\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    let text = text.trim_end();
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || TURNING.iter().any(|letters| letters.contains(&letter)) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_a_terminal_is_spelt_out() {
        assert_eq!(printable("ERR \u{1b}[2Jgone\u{7}\r\n"), "ERR \\u{1b}[2Jgone\\u{7}");
        assert_eq!(printable("a\nb\tc\u{9b}d\u{202e}e"), "a\\nb\\tc\\u{9b}d\\u{202e}e");
        assert_eq!(printable("grüße ✓ 'x'"), "grüße ✓ 'x'");
        let error = redis::parse_redis_value(b"-ERR \x1b]0;title\x07\r\n");
        assert!(matches!(error, Ok(Value::ServerError(error)) if words(&error) == "ERR \\u{1b}]0;title\\u{7}"));
    }
}
