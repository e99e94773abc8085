//! The address of a server: `memcached://user:password@host:11211`, and `memcacheds://` with TLS.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::{CAPABILITIES, MemcachedStore, diagnosis};
use crate::config::{Options, Secret};
use crate::error::{Error, invalid};
use crate::store::address::StoreAddress;
use crate::store::diagnosis::Finding;
use crate::store::tls::TlsFiles;
use crate::store::{Boxed, Capabilities, SharedStore};

const TRIED: &str = "make a client";
const EXAMPLE: &str = "for example memcached://localhost:11211";
const PORT: u16 = 11211;

/// Where a server is and how to log in. Its text forms never show the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) tls: Option<TlsFiles>,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "memcacheds" } else { "memcached" };
        match self.host.parse::<Ipv6Addr>() {
            Ok(host) => write!(f, "{scheme}://[{host}]:{}", self.port),
            Err(_) => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

fn wrong(detail: &str) -> Error {
    invalid(TRIED, format!("{detail}; {EXAMPLE}"))
}

/// Reads `memcached://...` and `memcacheds://...`.
pub(crate) fn read(url: &str, options: &Options) -> Result<Box<dyn StoreAddress>, Error> {
    Ok(Box::new(parse(url, options)?))
}

fn decoded(what: &str, text: &str) -> Result<String, Error> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| wrong(&format!("the {what} is no UTF-8")))?;
    if text.chars().any(char::is_control) {
        return Err(wrong(&format!("the {what} has a control character in it")));
    }
    Ok(text.into_owned())
}

fn parse(url: &str, options: &Options) -> Result<ServerAddress, Error> {
    let (scheme, rest) = url.trim().split_once("://").unwrap_or(("", ""));
    if rest.contains('#') {
        return Err(wrong("the address has no part behind #; write a # in a password as %23"));
    }
    let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = front.split_once('/').unwrap_or((front, ""));
    if path.contains('@') || query.contains('@') {
        return Err(wrong("there is an @ behind the first / or ?; write them in a password as %2F and %3F"));
    }
    if !path.is_empty() {
        return Err(wrong("the address has a path: a server has no databases; for names of their own set a prefix"));
    }
    if let Some(word) = query.split('&').find(|pair| !pair.is_empty()) {
        let word = word.split('=').next().unwrap_or("");
        return Err(wrong(&format!("\"{word}\" is no option of this address, which has none")));
    }
    let (user_info, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user_info.contains('@') {
        return Err(wrong("there are several @; write an @ in a password as %40"));
    }
    if host.contains(',') {
        return Err(wrong("the address names several servers, of which each would have other locks; name one"));
    }
    let (user, password) = user_info.split_once(':').map_or((user_info, None), |(user, word)| (user, Some(word)));
    let (user, password) = (decoded("user name", user)?, password.map(|word| decoded("password", word)).transpose()?);
    if user.contains(' ') || user.is_empty() && password.is_some() {
        return Err(wrong("a user name has no space in it, and stands before the password"));
    }
    if !user.is_empty() && password.is_none() && options.credentials.is_none() {
        return Err(wrong("the address names a user and no password"));
    }
    if options.credentials.is_some() && password.is_some() {
        return Err(wrong("the address has a password, and the option credentials is set too; give one of them"));
    }
    let (host, port) = host_and_port(host)?;
    let given = &options.tls;
    if given.cert_file.is_some() != given.key_file.is_some() {
        return Err(wrong("a client certificate and its key belong together"));
    }
    let any = given.ca_file.is_some() || given.cert_file.is_some() || given.insecure;
    if any && scheme != "memcacheds" {
        return Err(wrong("there are options for TLS, but memcached:// has none; write memcacheds://"));
    }
    let tls = (scheme == "memcacheds").then(|| TlsFiles {
        ca_file: given.ca_file.clone(),
        cert_file: given.cert_file.clone(),
        key_file: given.key_file.clone(),
        insecure: given.insecure,
        any_name: false,
    });
    Ok(ServerAddress { host, port, user, password: password.map(Secret::new), tls })
}

fn host_and_port(text: &str) -> Result<(String, u16), Error> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) if host.parse::<Ipv6Addr>().is_ok() => match rest.strip_prefix(':') {
            None if !rest.is_empty() => return Err(wrong("behind the ] may stand a port only")),
            port => (host.to_owned(), port),
        },
        Some(_) => return Err(wrong("what stands in [ ] must be an IPv6 address")),
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            (decoded("host", host)?, port)
        }
    };
    let digits = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port {
        Some(port) => Some(port).filter(digits).and_then(|port| port.parse().ok()).filter(|port| *port > 0),
        None => Some(PORT),
    };
    let port = port.ok_or_else(|| wrong("the port must be a number from 1 to 65535"))?;
    if host.is_empty() {
        return Err(wrong("the address names no host"));
    }
    Ok((host, port))
}

impl StoreAddress for ServerAddress {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, options: &Options) -> SharedStore {
        Arc::new(MemcachedStore::new(self.clone(), options))
    }

    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        diagnosis::look(MemcachedStore::new(self.clone(), options), name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_server_and_its_user() {
        let read = |url: &str| parse(url, &Options::default()).unwrap();
        let plain = read("memcached://cache.example");
        assert_eq!((plain.to_string().as_str(), plain.user.as_str()), ("memcached://cache.example:11211", ""));
        assert_eq!((plain.tls.clone(), plain.password), (None, None));
        let full = read("memcacheds://bob:a%40b%20c@[::1]:7/");
        assert_eq!((full.to_string().as_str(), full.user.as_str()), ("memcacheds://[::1]:7", "bob"));
        assert_eq!(full.password.as_ref().unwrap().reveal(), "a@b c");
        assert!(!format!("{full:?} {full}").contains("a@b"));
        assert!(full.tls.is_some_and(|tls| !tls.insecure));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, word) in [
            ("memcached://", "names no host"),
            ("memcached://:11211", "names no host"),
            ("memcached://h1,h2", "several servers"),
            ("memcached://h/0", "has a path"),
            ("memcached://h?ttl=1", "\"ttl\" is no option"),
            ("memcached://h#x", "%23"),
            ("memcached://h:0", "1 to 65535"),
            ("memcached://h:65536", "1 to 65535"),
            ("memcached://h:+1", "1 to 65535"),
            ("memcached://h:", "1 to 65535"),
            ("memcached://[::1", "1 to 65535"),
            ("memcached://[h]:1", "IPv6"),
            ("memcached://[::1]7", "a port only"),
            ("memcached://bob@h", "no password"),
            ("memcached://:hunter2@h", "before the password"),
            ("memcached://b%20b:hunter2@h", "no space"),
            ("memcached://bob:hunter2%0d%0a@h", "control character"),
            ("memcached://bob:hunter2@x@h", "%40"),
            ("memcached://bob:hunter2/x@h", "%2F"),
        ] {
            let error = parse(url, &Options::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}");
            let text = error.to_string();
            assert!(text.contains(word) && text.contains(EXAMPLE) && !text.contains("hunter2"), "{url}: {text}");
        }
    }
}
