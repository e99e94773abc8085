//! What all servers together report about themselves.

use futures_util::future::join_all;

use super::RedlockState;
use crate::config::warning::{ABSENT, EVEN, finding};
use crate::error::ErrorKind;
use crate::machine::{Failure, Grade, Time};
use crate::store::Facts;

/// Queries every server; a majority has to answer. The tokens are as strong as the weakest server's.
pub(crate) async fn query(inner: &RedlockState, until: Time) -> Result<Facts, Failure> {
    let looks = join_all(inner.members.iter().map(|member| member.facts(until))).await;
    let number = inner.members.len();
    let majority = number / 2 + 1;
    let name = |node: usize| inner.members[node].name();
    let failures: Vec<&Failure> = looks.iter().filter_map(|look| look.as_ref().err()).collect();
    if number - failures.len() < majority {
        return Err(failure(&failures, majority, number));
    }
    let mut warnings = Vec::new();
    if number.is_multiple_of(2) {
        let fewer = number - 1;
        let text =
            format!("{number} servers survive no more failures than {fewer} do, and tie more often: use an odd number");
        warnings.push(finding(EVEN, &text));
    }
    let (mut grade, mut servers) = (Grade::Strict, Vec::new());
    for (node, look) in looks.iter().enumerate() {
        match look {
            Ok(facts) => {
                grade = grade.min(facts.grade);
                servers.push(facts.server.clone());
                warnings.extend(facts.warnings.iter().map(|warning| format!("{}: {warning}", name(node))));
            }
            Err(failure) => {
                // its own report is not known
                grade = grade.min(Grade::ClockBounded);
                let detail = failure.detail.strip_prefix(&format!("{}: ", name(node))).unwrap_or(&failure.detail);
                warnings.push(finding(ABSENT, &format!("{}: cannot be asked: {detail}", name(node))));
            }
        }
    }
    servers.sort_unstable();
    servers.dedup();
    Ok(Facts { grade, warnings, dangers: Vec::new(), server: format!("redlock on {number} of {}", servers.join(", ")) })
}

pub(super) fn failure(failures: &[&Failure], majority: usize, number: usize) -> Failure {
    let detail = format!("{majority} of {number} servers are needed, {} cannot be asked", failures.len());
    let first = failures.first().map_or(ErrorKind::NoQuorum, |failure| failure.kind);
    let same = first != ErrorKind::Unavailable && failures.iter().all(|failure| failure.kind == first);
    Failure {
        kind: if same { first } else { ErrorKind::NoQuorum },
        transient: failures.iter().any(|failure| failure.transient),
        detail,
        nodes: failures.iter().map(|failure| failure.detail.clone()).collect(),
    }
}
