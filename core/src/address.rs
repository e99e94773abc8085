//! Addresses: one grammar for every language. A scheme chooses the store.

use std::sync::Arc;

use crate::Error;
use crate::config::Options;
use crate::config::credentials::Provider;
use crate::error::invalid;
use crate::machine::quorum::Rules;
use crate::store::memory::MemoryStore;
use crate::store::redis::address::endpoint::Endpoint;
use crate::store::redis::address::multi::{ClusterSeeds, SentinelConfig};
use crate::store::redis::topology::cluster::ClusterStore;
use crate::store::redis::{RedisOptions, RedisStore, SHARE_FROM};
use crate::store::redlock::{RedlockNodes, RedlockOptions, RedlockStore};
use crate::store::{Capabilities, SharedStore, memory, redis, redlock};

/// The environment variable whose address is used when an empty one is given: `ONELOCK_URL`.
pub const URL_VARIABLE: &str = "ONELOCK_URL";
const EXAMPLE: &str = "redis://127.0.0.1:6379";

/// Where the locks are kept, parsed and checked, but not connected.
#[derive(Clone)]
pub(crate) enum Address {
    Redis(Box<Endpoint>),
    Sentinel(Box<SentinelConfig>),
    Cluster(ClusterSeeds),
    Quorum(RedlockNodes),
    Memory(String),
}

impl Address {
    /// Parses one address, or the environment's if it is empty.
    pub(crate) fn parse(url: &str, options: &Options) -> Result<Address, Error> {
        let from_environment;
        let mut url = url.trim();
        if url.is_empty() {
            from_environment = std::env::var(URL_VARIABLE).unwrap_or_default();
            url = from_environment.trim();
            if url.is_empty() {
                return Err(invalid(
                    "make a client",
                    format!(
                        "no address was given and ${URL_VARIABLE} is not set; for example {URL_VARIABLE}={EXAMPLE}"
                    ),
                ));
            }
        }
        if url.split_whitespace().nth(1).is_some() {
            return Ok(Address::Quorum(RedlockNodes::parse(url, &options.redis())?));
        }
        // what is no scheme may be the beginning of a password, and is not shown
        let is_scheme = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte));
        let Some((scheme, rest)) = url.split_once("://").filter(|(word, _)| is_scheme(word)) else {
            return Err(invalid("make a client", format!("the address has no scheme; for example {EXAMPLE}")));
        };
        match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" => Ok(Address::Redis(Box::new(
                crate::store::redis::address::endpoint::Endpoint::parse(url, &options.redis())?,
            ))),
            "redis+sentinel" | "rediss+sentinel" | "valkey+sentinel" | "valkeys+sentinel" => {
                Ok(Address::Sentinel(Box::new(SentinelConfig::parse(url, &options.redis())?)))
            }
            "redis+cluster" | "rediss+cluster" | "valkey+cluster" | "valkeys+cluster" => {
                Ok(Address::Cluster(ClusterSeeds::parse(url, &options.redis())?))
            }
            "memory" => Ok(Address::Memory(rest.trim_end_matches('/').to_owned())),
            "redlock" => Ok(Address::Quorum(RedlockNodes::parse(url, &options.redis())?)),
            "file" => Err(unsupported(&format!("{scheme}://"))),
            other => Err(invalid(
                "make a client",
                format!(
                    "the scheme {other}:// is not known; use redis://, rediss://, valkey://, valkeys://, unix://, \
                     redis+sentinel://, redis+cluster://, redlock:// or memory://"
                ),
            )),
        }
    }

    /// Several servers, each with an address of its own. One of them is a quorum, too.
    pub(crate) fn of_nodes<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        options: &Options,
    ) -> Result<Address, Error> {
        Ok(Address::Quorum(RedlockNodes::list(urls, &options.redis())?))
    }

    /// What a store at this address can do.
    pub(crate) fn capabilities(&self) -> &'static Capabilities {
        match self {
            Address::Redis(_) | Address::Sentinel(_) | Address::Cluster(_) => &redis::CAPABILITIES,
            Address::Quorum(_) => &redlock::CAPABILITIES,
            Address::Memory(_) => &memory::CAPABILITIES,
        }
    }

    /// Whether another store at this address is the same, once the runtime of the first one has ended.
    pub(crate) fn check_again(&self) -> Result<(), Error> {
        match self {
            Address::Memory(name) if name.is_empty() => {
                let detail = "the runtime on which this client was first used has ended, and its memory:// with it; make \
                              a new client, or name the store (memory://NAME)";
                Err(Error::new(crate::ErrorKind::Unsupported, "use the client", detail))
            }
            _ => Ok(()),
        }
    }

    /// A store at this address. Opens no socket.
    pub(crate) fn open(&self, options: &Options) -> SharedStore {
        match self {
            Address::Redis(endpoint) => Arc::new(RedisStore::at((**endpoint).clone(), options.redis())),
            Address::Sentinel(group) => Arc::new(RedisStore::with_sentinels((**group).clone(), options.redis())),
            Address::Cluster(seeds) => Arc::new(ClusterStore::at(seeds.clone(), options.redis())),
            Address::Quorum(nodes) => Arc::new(RedlockStore::at(nodes.clone(), options.quorum())),
            Address::Memory(name) if name.is_empty() => Arc::new(MemoryStore::private()),
            Address::Memory(name) => Arc::new(MemoryStore::named(name)),
        }
    }
}

impl Options {
    /// The options of a store of several servers.
    fn quorum(&self) -> RedlockOptions {
        let rules = Rules {
            quarantine: self.quarantine,
            drift_factor: self.terms.drift_factor,
            fencing: self.fencing,
            longest_ttl: self.terms.ttl.saturating_add(self.terms.lock_delay),
        };
        // a thread has connections of its own to all of them
        let redis = RedisOptions { share_from: usize::MAX, ..self.redis() };
        RedlockOptions { redis, node_timeout: self.node_timeout, rules }
    }

    /// The options of the Redis store.
    fn redis(&self) -> RedisOptions {
        RedisOptions {
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            client_name: self.label.clone(),
            ca_file: self.tls.ca_file.clone(),
            cert_file: self.tls.cert_file.clone(),
            key_file: self.tls.key_file.clone(),
            tls_insecure: self.tls.insecure,
            share_from: SHARE_FROM,
            notify: self.notify,
            min_replicas: self.min_replicas,
            replica_timeout: self.replica_timeout,
            sentinel_username: self.sentinel.username.clone(),
            sentinel_password: self.sentinel.password.clone(),
            sentinel_tls: self.sentinel.tls,
            credentials: self.credentials.as_ref().map(Provider::source),
        }
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(crate::ErrorKind::Unsupported, "make a client", format!("{what}: this version has no such store"))
}
