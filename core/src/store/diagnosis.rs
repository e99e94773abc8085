//! What a look at the servers found, step by step.

#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd", feature = "memcached"))]
use std::time::Duration;

use crate::error::ErrorKind;
use crate::machine::{Failure, Grade};

/// Clocks that are further apart are worth a remark.
#[cfg(any(feature = "redis", feature = "postgres"))]
const CLOCK_REMARK: Duration = Duration::from_secs(5);

/// How one step of a [`Diagnosis`] ended, from harmless to grave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// It could not be tried.
    Skipped,
    /// It is as it should be.
    Passed,
    /// It is worth knowing; locks are safe while the server runs.
    Remark,
    /// Locks can be taken, but something endangers or delays them.
    Warning,
    /// Locks cannot be taken.
    Failed,
}

impl Severity {
    /// The name, in small letters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Skipped => "skipped",
            Severity::Passed => "passed",
            Severity::Remark => "remark",
            Severity::Warning => "warning",
            Severity::Failed => "failed",
        }
    }
}

/// One step of a [`Diagnosis`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// The server, without secrets; empty for what concerns all of them.
    pub server: String,
    /// What was tried: `name`, `tcp`, `tls`, `protocol`, `user`, `database`, `role`, `version`, `persistence`, `eviction`,
    /// `replicas`, `clock`, `round trip`, `proxy`, `permission`, `sentinel`, `slots`, `notify`, `quarantine`, `quorum`,
    /// `clocks`, `fencing`, `file system`.
    pub step: &'static str,
    /// How it ended.
    pub severity: Severity,
    /// What was found, a sentence for people.
    pub detail: String,
    /// What to do about it; empty where nothing is to be done.
    pub todo: String,
    /// The kind of error that a call would end with, for what failed.
    pub error: Option<ErrorKind>,
    /// What was measured, by names that end with the unit, such as `median_us`.
    pub measured: Vec<(&'static str, f64)>,
}

/// What a look at the servers found, from [`Client::diagnose`](crate::Client::diagnose).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The steps, server by server, in the order in which they were tried. After one that failed the rest of that server's
    /// are missing.
    pub findings: Vec<Finding>,
    /// How strong fencing tokens are there; [`Grade::None`] if that could not be found out, and without fencing.
    pub grade: Grade,
}

impl Diagnosis {
    /// The gravest of them.
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Skipped)
    }
}

/// Collects findings about one server, or about all.
pub(crate) struct FindingList {
    server: String,
    pub(crate) all: Vec<Finding>,
}

impl FindingList {
    pub(crate) fn of(server: &(impl ToString + ?Sized)) -> FindingList {
        FindingList { server: server.to_string(), all: Vec::new() }
    }

    fn add(&mut self, step: &'static str, severity: Severity, detail: String, todo: String) {
        let server = self.server.clone();
        self.all.push(Finding { server, step, severity, detail, todo, error: None, measured: Vec::new() });
    }

    pub(crate) fn passed(&mut self, step: &'static str, detail: impl Into<String>) {
        self.add(step, Severity::Passed, detail.into(), String::new());
    }

    pub(crate) fn remark(&mut self, step: &'static str, detail: impl Into<String>, todo: impl Into<String>) {
        self.add(step, Severity::Remark, detail.into(), todo.into());
    }

    /// What failed, and what to do about it.
    pub(crate) fn failed(
        &mut self,
        step: &'static str,
        kind: ErrorKind,
        detail: impl Into<String>,
        todo: impl Into<String>,
    ) {
        self.add(step, Severity::Failed, detail.into(), todo.into());
        if let Some(last) = self.all.last_mut() {
            last.error = Some(kind);
        }
    }

    /// The same, told by a failure: its words may say what to do, and its kind does otherwise.
    pub(crate) fn failure(&mut self, step: &'static str, failure: &Failure) {
        let front = format!("{}: ", self.server);
        let detail = failure.detail.strip_prefix(&front).unwrap_or(&failure.detail);
        self.failed(step, failure.kind, detail, failure.kind.todo());
    }
}

/// What a look at a directory needs, too.
#[cfg(any(
    feature = "redis",
    feature = "postgres",
    feature = "etcd",
    feature = "memcached",
    all(feature = "file", unix)
))]
impl FindingList {
    pub(crate) fn warning(&mut self, step: &'static str, detail: impl Into<String>, todo: impl Into<String>) {
        self.add(step, Severity::Warning, detail.into(), todo.into());
    }
}

/// What only a look at a server needs.
#[cfg(any(feature = "redis", feature = "postgres", feature = "etcd", feature = "memcached"))]
impl FindingList {
    pub(crate) fn skipped(&mut self, step: &'static str, detail: impl Into<String>) {
        self.add(step, Severity::Skipped, detail.into(), String::new());
    }

    /// Adds what was measured to the last finding.
    pub(crate) fn measured(&mut self, values: &[(&'static str, f64)]) {
        if let Some(last) = self.all.last_mut() {
            last.measured.extend_from_slice(values);
        }
    }

    /// How long requests took, and how much that varies; `limit`: how long one may take.
    pub(crate) fn round_trips(&mut self, mut took: Vec<Duration>, limit: Duration) {
        const STEP: &str = "round trip";
        if took.is_empty() {
            return self.skipped(STEP, "a request failed");
        }
        took.sort_unstable();
        let us = |part: usize| took[(took.len() - 1) * part / 100].as_secs_f64() * 1e6;
        let (least, median, p99, worst) = (us(0), us(50), us(99), us(100));
        let detail = format!(
            "{:.2} ms in the median of {}; {:.2} ms at best, {:.2} ms at worst",
            median / 1e3,
            took.len(),
            least / 1e3,
            worst / 1e3
        );
        if worst > limit.as_secs_f64() * 1e6 / 2.0 {
            let limit = limit.as_millis();
            let todo =
                format!("raise request_timeout ({limit} ms), or find out what holds the network or the server up");
            self.warning(STEP, detail, todo);
        } else {
            self.passed(STEP, detail);
        }
        self.measured(&[("least_us", least), ("median_us", median), ("p99_us", p99), ("worst_us", worst)]);
    }

    /// How far the server's clock is ahead of ours, in microseconds; `took`: how long it took to ask.
    #[cfg(any(feature = "redis", feature = "postgres"))]
    pub(crate) fn clock(&mut self, ahead_us: f64, took: Duration) {
        let (ahead, give_or_take) = (ahead_us / 1e3, took.as_secs_f64() * 1e3 / 2.0);
        // what is shown as nothing has no sign
        let shown = if ahead.abs() < 0.05 { "0.0".to_owned() } else { format!("{ahead:+.1}") };
        let detail = format!("{shown} ms against ours, give or take {give_or_take:.1} ms");
        if ahead.abs() > CLOCK_REMARK.as_secs_f64() * 1e3 {
            let todo = "set both clocks by NTP: leases are measured in elapsed time and do not mind, but fencing tokens \
                        continue from the server's clock if it loses its data, and people compare logs";
            self.remark("clock", detail, todo);
        } else {
            self.passed("clock", detail);
        }
        self.measured(&[("ahead_ms", ahead), ("uncertainty_ms", give_or_take)]);
    }

    #[cfg(feature = "redis")]
    pub(crate) fn has_failed(&self) -> bool {
        self.all.iter().any(|finding| finding.severity == Severity::Failed)
    }
}
