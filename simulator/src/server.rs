//! The server: the model behind a clock that may be wrong, with the faults of a process around it, and with the planted
//! bugs that sit in the scripts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use onelock::ErrorKind;
use onelock::machine::model::{DirectGrant, Model, Value};
use onelock::machine::{Claim, Failure, Key, Kind, Op, Outcome, Renewal, Reply};

use super::bug::Bug;
use super::clock::ServerClock;
use super::world::Event;

/// Whether the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Up,
    /// Stopped: the kernel still takes connections and bytes.
    Frozen,
    Down,
}

/// What the server refuses at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Nothing,
    /// Every command, before it does anything: loading its data, or busy with a script.
    Everything,
    /// Commands that need memory: out of memory. Renewals and releases pass.
    Growth,
}

/// What came of one command.
pub(super) struct Executed {
    pub(super) outcome: Outcome<Reply>,
    pub(super) announced: Vec<(Kind, Key)>,
    pub(super) granted: Vec<DirectGrant>,
}

/// One server process and its data.
pub(super) struct Server {
    pub(super) model: Model,
    pub(super) clock: ServerClock,
    /// The highest reading that was ever taken.
    pub(super) highest_us: u64,
    pub(super) health: Health,
    pub(super) refusal: Refusal,
    /// Counts the lives of the process: connections of an earlier one are dead.
    pub(super) life: u32,
    /// What arrived while it stood still.
    pub(super) backlog: VecDeque<u32>,
    /// The same of subscriptions.
    pub(super) link_backlog: Vec<Event>,
    /// The data as it was some time ago, as a restart from an old snapshot would find it.
    pub(super) snapshot: Option<Model>,
    /// Who is subscribed, as the server sees it: the subscription connection of a client, and the name.
    pub(super) subscribers: BTreeSet<(usize, u32, usize)>,
    /// Batches of renewals are refused, as a whole or in part.
    pub(super) splits_batches: bool,
    /// The ends that a planted bug believes in, of places that are too far ahead.
    pub(super) far_ends: BTreeMap<Key, u64>,
    counters: BTreeMap<Key, u64>,
}

impl Server {
    pub(super) fn new(clock: ServerClock) -> Server {
        Server {
            model: Model::new(),
            clock,
            highest_us: 0,
            health: Health::Up,
            refusal: Refusal::Nothing,
            life: 1,
            backlog: VecDeque::new(),
            link_backlog: Vec::new(),
            snapshot: None,
            subscribers: BTreeSet::new(),
            splits_batches: false,
            far_ends: BTreeMap::new(),
            counters: BTreeMap::new(),
        }
    }

    /// Carries one command out; `leaving` says of a count whether it is on its way down.
    pub(super) fn execute(&mut self, now: u64, op: &Op, leaving: bool, bug: Option<Bug>) -> Executed {
        let us = self.clock.micros(now);
        self.highest_us = self.highest_us.max(us);
        let grows = matches!(op, Op::Acquire { .. } | Op::AcquireMany { .. } | Op::Enter { .. });
        match self.refusal {
            Refusal::Everything => {
                return refused(Failure::transient(ErrorKind::ServerRefused, "LOADING the dataset"));
            }
            Refusal::Growth if grows => return refused(Failure::lasting(ErrorKind::ServerRefused, "OOM")),
            Refusal::Growth | Refusal::Nothing => {}
        }
        if let Op::Renew { holds } = op
            && holds.len() > 1
            && self.splits_batches
        {
            return refused_batch(us, holds.len());
        }
        if let Some(executed) = bug.and_then(|bug| self.execute_wrongly(us, op, leaving, bug)) {
            return executed;
        }
        if let Op::ReleaseMany { claims } = op {
            return self.release_all(us, claims);
        }
        let done = self.model.apply(us, op);
        let announced = done.announced.into_iter().collect();
        let mut executed = Executed { outcome: done.outcome, announced, granted: done.granted };
        if bug == Some(Bug::CountingFence)
            && let Op::Acquire { claim, .. } = op
            && let Outcome::Applied(Reply::Granted { fence, again }) = &mut executed.outcome
        {
            let counter = self.counters.entry(claim.key.clone()).or_default();
            *counter += u64::from(!*again);
            *fence = Some(*counter);
        }
        executed
    }

    /// The planted bugs of the scripts; `None` where the honest script is right.
    fn execute_wrongly(&mut self, us: u64, op: &Op, leaving: bool, bug: Bug) -> Option<Executed> {
        if let Some(executed) = self.queue_wrongly(us, op, bug).or_else(|| self.all_wrongly(us, op, bug)) {
            return Some(executed);
        }
        let reply = match (bug, op) {
            (Bug::RenewRecreates, Op::Renew { holds }) => {
                let verdicts = holds.iter().map(|(claim, ttl_ms)| self.recreate(us, claim, *ttl_ms)).collect();
                Reply::Renewed(verdicts)
            }
            (Bug::IncrementWithRetry, Op::SetCount { claim, ttl_ms, .. }) => {
                // which way to count is the only thing taken from the request
                let present = self.model.count_of(us, &claim.key).unwrap_or(1);
                let count = if leaving { present.saturating_sub(1).max(1) } else { present + 1 };
                let op = Op::SetCount { claim: claim.clone(), count, ttl_ms: *ttl_ms };
                return Some(plain(self.model.apply(us, &op).outcome));
            }
            (Bug::ResendShortens, Op::Acquire { claim, ttl_ms, .. }) => {
                let done = self.model.apply(us, op);
                if matches!(done.outcome, Outcome::Applied(Reply::Granted { again: true, .. })) {
                    self.set_ttl(us, claim, *ttl_ms);
                }
                return Some(plain(done.outcome));
            }
            _ => return None,
        };
        Some(plain(Outcome::Applied(reply)))
    }

    fn recreate(&mut self, us: u64, claim: &Claim, ttl_ms: u64) -> Renewal {
        if self.model.holder_of(us, &claim.key).is_none() {
            let token = Key::from(claim.token.as_bytes());
            let value = match claim.kind {
                Kind::Reentrant => Value::Hash(vec![(token, Key::from(b"1".as_slice()))]),
                _ => Value::Text(token),
            };
            self.model.set_foreign(us, &claim.key, value, Some(ttl_ms));
        }
        match self.model.apply(us, &Op::Renew { holds: vec![(claim.clone(), ttl_ms)] }).outcome {
            Outcome::Applied(Reply::Renewed(verdicts)) => verdicts[0].clone(),
            _ => Renewal::NotMine,
        }
    }

    pub(super) fn set_ttl(&mut self, us: u64, claim: &Claim, ttl_ms: u64) {
        let live = self.model.live(us).into_iter().find(|live| live.key == claim.key);
        if let Some(live) = live {
            self.model.set_foreign(us, &claim.key, live.value, Some(ttl_ms));
        }
    }

    /// The process dies. What it had received and not carried out is gone.
    pub(super) fn crash(&mut self) {
        self.health = Health::Down;
        self.life += 1;
        self.backlog.clear();
        self.link_backlog.clear();
        self.subscribers.clear();
    }

    /// Forgets the counters of the planted plain counter, as they would be lost with the data.
    pub(super) fn forget_counters(&mut self) {
        self.counters.clear();
    }

    /// Whether this token holds the key now, and the reading in microseconds at which that ends without a renewal.
    pub(super) fn hold_ends_us(&mut self, now: u64, claim: &Claim) -> Option<u64> {
        let us = self.clock.micros(now);
        let (kind, holder) = self.model.holder_of(us, &claim.key)?;
        if kind != claim.kind || *holder != *claim.token.as_bytes() {
            return None;
        }
        match self.model.apply(us, &Op::Inspect { key: claim.key.clone() }).outcome {
            Outcome::Applied(Reply::Inspected(Some(standing))) => {
                // a key lives through the last millisecond of its time
                Some(standing.ttl_left_ms.map_or(u64::MAX, |left| (us / 1000 + left + 1) * 1000))
            }
            _ => None,
        }
    }
}

/// What a cluster says to a batch whose slots are on the move: now this, now that, by the clock.
fn refused_batch(us: u64, holds: usize) -> Executed {
    if us.is_multiple_of(3) {
        return refused(Failure::lasting(ErrorKind::ServerRefused, "CROSSSLOT"));
    }
    let failed = (0..holds).map(|_| Renewal::Failed("TRYAGAIN".to_owned())).collect();
    plain(Outcome::Applied(Reply::Renewed(failed)))
}

fn plain(outcome: Outcome<Reply>) -> Executed {
    Executed { outcome, announced: Vec::new(), granted: Vec::new() }
}

fn refused(failure: Failure) -> Executed {
    plain(Outcome::NotApplied(failure))
}
