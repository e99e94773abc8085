//! An `onelock run --owner` lets the `onelock run` of the same lock inside its command enter: which locks are held, and
//! with which fencing tokens, is handed down in the environment. Whoever enters looks at the server whether it still is
//! so, at the start and again and again.

use std::env;
use std::time::{Duration, Instant};

use onelock::blocking::Client;
use onelock::{Inspection, Kind};

/// Holds, separated by commas; each `<place>.<name in hex>.<kind>.<token>`.
pub(super) const VARIABLE: &str = "ONELOCK_OWNER";

/// For how long a hold is believed in that cannot be seen, where nothing tells when it ends.
const UNSEEN: Duration = Duration::from_secs(30);

/// Where a lock is: on which server, behind which prefix.
pub(super) struct Place(u64);

impl Place {
    pub(super) fn new(address: &str, prefix: Option<&str>) -> Place {
        let address =
            if address.is_empty() { env::var(onelock::URL_VARIABLE).unwrap_or_default() } else { address.to_owned() };
        let whole = [&without_secrets(&address), prefix.unwrap_or_default()].join("\0");
        // FNV-1a: a short name for the place, and no secret: whoever reads it may guess what it was made of
        let digest = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Place(whole.bytes().fold(0xcbf2_9ce4_8422_2325, digest))
    }

    /// What a command finds in its environment: this hold, and those around it.
    pub(super) fn hand_down(&self, name: &[u8], kind: Kind, token: u64) -> String {
        let before = env::var(VARIABLE).unwrap_or_default();
        let own = format!("{:016x}.{}.{}.{token}", self.0, hex(name), kind.as_str());
        if before.is_empty() { own } else { format!("{own},{before}") }
    }

    /// What this `run` is to the holds around it. `asked`: the kind, where somebody says it.
    pub(super) fn handed_down(&self, name: &[u8], asked: Option<Kind>) -> Inside {
        env::var(VARIABLE).map_or(Inside::Nothing, |holds| self.find(&holds, name, asked))
    }

    fn find(&self, holds: &str, name: &[u8], asked: Option<Kind>) -> Inside {
        let wanted = format!("{:016x}.{}.", self.0, hex(name));
        let hold = holds.split(',').find_map(|hold| hold.strip_prefix(&wanted)?.split_once('.'));
        let Some((kind, Ok(token))) = hold.map(|(kind, token)| (kind, token.parse())) else { return Inside::Nothing };
        let is = |other: Kind| kind == other.as_str();
        match asked {
            Some(Kind::Write) if is(Kind::Read) => Inside::Reader,
            // who writes may read
            Some(Kind::Read) if is(Kind::Write) => Inside::Hold(token),
            Some(asked) if !is(asked) => Inside::Nothing,
            _ => Inside::Hold(token),
        }
    }
}

/// What a `run` is inside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// No hold of this lock, or of another kind.
    Nothing,
    /// A hold that this may enter, with this fencing token.
    Hold(u64),
    /// A reader, while this would write: it would wait for itself.
    Reader,
}

/// Whether the hold with this token still stands there.
pub(super) fn stands(found: Option<&Inspection>, token: u64) -> bool {
    found.is_some_and(|found| found.fencing_token == Some(token))
}

/// Looks every so often, and returns when the hold with this token has ended, or may have ended because it cannot be seen any
/// more: why.
pub(super) fn wait_ended(client: &Client, name: &[u8], token: u64, every: Duration) -> String {
    // when it ends if nobody renews it
    let mut end = None;
    loop {
        std::thread::sleep(every);
        let asked = Instant::now();
        match client.inspect(name) {
            Ok(found) if stands(found.as_ref(), token) => {
                end = Some(asked + found.and_then(|found| found.ttl_left).unwrap_or(UNSEEN));
            }
            Ok(_) => return "the hold that this one entered has ended".to_owned(),
            Err(error) if Instant::now() >= *end.get_or_insert(asked + UNSEEN) => {
                return format!("the hold that this one entered cannot be seen: {error}");
            }
            Err(_) => {}
        }
    }
}

/// The addresses without users and passwords, which say nothing about where a lock is.
fn without_secrets(addresses: &str) -> String {
    let place = |address: &str| {
        let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
        let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = front.split_at(front.find('/').unwrap_or(front.len()));
        let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        let is_secret =
            |pair: &&str| pair.split('=').next().is_some_and(|word| word.contains("pass") || word.contains("user"));
        let query: Vec<&str> = query.split('&').filter(|pair| !is_secret(pair)).collect();
        // what goes without saying
        let path = if matches!(path, "/" | "/0") { "" } else { path };
        let hosts = hosts.strip_suffix(":6379").filter(|_| scheme != "file").unwrap_or(hosts);
        format!("{scheme}://{hosts}{path}?{}", query.join("&"))
    };
    addresses.split_whitespace().map(place).collect::<Vec<_>>().join(" ")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_leaves_no_trace() {
        for (address, shown) in [
            ("redis://u:hunter2@h:1/2?protocol=resp2", "redis://h:1/2?protocol=resp2"),
            ("redis://h?username=u&password=hunter2&db=1", "redis://h?db=1"),
            ("redis+sentinel://:hunter2@a,b/g?sentinel_password=hunter2", "redis+sentinel://a,b/g?"),
            ("unix://u:hunter2@/s?db=1", "unix:///s?db=1"),
            ("redis://:hunter2@a redis://b", "redis://a? redis://b?"),
        ] {
            assert_eq!(without_secrets(address), shown);
        }
        let known = Place::new("redis://h", None).hand_down(b"x", Kind::Mutex, 7);
        assert_eq!(Place::new("redis://:hunter2@h", None).hand_down(b"x", Kind::Mutex, 7), known);
        for other in ["redis://h:6379", "redis://h/0", "redis://h:6379/"] {
            assert_eq!(Place::new(other, None).hand_down(b"x", Kind::Mutex, 7), known, "{other}");
        }
    }

    #[test]
    fn a_hold_is_found_where_it_is_and_nowhere_else() {
        let place = Place::new("redis://a", None);
        let holds = format!("{},{}", place.hand_down(b"x", Kind::Fair, 7), place.hand_down(b"y", Kind::Write, 8));
        for (name, asked, token) in [
            (b"x", None, Inside::Hold(7)),
            (b"x", Some(Kind::Fair), Inside::Hold(7)),
            (b"x", Some(Kind::Reentrant), Inside::Nothing),
            (b"x", Some(Kind::Read), Inside::Nothing),
            (b"y", None, Inside::Hold(8)),
            (b"y", Some(Kind::Write), Inside::Hold(8)),
            (b"y", Some(Kind::Read), Inside::Hold(8)),
            (b"y", Some(Kind::Semaphore), Inside::Nothing),
            (b"z", None, Inside::Nothing),
        ] {
            assert_eq!(place.find(&holds, name, asked), token, "{name:?} {asked:?}");
        }
        let reads = place.hand_down(b"x", Kind::Read, 9);
        assert_eq!(place.find(&reads, b"x", Some(Kind::Read)), Inside::Hold(9));
        assert_eq!(place.find(&reads, b"x", Some(Kind::Write)), Inside::Reader);
        for nonsense in ["nonsense", &holds.replace(".7", ".seven")] {
            assert_eq!(place.find(nonsense, b"x", None), Inside::Nothing);
        }
        for other in [Place::new("redis://b", None), Place::new("redis://a", Some("p"))] {
            assert_eq!(other.find(&holds, b"x", None), Inside::Nothing);
        }
    }
}
