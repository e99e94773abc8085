//! What looking at locks and servers tells.

use std::collections::HashMap;

use onelock::OwnerInfo;

use crate::error::ErrorKind;
use crate::words::{Grade, Kind, Origin, Severity};

/// Who holds or waits, as far as it is told.
#[derive(Debug, uniffi::Record)]
pub struct HolderInfo {
    pub label: String,
    /// The number of the process.
    pub pid: i64,
    pub host: String,
    /// Milliseconds since 1970.
    pub since_ms: i64,
}

impl From<OwnerInfo> for HolderInfo {
    fn from(owner: OwnerInfo) -> HolderInfo {
        let OwnerInfo { label, pid, host, since_ms } = owner;
        HolderInfo { label, pid: pid.into(), host, since_ms: since_ms as i64 }
    }
}

/// A client that waits with a place in a queue.
#[derive(Debug, uniffi::Record)]
pub struct WaitingClient {
    pub client: Option<HolderInfo>,
    /// Milliseconds since 1970.
    pub since_ms: i64,
}

/// A lock that is held, as the server sees it.
#[derive(Debug, uniffi::Record)]
pub struct Inspection {
    pub kind: Kind,
    pub origin: Origin,
    /// Only of holders whose client is `inspectable`.
    pub owner: Option<HolderInfo>,
    /// What another library wrote about its holder.
    pub foreign_holder: Option<String>,
    pub hold_count: i64,
    pub ttl_left_ms: Option<i64>,
    pub fencing_token: Option<i64>,
    /// Of a semaphore: how many there are, and how many are free.
    pub permits: Option<i64>,
    pub free: Option<i64>,
    /// How many wait with a place in a queue, and the first of them.
    pub waiting: Option<i64>,
    pub waiters: Vec<WaitingClient>,
}

impl From<onelock::Inspection> for Inspection {
    fn from(seen: onelock::Inspection) -> Inspection {
        let number = |value: Option<u64>| value.map(|value| value as i64);
        let waiters = seen.waiters.into_iter();
        Inspection {
            kind: seen.kind.into(),
            origin: seen.origin.into(),
            owner: seen.owner.map(HolderInfo::from),
            foreign_holder: seen.foreign_holder,
            hold_count: seen.hold_count as i64,
            ttl_left_ms: seen.ttl_left.map(|left| left.as_millis() as i64),
            fencing_token: number(seen.fencing_token),
            permits: number(seen.permits),
            free: number(seen.free),
            waiting: number(seen.waiting),
            waiters: waiters
                .map(|waiter| WaitingClient {
                    since_ms: waiter.since_ms as i64,
                    client: waiter.client.map(HolderInfo::from),
                })
                .collect(),
        }
    }
}

/// One lock of a listing.
#[derive(Debug, uniffi::Record)]
pub struct LockEntry {
    /// Its bytes; most names are UTF-8.
    pub name: Vec<u8>,
    pub inspection: Inspection,
    /// How many wait for it, where the server knows.
    pub waiting: Option<i64>,
}

/// A part of a listing.
#[derive(Debug, uniffi::Record)]
pub struct LockPage {
    pub entries: Vec<LockEntry>,
    /// Where the next page begins; null after the last one.
    pub next: Option<String>,
}

impl From<onelock::LockPage> for LockPage {
    fn from(page: onelock::LockPage) -> LockPage {
        let entries = page.entries.into_iter().map(|entry| LockEntry {
            name: entry.name,
            inspection: entry.inspection.into(),
            waiting: entry.waiting.map(|waiting| waiting as i64),
        });
        LockPage { entries: entries.collect(), next: page.next }
    }
}

/// The permits of a semaphore.
#[derive(Debug, uniffi::Record)]
pub struct Permits {
    pub total: i64,
    pub held: i64,
    pub free: i64,
}

impl From<onelock::Permits> for Permits {
    fn from(permits: onelock::Permits) -> Permits {
        let onelock::Permits { total, held, free, .. } = permits;
        Permits { total: total as i64, held: held as i64, free: free as i64 }
    }
}

/// What a check found out about the servers.
#[derive(Debug, uniffi::Record)]
pub struct ServerFacts {
    pub grade: Grade,
    /// What may break locks.
    pub warnings: Vec<String>,
    /// What does break them.
    pub dangers: Vec<String>,
    pub server: String,
}

impl From<onelock::Facts> for ServerFacts {
    fn from(facts: onelock::Facts) -> ServerFacts {
        let onelock::Facts { grade, warnings, dangers, server } = facts;
        ServerFacts { grade: grade.into(), warnings, dangers, server }
    }
}

/// One step of a diagnosis.
#[derive(Debug, uniffi::Record)]
pub struct Finding {
    pub server: String,
    pub step: String,
    pub severity: Severity,
    pub detail: String,
    pub todo: String,
    pub error: Option<ErrorKind>,
    /// What was measured, by name.
    pub measured: HashMap<String, f64>,
}

/// What a look at the servers found, step by step.
#[derive(Debug, uniffi::Record)]
pub struct Diagnosis {
    /// That of the worst finding.
    pub severity: Severity,
    pub grade: Grade,
    pub findings: Vec<Finding>,
}

impl From<onelock::Diagnosis> for Diagnosis {
    fn from(found: onelock::Diagnosis) -> Diagnosis {
        let severity = found.severity().into();
        let findings = found.findings.into_iter().map(|finding| Finding {
            server: finding.server,
            step: finding.step.to_owned(),
            severity: finding.severity.into(),
            detail: finding.detail,
            todo: finding.todo,
            error: finding.error.map(ErrorKind::from),
            measured: finding.measured.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        });
        Diagnosis { severity, grade: found.grade.into(), findings: findings.collect() }
    }
}
