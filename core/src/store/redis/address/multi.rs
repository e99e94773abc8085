//! Addresses that name several servers: `redis+sentinel://h1,h2/mymaster/0`, `redis+cluster://h1,h2`.

use percent_encoding::percent_decode_str;

use super::endpoint::{Endpoint, UNESCAPED, is_unescaped};
use crate::error::{Error, ErrorKind};
use crate::store::redis::options::RedisOptions;

const SENTINEL_EXAMPLE: &str = "redis+sentinel://user:password@s1:26379,s2:26379/mymaster/0";
const CLUSTER_EXAMPLE: &str = "redis+cluster://user:password@h1:6379,h2:6379";
const SENTINEL_PORT: u16 = 26379;

/// A master group and the Sentinels that know its present master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelConfig {
    /// The name of the group.
    pub(crate) master_name: String,
    /// The Sentinels, in the order of the address.
    pub(crate) sentinels: Vec<Endpoint>,
    /// How to connect to the master, wherever it is.
    pub(crate) master: Endpoint,
}

/// A cluster and some of its nodes to start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSeeds {
    /// The nodes, in the order of the address.
    pub(crate) nodes: Vec<Endpoint>,
}

impl SentinelConfig {
    /// Reads `redis+sentinel://[user[:password]@]h1[:port][,h2[:port]…]/GROUP[/db]`, or `rediss+sentinel://` for TLS to
    /// the master. The user is the master's; the Sentinels' own is `sentinel_username`, `sentinel_password`,
    /// `sentinel_tls` in the query or in `options`.
    pub fn parse(address: &str, options: &RedisOptions) -> Result<SentinelConfig, Error> {
        let split = SplitAddress::split(address, SENTINEL_EXAMPLE)?;
        let mut path = split.path.trim_matches('/').splitn(2, '/');
        let master_name = path.next().unwrap_or_default();
        if master_name.is_empty() {
            return Err(wrong("the name of the master group is missing", SENTINEL_EXAMPLE));
        }
        let master_name =
            percent_decode_str(master_name).decode_utf8().map_err(|_| wrong("not UTF-8", SENTINEL_EXAMPLE))?;
        let (mut credentials, mut query) = (SentinelCredentials::from_options(options), Vec::new());
        for pair in split.query.split('&').filter(|pair| !pair.is_empty()) {
            if !credentials.take(pair)? {
                query.push(pair);
            }
        }
        let tail = format!("/{}?{}{}", path.next().unwrap_or_default(), query.join("&"), split.fragment);
        let first = split.hosts.first().copied().unwrap_or_default();
        let master = Endpoint::parse(&format!("{}://{}{first}{tail}", split.scheme(), split.user_info), options)?;
        let mut sentinels = Vec::with_capacity(split.hosts.len());
        for host in &split.hosts {
            let scheme = if credentials.tls { "rediss" } else { "redis" };
            // a master without TLS has no files in its own address
            let files = if split.tls && credentials.tls { query.join("&") } else { String::new() };
            let files: Vec<_> = files.split('&').filter(|pair| is_about_files(pair)).collect();
            let mut sentinel = Endpoint::parse(&format!("{scheme}://{host}?{}", files.join("&")), options)?;
            if !has_port(host) {
                sentinel = match sentinel.addr.clone() {
                    crate::store::redis::address::endpoint::ConnectionAddr::Tcp { host, .. } => {
                        sentinel.moved_to(&host, SENTINEL_PORT)
                    }
                    crate::store::redis::address::endpoint::ConnectionAddr::Unix(_) => sentinel,
                };
            }
            sentinel.uses_provider = false;
            sentinel.username.clone_from(&credentials.username);
            sentinel.password.clone_from(&credentials.password);
            sentinels.push(sentinel.for_queries());
        }
        Ok(SentinelConfig { master_name: master_name.into_owned(), sentinels, master })
    }
}

impl ClusterSeeds {
    /// Reads `redis+cluster://[user[:password]@]h1[:port][,h2[:port]…]`, or `rediss+cluster://` for TLS. A node or two
    /// are enough; they name the others.
    pub fn parse(address: &str, options: &RedisOptions) -> Result<ClusterSeeds, Error> {
        let split = SplitAddress::split(address, CLUSTER_EXAMPLE)?;
        let mut nodes = Vec::with_capacity(split.hosts.len());
        for host in &split.hosts {
            let (scheme, user_info, path) = (split.scheme(), split.user_info, split.path);
            let tail = format!("{path}?{}{}", split.query, split.fragment);
            let node = Endpoint::parse(&format!("{scheme}://{user_info}{host}{tail}"), options)?;
            if node.db != 0 {
                return Err(wrong("a cluster has no databases but 0", CLUSTER_EXAMPLE));
            }
            nodes.push(node);
        }
        Ok(ClusterSeeds { nodes })
    }
}

/// How to log in to the Sentinels.
struct SentinelCredentials {
    username: Option<String>,
    password: Option<String>,
    tls: bool,
}

impl SentinelCredentials {
    fn from_options(options: &RedisOptions) -> SentinelCredentials {
        let RedisOptions { sentinel_username, sentinel_password, sentinel_tls, .. } = options;
        let password = sentinel_password.as_ref().map(|secret| secret.reveal().to_owned());
        SentinelCredentials { username: sentinel_username.clone(), password, tls: *sentinel_tls }
    }

    /// Takes `word=value` of a query if it concerns the Sentinels.
    fn take(&mut self, pair: &str) -> Result<bool, Error> {
        let Some((word, value)) = url::form_urlencoded::parse(pair.as_bytes()).next() else { return Ok(false) };
        match &*word {
            "sentinel_username" => self.username = Some(value.into_owned()),
            "sentinel_password" => self.password = Some(value.into_owned()),
            "sentinel_tls" => {
                self.tls = match value.to_ascii_lowercase().as_str() {
                    "" | "1" | "true" | "yes" | "on" => true,
                    "0" | "false" | "no" | "off" => false,
                    _ => return Err(wrong("sentinel_tls must be true or false", SENTINEL_EXAMPLE)),
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The parts of an address.
struct SplitAddress<'a> {
    tls: bool,
    /// With its `@`, or empty.
    user_info: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
    /// With its `#`, or empty.
    fragment: &'a str,
}

impl<'a> SplitAddress<'a> {
    fn split(address: &'a str, example: &str) -> Result<SplitAddress<'a>, Error> {
        let (scheme, rest) = address.trim().split_once("://").ok_or_else(|| wrong("no scheme", example))?;
        if is_unescaped(rest) {
            return Err(wrong(UNESCAPED, example));
        }
        let scheme = scheme.to_ascii_lowercase();
        let tls = scheme.starts_with("rediss+") || scheme.starts_with("valkeys+");
        let (rest, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));
        let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = front.split_at(front.find('/').unwrap_or(front.len()));
        let (user_info, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let hosts: Vec<&str> = hosts.split(',').map(str::trim).filter(|host| !host.is_empty()).collect();
        if hosts.is_empty() {
            return Err(wrong("no server is named", example));
        }
        Ok(SplitAddress { tls, user_info, hosts, path, query, fragment })
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "rediss" } else { "redis" }
    }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(front, port)| !front.ends_with(':') && !port.is_empty() && !port.contains(']'))
}

fn is_about_files(pair: &str) -> bool {
    ["ca_file", "cert_file", "key_file", "tls_insecure", "ssl_"].iter().any(|word| pair.starts_with(word))
}

fn wrong(what: &str, example: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, "address", format!("{what}; an address looks like {example}"))
}

/// The servers of an address without their scheme, for messages.
pub(crate) fn host_list<'e>(endpoints: impl Iterator<Item = &'e Endpoint>) -> String {
    let names: Vec<String> = endpoints
        .map(|endpoint| {
            let name = endpoint.to_string();
            name.split_once("://").map_or(name.clone(), |(_, rest)| rest.to_owned())
        })
        .collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::address::endpoint::ConnectionAddr;

    fn tcp(endpoint: &Endpoint) -> (String, u16) {
        match &endpoint.addr {
            ConnectionAddr::Tcp { host, port } => (host.clone(), *port),
            ConnectionAddr::Unix(_) => panic!("not TCP"),
        }
    }

    fn sentinels(address: &str) -> SentinelConfig {
        SentinelConfig::parse(address, &RedisOptions::default()).unwrap()
    }

    #[test]
    fn sentinel_addresses() {
        let all = sentinels("redis+sentinel://user:p%40ss@s1,s2:26380,[::1]:5/my%20master/3?sentinel_password=own");
        assert_eq!(all.master_name, "my master");
        assert_eq!((all.master.db, all.master.username.as_deref()), (3, Some("user")));
        assert_eq!(all.master.password.as_deref(), Some("p@ss"));
        let places: Vec<_> = all.sentinels.iter().map(tcp).collect();
        assert_eq!(places, [("s1".to_owned(), 26379), ("s2".to_owned(), 26380), ("::1".to_owned(), 5)]);
        assert!(all.sentinels.iter().all(|it| it.username.is_none() && it.password.as_deref() == Some("own")));
        assert!(all.sentinels.iter().all(|it| it.db == 0 && it.any_role && it.tls.is_none()));
        assert!(!all.master.any_role && all.master.tls.is_none());
        let all = sentinels("rediss+sentinel://s1/m?sentinel_tls=1&ca_file=/c.pem");
        assert_eq!(all.master.tls, all.sentinels[0].tls);
        let all = sentinels("redis+sentinel://s1/m?sentinel_tls=true");
        assert!(all.master.tls.is_none() && all.sentinels[0].tls.is_some());
        let options = RedisOptions { sentinel_username: Some("u".into()), ..RedisOptions::default() };
        let all = SentinelConfig::parse("redis+sentinel://s1/m", &options).unwrap();
        assert_eq!(all.sentinels[0].username.as_deref(), Some("u"));
    }

    #[test]
    fn cluster_addresses() {
        let seeds = ClusterSeeds::parse("redis+cluster://:secret@h1:1,h2/", &RedisOptions::default()).unwrap();
        assert_eq!(seeds.nodes.iter().map(tcp).collect::<Vec<_>>(), [("h1".to_owned(), 1), ("h2".to_owned(), 6379)]);
        assert!(seeds.nodes.iter().all(|it| it.password.as_deref() == Some("secret")));
    }

    #[test]
    fn what_is_wrong_is_named_and_the_password_is_not() {
        let cases = [
            ("redis+sentinel://u:hunter2@s1:26379", "master group is missing"),
            ("redis+sentinel://u:hunter2@/m", "no server is named"),
            ("redis+sentinel://u:hunter2@s1/m/x", "database must be a number"),
            ("redis+sentinel://u:hunter2@s1/m?sentinel_tls=maybe", "true or false"),
            ("redis+sentinel://u:hunter2@s1/m?sentinel_user=x", "is no option"),
            ("redis+cluster://u:hunter2@", "no server is named"),
            ("redis+cluster://u:hunter2@h/1", "no databases but 0"),
            ("redis+cluster://u:hunter2@h:port", "invalid port number"),
        ];
        for (address, expected) in cases {
            let options = RedisOptions::default();
            let error = if address.contains("cluster") {
                ClusterSeeds::parse(address, &options).unwrap_err()
            } else {
                SentinelConfig::parse(address, &options).unwrap_err()
            };
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{address}");
            let text = error.to_string();
            assert!(text.contains(expected) && !text.contains("hunter2"), "{address}: {text}");
        }
    }
}
