//! The options of the Redis store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::credentials::{CredentialsSource, Provider};
use crate::config::{Notify, Options, Secret};

/// The options of a store. What the address says takes precedence.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long making a connection may take, name resolution and TLS included.
    pub connect_timeout: Duration,
    /// How long a reply may take. A slower connection is closed.
    pub request_timeout: Duration,
    /// The name that `CLIENT LIST` shows; set where the server and the user's permissions allow it.
    pub client_name: Option<String>,
    /// Certificate authorities to believe, PEM; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate chain, PEM.
    pub cert_file: Option<PathBuf>,
    /// The client's private key, PEM.
    pub key_file: Option<PathBuf>,
    /// Accept any certificate. For experiments only.
    pub tls_insecure: bool,
    /// From this many concurrent blocking callers on, they share connections, until half of them have gone: see
    /// [`SHARE_FROM`]. By default they never do.
    pub share_from: usize,
    /// How a cluster's releases are announced and heard.
    pub notify: Notify,
    /// How many replicas must confirm a grant; 0 for none.
    pub min_replicas: u32,
    /// How long the replicas may take.
    pub replica_timeout: Duration,
    /// The user that Sentinels know; `None` for their default user.
    pub sentinel_username: Option<String>,
    /// The password that Sentinels ask for.
    pub sentinel_password: Option<Secret>,
    /// Whether Sentinels are spoken to over TLS.
    pub sentinel_tls: bool,
    /// Supplies user and password of each new connection to a server, Sentinels excepted; `None` for those of the
    /// address.
    pub credentials: Option<Arc<CredentialsSource>>,
}

/// With this many threads, connections whose requests travel together are faster than one connection each, which costs
/// the server two system calls for every request. Measured with 2 to 64 threads on two processors.
pub const SHARE_FROM: usize = 8;

impl RedisOptions {
    /// What the options of a client say about servers.
    pub(crate) fn of(options: &Options) -> RedisOptions {
        RedisOptions {
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            client_name: options.label.clone(),
            ca_file: options.tls.ca_file.clone(),
            cert_file: options.tls.cert_file.clone(),
            key_file: options.tls.key_file.clone(),
            tls_insecure: options.tls.insecure,
            share_from: SHARE_FROM,
            notify: options.notify,
            min_replicas: options.min_replicas,
            replica_timeout: options.replica_timeout,
            sentinel_username: options.sentinel.username.clone(),
            sentinel_password: options.sentinel.password.clone(),
            sentinel_tls: options.sentinel.tls,
            credentials: options.credentials.as_ref().map(Provider::source),
        }
    }
}

impl Default for RedisOptions {
    fn default() -> RedisOptions {
        RedisOptions {
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(1),
            client_name: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            tls_insecure: false,
            share_from: usize::MAX,
            notify: Notify::default(),
            min_replicas: 0,
            replica_timeout: Duration::from_secs(1),
            sentinel_username: None,
            sentinel_password: None,
            sentinel_tls: false,
            credentials: None,
        }
    }
}
