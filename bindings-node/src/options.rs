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
    // written by tools/options.py: client
    pub ttl: Option<f64>,
    pub auto_renew: Option<bool>,
    pub min_hold: Option<f64>,
    pub max_hold: Option<f64>,
    pub lock_delay: Option<f64>,
    pub min_validity: Option<f64>,
    pub fencing: Option<bool>,
    pub drift_factor: Option<f64>,
    pub prefix: Option<Uint8Array>,
    pub min_fencing_grade: Option<String>,
    pub label: Option<String>,
    pub inspectable: Option<bool>,
    pub accepted_warnings: Option<String>,
    pub connect_timeout: Option<f64>,
    pub request_timeout: Option<f64>,
    pub close_timeout: Option<f64>,
    pub unreachable_limit: Option<f64>,
    /// The number of a function; the bridge knows which it is.
    pub credentials: Option<u32>,
    pub ca_file: Option<String>,
    pub cert_file: Option<String>,
    pub key_file: Option<String>,
    pub tls_insecure: Option<bool>,
    pub notify: Option<String>,
    pub min_replicas: Option<u32>,
    pub replica_timeout: Option<f64>,
    pub sentinel_username: Option<String>,
    pub sentinel_password: Option<String>,
    pub sentinel_tls: Option<bool>,
    pub node_timeout: Option<f64>,
    pub quarantine: Option<f64>,
    // end of client
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
        let builder = onelock::Client::builder();
        // written by tools/options.py: setters of a client
        let builder = set(builder, self.ttl, |builder, ms| builder.ttl(span(ms)));
        let builder = set(builder, self.auto_renew, ClientBuilder::auto_renew);
        let builder = set(builder, self.min_hold, |builder, ms| builder.min_hold(span(ms)));
        let builder = set(builder, self.max_hold, |builder, ms| builder.max_hold(span(ms)));
        let builder = set(builder, self.lock_delay, |builder, ms| builder.lock_delay(span(ms)));
        let builder = set(builder, self.min_validity, |builder, ms| builder.min_validity(span(ms)));
        let builder = set(builder, self.fencing, ClientBuilder::fencing);
        let builder = set(builder, self.drift_factor, ClientBuilder::drift_factor);
        let builder = set(builder, self.prefix, |builder, value| builder.prefix(&value[..]));
        let builder = set(builder, self.min_fencing_grade, |builder, value| builder.min_fencing_grade(grade(&value)));
        let builder = set(builder, self.label, ClientBuilder::label);
        let builder = set(builder, self.inspectable, ClientBuilder::inspectable);
        let builder = set(builder, self.accepted_warnings, ClientBuilder::accepted_warnings);
        let builder = set(builder, self.connect_timeout, |builder, ms| builder.connect_timeout(span(ms)));
        let builder = set(builder, self.request_timeout, |builder, ms| builder.request_timeout(span(ms)));
        let builder = set(builder, self.close_timeout, |builder, ms| builder.close_timeout(span(ms)));
        let builder = set(builder, self.unreachable_limit, |builder, ms| builder.unreachable_limit(span(ms)));
        let builder = set(builder, self.ca_file, ClientBuilder::ca_file);
        let builder = set(builder, self.cert_file.zip(self.key_file), |builder, (cert, key)| {
            builder.client_certificate(cert, key)
        });
        let builder = set(builder, self.tls_insecure, ClientBuilder::tls_insecure);
        let builder = set(builder, self.notify, |builder, value| builder.notify(notify(&value)));
        let builder = set(builder, self.min_replicas, ClientBuilder::min_replicas);
        let builder = set(builder, self.replica_timeout, |builder, ms| builder.replica_timeout(span(ms)));
        let builder = set(builder, self.sentinel_username, ClientBuilder::sentinel_username);
        let builder = set(builder, self.sentinel_password, ClientBuilder::sentinel_password);
        let builder = set(builder, self.sentinel_tls, ClientBuilder::sentinel_tls);
        let builder = set(builder, self.node_timeout, |builder, ms| builder.node_timeout(span(ms)));
        let builder = set(builder, self.quarantine, |builder, ms| builder.quarantine(span(ms)));
        // end of setters of a client
        builder
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
    // written by tools/options.py: lock
    pub ttl: Option<f64>,
    pub auto_renew: Option<bool>,
    pub min_hold: Option<f64>,
    pub max_hold: Option<f64>,
    pub lock_delay: Option<f64>,
    pub min_validity: Option<f64>,
    pub fencing: Option<bool>,
    // end of lock
    pub renew_every: Option<f64>,
    pub owner: Option<String>,
    /// How many permits a semaphore has, and how many an acquire takes.
    pub permits: Option<u32>,
    pub count: Option<u32>,
}

impl LockOptions {
    pub(crate) fn apply(self, lock: Lock) -> Lock {
        // written by tools/options.py: setters of a lock
        let lock = set(lock, self.ttl, |lock, ms| lock.ttl(span(ms)));
        let lock = set(lock, self.auto_renew, Lock::auto_renew);
        let lock = set(lock, self.min_hold, |lock, ms| lock.min_hold(span(ms)));
        let lock = set(lock, self.max_hold, |lock, ms| lock.max_hold(span(ms)));
        let lock = set(lock, self.lock_delay, |lock, ms| lock.lock_delay(span(ms)));
        let lock = set(lock, self.min_validity, |lock, ms| lock.min_validity(span(ms)));
        let lock = set(lock, self.fencing, Lock::fencing);
        // end of setters of a lock
        let lock = set(lock, self.renew_every, |lock, ms| lock.renew_every(span(ms)));
        let lock = set(lock, self.permits, Lock::total_permits);
        let lock = set(lock, self.count, Lock::count);
        set(lock, self.owner, |lock, name| lock.owner(&Owner::named(name)))
    }
}
