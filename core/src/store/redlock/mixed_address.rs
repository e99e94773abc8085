//! A list of addresses, some of which name other stores than Redis servers.

use std::sync::Arc;

use super::address::{RedlockNodes, check_names, wrong};
use crate::config::Options;
use crate::error::Error;
use crate::store::address::{ReadAddress, StoreAddress};
use crate::store::member::MemberAddress;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::options::RedisOptions;

/// Where one that votes is.
#[derive(Clone)]
pub(crate) enum MemberPlace {
    /// At a Redis server.
    Redis(Endpoint),
    /// Elsewhere.
    Any(Arc<dyn MemberAddress>),
}

impl MemberPlace {
    pub(crate) fn name(&self) -> String {
        match self {
            MemberPlace::Redis(endpoint) => endpoint.to_string(),
            MemberPlace::Any(place) => place.name(),
        }
    }
}

/// Several places, at least one of which is no Redis server.
#[derive(Clone)]
pub(crate) struct MixedAddress {
    pub(crate) members: Vec<MemberPlace>,
}

impl MixedAddress {
    pub(crate) fn names(&self) -> Vec<String> {
        self.members.iter().map(MemberPlace::name).collect()
    }
}

/// A list of addresses that was read.
pub(crate) enum ListAddress {
    /// Redis servers and nothing else.
    Redis(RedlockNodes),
    /// Others too.
    Mixed(MixedAddress),
}

/// Reads a list. What is no address of a Redis server goes to `read_other`.
pub(crate) fn read(urls: &[&str], options: &Options, read_other: ReadAddress) -> Result<ListAddress, Error> {
    let redis = RedisOptions::of(options);
    if urls.iter().all(|url| is_of_redis(url)) {
        return RedlockNodes::list(urls, &redis).map(ListAddress::Redis);
    }
    let mut members = Vec::new();
    for url in urls.iter().map(|url| url.trim()) {
        RedlockNodes::check_entry(url)?;
        members.push(if is_of_redis(url) {
            MemberPlace::Redis(Endpoint::parse(url, &redis)?)
        } else {
            other(url, &*read_other(url, options)?)?
        });
    }
    let address = MixedAddress { members };
    check_names(&address.names())?;
    Ok(ListAddress::Mixed(address))
}

/// Whether it is, or should be, the address of one Redis server.
fn is_of_redis(url: &str) -> bool {
    let scheme = url.trim().split_once("://").map_or("redis", |(scheme, _)| scheme).to_ascii_lowercase();
    let (word, rest) = scheme.split_once('+').unwrap_or((&scheme, ""));
    matches!(word, "redis" | "rediss" | "valkey" | "valkeys" | "unix") && matches!(rest, "" | "unix")
}

fn other(url: &str, address: &dyn StoreAddress) -> Result<MemberPlace, Error> {
    let store = address.capabilities().store;
    address.as_member().map(MemberPlace::Any).ok_or_else(|| {
        let scheme = url.split_once("://").map_or(store, |(scheme, _)| scheme);
        let why = match store {
            "redis" => "a replicated store is no single vote; name servers that are independent of each other",
            "redlock" => "a majority is no single vote; name its servers instead",
            "memory" => "it is in this process alone, and nobody else would vote there",
            "file" => "it is on this machine alone, and nobody else would vote there",
            "postgres" => {
                "several hosts are a replicated store, which is no single vote; name one host, whose server is independent \
                 of the others"
            }
            _ => "this store does not vote",
        };
        wrong(&format!("{scheme}:// is no scheme of one server that votes: {why}"))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::schemes;

    fn names(urls: &[&str]) -> Result<Vec<String>, String> {
        let read = read(urls, &Options::default(), schemes::read).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            error.to_string()
        })?;
        Ok(match read {
            ListAddress::Redis(nodes) => vec![format!("{} servers", nodes.endpoints.len())],
            ListAddress::Mixed(address) => address.names(),
        })
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn servers_and_databases_side_by_side() {
        assert_eq!(names(&["redis://a", "unix:///run/b"]).unwrap(), ["2 servers"]);
        let mixed = names(&["redis://u:secret@a", "postgres://u:secret@b/d ", "postgresql://u@b:6000/d"]).unwrap();
        assert_eq!(mixed, ["redis://a:6379", "postgres://b:5432/d", "postgres://b:6000/d"]);
        assert_eq!(names(&["postgres://u@a/d"]).unwrap().len(), 1);
        let nine: Vec<String> = (0..10).map(|at| format!("postgres://u@h{at}/d")).collect();
        let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
        assert_eq!(names(&nine[..9]).unwrap().len(), 9);
        for (urls, word) in [
            (&nine[..], "names 10 servers"),
            (&["postgres://u@a/d", "redis://b", "postgres://v@a/d"][..], "postgres://a:5432/d stands in it twice"),
            (&["postgres://u:secret@a,b/d", "redis://b"][..], "several hosts are a replicated store"),
            (&["postgres://u:secret@a/d", ""][..], "is empty"),
            (&["postgres://u:secret@a/d redis://b"][..], "a space in it"),
        ] {
            let text = names(urls).unwrap_err();
            assert!(text.contains(word) && !text.contains("secret"), "{urls:?}: {text}");
        }
    }

    #[test]
    fn what_is_no_single_vote_is_refused_with_the_reason() {
        for (url, word) in [
            ("redis+sentinel://h/g", "a replicated store is no single vote"),
            ("valkey+cluster://h", "a replicated store is no single vote"),
            ("redlock://a,b", "a majority is no single vote"),
            ("memory://x", "in this process alone"),
            #[cfg(all(feature = "file", unix))]
            ("file:///tmp/x", "on this machine alone"),
            ("wood://x", "wood:// is not known"),
        ] {
            let text = names(&["redis://a", url]).unwrap_err();
            assert!(text.contains(word), "{url}: {text}");
        }
    }
}
