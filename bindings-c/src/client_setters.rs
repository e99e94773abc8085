//! A setter for each option of a client.

use std::ffi::c_char;

use crate::client_options::{onelock_client_options, set};
use crate::enums::{self, duration};
use crate::error::onelock_error;
use crate::status::onelock_status;
use crate::text::{bytes, text};

// written by tools/options.py: client
/// Length of a lease: how long others wait after a crash of the holder (10 ms to one year). Default: 30 s.
///
/// With renewal the work may take longer.
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

/// Whether leases are renewed in the background, every third of the ttl, until they are released. Default: true.
///
/// A lease that is not renewed ends after its ttl, unless it is extended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_auto_renew(
    options: *mut onelock_client_options,
    auto_renew: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set auto_renew", || Ok(Box::new(move |builder| builder.auto_renew(auto_renew))))
}

/// How long a lock stays taken at least, even if it is released earlier (at most the ttl). Default: 0.
///
/// A job that tries once, with a `min_hold` above the difference between the clocks, runs on only one of many machines
/// each time.
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

/// The longest time a lease may be held; then renewal stops and the lease is lost (at least 1 ms). Default: no limit.
///
/// It bounds a holder that hangs.
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

/// How much longer than the lease the key lives: others wait that much longer after a crash. Default: 0.
///
/// A release is not delayed by it.
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

/// How much of a lease must be left when its grant arrives (less than the ttl). Default: 0.
///
/// A grant that arrives later is undone, and waiting goes on.
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

/// Whether each grant draws a fencing token. Default: true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_fencing(
    options: *mut onelock_client_options,
    fencing: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set fencing", || Ok(Box::new(move |builder| builder.fencing(fencing))))
}

/// The share of the ttl by which the clocks of server and holder may run apart (0 to 0.5). Default: 0.01.
///
/// The holder's lease ends that much earlier than the key on the server, and 2 ms on top.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_drift_factor(
    options: *mut onelock_client_options,
    drift_factor: f64,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set drift_factor", || Ok(Box::new(move |builder| builder.drift_factor(drift_factor))))
}

/// Put before every name, once (at most 512 bytes). Default: none.
///
/// It keeps the locks of several programs on one server apart, and lets an access rule name them.
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

/// The weakest grade of fencing tokens: `None`, `BestEffort`, `ClockBounded` or `Strict`. Default:
/// `ONELOCK_GRADE_NONE`.
///
/// A server with a weaker grade is refused when the client connects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_min_fencing_grade(
    options: *mut onelock_client_options,
    min_fencing_grade: u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set min_fencing_grade", || {
        let min_fencing_grade = enums::grade(min_fencing_grade, "set min_fencing_grade")?;
        Ok(Box::new(move |builder| builder.min_fencing_grade(min_fencing_grade)))
    })
}

/// Names this client in `CLIENT LIST` and in inspection (at most 128 bytes, no control characters). Default: none.
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

/// Whether a hold stores label, process, host and time for inspection. Default: false.
///
/// Everybody who may read the key can read them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_inspectable(
    options: *mut onelock_client_options,
    inspectable: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set inspectable", || Ok(Box::new(move |builder| builder.inspectable(inspectable))))
}

/// Names of warnings about the server that are not logged, such as `persistence replicas`. Default: none.
///
/// A name stands in brackets at the end of its warning. Names are separated by spaces or commas.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_accepted_warnings(
    options: *mut onelock_client_options,
    accepted_warnings: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set accepted_warnings", || {
        let accepted_warnings = text(accepted_warnings, "accepted_warnings", "set accepted_warnings")?.to_owned();
        Ok(Box::new(move |builder| builder.accepted_warnings(&accepted_warnings)))
    })
}

/// Time limit of making a connection, name resolution and TLS included (at least 1 ms). Default: 2 s.
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

/// Time limit of one request (at least 1 ms). Default: 1 s.
///
/// A connection that is slower is closed.
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

/// Time limit of closing the client (at least 1 ms). Default: 1 s.
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

/// How long an acquire without a time limit retries an unreachable server (at least 1 ms). Default: 30 s.
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

/// File with the certificates of the trusted authorities, PEM, for TLS. Default: the system's.
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

/// Files with this client's certificate and private key, PEM. Default: none.
///
/// They are for servers that ask for them. Set both.
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

/// Whether any certificate is accepted; for experiments only. Default: false.
///
/// Anybody in between can then read and take locks. The client logs a warning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_tls_insecure(
    options: *mut onelock_client_options,
    tls_insecure: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set tls_insecure", || Ok(Box::new(move |builder| builder.tls_insecure(tls_insecure))))
}

/// How a cluster's releases are announced: `auto`, `classic`, `sharded` or `both`. Default: `ONELOCK_NOTIFY_AUTO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_notify(
    options: *mut onelock_client_options,
    notify: u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set notify", || {
        let notify = enums::notify(notify, "set notify")?;
        Ok(Box::new(move |builder| builder.notify(notify)))
    })
}

/// How many replicas must confirm a grant, with `WAIT`; a grant that fewer confirm is undone. Default: 0.
///
/// The loss of a lock in a failover becomes less likely, but it is not excluded. Redlock, `file://` and `memory://`
/// refuse it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_min_replicas(
    options: *mut onelock_client_options,
    min_replicas: u32,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set min_replicas", || Ok(Box::new(move |builder| builder.min_replicas(min_replicas))))
}

/// Time limit of the confirmation by replicas (at least 1 ms). Default: 1 s.
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

/// User name for the Sentinels; the one in the address is the master's. Default: their default user.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_sentinel_username(
    options: *mut onelock_client_options,
    sentinel_username: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set sentinel_username", || {
        let sentinel_username = text(sentinel_username, "sentinel_username", "set sentinel_username")?.to_owned();
        Ok(Box::new(move |builder| builder.sentinel_username(&sentinel_username)))
    })
}

/// Password for the Sentinels; the one in the address is the master's. Default: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_sentinel_password(
    options: *mut onelock_client_options,
    sentinel_password: *const c_char,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set sentinel_password", || {
        let sentinel_password = text(sentinel_password, "sentinel_password", "set sentinel_password")?.to_owned();
        Ok(Box::new(move |builder| builder.sentinel_password(&sentinel_password)))
    })
}

/// Whether connections to Sentinels use TLS, with the same certificate files. Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onelock_client_options_set_sentinel_tls(
    options: *mut onelock_client_options,
    sentinel_tls: bool,
    error: *mut *mut onelock_error,
) -> onelock_status {
    set(options, error, "set sentinel_tls", || Ok(Box::new(move |builder| builder.sentinel_tls(sentinel_tls))))
}

/// Redlock: time limit of one request to one server (at least 1 ms, at most the `request_timeout`). Default: 200 ms.
///
/// A server that is slower counts as absent.
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

/// Redlock: how long a server that restarted without its data does not vote. Default: twice the ttl, at least 60 s.
///
/// It must be longer than any lease on these servers. 0 switches it off.
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
// end of client
