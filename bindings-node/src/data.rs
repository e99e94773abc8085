//! Objects that cross the boundary: errors, inspections, facts and statistics.

use std::collections::HashMap;

use napi::Either;
use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use onelock::{
    Diagnosis, Error, ErrorKind, Facts, Finding, Histogram, Inspection, LockEntry, LockPage, LossReason, OwnerInfo,
    Release, Stats, Waiter,
};

use crate::client::{Name, bytes};

/// An error, as the classes in `ts/errors.ts` take it.
#[napi(object)]
pub struct Failure {
    pub kind: String,
    pub message: String,
    pub lock: Option<String>,
    pub tried: String,
    pub detail: String,
    pub causes: Vec<String>,
    pub reason: Option<String>,
}

impl Failure {
    /// An error of the binding itself, worded like the core's.
    pub(crate) fn new(kind: ErrorKind, tried: &str, detail: impl Into<String>) -> Failure {
        let detail = detail.into();
        Failure {
            kind: kind.name().to_owned(),
            message: format!("{tried}: {detail} ({}: {})", kind.name(), kind.todo()),
            lock: None,
            tried: tried.to_owned(),
            detail,
            causes: Vec::new(),
            reason: None,
        }
    }

    /// The error of a lease that was lost while it was held.
    pub(crate) fn lost(name: &[u8], reason: LossReason) -> Failure {
        let kind = ErrorKind::Lost;
        let lock = name.escape_ascii().to_string();
        let detail = format!("the lease was lost: {}", reason.explain());
        Failure {
            kind: kind.name().to_owned(),
            message: format!("hold \"{lock}\": {detail} ({}: {})", kind.name(), kind.todo()),
            lock: Some(lock),
            tried: "hold".to_owned(),
            detail,
            causes: Vec::new(),
            reason: Some(reason.as_str().to_owned()),
        }
    }

    pub(crate) fn because_of_loss(mut self, loss: Option<LossReason>) -> Failure {
        self.reason = loss.map(|reason| reason.as_str().to_owned());
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            kind: error.kind().name().to_owned(),
            message: error.to_string(),
            lock: error.lock_name().map(str::to_owned),
            tried: error.tried().to_owned(),
            detail: error.detail().to_owned(),
            causes: error.causes().to_vec(),
            reason: None,
        }
    }
}

/// A row of the table of errors.
#[napi(object)]
pub struct KindRow {
    pub kind: String,
    pub number: u32,
    pub not_acquired: bool,
    pub retryable: bool,
    pub todo: String,
}

/// The table of errors, for messages that TypeScript composes.
#[napi]
pub fn kinds() -> Vec<KindRow> {
    ErrorKind::ALL
        .iter()
        .map(|kind| KindRow {
            kind: kind.name().to_owned(),
            number: kind.number(),
            not_acquired: kind.is_not_acquired(),
            retryable: kind.is_retryable(),
            todo: kind.todo().to_owned(),
        })
        .collect()
}

/// The version of this module, to be compared with the package's.
#[napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[napi(object)]
pub struct Holder {
    pub label: String,
    pub pid: u32,
    pub host: String,
    pub since: f64,
}

#[napi(object)]
pub struct Inspected {
    pub kind: String,
    pub origin: String,
    pub owner: Option<Holder>,
    pub foreign_holder: Option<String>,
    pub hold_count: f64,
    pub ttl_left: Option<f64>,
    pub fencing_token: Option<f64>,
    pub permits: Option<f64>,
    pub free: Option<f64>,
    pub waiting: Option<f64>,
    pub waiters: Vec<WaitingClient>,
}

/// A client that waits with a place in a queue.
#[napi(object)]
pub struct WaitingClient {
    pub client: Option<Holder>,
    pub since: f64,
}

impl From<Waiter> for WaitingClient {
    fn from(waiter: Waiter) -> WaitingClient {
        WaitingClient { client: waiter.client.map(Holder::from), since: waiter.since_ms as f64 }
    }
}

impl From<OwnerInfo> for Holder {
    fn from(owner: OwnerInfo) -> Holder {
        let OwnerInfo { label, pid, host, since_ms } = owner;
        Holder { label, pid, host, since: since_ms as f64 }
    }
}

impl From<Inspection> for Inspected {
    fn from(seen: Inspection) -> Inspected {
        Inspected {
            kind: seen.kind.as_str().to_owned(),
            origin: seen.origin.as_str().to_owned(),
            owner: seen.owner.map(Holder::from),
            foreign_holder: seen.foreign_holder,
            hold_count: seen.hold_count as f64,
            ttl_left: seen.ttl_left.map(|left| left.as_secs_f64() * 1e3),
            fencing_token: seen.fencing_token.map(|token| token as f64),
            permits: seen.permits.map(|permits| permits as f64),
            free: seen.free.map(|free| free as f64),
            waiting: seen.waiting.map(|waiting| waiting as f64),
            waiters: seen.waiters.into_iter().map(WaitingClient::from).collect(),
        }
    }
}

#[napi(object)]
pub struct Entry {
    /// Text, or bytes that are no UTF-8.
    pub name: Either<String, Uint8Array>,
    pub seen: Inspected,
    pub waiting: Option<f64>,
}

impl From<LockEntry> for Entry {
    fn from(entry: LockEntry) -> Entry {
        let name = match String::from_utf8(entry.name) {
            Ok(text) => Either::A(text),
            Err(bytes) => Either::B(bytes.into_bytes().into()),
        };
        Entry { name, seen: entry.inspection.into(), waiting: entry.waiting.map(|waiting| waiting as f64) }
    }
}

#[napi(object)]
pub struct Page {
    pub entries: Vec<Entry>,
    pub next: Option<String>,
}

impl From<LockPage> for Page {
    fn from(page: LockPage) -> Page {
        Page { entries: page.entries.into_iter().map(Entry::from).collect(), next: page.next }
    }
}

#[napi(object)]
pub struct ServerFacts {
    pub grade: String,
    pub warnings: Vec<String>,
    pub dangers: Vec<String>,
    pub server: String,
}

impl From<Facts> for ServerFacts {
    fn from(facts: Facts) -> ServerFacts {
        let Facts { grade, warnings, dangers, server } = facts;
        ServerFacts { grade: grade.as_str().to_owned(), warnings, dangers, server }
    }
}

#[napi(object)]
pub struct Found {
    pub server: String,
    pub step: String,
    pub severity: String,
    pub detail: String,
    pub todo: String,
    pub error: Option<String>,
    pub measured: HashMap<String, f64>,
}

impl From<Finding> for Found {
    fn from(finding: Finding) -> Found {
        Found {
            server: finding.server,
            step: finding.step.to_owned(),
            severity: finding.severity.as_str().to_owned(),
            detail: finding.detail,
            todo: finding.todo,
            error: finding.error.map(|kind| kind.name().to_owned()),
            measured: finding.measured.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }
}

#[napi(object)]
pub struct Diagnosed {
    pub severity: String,
    pub grade: String,
    pub findings: Vec<Found>,
}

impl From<Diagnosis> for Diagnosed {
    fn from(diagnosis: Diagnosis) -> Diagnosed {
        let severity = diagnosis.severity().as_str().to_owned();
        let findings = diagnosis.findings.into_iter().map(Found::from).collect();
        Diagnosed { severity, grade: diagnosis.grade.as_str().to_owned(), findings }
    }
}

#[napi(object)]
pub struct HistogramSummary {
    pub buckets: Vec<f64>,
    pub count: f64,
    pub sum: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

impl From<&Histogram> for HistogramSummary {
    fn from(histogram: &Histogram) -> HistogramSummary {
        let quantile = |share| histogram.quantile(share).as_secs_f64() * 1e3;
        HistogramSummary {
            buckets: histogram.buckets.iter().map(|count| *count as f64).collect(),
            count: histogram.count as f64,
            sum: histogram.sum_us as f64 / 1e3,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
        }
    }
}

#[napi(object)]
pub struct Counters {
    pub held: f64,
    pub waiting: f64,
    pub acquired: f64,
    pub busy: f64,
    pub timeouts: f64,
    pub cancelled: f64,
    pub failed: f64,
    pub released: f64,
    pub lost: f64,
    pub renewals: f64,
    pub renewals_missed: f64,
    pub cleaning: f64,
    pub reconnects: f64,
    pub commands_sent: f64,
    pub wait: HistogramSummary,
    pub hold: HistogramSummary,
}

impl From<Stats> for Counters {
    fn from(stats: Stats) -> Counters {
        Counters {
            held: stats.held as f64,
            waiting: stats.waiting as f64,
            acquired: stats.acquired as f64,
            busy: stats.busy as f64,
            timeouts: stats.timeouts as f64,
            cancelled: stats.cancelled as f64,
            failed: stats.failed as f64,
            released: stats.released as f64,
            lost: stats.lost as f64,
            renewals: stats.renewals as f64,
            renewals_missed: stats.renewals_missed as f64,
            cleaning: stats.cleaning as f64,
            reconnects: stats.reconnects as f64,
            commands_sent: stats.commands_sent as f64,
            wait: HistogramSummary::from(&stats.wait),
            hold: HistogramSummary::from(&stats.hold),
        }
    }
}

/// The number of a loss reason in `ts/codes.ts`; 0 for none.
pub(crate) fn loss_code(loss: Option<LossReason>) -> u32 {
    match loss {
        None => 0,
        Some(LossReason::Taken) => 2,
        Some(LossReason::MaxHold) => 3,
        Some(LossReason::ClockAnomaly) => 4,
        Some(LossReason::Closed) => 5,
        // and reasons that a later core may add
        Some(_) => 1,
    }
}

/// The error of a loss.
#[napi]
pub fn loss_failure(name: Name<'_>, reason: u32) -> Failure {
    let reason = match reason {
        2 => LossReason::Taken,
        3 => LossReason::MaxHold,
        4 => LossReason::ClockAnomaly,
        5 => LossReason::Closed,
        _ => LossReason::Expired,
    };
    Failure::lost(bytes(&name), reason)
}

/// The number of the outcome of a release.
pub(crate) fn release_code(outcome: Release) -> u32 {
    match outcome {
        Release::Released => 0,
        Release::AlreadyExpired => 1,
        Release::AlreadyReleased => 2,
        _ => 3,
    }
}
