//! What the store and the driver do with the machines: rounds of the quorum, renewal, clean-up.

use std::collections::BTreeMap;

use onelock::machine::quorum::{NodeRequest, NodeSet, Quorum, QuorumRound, RoundStatus, Rules};
use onelock::machine::{
    Alarm, Answer, Claim, CleanupQueue, HerdBackoff, Jitter, Op, Outcome, PendingUndo, Renewal, Reply, Time,
    Uncertainty, Watchdog,
};

use super::super::dice::Dice;
use super::Bug;
use super::plan::{Plan, Wall};
use super::task::Stage;
use super::world::{Event, World, note};

/// Whom a node's answer is for.
#[derive(Clone, Debug)]
pub(super) enum To {
    Round(u64),
    Seed(Claim),
}

/// Why a round is made.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Attempt(usize),
    Attach(usize),
    Release(usize),
    Renewal(onelock::machine::RenewalRound),
    Undo(u64),
}

/// A round under way.
pub(super) struct Active {
    pub(super) round: QuorumRound,
    pub(super) purpose: Purpose,
    pub(super) op: Op,
    until: Time,
    /// What the nodes said, for planted bugs.
    fences: Vec<Option<u64>>,
    verdicts: Vec<Option<Vec<Renewal>>>,
    /// The nodes that really renewed each hold.
    renewed: Vec<NodeSet>,
    lingers: bool,
}

impl Active {
    pub(super) fn renewed(&mut self, node: usize, verdicts: &[Renewal]) {
        for (hold, verdict) in self.renewed.iter_mut().zip(verdicts) {
            if *verdict == Renewal::Renewed {
                *hold = hold.with(node);
            }
        }
    }

    /// What would be sent if each node that lost a hold were given it again, whatever the others say.
    fn seeds_regardless(&self) -> Vec<(Claim, usize, Op)> {
        let Op::Renew { holds } = &self.op else { return Vec::new() };
        let heard = self.verdicts.iter().enumerate().filter_map(|(node, heard)| Some((node, heard.as_ref()?)));
        let lost = heard.flat_map(|(node, verdicts)| {
            let lost = holds.iter().zip(verdicts).filter(|(_, verdict)| **verdict == Renewal::NotMine);
            lost.map(move |((claim, ttl_ms), _)| (node, claim, *ttl_ms))
        });
        lost.map(|(node, claim, ttl_ms)| {
            let vote = Op::Vote { claim: claim.clone(), ttl_ms, fence: None, info: None };
            (claim.clone(), node, vote)
        })
        .collect()
    }

    pub(super) fn highest(&self) -> u64 {
        self.fences.iter().flatten().copied().max().unwrap_or(0)
    }

    pub(super) fn confirmed_anywhere(&self) -> bool {
        self.verdicts.iter().flatten().flatten().any(|verdict| *verdict == Renewal::Renewed)
    }

    pub(super) fn sending(&mut self, node: usize, connection: u64) {
        self.round.sending(node, connection);
    }

    /// The nodes that really renewed this hold.
    pub(super) fn renewed_on(&self, claim: &Claim) -> NodeSet {
        let Op::Renew { holds } = &self.op else { return NodeSet::NONE };
        let hold = holds.iter().zip(&self.renewed).find(|((other, _), _)| other == claim);
        hold.map_or(NodeSet::NONE, |(_, nodes)| *nodes)
    }

    fn granted(&self) -> NodeSet {
        self.fences.iter().enumerate().filter(|(_, fence)| fence.is_some()).map(|(node, _)| node).collect()
    }
}

/// One client process.
pub(super) struct Client {
    pub(super) epoch: u32,
    pub(super) quorum: Quorum,
    pub(super) watchdog: Watchdog,
    pub(super) cleanup: CleanupQueue,
    pub(super) jitter: Jitter,
    pub(super) herd_backoff: HerdBackoff,
    pub(super) conns: Vec<Option<usize>>,
    pub(super) rounds: BTreeMap<u64, Active>,
    /// Renewals that are concluded, and listened to.
    pub(super) late: BTreeMap<u64, Active>,
    next_round: u64,
    pub(super) paused: bool,
    pub(super) deferred: Vec<Event>,
    watchdog_at: u64,
    janitor_at: u64,
}

impl Client {
    pub(super) fn new(_index: usize, plan: &Plan, bug: Option<Bug>, dice: &mut Dice) -> Client {
        let quarantine = if bug == Some(Bug::NoQuarantine) { std::time::Duration::ZERO } else { plan.quarantine };
        let rules = Rules { quarantine: Some(quarantine), ..Rules::default() };
        let names = (0..plan.nodes.len()).map(|node| format!("node{node}")).collect();
        Client {
            epoch: 1,
            quorum: Quorum::new(names, rules),
            watchdog: Watchdog::new(plan.node_timeout * 2, dice.jitter()),
            cleanup: CleanupQueue::new(dice.jitter()),
            jitter: dice.jitter(),
            herd_backoff: HerdBackoff::default(),
            conns: vec![None; plan.nodes.len()],
            rounds: BTreeMap::new(),
            late: BTreeMap::new(),
            next_round: 0,
            paused: false,
            deferred: Vec::new(),
            watchdog_at: u64::MAX,
            janitor_at: u64::MAX,
        }
    }
}

impl World {
    pub(super) fn wall_us(&self, client: usize) -> u64 {
        match self.plan.wall {
            Wall::None => 0,
            Wall::Skewed | Wall::Bounded => {
                let truth = (1_700_000_000_000_000_000 + self.now) / 1000;
                truth.saturating_add_signed(self.plan.clients[client].wall_skew_us)
            }
        }
    }

    pub(super) fn begin_round(&mut self, client: usize, op: Op, purpose: Purpose, until: Time) -> u64 {
        let (now, wall) = (self.local(client), self.wall_us(client));
        for deed in World::claims(&op) {
            self.deeds[deed].rounds += 1;
        }
        let nodes = self.nodes.len();
        let process = &mut self.clients[client];
        let (mut round, send) = process.quorum.begin(now, wall, &op);
        round.limit(until);
        let id = process.next_round;
        process.next_round += 1;
        let (fences, verdicts) = (vec![None; nodes], vec![None; nodes]);
        let renewed = vec![NodeSet::NONE; if let Op::Renew { holds } = &op { holds.len() } else { 0 }];
        let renews = matches!(op, Op::Renew { .. });
        process.rounds.insert(id, Active { round, purpose, op, until, fences, verdicts, renewed, lingers: false });
        self.dispatch(client, id, &send);
        if renews {
            // its nodes have longer than that
            let epoch = self.clients[client].epoch;
            self.push(self.world_time(client, until), Event::Linger(client, epoch, id));
        }
        id
    }

    pub(super) fn claims(op: &Op) -> Vec<usize> {
        match op {
            Op::Acquire { claim, .. }
            | Op::Attach { claim, .. }
            | Op::Release { claim }
            | Op::Retain { claim, .. }
            | Op::Undo { claim, .. } => {
                vec![World::deed_of(claim)]
            }
            Op::Renew { holds } => holds.iter().map(|(claim, _)| World::deed_of(claim)).collect(),
            _ => Vec::new(),
        }
    }

    fn dispatch(&mut self, client: usize, id: u64, send: &NodeRequest) {
        let active = &self.clients[client].rounds[&id];
        let patience = if matches!(active.op, Op::Renew { .. }) { Time::MAX } else { active.until };
        let until = patience.min(self.local(client) + self.plan.node_timeout);
        for node in send.nodes.iter() {
            self.submit(client, node, send.op.clone(), To::Round(id), until);
        }
    }

    pub(super) fn node_answered(&mut self, client: usize, node: usize, to: &To, answer: &Answer) {
        let now = self.local(client);
        let process = &mut self.clients[client];
        if process.quorum.ineligible_for(now, node).is_some() {
            self.tally.barred += 1;
        }
        let id = match to {
            To::Round(id) => *id,
            To::Seed(claim) => return process.quorum.repair_ended(claim, node, answer),
        };
        let Some(active) = process.rounds.get_mut(&id) else { return self.heard_late(client, id, node, answer) };
        match &answer.outcome {
            Outcome::Applied(Reply::Granted { fence, .. } | Reply::Written(fence)) => active.fences[node] = *fence,
            Outcome::Applied(Reply::Renewed(verdicts)) => active.verdicts[node] = Some(verdicts.clone()),
            _ => {}
        }
        if let Some(send) = active.round.answered(&mut process.quorum, now, node, answer) {
            self.tally.write_backs += 1;
            self.dispatch(client, id, &send);
        }
        self.look(client, id);
    }

    /// Concludes a round if there is nothing to wait for.
    fn look(&mut self, client: usize, id: u64) {
        if self.concludes_wrongly(client, id) {
            return;
        }
        let process = &mut self.clients[client];
        let Some(active) = process.rounds.get_mut(&id) else { return };
        match active.round.status(&process.quorum) {
            RoundStatus::Wait => {}
            RoundStatus::Over => self.conclude(client, id),
            RoundStatus::Until(_) if active.lingers => {}
            RoundStatus::Until(until) => {
                active.lingers = true;
                let epoch = process.epoch;
                self.push(self.world_time(client, until), Event::Linger(client, epoch, id));
            }
        }
    }

    /// Planted bugs that sit in how votes are counted.
    fn concludes_wrongly(&mut self, client: usize, id: u64) -> bool {
        let majority = self.clients[client].quorum.majority();
        let Some(active) = self.clients[client].rounds.get(&id) else { return false };
        let enough = match (self.bug, &active.purpose) {
            (Some(Bug::MaxWithoutWriteBack), Purpose::Attempt(_)) => majority,
            (Some(Bug::HalfIsEnough), Purpose::Attempt(_)) => majority - 1,
            (Some(Bug::AttachedByOne), Purpose::Attach(_)) => 1,
            _ => return false,
        };
        if active.granted().count() < enough {
            return false;
        }
        let fence = Some(active.highest());
        let now = self.local(client);
        let Some(mut active) = self.clients[client].rounds.remove(&id) else { return false };
        let mut answer = active.round.conclude(&mut self.clients[client].quorum, now);
        answer.outcome = Outcome::Applied(Reply::Granted { fence, again: false });
        self.concluded(client, id, &active, &answer);
        true
    }

    pub(super) fn linger_over(&mut self, client: usize, epoch: u32, id: u64) {
        if self.clients[client].epoch == epoch && self.clients[client].rounds.contains_key(&id) {
            self.conclude(client, id);
        }
    }

    fn conclude(&mut self, client: usize, id: u64) {
        let (now, wall) = (self.local(client), self.wall_us(client));
        let process = &mut self.clients[client];
        let Some(mut active) = process.rounds.remove(&id) else { return };
        let mut answer = active.round.conclude(&mut process.quorum, now);
        if let Purpose::Attempt(_) = active.purpose
            && self.bug == Some(Bug::DeadlineFromCount)
        {
            answer.sent_at = now;
        }
        if let Purpose::Attach(_) = active.purpose {
            self.attached_wrongly(active.fences.iter().flatten().copied().min(), &mut answer);
        }
        let process = &mut self.clients[client];
        let mut seeds = active.round.repairs(&mut process.quorum, now, wall);
        if self.bug == Some(Bug::SeedsRegardless) {
            seeds = active.seeds_regardless();
        }
        let listens = !active.round.late_nodes().is_empty();
        if !listens {
            active.round.end(&mut process.quorum);
        }
        self.give_again(client, &active, seeds);
        self.concluded(client, id, &active, &answer);
        if listens {
            self.clients[client].late.insert(id, active);
        }
    }

    fn concluded(&mut self, client: usize, id: u64, active: &Active, answer: &Answer) {
        for deed in World::claims(&active.op) {
            self.deeds[deed].rounds -= 1;
        }
        note!(self, "client {client}: round {id}, {} ends: {:?}", active.op.name(), answer.outcome);
        match &active.purpose {
            Purpose::Attempt(task) => self.attempt_answered(*task, answer, active.granted()),
            Purpose::Attach(task) => self.attach_answered(*task, answer),
            Purpose::Release(task) => self.release_answered(*task, answer),
            Purpose::Renewal(round) => self.renewal_answered(client, round, answer),
            Purpose::Undo(undo) => self.undo_answered(client, *undo, answer),
        }
    }

    /// The sum of the connections' numbers, as the store tells it.
    pub(super) fn connection(&self, client: usize) -> u64 {
        if self.plan.clients[client].unordered {
            return 0;
        }
        (0..self.nodes.len()).map(|node| self.number(client, node)).sum()
    }

    pub(super) fn queue_undo(
        &mut self,
        client: usize,
        deed: usize,
        uncertainty: Uncertainty,
        nodes: NodeSet,
        quiet: bool,
    ) {
        let now = self.local(client);
        let Deed { claim, terms, .. } = &self.deeds[deed];
        let ttl = std::time::Duration::from_millis(terms.server_ttl_ms(terms.ttl));
        let undo = PendingUndo { nodes, quiet, ..PendingUndo::new(claim.clone(), ttl, uncertainty) };
        note!(self, "client {client}: deed {deed} is to be released on {nodes:?}, {uncertainty:?}");
        self.clients[client].cleanup.take(now, undo);
        self.run_janitor(client);
    }

    fn run_janitor(&mut self, client: usize) {
        let wake = self.clients[client].cleanup.wake_at();
        let at = self.world_time(client, wake).max(self.now);
        let process = &mut self.clients[client];
        if wake != Time::MAX && (at < process.janitor_at || process.janitor_at < self.now) {
            process.janitor_at = at;
            let epoch = process.epoch;
            self.push(at, Event::Janitor(client, epoch));
        }
    }

    pub(super) fn janitor_timer(&mut self, client: usize, epoch: u32) {
        // another, earlier one was set after this one, and did its work
        if self.clients[client].epoch != epoch || self.now < self.clients[client].janitor_at {
            return;
        }
        self.clients[client].janitor_at = u64::MAX;
        let now = self.local(client);
        for (undo, op) in self.clients[client].cleanup.poll(now) {
            let until = now + self.plan.node_timeout * 2;
            self.begin_round(client, op, Purpose::Undo(undo), until);
        }
        self.run_janitor(client);
    }

    fn undo_answered(&mut self, client: usize, undo: u64, answer: &Answer) {
        let now = self.local(client);
        self.clients[client].cleanup.answered(now, undo, answer);
        self.run_janitor(client);
    }

    pub(super) fn run_watchdog(&mut self, client: usize) {
        let wake = self.clients[client].watchdog.wake_at();
        let at = self.world_time(client, wake).max(self.now);
        let process = &mut self.clients[client];
        if wake != Time::MAX && (at < process.watchdog_at || process.watchdog_at < self.now) {
            process.watchdog_at = at;
            let epoch = process.epoch;
            self.push(at, Event::Watchdog(client, epoch));
        }
    }

    pub(super) fn watchdog_timer(&mut self, client: usize, epoch: u32) {
        // another, earlier one was set after this one, and did its work
        if self.clients[client].epoch != epoch || self.now < self.clients[client].watchdog_at {
            return;
        }
        self.clients[client].watchdog_at = u64::MAX;
        let now = self.local(client);
        let alarms = self.clients[client].watchdog.poll(now);
        self.alarms(client, alarms);
        self.run_watchdog(client);
    }

    fn alarms(&mut self, client: usize, alarms: Vec<Alarm>) {
        for alarm in alarms {
            match alarm {
                Alarm::Renew(round) => {
                    let until = self.local(client) + round.limit;
                    let op = Op::Renew { holds: round.holds.clone() };
                    self.begin_round(client, op, Purpose::Renewal(round), until);
                }
                Alarm::Jeopardy(_) => {}
                Alarm::Lost(deed, reason) => {
                    let claim = self.deeds[deed as usize].claim.clone();
                    self.clients[client].quorum.hold_ended(&claim);
                    self.tally.losses += 1;
                    note!(self, "deed {deed} is lost: {}", reason.as_str());
                }
            }
        }
    }

    fn renewal_answered(&mut self, client: usize, round: &onelock::machine::RenewalRound, answer: &Answer) {
        let now = self.local(client);
        if let Outcome::Applied(Reply::Renewed(verdicts)) = &answer.outcome {
            self.tally.renewals += verdicts.iter().filter(|verdict| **verdict == Renewal::Renewed).count() as u64;
        }
        let alarms = self.clients[client].watchdog.renewed(now, round, answer);
        self.alarms(client, alarms);
        self.run_watchdog(client);
    }

    /// The process is gone, and another one takes its place.
    pub(super) fn kill(&mut self, client: usize) {
        let fresh = Client::new(client, &self.plan, self.bug, &mut self.dice);
        let epoch = self.clients[client].epoch + 1;
        let paused = self.clients[client].paused;
        self.clients[client] = Client { epoch, paused, ..fresh };
        for deed in &mut self.deeds {
            if deed.client == client && !deed.gone {
                (deed.gone, deed.rounds) = (true, 0);
            }
        }
        for task in 0..self.tasks.len() {
            if self.tasks[task].client == client && !matches!(self.tasks[task].stage, Stage::Done) {
                (self.tasks[task].call, self.tasks[task].deed) = (None, None);
                self.idle(task);
            }
        }
    }
}

use super::world::Deed;
