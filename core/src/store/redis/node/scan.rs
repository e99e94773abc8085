//! Listing what stands on one server, a bounded number of keys at a time, and how many listen for each.

use redis::{Cmd, Value};

use super::Node;
use crate::error::ErrorKind;
use crate::machine::{Failure, Key, Kind, Time, naming};
use crate::store::redis::command::server_error::classify;
use crate::store::redis::resp::value::{map_entry, text, words};
use crate::store::{Scan, foreign_cursor};

/// Where a scan begins, and what the server says when it is through.
pub(crate) const ENDS: &str = "0";

/// One step of a scan from `cursor` on; the keys, and the next cursor unless that was all.
pub(crate) async fn scan(
    node: &Node,
    scan: &Scan,
    cursor: &str,
    until: Time,
) -> Result<(Vec<Key>, Option<String>), Failure> {
    if cursor.parse::<u64>().is_err() {
        return Err(foreign_cursor());
    }
    let mut command = Cmd::new();
    command.arg("SCAN").arg(cursor).arg("MATCH").arg(&*scan.pattern).arg("COUNT").arg(scan.count);
    let reply = node.request(&command, until).await?;
    if let Value::ServerError(error) = &reply {
        return Err(classify(&words(error)));
    }
    read(&reply).ok_or_else(|| {
        let detail = format!("{}: the reply to SCAN makes no sense", node.context.name);
        Failure::lasting(ErrorKind::ServerRefused, detail)
    })
}

/// Whether a server said no, and will say so again: it is there, so nothing is gained by passing it over.
pub(crate) fn is_refusal(failure: &Failure) -> bool {
    !failure.transient && failure.kind != ErrorKind::Unavailable
}

fn read(reply: &Value) -> Option<(Vec<Key>, Option<String>)> {
    let Value::Array(parts) = reply else { return None };
    let [next, Value::Array(keys)] = &parts[..] else { return None };
    let next = str::from_utf8(text(next)?).ok()?;
    let keys = keys.iter().map(|key| text(key).map(Key::from)).collect::<Option<_>>()?;
    Some((keys, (next != ENDS).then(|| next.to_owned())))
}

/// How many connections listen for the release of each lock, without those that have a place in its queue; `None` where the
/// server doesn't tell. Of a read/write lock readers listen and writers queue, whichever of them hold it. `word` is the
/// subcommand of `PUBSUB`: which kind of channel.
pub(crate) async fn listening(node: &Node, word: &str, locks: &[(Kind, Key)], until: Time) -> Vec<Option<u64>> {
    if locks.is_empty() {
        return Vec::new();
    }
    let channels: Vec<_> = locks.iter().map(|(kind, key)| naming::channel(kind.who_listens(), key)).collect();
    let mut command = Cmd::new();
    command.arg("PUBSUB").arg(word);
    for channel in &channels {
        command.arg(channel);
    }
    let Ok(reply) = node.request(&command, until).await else { return vec![None; locks.len()] };
    let number = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let one = |((kind, _), channel): (&(Kind, Key), &Vec<u8>)| {
        if kind.who_listens().row().queues { Some(0) } else { map_entry(&reply, channel).and_then(number) }
    };
    locks.iter().zip(&channels).map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn steps_of_a_scan() {
        let read = |text: &str| read(&redis::parse_redis_value(text.as_bytes()).unwrap());
        let (keys, next) = read("*2\r\n$2\r\n17\r\n*2\r\n$1\r\na\r\n$2\r\n\r\n\r\n").unwrap();
        assert_eq!((keys, next), (vec![Key::from(*b"a"), Key::from(*b"\r\n")], Some("17".to_owned())));
        assert_eq!(read("*2\r\n$1\r\n0\r\n*0\r\n"), Some((Vec::new(), None)));
        for odd in ["+OK\r\n", "*1\r\n$1\r\n0\r\n", "*2\r\n:0\r\n*0\r\n", "*2\r\n$1\r\n0\r\n*1\r\n:1\r\n"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
