//! The options of clients and locks. Their names and types are checked in `bindings-node/ts/options.ts`, their values by the core.

use std::time::Duration;

use onelock::{ClientBuilder, Grade, Lock, Notify, Owner};

use crate::memory::Arguments;

/// One year and a bit: what is longer is too long for the core in any case, which says so.
const LONGEST_MS: f64 = 4e10;

/// Milliseconds, at least zero.
pub(crate) fn span(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.clamp(0.0, LONGEST_MS) / 1e3).unwrap_or_default()
}

/// The value of an option.
pub(crate) enum Value {
    Flag(bool),
    Number(f64),
    Bytes(Vec<u8>),
}

impl Value {
    fn flag(&self) -> bool {
        matches!(self, Value::Flag(true))
    }

    fn number(&self) -> f64 {
        if let Value::Number(number) = self { *number } else { 0.0 }
    }

    fn span(&self) -> Duration {
        span(self.number())
    }

    fn count(&self) -> u32 {
        self.number() as u32
    }

    fn bytes(&self) -> &[u8] {
        if let Value::Bytes(bytes) = self { bytes } else { &[] }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

/// Options as JavaScript writes them: a name behind its length, a byte for the type of the value, the value.
pub(crate) fn read(arguments: &mut Arguments) -> Vec<(String, Value)> {
    let mut options = Vec::new();
    while !arguments.is_empty() {
        let length = usize::from(arguments.byte());
        let name = arguments.text(length);
        let value = match arguments.byte() {
            0 => Value::Flag(false),
            1 => Value::Flag(true),
            2 => Value::Number(arguments.number()),
            _ => Value::Bytes(arguments.counted().to_vec()),
        };
        options.push((name, value));
    }
    options
}

fn text<'a>(options: &'a [(String, Value)], name: &str) -> Option<&'a Value> {
    options.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// A client with these options, without its credentials provider. `Err` for certificate without key.
pub(crate) fn client(options: &[(String, Value)]) -> Result<ClientBuilder, &'static str> {
    let files = (text(options, "certFile"), text(options, "keyFile"));
    let mut builder = match files {
        (Some(cert), Some(key)) => onelock::Client::builder().client_certificate(cert.text(), key.text()),
        (None, None) => onelock::Client::builder(),
        _ => return Err("certFile and keyFile belong together"),
    };
    for (name, value) in options {
        builder = client_option(builder, name, value);
    }
    Ok(builder)
}

fn client_option(builder: ClientBuilder, name: &str, value: &Value) -> ClientBuilder {
    match name {
        "ttl" => builder.ttl(value.span()),
        "autoRenew" => builder.auto_renew(value.flag()),
        "minHold" => builder.min_hold(value.span()),
        "maxHold" => builder.max_hold(value.span()),
        "lockDelay" => builder.lock_delay(value.span()),
        "minValidity" => builder.min_validity(value.span()),
        "fencing" => builder.fencing(value.flag()),
        "driftFactor" => builder.drift_factor(value.number()),
        "prefix" => builder.prefix(value.bytes()),
        "minFencingGrade" => builder.min_fencing_grade(grade(&value.text())),
        "label" => builder.label(value.text()),
        "inspectable" => builder.inspectable(value.flag()),
        "acceptedWarnings" => builder.accepted_warnings(value.text()),
        "connectTimeout" => builder.connect_timeout(value.span()),
        "requestTimeout" => builder.request_timeout(value.span()),
        "closeTimeout" => builder.close_timeout(value.span()),
        "unreachableLimit" => builder.unreachable_limit(value.span()),
        "caFile" => builder.ca_file(value.text()),
        "tlsInsecure" => builder.tls_insecure(value.flag()),
        "notify" => builder.notify(notify(&value.text())),
        "minReplicas" => builder.min_replicas(value.count()),
        "replicaTimeout" => builder.replica_timeout(value.span()),
        "sentinelUsername" => builder.sentinel_username(value.text()),
        "sentinelPassword" => builder.sentinel_password(value.text()),
        "sentinelTls" => builder.sentinel_tls(value.flag()),
        "nodeTimeout" => builder.node_timeout(value.span()),
        "quarantine" => builder.quarantine(value.span()),
        // the bridge reads `credentials`; the files of a certificate are read together
        _ => builder,
    }
}

/// The number of the function that gives credentials.
pub(crate) fn provider(options: &[(String, Value)]) -> Option<u32> {
    text(options, "credentials").map(Value::count)
}

fn notify(name: &str) -> Notify {
    Notify::ALL.into_iter().find(|notify| notify.as_str() == name).unwrap_or_default()
}

fn grade(name: &str) -> Grade {
    [Grade::BestEffort, Grade::ClockBounded, Grade::Strict]
        .into_iter()
        .find(|grade| grade.as_str() == name)
        .unwrap_or(Grade::None)
}

/// A lock with these options.
pub(crate) fn lock(mut lock: Lock, options: &[(String, Value)]) -> Lock {
    for (name, value) in options {
        lock = match name.as_str() {
            "ttl" => lock.ttl(value.span()),
            "autoRenew" => lock.auto_renew(value.flag()),
            "minHold" => lock.min_hold(value.span()),
            "maxHold" => lock.max_hold(value.span()),
            "lockDelay" => lock.lock_delay(value.span()),
            "minValidity" => lock.min_validity(value.span()),
            "fencing" => lock.fencing(value.flag()),
            "renewEvery" => lock.renew_every(value.span()),
            "owner" => lock.owner(&Owner::named(value.text())),
            "permits" => lock.total_permits(value.count()),
            "count" => lock.count(value.count()),
            _ => lock,
        };
    }
    lock
}
