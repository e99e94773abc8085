//! The address of a cluster: `etcd://user:password@h1:2379,h2:2379/namespace`.

use std::net::Ipv6Addr;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::cluster::{Cluster, MemberHost};
use super::{CAPABILITIES, EtcdStore, diagnosis};
use crate::config::{Options, Secret};
use crate::error::{Error, invalid};
use crate::store::address::StoreAddress;
use crate::store::diagnosis::Finding;
use crate::store::tls::TlsFiles;
use crate::store::{Boxed, Capabilities, SharedStore};

const TRIED: &str = "make a client";
const EXAMPLE: &str = "for example etcd://localhost:2379 or etcds://user:password@h1,h2,h3/namespace";
const PORT: u16 = 2379;
const WORDS: &str = "names, fence_base, ca_file, cert_file, key_file, tls_insecure";
/// Tokens stay below 2^53 in every language; revisions have room above this.
const FENCE_BASE_MAX: u64 = 1 << 52;

fn wrong(detail: &str) -> Error {
    invalid(TRIED, format!("{detail}; {EXAMPLE}"))
}

/// Reads `etcd://...` or `etcds://...` and its query.
pub(crate) fn read(url: &str, options: &Options) -> Result<Box<dyn StoreAddress>, Error> {
    let mut cluster = parse(url, options.credentials.is_some())?;
    secure(&mut cluster, options)?;
    Ok(Box::new(cluster))
}

/// What the options of the client add to the address.
fn secure(cluster: &mut Cluster, options: &Options) -> Result<(), Error> {
    if options.credentials.is_some() && cluster.password.is_some() {
        return Err(wrong("the address has a password, and the option credentials is set too; give one of them"));
    }
    let given = &options.tls;
    let Some(files) = &mut cluster.tls else {
        let any = given.ca_file.is_some() || given.cert_file.is_some() || given.key_file.is_some() || given.insecure;
        return if any {
            Err(wrong("there are options for TLS, but etcd:// has none; write etcds://"))
        } else {
            Ok(())
        };
    };
    for (file, other) in [
        (&mut files.ca_file, &given.ca_file),
        (&mut files.cert_file, &given.cert_file),
        (&mut files.key_file, &given.key_file),
    ] {
        if file.is_none() {
            file.clone_from(other);
        }
    }
    files.insecure |= given.insecure;
    if files.cert_file.is_some() != files.key_file.is_some() {
        return Err(wrong("cert_file and key_file belong together: a certificate and its key"));
    }
    Ok(())
}

fn decoded(what: &str, text: &str) -> Result<String, Error> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| wrong(&format!("the {what} is no UTF-8")))?;
    Ok(text.into_owned())
}

/// `has_provider`: a credentials provider may name the user.
fn parse(url: &str, has_provider: bool) -> Result<Cluster, Error> {
    let (scheme, rest) = url.trim().split_once("://").unwrap_or(("", ""));
    if rest.contains('#') {
        return Err(wrong("the address of a cluster has no part behind #; write a # in a password as %23"));
    }
    let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = front.split_once('/').unwrap_or((front, ""));
    if path.contains('@') {
        return Err(wrong("there is an @ behind the first /; write a / in a password as %2F"));
    }
    if query.contains('@') {
        return Err(wrong("there is an @ behind the ?; write a ? in a password as %3F, and an @ elsewhere as %40"));
    }
    let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user_info.contains('@') {
        return Err(wrong("there are several @; write an @ in a password as %40"));
    }
    let (user, password) = user_info.split_once(':').map_or((user_info, None), |(user, word)| (user, Some(word)));
    let mut cluster = Cluster {
        hosts: Vec::new(),
        user: decoded("user name", user)?,
        password: password.map(|word| decoded("password", word).map(Secret::new)).transpose()?,
        tls: (scheme == "etcds").then(TlsFiles::default),
        namespace: percent_decode_str(path).collect(),
        escapes: true,
        fence_base: 0,
    };
    for host in hosts.split(',').filter(|host| !host.is_empty()) {
        cluster.hosts.push(read_host(host)?);
    }
    let mut seen = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (word, value) = pair.split_once('=').unwrap_or((pair, ""));
        if seen.contains(&word) {
            return Err(wrong(&format!("{word} stands twice in the address")));
        }
        if !is_option(word) {
            return Err(no_option(word, &cluster));
        }
        set(&mut cluster, word, &decoded(word, value)?)?;
        seen.push(word);
    }
    if cluster.hosts.is_empty() {
        return Err(wrong("the address names no host"));
    }
    if cluster.user.is_empty() && cluster.password.is_some() {
        return Err(wrong("the address has a password and no user"));
    }
    if !cluster.user.is_empty() && cluster.password.is_none() && !has_provider {
        return Err(wrong("the address has a user and no password"));
    }
    Ok(cluster)
}

fn read_host(text: &str) -> Result<MemberHost, Error> {
    let bad_port = || wrong("the port must be a number from 1 to 65535");
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) if name.parse::<Ipv6Addr>().is_ok() => (name, rest.strip_prefix(':')),
        Some(_) => return Err(wrong("what stands in [ ] must be an IPv6 address")),
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(bad_port)?,
        None => PORT,
    };
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
    if name.is_empty() || !name.chars().all(is_letter) {
        return Err(wrong("a host name is missing, or is none"));
    }
    Ok(MemberHost { name: name.to_owned(), port })
}

fn set(cluster: &mut Cluster, word: &str, value: &str) -> Result<(), Error> {
    match (word, value) {
        ("names", "escaped") => cluster.escapes = true,
        ("names", "raw") => cluster.escapes = false,
        ("names", _) => return Err(wrong("names must be escaped or raw")),
        ("fence_base", number) => match number.parse() {
            Ok(number) if number <= FENCE_BASE_MAX => cluster.fence_base = number,
            _ => return Err(wrong("fence_base must be a number up to 2^52")),
        },
        (word, value) => {
            let Some(files) = &mut cluster.tls else {
                return Err(wrong(&format!("{word} is for TLS, and etcd:// has none; write etcds://")));
            };
            match (word, value) {
                ("tls_insecure", "true") => files.insecure = true,
                ("tls_insecure", "false") => files.insecure = false,
                ("tls_insecure", _) => return Err(wrong("tls_insecure must be true or false")),
                (_, "") => return Err(wrong(&format!("{word} names no file"))),
                ("ca_file", file) => files.ca_file = Some(file.into()),
                ("cert_file", file) => files.cert_file = Some(file.into()),
                (_, file) => files.key_file = Some(file.into()),
            }
        }
    }
    Ok(())
}

fn is_option(word: &str) -> bool {
    WORDS.split(", ").any(|known| known == word)
}

/// What nobody asked for may be the end of a password with a ? in it: then it is not shown.
fn no_option(word: &str, cluster: &Cluster) -> Error {
    let is_word = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_word && cluster.user.is_empty() && cluster.password.is_none() {
        return wrong(&format!("\"{word}\" is no option of this address; there are: {WORDS}"));
    }
    wrong(&format!(
        "what follows the ? is no option of this address; there are: {WORDS}; write a ? in a password as %3F"
    ))
}

impl StoreAddress for Cluster {
    fn capabilities(&self) -> &'static Capabilities {
        &CAPABILITIES
    }

    fn open(&self, options: &Options) -> SharedStore {
        Arc::new(EtcdStore::new(self.clone(), options))
    }

    fn diagnose(&self, options: &Options, name: Vec<u8>) -> Boxed<Vec<Finding>> {
        diagnosis::look(EtcdStore::new(self.clone(), options), name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_cluster_and_its_options() {
        let plain = parse("etcd://h1,h2:7,[::1]:8", false).unwrap();
        assert_eq!(plain.to_string(), "etcd://h1:2379,h2:7,[::1]:8");
        assert!(plain.tls.is_none() && plain.escapes && plain.namespace.is_empty() && plain.user.is_empty());
        let full =
            parse("etcds://app:s%2Fe%40c@h/app%2Flocks/?names=raw&fence_base=5&ca_file=/ca&tls_insecure=false", false);
        let full = full.unwrap();
        assert_eq!((full.user.as_str(), full.password.as_ref().unwrap().reveal()), ("app", "s/e@c"));
        assert_eq!((&*full.namespace, full.escapes, full.fence_base), (&b"app/locks/"[..], false, 5));
        assert_eq!(full.tls.as_ref().unwrap().ca_file.as_deref(), Some("/ca".as_ref()));
        assert_eq!(full.to_string(), "etcds://h:2379/app/locks/");
    }

    #[test]
    fn what_is_wrong_is_named_and_no_password_is_shown() {
        for (url, word) in [
            ("etcd://", "names no host"),
            ("etcd://h:0", "from 1 to 65535"),
            ("etcd://h:x", "from 1 to 65535"),
            ("etcd://[x]", "IPv6"),
            ("etcd://h h", "is none"),
            ("etcd://u@h", "a user and no password"),
            ("etcd://:hunter2@h", "a password and no user"),
            ("etcd://u:hunter2@x@h", "%40"),
            ("etcd://u:hun/ter2@h", "%2F"),
            ("etcd://u:hunter2#@h", "%23"),
            ("etcd://u:hunter2?@h", "%3F"),
            ("etcd://h?hunter2%40x", "%3F"),
            ("etcd://u:p@ss?hun&ter2&hunter2@h", "%3F"),
            ("etcd://h?name=x", "\"name\" is no option of this address; there are: names, fence_base"),
            ("etcd://h?names=plain", "names must be escaped or raw"),
            ("etcd://h?names=raw&names=raw", "names stands twice"),
            ("etcd://h?fence_base=x", "up to 2^52"),
            ("etcd://h?fence_base=9007199254740992", "up to 2^52"),
            ("etcd://h?ca_file=/ca", "write etcds://"),
            ("etcds://h?ca_file=", "names no file"),
            ("etcds://h?tls_insecure=yes", "true or false"),
        ] {
            let error = parse(url, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}");
            let text = error.to_string();
            assert!(text.contains(word) && text.contains(EXAMPLE) && !text.contains("hunter2"), "{url}: {text}");
        }
        let shown = format!("{:?}", parse("etcd://u:hunter2@h", false).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn options_of_the_client_count_where_there_is_tls() {
        let with = |url: &str| {
            let mut options = Options::default();
            options.tls.ca_file = Some("/ca".into());
            let mut cluster = parse(url, false).unwrap();
            secure(&mut cluster, &options).map(|()| cluster.tls.and_then(|files| files.ca_file))
        };
        assert_eq!(with("etcds://h").unwrap(), Some("/ca".into()));
        assert_eq!(with("etcds://h?ca_file=/other").unwrap(), Some("/other".into()));
        assert!(with("etcd://h").unwrap_err().to_string().contains("write etcds://"));
        assert!(with("etcds://h?cert_file=/c").unwrap_err().to_string().contains("belong together"));
    }
}
