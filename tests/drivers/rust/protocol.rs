//! Requests, replies and events, and what both modes make of them in the same way.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onelock::{ClientBuilder, Diagnosis, Error, Grade, Inspection, LockEntry, LockPage, LossReason, Waiter};
use onelock_tests::clock::boot_ns;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) args: Args,
}

/// Everything that any operation takes. Each uses what it needs.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) client: String,
    pub(crate) url: String,
    pub(crate) kind: Kind,
    pub(crate) name: Name,
    pub(crate) also: Option<Name>,
    pub(crate) lease: String,
    pub(crate) wait_ms: Option<u64>,
    pub(crate) limit_ms: u64,
    pub(crate) proof: String,
    pub(crate) request: u64,
    pub(crate) body: Body,
    pub(crate) foreign: bool,
    pub(crate) pattern: Name,
    pub(crate) limit: Option<u32>,
    pub(crate) cursor: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) permits: Option<u32>,
    pub(crate) count: Option<u32>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) auto_renew: Option<bool>,
    pub(crate) min_hold_ms: Option<u64>,
    pub(crate) max_hold_ms: Option<u64>,
    pub(crate) lock_delay_ms: Option<u64>,
    pub(crate) min_validity_ms: Option<u64>,
    pub(crate) fencing: Option<bool>,
    pub(crate) prefix: Option<Name>,
    pub(crate) drift_factor: Option<f64>,
    pub(crate) min_fencing_grade: Option<String>,
    pub(crate) connect_timeout_ms: Option<u64>,
    pub(crate) request_timeout_ms: Option<u64>,
    pub(crate) close_timeout_ms: Option<u64>,
    pub(crate) unreachable_limit_ms: Option<u64>,
    pub(crate) quarantine_ms: Option<u64>,
    pub(crate) label: Option<String>,
    pub(crate) inspectable: Option<bool>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    #[default]
    Lock,
    ReentrantLock,
    Semaphore,
    FairLock,
    ReadLock,
    WriteLock,
}

/// What the body of a scope does.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    #[default]
    Return,
    Fail,
    UntilFree,
    UntilLost,
}

/// A text, or `{"hex": ...}` for bytes that are none.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Name {
    Text(String),
    Bytes { hex: String },
}

impl Default for Name {
    fn default() -> Name {
        Name::Text(String::new())
    }
}

impl Name {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Name::Text(text) => text.clone().into_bytes(),
            Name::Bytes { hex } => {
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
            }
        }
    }
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Calls the setter of every option that was given.
macro_rules! set {
    ($object:expr, $args:expr; $($option:ident = $argument:ident => $convert:expr),* $(,)?) => {{
        let mut object = $object;
        $(if let Some(value) = $args.$argument.clone() { object = object.$option($convert(value)); })*
        object
    }};
}
pub(crate) use set;

/// A lock as described by the arguments but for its name.
macro_rules! described {
    ($client:expr, $args:expr, $name:expr) => {{
        let lock = match $args.kind {
            $crate::protocol::Kind::Lock => $client.lock($name.bytes()),
            $crate::protocol::Kind::ReentrantLock => $client.reentrant_lock($name.bytes()),
            $crate::protocol::Kind::Semaphore => $client.semaphore($name.bytes(), $args.permits),
            $crate::protocol::Kind::FairLock => $client.fair_lock($name.bytes()),
            $crate::protocol::Kind::ReadLock => $client.rw_lock($name.bytes()).read(),
            $crate::protocol::Kind::WriteLock => $client.rw_lock($name.bytes()).write(),
        };
        let lock = match &$args.owner {
            Some(name) => lock.owner(&onelock::Owner::named(name)),
            None => lock,
        };
        $crate::protocol::set!(lock, $args;
            ttl = ttl_ms => $crate::protocol::ms, auto_renew = auto_renew => |on| on,
            min_hold = min_hold_ms => $crate::protocol::ms, max_hold = max_hold_ms => $crate::protocol::ms,
            lock_delay = lock_delay_ms => $crate::protocol::ms, min_validity = min_validity_ms => $crate::protocol::ms, fencing = fencing => |on| on, count = count => |count| count)
    }};
}
pub(crate) use described;

/// Passes the events of a lock on.
macro_rules! told {
    ($lock:expr, $args:expr) => {{
        let (lost, jeopardy) = ($args.lease.clone(), $args.lease.clone());
        $lock
            .on_lost(move |reason| $crate::protocol::tell_lost(&lost, reason))
            .on_jeopardy(move || $crate::protocol::tell_jeopardy(&jeopardy))
    }};
}
pub(crate) use told;

/// Does something with the lock that the arguments describe, or with both locks at once where there is a second name.
macro_rules! with_lock {
    ($several:ty, $client:expr, $args:expr, $lock:ident => $what:expr) => {{
        let client = &$client;
        let first = $crate::protocol::described!(client, $args, $args.name);
        match &$args.also {
            None => {
                let $lock = $crate::protocol::told!(first, $args);
                $what
            }
            Some(also) => {
                let both = <$several>::new([first, $crate::protocol::described!(client, $args, also)]);
                let $lock = $crate::protocol::told!(both, $args);
                $what
            }
        }
    }};
}
pub(crate) use with_lock;

pub(crate) fn builder(args: &Args) -> ClientBuilder {
    let grade = |name: String| {
        [Grade::None, Grade::BestEffort, Grade::ClockBounded, Grade::Strict]
            .into_iter()
            .find(|grade| grade.as_str() == name)
            .expect("a grade")
    };
    set!(ClientBuilder::default(), args;
        prefix = prefix => |name: Name| name.bytes(), ttl = ttl_ms => ms, auto_renew = auto_renew => |on| on,
        min_hold = min_hold_ms => ms, max_hold = max_hold_ms => ms, drift_factor = drift_factor => |factor| factor,
        lock_delay = lock_delay_ms => ms, min_validity = min_validity_ms => ms, fencing = fencing => |on| on,
        min_fencing_grade = min_fencing_grade => grade, connect_timeout = connect_timeout_ms => ms,
        request_timeout = request_timeout_ms => ms, close_timeout = close_timeout_ms => ms,
        unreachable_limit = unreachable_limit_ms => ms, quarantine = quarantine_ms => ms, label = label => |text: String| text, inspectable = inspectable => |on| on)
}

/// A failure: an error of the library, of the scope's body, or of this driver.
pub(crate) enum Failure {
    Lock(Error),
    Body,
    Driver(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Lock(error)
    }
}

/// A lease, as every reply about one shows it.
macro_rules! view {
    ($lease:expr) => {{
        let lease = &$lease;
        let at_ns = onelock_tests::clock::boot_ns();
        let held = lease.is_held();
        let left = lease.remaining();
        serde_json::json!({
            "at_ns": at_ns, "held": held, "remaining_ms": left.as_secs_f64() * 1000.0,
            "name": String::from_utf8_lossy(lease.name()),
            "kind": if lease.names().len() > 1 { "multi_lock" } else { lease.kind().as_str() },
            "token": lease.fencing_token(), "count": lease.hold_count(),
            "loss": lease.loss().map(onelock::LossReason::as_str),
        })
    }};
}
pub(crate) use view;

pub(crate) fn permits(found: onelock::Permits) -> Value {
    json!({"total": found.total, "held": found.held, "free": found.free})
}

pub(crate) fn inspection(found: Option<Inspection>) -> Value {
    let Some(found) = found else { return Value::Null };
    let owner = found
        .owner
        .map(|owner| json!({"label": owner.label, "pid": owner.pid, "host": owner.host, "since_ms": owner.since_ms}));
    let waiter = |waiter: Waiter| {
        let client = waiter.client.map(|client| json!({"label": client.label, "pid": client.pid, "host": client.host}));
        json!({"client": client, "since_ms": waiter.since_ms})
    };
    json!({
        "kind": found.kind.as_str(), "origin": found.origin.as_str(), "count": found.hold_count, "token": found.fencing_token,
        "ttl_left_ms": found.ttl_left.map(|left| left.as_secs_f64() * 1000.0), "owner": owner,
        "foreign_holder": found.foreign_holder, "permits": found.permits, "free": found.free, "waiting": found.waiting,
        "waiters": found.waiters.into_iter().map(waiter).collect::<Vec<_>>(),
    })
}

/// All locks, each once, in the order of their names.
pub(crate) fn entries(found: Vec<LockEntry>) -> Value {
    let entry = |entry: LockEntry| {
        let mut shown = inspection(Some(entry.inspection));
        shown["waiting"] = json!(entry.waiting);
        let hex = entry.name.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        shown["name"] = String::from_utf8(entry.name).map_or_else(|_| json!({"hex": hex}), |text| json!(text));
        (hex, shown)
    };
    json!(found.into_iter().map(entry).collect::<std::collections::BTreeMap<_, _>>().into_values().collect::<Vec<_>>())
}

/// What a look at the servers found, with the last finding of each step.
pub(crate) fn diagnosis(found: &Diagnosis) -> Value {
    let steps: serde_json::Map<String, Value> = found
        .findings
        .iter()
        .map(|finding| {
            let measured: HashMap<&str, f64> = finding.measured.iter().copied().collect();
            let shown = json!({
                "server": finding.server, "severity": finding.severity.as_str(), "detail": finding.detail,
                "todo": finding.todo, "error": finding.error.map(onelock::ErrorKind::name), "measured": measured,
            });
            (finding.step.to_owned(), shown)
        })
        .collect();
    json!({"severity": found.severity().as_str(), "grade": found.grade.as_str(), "steps": steps})
}

pub(crate) fn page(page: LockPage) -> Value {
    json!({"entries": entries(page.entries), "next": page.next})
}

/// Objects by the names that the supervisor gave them.
pub(crate) struct Named<T>(Mutex<HashMap<String, Arc<T>>>);

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(Mutex::default())
    }
}

impl<T> Named<T> {
    pub(crate) fn put(&self, name: &str, object: T) -> Arc<T> {
        let object = Arc::new(object);
        self.0.lock().unwrap().insert(name.to_owned(), object.clone());
        object
    }

    pub(crate) fn get(&self, name: &str) -> Result<Arc<T>, Failure> {
        let found = self.0.lock().unwrap().get(name).cloned();
        found.ok_or_else(|| Failure::Driver(format!("there is no {name}")))
    }

    pub(crate) fn remove(&self, name: &str) {
        let removed = self.0.lock().unwrap().remove(name);
        drop(removed);
    }
}

fn write(line: &Value) {
    let mut out = std::io::stdout().lock();
    // Nobody reads any more: the end of the input will end this process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Answers a request that began at `from_ns`.
pub(crate) fn reply(id: u64, from_ns: u64, result: Result<Value, Failure>) {
    let to_ns = boot_ns();
    match result {
        Ok(ok) => write(&json!({"id": id, "from_ns": from_ns, "to_ns": to_ns, "ok": ok})),
        Err(failure) => {
            let (kind, message) = match failure {
                Failure::Lock(error) => (error.kind().name(), error.to_string()),
                Failure::Body => ("Body", "the body failed".to_owned()),
                Failure::Driver(message) => ("Driver", message),
            };
            write(&json!({"id": id, "from_ns": from_ns, "to_ns": to_ns, "error": {"kind": kind, "message": message}}));
        }
    }
}

pub(crate) fn reply_error(id: u64, kind: &str, message: &str) {
    let now = boot_ns();
    write(&json!({"id": id, "from_ns": now, "to_ns": now, "error": {"kind": kind, "message": message}}));
}

pub(crate) fn tell_lost(lease: &str, reason: LossReason) {
    write(&json!({"event": "lost", "lease": lease, "reason": reason.as_str(), "at_ns": boot_ns()}));
}

pub(crate) fn tell_jeopardy(lease: &str) {
    write(&json!({"event": "jeopardy", "lease": lease, "at_ns": boot_ns()}));
}

pub(crate) fn hello(mode: &str) -> Value {
    json!({"protocol": 1, "language": "rust", "mode": mode, "pid": std::process::id(), "now_ns": boot_ns()})
}
