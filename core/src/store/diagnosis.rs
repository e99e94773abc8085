//! What a look at the servers found, step by step.

use crate::error::ErrorKind;
use crate::machine::{Failure, Grade};

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

    pub(crate) fn skipped(&mut self, step: &'static str, detail: impl Into<String>) {
        self.add(step, Severity::Skipped, detail.into(), String::new());
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
    /// Adds what was measured to the last finding.
    pub(crate) fn measured(&mut self, values: &[(&'static str, f64)]) {
        if let Some(last) = self.all.last_mut() {
            last.measured.extend_from_slice(values);
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn has_failed(&self) -> bool {
        self.all.iter().any(|finding| finding.severity == Severity::Failed)
    }
}
