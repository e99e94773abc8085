//! The redirections of a cluster's nodes.

use redis::Value;

use crate::store::redis::address::endpoint::ConnectionAddr;
use crate::store::redis::connection::context::{Locator, NodeContext};
use crate::store::redis::resp::value::words;

/// Where an operation belongs. It was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot is served there.
    Moved { slot: u16, host: String, port: u16 },
    /// The slot is being moved there: for this request only.
    Ask { host: String, port: u16 },
    /// Its keys are on both nodes: repeat later, or key by key.
    TryAgain,
    /// Keys of several slots: key by key.
    CrossSlot,
    /// The cluster, or this slot, is not served now.
    Down,
}

impl Redirect {
    /// The redirection in a node's reply, if it is one.
    pub(crate) fn from_reply(reply: &Value, node: &NodeContext) -> Option<Redirect> {
        let Value::ServerError(error) = reply else { return None };
        let text = words(error);
        let here = match &node.locator {
            Locator::Fixed(endpoint) => match &endpoint.addr {
                ConnectionAddr::Tcp { host, .. } => host.as_str(),
                ConnectionAddr::Unix(_) => "",
            },
            Locator::Sentinel(_) => "",
        };
        Redirect::read(&text, here)
    }

    fn read(text: &str, here: &str) -> Option<Redirect> {
        let mut words = text.split_ascii_whitespace();
        match words.next()? {
            "MOVED" => {
                let slot = words.next()?.parse().ok()?;
                let (host, port) = place(words.next()?, here)?;
                Some(Redirect::Moved { slot, host, port })
            }
            "ASK" => {
                let (host, port) = place(words.nth(1)?, here)?;
                Some(Redirect::Ask { host, port })
            }
            "TRYAGAIN" => Some(Redirect::TryAgain),
            "CROSSSLOT" => Some(Redirect::CrossSlot),
            "CLUSTERDOWN" => Some(Redirect::Down),
            _ => None,
        }
    }
}

/// `host:port`; an empty or unknown host is that of the answering node.
fn place(text: &str, here: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() || host == "?" { here } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_real_nodes() {
        let place = |host: &str, port| (host.to_owned(), port);
        let cases = [
            ("MOVED 3999 127.0.0.1:6381", Some((true, place("127.0.0.1", 6381)))),
            ("MOVED 3999 ::1:6381", Some((true, place("::1", 6381)))),
            ("MOVED 3999 :6381", Some((true, place("me", 6381)))),
            ("MOVED 3999 ?:6381", Some((true, place("me", 6381)))),
            ("ASK 3999 redis.example.org:7", Some((false, place("redis.example.org", 7)))),
            ("MOVED 3999", None),
            ("ASK 3999 nowhere", None),
        ];
        for (text, expected) in cases {
            let read = Redirect::read(text, "me").map(|redirect| match redirect {
                Redirect::Moved { slot, host, port } => (slot == 3999, (host, port)),
                Redirect::Ask { host, port } => (false, (host, port)),
                other => panic!("{other:?}"),
            });
            assert_eq!(read, expected, "{text}");
        }
        assert_eq!(Redirect::read("TRYAGAIN Multiple keys request during rehashing", ""), Some(Redirect::TryAgain));
        assert_eq!(Redirect::read("CLUSTERDOWN Hash slot not served", ""), Some(Redirect::Down));
        assert_eq!(
            Redirect::read("CROSSSLOT Keys in request don't hash to the same slot", ""),
            Some(Redirect::CrossSlot)
        );
        assert_eq!(Redirect::read("ERR MOVED", ""), None);
    }
}
