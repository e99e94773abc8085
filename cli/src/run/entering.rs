//! An `onelock run --owner` lets the `onelock run` of the same lock inside its command enter: which locks are held, and
//! with which fencing tokens, is handed down in the environment. Whoever enters looks at the server whether it still is
//! so.

use std::env;

use onelock::Kind;

/// Holds, separated by commas; each `<place>.<name in hex>.<kind>.<token>`.
pub(super) const VARIABLE: &str = "ONELOCK_OWNER";

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

    /// The fencing token of the hold that this may enter, if there is one. `asked`: the kind, where somebody says it.
    pub(super) fn handed_down(&self, name: &[u8], asked: Option<Kind>) -> Option<u64> {
        self.find(&env::var(VARIABLE).ok()?, name, asked)
    }

    fn find(&self, holds: &str, name: &[u8], asked: Option<Kind>) -> Option<u64> {
        let wanted = format!("{:016x}.{}.", self.0, hex(name));
        let (kind, token) = holds.split(',').find_map(|hold| hold.strip_prefix(&wanted)?.split_once('.'))?;
        // who writes may read
        let reads = asked == Some(Kind::Read) && kind == Kind::Write.as_str();
        let fits = reads || asked.is_none_or(|asked| asked.as_str() == kind);
        fits.then(|| token.parse().ok()).flatten()
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
            (b"x", None, Some(7)),
            (b"x", Some(Kind::Fair), Some(7)),
            (b"x", Some(Kind::Reentrant), None),
            (b"x", Some(Kind::Read), None),
            (b"y", None, Some(8)),
            (b"y", Some(Kind::Write), Some(8)),
            (b"y", Some(Kind::Read), Some(8)),
            (b"y", Some(Kind::Semaphore), None),
            (b"z", None, None),
        ] {
            assert_eq!(place.find(&holds, name, asked), token, "{name:?} {asked:?}");
        }
        assert_eq!(place.find("nonsense", b"x", None), None);
        for other in [Place::new("redis://b", None), Place::new("redis://a", Some("p"))] {
            assert_eq!(other.find(&holds, b"x", None), None);
        }
    }
}
