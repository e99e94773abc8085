//! Locks, for people and for programs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onelock::{Inspection, Kind, OwnerInfo, Waiter};
use serde_json::{Value, json};

use crate::span;

/// A name for people: what would command a terminal is spelt out.
pub(crate) fn name(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), text)
}

/// The same for a text that somebody else has written.
pub(crate) fn text(text: &str) -> String {
    let shown = |letter: char| -> String {
        if commands_terminal(letter) { letter.escape_default().collect() } else { letter.into() }
    };
    text.chars().map(shown).collect()
}

/// Control characters, those from U+0080 to U+009F included, and what turns the direction of writing.
fn commands_terminal(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The line of a JSON object. What would command a terminal is spelt out there, too: JSON asks for less.
pub(crate) fn json_line(value: &Value) -> String {
    let shown = |letter: char| -> String {
        if commands_terminal(letter) { format!("\\u{:04x}", u32::from(letter)) } else { letter.into() }
    };
    let text: String = value.to_string().chars().map(shown).collect();
    format!("{text}\n")
}

/// A lock as a JSON object.
pub(crate) fn json(name: &[u8], seen: &Inspection) -> Value {
    let waiter = |waiter: &Waiter| {
        let client = waiter.client.as_ref();
        let client = client.map(|client| json!({"label": client.label, "pid": client.pid, "host": client.host}));
        json!({"client": client, "since_ms": waiter.since_ms})
    };
    let owner = seen
        .owner
        .as_ref()
        .map(|owner| json!({"label": owner.label, "pid": owner.pid, "host": owner.host, "since_ms": owner.since_ms}));
    let mut object = json!({
        "name": str::from_utf8(name).ok(),
        "kind": seen.kind.as_str(),
        "client": seen.origin.as_str(),
        "owner": owner,
        "foreign_holder": seen.foreign_holder,
        "hold_count": seen.hold_count,
        "ttl_left_ms": seen.ttl_left.map(|left| left.as_millis() as u64),
        "fencing_token": seen.fencing_token,
        "permits": seen.permits,
        "free": seen.free,
        "waiting": seen.waiting,
        "waiters": seen.waiters.iter().map(waiter).collect::<Vec<_>>(),
    });
    if str::from_utf8(name).is_err() {
        object["name_hex"] = json!(name.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")));
    }
    object
}

/// Who holds it, in one line.
pub(crate) fn holder(seen: &Inspection) -> String {
    match &seen.owner {
        Some(owner) => {
            let others = match (seen.kind, seen.hold_count) {
                (Kind::Read, count @ 2..) => format!(" and {} more", count - 1),
                _ => String::new(),
            };
            format!("{}{others}", client(owner))
        }
        None if seen.hold_count == 0 => "(released)".to_owned(),
        None if seen.kind == Kind::Semaphore => match seen.hold_count {
            1 => "1 permit".to_owned(),
            count => format!("{count} permits"),
        },
        None => seen.foreign_holder.as_deref().map_or_else(|| "-".to_owned(), text),
    }
}

/// A client, in a few words.
pub(crate) fn client(info: &OwnerInfo) -> String {
    format!("{} {}@{}", text(&info.label), info.pid, text(&info.host)).trim_start().to_owned()
}

/// Somebody who waits with a place in the queue.
pub(crate) fn waiter(waiter: &Waiter) -> String {
    let who = waiter.client.as_ref().map_or_else(|| "(unknown)".to_owned(), client);
    format!("{who} for {}", optional(since(waiter.since_ms)))
}

/// How many wait, and the first of them if it is known.
pub(crate) fn waiting(seen: &Inspection) -> String {
    let Some(number) = seen.waiting else { return "-".to_owned() };
    match seen.waiters.first().and_then(|first| first.client.as_ref()) {
        Some(first) if number > 1 => format!("{number} ({} and {} more)", client(first), number - 1),
        Some(first) => format!("{number} ({})", client(first)),
        None => number.to_string(),
    }
}

/// For how long it has been held, if the holder told.
pub(crate) fn held_for(owner: Option<&OwnerInfo>) -> Option<Duration> {
    since(owner?.since_ms)
}

/// How long that is ago, in milliseconds since 1970.
pub(crate) fn since(ms: u64) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(Duration::from_millis(ms)))
}

/// A duration, or what stands for none.
pub(crate) fn optional(span: Option<Duration>) -> String {
    span.map_or_else(|| "-".to_owned(), span::show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_a_terminal_is_spelt_out() {
        assert_eq!(name(b"a\x1b[2J\n"), "a\\u{1b}[2J\\n");
        assert_eq!(name(b"\xff\x00"), "\\xff\\x00");
        assert_eq!(name("grüße".as_bytes()), "grüße");
        assert_eq!(text("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(text("a\u{9b}2J"), "a\\u{9b}2J");
    }

    #[test]
    fn json_commands_no_terminal_either_and_says_the_same() {
        let label = "a\u{9b}2J\u{7f}\u{202e}b\x1bü\n";
        let line = json_line(&json!({"label": label}));
        assert_eq!(line, "{\"label\":\"a\\u009b2J\\u007f\\u202eb\\u001bü\\n\"}\n");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), json!({"label": label}));
    }
}
