//! A database and its servers, as an address names them.

use std::fmt;
use std::net::Ipv6Addr;

use crate::config::Secret;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Tcp(String, u16),
    /// The folder of its socket, and the port that the socket is named after.
    Socket(String, u16),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Tcp(host, port) if host.parse::<Ipv6Addr>().is_ok() => write!(f, "[{host}]:{port}"),
            Host::Tcp(host, port) => write!(f, "{host}:{port}"),
            Host::Socket(folder, port) => write!(f, "{folder}/.s.PGSQL.{port}"),
        }
    }
}

/// A database and how to use it. Its text forms never show the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Database {
    pub(super) hosts: Vec<Host>,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) name: String,
    /// The table of locks, quoted.
    pub(super) table: String,
    /// Whether a missing table is made.
    pub(super) makes_table: bool,
    /// Whether releases are listened for.
    pub(super) listens: bool,
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        write!(f, "postgres://{}/{}", hosts.join(","), self.name)
    }
}
