//! A look at a cluster: how strong its fencing tokens are, and step by step whether locks can be taken in it.

use std::sync::Arc;

use super::messages::{self, Ranged, Status, path};
use super::protobuf::Message;
use super::request::CallRequest;
use super::{ClusterClient, EtcdStore, names};
use crate::ErrorKind;
use crate::config::warning::{PERSISTENCE, REPLICAS, finding};
use crate::machine::{Claim, Failure, Grade, Key, Kind, Op, Outcome, Reply, Time, token};
use crate::store::diagnosis::{Finding, FindingList};
use crate::store::{Boxed, Facts, Store};
use crate::sys::{clock, random};

/// How often the round trip is measured.
const ROUNDS: usize = 9;

/// Whether a former leader that was stopped may end leases that live, or renew those that have ended
/// (etcd-io/etcd#15247): fixed in 3.5.13 and 3.4.31.
fn has_stale_leaders(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    match (next(), next(), next()) {
        (0..3, ..) | (3, 0..4, _) => true,
        (3, 4, patch) => patch < 31,
        (3, 5, patch) => patch < 13,
        _ => false,
    }
}

fn stale(version: &str) -> String {
    format!(
        "etcd {version} may end a lease that lives, or renew one that has ended, when a stopped leader comes back; use 3.5.13 \
         or newer, or 3.4.31"
    )
}

async fn status(shared: &Arc<ClusterClient>, until: Time) -> Result<Status, Failure> {
    shared
        .query(until, |connection, until| async move {
            CallRequest::new(shared, &connection, until).ask(path::STATUS, Message::default()).await
        })
        .await
}

pub(super) async fn facts(shared: &Arc<ClusterClient>, until: Time) -> Result<Facts, Failure> {
    let status = status(shared, until).await?;
    let mut warnings = Vec::new();
    let mut grade = Grade::Strict;
    if has_stale_leaders(&status.version) {
        grade = Grade::BestEffort;
        warnings.push(finding(REPLICAS, &stale(&status.version)));
    }
    warnings.extend(status.errors.iter().map(|error| finding(PERSISTENCE, &format!("the server says: {error}"))));
    Ok(Facts { grade, warnings, dangers: Vec::new(), server: format!("etcd {}", status.version) })
}

/// Looks at the cluster. `name` is what the keys begin with.
pub(super) fn look(store: EtcdStore, name: Vec<u8>) -> Boxed<Vec<Finding>> {
    Box::pin(async move {
        let mut found = FindingList::of(store.address());
        steps(&store.shared, &name, &mut found).await;
        store.close();
        found.all
    })
}

async fn steps(shared: &Arc<ClusterClient>, name: &[u8], found: &mut FindingList) {
    let limits = &shared.connector.limits;
    let within = || clock::now() + limits.connect + limits.request;
    let status = match status(shared, within()).await {
        Ok(status) => status,
        Err(failure) => {
            let step = match failure.kind {
                ErrorKind::AuthFailed => "user",
                ErrorKind::NotPermitted | ErrorKind::ServerRefused => "permission",
                ErrorKind::Unsupported => "version",
                _ if failure.detail.contains("TLS") => "tls",
                _ => "tcp",
            };
            return found.failure(step, &failure);
        }
    };
    found.passed("tcp", "the server answers");
    if shared.connector.cluster.tls.is_some() {
        found.passed("tls", "the certificate is right");
    }
    if let Ok(connection) = shared.connected(within()).await {
        match (connection.token.is_some(), shared.connector.cluster.password.is_some()) {
            (true, _) => found.passed("user", "user and password are right"),
            (false, true) => found.remark("user", "the server asks for no password", "leave it out of the address"),
            (false, false) => found.passed("user", "none is named"),
        }
    }
    if has_stale_leaders(&status.version) {
        found.warning("version", stale(&status.version), "or keep to locks whose loss does no harm");
    } else {
        found.passed("version", format!("etcd {}", status.version));
    }
    for error in &status.errors {
        found.warning("alarms", error, "see etcdctl alarm list");
    }
    if take(shared, name, found, within()).await {
        round_trip(shared, &trial(name), found).await;
    }
}

/// The lock that is taken to see whether one can be.
fn trial(name: &[u8]) -> Key {
    [name, b"onelock-doctor"].concat().into()
}

/// Takes a lock of its own and releases it.
async fn take(shared: &Arc<ClusterClient>, name: &[u8], found: &mut FindingList, until: Time) -> bool {
    let random = match random::random() {
        Ok(random) => random,
        Err(error) => {
            found.failed("permission", error.kind(), error.detail(), error.kind().todo());
            return false;
        }
    };
    let token = token::value(random, None);
    let claim = Claim { kind: Kind::Mutex, key: trial(name), token };
    let acquire = Op::Acquire { claim: claim.clone(), ttl_ms: 10_000, fence_ttl_ms: Some(10_000), info: None };
    let acquired = shared.call(&acquire, until).await.outcome;
    let released = shared.call(&Op::Release { claim }, until).await.outcome;
    match (acquired, released) {
        (Outcome::Applied(Reply::Granted { .. }), Outcome::Applied(Reply::Released(true))) => {
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
            found.failure(if failure.kind == ErrorKind::AuthFailed { "user" } else { "permission" }, &failure);
            false
        }
        (acquired, released) => {
            let detail = format!("a new lock could not be taken and released: {acquired:?}, {released:?}");
            found.failed("permission", ErrorKind::Internal, detail, ErrorKind::Internal.todo());
            false
        }
    }
}

async fn round_trip(shared: &Arc<ClusterClient>, key: &Key, found: &mut FindingList) {
    let directory = names::directory(&shared.connector.cluster, key);
    let mut spans = Vec::new();
    for _ in 0..ROUNDS {
        let begun = clock::now();
        let asked = shared.query(begun + shared.connector.limits.request, |connection, until| {
            let range = messages::oldest(&directory, 1);
            async move { CallRequest::new(shared, &connection, until).ask::<Ranged>(path::RANGE, range).await }
        });
        if asked.await.is_err() {
            return found.skipped("round trip", "a request failed");
        }
        spans.push(clock::now().since(begun));
    }
    found.round_trips(spans, shared.connector.limits.request);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_servers_have_the_bug() {
        for (version, has) in [
            ("3.4.23", true),
            ("3.4.31", false),
            ("3.5.12", true),
            ("3.5.13", false),
            ("3.6.0-rc.1", false),
            ("3.7.3", false),
            ("4.0.0", false),
            ("", true),
        ] {
            assert_eq!(has_stale_leaders(version), has, "{version}");
        }
    }
}
