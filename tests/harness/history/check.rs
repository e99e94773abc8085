//! The properties that a run must have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Record;
use super::intervals::{fencing, overlaps};
use super::leases::{Lease, Run};
use super::report::{Check, Report, Summary};

/// Some languages tell what is left of a lease in whole milliseconds, rounded down: the deadline is up to this much later.
const READING_NS: u64 = 1_000_000;

/// How much lateness is allowed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long after the end of the lease the loss event may come.
    pub loss_told: Duration,
    /// How much longer than its own limit a call may take, for a machine that is busy.
    pub call: Duration,
}

impl Default for Limits {
    /// A quarter of a second each.
    fn default() -> Self {
        Self { loss_told: Duration::from_millis(250), call: Duration::from_millis(250) }
    }
}

/// Checks a run: the records of all its processes, each process in its own order. Takes O(n log n).
pub fn check(records: &[Record], limits: &Limits) -> Report {
    let mut run = Run::read(records);
    let mut found = std::mem::take(&mut run.violations);
    let mut by_lock: BTreeMap<&str, Vec<&Lease<'_>>> = BTreeMap::new();
    for lease in run.leases.values() {
        if lease.within.is_none() {
            by_lock.entry(lease.lock).or_default().push(lease);
        }
    }
    for (lock, leases) in &by_lock {
        overlaps(lock, leases, &mut found);
        fencing(lock, leases, &mut found);
    }
    run.violations = found;
    let summary = summarize(&run, &by_lock);
    drop(by_lock);

    let leases = std::mem::take(&mut run.leases);
    for lease in leases.values() {
        check_nesting(lease, &leases, &mut run);
        check_held(lease, &mut run);
        check_loss(lease, limits, &mut run);
    }
    check_calls(limits, &mut run);
    run.violations.sort_by_key(|violation| violation.at_ns);
    Report { violations: run.violations, summary }
}

/// A re-entry keeps the token of the hold that it is in, and only a hold that stands can be re-entered.
fn check_nesting<'a>(lease: &Lease<'a>, leases: &BTreeMap<(&'a str, u64), Lease<'a>>, run: &mut Run<'a>) {
    let Some(number) = lease.within else { return };
    let Some(outer) = leases.get(&(lease.process, number)) else {
        let text = format!("{} is within lease {number}, which was never granted", lease.name());
        return run.violation(Check::WellFormed, lease.lock, lease.granted_ns, text);
    };
    if outer.token != lease.token {
        let text = format!("{} is within {}", lease.name(), outer.name());
        run.violation(Check::Fencing, lease.lock, lease.granted_ns, text);
    }
    if outer.end_ns() <= lease.called_ns {
        let text = format!("{} re-entered {}, which had ended at {} ns", lease.name(), outer.name(), outer.end_ns());
        run.violation(Check::Held, lease.lock, lease.granted_ns, text);
    }
}

fn check_held<'a>(lease: &Lease<'a>, run: &mut Run<'a>) {
    let mut violation = |check, at_ns, text: String| {
        run.violation(check, lease.lock, at_ns, format!("{} {text}", lease.name()));
    };
    for pair in lease.validity.windows(2) {
        if let [(_, before), (at_ns, after)] = *pair
            && after < before
        {
            violation(Check::Deadline, at_ns, format!("was valid until {before} ns, and then until {after} ns only"));
        }
    }
    let mut validity = lease.validity.iter().peekable();
    let mut valid_until = lease.granted_ns;
    let mut refused_ns = None;
    for sample in &lease.samples {
        let at_ns = sample.at_ns;
        while let Some(&(_, until)) = validity.next_if(|&&(known_ns, _)| known_ns <= at_ns) {
            valid_until = valid_until.max(until);
        }
        if !sample.held {
            refused_ns.get_or_insert(at_ns);
            continue;
        }
        if at_ns >= valid_until + READING_NS {
            violation(Check::Held, at_ns, format!("was held, and valid until {valid_until} ns"));
        }
        let ends = [(refused_ns, "it was not"), (lease.lost_ns, "it was lost"), (lease.released_ns, "it was released")];
        for (end, what) in ends {
            if let Some(end) = end.filter(|&end| end < at_ns) {
                violation(Check::Held, at_ns, format!("was held again after {what} at {end} ns"));
            }
        }
    }
}

fn check_loss<'a>(lease: &Lease<'a>, limits: &Limits, run: &mut Run<'a>) {
    let nested = lease.within.is_some();
    if nested || lease.released_ns.is_some_and(|released| released <= lease.lost_ns.unwrap_or(u64::MAX)) {
        return;
    }
    let ended_ns = lease.valid_until_ns();
    let due_ns = excuse(ended_ns, limits.loss_told, run.pauses.get(lease.process));
    match (lease.lost_ns, run.ends.get(lease.process)) {
        (Some(lost_ns), _) if lost_ns > due_ns => {
            let text = format!("{} ended at {ended_ns} ns, and its loss was told then", lease.name());
            run.violation(Check::LossTold, lease.lock, lost_ns, text);
        }
        (None, Some(&end_ns)) if end_ns > due_ns => {
            let text = format!("{} ended, and neither was it released nor its loss told", lease.name());
            run.violation(Check::LossTold, lease.lock, ended_ns, text);
        }
        _ => {}
    }
}

fn check_calls(limits: &Limits, run: &mut Run<'_>) {
    let mut late = Vec::new();
    for ended in run.calls.values() {
        let (call, process) = (ended.call, ended.call.process.as_str());
        let Some(limit_ns) = call.limit_ns else { continue };
        let due_ns = excuse_span(call.at_ns, limit_ns, run.pauses.get(process)) + nanos(limits.call);
        // A process that was killed in the middle of a call owes nothing.
        let end_ns = ended.end.map(|end| end.at_ns).or(run.ends.get(process).copied());
        if let Some(end_ns) = end_ns.filter(|&end_ns| end_ns > due_ns) {
            let how = if ended.end.is_some() { "took" } else { "did not end within" };
            let (taken, limit) = (Duration::from_nanos(end_ns - call.at_ns), Duration::from_nanos(limit_ns));
            let text = format!("{} of {process}, call {}, {how} {taken:?} of {limit:?}", call.op, call.call);
            late.push((call.lock.clone(), call.at_ns, text));
        } else if let (None, Some(&end_ns)) = (ended.end, run.ends.get(process)) {
            let text = format!("{} of {process}, call {}, had not returned at {end_ns} ns", call.op, call.call);
            late.push((call.lock.clone(), call.at_ns, text));
        }
    }
    for (lock, at_ns, text) in late {
        run.violation(Check::Bounded, &lock, at_ns, text);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// When something must have happened that is due `after` an instant, if nothing can happen during pauses.
fn excuse(from_ns: u64, after: Duration, pauses: Option<&Vec<(u64, u64)>>) -> u64 {
    let mut due_ns = from_ns.saturating_add(nanos(after));
    for &(pause_ns, resume_ns) in pauses.into_iter().flatten() {
        if pause_ns <= due_ns && resume_ns > from_ns {
            due_ns = due_ns.max(resume_ns.saturating_add(nanos(after)));
        }
    }
    due_ns
}

/// When a span of running time has passed, if time stands still during pauses.
fn excuse_span(from_ns: u64, span_ns: u64, pauses: Option<&Vec<(u64, u64)>>) -> u64 {
    let mut due_ns = from_ns.saturating_add(span_ns);
    for &(pause_ns, resume_ns) in pauses.into_iter().flatten() {
        if pause_ns < due_ns && resume_ns > from_ns {
            due_ns = due_ns.saturating_add(resume_ns - pause_ns.max(from_ns));
        }
    }
    due_ns
}

fn summarize(run: &Run<'_>, by_lock: &BTreeMap<&str, Vec<&Lease<'_>>>) -> Summary {
    let mut outcomes = BTreeMap::new();
    for ended in run.calls.values() {
        let outcome = ended.end.map_or("-", |end| end.outcome.as_str());
        *outcomes.entry(format!("{} {outcome}", ended.call.op)).or_default() += 1;
    }
    let processes: BTreeSet<_> = run.calls.keys().map(|&(process, _)| process).collect();
    let mut hand_overs: Vec<_> = by_lock.values().flat_map(|leases| hand_overs(leases)).collect();
    hand_overs.sort_unstable();
    Summary {
        processes: processes.len(),
        leases: by_lock.values().map(Vec::len).sum(),
        lost: run.leases.values().filter(|lease| lease.lost_ns.is_some()).count(),
        samples: run.leases.values().map(|lease| lease.samples.len()).sum(),
        outcomes,
        hand_overs,
    }
}

/// How long each lease stood ready before the next one that already waited got it.
fn hand_overs(leases: &[&Lease<'_>]) -> Vec<Duration> {
    let mut sorted = leases.to_vec();
    sorted.sort_by_key(|lease| lease.granted_ns);
    let waited = sorted.windows(2).filter_map(|pair| {
        let end_ns = pair[0].end_ns();
        let waited = pair[1].called_ns <= end_ns && end_ns <= pair[1].granted_ns;
        waited.then(|| Duration::from_nanos(pair[1].granted_ns - end_ns))
    });
    waited.collect()
}
