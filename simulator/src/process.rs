//! One client process: the machines that a driver keeps per client, and the timers that it sleeps on.

use onelock::Owner;
use onelock::machine::{
    Alarm, Anomaly, Answer, CleanupQueue, ClockWatch, HerdBackoff, Jitter, LossReason, Op, Outcome, Place, Registry,
    Renewal, RenewalRound, Reply, Time, WaitQueue, Watchdog,
};

use super::bug::Bug;
use super::dice::Dice;
use super::hearing::{Heard, Link};
use super::plan::{ClientPlan, Fault, Plan};
use super::stats::Count;
use super::wire::Purpose;
use super::world::{Event, World, nanos, note};

pub(super) struct Process {
    pub(super) plan: ClientPlan,
    /// Counts the lives of the process.
    pub(super) epoch: u32,
    pub(super) paused: bool,
    /// What comes in while it is stopped.
    pub(super) deferred: Vec<Event>,
    /// When it was last stopped or late: its calls may be, too.
    pub(super) disturbed_at: u64,
    /// No connection can be made until then.
    pub(super) cut_off_until: u64,
    pub(super) shared: Option<usize>,
    pub(super) pool: Vec<usize>,
    pub(super) watchdog: Watchdog,
    watchdog_at: u64,
    pub(super) rounds: Vec<RenewalRound>,
    pub(super) cleanup: CleanupQueue,
    janitor_at: u64,
    /// The deed of each undo.
    pub(super) undo_deeds: Vec<usize>,
    pub(super) lines: Vec<WaitQueue<usize>>,
    pub(super) registry: Registry<usize>,
    pub(super) registry_waiters: Vec<usize>,
    pub(super) owners: Vec<Owner>,
    pub(super) hearing: Vec<Heard>,
    pub(super) link: Option<Link>,
    pub(super) clock_watch: ClockWatch,
    /// How often that clock was seen to jump.
    pub(super) clock_jumps: u64,
    /// By how much the server's clock had been set when it answered last.
    pub(super) stepped_seen: i64,
    pub(super) away_since: Option<Time>,
    pub(super) jitter: Jitter,
    pub(super) rivalries: Vec<HerdBackoff>,
    /// When the heads of each line were refused since one was granted, as far as it is remembered.
    pub(super) refusals: Vec<Vec<Time>>,
    /// What the last head of each line left in a queue on the server.
    pub(super) passed: Vec<Option<(usize, Place)>>,
    /// The number that each line's place had last, since it was granted or left.
    pub(super) turns: Vec<Option<u64>>,
}

impl Process {
    pub(super) fn new(index: usize, epoch: u32, plan: &Plan, dice: &mut Dice) -> Process {
        Process {
            plan: plan.clients[index].clone(),
            epoch,
            paused: false,
            deferred: Vec::new(),
            disturbed_at: 0,
            cut_off_until: 0,
            shared: None,
            pool: Vec::new(),
            watchdog: Watchdog::new(plan.request_timeout, dice.jitter()),
            watchdog_at: u64::MAX,
            rounds: Vec::new(),
            cleanup: CleanupQueue::new(dice.jitter()),
            janitor_at: u64::MAX,
            undo_deeds: Vec::new(),
            lines: plan.names.iter().map(|_| WaitQueue::default()).collect(),
            registry: Registry::default(),
            registry_waiters: Vec::new(),
            owners: (0..2_u8).map(|number| Owner::named([number])).collect(),
            hearing: plan.names.iter().map(|_| Heard::default()).collect(),
            link: None,
            clock_watch: ClockWatch::new(plan.drift_factor),
            clock_jumps: 0,
            stepped_seen: 0,
            away_since: None,
            jitter: dice.jitter(),
            rivalries: vec![HerdBackoff::default(); plan.names.len()],
            refusals: vec![Vec::new(); plan.names.len()],
            passed: vec![None; plan.names.len()],
            turns: vec![None; plan.names.len()],
        }
    }
}

impl World {
    /// When a timer that is due at `due` goes off: late in a busy process.
    pub(super) fn late(&mut self, client: usize, due: u64) -> u64 {
        if !self.strikes(Fault::Sluggish) {
            return due;
        }
        let at = due.saturating_add(self.dice.below(nanos(self.plan.ttl) / 2));
        self.busy_until(client, at);
        at
    }

    fn busy_until(&mut self, client: usize, until: u64) {
        self.clients[client].disturbed_at = self.clients[client].disturbed_at.max(until);
        self.trouble_at = self.trouble_at.max(until);
    }

    /// How long it takes from the grant to the caller.
    pub(super) fn hand_over_delay(&mut self, client: usize) -> u64 {
        let quick = self.dice.below(200_000);
        if self.strikes(Fault::Sluggish) {
            let late = self.dice.below(nanos(self.plan.ttl) * 3 / 2);
            self.busy_until(client, self.now + late);
            return late;
        }
        quick
    }

    /// Sets the timer of the watchdog anew, after something was done to it.
    pub(super) fn run_watchdog(&mut self, client: usize) {
        let wake = self.clients[client].watchdog.wake_at();
        let at = self.world_time(client, wake).max(self.now);
        if wake != Time::MAX && (at < self.clients[client].watchdog_at || self.clients[client].watchdog_at < self.now) {
            self.clients[client].watchdog_at = at;
            let at = self.late(client, at);
            self.push(at, Event::Watchdog(client as u32, self.clients[client].epoch));
        }
    }

    pub(super) fn watchdog_timer(&mut self, client: usize, epoch: u32) {
        if self.clients[client].epoch != epoch {
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
                Alarm::Renew(round) => self.renew(client, round),
                Alarm::Jeopardy(_) => {}
                Alarm::Lost(deed, reason) => self.lost(deed as usize, reason),
            }
        }
    }

    fn renew(&mut self, client: usize, round: RenewalRound) {
        let now = self.local(client);
        let until = now + self.plan.connect_timeout.min(round.limit) + round.limit;
        let deeds = round.ids.iter().map(|id| *id as usize).collect::<Vec<_>>();
        if deeds.len() > 1 {
            self.stats.add(Count::Batches);
        }
        if let Some(deed) = deeds.iter().find(|deed| self.deeds[**deed].release_begun) {
            self.violate("P5 exactly once", format!("deed {deed} is renewed after its release began"));
        }
        let op = Op::Renew { holds: round.holds.clone() };
        let until = until.min(now + round.limit);
        self.clients[client].rounds.push(round);
        let number = self.clients[client].rounds.len() - 1;
        self.submit(client, false, op, deeds, Purpose::Renewal(number), until);
    }

    /// A renewal leaves the process.
    pub(super) fn renewal_sent(&mut self, request: usize, round: usize) {
        let client = self.requests[request].client;
        let now = self.local(client);
        if self.bug == Some(Bug::OptimisticRenew) {
            let round = self.clients[client].rounds[round].clone();
            for (deed, ttl) in round.ids.iter().map(|id| *id as usize).zip(&round.ttls) {
                let deadline = self.deeds[deed].terms.deadline(now, *ttl);
                self.deeds[deed].cell.confirm(now, deadline);
            }
        }
    }

    pub(super) fn renewal_answered(&mut self, client: usize, round: usize, answer: &Answer) {
        let now = self.local(client);
        let round = self.clients[client].rounds[round].clone();
        let mut answer = answer.clone();
        if self.bug == Some(Bug::VerdictsShifted)
            && let Outcome::Applied(Reply::Renewed(verdicts)) = &mut answer.outcome
            && !verdicts.is_empty()
        {
            verdicts.rotate_left(1);
        }
        let failed = match &answer.outcome {
            Outcome::Applied(Reply::Renewed(verdicts)) => matches!(verdicts.first(), Some(Renewal::Failed(_))),
            _ => true,
        };
        if failed && round.ids.len() > 1 {
            self.stats.add(Count::BatchesRefused);
        }
        if failed && self.bug == Some(Bug::NoRetry) {
            return;
        }
        let alarms = self.clients[client].watchdog.renewed(now, &round, &answer);
        if let Outcome::Applied(Reply::Renewed(verdicts)) = &answer.outcome {
            for (id, verdict) in round.ids.iter().zip(verdicts) {
                if *verdict == Renewal::Renewed {
                    self.stats.add(Count::Renewals);
                    self.check_deadline(*id as usize);
                }
            }
        }
        self.alarms(client, alarms);
        self.run_watchdog(client);
    }

    /// The caller is told that its lease is lost.
    fn lost(&mut self, deed: usize, reason: LossReason) {
        if self.deeds[deed].lost_with_group {
            return;
        }
        self.stats.add(Count::Losses);
        note!(self, "deed {deed} is lost: {}", reason.as_str());
        self.deeds[deed].told += 1;
        self.check_loss(deed, reason);
        self.member_lost(deed, reason);
    }

    /// Compares the server's clock with the client's own, as every ordered reply allows.
    pub(super) fn observe_clock(&mut self, client: usize, answer: &Answer) {
        let Some(anomaly) = self.clients[client].clock_watch.observe(answer) else { return };
        self.stats.add(Count::Anomalies);
        self.clients[client].clock_jumps += 1;
        note!(self, "client {client}: {anomaly:?}");
        if !self.clock_was_set && !self.loose {
            self.violate("clock watch", format!("false alarm: {anomaly:?}"));
        }
        if let Anomaly::Forward(jump) = anomaly {
            let now = self.local(client);
            let alarms = self.clients[client].watchdog.clock_jumped(now, answer, jump);
            self.alarms(client, alarms);
            self.check_jump(client);
            self.run_watchdog(client);
        }
    }

    /// Sets the timer of the cleanup queue anew.
    pub(super) fn run_janitor(&mut self, client: usize) {
        let wake = self.clients[client].cleanup.wake_at();
        let at = self.world_time(client, wake).max(self.now);
        if wake != Time::MAX && (at < self.clients[client].janitor_at || self.clients[client].janitor_at < self.now) {
            self.clients[client].janitor_at = at;
            let at = self.late(client, at);
            self.push(at, Event::Janitor(client as u32, self.clients[client].epoch));
        }
    }

    pub(super) fn janitor_timer(&mut self, client: usize, epoch: u32) {
        if self.clients[client].epoch != epoch {
            return;
        }
        self.clients[client].janitor_at = u64::MAX;
        let now = self.local(client);
        for (undo, op) in self.clients[client].cleanup.poll(now) {
            self.stats.add(Count::Undos);
            let deed = self.clients[client].undo_deeds[undo as usize];
            let until = self.call_limit(client);
            self.submit(client, false, op, vec![deed], Purpose::Undo(undo), until);
        }
        self.run_janitor(client);
    }

    pub(super) fn undo_answered(&mut self, client: usize, undo: u64, answer: &Answer) {
        let now = self.local(client);
        let deed = self.clients[client].undo_deeds[undo as usize];
        let over = self.clients[client].cleanup.answered(now, undo, answer);
        if matches!(answer.outcome, Outcome::Applied(_)) && self.deeds[deed].undone_at.is_none() {
            self.deeds[deed].undone_at = Some(now);
        }
        self.deeds[deed].undo_over |= over;
        self.run_janitor(client);
    }
}
