//! One operation on all nodes: whom to send what, what the answers amount to, and how long to wait for the rest.

use std::time::Duration;

use super::replies::{self, NodeReply};
use super::votes::{VoteResult as Count, Votes};
use super::{NodeSet, Quorum, RENEWAL_MAX, UnansweredNode};
use crate::machine::terms::DRIFT_FLOOR;
use crate::machine::{Answer, Claim, Op, Outcome, Proposal, Renewal, Reply, Time, naming};

/// When nothing depends on the missing answers any more, they are waited for no longer than this: with them there is
/// less to be undone.
const LINGER: Duration = Duration::from_millis(3);

/// A request for several nodes, the same for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRequest {
    /// To whom.
    pub nodes: NodeSet,
    /// What.
    pub op: Op,
}

/// Whether there is anything to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundStatus {
    /// The result depends on outstanding answers.
    Wait,
    /// It is settled; wait for the missing answers until then, but no longer.
    Until(Time),
    /// Nothing: conclude it.
    Over,
}

/// One operation in progress.
#[derive(Clone, Debug)]
pub struct QuorumRound {
    op: Op,
    addressed: NodeSet,
    pending: NodeSet,
    majority: usize,
    /// Before the first request: deadlines count from here.
    sent_at: Time,
    answers: Vec<Option<NodeReply>>,
    /// The ordered connections on which the nodes were sent the request; 0 where that is not known.
    connections: Vec<u64>,
    /// Nodes that were being repaired when this release began.
    repairing: NodeSet,
    votes: Option<Votes>,
    settled_at: Option<Time>,
    /// For each hold of a renewal: whether a majority confirmed it in time, and the nodes to be repaired.
    confirmed: Vec<bool>,
    repaired: Vec<NodeSet>,
    limit: Time,
    ended: bool,
}

impl QuorumRound {
    pub(super) fn begin(quorum: &Quorum, now: Time, wall_us: u64, op: &Op) -> (QuorumRound, NodeRequest) {
        let everybody = NodeSet::first(quorum.len());
        let (addressed, request, votes) = match op {
            Op::Acquire { claim, ttl_ms, fence_ttl_ms, info } => {
                let fence = fence_ttl_ms.map(|ttl_ms| Proposal { base: quorum.proposal(wall_us), ttl_ms });
                let vote = Op::Vote { claim: claim.clone(), ttl_ms: *ttl_ms, fence, info: info.clone() };
                (everybody, vote, Some(Votes::new(quorum.len(), fence_ttl_ms.is_some())))
            }
            Op::Attach { .. } => (everybody, op.clone(), Some(Votes::attaching(quorum.len()))),
            Op::Undo { nodes, .. } | Op::Retain { nodes, .. } => (nodes.and(everybody), op.clone(), None),
            other => (everybody, other.clone(), None),
        };
        let repairing = match op {
            Op::Release { claim } | Op::Retain { claim, .. } | Op::Undo { claim, .. } => quorum.repairing(claim),
            _ => NodeSet::NONE,
        };
        let holds = if let Op::Renew { holds } = op { holds.len() } else { 0 };
        let round = QuorumRound {
            op: op.clone(),
            addressed,
            pending: addressed,
            majority: quorum.majority(),
            sent_at: now,
            answers: vec![None; quorum.len()],
            connections: vec![0; quorum.len()],
            repairing,
            votes,
            settled_at: None,
            confirmed: vec![false; holds],
            repaired: vec![NodeSet::NONE; holds],
            limit: Time::MAX,
            ended: false,
        };
        (round, NodeRequest { nodes: addressed, op: request })
    }

    /// When the caller stops waiting. Nothing is repaired for a renewal that is concluded later: its caller may have
    /// given the hold up by then, even if a majority confirmed it.
    pub fn limit(&mut self, until: Time) {
        self.limit = until;
    }

    /// A node is sent the request on this ordered connection. What is sent to it on the same one later is carried out
    /// later.
    pub fn sending(&mut self, node: usize, connection: u64) {
        if let Some(via) = self.connections.get_mut(node) {
            *via = connection;
        }
    }

    /// A node answered, or did not in time. More may have to be sent: the fencing token, to nodes that are behind.
    pub fn answered(&mut self, quorum: &mut Quorum, now: Time, node: usize, answer: &Answer) -> Option<NodeRequest> {
        let eligible = quorum.observe(now, node, answer);
        if self.pending.has(node) {
            self.pending = self.pending.without(node);
            if let Some(place) = self.answers.get_mut(node) {
                *place = Some(NodeReply { outcome: answer.outcome.clone(), eligible, connection: answer.connection });
            }
        }
        let Some(votes) = &mut self.votes else {
            if self.settled_at.is_none() && self.is_settled() {
                self.settled_at = Some(now);
            }
            return None;
        };
        votes.answered(node, &answer.outcome, eligible);
        match votes.count(self.majority) {
            Count::Undecided(write_back) => {
                let (nodes, fence) = write_back?;
                let (claim, fence_ttl_ms) = match &self.op {
                    Op::Acquire { claim, fence_ttl_ms: Some(fence_ttl_ms), .. } => (claim.clone(), *fence_ttl_ms),
                    Op::Attach { claim, ttl_ms, .. } => (claim.clone(), naming::fence_ttl_ms(*ttl_ms)),
                    _ => return None,
                };
                Some(NodeRequest { nodes, op: Op::WriteBack { claim, fence, fence_ttl_ms } })
            }
            Count::Granted(_) | Count::Failed => {
                self.settled_at.get_or_insert(now);
                None
            }
        }
    }

    fn is_settled(&self) -> bool {
        match &self.op {
            Op::Renew { holds } => (0..holds.len())
                .all(|hold| replies::renewal(&self.answers, self.majority, hold) != replies::RenewalState::Undecided),
            Op::SetCount { .. } => replies::counted(&self.answers, self.majority).is_some(),
            Op::Release { .. } | Op::Retain { nodes: NodeSet::ALL, .. } => {
                replies::is_released(&self.answers, self.majority)
            }
            Op::Inspect { .. } => replies::inspected(&self.answers, self.majority).is_some(),
            _ => false,
        }
    }

    /// Whether there is anything to wait for.
    pub fn status(&self, quorum: &Quorum) -> RoundStatus {
        let Some(settled_at) = self.settled_at else {
            let waits = self.votes.as_ref().map_or(!self.pending.is_empty(), Votes::waits);
            return if waits { RoundStatus::Wait } else { RoundStatus::Over };
        };
        // the caller of an acquire waits; the outstanding answers can only be grants of it
        let granted = self.votes.as_ref().is_some_and(|votes| matches!(votes.result(self.majority), Count::Granted(_)));
        if granted || self.pending.and(quorum.responsive()).is_empty() {
            return RoundStatus::Over;
        }
        RoundStatus::Until(settled_at + LINGER)
    }

    /// Nodes that have not answered yet.
    pub fn pending(&self) -> NodeSet {
        self.pending
    }

    /// Nodes whose answers are of use even after the conclusion: those that have not answered a renewal. A slow node
    /// may have lost the hold, and reports its time.
    pub fn late_nodes(&self) -> NodeSet {
        if matches!(self.op, Op::Renew { .. }) && !self.ended { self.pending } else { NodeSet::NONE }
    }

    /// What it amounts to, whether or not everybody answered.
    pub fn conclude(&mut self, quorum: &mut Quorum, now: Time) -> Answer {
        let granted = self.votes.as_ref().is_some_and(|votes| matches!(votes.result(self.majority), Count::Granted(_)));
        for (hold, confirmed) in self.confirmed.iter_mut().enumerate() {
            let by_majority = replies::renewal(&self.answers, self.majority, hold) == replies::RenewalState::Confirmed;
            *confirmed = by_majority && now < self.limit;
        }
        if !granted {
            quorum.mark_silent(self.pending.but(self.late_nodes()));
        }
        let outcome = match (&self.op, &self.votes) {
            (Op::Acquire { claim, .. } | Op::Attach { claim, .. }, Some(votes)) => {
                let outcome = votes.outcome(quorum, now, self.majority);
                if let Outcome::Applied(Reply::Granted { fence, .. }) = &outcome {
                    quorum.last_token = quorum.last_token.max(fence.unwrap_or(0));
                    let never_sent = votes.never_sent();
                    // an attach is repeated with the same token: what did not reach a node this time may have done so before
                    if !never_sent.is_empty() && !matches!(self.op, Op::Attach { .. }) {
                        quorum.note_never_sent(claim, never_sent);
                    }
                    let unanswered = votes.unanswered();
                    if !unanswered.is_empty() {
                        quorum.note_unanswered(
                            claim,
                            unanswered
                                .iter()
                                .map(|node| UnansweredNode { node, connection: self.connections[node], twice: false })
                                .collect(),
                        );
                    }
                }
                outcome
            }
            (Op::Release { claim } | Op::Retain { claim, .. } | Op::Undo { claim, .. }, _) => {
                let asked = replies::ReleaseTargets {
                    nodes: self.addressed,
                    connections: &self.connections,
                    repairing: self.repairing,
                };
                replies::released(quorum, &self.answers, &asked, self.majority, claim, &self.op)
            }
            (Op::Renew { holds }, _) => replies::renewals(quorum, &self.answers, self.majority, holds.len()),
            (Op::SetCount { .. }, _) => match replies::counted(&self.answers, self.majority) {
                Some(found) => Outcome::Applied(Reply::Counted(found)),
                None => replies::failure(quorum, &self.answers, self.majority),
            },
            (Op::Inspect { .. }, _) => match replies::inspected(&self.answers, self.majority) {
                Some(standing) => Outcome::Applied(Reply::Inspected(standing)),
                None => replies::undecided(quorum, &self.answers, self.majority),
            },
            (Op::ForceRelease { .. }, _) => replies::forced(quorum, &self.answers, self.majority),
            (other, _) => replies::not_for_a_quorum(other),
        };
        Answer { sent_at: self.sent_at, received_at: now, connection: self.connection(), server_time_us: None, outcome }
    }

    /// A number that changes when any node's connection does; 0 when not all answered on one that is ordered.
    fn connection(&self) -> u64 {
        let numbers = self.answers.iter().map(|reply| reply.as_ref().map_or(0, |reply| reply.connection));
        numbers.map(|number| (number != 0).then_some(number)).sum::<Option<u64>>().unwrap_or(0)
    }

    /// After a renewal was concluded, and after each late answer to it: the requests that repair nodes which lost a
    /// hold that a majority still has, one for each node. Ask [`Quorum::is_repair_wanted`] before sending one, and pass
    /// each answer, or its absence, to [`Quorum::repair_ended`].
    pub fn repairs(&mut self, quorum: &mut Quorum, now: Time, wall_us: u64) -> Vec<(Claim, usize, Op)> {
        let Op::Renew { holds } = &self.op else { return Vec::new() };
        let age = now.since(self.sent_at);
        let mut repairs = Vec::new();
        for (index, (claim, ttl_ms)) in holds.iter().enumerate() {
            if replies::renewal(&self.answers, self.majority, index) == replies::RenewalState::Lost {
                // lost, whatever another renewal of it found before
                quorum.hold_ended(claim);
            }
            // a hold that was confirmed too late may have been given up by its holder
            let confirmed = self.confirmed.get(index) == Some(&true);
            if !confirmed || self.ended || age >= RENEWAL_MAX || !quorum.is_renewed(claim) {
                continue;
            }
            let full = Duration::from_millis(*ttl_ms);
            if age + full.mul_f64(quorum.rules.drift_factor) + DRIFT_FLOOR >= full {
                continue;
            }
            let fence_ttl_ms = naming::fence_ttl_ms(*ttl_ms);
            // the rest of the lease, not all of it: the others were asked some time ago
            let ttl_ms = full.saturating_sub(age).as_millis() as u64;
            for (node, reply) in self.answers.iter().enumerate() {
                let lost = reply.as_ref().is_some_and(|reply| reply.verdict(index) == Some(&Renewal::NotMine));
                let Some(repaired) = self.repaired.get_mut(index).filter(|repaired| lost && !repaired.has(node)) else {
                    continue;
                };
                *repaired = repaired.with(node);
                if quorum.repairing(claim).has(node) {
                    // another renewal is at it
                    continue;
                }
                quorum.begin_repair(claim, node);
                let proposal = Proposal { base: quorum.proposal(wall_us), ttl_ms: fence_ttl_ms };
                let fence = quorum.rules.fencing.then_some(proposal);
                repairs.push((claim.clone(), node, Op::Vote { claim: claim.clone(), ttl_ms, fence, info: None }));
            }
        }
        repairs
    }

    /// The end: no more answers are read. To be called in any case, once.
    pub fn end(&mut self, quorum: &mut Quorum) {
        if let Op::Renew { holds } = &self.op
            && !std::mem::replace(&mut self.ended, true)
        {
            for (claim, _) in holds {
                quorum.renewal_ends(claim);
            }
        }
    }
}
