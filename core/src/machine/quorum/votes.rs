//! The votes on one acquire or attach, and the fencing token that a majority acknowledges.
//!
//! Each node answers a grant with its own counter. The token is the highest of them, `T`, and it is worth something only
//! once a majority has *acknowledged* it: owned by this very claim **and** the counter equal to `T`. Nodes that are behind
//! are written to. Then any two grants of one lock share a node that acknowledged both, and a counter never goes back, so
//! the later one is higher. No clock enters into it. (Owned alone will not do: two grants that overlap in time could get
//! the same token from a node whose reply was lost.)
//!
//! An attach exchanges the owner of a hold, which keeps its token: one that a majority has agreed on is left as it is, though
//! other nodes may be further on. Some node of that majority acknowledged the token of the acquire, so it is no lower. Where
//! no majority agrees (nodes that were given the hold again), it is the highest of all, acknowledged as that of an acquire.

use super::{NodeSet, Quorum, replies};
use crate::error::ErrorKind;
use crate::machine::{Failure, Outcome, Reply, Time};

/// The answer of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Vote {
    Pending,
    Granted {
        fence: u64,
        /// The token that is being written to it.
        told: u64,
    },
    Taken {
        ttl_left_ms: Option<u64>,
        announces: bool,
        holder: u64,
    },
    /// It does not have the hold that is to be gone on with.
    Gone,
    Wrong(String),
    /// It is not eligible at present; whether it granted nevertheless.
    Ineligible {
        granted: bool,
    },
    Failed {
        failure: Failure,
        /// It may have granted.
        maybe: bool,
        /// It granted, and was lost afterwards.
        granted: bool,
    },
}

impl Vote {
    /// It granted, whatever came after that.
    fn is_granted(&self) -> bool {
        matches!(self, Vote::Granted { .. } | Vote::Ineligible { granted: true } | Vote::Failed { granted: true, .. })
    }
}

/// The result of the votes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VoteResult {
    /// Undecided; this token must be written to these nodes.
    Undecided(Option<(NodeSet, u64)>),
    /// A majority granted, and acknowledged this token (0: fencing is off).
    Granted(u64),
    /// No majority is possible any more.
    Failed,
}

/// The votes of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Votes {
    by_node: Vec<Vote>,
    fenced: bool,
    /// It is about a hold that was handed over, which has its token already.
    attaching: bool,
}

impl Votes {
    pub(crate) fn new(nodes: usize, fenced: bool) -> Votes {
        Votes { by_node: vec![Vote::Pending; nodes], fenced, attaching: false }
    }

    /// The ballot on an attach.
    pub(crate) fn attaching(nodes: usize) -> Votes {
        Votes { attaching: true, ..Votes::new(nodes, true) }
    }

    /// A node answered the request to vote, or to write the token.
    pub(crate) fn answered(&mut self, node: usize, outcome: &Outcome<Reply>, eligible: bool) {
        let Some(vote) = self.by_node.get_mut(node) else { return };
        // the token may be written to one node twice, and both may fail
        let was_granted = vote.is_granted();
        let failed = |failure: &Failure, maybe| Vote::Failed { failure: failure.clone(), maybe, granted: was_granted };
        *vote = match outcome {
            Outcome::Applied(Reply::Granted { .. } | Reply::Written(_)) if !eligible => {
                Vote::Ineligible { granted: true }
            }
            Outcome::Applied(_) if !eligible => Vote::Ineligible { granted: false },
            Outcome::Applied(Reply::Granted { fence, .. }) => Vote::Granted { fence: fence.unwrap_or(0), told: 0 },
            Outcome::Applied(Reply::Written(Some(fence))) => Vote::Granted { fence: *fence, told: 0 },
            Outcome::Applied(Reply::Written(None)) => failed(
                &Failure::transient(ErrorKind::Unavailable, "it lost the lock while it was being granted"),
                false,
            ),
            Outcome::Applied(Reply::Taken { ttl_left_ms, announces, holder }) => {
                Vote::Taken { ttl_left_ms: *ttl_left_ms, announces: *announces, holder: *holder }
            }
            Outcome::Applied(Reply::Gone) if self.attaching => Vote::Gone,
            Outcome::Applied(Reply::WrongKind { found }) => Vote::Wrong(found.clone()),
            Outcome::Applied(other) => {
                let detail = format!("it answered a vote with {other:?}");
                failed(&Failure::lasting(ErrorKind::Internal, detail), true)
            }
            Outcome::NotApplied(failure) => failed(failure, false),
            Outcome::Indeterminate(failure) => failed(failure, true),
        };
    }

    /// The result, and the nodes to write the token to; they count as written to.
    pub(crate) fn count(&mut self, majority: usize) -> VoteResult {
        let result = self.result(majority);
        if let VoteResult::Undecided(Some((nodes, token))) = result {
            for node in nodes.iter() {
                if let Some(Vote::Granted { told, .. }) = self.by_node.get_mut(node) {
                    *told = token;
                }
            }
        }
        result
    }

    /// The result so far.
    pub(crate) fn result(&self, majority: usize) -> VoteResult {
        let granted = self.number(|vote| matches!(vote, Vote::Granted { .. }));
        let pending = self.number(|vote| *vote == Vote::Pending);
        if granted + pending < majority {
            return VoteResult::Failed;
        }
        if granted < majority {
            return VoteResult::Undecided(None);
        }
        if !self.fenced {
            return VoteResult::Granted(0);
        }
        let fence = |vote: &Vote| if let Vote::Granted { fence, .. } = vote { Some(*fence) } else { None };
        let token = self.by_node.iter().filter_map(fence).max().unwrap_or(0);
        let agreed = |token| self.number(|vote| fence(vote) == Some(token));
        if agreed(token) >= majority {
            return VoteResult::Granted(token);
        }
        if self.attaching {
            let known = || self.by_node.iter().filter_map(fence).filter(|token| *token != 0);
            if let Some(token) = known().find(|token| agreed(*token) >= majority) {
                return VoteResult::Granted(token);
            }
            if known().any(|token| agreed(token) + pending >= majority) {
                return VoteResult::Undecided(None);
            }
        }
        let behind = |vote: &Vote| matches!(vote, Vote::Granted { fence, told } if *fence < token && *told < token);
        let nodes: NodeSet =
            self.by_node.iter().enumerate().filter(|(_, vote)| behind(vote)).map(|(node, _)| node).collect();
        VoteResult::Undecided((!nodes.is_empty()).then_some((nodes, token)))
    }

    /// Whether an undecided ballot has anything to wait for.
    pub(crate) fn waits(&self) -> bool {
        self.by_node.iter().any(|vote| matches!(vote, Vote::Pending | Vote::Granted { told: 1.., .. }))
    }

    fn number(&self, wanted: impl Fn(&Vote) -> bool) -> usize {
        self.by_node.iter().filter(|vote| wanted(vote)).count()
    }

    /// Nodes that surely don't hold it.
    pub(crate) fn never_sent(&self) -> NodeSet {
        let never_sent = |vote: &Vote| matches!(vote, Vote::Failed { maybe: false, granted: false, .. });
        self.by_node.iter().enumerate().filter(|(_, vote)| never_sent(vote)).map(|(node, _)| node).collect()
    }

    /// Nodes that may still carry it out.
    pub(crate) fn unanswered(&self) -> NodeSet {
        let unanswered = |vote: &Vote| matches!(vote, Vote::Pending | Vote::Failed { maybe: true, granted: false, .. });
        self.by_node.iter().enumerate().filter(|(_, vote)| unanswered(vote)).map(|(node, _)| node).collect()
    }

    /// What it came to.
    pub(crate) fn outcome(&self, quorum: &Quorum, now: Time, majority: usize) -> Outcome<Reply> {
        match self.result(majority) {
            VoteResult::Granted(token) => {
                Outcome::Applied(Reply::Granted { fence: (token != 0).then_some(token), again: false })
            }
            VoteResult::Undecided(_) | VoteResult::Failed => self.failed(quorum, now, majority),
        }
    }

    fn failed(&self, quorum: &Quorum, now: Time, majority: usize) -> Outcome<Reply> {
        // whatever may be carried out later, and whatever was
        let may_still_arrive = self.number(|vote| matches!(vote, Vote::Pending | Vote::Failed { maybe: true, .. })) > 0;
        let taken_anything = may_still_arrive || self.number(Vote::is_granted) > 0;
        if self.attaching {
            let gone = self.by_node.len() - self.number(|vote| *vote == Vote::Gone) < majority;
            let failure = (!gone).then(|| self.failure(quorum, now, majority));
            return match failure {
                None if !taken_anything => Outcome::Applied(Reply::Gone),
                Some(failure) if !taken_anything => Outcome::NotApplied(failure),
                failure => Outcome::Applied(Reply::Split {
                    ttl_left_ms: None,
                    announces: false,
                    tie: false,
                    may_still_arrive,
                    failure,
                }),
            };
        }
        let contest = self.contest(majority);
        let (ttl_left_ms, announces) = contest.as_ref().map_or((None, false), |c| (c.ttl_left_ms, c.announces));
        let tie = contest.as_ref().is_none_or(|contest| contest.tie);
        let failure = if contest.is_some() { None } else { Some(self.failure(quorum, now, majority)) };
        if !taken_anything && !tie && failure.is_none() {
            return Outcome::Applied(Reply::Denied { ttl_left_ms, announces });
        }
        if !taken_anything && let Some(failure) = failure {
            return Outcome::NotApplied(failure);
        }
        Outcome::Applied(Reply::Split { ttl_left_ms, announces, tie, may_still_arrive, failure })
    }

    /// Others are at it, as enough nodes to make a majority say; `None` if too few are there to say anything.
    fn contest(&self, majority: usize) -> Option<Contest> {
        let taken: Vec<(Option<u64>, bool, u64)> = self
            .by_node
            .iter()
            .filter_map(|vote| match vote {
                Vote::Taken { ttl_left_ms, announces, holder } => Some((*ttl_left_ms, *announces, *holder)),
                _ => None,
            })
            .collect();
        let free = self.number(|vote| matches!(vote, Vote::Granted { .. }));
        if taken.is_empty() || taken.len() + free < majority {
            return None;
        }
        let camp = |holder: u64| taken.iter().filter(|(_, _, other)| *other == holder).count();
        let largest = taken.iter().map(|(_, _, holder)| camp(*holder)).max().unwrap_or(0);
        let unknown = self.by_node.len() - taken.len() - free;
        // the first moment at which enough of them are free
        let mut ends: Vec<u64> = taken.iter().map(|(left, ..)| left.unwrap_or(u64::MAX)).collect();
        ends.sort_unstable();
        let needed = majority.saturating_sub(self.by_node.len() - taken.len()).max(1);
        let ttl_left_ms = ends.get(needed - 1).copied().filter(|left| *left != u64::MAX);
        let announces = taken.iter().any(|(_, announces, _)| *announces);
        Some(Contest { ttl_left_ms, announces, tie: largest + unknown < majority })
    }

    fn failure(&self, quorum: &Quorum, now: Time, majority: usize) -> Failure {
        let lines = self.by_node.iter().enumerate().map(|(node, vote)| {
            let text = match vote {
                Vote::Pending => replies::NO_ANSWER.to_owned(),
                Vote::Granted { .. } => "granted".to_owned(),
                Vote::Taken { .. } => "held by somebody else".to_owned(),
                Vote::Gone => "it does not know the hold".to_owned(),
                Vote::Wrong(found) => format!("a {found} stands under this name"),
                Vote::Ineligible { .. } => replies::ineligible(quorum, now, node),
                Vote::Failed { failure, .. } => failure.detail.clone(),
            };
            quorum.with_name(node, &text)
        });
        let failures = self.by_node.iter().filter_map(|vote| match vote {
            Vote::Failed { failure, .. } => Some((failure.kind, failure.transient)),
            Vote::Wrong(_) => Some((ErrorKind::WrongKind, false)),
            _ => None,
        });
        let mut failure = replies::no_quorum(&failures.collect::<Vec<_>>(), lines.collect(), majority);
        if failure.kind == ErrorKind::WrongKind
            && let Some(Vote::Wrong(found)) = self.by_node.iter().find(|vote| matches!(vote, Vote::Wrong(_)))
        {
            failure.detail = format!("a {found} stands under this name; it was left untouched");
        }
        failure
    }
}

struct Contest {
    ttl_left_ms: Option<u64>,
    announces: bool,
    /// Nobody can have a majority.
    tie: bool,
}
