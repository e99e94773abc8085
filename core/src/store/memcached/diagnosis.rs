//! What a server says of itself, and a look at it step by step.

use std::sync::Arc;

use super::operations::trial;
use super::{MemcachedStore, ServerClient};
use crate::ErrorKind;
use crate::config::warning::{EVICTION, PERSISTENCE, UNKNOWN, finding};
use crate::machine::{Claim, Failure, Grade, Op, Outcome, Reply, Time};
use crate::store::diagnosis::{Finding, FindingList};
use crate::store::{Boxed, Facts, Store};
use crate::sys::{clock, random};

/// How often the round trip is measured.
const ROUNDS: usize = 9;

const EVICTS: &str = "the server removes items to make room, locks that are held among them: then two may hold at once. Use \
                      another store where that does harm, or give locks a server of their own with -M and memory to spare";
const NEVER_EVICTS: &str =
    "the server removes nothing to make room (-M): when its memory is full, new locks are refused";
const SILENT: &str =
    "the server does not say whether it removes items to make room: a lock that is held may be among them";
const FORGETS: &str = "a restart and flush_all forget every lock at once, and there are no fencing tokens: use another store \
                       where two holders at once do harm";

/// What to do about it.
const ANOTHER: &str = "keep to work that may run twice, or use another store";

pub(super) async fn facts(shared: &Arc<ServerClient>, until: Time) -> Result<Facts, Failure> {
    let connection = shared.connected(until).await?;
    let greeting = &connection.greeting;
    let mut warnings = Vec::new();
    match greeting.evicts {
        Some(true) => warnings.push(finding(EVICTION, EVICTS)),
        Some(false) => {}
        None => warnings.push(finding(UNKNOWN, SILENT)),
    }
    warnings.push(finding(PERSISTENCE, FORGETS));
    let server = format!("memcached {}", greeting.version);
    Ok(Facts { grade: Grade::None, warnings, dangers: Vec::new(), server })
}

/// Looks at the server. `name` is what the keys begin with.
pub(super) fn look(store: MemcachedStore, name: Vec<u8>) -> Boxed<Vec<Finding>> {
    Box::pin(async move {
        let mut found = FindingList::of(store.address());
        steps(&store.shared, &name, &mut found).await;
        store.close();
        found.all
    })
}

async fn steps(shared: &Arc<ServerClient>, name: &[u8], found: &mut FindingList) {
    let (connect, request) = (shared.connector.connect_timeout, shared.connector.request_timeout);
    let connection = match shared.connected(clock::now() + connect).await {
        Ok(connection) => connection,
        Err(failure) => {
            let step = match failure.kind {
                ErrorKind::AuthFailed => "user",
                ErrorKind::Unsupported => "version",
                _ if failure.detail.contains("TLS") => "tls",
                _ => "tcp",
            };
            return found.failure(step, &failure);
        }
    };
    let greeting = &connection.greeting;
    found.passed("tcp", "the server answers");
    if shared.connector.server.tls.is_some() {
        found.passed("tls", "the certificate is right");
    }
    match (greeting.logged_in, shared.connector.server.password.is_some()) {
        (true, _) => found.passed("user", "user and password are right"),
        (false, true) => found.remark("user", "the server asks for no password", "leave it out of the address"),
        (false, false) => found.passed("user", "the server asks for none"),
    }
    found.passed("version", format!("memcached {}", greeting.version));
    match greeting.evicts {
        Some(true) => found.warning("eviction", EVICTS, ANOTHER),
        Some(false) => found.remark("eviction", NEVER_EVICTS, "watch its memory"),
        None => found.warning("eviction", SILENT, ANOTHER),
    }
    found.remark("persistence", FORGETS, ANOTHER);
    let claim = match random::random() {
        Ok(random) => trial(name, random),
        Err(error) => return found.failed("permission", error.kind(), error.detail(), error.kind().todo()),
    };
    if !take(shared, &claim, found, clock::now() + request).await {
        return;
    }
    let mut spans = Vec::new();
    for _ in 0..ROUNDS {
        let begun = clock::now();
        let inspect = Op::Inspect { key: claim.key.clone() };
        if !matches!(shared.call(&inspect, begun + request).await.outcome, Outcome::Applied(_)) {
            return found.skipped("round trip", "a request failed");
        }
        spans.push(clock::now().since(begun));
    }
    found.round_trips(spans, request);
    found.remark("notify", "nothing tells of a release: waiters look every 50 to 150 ms", "");
}

/// Takes a lock of its own and releases it.
async fn take(shared: &Arc<ServerClient>, claim: &Claim, found: &mut FindingList, until: Time) -> bool {
    let acquire = Op::Acquire { claim: claim.clone(), ttl_ms: 10_000, fence_ttl_ms: None, info: None };
    let acquired = shared.call(&acquire, until).await.outcome;
    let released = shared.call(&Op::Release { claim: claim.clone() }, until).await.outcome;
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
