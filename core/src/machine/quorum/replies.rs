//! What the answers of the nodes amount to, for everything but an acquire.

use super::{NodeSet, Quorum, UnansweredNode};
use crate::error::ErrorKind;
use crate::machine::{Claim, Failure, InspectedKey, Kind, Op, Outcome, Renewal, Reply, Time};

/// The text for a node without an answer.
pub(crate) const NO_ANSWER: &str = "no answer in time";

/// What one node answered.
#[derive(Clone, Debug)]
pub(crate) struct NodeReply {
    pub(crate) outcome: Outcome<Reply>,
    pub(crate) eligible: bool,
    pub(crate) connection: u64,
}

impl NodeReply {
    /// Its verdict on one hold of a renewal.
    pub(crate) fn verdict(&self, hold: usize) -> Option<&Renewal> {
        match &self.outcome {
            Outcome::Applied(Reply::Renewed(verdicts)) => verdicts.get(hold),
            _ => None,
        }
    }

    fn is_applied(&self) -> bool {
        matches!(self.outcome, Outcome::Applied(_))
    }
}

type Answers = [Option<NodeReply>];

fn number(answers: &Answers, wanted: impl Fn(&NodeReply) -> bool) -> usize {
    answers.iter().flatten().filter(|reply| wanted(reply)).count()
}

/// What a round says about one hold of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RenewalState {
    /// A majority confirmed it.
    Confirmed,
    /// No majority has it any more.
    Lost,
    /// Too few answers so far.
    Undecided,
}

/// The result for one hold of a renewal. A node that is not eligible cannot confirm, but a missing hold counts.
pub(crate) fn renewal(answers: &Answers, majority: usize, hold: usize) -> RenewalState {
    let confirmed = number(answers, |reply| reply.eligible && reply.verdict(hold) == Some(&Renewal::Renewed));
    let gone = number(answers, |reply| reply.verdict(hold) == Some(&Renewal::NotMine));
    if confirmed >= majority {
        RenewalState::Confirmed
    } else if answers.len() - gone < majority {
        RenewalState::Lost
    } else {
        RenewalState::Undecided
    }
}

/// The verdicts on all holds of a renewal.
pub(crate) fn renewals(quorum: &Quorum, answers: &Answers, majority: usize, holds: usize) -> Outcome<Reply> {
    if number(answers, NodeReply::is_applied) == 0 {
        return failure(quorum, answers, majority);
    }
    let verdict = |hold| match renewal(answers, majority, hold) {
        RenewalState::Confirmed => Renewal::Renewed,
        RenewalState::Lost => Renewal::NotMine,
        RenewalState::Undecided => {
            let lines = answers.iter().enumerate().filter_map(|(node, reply)| {
                let text = match reply.as_ref().map(|reply| (reply.verdict(hold), &reply.outcome)) {
                    None => NO_ANSWER,
                    Some((Some(Renewal::Failed(text)), _)) => text,
                    Some((Some(Renewal::NotMine), _)) => "it does not know the hold",
                    Some((_, Outcome::NotApplied(failure) | Outcome::Indeterminate(failure))) => &failure.detail,
                    Some((Some(Renewal::Renewed) | None, Outcome::Applied(_))) => return None,
                };
                Some(quorum.with_name(node, text))
            });
            let lines: Vec<String> = lines.collect();
            Renewal::Failed(format!("no majority confirmed it: {}", lines.join("; ")))
        }
    };
    Outcome::Applied(Reply::Renewed((0..holds).map(verdict).collect()))
}

/// Whether a majority set the count, or no majority has the hold any more.
pub(crate) fn counted(answers: &Answers, majority: usize) -> Option<bool> {
    let done = number(answers, |reply| reply.eligible && reply.outcome == Outcome::Applied(Reply::Counted(true)));
    let gone = number(answers, |reply| reply.outcome == Outcome::Applied(Reply::Counted(false)));
    if done >= majority {
        Some(true)
    } else if answers.len() - gone < majority {
        Some(false)
    } else {
        None
    }
}

fn found_and_gone(answers: &Answers) -> (usize, usize) {
    let said = |found| number(answers, |reply| reply.outcome == Outcome::Applied(Reply::Released(found)));
    (said(true), said(false))
}

/// Whether the result of a release is certain.
pub(crate) fn is_released(answers: &Answers, majority: usize) -> bool {
    let (found, gone) = found_and_gone(answers);
    found >= majority || (answers.len() - gone < majority && found + gone >= majority)
}

/// The nodes of a release, their connections, and the nodes that were being repaired.
pub(crate) struct ReleaseTargets<'a> {
    pub(crate) nodes: NodeSet,
    pub(crate) connections: &'a [u64],
    pub(crate) repairing: NodeSet,
}

/// The result of a release: once a majority surely does not have the token, another client can get the lock. The rest
/// is outstanding.
pub(crate) fn released(
    quorum: &mut Quorum,
    answers: &Answers,
    asked: &ReleaseTargets<'_>,
    majority: usize,
    claim: &Claim,
    op: &Op,
) -> Outcome<Reply> {
    let addressed = asked.nodes;
    let (found, gone) = found_and_gone(answers);
    let partial = match op {
        Op::Undo { .. } => true,
        Op::Retain { nodes, .. } => *nodes != NodeSet::ALL,
        _ => false,
    };
    let enough = if partial { 1 } else { majority };
    if found + gone < enough {
        return failure(quorum, answers, majority);
    }
    let answered: NodeSet = answers
        .iter()
        .enumerate()
        .filter(|(_, reply)| reply.as_ref().is_some_and(NodeReply::is_applied))
        .map(|(node, _)| node)
        .collect();
    // the repair request may arrive after the release
    let repairing = quorum.repairing(claim).or(asked.repairing);
    let late = late(quorum, answers, asked, claim);
    let outstanding = addressed.but(answered).but(quorum.take_never_sent(claim)).or(repairing).or(late);
    let unknown = addressed.but(answered).count();
    let found = found > 0 && (partial || found + unknown >= majority);
    if outstanding.is_empty() {
        return Outcome::Applied(Reply::Released(found));
    }
    Outcome::Applied(Reply::PartlyReleased { found, outstanding, may_still_arrive: !repairing.or(late).is_empty() })
}

/// Nodes that may still carry the acquire out after the release: they had not answered when it was granted, and have
/// not now, or they did not have it and were asked on another connection.
fn late(quorum: &mut Quorum, answers: &Answers, asked: &ReleaseTargets<'_>, claim: &Claim) -> NodeSet {
    if quorum.unanswered.is_empty() {
        return NodeSet::NONE;
    }
    let unanswered = quorum.unanswered.remove(&claim.token).unwrap_or_default();
    let settled = |unanswered: &UnansweredNode| match answers.get(unanswered.node).and_then(|reply| reply.as_ref()) {
        Some(NodeReply { outcome: Outcome::Applied(Reply::Released(found)), .. }) => {
            (*found && !unanswered.twice)
                || (unanswered.connection != 0
                    && asked.connections.get(unanswered.node) == Some(&unanswered.connection))
        }
        _ => false,
    };
    let late = unanswered.iter().filter(|unanswered| asked.nodes.has(unanswered.node) && !settled(unanswered));
    late.map(|unanswered| unanswered.node).collect()
}

/// What a key holds according to a majority: its holder, or that nobody has a majority. `None`: too few answers so far.
#[allow(clippy::option_option, reason = "not known yet, nothing there, something there")]
pub(crate) fn inspected(answers: &Answers, majority: usize) -> Option<Option<InspectedKey>> {
    let looks: Vec<Option<&InspectedKey>> = answers
        .iter()
        .flatten()
        .filter_map(|reply| match &reply.outcome {
            Outcome::Applied(Reply::Inspected(standing)) => Some(standing.as_ref()),
            _ => None,
        })
        .collect();
    let identity = |standing: &InspectedKey| (standing.kind.clone(), standing.holder.clone());
    let camp = |who: &(Result<Kind, String>, Vec<u8>)| -> Vec<&InspectedKey> {
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

/// Why it is not known whether a key is held: what those saw that answered.
pub(crate) fn undecided(quorum: &Quorum, answers: &Answers, majority: usize) -> Outcome<Reply> {
    let mut outcome = failure(quorum, answers, majority);
    let (mut held, mut answered) = (0, 0);
    if let Outcome::NotApplied(why) | Outcome::Indeterminate(why) = &mut outcome {
        for (node, reply) in answers.iter().enumerate() {
            let Some(Outcome::Applied(Reply::Inspected(standing))) = reply.as_ref().map(|reply| &reply.outcome) else {
                continue;
            };
            answered += 1;
            held += usize::from(standing.is_some());
            if let Some(line) = why.nodes.get_mut(node) {
                *line = quorum.with_name(node, if standing.is_some() { "held" } else { "free" });
            }
        }
        if answered > 0 {
            let nodes = answers.len();
            why.detail = format!("held on {held} of the {answered} nodes that answered; {majority} of {nodes} decide");
        }
    }
    outcome
}

/// One hold as several nodes see it.
fn merged(camp: &[&InspectedKey], majority: usize) -> InspectedKey {
    let mut whole = camp[0].clone();
    // it lasts until so many of them have expired that the rest is no majority
    let mut left: Vec<u64> = camp.iter().map(|standing| standing.ttl_left_ms.unwrap_or(u64::MAX)).collect();
    left.sort_unstable();
    whole.ttl_left_ms = left.iter().rev().nth(majority - 1).copied().filter(|left| *left != u64::MAX);
    // most have the same token and count; repaired nodes differ
    let common = |value: fn(&InspectedKey) -> Option<u64>| {
        let votes = |wanted: &Option<u64>| camp.iter().filter(|standing| value(standing) == *wanted).count();
        camp.iter().map(|standing| value(standing)).max_by_key(|found| (votes(found), *found)).flatten()
    };
    whole.fence = common(|standing| standing.fence);
    whole.count = common(|standing| Some(standing.count)).unwrap_or(1);
    whole.info = camp.iter().find_map(|standing| standing.info.clone());
    whole
}

/// What came of a release by force.
pub(crate) fn forced(quorum: &Quorum, answers: &Answers, majority: usize) -> Outcome<Reply> {
    if number(answers, NodeReply::is_applied) < majority {
        return failure(quorum, answers, majority);
    }
    let forced = number(answers, |reply| reply.outcome == Outcome::Applied(Reply::Forced(true))) > 0;
    let wrong = answers.iter().flatten().find_map(|reply| match &reply.outcome {
        Outcome::Applied(wrong @ Reply::WrongKind { .. }) => Some(wrong.clone()),
        _ => None,
    });
    Outcome::Applied(wrong.filter(|_| !forced).unwrap_or(Reply::Forced(forced)))
}

/// Why a node is not eligible.
pub(crate) fn ineligible(quorum: &Quorum, now: Time, node: usize) -> String {
    let left = quorum.ineligible_for(now, node).unwrap_or_default();
    format!(
        "it was started anew without its data (or its clock jumped), so it does not vote for another {} ms (option \
         quarantine; quarantine_ms=0 in the address for servers that are thrown away, as in tests)",
        left.as_millis()
    )
}

/// Too few nodes answered.
pub(crate) fn failure(quorum: &Quorum, answers: &Answers, majority: usize) -> Outcome<Reply> {
    let mut lines = Vec::new();
    let mut failures = Vec::new();
    let mut maybe = false;
    for (node, reply) in answers.iter().enumerate() {
        let text = match reply.as_ref().map(|reply| &reply.outcome) {
            None => {
                maybe = true;
                NO_ANSWER
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
        lines.push(quorum.with_name(node, text));
    }
    let failure = no_quorum(&failures, lines, majority);
    if maybe { Outcome::Indeterminate(failure) } else { Outcome::NotApplied(failure) }
}

/// The failure of a round without a majority. When one lasting failure is the only reason, it gives the kind.
pub(crate) fn no_quorum(failures: &[(ErrorKind, bool)], lines: Vec<String>, majority: usize) -> Failure {
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
pub(crate) fn not_for_a_quorum(op: &Op) -> Outcome<Reply> {
    let detail = format!("{} is an operation on one node", op.name());
    let kind = match op {
        Op::AcquirePermits { .. }
        | Op::InspectPermits { .. }
        | Op::InspectQueue { .. }
        | Op::SetPermits { .. }
        | Op::ForceReleasePermits { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::Internal,
    };
    Outcome::NotApplied(Failure::lasting(kind, detail))
}
