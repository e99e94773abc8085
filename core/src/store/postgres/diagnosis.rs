//! A look at a database: how strong its fencing tokens are, and step by step whether locks can be taken in it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::database::Host;
use super::{PostgresStore, TableClient};
use crate::ErrorKind;
use crate::config::warning::{PERSISTENCE, REPLICAS, UNKNOWN, finding};
use crate::machine::{Claim, Failure, Grade, Kind, Op, Outcome, Reply, Time, token};
use crate::store::diagnosis::{Finding, FindingList, Severity};
use crate::store::{Boxed, Facts, Store, net};
use crate::sys::{clock, random};

/// How often the round trip is measured.
const ROUNDS: usize = 9;

/// What decides how strong a fencing token is.
struct ServerSettings {
    version: String,
    fsync: bool,
    commit: bool,
    /// Standbys that get commits later, or may; `None` where this user may not look.
    late_standbys: Option<i64>,
}

impl ServerSettings {
    fn grade(&self) -> Grade {
        match self {
            ServerSettings { late_standbys: None | Some(1..), .. } => Grade::BestEffort,
            ServerSettings { fsync: true, commit: true, .. } => Grade::Strict,
            _ => Grade::ClockBounded,
        }
    }

    fn standbys(&self) -> Option<(&'static str, String)> {
        match self.late_standbys {
            Some(0) => None,
            Some(_) => Some((
                REPLICAS,
                "a standby gets what was committed a moment later: when it is promoted, the latest locks are lost; name \
                 it in synchronous_standby_names"
                    .to_owned(),
            )),
            None => Some((UNKNOWN, "this user may not see whether there are standbys".to_owned())),
        }
    }

    fn forgets(&self) -> Option<&'static str> {
        match (self.fsync, self.commit) {
            (true, true) => None,
            (false, _) => Some("fsync is off: a crash of the machine forgets locks and counters; set fsync to on"),
            (true, false) => Some(
                "synchronous_commit is off or local: a crash forgets the latest locks; a pooler keeps this client from \
                 setting it",
            ),
        }
    }
}

async fn settings(shared: &Arc<TableClient>, until: Time) -> Result<ServerSettings, Failure> {
    let rows = shared.query(&shared.connector.statements.facts, &[], until).await?;
    let broken = |why: &str| Failure::lasting(ErrorKind::Internal, format!("{}: {why}", shared.address));
    let row = rows.first().ok_or_else(|| broken("no row"))?;
    let error = |error: tokio_postgres::Error| broken(&error.to_string());
    Ok(ServerSettings {
        version: row.try_get(0).map_err(error)?,
        fsync: row.try_get(1).map_err(error)?,
        commit: row.try_get(2).map_err(error)?,
        late_standbys: row.try_get(3).map_err(error)?,
    })
}

pub(super) async fn facts(shared: &Arc<TableClient>, until: Time) -> Result<Facts, Failure> {
    let found = settings(shared, until).await?;
    let mut warnings = Vec::new();
    if let Some((name, text)) = found.standbys() {
        warnings.push(finding(name, &text));
    }
    if let Some(text) = found.forgets() {
        warnings.push(finding(PERSISTENCE, text));
    }
    Ok(Facts { grade: found.grade(), warnings, dangers: Vec::new(), server: format!("postgresql {}", found.version) })
}

/// Looks at the database. `name` is what the keys begin with.
pub(super) fn look(store: PostgresStore, name: Vec<u8>) -> Boxed<Vec<Finding>> {
    Box::pin(async move {
        let mut found = FindingList::of(store.address());
        steps(&store.shared, &name, &mut found).await;
        store.close();
        found.all
    })
}

async fn steps(shared: &Arc<TableClient>, name: &[u8], found: &mut FindingList) {
    let limits = &shared.connector.limits;
    let within = || clock::now() + limits.connect + limits.request;
    if !reach(shared, found).await {
        return;
    }
    let settings = match settings(shared, within()).await {
        Ok(settings) => settings,
        Err(failure) => {
            let step = match failure.kind {
                ErrorKind::AuthFailed => "user",
                ErrorKind::InvalidArgument => "database",
                ErrorKind::ReadOnly => "role",
                ErrorKind::NotPermitted | ErrorKind::ServerRefused => "permission",
                ErrorKind::Unsupported => "version",
                _ if failure.detail.contains("TLS") => "tls",
                _ => "tcp",
            };
            let todo = match step {
                "tls" => {
                    "use a certificate for this host, and ca_file for an authority of your own; or switch TLS on in the \
                     server (ssl = on)"
                }
                "database" => "create the database, or correct its name in the address",
                _ => failure.kind.todo(),
            };
            return found.failed(step, failure.kind, failure.detail, todo);
        }
    };
    found.passed("user", "user and password are right");
    found.passed("database", shared.connector.database.name.escape_debug().to_string());
    found.passed("role", "it can be written to");
    found.passed("version", format!("PostgreSQL {}", settings.version));
    match settings.forgets() {
        None => found.passed("persistence", "what is committed survives a crash"),
        Some(text) => found.remark("persistence", text, "set it in postgresql.conf"),
    }
    match settings.standbys() {
        None => found.passed("replicas", "no standby that would get commits later"),
        Some((REPLICAS, text)) => found.warning("replicas", text, "or keep to locks whose loss does no harm"),
        Some((_, text)) => found.remark("replicas", text, "grant pg_read_all_stats to this user"),
    }
    if !take(shared, name, found, within()).await {
        return;
    }
    clock(shared, found).await;
    round_trip(shared, found).await;
    if !shared.connector.database.listens {
        found.remark(
            "notify",
            "wake=poll: waiters look again and again",
            "leave wake out, where no pooler stands between",
        );
        return;
    }
    match super::listener::try_out(shared).await {
        Ok(true) => found.passed("notify", "releases are heard"),
        Ok(false) => found.warning(
            "notify",
            "announcements do not arrive, as behind a pooler in transaction mode: waiters look again and again",
            "give onelock a connection past the pooler, or write wake=poll",
        ),
        Err(failure) => found.warning("notify", failure.detail, "waiters look again and again"),
    }
}

/// Name and TCP of each server of the address: whether one of them can be reached.
async fn reach(shared: &Arc<TableClient>, found: &mut FindingList) -> bool {
    let (hosts, limit) = (&shared.connector.database.hosts, shared.connector.limits.connect);
    let mut reached = hosts.is_empty();
    for host in hosts {
        reached |= reach_one(host, limit, found).await;
    }
    if reached {
        // one of them is enough
        found
            .all
            .iter_mut()
            .filter(|it| it.severity == Severity::Failed)
            .for_each(|it| it.severity = Severity::Warning);
    }
    reached
}

async fn reach_one(host: &Host, limit: Duration, found: &mut FindingList) -> bool {
    let Host::Tcp(name, port) = host else {
        found.passed("name", format!("{host} is a socket"));
        return true;
    };
    let shown = name.escape_debug().to_string();
    let addresses = match (net::literal(name, *port), timeout(limit, net::resolve(name, *port)).await) {
        (Some(address), _) => vec![address],
        (None, Ok(Ok(addresses))) if !addresses.is_empty() => addresses,
        (None, answer) => {
            let why = match answer {
                Ok(Ok(_)) => "it has no address".to_owned(),
                Ok(Err(error)) => format!("it is not found: {error}"),
                Err(_) => "the resolver did not answer in time".to_owned(),
            };
            let todo = "check the host name in the address, and the resolver of this machine";
            found.failed("name", ErrorKind::Unavailable, format!("{shown}: {why}"), todo);
            return false;
        }
    };
    let mut ips: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    ips.dedup();
    found.passed("name", format!("{shown} is {}", ips.join(", ")));
    let begun = clock::now();
    match net::tcp_to(addresses, limit).await {
        Ok(_) => {
            let took = clock::now().since(begun).as_secs_f64() * 1e3;
            found.passed("tcp", format!("connected to {host} in {took:.1} ms"));
            found.measured(&[("connect_ms", took)]);
            true
        }
        Err(error) => {
            let kind = if net::is_limit(&error) { ErrorKind::SystemLimit } else { ErrorKind::Unavailable };
            let why = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => "connection refused, nothing listens there".to_owned(),
                std::io::ErrorKind::TimedOut => "no answer in time".to_owned(),
                _ => error.to_string(),
            };
            let todo =
                format!("check that the server runs, listens on port {port}, and that no firewall is in between");
            found.failed("tcp", kind, format!("{host}: {why}"), todo);
            false
        }
    }
}

/// How far the server's clock is ahead of ours.
async fn clock(shared: &Arc<TableClient>, found: &mut FindingList) {
    let (sent, wall) = (clock::now(), clock::wall_us());
    let asked = "SELECT extract(epoch FROM clock_timestamp())::float8";
    let rows = shared.query(asked, &[], sent + shared.connector.limits.request).await;
    let took = clock::now().since(sent);
    let told = rows.ok().and_then(|rows| rows.first()?.try_get::<_, f64>(0).ok());
    match told {
        Some(seconds) => found.clock(seconds * 1e6 - (wall as f64 + took.as_secs_f64() * 1e6 / 2.0), took),
        None => found.skipped("clock", "the server does not tell its time"),
    }
}

/// Takes a lock of its own and releases it.
async fn take(shared: &Arc<TableClient>, name: &[u8], found: &mut FindingList, until: Time) -> bool {
    let random = match random::random() {
        Ok(random) => random,
        Err(error) => {
            found.failed("permission", error.kind(), error.detail(), error.kind().todo());
            return false;
        }
    };
    let token = token::value(random, None);
    let mut key = name.to_vec();
    key.extend_from_slice(b"onelock-doctor");
    let claim = Claim { kind: Kind::Mutex, key: key.into(), token };
    let acquire = Op::Acquire { claim: claim.clone(), ttl_ms: 10_000, fence_ttl_ms: Some(10_000), info: None };
    let acquired = shared.call(&acquire, until).await.outcome;
    let released = shared.call(&Op::Release { claim }, until).await.outcome;
    match (acquired, released) {
        (
            Outcome::Applied(Reply::Granted { .. }),
            Outcome::Applied(Reply::Released(true) | Reply::ReleasedToWaiters),
        ) => {
            found.passed("permission", "a lock was taken and released");
            true
        }
        // another doctor at the same moment
        (Outcome::Applied(Reply::Denied { .. }), Outcome::Applied(_)) => {
            found.passed("permission", "a lock was asked for and released");
            true
        }
        (Outcome::NotApplied(failure) | Outcome::Indeterminate(failure), _)
        | (_, Outcome::NotApplied(failure) | Outcome::Indeterminate(failure)) => {
            found.failure("permission", &failure);
            false
        }
        (acquired, released) => {
            let detail = format!("a new lock could not be taken and released: {acquired:?}, {released:?}");
            found.failed("permission", ErrorKind::Internal, detail, ErrorKind::Internal.todo());
            false
        }
    }
}

async fn round_trip(shared: &Arc<TableClient>, found: &mut FindingList) {
    let mut spans = Vec::new();
    for _ in 0..ROUNDS {
        let begun = clock::now();
        if shared.query("SELECT 1", &[], begun + shared.connector.limits.request).await.is_err() {
            return found.skipped("round trip", "a request failed");
        }
        spans.push(clock::now().since(begun));
    }
    found.round_trips(spans, shared.connector.limits.request);
}
