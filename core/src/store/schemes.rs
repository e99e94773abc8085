//! The schemes of addresses: which store each one chooses. A cargo feature puts a store into the build.

use super::address::{ReadAddress, StoreAddress};
use super::memory;
use crate::config::Options;
use crate::error::{Error, ErrorKind, invalid};

const TRIED: &str = "make a client";
const SEVERAL: &str = "several addresses";
pub(crate) const EXAMPLE: &str = "redis://127.0.0.1:6379";

/// One store by its addresses.
struct Scheme {
    /// The names that the documents tell: the words before `://`.
    names: &'static [&'static str],
    /// Other spellings.
    aliases: &'static [&'static str],
    /// The cargo feature that has it.
    feature: &'static str,
    /// `None` where it is not built in.
    read: Option<ReadAddress>,
}

/// Reads the addresses of several stores; the function reads those that are of no Redis server.
type ReadAddresses = fn(&[&str], &Options, ReadAddress) -> Result<Box<dyn StoreAddress>, Error>;

/// A function of a store, which is there with its feature only, and perhaps on some systems only.
macro_rules! built_in {
    ($feature:literal, $type:ty, $function:expr) => {
        built_in!(all(feature = $feature), $type, $function)
    };
    ($condition:meta, $type:ty, $function:expr) => {{
        #[cfg($condition)]
        const FUNCTION: Option<$type> = Some($function);
        #[cfg(not($condition))]
        const FUNCTION: Option<$type> = None;
        FUNCTION
    }};
}

const REDLOCK: Scheme = Scheme {
    names: &["redlock"],
    aliases: &[],
    feature: "redlock",
    read: built_in!("redlock", ReadAddress, super::redlock::read_address),
};

/// The same store by a list of addresses.
const READ_LIST: Option<ReadAddresses> = built_in!("redlock", ReadAddresses, super::redlock::read_list);

/// Every store. `tests/spec/options.toml` describes the same addresses.
const SCHEMES: &[Scheme] = &[
    Scheme {
        names: &[
            "redis",
            "rediss",
            "valkey",
            "valkeys",
            "unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
        ],
        aliases: &["redis+unix", "valkey+sentinel", "valkeys+sentinel", "valkey+cluster", "valkeys+cluster"],
        feature: "redis",
        read: built_in!("redis", ReadAddress, super::redis::address::read),
    },
    REDLOCK,
    Scheme {
        names: &["file"],
        aliases: &[],
        feature: "file",
        read: built_in!(all(feature = "file", unix), ReadAddress, super::file::address::read),
    },
    Scheme {
        names: &["postgres", "postgresql"],
        aliases: &[],
        feature: "postgres",
        read: built_in!("postgres", ReadAddress, super::postgres::address::read),
    },
    Scheme {
        names: &["memcached", "memcacheds"],
        aliases: &[],
        feature: "memcached",
        read: built_in!("memcached", ReadAddress, super::memcached::address::read),
    },
    Scheme {
        names: &["etcd", "etcds"],
        aliases: &[],
        feature: "etcd",
        read: built_in!("etcd", ReadAddress, super::etcd::address::read),
    },
    Scheme {
        names: &["memory"],
        aliases: &[],
        feature: "client",
        read: built_in!("client", ReadAddress, memory::read_address),
    },
];

/// Reads one address, or several separated by spaces.
///
/// # Errors
/// `InvalidArgument` for a scheme that no store has, and for what is wrong behind it; `Unsupported` for a store that is not
/// built in.
pub(crate) fn read(url: &str, options: &Options) -> Result<Box<dyn StoreAddress>, Error> {
    if url.split_whitespace().nth(1).is_some() {
        return read_list(url.split_whitespace(), options);
    }
    // what is no scheme may be the beginning of a password, and is not shown
    let is_scheme = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte));
    let Some((word, _)) = url.split_once("://").filter(|(word, _)| is_scheme(word)) else {
        return Err(invalid(TRIED, format!("the address has no scheme; for example {EXAMPLE}")));
    };
    find(SCHEMES, word)?(url, options)
}

/// Reads the addresses of several servers, of which a majority keeps a lock. One is several, too.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_list<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
    options: &Options,
) -> Result<Box<dyn StoreAddress>, Error> {
    let urls: Vec<U> = urls.into_iter().collect();
    let urls: Vec<&str> = urls.iter().map(AsRef::as_ref).collect();
    match READ_LIST {
        Some(read_list) => read_list(&urls, options, read),
        None => Err(lacking(&REDLOCK, SEVERAL)),
    }
}

/// How to read an address with this scheme.
fn find(schemes: &[Scheme], word: &str) -> Result<ReadAddress, Error> {
    match schemes.iter().find(|scheme| scheme.names.contains(&word) || scheme.aliases.contains(&word)) {
        Some(scheme) => built(scheme, &format!("{word}://")),
        None => Err(invalid(TRIED, format!("the scheme {word}:// is not known; {}", choice(schemes)))),
    }
}

fn built(scheme: &Scheme, what: &str) -> Result<ReadAddress, Error> {
    scheme.read.ok_or_else(|| lacking(scheme, what))
}

fn lacking(scheme: &Scheme, what: &str) -> Error {
    let (feature, others) = (scheme.feature, choice(SCHEMES));
    let detail = format!(
        "this build has no store for {what}: it lacks the cargo feature {feature}, which the packages for Python, Node.js \
         and C have; {others}"
    );
    Error::new(ErrorKind::Unsupported, TRIED, detail)
}

/// What can be used instead.
fn choice(schemes: &[Scheme]) -> String {
    let built = schemes.iter().filter(|scheme| scheme.read.is_some());
    let names: Vec<String> = built.flat_map(|scheme| scheme.names).map(|name| format!("{name}://")).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("use {} or {last}", others.join(", ")),
        _ => format!("use {}", names.concat()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LACKING: &[Scheme] = &[
        Scheme { names: &["paper"], aliases: &["papyrus"], feature: "paper", read: None },
        Scheme { names: &["stone"], aliases: &[], feature: "stone", read: Some(memory::read_address) },
    ];

    #[test]
    fn a_store_that_is_not_built_in_says_which_feature_has_it() {
        for word in ["paper", "papyrus"] {
            let error = find(LACKING, word).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(&format!("no store for {word}://")), "{error}");
            assert!(error.to_string().contains("the cargo feature paper"), "{error}");
        }
        assert!(find(LACKING, "stone").is_ok());
    }

    #[test]
    fn an_unknown_scheme_lists_what_is_built_in() {
        let error = find(LACKING, "wood").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains("wood:// is not known; use stone://") && !text.contains("paper"), "{text}");
    }

    #[test]
    fn no_two_stores_share_a_scheme() {
        let mut seen = std::collections::BTreeSet::new();
        for name in SCHEMES.iter().flat_map(|scheme| scheme.names.iter().chain(scheme.aliases)) {
            assert!(seen.insert(name), "{name} chooses two stores");
        }
    }

    #[test]
    fn the_store_at_an_address_has_the_capabilities_of_the_address() {
        let options = Options::default();
        for scheme in SCHEMES.iter().filter(|scheme| scheme.read.is_some()) {
            for name in scheme.names.iter().chain(scheme.aliases) {
                let rest = match *name {
                    name if name.ends_with("unix") || name == "file" => "/h",
                    name if name.starts_with("postgres") => "u@h",
                    name if name.ends_with("+sentinel") => "h/group",
                    _ => "h",
                };
                let address = read(&format!("{name}://{rest}"), &options).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(address.open(&options).capabilities(), address.capabilities(), "{name}");
            }
        }
    }
}
