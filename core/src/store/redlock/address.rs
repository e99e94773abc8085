//! The addresses of several independent servers.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::machine::quorum::NODES_MAX;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::address::endpoint::{UNESCAPED, is_unescaped};
use crate::store::redis::options::RedisOptions;

const EXAMPLE: &str = "redlock://h1:6379,h2:6379,h3:6379";

/// The servers of a Redlock store, and the options in their address.
#[derive(Clone, Debug)]
pub struct RedlockNodes {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) quarantine: Option<Duration>,
}

impl RedlockNodes {
    /// Reads `redlock://[user[:password]@]h1[:port],h2[:port],h3[:port][/db]`, one to nine servers that are spoken to in the
    /// same way; or several complete addresses (`redis://`, `rediss://`, `unix://` ...) separated by spaces.
    ///
    /// In the query of `redlock://`: `tls=true`, `node_timeout_ms`, `quarantine_ms`, and what the address of one server
    /// takes.
    pub fn parse(address: &str, options: &RedisOptions) -> Result<RedlockNodes, Error> {
        let Some(rest) = address.trim().strip_prefix("redlock://") else {
            return RedlockNodes::list(address.split_whitespace(), options);
        };
        let mut nodes = RedlockNodes::none();
        nodes.parse_shared(rest, options)?;
        nodes.checked()
    }

    /// Takes one complete address for each server.
    pub fn list<U: AsRef<str>>(
        addresses: impl IntoIterator<Item = U>,
        options: &RedisOptions,
    ) -> Result<RedlockNodes, Error> {
        let mut nodes = RedlockNodes::none();
        for address in addresses {
            let address = address.as_ref().trim();
            RedlockNodes::check_entry(address)?;
            nodes.endpoints.push(Endpoint::parse(address, options)?);
        }
        nodes.checked()
    }

    /// Whether an entry of a list is one address.
    pub(super) fn check_entry(address: &str) -> Result<(), Error> {
        if address.is_empty() {
            return Err(wrong("an address in the list is empty"));
        }
        if address.contains(char::is_whitespace) {
            return Err(wrong("an address in the list has a space in it; each server is an entry of its own"));
        }
        Ok(())
    }

    fn none() -> RedlockNodes {
        RedlockNodes { endpoints: Vec::new(), node_timeout: None, quarantine: None }
    }

    fn parse_shared(&mut self, rest: &str, options: &RedisOptions) -> Result<(), Error> {
        if is_unescaped(rest) {
            return Err(wrong(UNESCAPED));
        }
        let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = front.split_once('/').unwrap_or((front, ""));
        let (user_info, hosts) = match authority.rsplit_once('@') {
            Some((user_info, hosts)) => (format!("{user_info}@"), hosts),
            None => (String::new(), authority),
        };
        let (mut scheme, mut others) = ("redis", Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("tls", "true" | "1" | "yes" | "on")) => scheme = "rediss",
                Some(("tls", "false" | "0" | "no" | "off")) => {}
                Some(("node_timeout_ms", value)) => {
                    self.node_timeout = Some(milliseconds("node_timeout_ms", value, 1)?);
                }
                Some(("quarantine_ms", value)) => self.quarantine = Some(milliseconds("quarantine_ms", value, 0)?),
                _ => others.push(pair),
            }
        }
        for host in hosts.split(',').map(str::trim) {
            if host.is_empty() {
                return Err(wrong("a server is missing between two commas"));
            }
            let address = format!("{scheme}://{user_info}{host}/{path}?{}", others.join("&"));
            self.endpoints.push(Endpoint::parse(&address, options)?);
        }
        Ok(())
    }

    fn checked(self) -> Result<RedlockNodes, Error> {
        check_names(&self.endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>())?;
        Ok(self)
    }
}

fn milliseconds(word: &str, value: &str, least: u64) -> Result<Duration, Error> {
    let number: Option<u64> = value.parse().ok().filter(|number| (least..=31_536_000_000).contains(number));
    number
        .map(Duration::from_millis)
        .ok_or_else(|| wrong(&format!("{word} must be a number of milliseconds, {least} to one year")))
}

/// From one to as many as there may be, and each once.
pub(super) fn check_names(names: &[String]) -> Result<(), Error> {
    let number = names.len();
    if number == 0 || number > NODES_MAX {
        return Err(wrong(&format!("it names {number} servers; there may be 1 to {NODES_MAX}")));
    }
    for (place, name) in names.iter().enumerate() {
        // a server that votes twice forms no majority
        if names[..place].contains(name) {
            return Err(wrong(&format!("{name} stands in it twice; each must be a server of its own")));
        }
    }
    Ok(())
}

pub(super) fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, "address", format!("{what}; an address looks like {EXAMPLE}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(address: &str) -> Vec<String> {
        let nodes = RedlockNodes::parse(address, &RedisOptions::default()).unwrap();
        nodes.endpoints.iter().map(Endpoint::to_string).collect()
    }

    #[test]
    fn one_address_for_all_and_a_list_of_addresses() {
        assert_eq!(names("redlock://a,b:7,c"), ["redis://a:6379", "redis://b:7", "redis://c:6379"]);
        assert_eq!(names("redlock://u:p@a,b/3?tls=true"), ["rediss://a:6379/3", "rediss://b:6379/3"]);
        assert_eq!(
            names("redis://a rediss://b\nunix:///run/c"),
            ["redis://a:6379", "rediss://b:6379", "unix:///run/c"]
        );
        let nodes =
            RedlockNodes::parse("redlock://u:p@a?node_timeout_ms=50&quarantine_ms=0&db=2", &RedisOptions::default())
                .unwrap();
        assert_eq!((nodes.node_timeout, nodes.quarantine), (Some(Duration::from_millis(50)), Some(Duration::ZERO)));
        assert!(nodes.endpoints[0].has_credentials() && nodes.endpoints[0].db == 2);
    }

    #[test]
    fn a_list_is_taken_entry_by_entry() {
        let list = |addresses: &[&str]| RedlockNodes::list(addresses, &RedisOptions::default());
        let names: Vec<String> =
            list(&["redis://a ", "rediss://b"]).unwrap().endpoints.iter().map(Endpoint::to_string).collect();
        assert_eq!(names, ["redis://a:6379", "rediss://b:6379"]);
        for (addresses, word) in [
            (&[][..], "names 0 servers"),
            (&["redis://a", ""], "is empty"),
            (&["redis://u:secret@a redis://b"], "a space in it"),
            (&["redis://a", "redis://a"], "twice"),
            (&["redis://a", "redlock://b"], "no scheme of one server"),
            (&["redis://a", "memory://"], "no scheme of one server"),
        ] {
            let text = list(addresses).unwrap_err().to_string();
            assert!(text.contains(word) && !text.contains("secret"), "{addresses:?}: {text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is() {
        for (address, word) in [
            ("redlock://", "between two commas"),
            ("redlock://a,,b", "between two commas"),
            ("redlock://secret@a,b,c,d,e,f,g,h,i,j", "names 10 servers"),
            ("redlock://a,b,a", "twice"),
            ("redlock://a?node_timeout_ms=0", "node_timeout_ms"),
            ("redlock://a?quarantine_ms=soon", "quarantine_ms"),
            ("redlock://a?colour=red", "colour"),
            ("redlock://:sec/ret@a,b,c", "written %2F"),
            ("redis://a redlock://b", "no scheme of one server"),
        ] {
            let text = RedlockNodes::parse(address, &RedisOptions::default()).unwrap_err().to_string();
            assert!(text.contains(word) && !text.contains("secret"), "{address}: {text}");
        }
    }
}
