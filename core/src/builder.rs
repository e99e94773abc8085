//! The options of a client: set one after the other, then the address.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Client, Shared};
use crate::machine::Grade;
use crate::options::{Options, TlsOptions};
use crate::{Error, blocking};

/// The options of a client. Every duration is checked when the client is made.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
/// let client = onelock::Client::builder()
///     .prefix("shop:")
///     .ttl(Duration::from_secs(10))
///     .label("checkout")
///     .inspectable(true)
///     .connect("memory://")
///     .await?;
/// let lease = client.lock("orders:42").acquire().await?;
/// let seen = client.inspect("orders:42").await?.unwrap();
/// assert_eq!(seen.owner.unwrap().label, "checkout");
/// # lease.release().await?; Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClientBuilder {
    options: Options,
}

impl ClientBuilder {
    /// Put before every name, once; any bytes, 512 at most. Default: nothing.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.options.prefix = prefix.as_ref().to_vec();
        self
    }

    /// Length of a lease, 10 ms to one year. Default: 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        Arc::make_mut(&mut self.options.terms).ttl = ttl;
        self
    }

    /// Whether leases are renewed in the background. Default: true.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        Arc::make_mut(&mut self.options.terms).auto_renew = auto_renew;
        self
    }

    /// After this long a lease is lost however healthy. Default: no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        Arc::make_mut(&mut self.options.terms).max_hold = Some(max_hold);
        self
    }

    /// The share of the ttl that clocks may run apart, 0 to 0.5. Default: 0.01 (and 2 ms on top).
    pub fn drift_factor(mut self, drift_factor: f64) -> Self {
        Arc::make_mut(&mut self.options.terms).drift_factor = drift_factor;
        self
    }

    /// How much longer than the lease a key lives on the server. Default: none.
    pub fn lock_delay(mut self, lock_delay: Duration) -> Self {
        Arc::make_mut(&mut self.options.terms).lock_delay = lock_delay;
        self
    }

    /// A grant that arrives with less than this left is not a grant. Default: none.
    pub fn min_validity(mut self, min_validity: Duration) -> Self {
        Arc::make_mut(&mut self.options.terms).min_validity = min_validity;
        self
    }

    /// Whether grants carry fencing tokens. Default: true.
    pub fn fencing(mut self, fencing: bool) -> Self {
        self.options.fencing = fencing;
        self
    }

    /// Refuse to connect to a server whose fencing tokens are weaker than this. Default: [`Grade::None`].
    pub fn min_fencing_grade(mut self, grade: Grade) -> Self {
        self.options.min_fencing_grade = grade;
        self
    }

    /// Time limit of making a connection. Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// Time limit of one request. Default: 1 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.options.request_timeout = timeout;
        self
    }

    /// Time limit of [`Client::close`]. Default: 1 s.
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.options.close_timeout = timeout;
        self
    }

    /// How long an acquire without a bound puts up with a server that cannot be reached. Default: 30 s.
    pub fn unreachable_limit(mut self, limit: Duration) -> Self {
        self.options.unreachable_limit = limit;
        self
    }

    /// Free text that names this client in `CLIENT LIST` and in inspection; 128 bytes at most.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.options.label = Some(label.into());
        self
    }

    /// Whether holds carry label, process id, host and time for [`Client::inspect`]. Default: false.
    pub fn inspectable(mut self, inspectable: bool) -> Self {
        self.options.inspectable = inspectable;
        self
    }

    /// Certificates of the authorities to believe, PEM, for `rediss://`. Default: the system's.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.tls.ca_file = Some(path.into());
        self
    }

    /// This client's certificate and private key, PEM, for servers that ask for one.
    pub fn client_certificate(mut self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        let TlsOptions { cert_file: cert, key_file: key, .. } = &mut self.options.tls;
        *cert = Some(cert_file.into());
        *key = Some(key_file.into());
        self
    }

    /// Believe any certificate. Only for experiments; says so in a warning.
    pub fn tls_insecure(mut self, insecure: bool) -> Self {
        self.options.tls.insecure = insecure;
        self
    }

    /// A client that connects when it is first used; see [`Client::new`].
    ///
    /// # Errors
    /// `InvalidArgument` names the option or the part of the address that is wrong.
    pub fn build(self, url: &str) -> Result<Client, Error> {
        Ok(Client::from_shared(Arc::new(Shared::new(url, self.options, false)?)))
    }

    /// A client that is connected and checked; see [`Client::connect`].
    ///
    /// # Errors
    /// As [`Client::connect`]; `Unsupported` when the server's fencing grade is below the demanded one.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let client = self.build(url)?;
        client.check().await?;
        Ok(client)
    }

    /// The same for callers without a runtime; see [`blocking::Client::new`](crate::blocking::Client::new).
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn build_blocking(self, url: &str) -> Result<blocking::Client, Error> {
        Ok(blocking::Client::from_shared(Arc::new(Shared::new(url, self.options, true)?)))
    }

    /// The same for callers without a runtime; see [`blocking::Client::connect`](crate::blocking::Client::connect).
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub fn connect_blocking(self, url: &str) -> Result<blocking::Client, Error> {
        let client = self.build_blocking(url)?;
        client.check()?;
        Ok(client)
    }
}
