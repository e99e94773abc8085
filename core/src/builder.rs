//! The options of a client: set one after the other, then the address.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(not(target_family = "wasm"))]
use crate::blocking;
use crate::client::{Client, ClientState};
use crate::config::credentials::{CredentialsProvider, Provider};
use crate::config::{Notify, Secret};
use crate::config::{Options, TlsOptions};
use crate::exit::EngineSet;
use crate::machine::Grade;
use crate::store::SharedStore;
use crate::{Error, address};

/// The options of a client, from [`Client::builder`]. All are checked when the client is made, before any I/O.
///
/// Those about leases (`ttl`, `auto_renew`, `min_hold`, `max_hold`, `lock_delay`, `min_validity`, `fencing`) are defaults
/// for the locks made from it, and can be set on each [`Lock`](crate::Lock) too. No duration may be above one year.
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
    /// Put before every name, once: any bytes, at most 512 bytes. Default: none.
    ///
    /// Keeps the locks of several programs on one server apart, and lets an access rule name them.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.options.prefix = prefix.as_ref().to_vec();
        self
    }

    /// The length of a lease, 10 ms to one year. Default: 30 s.
    ///
    /// With renewal this is how long others wait after a crash of the holder, and how long it survives without a server;
    /// the work may take longer.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        Arc::make_mut(&mut self.options.terms).ttl = ttl;
        self
    }

    /// Whether leases are renewed in the background, every third of the ttl, until they are released. Default: true.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        Arc::make_mut(&mut self.options.terms).auto_renew = auto_renew;
        self
    }

    /// How long a lease may be held at most. After that it is no longer renewed, and lost with
    /// [`LossReason::MaxHold`](crate::LossReason::MaxHold). At least 1 ms. Default: no limit.
    ///
    /// Bounds a holder that hangs: renewal runs in the background and would go on for ever.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        Arc::make_mut(&mut self.options.terms).max_hold = Some(max_hold);
        self
    }

    /// How long a lock stays taken at least, counted from the start of the hold and at most the ttl. Default: 0.
    ///
    /// A lease that is released earlier, in whatever way, keeps the key for the rest of that time, held by nobody.
    /// For jobs of which only one machine of many is to run each tick, although their clocks differ: see
    /// [`Lock::try_acquire`](crate::Lock::try_acquire). [`Client::force_release`](crate::Client::force_release) ends it.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        Arc::make_mut(&mut self.options.terms).min_hold = min_hold;
        self
    }

    /// The share of the ttl by which the clocks of server and holder may run apart, 0 to 0.5. Default: 0.01.
    ///
    /// The holder believes in its lease for that much less than the ttl, and 2 ms on top.
    pub fn drift_factor(mut self, drift_factor: f64) -> Self {
        Arc::make_mut(&mut self.options.terms).drift_factor = drift_factor;
        self
    }

    /// How much longer than the lease a key lives on the server. Default: 0.
    ///
    /// After an unclean end the next holder waits that much longer, which gives late writes of the old one time to
    /// arrive. A clean release is not delayed.
    pub fn lock_delay(mut self, lock_delay: Duration) -> Self {
        Arc::make_mut(&mut self.options.terms).lock_delay = lock_delay;
        self
    }

    /// How much of a lease must be left when its grant arrives. Default: 0.
    ///
    /// A grant that comes with less, over a slow network, is released, and waiting goes on. Less than the ttl.
    pub fn min_validity(mut self, min_validity: Duration) -> Self {
        Arc::make_mut(&mut self.options.terms).min_validity = min_validity;
        self
    }

    /// Whether grants carry fencing tokens; see [`Lease::fencing_token`](crate::Lease::fencing_token). Default: true.
    ///
    /// They cost no round trip, but one more key for each name, which lives for seven days.
    pub fn fencing(mut self, fencing: bool) -> Self {
        self.options.fencing = fencing;
        self
    }

    /// How strong the server's fencing tokens must be: connecting to a weaker one is refused with `Unsupported`. Default:
    /// [`Grade::None`], any server.
    pub fn min_fencing_grade(mut self, grade: Grade) -> Self {
        self.options.min_fencing_grade = grade;
        self
    }

    /// Redlock: how long one server may take for one request before it counts as absent. At least 1 ms, at most the
    /// `request_timeout`. Default: 200 ms.
    ///
    /// Far below the ttl: a server that is down then costs little of the lease. In an address: `node_timeout_ms`.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.options.node_timeout = timeout;
        self
    }

    /// Redlock: how long a server that was restarted without its data (no append-only file) does not vote. Zero switches
    /// it off. Default: twice the ttl, at least 60 s.
    ///
    /// It has forgotten who holds what: as long as such a lease may last, it would help to give the lock to a second
    /// holder. Must be longer than any lease on these servers. In an address: `quarantine_ms`.
    pub fn quarantine(mut self, quarantine: Duration) -> Self {
        self.options.quarantine = Some(quarantine);
        self
    }

    /// Time limit of making a connection, name resolution and TLS included. At least 1 ms. Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// Time limit of one request. A connection that is slower is given up. At least 1 ms. Default: 1 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.options.request_timeout = timeout;
        self
    }

    /// Time limit of [`Client::close`]. At least 1 ms. Default: 1 s.
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.options.close_timeout = timeout;
        self
    }

    /// How long an acquire without a bound puts up with a server that cannot be reached, before it says `Unavailable`.
    /// At least 1 ms. Default: 30 s.
    ///
    /// An acquire with a bound tries until its wait is used up.
    pub fn unreachable_limit(mut self, limit: Duration) -> Self {
        self.options.unreachable_limit = limit;
        self
    }

    /// Free text that names this client in the server's `CLIENT LIST` and in inspection; at most 128 bytes, no control
    /// characters. Default: none.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.options.label = Some(label.into());
        self
    }

    /// Whether holds tell label, process id, host and time to [`Client::inspect`]. Default: false.
    ///
    /// Everybody who may read the key can read them.
    pub fn inspectable(mut self, inspectable: bool) -> Self {
        self.options.inspectable = inspectable;
        self
    }

    /// A file with the certificates of the authorities to believe, PEM, for `rediss://`. Default: the system's.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.tls.ca_file = Some(path.into());
        self
    }

    /// Files with this client's certificate and private key, PEM, for servers that ask for one. Default: none.
    pub fn client_certificate(mut self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        let TlsOptions { cert_file: cert, key_file: key, .. } = &mut self.options.tls;
        *cert = Some(cert_file.into());
        *key = Some(key_file.into());
        self
    }

    /// Whether to accept any certificate. For experiments only: anybody in between can read and take locks. Logs a
    /// warning. Default: false.
    pub fn tls_insecure(mut self, insecure: bool) -> Self {
        self.options.tls.insecure = insecure;
        self
    }

    /// How many replicas must confirm a grant before it counts, with `WAIT`. Default: 0, none.
    ///
    /// A grant that fewer confirm within [`replica_timeout`](Self::replica_timeout) is released, and waiting goes on. It
    /// makes the loss of a lock in a failover less likely and does not exclude it; each grant takes one more round trip.
    /// Without effect on a server that has no `WAIT`, which is said in a warning. Redlock and `memory://` have no replicas that
    /// could confirm anything: there it is `Unsupported`.
    pub fn min_replicas(mut self, count: u32) -> Self {
        self.options.min_replicas = count;
        self
    }

    /// How long replicas may take to confirm a grant. At least 1 ms. Default: 1 s.
    pub fn replica_timeout(mut self, timeout: Duration) -> Self {
        self.options.replica_timeout = timeout;
        self
    }

    /// How releases of locks in a cluster are announced and heard. Default: [`Notify::Auto`].
    pub fn notify(mut self, notify: Notify) -> Self {
        self.options.notify = notify;
        self
    }

    /// Warnings about the server that are not to be logged: their names, which stand in brackets behind each, separated by
    /// spaces or commas. Default: none.
    ///
    /// There are `eviction`, `replicas`, `slots`, `unknown`, `absent` (logged as warnings) and `persistence`, `even` (for
    /// information). [`Client::check`](crate::Client::check) tells all of them whatever is accepted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// let client = onelock::Client::builder().accepted_warnings("persistence replicas").connect("memory://").await?;
    /// assert!(client.check().await?.dangers.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn accepted_warnings(mut self, names: impl Into<String>) -> Self {
        self.options.accepted_warnings = names.into();
        self
    }

    /// Who gives user name and password of each new connection: for services whose passwords are tokens that end after a
    /// while. Default: what the address says, which is an error beside a provider.
    ///
    /// It is asked anew for every connection to a server, and never for one that is open: for reconnections, each node of a
    /// cluster, the master of a group (Sentinels have [`sentinel_password`](Self::sentinel_password)), each server of
    /// Redlock; and once more when the server refuses what it gave, since that may have been replaced meanwhile. Not for
    /// `memory://`. It is called on a thread of its own, where it may block, by up to 16 at a time, and has
    /// the rest of the `connect_timeout` for its answer. When it fails, panics or is late, the connection is not made: the
    /// call says `Unavailable` with the reason, and the next connection asks again. What it gives is not kept and never shown.
    ///
    /// ```
    /// use onelock::{Client, Credentials};
    ///
    /// fn token() -> Result<Credentials, std::io::Error> {
    ///     Ok(Credentials::new("billing", std::fs::read_to_string("/run/secrets/token")?.trim()))
    /// }
    ///
    /// let client = Client::builder().credentials(token).build("redis://127.0.0.1:6379").unwrap();
    /// let error = Client::builder().credentials(token).build("redis://billing:old@127.0.0.1:6379").unwrap_err();
    /// assert_eq!(error.kind(), onelock::ErrorKind::InvalidArgument);
    /// ```
    pub fn credentials(mut self, provider: impl CredentialsProvider) -> Self {
        self.options.credentials = Some(Provider::new(provider));
        self
    }

    /// The user that Sentinels know, if they have users of their own. Default: their default user.
    pub fn sentinel_username(mut self, username: impl Into<String>) -> Self {
        self.options.sentinel.username = Some(username.into());
        self
    }

    /// The password that Sentinels ask for; the one in the address is the master's. Default: none.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.options.sentinel.password = Some(Secret::new(password));
        self
    }

    /// Whether Sentinels are spoken to over TLS, with the same certificate files; `rediss+sentinel://` is about the
    /// master. Default: false.
    pub fn sentinel_tls(mut self, tls: bool) -> Self {
        self.options.sentinel.tls = tls;
        self
    }

    /// Makes a client that connects when it is first used; see [`Client::new`].
    ///
    /// # Errors
    /// `InvalidArgument` names the option or the part of the address that is wrong, `Unsupported` the option that the store
    /// lacks.
    pub fn build(self, url: &str) -> Result<Client, Error> {
        Ok(Client::from_shared(Arc::new(ClientState::new(url, self.options, false)?)))
    }

    /// The store at `url` alone, with these options and without a client: for tests of stores.
    #[doc(hidden)]
    pub fn open_store(self, url: &str) -> Result<SharedStore, Error> {
        self.options.check()?;
        let address = address::read(url, &self.options)?;
        address.capabilities().check_client(&self.options)?;
        Ok(address.open(&self.options))
    }

    /// Makes a client whose engine is added to a set; see [`runtime::ClientGroup`](crate::runtime::ClientGroup).
    pub(crate) fn build_in(self, group: Arc<EngineSet>, url: &str) -> Result<Client, Error> {
        Ok(Client::from_shared(Arc::new(ClientState::new(url, self.options, false)?.in_group(group))))
    }

    /// Makes a client that is connected and checked; see [`Client::connect`].
    ///
    /// # Errors
    /// As [`Client::connect`]; `Unsupported` when the server's fencing grade is below the demanded one.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        let client = self.build(url)?;
        client.check().await?;
        Ok(client)
    }

    #[cfg(not(target_family = "wasm"))]
    /// Makes a client for threads that connects when it is first used; see [`blocking::Client::new`].
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn build_blocking(self, url: &str) -> Result<blocking::Client, Error> {
        Ok(blocking::Client::from_shared(Arc::new(ClientState::new(url, self.options, true)?)))
    }

    #[cfg(not(target_family = "wasm"))]
    /// Makes a client for threads that is connected and checked; see [`blocking::Client::connect`].
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`]; `Unsupported` inside an async runtime.
    ///
    /// ```
    /// # fn main() -> Result<(), onelock::Error> {
    /// let client = onelock::blocking::Client::builder().prefix("shop:").connect_blocking("memory://")?;
    /// # client.close(); Ok(()) }
    /// ```
    pub fn connect_blocking(self, url: &str) -> Result<blocking::Client, Error> {
        let client = self.build_blocking(url)?;
        client.check()?;
        Ok(client)
    }

    /// Makes a client of several independent servers (Redlock), each with a complete address of its own; it connects when
    /// it is first used. The same as these addresses in one string, separated by spaces.
    ///
    /// 1 to 9 servers, better an odd number. Each address is one server's: `redis://`, `rediss://`, `unix://` ..., or one
    /// database's (`postgres://`, cargo feature `postgres`), also side by side.
    ///
    /// # Errors
    /// `InvalidArgument` when the list is empty, too long, or names a server twice, and as [`ClientBuilder::build`].
    ///
    /// ```
    /// let client = onelock::Client::builder().build_nodes(["redis://h1", "redis://h2", "rediss://h3:6380"]).unwrap();
    /// let error = onelock::Client::builder().build_nodes(["redis://h1", "redis://h1"]).unwrap_err();
    /// assert_eq!(error.kind(), onelock::ErrorKind::InvalidArgument);
    /// ```
    pub fn build_nodes<U: AsRef<str>>(self, urls: impl IntoIterator<Item = U>) -> Result<Client, Error> {
        Ok(Client::from_shared(Arc::new(ClientState::of_nodes(urls, self.options, false)?)))
    }

    /// Makes a client of several independent servers (Redlock) that is connected and checked; see
    /// [`ClientBuilder::build_nodes`].
    ///
    /// # Errors
    /// As [`ClientBuilder::build_nodes`] and [`ClientBuilder::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// let urls = ["redis://h1:6379", "redis://h2:6379", "redis://h3:6379"];
    /// let client = onelock::Client::builder().connect_nodes(urls).await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect_nodes<U: AsRef<str>>(self, urls: impl IntoIterator<Item = U>) -> Result<Client, Error> {
        let client = self.build_nodes(urls)?;
        client.check().await?;
        Ok(client)
    }

    #[cfg(not(target_family = "wasm"))]
    /// Makes a client for threads of several independent servers (Redlock) that connects when it is first used; see
    /// [`ClientBuilder::build_nodes`].
    ///
    /// # Errors
    /// As [`ClientBuilder::build_nodes`].
    pub fn build_nodes_blocking<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<blocking::Client, Error> {
        Ok(blocking::Client::from_shared(Arc::new(ClientState::of_nodes(urls, self.options, true)?)))
    }

    #[cfg(not(target_family = "wasm"))]
    /// Makes a client for threads of several independent servers (Redlock) that is connected and checked; see
    /// [`ClientBuilder::build_nodes`].
    ///
    /// # Errors
    /// As [`ClientBuilder::connect_nodes`]; `Unsupported` inside an async runtime.
    pub fn connect_nodes_blocking<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<blocking::Client, Error> {
        let client = self.build_nodes_blocking(urls)?;
        client.check()?;
        Ok(client)
    }
}
