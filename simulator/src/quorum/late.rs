//! What goes on after a renewal was concluded: answers that come late, and holds that are given again for them.

use onelock::machine::{Answer, Claim, Op, Outcome, Phase, Renewal, Reply};

use super::Bug;
use super::client::{Active, To};
use super::world::{World, note};

impl Active {
    /// What would be sent if a node were given its hold again whatever became of that since a majority confirmed it.
    fn late_seeds_regardless(&self, node: usize, verdicts: &[Renewal], majority: usize) -> Vec<(Claim, usize, Op)> {
        let Op::Renew { holds } = &self.op else { return Vec::new() };
        let lost = holds.iter().zip(verdicts).filter(|((claim, _), verdict)| {
            **verdict == Renewal::NotMine && self.renewed_on(claim).count() >= majority
        });
        lost.map(|((claim, ttl_ms), _)| {
            let vote = Op::Vote { claim: claim.clone(), ttl_ms: *ttl_ms, fence: None, info: None };
            (claim.clone(), node, vote)
        })
        .collect()
    }
}

impl World {
    /// An answer to a renewal whose caller has gone on.
    pub(super) fn heard_late(&mut self, client: usize, id: u64, node: usize, answer: &Answer) {
        let (now, wall) = (self.local(client), self.wall_us(client));
        let process = &mut self.clients[client];
        let Some(mut active) = process.late.remove(&id) else { return };
        self.tally.late += u64::from(matches!(answer.outcome, Outcome::Applied(_)));
        active.round.answered(&mut process.quorum, now, node, answer);
        let mut seeds = active.round.repairs(&mut process.quorum, now, wall);
        if self.bug == Some(Bug::LateSeedsRegardless)
            && let Outcome::Applied(Reply::Renewed(verdicts)) = &answer.outcome
        {
            seeds = active.late_seeds_regardless(node, verdicts, process.quorum.majority());
        }
        self.tally.late_seeds += seeds.len() as u64;
        self.give_again(client, &active, seeds);
        let process = &mut self.clients[client];
        if active.round.late_nodes().is_empty() {
            active.round.end(&mut process.quorum);
        } else {
            process.late.insert(id, active);
        }
    }

    /// Gives nodes a hold that they lost.
    pub(super) fn give_again(&mut self, client: usize, active: &Active, seeds: Vec<(Claim, usize, Op)>) {
        let until = self.local(client) + self.plan.node_timeout;
        for (claim, node, op) in seeds {
            self.tally.seeds += 1;
            note!(self, "client {client}: gives node {node} its hold again");
            self.check_seed(active, &claim, node);
            if self.bug == Some(Bug::SeedsUntold) {
                let now = self.local(client);
                let outcome = Outcome::Applied(Reply::Granted { fence: None, again: false });
                let told = Answer { sent_at: now, received_at: now, connection: 0, server_time_us: None, outcome };
                self.clients[client].quorum.repair_ended(&claim, node, &told);
            }
            self.submit(client, node, op, To::Seed(claim), until);
        }
    }

    /// Somebody deletes the key of a hold on one node. Where nobody's belief rests on that node: a server that loses what
    /// it acknowledged is beyond what is promised.
    pub(super) fn forget(&mut self, node: usize) {
        let Some((deed, _)) = self.standing_on(node) else { return };
        let known = &self.deeds[deed];
        let (client, claim) = (known.client, known.claim.clone());
        let belief = known.cell.deadline().since(self.local(client)).as_millis() as u64;
        let process = &self.clients[client];
        let counted = process.rounds.values().any(|active| active.renewed_on(&claim).has(node));
        // theirs may be faster than the holder's clock
        let outlives = |other: usize| {
            self.standing_on(other).is_some_and(|(same, left_ms)| same == deed && left_ms * 98 / 100 >= belief)
        };
        let others = (0..self.nodes.len()).filter(|other| *other != node && outlives(*other)).count();
        if known.gone || known.cell.phase() != Phase::Held || counted || others < process.quorum.majority() {
            return;
        }
        self.tally.forgotten += 1;
        note!(self, "node {node}: deed {deed} is forgotten");
        let us = self.nodes[node].clock.micros(self.now);
        self.nodes[node].model.apply(us, &Op::Release { claim });
    }

    /// Whose hold stands on a node, and for how many milliseconds still.
    fn standing_on(&self, node: usize) -> Option<(usize, u64)> {
        let node = &self.nodes[node];
        let look =
            node.model.clone().apply(node.clock.micros(self.now), &Op::Inspect { key: (*b"sim").as_slice().into() });
        match look.outcome {
            Outcome::Applied(Reply::Inspected(Some(standing))) if node.up => {
                let token = String::from_utf8(standing.holder).ok()?;
                let number = usize::from_str_radix(token.strip_prefix("onelock1:")?, 16).ok()?;
                Some((number, standing.ttl_left_ms?))
            }
            _ => None,
        }
    }
}
