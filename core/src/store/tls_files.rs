//! The settings of a TLS connection, as options and addresses name them.

use std::path::PathBuf;

/// The settings of a TLS connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "redis"), allow(unreachable_pub, reason = "addresses of Redis show it"))]
pub struct TlsFiles {
    /// Certificate authorities to believe, PEM; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate chain, PEM.
    pub cert_file: Option<PathBuf>,
    /// The client's private key, PEM.
    pub key_file: Option<PathBuf>,
    /// Accept any certificate. For experiments only.
    pub insecure: bool,
    /// Accept a certificate of another host, if it is signed by a believed authority.
    pub any_name: bool,
}
