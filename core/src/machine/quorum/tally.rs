//! What the answers of the nodes amount to, for everything but an acquire.

use super::{Nodes, Quorum, Unheard};
use crate::error::ErrorKind;
use crate::machine::{Claim, Failure, Kind, Op, Outcome, Renewal, Reply, Standing, Time};

/// The text for a node without an answer.
pub(super) const SILENT: &str = "no answer in time";

/// What one node answered.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) outcome: Outcome<Reply>,
    pub(super) votes: bool,
    pub(super) connection: u64,
}

impl Heard {
    /// Its verdict on one hold of a renewal.
    pub(super) fn verdict(&self, hold: usize) -> Option<&Renewal> {
        match &self.outcome {
            Outcome::Applied(Reply::Renewed(verdicts)) => verdicts.get(hold),
            _ => None,
        }
    }

    fn is_applied(&self) -> bool {
        matches!(self.outcome, Outcome::Applied(_))
    }
}

type Answers = [Option<Heard>];

fn number(answers: &Answers, wanted: impl Fn(&Heard) -> bool) -> usize {
    answers.iter().flatten().filter(|heard| wanted(heard)).count()
}

/// What a round says about one hold of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    /// A majority confirmed it.
    Yes,
    /// No majority has it any more.
    No,
    /// Too few answers so far.
    Open,
}

/// The result for one hold of a renewal. A node that is not eligible cannot confirm, but a missing hold counts.
pub(super) fn renewal(answers: &Answers, majority: usize, hold: usize) -> Renewed {
    let confirmed = number(answers, |heard| heard.votes && heard.verdict(hold) == Some(&Renewal::Renewed));
    let gone = number(answers, |heard| heard.verdict(hold) == Some(&Renewal::NotMine));
    if confirmed >= majority {
        Renewed::Yes
    } else if answers.len() - gone < majority {
        Renewed::No
    } else {
        Renewed::Open
    }
}

/// The verdicts on all holds of a renewal.
pub(super) fn renewals(quorum: &Quorum, answers: &Answers, majority: usize, holds: usize) -> Outcome<Reply> {
    if number(answers, Heard::is_applied) == 0 {
        return failure(quorum, answers, majority);
    }
    let verdict = |hold| match renewal(answers, majority, hold) {
        Renewed::Yes => Renewal::Renewed,
        Renewed::No => Renewal::NotMine,
        Renewed::Open => {
            let lines = answers.iter().enumerate().filter_map(|(node, heard)| {
                let text = match heard.as_ref().map(|heard| (heard.verdict(hold), &heard.outcome)) {
                    None => SILENT,
                    Some((Some(Renewal::Failed(text)), _)) => text,
                    Some((Some(Renewal::NotMine), _)) => "it does not know the hold",
                    Some((_, Outcome::NotApplied(failure) | Outcome::Indeterminate(failure))) => &failure.detail,
                    Some((Some(Renewal::Renewed) | None, Outcome::Applied(_))) => return None,
                };
                Some(quorum.quoted(node, text))
            });
            let lines: Vec<String> = lines.collect();
            Renewal::Failed(format!("no majority confirmed it: {}", lines.join("; ")))
        }
    };
    Outcome::Applied(Reply::Renewed((0..holds).map(verdict).collect()))
}

/// Whether a majority set the count, or no majority has the hold any more.
pub(super) fn counted(answers: &Answers, majority: usize) -> Option<bool> {
    let done = number(answers, |heard| heard.votes && heard.outcome == Outcome::Applied(Reply::Counted(true)));
    let gone = number(answers, |heard| heard.outcome == Outcome::Applied(Reply::Counted(false)));
    if done >= majority {
        Some(true)
    } else if answers.len() - gone < majority {
        Some(false)
    } else {
        None
    }
}

fn found_and_gone(answers: &Answers) -> (usize, usize) {
    let said = |found| number(answers, |heard| heard.outcome == Outcome::Applied(Reply::Released(found)));
    (said(true), said(false))
}

/// Whether the result of a release is certain.
pub(super) fn is_released(answers: &Answers, majority: usize) -> bool {
    let (found, gone) = found_and_gone(answers);
    found >= majority || (answers.len() - gone < majority && found + gone >= majority)
}

/// The nodes of a release, their connections, and the nodes that were being repaired.
pub(super) struct Asked<'a> {
    pub(super) nodes: Nodes,
    pub(super) via: &'a [u64],
    pub(super) seeding: Nodes,
}

/// The result of a release: once a majority surely does not have the token, another client can get the lock. The rest
/// is outstanding.
pub(super) fn released(
    quorum: &mut Quorum,
    answers: &Answers,
    asked: &Asked<'_>,
    majority: usize,
    claim: &Claim,
    op: &Op,
) -> Outcome<Reply> {
    let addressed = asked.nodes;
    let (found, gone) = found_and_gone(answers);
    let partial = match op {
        Op::Undo { .. } => true,
        Op::Retain { nodes, .. } => *nodes != Nodes::ALL,
        _ => false,
    };
    let enough = if partial { 1 } else { majority };
    if found + gone < enough {
        return failure(quorum, answers, majority);
    }
    let answered: Nodes = answers
        .iter()
        .enumerate()
        .filter(|(_, heard)| heard.as_ref().is_some_and(Heard::is_applied))
        .map(|(node, _)| node)
        .collect();
    // the repair request may arrive after the release
    let seeding = quorum.seeding(claim).or(asked.seeding);
    let late = late(quorum, answers, asked, claim);
    let owed = addressed.but(answered).but(quorum.spared(claim)).or(seeding).or(late);
    let unknown = addressed.but(answered).count();
    let found = found > 0 && (partial || found + unknown >= majority);
    if owed.is_empty() {
        return Outcome::Applied(Reply::Released(found));
    }
    Outcome::Applied(Reply::PartlyReleased { found, owed, at_large: !seeding.or(late).is_empty() })
}

/// Nodes that may still carry the acquire out after the release: they had not answered when it was granted, and have
/// not now, or they did not have it and were asked on another connection.
fn late(quorum: &mut Quorum, answers: &Answers, asked: &Asked<'_>, claim: &Claim) -> Nodes {
    if quorum.unheard.is_empty() {
        return Nodes::NONE;
    }
    let unheard = quorum.unheard.remove(&claim.token).unwrap_or_default();
    let settled = |unheard: &Unheard| match answers.get(unheard.node).and_then(|heard| heard.as_ref()) {
        Some(Heard { outcome: Outcome::Applied(Reply::Released(found)), .. }) => {
            (*found && !unheard.twice) || (unheard.via != 0 && asked.via.get(unheard.node) == Some(&unheard.via))
        }
        _ => false,
    };
    let late = unheard.iter().filter(|unheard| asked.nodes.has(unheard.node) && !settled(unheard));
    late.map(|unheard| unheard.node).collect()
}

/// What a key holds according to a majority: its holder, or that nobody has a majority. `None`: too few answers so far.
#[allow(clippy::option_option, reason = "not known yet, nothing there, something there")]
pub(super) fn seen(answers: &Answers, majority: usize) -> Option<Option<Standing>> {
    let looks: Vec<Option<&Standing>> = answers
        .iter()
        .flatten()
        .filter_map(|heard| match &heard.outcome {
            Outcome::Applied(Reply::Inspected(standing)) => Some(standing.as_ref()),
            _ => None,
        })
        .collect();
    let identity = |standing: &Standing| (standing.kind.clone(), standing.holder.clone());
    let camp = |who: &(Result<Kind, String>, Vec<u8>)| -> Vec<&Standing> {
        looks.iter().flatten().copied().filter(|standing| identity(standing) == *who).collect()
    };
    let largest = looks.iter().flatten().map(|standing| camp(&identity(standing))).max_by_key(Vec::len);
    let largest = largest.unwrap_or_default();
    if largest.len() >= majority {
        return Some(Some(merged(&largest, majority)));
    }
    let silent = answers.len() - looks.len();
    (largest.len() + silent < majority).then_some(None)
}

/// One hold as several nodes see it.
fn merged(camp: &[&Standing], majority: usize) -> Standing {
    let mut whole = camp[0].clone();
    // it lasts until so many of them have expired that the rest is no majority
    let mut left: Vec<u64> = camp.iter().map(|standing| standing.ttl_left_ms.unwrap_or(u64::MAX)).collect();
    left.sort_unstable();
    whole.ttl_left_ms = left.iter().rev().nth(majority - 1).copied().filter(|left| *left != u64::MAX);
    // most have the same token and count; repaired nodes differ
    let common = |value: fn(&Standing) -> Option<u64>| {
        let votes = |wanted: &Option<u64>| camp.iter().filter(|standing| value(standing) == *wanted).count();
        camp.iter().map(|standing| value(standing)).max_by_key(|found| (votes(found), *found)).flatten()
    };
    whole.fence = common(|standing| standing.fence);
    whole.count = common(|standing| Some(standing.count)).unwrap_or(1);
    whole.info = camp.iter().find_map(|standing| standing.info.clone());
    whole
}

/// What came of a release by force.
pub(super) fn forced(quorum: &Quorum, answers: &Answers, majority: usize) -> Outcome<Reply> {
    if number(answers, Heard::is_applied) < majority {
        return failure(quorum, answers, majority);
    }
    let forced = number(answers, |heard| heard.outcome == Outcome::Applied(Reply::Forced(true))) > 0;
    let wrong = answers.iter().flatten().find_map(|heard| match &heard.outcome {
        Outcome::Applied(wrong @ Reply::WrongKind { .. }) => Some(wrong.clone()),
        _ => None,
    });
    Outcome::Applied(wrong.filter(|_| !forced).unwrap_or(Reply::Forced(forced)))
}

/// Why a node is not eligible.
pub(super) fn barred(quorum: &Quorum, now: Time, node: usize) -> String {
    let left = quorum.barred_for(now, node).unwrap_or_default();
    format!(
        "it was started anew without its data (or its clock jumped), so it does not vote for another {} ms (option \
         quarantine; quarantine_ms=0 in the address for servers that are thrown away, as in tests)",
        left.as_millis()
    )
}

/// Too few nodes answered.
pub(super) fn failure(quorum: &Quorum, answers: &Answers, majority: usize) -> Outcome<Reply> {
    let mut lines = Vec::new();
    let mut failures = Vec::new();
    let mut maybe = false;
    for (node, heard) in answers.iter().enumerate() {
        let text = match heard.as_ref().map(|heard| &heard.outcome) {
            None => {
                maybe = true;
                SILENT
            }
            Some(Outcome::Applied(_)) => {
                maybe = true;
                "done"
            }
            Some(Outcome::NotApplied(failure)) => {
                failures.push((failure.kind, failure.transient));
                &failure.detail
            }
            Some(Outcome::Indeterminate(failure)) => {
                maybe = true;
                failures.push((failure.kind, failure.transient));
                &failure.detail
            }
        };
        lines.push(quorum.quoted(node, text));
    }
    let failure = no_quorum(&failures, lines, majority);
    if maybe { Outcome::Indeterminate(failure) } else { Outcome::NotApplied(failure) }
}

/// The failure of a round without a majority. When one lasting failure is the only reason, it gives the kind.
pub(super) fn no_quorum(failures: &[(ErrorKind, bool)], lines: Vec<String>, majority: usize) -> Failure {
    let nodes = lines.len();
    let lasting: Vec<ErrorKind> = failures.iter().filter(|(_, transient)| !transient).map(|(kind, _)| *kind).collect();
    let stuck = nodes - lasting.len() < majority;
    let limited = failures.iter().filter(|(kind, _)| *kind == ErrorKind::SystemLimit).count();
    let kind = match lasting.first() {
        Some(first) if stuck && lasting.iter().all(|kind| kind == first) => *first,
        // no request was sent to the servers
        _ if nodes - limited < majority => ErrorKind::SystemLimit,
        _ => ErrorKind::NoQuorum,
    };
    let detail = format!("{majority} of {nodes} nodes are needed, too few did it");
    Failure { kind, transient: !stuck, detail, nodes: lines }
}

/// The operation exists for single nodes only.
pub(super) fn not_for_a_quorum(op: &Op) -> Outcome<Reply> {
    let detail = format!("{} is an operation on one node", op.name());
    Outcome::NotApplied(Failure::lasting(ErrorKind::Internal, detail))
}
