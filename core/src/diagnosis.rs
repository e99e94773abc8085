//! Looking at the servers step by step: what works, what does not, and what to do.

use std::sync::Arc;

use crate::config::warning;
use crate::driver::engine::Engine;
use crate::machine::Grade;
use crate::store::address::StoreAddress;
use crate::store::diagnosis::FindingList;
use crate::store::{Boxed, Diagnosis, Facts, Finding, Severity};
use crate::sys::clock;
use crate::{Client, Error};

impl Client {
    /// Looks at the servers of this client step by step, and tells which step fails and what to do: name, TCP, TLS, user,
    /// database, role; version, persistence, eviction, replicas; the clock against ours, the round trip, a proxy in
    /// between; each permission, one by one; the members of a majority, Sentinels, the slots of a cluster; the grade of
    /// fencing tokens, and why.
    ///
    /// `name`: what the names of locks begin with that this user may lock (`app:`), since permissions are tried on such a
    /// name; the client's prefix comes before it. Nothing is changed on the server. It makes connections of its own, and
    /// takes some seconds at most where everything answers; a step that gets no answer ends with the client's time limits.
    ///
    /// # Errors
    /// What fails is a [finding](crate::Finding), not an error; an error is only what concerns the client: `Closed`,
    /// `Unsupported` without a runtime, `SystemLimit`.
    ///
    /// # Cancel safety
    /// It changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onelock::Error> {
    /// # let client = onelock::Client::connect("memory://").await?;
    /// let diagnosis = client.diagnose("app:").await?;
    /// for finding in &diagnosis.findings {
    ///     println!("{} {}: {}; {}", finding.severity.as_str(), finding.step, finding.detail, finding.todo);
    /// }
    /// assert!(diagnosis.severity() < onelock::Severity::Warning);
    /// # Ok(()) }
    /// ```
    pub async fn diagnose(&self, name: impl AsRef<[u8]>) -> Result<Diagnosis, Error> {
        let engine = self.engine()?;
        engine.check_open("diagnose")?;
        let steps = steps(self.address(), &engine, name.as_ref());
        Ok(diagnose(engine, steps).await)
    }
}

/// The steps of this address, under the client's prefix.
pub(crate) fn steps(address: &dyn StoreAddress, engine: &Engine, name: &[u8]) -> Boxed<Vec<Finding>> {
    let options = &engine.options;
    address.diagnose(options, [options.prefix.as_slice(), name].concat())
}

/// What a look at the servers finds; `steps` are those of the address.
pub(crate) async fn diagnose(engine: Arc<Engine>, steps: Boxed<Vec<Finding>>) -> Diagnosis {
    let diagnosis = Diagnosis { findings: steps.await, grade: Grade::None };
    if diagnosis.severity() == Severity::Failed {
        return diagnosis;
    }
    let engine = &*engine;
    let (mut findings, options) = (diagnosis.findings, &engine.options);
    let until = clock::now() + options.connect_timeout + options.request_timeout;
    let mut found = FindingList::of("");
    let mut grade = Grade::None;
    match engine.store.facts(until).await {
        Ok(facts) => grade = fencing(&facts, engine, &mut found),
        Err(failure) => found.failure("fencing", &failure),
    }
    findings.extend(found.all);
    Diagnosis { findings, grade }
}

/// How strong the tokens are, and why.
fn fencing(facts: &Facts, engine: &Engine, found: &mut FindingList) -> Grade {
    let (wanted, least) = (engine.options.fencing, engine.options.min_fencing_grade);
    let grade = if wanted { facts.grade } else { Grade::None };
    let is_told = |name: &str| facts.warnings.iter().any(|text| warning::is_accepted(text, &[name]));
    let why = match grade {
        Grade::Strict => "the server keeps every write that it has acknowledged",
        Grade::ClockBounded => "a restart may lose the counters; tokens go on from the server's clock then",
        Grade::BestEffort if is_told(warning::EVICTION) => "counters may be evicted without notice",
        Grade::BestEffort if is_told(warning::UNKNOWN) => {
            "the settings that decide whether counters may be lost are unknown"
        }
        Grade::BestEffort => "a failover to a replica, now or later, may lose the latest counters without notice",
        Grade::None if !wanted => "fencing is switched off",
        Grade::None => "this store has no fencing tokens: nothing can refuse a late writer",
    };
    let detail = format!("grade {}: {why}", grade.as_str());
    let todo = if facts.warnings.is_empty() { "" } else { "see the remarks and warnings above" };
    if grade < least {
        let detail = format!("{detail}; {} is demanded", least.as_str());
        found.failed("fencing", crate::ErrorKind::Unsupported, detail, todo);
    } else if grade == Grade::BestEffort || (wanted && grade == Grade::None) {
        found.remark("fencing", detail, todo);
    } else {
        found.passed("fencing", detail);
    }
    grade
}
