//! The options of a client, set one by one.

use std::ffi::c_char;
use std::sync::Arc;

use arc_swap::ArcSwap;
use onelock::ClientBuilder;

use crate::boundary::{expose, free, live, status, value};
use crate::error::{Failure, onelock_error};
use crate::names::{duration, grade};
use crate::object::exposed;
use crate::status::{ONELOCK_OK, onelock_status};
use crate::text::{bytes, text};

/// The options of a client. What is not set has its default.
pub struct onelock_client_options {
    _private: [u8; 0],
}

/// Setters replace the whole, so that two threads (or a fork between) do no harm.
pub(crate) struct ClientOptions(ArcSwap<ClientBuilder>);

exposed!(ClientOptions, ClientOptions, onelock_client_options, "client_options");

impl ClientOptions {
    pub(crate) fn builder(&self) -> ClientBuilder {
        (**self.0.load()).clone()
    }
}

pub(crate) fn set(
    options: *mut onelock_client_options,
    error: *mut *mut onelock_error,
    tried: &str,
    change: impl FnOnce() -> Result<Box<dyn Fn(ClientBuilder) -> ClientBuilder>, Failure>,
) -> onelock_status {
    status(error, tried, || {
        let options = live::<ClientOptions>(options, tried)?;
        let change = change()?;
        options.0.rcu(|builder| Arc::new(change((**builder).clone())));
        Ok(ONELOCK_OK)
    })
}

/// All options at their defaults. `NULL` when there is no room for another handle. Free them with
/// `onelock_client_options_free`; clients that were made with them keep them.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_client_options_new() -> *mut onelock_client_options {
    value(std::ptr::null_mut(), || {
        expose(ClientOptions(ArcSwap::from_pointee(ClientBuilder::default())), "make options").ok()
    })
}

/// Frees the options. NULL and dead handles are left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_free(options: *mut onelock_client_options) {
    free::<ClientOptions>(options, |_| ());
}

/// Put before every name, once; any bytes, 512 at most. Default: nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_prefix(
    options: *mut onelock_client_options,
    prefix: *const c_char,
    prefix_length: usize,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set prefix", || {
        let prefix = bytes(prefix, prefix_length, "prefix", "set prefix")?.to_owned();
        Ok(Box::new(move |builder| builder.prefix(&prefix)))
    })
}

/// Length of a lease, 10 ms to one year. Default: 30 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_ttl(
    options: *mut onelock_client_options,
    ttl_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set ttl", || {
        let ttl = duration(ttl_ms, "ttl_ms", "set ttl")?;
        Ok(Box::new(move |builder| builder.ttl(ttl)))
    })
}

/// Whether leases are renewed in the background. Default: true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_auto_renew(
    options: *mut onelock_client_options,
    auto_renew: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set auto_renew", || Ok(Box::new(move |builder| builder.auto_renew(auto_renew))))
}

/// How long a lock stays taken at least, counted from the start of the hold and at most the ttl: a lease that is given
/// back earlier leaves the key standing for the rest. Default: 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_min_hold(
    options: *mut onelock_client_options,
    min_hold_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set min_hold", || {
        let min_hold = duration(min_hold_ms, "min_hold_ms", "set min_hold")?;
        Ok(Box::new(move |builder| builder.min_hold(min_hold)))
    })
}

/// After this long a lease is lost however healthy. Default: no limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_max_hold(
    options: *mut onelock_client_options,
    max_hold_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set max_hold", || {
        let max_hold = duration(max_hold_ms, "max_hold_ms", "set max_hold")?;
        Ok(Box::new(move |builder| builder.max_hold(max_hold)))
    })
}

/// The share of the ttl that clocks may run apart, 0 to 0.5. Default: 0.01 (and 2 ms on top).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_drift_factor(
    options: *mut onelock_client_options,
    drift_factor: f64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set drift_factor", || Ok(Box::new(move |builder| builder.drift_factor(drift_factor))))
}

/// How much longer than the lease a key lives on the server: after an unclean end the next holder waits that much
/// longer. Default: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_lock_delay(
    options: *mut onelock_client_options,
    lock_delay_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set lock_delay", || {
        let lock_delay = duration(lock_delay_ms, "lock_delay_ms", "set lock_delay")?;
        Ok(Box::new(move |builder| builder.lock_delay(lock_delay)))
    })
}

/// A grant that arrives with less than this left is not a grant. Default: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_min_validity(
    options: *mut onelock_client_options,
    min_validity_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set min_validity", || {
        let min_validity = duration(min_validity_ms, "min_validity_ms", "set min_validity")?;
        Ok(Box::new(move |builder| builder.min_validity(min_validity)))
    })
}

/// Whether grants carry fencing tokens. Default: true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_fencing(
    options: *mut onelock_client_options,
    fencing: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set fencing", || Ok(Box::new(move |builder| builder.fencing(fencing))))
}

/// Refuse to connect to a server whose fencing tokens are weaker than this `ONELOCK_GRADE_`. Default:
/// `ONELOCK_GRADE_NONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_min_fencing_grade(
    options: *mut onelock_client_options,
    min_grade: u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set min_fencing_grade", || {
        let min_grade = grade(min_grade, "set min_fencing_grade")?;
        Ok(Box::new(move |builder| builder.min_fencing_grade(min_grade)))
    })
}

/// Time limit of making a connection. Default: 2 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_connect_timeout(
    options: *mut onelock_client_options,
    connect_timeout_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set connect_timeout", || {
        let connect_timeout = duration(connect_timeout_ms, "connect_timeout_ms", "set connect_timeout")?;
        Ok(Box::new(move |builder| builder.connect_timeout(connect_timeout)))
    })
}

/// Time limit of one request. Default: 1 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_request_timeout(
    options: *mut onelock_client_options,
    request_timeout_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set request_timeout", || {
        let request_timeout = duration(request_timeout_ms, "request_timeout_ms", "set request_timeout")?;
        Ok(Box::new(move |builder| builder.request_timeout(request_timeout)))
    })
}

/// Time limit of `onelock_client_close`. Default: 1 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_close_timeout(
    options: *mut onelock_client_options,
    close_timeout_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set close_timeout", || {
        let close_timeout = duration(close_timeout_ms, "close_timeout_ms", "set close_timeout")?;
        Ok(Box::new(move |builder| builder.close_timeout(close_timeout)))
    })
}

/// How long an acquire without a limit puts up with a server that cannot be reached. Default: 30 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_unreachable_limit(
    options: *mut onelock_client_options,
    unreachable_limit_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set unreachable_limit", || {
        let unreachable_limit = duration(unreachable_limit_ms, "unreachable_limit_ms", "set unreachable_limit")?;
        Ok(Box::new(move |builder| builder.unreachable_limit(unreachable_limit)))
    })
}

/// Free text that names this client in `CLIENT LIST` and in inspection; 128 bytes at most. Default: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_label(
    options: *mut onelock_client_options,
    label: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set label", || {
        let label = text(label, "label", "set label")?.to_owned();
        Ok(Box::new(move |builder| builder.label(&label)))
    })
}

/// Whether holds carry label, process id, host and time for `onelock_client_inspect`. Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_inspectable(
    options: *mut onelock_client_options,
    inspectable: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set inspectable", || Ok(Box::new(move |builder| builder.inspectable(inspectable))))
}

/// Path of the certificates of the authorities to believe, PEM, for `rediss://`. Default: the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_ca_file(
    options: *mut onelock_client_options,
    ca_file: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set ca_file", || {
        let ca_file = text(ca_file, "ca_file", "set ca_file")?.to_owned();
        Ok(Box::new(move |builder| builder.ca_file(&ca_file)))
    })
}

/// Paths of this client's certificate and private key, PEM, for servers that ask for one. Default: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_client_certificate(
    options: *mut onelock_client_options,
    cert_file: *const c_char,
    key_file: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set client_certificate", || {
        let cert_file = text(cert_file, "cert_file", "set client_certificate")?.to_owned();
        let key_file = text(key_file, "key_file", "set client_certificate")?.to_owned();
        Ok(Box::new(move |builder| builder.client_certificate(&cert_file, &key_file)))
    })
}

/// Believe any certificate. Only for experiments; says so in a warning. Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_tls_insecure(
    options: *mut onelock_client_options,
    tls_insecure: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set tls_insecure", || Ok(Box::new(move |builder| builder.tls_insecure(tls_insecure))))
}

/// How releases of locks in a cluster are announced and heard: an `ONELOCK_NOTIFY_`. Default: `ONELOCK_NOTIFY_AUTO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_notify(
    options: *mut onelock_client_options,
    notify: u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set notify", || {
        let notify = crate::names::notify(notify, "set notify")?;
        Ok(Box::new(move |builder| builder.notify(notify)))
    })
}

/// How many replicas must confirm a grant before it counts. Makes the loss of a lock in a failover less likely and does
/// not exclude it. Default: 0, none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_min_replicas(
    options: *mut onelock_client_options,
    min_replicas: u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set min_replicas", || Ok(Box::new(move |builder| builder.min_replicas(min_replicas))))
}

/// How long replicas may take to confirm a grant. Default: 1 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_replica_timeout(
    options: *mut onelock_client_options,
    replica_timeout_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set replica_timeout", || {
        let replica_timeout = duration(replica_timeout_ms, "replica_timeout_ms", "set replica_timeout")?;
        Ok(Box::new(move |builder| builder.replica_timeout(replica_timeout)))
    })
}

/// Redlock: how long one server may take for one request before it counts as absent. At least 1 ms, not above the request
/// timeout. Default: 200 ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_node_timeout(
    options: *mut onelock_client_options,
    node_timeout_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set node_timeout", || {
        let node_timeout = duration(node_timeout_ms, "node_timeout_ms", "set node_timeout")?;
        Ok(Box::new(move |builder| builder.node_timeout(node_timeout)))
    })
}

/// Redlock: how long a server that was started anew without its data does not vote; longer than any lease on these
/// servers. 0 switches it off. Default: the larger of 60 s and twice the ttl.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_quarantine(
    options: *mut onelock_client_options,
    quarantine_ms: i64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set quarantine", || {
        let quarantine = duration(quarantine_ms, "quarantine_ms", "set quarantine")?;
        Ok(Box::new(move |builder| builder.quarantine(quarantine)))
    })
}

/// Warnings about the server that are not to be logged, by their names in brackets, separated by spaces or commas, such as
/// `persistence replicas`. Default: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_accepted_warnings(
    options: *mut onelock_client_options,
    accepted_warnings: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set accepted_warnings", || {
        let names = text(accepted_warnings, "accepted_warnings", "set accepted_warnings")?.to_owned();
        Ok(Box::new(move |builder| builder.accepted_warnings(&names)))
    })
}

/// The user that Sentinels know, if they have users of their own. Default: their default user.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_sentinel_username(
    options: *mut onelock_client_options,
    sentinel_username: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set sentinel_username", || {
        let username = text(sentinel_username, "sentinel_username", "set sentinel_username")?.to_owned();
        Ok(Box::new(move |builder| builder.sentinel_username(&username)))
    })
}

/// The password that Sentinels ask for; the one in the address is the master's. Default: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_sentinel_password(
    options: *mut onelock_client_options,
    sentinel_password: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set sentinel_password", || {
        let password = text(sentinel_password, "sentinel_password", "set sentinel_password")?.to_owned();
        Ok(Box::new(move |builder| builder.sentinel_password(&password)))
    })
}

/// Whether Sentinels are spoken to over TLS, with the same certificate files. Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_sentinel_tls(
    options: *mut onelock_client_options,
    sentinel_tls: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set sentinel_tls", || Ok(Box::new(move |builder| builder.sentinel_tls(sentinel_tls))))
}
