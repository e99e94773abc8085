//! A database and its servers, as an address names them.

use std::fmt;
use std::net::Ipv6Addr;

use crate::config::Secret;
use crate::store::tls::TlsFiles;

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

/// Whether there is to be TLS: in the words of libpq.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SslMode {
    /// Never.
    Disable,
    /// Where the server wants it.
    Allow,
    /// Where the server has it.
    Prefer,
    /// Always, with any certificate.
    Require,
    /// With one that a trusted authority has signed.
    VerifyCa,
    /// With one that is for this host, too.
    VerifyFull,
}

impl SslMode {
    pub(super) fn read(word: &str) -> Option<SslMode> {
        Some(match word {
            "disable" => SslMode::Disable,
            "allow" => SslMode::Allow,
            "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => return None,
        })
    }

    /// What a certificate must be good for. Authorities that are named make `require` check them, as in libpq.
    pub(super) fn checked(self, files: TlsFiles) -> TlsFiles {
        let insecure =
            files.insecure || self < SslMode::Require || (self == SslMode::Require && files.ca_file.is_none());
        TlsFiles { insecure, any_name: self != SslMode::VerifyFull, ..files }
    }
}

/// A database and how to use it. Its text forms never show the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Database {
    pub(super) hosts: Vec<Host>,
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) name: String,
    /// Whether there is to be TLS, and with which certificates.
    pub(super) ssl: SslMode,
    pub(super) tls: TlsFiles,
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
