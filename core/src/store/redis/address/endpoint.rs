//! The address of one server, such as `redis://user:password@host:6379/0`, read the way redis-rs and redis-py do.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::{Error, ErrorKind};
use crate::store::member::RunObserver;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::resp::value::printable;
pub use crate::store::tls_files::TlsFiles;

const DEFAULT_PORT: u16 = 6379;
const EXAMPLE: &str = "redis://user:password@localhost:6379/0";
const QUERY_WORDS: &str = "db, protocol, username, password, ca_file, cert_file, key_file, tls_insecure";

/// One server and how to connect to it. Its text forms never show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it listens.
    pub addr: ConnectionAddr,
    /// How to encrypt; `None` for plain text.
    pub tls: Option<TlsFiles>,
    /// The user; `None` for the server's default user.
    pub username: Option<String>,
    /// The password.
    pub(crate) password: Option<String>,
    /// Whether the credentials provider supplies user and password.
    pub(crate) uses_provider: bool,
    /// The database to select.
    pub db: u32,
    /// The protocol version.
    pub protocol: Protocol,
    /// Whether a server of any role is accepted: for queries, not for locks.
    pub(crate) any_role: bool,
    /// Called with the run of the server on each new connection: for Redlock.
    pub(crate) run_observer: Option<RunObserver>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionAddr {
    /// A host name or IP address (without brackets), and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

/// The protocol version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP3, or RESP2 if the server does not support it.
    #[default]
    Auto,
    /// RESP2, with a second connection for wake-ups.
    Resp2,
    /// RESP3 only.
    Resp3,
}

impl Endpoint {
    /// Reads an address. The error names what is wrong and shows an example, but never the address itself.
    ///
    /// | form | |
    /// |---|---|
    /// | `redis://[user[:password]@]host[:port][/db]` | plain TCP; `valkey://` means the same |
    /// | `rediss://…` | TLS; `valkeys://` means the same |
    /// | `unix://[user[:password]@]/path?db=1` | a socket in the file system |
    ///
    /// In the query: `db`, `protocol=resp2` or `resp3`, `username`, `password`, and for TLS `ca_file`, `cert_file`,
    /// `key_file`, `tls_insecure`. What the address leaves out is taken from `options`.
    pub fn parse(address: &str, options: &RedisOptions) -> Result<Endpoint, Error> {
        let (scheme, rest) =
            address.trim().split_once("://").ok_or_else(|| wrong("the address has no scheme such as redis://"))?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            "unix" | "redis+unix" | "valkey+unix" => return unix(rest)?.with_provider(options),
            other => return Err(wrong(&format!("{other}:// is no scheme of one server"))),
        };
        network(rest, tls, options)?.with_provider(options)
    }

    /// Whether there is anything to log in with.
    pub(crate) fn has_credentials(&self) -> bool {
        self.username.is_some() || self.password.is_some()
    }

    /// The same user, encryption and protocol at another address.
    pub(crate) fn moved_to(&self, host: &str, port: u16) -> Endpoint {
        Endpoint { addr: ConnectionAddr::Tcp { host: host.to_owned(), port }, ..self.clone() }
    }

    /// The same server for queries, whatever its role.
    pub(crate) fn for_queries(&self) -> Endpoint {
        Endpoint { db: 0, protocol: Protocol::Resp2, any_role: true, ..self.clone() }
    }

    /// A placeholder without an address.
    pub(crate) fn nowhere() -> Endpoint {
        Endpoint::at(ConnectionAddr::Tcp { host: String::new(), port: 0 })
    }

    fn at(place: ConnectionAddr) -> Endpoint {
        Endpoint {
            addr: place,
            tls: None,
            username: None,
            password: None,
            uses_provider: false,
            db: 0,
            protocol: Protocol::Auto,
            any_role: false,
            run_observer: None,
        }
    }

    fn set(&mut self, word: &str, value: &str) -> Result<(), Error> {
        match word {
            "db" => self.db = database(value)?,
            "protocol" => {
                self.protocol = match value {
                    "2" | "resp2" => Protocol::Resp2,
                    "3" | "resp3" => Protocol::Resp3,
                    _ => return Err(wrong("protocol must be resp2 or resp3")),
                }
            }
            "user" | "username" => self.username = Some(value.to_owned()),
            "pass" | "password" => self.password = Some(value.to_owned()),
            "ca_file" | "ssl_ca_certs" => self.files(word)?.ca_file = Some(value.into()),
            "cert_file" | "ssl_certfile" => self.files(word)?.cert_file = Some(value.into()),
            "key_file" | "ssl_keyfile" => self.files(word)?.key_file = Some(value.into()),
            "tls_insecure" => self.files(word)?.insecure = switch(word, value)?,
            "ssl_cert_reqs" => self.files(word)?.insecure = value.eq_ignore_ascii_case("none"),
            // it may be the end of a password with a ? in it, and is not shown
            _ if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') => {
                return Err(wrong(&format!("\"{word}\" is no option of an address; there are: {QUERY_WORDS}")));
            }
            _ => {
                return Err(wrong(&format!(
                    "what follows the ? is no option of an address; there are: {QUERY_WORDS}; write a ? in a password as %3F"
                )));
            }
        }
        Ok(())
    }

    fn files(&mut self, word: &str) -> Result<&mut TlsFiles, Error> {
        self.tls.as_mut().ok_or_else(|| wrong(&format!("{word} needs TLS: write rediss:// instead of redis://")))
    }

    fn credentials(&mut self, username: &str, password: Option<&str>) -> Result<(), Error> {
        if !username.is_empty() {
            self.username = Some(decoded("user name", username)?);
        }
        if let Some(password) = password.filter(|password| !password.is_empty()) {
            self.password = Some(decoded("password", password)?);
        }
        Ok(())
    }

    fn checked(self) -> Result<Endpoint, Error> {
        if self.tls.as_ref().is_some_and(|tls| tls.cert_file.is_some() != tls.key_file.is_some()) {
            return Err(wrong("cert_file and key_file belong together"));
        }
        Ok(self)
    }
}

fn network(rest: &str, tls: bool, options: &RedisOptions) -> Result<Endpoint, Error> {
    // the crate's own scheme rules would fold and check hosts differently; any unknown scheme is read the same way
    let url = Url::parse(&format!("redis://{rest}")).map_err(|error| {
        if is_unescaped(rest) {
            return wrong(UNESCAPED);
        }
        wrong(&format!("{error}; percent-encode what is not a letter or digit in user name and password"))
    })?;
    let host = match url.host() {
        Some(url::Host::Domain(name)) => decoded("host", name)?,
        Some(url::Host::Ipv4(ip)) => ip.to_string(),
        Some(url::Host::Ipv6(ip)) => ip.to_string(),
        None => "localhost".to_owned(),
    };
    let port = url.port().unwrap_or(DEFAULT_PORT);
    let mut endpoint = Endpoint::at(ConnectionAddr::Tcp { host, port });
    if tls {
        endpoint.tls = Some(TlsFiles {
            ca_file: options.ca_file.clone(),
            cert_file: options.cert_file.clone(),
            key_file: options.key_file.clone(),
            insecure: options.tls_insecure,
            any_name: false,
        });
    }
    endpoint.credentials(url.username(), url.password())?;
    match url.path().trim_matches('/') {
        "" => {}
        number => {
            endpoint.db =
                database(number).map_err(|error| if is_unescaped(rest) { wrong(UNESCAPED) } else { error })?;
        }
    }
    for (word, value) in url.query_pairs() {
        endpoint.set(&word, &value)?;
    }
    match url.fragment() {
        None | Some("") => {}
        Some("insecure") => endpoint.files("#insecure")?.insecure = true,
        Some(_) => {
            return Err(wrong("a # begins a fragment; inside a user name or password it is written %23"));
        }
    }
    endpoint.checked()
}

#[cfg(unix)]
fn unix(rest: &str) -> Result<Endpoint, Error> {
    let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
    let slash =
        front.find('/').ok_or_else(|| wrong("unix:// needs the path of a socket, such as unix:///run/redis.sock"))?;
    let (authority, path) = front.split_at(slash);
    if path == "/" {
        return Err(wrong("unix:// needs the path of a socket, such as unix:///run/redis.sock"));
    }
    let mut endpoint = Endpoint::at(ConnectionAddr::Unix(decoded("path", path)?.into()));
    if let Some(user_info) = authority.strip_suffix('@') {
        let (username, password) = match user_info.split_once(':') {
            Some((username, password)) => (username, Some(password)),
            None => (user_info, None),
        };
        endpoint.credentials(username, password)?;
    } else if !authority.is_empty() {
        return Err(wrong("unix:// takes no host: write three slashes, such as unix:///run/redis.sock"));
    }
    for (word, value) in url::form_urlencoded::parse(query.as_bytes()) {
        endpoint.set(&word, &value)?;
    }
    endpoint.checked()
}

#[cfg(not(unix))]
fn unix(_: &str) -> Result<Endpoint, Error> {
    Err(Error::new(ErrorKind::Unsupported, "address", "this system has no unix:// sockets"))
}

/// The message for an address that [`is_unescaped`].
pub(crate) const UNESCAPED: &str =
    "there is an @ behind a /; in a user name or password a / is written %2F, and an @ is written %40";

/// Whether a password seems to have a `/` in it: everything up to the last `@` would be user name and password, but the
/// first `/` ends them. `rest` is what follows the scheme.
pub(crate) fn is_unescaped(rest: &str) -> bool {
    let front = rest.split(['?', '#']).next().unwrap_or_default();
    front.split_once('/').is_some_and(|(_, path)| path.contains('@'))
}

fn decoded(what: &str, text: &str) -> Result<String, Error> {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(wrong(&format!("the {what} is not UTF-8"))),
    }
}

fn database(text: &str) -> Result<u32, Error> {
    text.parse().map_err(|_| wrong("the database must be a number such as /0"))
}

fn switch(word: &str, value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "" | "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(wrong(&format!("{word} must be true or false"))),
    }
}

pub(crate) fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, "address", format!("{what}; an address looks like {EXAMPLE}"))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.addr {
            ConnectionAddr::Tcp { host, port } => {
                f.write_str(if self.tls.is_some() { "rediss://" } else { "redis://" })?;
                match host.parse::<Ipv6Addr>() {
                    Ok(ip) => write!(f, "[{ip}]:{port}")?,
                    // Sentinels and nodes of a cluster may say anything
                    Err(_) => write!(f, "{}:{port}", printable(host))?,
                }
                if self.db == 0 { Ok(()) } else { write!(f, "/{}", self.db) }
            }
            ConnectionAddr::Unix(path) => {
                write!(f, "unix://{}", path.display())?;
                if self.db == 0 { Ok(()) } else { write!(f, "?db={}", self.db) }
            }
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.to_string())
            .field("tls", &self.tls)
            // a password in the wrong place is a common slip, so neither half is shown
            .field("credentials", &self.has_credentials())
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(address: &str) -> Result<Endpoint, Error> {
        Endpoint::parse(address, &RedisOptions::default())
    }

    /// host, port, user, password, db
    fn parts(address: &str) -> (String, u16, Option<String>, Option<String>, u32) {
        let endpoint = parse(address).unwrap();
        let ConnectionAddr::Tcp { host, port } = endpoint.addr else { panic!("not TCP") };
        (host, port, endpoint.username, endpoint.password, endpoint.db)
    }

    #[test]
    fn addresses_as_redis_rs_and_redis_py_read_them() {
        let some = |text: &str| Some(text.to_owned());
        let cases = [
            ("redis://localhost", ("localhost", 6379, None, None, 0)),
            ("redis://", ("localhost", 6379, None, None, 0)),
            ("redis:///3", ("localhost", 6379, None, None, 3)),
            ("  valkey://example.org:7000/2/ ", ("example.org", 7000, None, None, 2)),
            ("REDIS://10.0.0.1/", ("10.0.0.1", 6379, None, None, 0)),
            ("redis://[::1]:6380/1", ("::1", 6380, None, None, 1)),
            ("redis://:secret@h", ("h", 6379, None, some("secret"), 0)),
            ("redis://user:p%40s%23s%2F%25@h:1", ("h", 1, some("user"), some("p@s#s/%"), 0)),
            ("redis://us%3Aer:%C3%A9@h", ("h", 6379, some("us:er"), some("\u{e9}"), 0)),
            ("redis://user@h", ("h", 6379, some("user"), None, 0)),
            ("redis://h/1?db=5", ("h", 6379, None, None, 5)),
            ("redis://h?username=u&password=p%20w", ("h", 6379, some("u"), some("p w"), 0)),
        ];
        for (address, (host, port, username, password, db)) in cases {
            assert_eq!(parts(address), (host.to_owned(), port, username, password, db), "{address}");
        }
    }

    #[test]
    fn tls_options() {
        let endpoint = parse("rediss://h?ca_file=/a%20b.pem&cert_file=c&key_file=k").unwrap();
        let files = TlsFiles {
            ca_file: Some("/a b.pem".into()),
            cert_file: Some("c".into()),
            key_file: Some("k".into()),
            ..TlsFiles::default()
        };
        assert_eq!(endpoint.tls, Some(files));
        for address in ["valkeys://h#insecure", "rediss://h?tls_insecure=1", "rediss://h?ssl_cert_reqs=none"] {
            assert!(parse(address).unwrap().tls.unwrap().insecure, "{address}");
        }
        assert!(!parse("rediss://h?tls_insecure=false").unwrap().tls.unwrap().insecure);
        assert_eq!(parse("redis://h").unwrap().tls, None);
        let options = RedisOptions { ca_file: Some("o".into()), tls_insecure: true, ..RedisOptions::default() };
        let tls = Endpoint::parse("rediss://h?tls_insecure=0", &options).unwrap().tls.unwrap();
        assert_eq!((tls.ca_file, tls.insecure), (Some("o".into()), false));
    }

    #[cfg(unix)]
    #[test]
    fn sockets() {
        let endpoint = parse("unix:///run/re%20dis@1.sock?db=3&protocol=resp2").unwrap();
        assert_eq!(endpoint.addr, ConnectionAddr::Unix("/run/re dis@1.sock".into()));
        assert_eq!((endpoint.db, endpoint.protocol), (3, Protocol::Resp2));
        assert_eq!(endpoint.to_string(), "unix:///run/re dis@1.sock?db=3");
        let endpoint = parse("unix://u:p%3Aw@/s").unwrap();
        assert_eq!((endpoint.username.as_deref(), endpoint.password.as_deref()), (Some("u"), Some("p:w")));
        let endpoint = parse("unix:///s?user=u&pass=p").unwrap();
        assert_eq!((endpoint.username.as_deref(), endpoint.password.as_deref()), (Some("u"), Some("p")));
    }

    #[test]
    fn what_is_wrong_is_named_and_the_password_is_not() {
        let cases = [
            ("localhost:6379", "no scheme"),
            ("http://u:hunter2@h", "http:// is no scheme"),
            ("redis://u:hunter2@h:port", "invalid port number"),
            ("redis://u:hunter2@h:99999", "invalid port number"),
            ("redis://u:hunter2@[::1", "invalid IPv6 address"),
            ("redis://u:hunter2@h/abc", "database must be a number"),
            ("redis://u:hunter2@h/-1", "database must be a number"),
            ("redis://u:hunter2@h?db=x", "database must be a number"),
            ("redis://u:hunter2@h?protocol=4", "resp2 or resp3"),
            ("redis://u:hunter2@h?tls_insecure=1", "rediss://"),
            ("redis://?:hunter2@h", "write a ? in a password as %3F"),
            ("redis://u:hunter2@h?ca_file=x", "rediss://"),
            ("redis://u:hunter2@h#insecure", "rediss://"),
            ("rediss://u:hunter2@h#x", "%23"),
            ("rediss://u:hunter2@h?tls_insecure=maybe", "true or false"),
            ("rediss://u:hunter2@h?cert_file=x", "belong together"),
            ("redis://u:hunter2@h?tls_insecur=1", "\"tls_insecur\" is no option"),
            ("redis://u:hunter2%ff@h", "not UTF-8"),
            ("unix://u:hunter2@", "path of a socket"),
            ("unix:///", "path of a socket"),
            ("unix://host/path", "three slashes"),
        ];
        for (address, expected) in cases {
            let error = parse(address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{address}");
            let text = error.to_string();
            assert!(text.contains(expected), "{address}: {text}");
            assert!(text.contains("redis://user:password@localhost:6379/0"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn text_forms_show_no_password() {
        for address in ["redis://user:hunter2@[::1]:1/4", "rediss://:hunter2@h", "unix://u:hunter2@/s"] {
            let endpoint = parse(address).unwrap();
            assert!(!format!("{endpoint} {endpoint:?}").contains("hunter2"));
        }
        assert_eq!(parse("redis://user:hunter2@[::1]:1/4").unwrap().to_string(), "redis://[::1]:1/4");
        assert_eq!(parse("valkeys://h").unwrap().to_string(), "rediss://h:6379");
    }
}
