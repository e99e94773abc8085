//! The properties, checked at every step against what really is on the servers.

use onelock::machine::{Claim, Op, Outcome, Phase, Reply};

use super::Bug;
use super::client::Active;
use super::plan::MS;
use super::task::Stage;
use super::world::{Event, World};

impl World {
    pub(super) fn believes(&self, deed: usize) -> bool {
        let deed = &self.deeds[deed];
        !deed.gone && deed.cell.is_held(self.local(deed.client))
    }

    /// Nobody else may believe in a lease.
    pub(super) fn check_exclusion(&mut self) {
        let live = std::mem::take(&mut self.live);
        self.live = live.into_iter().filter(|deed| self.believes(*deed)).collect();
        if let [one, other, ..] = self.live[..] {
            self.violate("P1 exclusion", format!("deeds {one} and {other} are held at once"));
        }
    }

    /// A lease is handed to its caller.
    pub(super) fn check_hand_out(&mut self, deed: usize) {
        self.live.push(deed);
        self.check_exclusion();
        let fence = self.deeds[deed].fence.unwrap_or(0);
        // who goes on with a hold goes on with its token, or a higher one where the nodes did not agree
        let goes_on = self.deeds[deed].from.is_some() && fence == self.handed_fence;
        if fence <= self.handed_fence && !goes_on {
            let last = self.handed_fence;
            self.violate("P6 fencing grows", format!("deed {deed} completes with {fence} after {last}"));
        }
        self.mark_write(deed, fence >= self.handed_fence, false);
        self.handed_fence = self.handed_fence.max(fence);
    }

    /// A node is about to be given a hold that it lost: a majority must have it.
    pub(super) fn check_seed(&mut self, active: &Active, claim: &Claim, node: usize) {
        let holders = active.renewed_on(claim);
        if holders.count() < self.clients[0].quorum.majority() {
            let deed = World::deed_of(claim);
            let detail = format!("node {node} is given deed {deed} again, which only {holders:?} renewed");
            self.violate("P5 exactly once", detail);
        }
    }

    /// This moment a node is given a hold again: it must not be over.
    pub(super) fn check_seed_sent(&mut self, claim: &Claim, node: usize) {
        let deed = World::deed_of(claim);
        let phase = self.deeds[deed].cell.phase();
        // without this check others have to find what comes of it
        if phase != Phase::Held && self.bug != Some(Bug::SeedsUntold) {
            let detail = format!("node {node} is given deed {deed} again, which is {phase:?}");
            self.violate("P5 exactly once", detail);
        }
    }

    /// Claims that ended, with nothing under way and nobody after them: no node may hold them.
    pub(super) fn check_ended(&mut self) {
        if self.ending.is_empty() || self.now < self.next_check {
            return;
        }
        // what is left behind stays for a whole ttl: there is time to find it
        self.next_check = self.now + self.plan.ttl.as_nanos() as u64 / 20;
        for deed in std::mem::take(&mut self.ending) {
            let ended = &self.deeds[deed];
            if ended.gone {
                continue;
            }
            if ended.in_air > 0 || ended.rounds > 0 || self.clients[ended.client].cleanup.has(&ended.claim) {
                self.ending.push(deed);
                continue;
            }
            for node in 0..self.nodes.len() {
                let (claim, terms) = (self.deeds[deed].claim.clone(), self.deeds[deed].terms.clone());
                let us = self.nodes[node].clock.micros(self.now);
                let holder = self.nodes[node].model.holder_of(us, &claim.key);
                // a copy that comes later than a ttl after the first undo is not waited for, nor is a node that cannot be
                // reached any more by then
                let waited = self.now - self.deeds[deed].undone[node].unwrap_or(self.now);
                if holder.is_none_or(|(_, holder)| *holder != *claim.token.as_bytes())
                    || self.deeds[deed].late_copy[node]
                    || u128::from(waited) >= terms.ttl.as_nanos() * 19 / 20
                {
                    continue;
                }
                let look = self.nodes[node].model.apply(us, &Op::Inspect { key: claim.key.clone() });
                let left = match look.outcome {
                    Outcome::Applied(Reply::Inspected(Some(standing))) => standing.ttl_left_ms.unwrap_or(u64::MAX),
                    _ => 0,
                };
                // what the cleanup queue believes to have expired, by a clock that may be a little faster
                if u128::from(left) > terms.ttl.as_millis() / 20 {
                    let detail = format!(
                        "deed {deed} is over and stands on node {node} for another {left} ms, and nobody is after it"
                    );
                    self.violate("P4 nothing is orphaned", detail);
                }
            }
        }
    }

    pub(super) fn try_to_end(&mut self) {
        let quiet = self.tasks.iter().all(|task| matches!(task.stage, Stage::Done))
            && self.clients.iter().all(|client| client.cleanup.is_empty() && client.rounds.is_empty())
            && self.ending.is_empty();
        if quiet {
            self.over = true;
            return;
        }
        // nobody's turn comes by itself, and whoever is handed a hold lengthens it
        let first: usize = self.plan.clients.iter().map(|client| client.tasks).sum();
        let handed = self.tasks.len().saturating_sub(first) as u64;
        let limit = 120_000 + handed * self.plan.hold / MS;
        for task in &self.tasks {
            let waited = (self.now - task.started) / MS;
            if task.call.is_some() && waited > limit {
                let detail = format!("an acquire has been waiting for {waited} ms");
                self.violation.get_or_insert(super::Violation { property: "P8 bounded waiting", detail });
                return;
            }
        }
        let later = self.now + self.plan.ttl.as_nanos() as u64 / 4;
        self.push(later, Event::End);
    }
}
