//! Objects that cross the boundary: errors, inspections, facts and statistics; `bindings-node/ts/native.ts` has their types.

use onelock::{
    Diagnosis, Error, ErrorKind, Facts, Finding, Histogram, Inspection, LockEntry, LockPage, LossReason, OwnerInfo,
    Release, Stats, Waiter,
};

use crate::json::Json;
use crate::memory::{Arguments, leave};

/// An error, as the classes in `bindings-node/ts/errors.ts` take it.
pub(crate) struct Failure {
    kind: ErrorKind,
    message: String,
    lock: Option<String>,
    tried: String,
    detail: String,
    causes: Vec<String>,
    reason: Option<LossReason>,
}

impl Failure {
    /// An error of the binding itself, worded like the core's.
    pub(crate) fn new(kind: ErrorKind, tried: &str, detail: &str) -> Failure {
        Failure {
            kind,
            message: format!("{tried}: {detail} ({}: {})", kind.name(), kind.todo()),
            lock: None,
            tried: tried.to_owned(),
            detail: detail.to_owned(),
            causes: Vec::new(),
            reason: None,
        }
    }

    /// The error of a lease that was lost while it was held.
    fn lost(name: &[u8], reason: LossReason) -> Failure {
        let lock = name.escape_ascii().to_string();
        let detail = format!("the lease was lost: {}", reason.explain());
        let failure = Failure::new(ErrorKind::Lost, &format!("hold \"{lock}\""), &detail);
        Failure { lock: Some(lock), tried: "hold".to_owned(), reason: Some(reason), ..failure }
    }

    pub(crate) fn because_of_loss(self, loss: Option<LossReason>) -> Failure {
        Failure { reason: loss, ..self }
    }

    pub(crate) fn json(&self) -> Json {
        Json::object(|fields| {
            fields.set("kind", Json::text(self.kind.name())).set("message", Json::text(&self.message));
            fields.may("lock", self.lock.as_deref().map(Json::text));
            fields.set("tried", Json::text(&self.tried)).set("detail", Json::text(&self.detail));
            fields.set("causes", Json::texts(&self.causes));
            fields.may("reason", self.reason.map(|reason| Json::text(reason.as_str())));
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            kind: error.kind(),
            message: error.to_string(),
            lock: error.lock_name().map(str::to_owned),
            tried: error.tried().to_owned(),
            detail: error.detail().to_owned(),
            causes: error.causes().to_vec(),
            reason: None,
        }
    }
}

fn holder(owner: OwnerInfo) -> Json {
    let OwnerInfo { label, pid, host, since_ms } = owner;
    Json::object(|fields| {
        fields.set("label", Json::text(&label)).set("pid", Json::number(pid.into()));
        fields.set("host", Json::text(&host)).set("since", Json::number(since_ms as f64));
    })
}

fn waiter(waiter: Waiter) -> Json {
    Json::object(|fields| {
        fields.may("client", waiter.client.map(holder)).set("since", Json::number(waiter.since_ms as f64));
    })
}

pub(crate) fn inspection(seen: Inspection) -> Json {
    let count = |count: Option<u64>| count.map(|count| Json::number(count as f64));
    Json::object(|fields| {
        fields.set("kind", Json::text(seen.kind.as_str())).set("origin", Json::text(seen.origin.as_str()));
        fields.may("owner", seen.owner.map(holder));
        fields.may("foreignHolder", seen.foreign_holder.as_deref().map(Json::text));
        fields.set("holdCount", Json::number(seen.hold_count as f64));
        fields.may("ttlLeft", seen.ttl_left.map(|left| Json::number(left.as_secs_f64() * 1e3)));
        fields.may("fencingToken", count(seen.fencing_token));
        fields.may("permits", count(seen.permits)).may("free", count(seen.free)).may("waiting", count(seen.waiting));
        fields.set("waiters", Json::array(seen.waiters.into_iter().map(waiter)));
    })
}

fn entry(entry: LockEntry) -> Json {
    Json::object(|fields| {
        fields.set("name", Json::name(entry.name)).set("seen", inspection(entry.inspection));
        fields.may("waiting", entry.waiting.map(|waiting| Json::number(waiting as f64)));
    })
}

pub(crate) fn page(page: LockPage) -> Json {
    Json::object(|fields| {
        fields.set("entries", Json::array(page.entries.into_iter().map(entry)));
        fields.may("next", page.next.as_deref().map(Json::text));
    })
}

pub(crate) fn facts(facts: &Facts) -> Json {
    Json::object(|fields| {
        fields.set("grade", Json::text(facts.grade.as_str())).set("warnings", Json::texts(&facts.warnings));
        fields.set("dangers", Json::texts(&facts.dangers)).set("server", Json::text(&facts.server));
    })
}

fn finding(finding: Finding) -> Json {
    Json::object(|fields| {
        fields.set("server", Json::text(&finding.server)).set("step", Json::text(finding.step));
        fields.set("severity", Json::text(finding.severity.as_str())).set("detail", Json::text(&finding.detail));
        fields.set("todo", Json::text(&finding.todo));
        fields.may("error", finding.error.map(|kind| Json::text(kind.name())));
        let measured = Json::object(|values| {
            for (name, value) in finding.measured {
                values.set(name, Json::number(value));
            }
        });
        fields.set("measured", measured);
    })
}

pub(crate) fn diagnosis(diagnosis: Diagnosis) -> Json {
    Json::object(|fields| {
        fields.set("severity", Json::text(diagnosis.severity().as_str()));
        fields.set("grade", Json::text(diagnosis.grade.as_str()));
        fields.set("findings", Json::array(diagnosis.findings.into_iter().map(finding)));
    })
}

fn histogram(histogram: &Histogram) -> Json {
    let quantile = |share| Json::number(histogram.quantile(share).as_secs_f64() * 1e3);
    Json::object(|fields| {
        fields.set("count", Json::number(histogram.count as f64));
        fields.set("sum", Json::number(histogram.sum_us as f64 / 1e3));
        fields.set("p50", quantile(0.5)).set("p90", quantile(0.9)).set("p99", quantile(0.99));
        fields.set("buckets", Json::array(histogram.buckets.iter().map(|count| Json::number(*count as f64))));
    })
}

pub(crate) fn counters(stats: &Stats) -> Json {
    let counts = [
        ("held", stats.held),
        ("waiting", stats.waiting),
        ("acquired", stats.acquired),
        ("busy", stats.busy),
        ("timeouts", stats.timeouts),
        ("cancelled", stats.cancelled),
        ("failed", stats.failed),
        ("released", stats.released),
        ("lost", stats.lost),
        ("renewals", stats.renewals),
        ("renewalsMissed", stats.renewals_missed),
        ("cleaning", stats.cleaning),
        ("reconnects", stats.reconnects),
        ("commandsSent", stats.commands_sent),
    ];
    Json::object(|fields| {
        for (name, count) in counts {
            fields.set(name, Json::number(count as f64));
        }
        fields.set("wait", histogram(&stats.wait)).set("hold", histogram(&stats.hold));
    })
}

/// The number of a loss reason in `bindings-node/ts/codes.ts`; 0 for none.
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

/// The number of the outcome of a release.
pub(crate) fn release_code(outcome: Release) -> u32 {
    match outcome {
        Release::Released => 0,
        Release::AlreadyExpired => 1,
        Release::AlreadyReleased => 2,
        _ => 3,
    }
}

/// The error of a loss.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_loss_failure(name: usize, reason: u32) -> i32 {
    let reason = match reason {
        2 => LossReason::Taken,
        3 => LossReason::MaxHold,
        4 => LossReason::ClockAnomaly,
        5 => LossReason::Closed,
        _ => LossReason::Expired,
    };
    leave(Failure::lost(Arguments::take(name).bytes(name), reason).json().into_bytes())
}

/// The table of errors, for messages that TypeScript composes.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_kinds() -> i32 {
    let rows = ErrorKind::ALL.iter().map(|kind| {
        Json::object(|fields| {
            fields.set("kind", Json::text(kind.name())).set("number", Json::number(kind.number().into()));
            fields.set("notAcquired", Json::flag(kind.is_not_acquired()));
            fields.set("retryable", Json::flag(kind.is_retryable())).set("todo", Json::text(kind.todo()));
        })
    });
    leave(Json::array(rows).into_bytes())
}

/// The version of this module, to be compared with the package's.
#[unsafe(no_mangle)]
pub extern "C" fn onelock_version() -> i32 {
    leave(env!("CARGO_PKG_VERSION"))
}
