//! The options of clients and locks. Their names and types are checked in `ts/options.ts`, their values by the core.

use std::time::Duration;

use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use onelock::{ClientBuilder, Grade, Lock, Notify, Owner};

/// One year and a bit: what is longer is too long for the core in any case, which says so.
const LONGEST_MS: f64 = 4e10;

/// Milliseconds, at least zero.
pub(crate) fn span(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.clamp(0.0, LONGEST_MS) / 1e3).unwrap_or_default()
}

#[napi(object)]
#[derive(Default)]
pub struct ClientOptions {
    pub prefix: Option<Uint8Array>,
    pub ttl: Option<f64>,
    pub auto_renew: Option<bool>,
    pub min_hold: Option<f64>,
    pub max_hold: Option<f64>,
    pub drift_factor: Option<f64>,
    pub lock_delay: Option<f64>,
    pub min_validity: Option<f64>,
    pub fencing: Option<bool>,
    pub min_fencing_grade: Option<String>,
    pub connect_timeout: Option<f64>,
    pub request_timeout: Option<f64>,
    pub close_timeout: Option<f64>,
    pub unreachable_limit: Option<f64>,
    pub label: Option<String>,
    pub node_timeout: Option<f64>,
    pub quarantine: Option<f64>,
    pub min_replicas: Option<u32>,
    pub replica_timeout: Option<f64>,
    pub notify: Option<String>,
    pub sentinel_username: Option<String>,
    pub sentinel_password: Option<String>,
    pub sentinel_tls: Option<bool>,
    /// The number of a function; the session knows who it is.
    pub credentials: Option<u32>,
    pub inspectable: Option<bool>,
    pub accepted_warnings: Option<String>,
    pub ca_file: Option<String>,
    pub cert_file: Option<String>,
    pub key_file: Option<String>,
    pub tls_insecure: Option<bool>,
}

/// Applies a setter when there is a value for it.
fn set<B, T>(builder: B, value: Option<T>, setter: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => setter(builder, value),
        None => builder,
    }
}

impl ClientOptions {
    pub(crate) fn builder(self) -> ClientBuilder {
        let b = onelock::Client::builder();
        let b = set(b, self.prefix, |b, prefix| b.prefix(&prefix[..]));
        let b = set(b, self.ttl, |b, ms| b.ttl(span(ms)));
        let b = set(b, self.auto_renew, ClientBuilder::auto_renew);
        let b = set(b, self.min_hold, |b, ms| b.min_hold(span(ms)));
        let b = set(b, self.max_hold, |b, ms| b.max_hold(span(ms)));
        let b = set(b, self.drift_factor, ClientBuilder::drift_factor);
        let b = set(b, self.lock_delay, |b, ms| b.lock_delay(span(ms)));
        let b = set(b, self.min_validity, |b, ms| b.min_validity(span(ms)));
        let b = set(b, self.fencing, ClientBuilder::fencing);
        let b = set(b, self.min_fencing_grade, |b, name| b.min_fencing_grade(grade(&name)));
        let b = set(b, self.connect_timeout, |b, ms| b.connect_timeout(span(ms)));
        let b = set(b, self.request_timeout, |b, ms| b.request_timeout(span(ms)));
        let b = set(b, self.close_timeout, |b, ms| b.close_timeout(span(ms)));
        let b = set(b, self.unreachable_limit, |b, ms| b.unreachable_limit(span(ms)));
        let b = set(b, self.label, ClientBuilder::label);
        let b = set(b, self.node_timeout, |b, ms| b.node_timeout(span(ms)));
        let b = set(b, self.quarantine, |b, ms| b.quarantine(span(ms)));
        let b = set(b, self.min_replicas, ClientBuilder::min_replicas);
        let b = set(b, self.replica_timeout, |b, ms| b.replica_timeout(span(ms)));
        let b = set(b, self.notify, |b, word| b.notify(notify(&word)));
        let b = set(b, self.sentinel_username, ClientBuilder::sentinel_username);
        let b = set(b, self.sentinel_password, ClientBuilder::sentinel_password);
        let b = set(b, self.sentinel_tls, ClientBuilder::sentinel_tls);
        let b = set(b, self.inspectable, ClientBuilder::inspectable);
        let b = set(b, self.accepted_warnings, ClientBuilder::accepted_warnings);
        let b = set(b, self.ca_file, ClientBuilder::ca_file);
        let b = set(b, self.cert_file.zip(self.key_file), |b, (cert, key)| b.client_certificate(cert, key));
        set(b, self.tls_insecure, ClientBuilder::tls_insecure)
    }
}

fn notify(word: &str) -> Notify {
    Notify::ALL.into_iter().find(|notify| notify.as_str() == word).unwrap_or_default()
}

fn grade(name: &str) -> Grade {
    [Grade::BestEffort, Grade::ClockBounded, Grade::Strict]
        .into_iter()
        .find(|grade| grade.as_str() == name)
        .unwrap_or(Grade::None)
}

#[napi(object)]
#[derive(Default)]
pub struct LockOptions {
    pub ttl: Option<f64>,
    pub auto_renew: Option<bool>,
    pub min_hold: Option<f64>,
    pub max_hold: Option<f64>,
    pub lock_delay: Option<f64>,
    pub min_validity: Option<f64>,
    pub fencing: Option<bool>,
    pub renew_every: Option<f64>,
    pub owner: Option<String>,
}

impl LockOptions {
    pub(crate) fn apply(self, lock: Lock) -> Lock {
        let lock = set(lock, self.ttl, |lock, ms| lock.ttl(span(ms)));
        let lock = set(lock, self.auto_renew, Lock::auto_renew);
        let lock = set(lock, self.min_hold, |lock, ms| lock.min_hold(span(ms)));
        let lock = set(lock, self.max_hold, |lock, ms| lock.max_hold(span(ms)));
        let lock = set(lock, self.lock_delay, |lock, ms| lock.lock_delay(span(ms)));
        let lock = set(lock, self.min_validity, |lock, ms| lock.min_validity(span(ms)));
        let lock = set(lock, self.fencing, Lock::fencing);
        let lock = set(lock, self.renew_every, |lock, ms| lock.renew_every(span(ms)));
        set(lock, self.owner, |lock, name| lock.owner(&Owner::named(name)))
    }
}
