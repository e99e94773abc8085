//! Redlock: one lock on N independent servers, held by the client that holds a majority of them. Every decision of it, and
//! no I/O: which node gets which request, what the answers mean, when the result is certain, and what is left to undo.
//!
//! [`Quorum`] is what a client knows of its nodes over time; a [`QuorumRound`] is one operation on all of them. The store
//! asks [`Quorum::begin`] what to send, passes each answer to [`QuorumRound::answered`], and takes the outcome when
//! [`QuorumRound::status`] says that there is nothing to wait for. A renewal continues after that: its late answers are
//! passed in the same way, until [`QuorumRound::end`].
//!
//! | file | decides |
//! |---|---|
//! | `nodes` | sets of nodes |
//! | `eligibility` | which nodes vote: quarantine after a restart without data, a clock that jumped |
//! | `round` | one operation: requests, answers, how long to wait |
//! | `votes` | the result of the votes on an acquire; the fencing token that a majority acknowledges |
//! | `replies` | the result of the answers to every other operation |

mod eligibility;
mod nodes;
mod replies;
mod round;
mod votes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use eligibility::{ServerData, ServerRun};
pub use nodes::{NODES_MAX, NodeSet};
pub use round::{NodeRequest, QuorumRound, RoundStatus};

use self::eligibility::Eligibility;
use crate::machine::{Answer, Claim, Op, Outcome, Time};

/// The shortest default quarantine.
const QUARANTINE_MIN: Duration = Duration::from_secs(60);
/// How many tokens are remembered at most for the sake of fewer requests.
const REMEMBERED_MAX: usize = 4096;
/// How many holds that not every node has answered are remembered at most.
const UNANSWERED_MAX: usize = 65_536;
/// A renewal that did not end within this time never will: its caller has gone.
const RENEWAL_MAX: Duration = Duration::from_secs(60);

/// What the client decided about its quorum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// How long a node that restarted without its data is not eligible; zero: not at all; `None`: the larger of a
    /// minute and twice the longest lease that was requested.
    pub quarantine: Option<Duration>,
    /// How far apart clocks may run.
    pub drift_factor: f64,
    /// Whether a repaired node gets a fencing counter too.
    pub fencing: bool,
    /// The longest lease to reckon with from the beginning.
    pub longest_ttl: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { quarantine: None, drift_factor: 0.01, fencing: true, longest_ttl: Duration::ZERO }
    }
}

/// What one client knows of its nodes. Pure: the driver holds it behind a mutex, never while anything waits.
#[derive(Clone, Debug)]
pub struct Quorum {
    members: Vec<Member>,
    rules: Rules,
    longest_ttl: Duration,
    /// The highest fencing token that was seen.
    last_token: u64,
    /// Nodes that surely never got an acquire that the others granted, so that they need no release.
    never_sent: HashMap<Arc<str>, NodeSet>,
    /// Nodes that may still carry out an acquire that was granted by the others.
    unanswered: HashMap<Arc<str>, Vec<UnansweredNode>>,
    /// Holds whose renewal is in progress.
    renewing: HashMap<Arc<str>, RenewalInProgress>,
    /// Nodes that are being repaired: they lost a hold and get it again.
    repairing: HashMap<Arc<str>, Repairing>,
}

#[derive(Clone, Debug)]
struct Member {
    name: String,
    eligibility: Eligibility,
    /// It did not answer the last request in time: the next round does not wait for it just to be complete.
    silent: bool,
}

/// A node that had not answered when the others granted the acquire.
#[derive(Clone, Copy, Debug)]
struct UnansweredNode {
    node: usize,
    /// The ordered connection on which it was sent the request; 0 when that is not known.
    connection: u64,
    /// There may be a second request of the same kind.
    twice: bool,
}

#[derive(Clone, Debug)]
struct RenewalInProgress {
    since: Time,
    /// Renewals of this hold that have not ended.
    rounds: u32,
    /// It was released or lost meanwhile.
    over: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Repairing {
    nodes: NodeSet,
    /// It was released or lost meanwhile.
    over: bool,
}

impl Quorum {
    /// A quorum of the nodes with these names (addresses, for messages), 1 to [`NODES_MAX`] of them.
    pub fn new(names: Vec<String>, rules: Rules) -> Quorum {
        let member = |name| Member { name, eligibility: Eligibility::new(rules.drift_factor), silent: false };
        Quorum {
            members: names.into_iter().take(NODES_MAX).map(member).collect(),
            rules,
            longest_ttl: rules.longest_ttl,
            last_token: 0,
            never_sent: HashMap::new(),
            unanswered: HashMap::new(),
            renewing: HashMap::new(),
            repairing: HashMap::new(),
        }
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no node at all.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// How many nodes make a majority.
    pub fn majority(&self) -> usize {
        self.len() / 2 + 1
    }

    /// Begins an operation: what to send, and the state machine that takes the answers. `wall_us` is the client's wall
    /// clock, of which the fencing token is proposed; correctness does not depend on it.
    pub fn begin(&mut self, now: Time, wall_us: u64, op: &Op) -> (QuorumRound, NodeRequest) {
        match op {
            Op::Acquire { ttl_ms, .. } | Op::Attach { ttl_ms, .. } => self.asked(*ttl_ms),
            Op::Renew { holds } => {
                for (claim, ttl_ms) in holds {
                    self.asked(*ttl_ms);
                    self.renewal_begins(now, claim);
                }
            }
            Op::Release { claim } | Op::Retain { claim, .. } | Op::Undo { claim, .. } => {
                self.hold_ended(claim);
            }
            _ => {}
        }
        QuorumRound::begin(self, now, wall_us, op)
    }

    /// A hold is over: released, lost, or detached. No node is repaired for it any more.
    pub fn hold_ended(&mut self, claim: &Claim) {
        if let Some(renewing) = self.renewing.get_mut(&claim.token) {
            renewing.over = true;
        }
        if let Some(repairing) = self.repairing.get_mut(&claim.token) {
            repairing.over = true;
        }
    }

    fn asked(&mut self, ttl_ms: u64) {
        self.longest_ttl = self.longest_ttl.max(Duration::from_millis(ttl_ms));
    }

    /// A connection to a node was made, and the node reported its run; `None` if it would not.
    pub fn on_connected(&mut self, now: Time, node: usize, life: Option<&ServerRun>) {
        if let Some(member) = self.members.get_mut(node) {
            member.eligibility.on_connected(now, life);
        }
    }

    /// How long a node that restarted without its data is not eligible.
    pub fn quarantine(&self) -> Duration {
        self.rules.quarantine.unwrap_or_else(|| QUARANTINE_MIN.max(self.longest_ttl * 2))
    }

    /// For how much longer this node is not eligible, if it is not.
    pub fn ineligible_for(&self, now: Time, node: usize) -> Option<Duration> {
        self.members.get(node)?.eligibility.ineligible_for(now, self.quarantine())
    }

    /// The fencing token to propose to all nodes.
    fn proposal(&self, wall_us: u64) -> u64 {
        wall_us.max(self.last_token + 1)
    }

    /// Takes an answer's information about its node; tells whether the node is eligible.
    fn observe(&mut self, now: Time, node: usize, answer: &Answer) -> bool {
        let (quarantine, longest) = (self.quarantine(), self.longest_ttl);
        let Some(member) = self.members.get_mut(node) else { return false };
        member.silent = answer.outcome.failure().is_some();
        member.eligibility.observe(now, answer, longest * 2);
        member.eligibility.ineligible_for(now, quarantine).is_none()
    }

    /// The nodes that are worth waiting for, when nothing depends on them any more.
    fn responsive(&self) -> NodeSet {
        self.members.iter().enumerate().filter(|(_, member)| !member.silent).map(|(node, _)| node).collect()
    }

    fn mark_silent(&mut self, nodes: NodeSet) {
        for node in nodes.iter() {
            if let Some(member) = self.members.get_mut(node) {
                member.silent = true;
            }
        }
    }

    fn note_never_sent(&mut self, claim: &Claim, nodes: NodeSet) {
        if self.never_sent.len() >= REMEMBERED_MAX {
            // forgotten nodes are asked to release what they never had: harmless
            self.never_sent.clear();
        }
        self.never_sent.insert(claim.token.clone(), nodes);
    }

    fn take_never_sent(&mut self, claim: &Claim) -> NodeSet {
        if self.never_sent.is_empty() {
            NodeSet::NONE
        } else {
            self.never_sent.remove(&claim.token).unwrap_or(NodeSet::NONE)
        }
    }

    /// Nodes that had not answered when the others granted the acquire.
    fn note_unanswered(&mut self, claim: &Claim, nodes: Vec<UnansweredNode>) {
        if self.unanswered.len() >= UNANSWERED_MAX {
            // a forgotten node is believed when it reports no hold: then the hold may stay for one ttl
            self.unanswered.clear();
        }
        self.unanswered.insert(claim.token.clone(), nodes);
    }

    fn renewal_begins(&mut self, now: Time, claim: &Claim) {
        if self.renewing.len() >= REMEMBERED_MAX {
            self.renewing.retain(|_, renewing| now.since(renewing.since) < RENEWAL_MAX);
        }
        let fresh = RenewalInProgress { since: now, rounds: 0, over: false };
        let renewing = self.renewing.entry(claim.token.clone()).or_insert(fresh);
        renewing.since = now;
        renewing.rounds += 1;
    }

    fn renewal_ends(&mut self, claim: &Claim) {
        if let Some(renewing) = self.renewing.get_mut(&claim.token) {
            renewing.rounds -= 1;
            if renewing.rounds == 0 {
                self.renewing.remove(&claim.token);
            }
        }
    }

    /// Whether a hold whose renewal is in progress is still wanted, as far as is known.
    pub fn is_renewed(&self, claim: &Claim) -> bool {
        self.renewing.get(&claim.token).is_some_and(|renewing| !renewing.over)
    }

    /// A repair of a node begins.
    fn begin_repair(&mut self, claim: &Claim, node: usize) {
        let repairing = self.repairing.entry(claim.token.clone()).or_default();
        repairing.nodes = repairing.nodes.with(node);
        if let Some(never_sent) = self.never_sent.get_mut(&claim.token) {
            *never_sent = never_sent.without(node);
        }
        for unanswered in self.unanswered.get_mut(&claim.token).into_iter().flatten() {
            unanswered.twice |= unanswered.node == node;
        }
    }

    /// Whether a node still has to be repaired. To be asked just before the request is sent.
    pub fn is_repair_wanted(&self, claim: &Claim) -> bool {
        self.repairing.get(&claim.token).is_some_and(|repairing| !repairing.over)
    }

    /// The repair request was answered, or failed: then it may still be carried out. Until this is called the node gets
    /// special care when the hold is released.
    pub fn repair_ended(&mut self, claim: &Claim, node: usize, answer: &Answer) {
        if matches!(answer.outcome, Outcome::Indeterminate(_)) {
            self.unanswered.entry(claim.token.clone()).or_default().push(UnansweredNode {
                node,
                connection: 0,
                twice: true,
            });
        }
        if let Some(repairing) = self.repairing.get_mut(&claim.token) {
            repairing.nodes = repairing.nodes.without(node);
            if repairing.nodes.is_empty() {
                self.repairing.remove(&claim.token);
            }
        }
    }

    fn repairing(&self, claim: &Claim) -> NodeSet {
        if self.repairing.is_empty() {
            return NodeSet::NONE;
        }
        self.repairing.get(&claim.token).map_or(NodeSet::NONE, |repairing| repairing.nodes)
    }

    /// A node's text, with its name in front.
    fn with_name(&self, node: usize, detail: &str) -> String {
        match self.members.get(node) {
            Some(member) if !detail.starts_with(&member.name) => format!("{}: {detail}", member.name),
            _ => detail.to_owned(),
        }
    }
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod attach_tests;
#[cfg(test)]
#[path = "late_tests.rs"]
mod late_tests;
#[cfg(test)]
#[path = "quorum_tests.rs"]
mod quorum_tests;
