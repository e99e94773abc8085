//! What a node of a cluster says when a question does not belong to it, or not now.

use redis::Value;

use super::endpoint::Place;
use super::shared::{Shared, Target};
use super::value::words;

/// Where a question belongs. Nothing was done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot is served there.
    Moved { slot: u16, host: String, port: u16 },
    /// The slot is on its way there: this once.
    Ask { host: String, port: u16 },
    /// Its keys are on either side: a little later, or key by key.
    TryAgain,
    /// Keys of several slots: key by key.
    CrossSlot,
    /// The cluster, or this slot, is not served at present.
    Down,
}

impl Redirect {
    /// What the reply of this node says.
    pub(crate) fn of(reply: &Value, node: &Shared) -> Option<Redirect> {
        let Value::ServerError(error) = reply else { return None };
        let text = words(error);
        let here = match &node.target {
            Target::Fixed(endpoint) => match &endpoint.place {
                Place::Tcp { host, .. } => host.as_str(),
                Place::Unix(_) => "",
            },
            Target::Watched(_) => "",
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

/// `host:port`; a host that is left out or unknown is the one that speaks.
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
