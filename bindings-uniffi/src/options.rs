//! The options of clients and locks. Their values are checked by the core; here only what it cannot be given.

use std::time::Duration;

use onelock::{ClientBuilder, Owner};

use crate::credentials::Provider;
use crate::error::NativeError;
use crate::words::{Grade, Notify};

/// Milliseconds of an option.
pub(crate) fn span(ms: i64, name: &str, tried: &str) -> Result<Duration, NativeError> {
    let ms = u64::try_from(ms).map_err(|_| NativeError::invalid(tried, format!("{name} is negative")))?;
    Ok(Duration::from_millis(ms))
}

/// How many.
pub(crate) fn count(number: i32, name: &str, tried: &str) -> Result<u32, NativeError> {
    u32::try_from(number).map_err(|_| NativeError::invalid(tried, format!("{name} is negative")))
}

/// The options of a client. Those that are not set have the core's defaults.
#[derive(Default, uniffi::Record)]
pub struct NativeClientOptions {
    // written by tools/options.py: client
    pub ttl_ms: Option<i64>,
    pub auto_renew: Option<bool>,
    pub min_hold_ms: Option<i64>,
    pub max_hold_ms: Option<i64>,
    pub lock_delay_ms: Option<i64>,
    pub min_validity_ms: Option<i64>,
    pub fencing: Option<bool>,
    pub drift_factor: Option<f64>,
    pub prefix: Option<Vec<u8>>,
    pub min_fencing_grade: Option<Grade>,
    pub label: Option<String>,
    pub inspectable: Option<bool>,
    pub accepted_warnings: Option<String>,
    pub connect_timeout_ms: Option<i64>,
    pub request_timeout_ms: Option<i64>,
    pub close_timeout_ms: Option<i64>,
    pub unreachable_limit_ms: Option<i64>,
    /// The number of a function that the other language keeps.
    pub credentials: Option<i64>,
    pub ca_file: Option<String>,
    pub cert_file: Option<String>,
    pub key_file: Option<String>,
    pub tls_insecure: Option<bool>,
    pub notify: Option<Notify>,
    pub min_replicas: Option<i32>,
    pub replica_timeout_ms: Option<i64>,
    pub sentinel_username: Option<String>,
    pub sentinel_password: Option<String>,
    pub sentinel_tls: Option<bool>,
    pub node_timeout_ms: Option<i64>,
    pub quarantine_ms: Option<i64>,
    // end of client
}

const CLIENT: &str = "make a client";

impl NativeClientOptions {
    pub(crate) fn builder(self) -> Result<ClientBuilder, NativeError> {
        let mut builder = onelock::Client::builder();
        // written by tools/options.py: setters of a client
        if let Some(ms) = self.ttl_ms {
            builder = builder.ttl(span(ms, "ttl", CLIENT)?);
        }
        if let Some(value) = self.auto_renew {
            builder = builder.auto_renew(value);
        }
        if let Some(ms) = self.min_hold_ms {
            builder = builder.min_hold(span(ms, "min_hold", CLIENT)?);
        }
        if let Some(ms) = self.max_hold_ms {
            builder = builder.max_hold(span(ms, "max_hold", CLIENT)?);
        }
        if let Some(ms) = self.lock_delay_ms {
            builder = builder.lock_delay(span(ms, "lock_delay", CLIENT)?);
        }
        if let Some(ms) = self.min_validity_ms {
            builder = builder.min_validity(span(ms, "min_validity", CLIENT)?);
        }
        if let Some(value) = self.fencing {
            builder = builder.fencing(value);
        }
        if let Some(value) = self.drift_factor {
            builder = builder.drift_factor(value);
        }
        if let Some(value) = self.prefix {
            builder = builder.prefix(&value[..]);
        }
        if let Some(value) = self.min_fencing_grade {
            builder = builder.min_fencing_grade(value.into());
        }
        if let Some(value) = self.label {
            builder = builder.label(value);
        }
        if let Some(value) = self.inspectable {
            builder = builder.inspectable(value);
        }
        if let Some(value) = self.accepted_warnings {
            builder = builder.accepted_warnings(value);
        }
        if let Some(ms) = self.connect_timeout_ms {
            builder = builder.connect_timeout(span(ms, "connect_timeout", CLIENT)?);
        }
        if let Some(ms) = self.request_timeout_ms {
            builder = builder.request_timeout(span(ms, "request_timeout", CLIENT)?);
        }
        if let Some(ms) = self.close_timeout_ms {
            builder = builder.close_timeout(span(ms, "close_timeout", CLIENT)?);
        }
        if let Some(ms) = self.unreachable_limit_ms {
            builder = builder.unreachable_limit(span(ms, "unreachable_limit", CLIENT)?);
        }
        if let Some(number) = self.credentials {
            builder = builder.credentials(Provider(number));
        }
        if let Some(value) = self.ca_file {
            builder = builder.ca_file(value);
        }
        match (self.cert_file, self.key_file) {
            (None, None) => {}
            (Some(cert), Some(key)) => builder = builder.client_certificate(cert, key),
            _ => return Err(NativeError::invalid(CLIENT, "cert_file and key_file belong together")),
        }
        if let Some(value) = self.tls_insecure {
            builder = builder.tls_insecure(value);
        }
        if let Some(value) = self.notify {
            builder = builder.notify(value.into());
        }
        if let Some(number) = self.min_replicas {
            builder = builder.min_replicas(count(number, "min_replicas", CLIENT)?);
        }
        if let Some(ms) = self.replica_timeout_ms {
            builder = builder.replica_timeout(span(ms, "replica_timeout", CLIENT)?);
        }
        if let Some(value) = self.sentinel_username {
            builder = builder.sentinel_username(value);
        }
        if let Some(value) = self.sentinel_password {
            builder = builder.sentinel_password(value);
        }
        if let Some(value) = self.sentinel_tls {
            builder = builder.sentinel_tls(value);
        }
        if let Some(ms) = self.node_timeout_ms {
            builder = builder.node_timeout(span(ms, "node_timeout", CLIENT)?);
        }
        if let Some(ms) = self.quarantine_ms {
            builder = builder.quarantine(span(ms, "quarantine", CLIENT)?);
        }
        // end of setters of a client
        Ok(builder)
    }
}

/// The options of a lock. Those that are not set have the client's values.
#[derive(Default, uniffi::Record)]
pub struct NativeLockOptions {
    // written by tools/options.py: lock
    pub ttl_ms: Option<i64>,
    pub auto_renew: Option<bool>,
    pub min_hold_ms: Option<i64>,
    pub max_hold_ms: Option<i64>,
    pub lock_delay_ms: Option<i64>,
    pub min_validity_ms: Option<i64>,
    pub fencing: Option<bool>,
    // end of lock
    pub renew_every_ms: Option<i64>,
    pub owner: Option<String>,
    /// How many permits a semaphore has, and how many an acquire takes.
    pub total_permits: Option<i32>,
    pub count: Option<i32>,
}

const LOCK: &str = "make a lock";

/// Sets them on a blocking or an async lock.
macro_rules! apply {
    ($options:expr, $lock:expr) => {{
        let (options, mut lock) = ($options, $lock);
        // written by tools/options.py: setters of a lock
        if let Some(ms) = options.ttl_ms {
            lock = lock.ttl(span(ms, "ttl", LOCK)?);
        }
        if let Some(value) = options.auto_renew {
            lock = lock.auto_renew(value);
        }
        if let Some(ms) = options.min_hold_ms {
            lock = lock.min_hold(span(ms, "min_hold", LOCK)?);
        }
        if let Some(ms) = options.max_hold_ms {
            lock = lock.max_hold(span(ms, "max_hold", LOCK)?);
        }
        if let Some(ms) = options.lock_delay_ms {
            lock = lock.lock_delay(span(ms, "lock_delay", LOCK)?);
        }
        if let Some(ms) = options.min_validity_ms {
            lock = lock.min_validity(span(ms, "min_validity", LOCK)?);
        }
        if let Some(value) = options.fencing {
            lock = lock.fencing(value);
        }
        // end of setters of a lock
        if let Some(ms) = options.renew_every_ms {
            lock = lock.renew_every(span(ms, "renew_every", LOCK)?);
        }
        if let Some(name) = &options.owner {
            lock = lock.owner(&Owner::named(name));
        }
        if let Some(number) = options.total_permits {
            lock = lock.total_permits(count(number, "total_permits", LOCK)?);
        }
        if let Some(number) = options.count {
            lock = lock.count(count(number, "count", LOCK)?);
        }
        Ok(lock)
    }};
}

impl NativeLockOptions {
    pub(crate) fn apply(&self, lock: onelock::blocking::Lock) -> Result<onelock::blocking::Lock, NativeError> {
        apply!(self, lock)
    }

    pub(crate) fn apply_async(&self, lock: onelock::Lock) -> Result<onelock::Lock, NativeError> {
        apply!(self, lock)
    }
}
