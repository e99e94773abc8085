//! A cluster of etcd and how to use it, as an address names it.

use std::fmt;
use std::net::Ipv6Addr;

use crate::config::Secret;
use crate::store::tls::TlsFiles;

/// Where a member listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberHost {
    pub(super) name: String,
    pub(super) port: u16,
}

impl fmt::Display for MemberHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.parse::<Ipv6Addr>().is_ok() {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// A cluster and how to use it. Its text forms never show the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cluster {
    pub(super) hosts: Vec<MemberHost>,
    /// Empty for none.
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    /// `None` for no TLS.
    pub(super) tls: Option<TlsFiles>,
    /// What every key begins with.
    pub(super) namespace: Vec<u8>,
    /// Whether `/` and `%` in a name are escaped.
    pub(super) escapes: bool,
    /// What is added to the revision that is the fencing token.
    pub(super) fence_base: u64,
}

impl Cluster {
    pub(super) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "etcds" } else { "etcd" }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        write!(f, "{}://{}", self.scheme(), hosts.join(","))?;
        if self.namespace.is_empty() { Ok(()) } else { write!(f, "/{}", self.namespace.escape_ascii()) }
    }
}
