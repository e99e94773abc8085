//! The watchdog: one schedule per client for renewals, deadlines and `max_hold` of all its leases.
//!
//! Renewals that are due at about the same time go out together. A failed round is retried inside the lease, backing
//! off, until the deadline; the deadline itself moves only when a renewal is confirmed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::machine::{Answer, Claim, Jitter, Key, LeaseState, LossReason, Outcome, Phase, Renewal, Reply, Terms, Time};

/// Names a lease inside one client.
pub type LeaseId = u64;

/// How many holds one renewal call carries at most.
pub(super) const BATCH_MAX: usize = 128;
const RETRY_MIN: Duration = Duration::from_millis(20);
/// A lease of which a message told is renewed after this time: a shorter hold costs no renewal.
const TOLD_AFTER: Duration = Duration::from_millis(20);
/// Its first renewal is waited for this long at least, unless it ends before.
const TOLD_LIMIT_MIN: Duration = Duration::from_millis(200);
/// A wake-up takes along what is due within this share of a period, so that renewals gather into batches.
const GATHER_DIVISOR: u32 = 16;
const GATHER_MAX: Duration = Duration::from_millis(250);

/// A lease under guard.
#[derive(Clone, Debug)]
pub struct Guarded {
    /// Key, kind and token.
    pub claim: Claim,
    /// The shared state of the lease.
    pub state: Arc<LeaseState>,
    /// What was agreed.
    pub terms: Arc<Terms>,
    /// The length of the lease that is renewed; grows with `extend`.
    pub ttl: Duration,
}

/// What the watchdog wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Send one renewal for these leases and report the answer by [`Watchdog::renewed`].
    Renew(RenewalRound),
    /// A renewal round was missed; the lease is still valid.
    Jeopardy(LeaseId),
    /// The lease is lost. Reported once per lease, which leaves the schedule.
    Lost(LeaseId, LossReason),
}

/// One renewal call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalRound {
    /// The leases, in the order of `holds`.
    pub ids: Vec<LeaseId>,
    /// What is sent: each hold with its server-side time to live in milliseconds.
    pub holds: Vec<(Claim, u64)>,
    /// What the holders may believe if it is confirmed, in the same order.
    pub ttls: Vec<Duration>,
    /// The time limit: the smallest of the request time-out, a sixth of the shortest ttl, and what is left of the
    /// lease that ends first. What is confirmed after a deadline confirms nothing.
    pub limit: Duration,
}

impl RenewalRound {
    /// The same holds in rounds of their own, one for each number that `shard` gives to a key: the answer to one does not
    /// wait for the answer to another.
    pub fn split(self, shard: impl Fn(&Key) -> u32) -> Vec<RenewalRound> {
        let shards: Vec<u32> = self.holds.iter().map(|(claim, _)| shard(&claim.key)).collect();
        let mut kinds = shards.clone();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.len() <= 1 {
            return vec![self];
        }
        let part = |kind: u32| {
            let mine = |at: &usize| shards.get(*at) == Some(&kind);
            let places: Vec<usize> = (0..shards.len()).filter(mine).collect();
            RenewalRound {
                ids: places.iter().filter_map(|at| self.ids.get(*at).copied()).collect(),
                holds: places.iter().filter_map(|at| self.holds.get(*at).cloned()).collect(),
                ttls: places.iter().filter_map(|at| self.ttls.get(*at).copied()).collect(),
                limit: self.limit,
            }
        };
        kinds.into_iter().map(part).collect()
    }
}

#[derive(Debug)]
struct WatchedLease {
    guarded: Guarded,
    /// When the next renewal is due; [`Time::MAX`] for a lease that is not renewed.
    due: Time,
    max_hold_at: Time,
    in_flight: bool,
    /// Renew it in a call of its own: it was refused in a batch.
    alone: bool,
    failures: u32,
    /// A message told it, and no renewal was confirmed yet: the server keeps it hardly longer than to the deadline.
    told: bool,
    /// The request of the present deadline.
    confirmed: Confirmed,
    /// Its entry in `timers`.
    timer: Time,
}

/// A confirmed request: on which connection it went (0: not known, or none that promises order) and when.
#[derive(Clone, Copy, Debug)]
struct Confirmed {
    connection: u64,
    sent_at: Time,
}

impl Confirmed {
    /// Whether it was carried out after what this answer answers: sent once that was seen, or behind it.
    fn is_after(self, answer: &Answer) -> bool {
        let behind = self.connection != 0 && self.connection == answer.connection && self.sent_at >= answer.sent_at;
        behind || self.sent_at >= answer.received_at
    }
}

impl WatchedLease {
    fn wake_at(&self) -> Time {
        let due = if self.in_flight { Time::MAX } else { self.due };
        due.min(self.max_hold_at).min(self.guarded.state.deadline())
    }

    fn period(&self) -> Duration {
        self.guarded.terms.period(self.guarded.ttl)
    }

    /// A little before or after the nominal instant, so that leases do not march in step.
    fn next_due(&self, from: Time, jitter: &mut Jitter) -> Time {
        if !self.guarded.terms.auto_renew {
            return Time::MAX;
        }
        let period = self.period();
        from + jitter.between(period.mul_f64(0.95), period)
    }
}

/// The schedule. Pure: the driver holds it behind a mutex and sleeps until [`Watchdog::wake_at`].
#[derive(Debug)]
pub struct Watchdog {
    entries: HashMap<LeaseId, WatchedLease>,
    timers: BTreeSet<(Time, LeaseId)>,
    request_timeout: Duration,
    jitter: Jitter,
}

impl Watchdog {
    /// An empty schedule.
    pub fn new(request_timeout: Duration, jitter: Jitter) -> Watchdog {
        Watchdog { entries: HashMap::new(), timers: BTreeSet::new(), request_timeout, jitter }
    }

    /// How many leases are under guard.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no lease is under guard.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every lease under guard, in ascending order, so that what is done to all of them repeats exactly.
    pub fn ids(&self) -> Vec<LeaseId> {
        let mut ids: Vec<LeaseId> = self.entries.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Guards a lease that was granted at `now`. Returns when it has to be looked at first.
    pub fn arm(&mut self, now: Time, id: LeaseId, guarded: Guarded) -> Time {
        let sent_at = guarded.terms.sent_at(guarded.state.deadline(), guarded.ttl);
        self.insert(now, id, guarded, sent_at, false)
    }

    /// The same for a lease of which a message told; the request on which its deadline rests was sent at `sent_at`. It is
    /// renewed soon, whatever its ttl.
    pub fn arm_told(&mut self, now: Time, id: LeaseId, guarded: Guarded, sent_at: Time) -> Time {
        self.insert(now, id, guarded, sent_at, true)
    }

    fn insert(&mut self, now: Time, id: LeaseId, guarded: Guarded, sent_at: Time, told: bool) -> Time {
        let max_hold_at = guarded.terms.max_hold.map_or(Time::MAX, |hold| now + hold);
        let mut entry = WatchedLease {
            guarded,
            due: Time::MAX,
            max_hold_at,
            in_flight: false,
            alone: false,
            failures: 0,
            told,
            confirmed: Confirmed { connection: 0, sent_at },
            timer: Time::ZERO,
        };
        let due = entry.next_due(now, &mut self.jitter);
        entry.due = if told { due.min(now + TOLD_AFTER) } else { due };
        entry.timer = entry.wake_at();
        let timer = entry.timer;
        self.timers.insert((timer, id));
        self.entries.insert(id, entry);
        timer
    }

    /// Removes a lease: released, detached or dropped. Before the release is sent. Whether a message told it and no renewal
    /// was confirmed yet, so that the server keeps it for less than its ttl.
    pub fn disarm(&mut self, id: LeaseId) -> bool {
        let Some(entry) = self.entries.remove(&id) else { return false };
        self.timers.remove(&(entry.timer, id));
        entry.told
    }

    /// A lease was extended: it is renewed with the longer ttl from now on.
    pub fn extended(&mut self, now: Time, sent_at: Time, id: LeaseId, ttl: Duration) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if sent_at > entry.confirmed.sent_at {
            entry.confirmed = Confirmed { connection: 0, sent_at };
        }
        entry.guarded.ttl = entry.guarded.ttl.max(ttl);
        // an extension by less than the lease is renewed with says nothing about when the next renewal is due
        if !entry.in_flight && ttl == entry.guarded.ttl {
            entry.due = entry.next_due(now, &mut self.jitter);
            entry.failures = 0;
            entry.told = false;
        }
        self.reschedule(id);
    }

    /// Other terms count from `now` on, with the length of lease that it is renewed with.
    pub fn set_terms(&mut self, now: Time, id: LeaseId, terms: Arc<Terms>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.max_hold_at = terms.max_hold.map_or(Time::MAX, |hold| now + hold);
        if !terms.auto_renew {
            entry.due = Time::MAX;
        }
        entry.guarded.terms = terms;
        self.reschedule(id);
    }

    /// When [`Watchdog::poll`] has something to do; [`Time::MAX`] for never.
    pub fn wake_at(&self) -> Time {
        self.timers.first().map_or(Time::MAX, |(time, _)| *time)
    }

    /// Everything that is due at `now`.
    pub fn poll(&mut self, now: Time) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        let mut batch = Vec::new();
        let mut ending = Vec::new();
        let mut alone = Vec::new();
        let horizon = now + GATHER_MAX;
        let wakes: Vec<(Time, LeaseId)> = if self.wake_at() <= now {
            self.timers.range(..=(horizon, LeaseId::MAX)).copied().collect()
        } else {
            Vec::new()
        };
        for (_, id) in wakes {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            let standing = check_deadline(entry, now);
            if standing != DeadlineCheck::Continues {
                alarms.extend(standing.alarm(id));
                self.disarm(id);
                continue;
            }
            // a told one waits until it is due: most are released before
            let gather = if entry.told { Duration::ZERO } else { (entry.period() / GATHER_DIVISOR).min(GATHER_MAX) };
            if !entry.in_flight && entry.due <= now + gather {
                entry.in_flight = true;
                // those that are about to end leave the others their time
                let ends_soon = entry.told || entry.guarded.state.deadline().since(now) < entry.guarded.ttl / 6;
                match (entry.alone, ends_soon) {
                    (true, _) => alone.push(id),
                    (false, true) => ending.push(id),
                    (false, false) => batch.push(id),
                }
            }
            self.reschedule(id);
        }
        let chunks = ending.chunks(BATCH_MAX).chain(batch.chunks(BATCH_MAX)).chain(alone.chunks(1));
        alarms.extend(chunks.map(|ids| Alarm::Renew(self.round(now, ids))));
        alarms
    }

    fn round(&self, now: Time, ids: &[LeaseId]) -> RenewalRound {
        let mut round = RenewalRound {
            ids: Vec::with_capacity(ids.len()),
            holds: Vec::with_capacity(ids.len()),
            ttls: Vec::with_capacity(ids.len()),
            limit: self.request_timeout,
        };
        for id in ids {
            let Some(entry) = self.entries.get(id) else { continue };
            let Guarded { claim, terms, ttl, .. } = &entry.guarded;
            // a hung holder's key is not to outlive `max_hold` by much
            let asked = match terms.max_hold {
                Some(_) => terms.bounded(*ttl, entry.max_hold_at.since(now)),
                None => *ttl,
            };
            round.ids.push(*id);
            round.holds.push((claim.clone(), terms.server_ttl_ms(asked)));
            round.ttls.push(asked);
            let left = entry.guarded.state.deadline().since(now);
            // so that one lost reply does not cost it
            let left = if entry.told { (left / 2).max(TOLD_LIMIT_MIN).min(left) } else { left };
            round.limit = round.limit.min(*ttl / 6).min(left);
        }
        round
    }

    /// A renewal call was answered, or was not. Alarms may follow.
    pub fn renewed(&mut self, now: Time, round: &RenewalRound, answer: &Answer) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        for (index, id) in round.ids.iter().enumerate() {
            let Some(entry) = self.entries.get_mut(id) else { continue };
            entry.in_flight = false;
            let verdict = match &answer.outcome {
                Outcome::Applied(Reply::Renewed(verdicts)) => verdicts.get(index),
                _ => None,
            };
            match verdict {
                Some(Renewal::Renewed) => {
                    let ttl = round.ttls.get(index).copied().unwrap_or_default();
                    let deadline = entry.guarded.terms.deadline(answer.sent_at, ttl);
                    entry.guarded.state.confirm(now, deadline);
                    if answer.sent_at >= entry.confirmed.sent_at {
                        entry.confirmed = Confirmed { connection: answer.connection, sent_at: answer.sent_at };
                    }
                    entry.failures = 0;
                    entry.alone = false;
                    entry.told = false;
                    // fixed rate: counted from when it was due, unless that is long past
                    let base = if entry.due + entry.period() > now { entry.due.min(now) } else { now };
                    entry.due = entry.next_due(base, &mut self.jitter);
                }
                Some(Renewal::NotMine) => {
                    entry.guarded.state.lose(LossReason::Taken);
                }
                Some(Renewal::Failed(_)) => retry(now, entry, *id, &mut self.jitter, &mut alarms, true),
                None => {
                    let split = round.ids.len() > 1 && answer.outcome.failure().is_some_and(|f| !f.transient);
                    retry(now, entry, *id, &mut self.jitter, &mut alarms, split);
                }
            }
            let standing = check_deadline(entry, now);
            if standing == DeadlineCheck::Continues {
                self.reschedule(*id);
            } else {
                alarms.retain(|alarm| *alarm != Alarm::Jeopardy(*id));
                alarms.extend(standing.alarm(*id));
                self.disarm(*id);
            }
        }
        alarms
    }

    /// The server's clock jumped forward by `jump`, as this answer shows: earlier confirmations may expire that much
    /// earlier. Leases that may be gone already are lost; the others are renewed at once, or end early if they are not
    /// renewed.
    pub fn clock_jumped(&mut self, now: Time, answer: &Answer, jump: Duration) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        for id in self.ids() {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            if entry.confirmed.is_after(answer) {
                continue;
            }
            let cell = &entry.guarded.state;
            let early = cell.deadline() - jump;
            if now >= early {
                cell.lose(LossReason::ClockAnomaly);
            } else {
                cell.shorten(early);
            }
            if entry.guarded.terms.auto_renew {
                entry.due = now;
            }
            let standing = check_deadline(entry, now);
            if standing == DeadlineCheck::Continues {
                self.reschedule(id);
            } else {
                alarms.extend(standing.alarm(id));
                self.disarm(id);
            }
        }
        alarms
    }

    fn reschedule(&mut self, id: LeaseId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let timer = entry.wake_at();
        if timer != entry.timer {
            self.timers.remove(&(entry.timer, id));
            self.timers.insert((timer, id));
            entry.timer = timer;
        }
    }
}

/// Whether a lease goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeadlineCheck {
    Continues,
    Lost(LossReason),
    /// Released or detached: nothing to report.
    Over,
}

impl DeadlineCheck {
    fn alarm(self, id: LeaseId) -> Option<Alarm> {
        match self {
            DeadlineCheck::Lost(reason) => Some(Alarm::Lost(id, reason)),
            DeadlineCheck::Continues | DeadlineCheck::Over => None,
        }
    }
}

fn check_deadline(entry: &WatchedLease, now: Time) -> DeadlineCheck {
    let cell = &entry.guarded.state;
    if now >= entry.max_hold_at {
        cell.lose(LossReason::MaxHold);
    }
    if cell.is_held(now) || cell.phase() == Phase::Acquiring {
        return DeadlineCheck::Continues;
    }
    cell.loss().map_or(DeadlineCheck::Over, DeadlineCheck::Lost)
}

fn retry(now: Time, entry: &mut WatchedLease, id: LeaseId, jitter: &mut Jitter, alarms: &mut Vec<Alarm>, alone: bool) {
    let split = alone && !entry.alone;
    if split {
        // refused as part of a batch: at once by itself, which is no missed round yet
        entry.alone = true;
        entry.due = now;
        return;
    }
    entry.failures += 1;
    if entry.failures == 1 {
        alarms.push(Alarm::Jeopardy(id));
    }
    let most = (entry.period() / 4).max(RETRY_MIN);
    let backoff = RETRY_MIN.saturating_mul(1 << entry.failures.min(8)).min(most);
    entry.due = now + jitter.between(backoff / 2, backoff);
}

#[cfg(test)]
#[path = "watchdog_tests.rs"]
mod tests;
