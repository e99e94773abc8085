//! The cleanup queue: undoes what ended without a lease, with its own token, until the server has confirmed it.
//!
//! An undo must not overtake the acquire that it undoes. On the same ordered connection one answer is enough; otherwise
//! it is repeated, backing off, until one ttl after the first undo that the server answered.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::error::ErrorKind;
use crate::machine::{Answer, Claim, Jitter, NodeSet, Op, Outcome, Reply, Time};

/// Names one obligation.
pub type UndoId = u64;

const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// How long an undo is tried on a server that never answers, beyond twice its ttl.
const UNANSWERED_LIMIT: Duration = Duration::from_secs(60);

/// An undo to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingUndo {
    /// Key, kind and token.
    pub claim: Claim,
    /// How long the key lives on the server if nobody removes it.
    pub server_ttl: Duration,
    /// Which requests may have created it.
    pub uncertainty: Uncertainty,
    /// The nodes on which it may be, if the store has several.
    pub nodes: NodeSet,
    /// It never was a hold: its release is not announced.
    pub quiet: bool,
    /// The key stays, held by nobody, until then.
    pub stays_until: Time,
}

impl PendingUndo {
    /// An undo on every node, which is announced.
    pub fn new(claim: Claim, server_ttl: Duration, uncertainty: Uncertainty) -> PendingUndo {
        PendingUndo { claim, server_ttl, uncertainty, nodes: NodeSet::ALL, quiet: false, stays_until: Time::ZERO }
    }

    fn op(&self, now: Time) -> Op {
        let claim = self.claim.clone();
        if let Some(rest_ms) = rest_ms(now, self.stays_until) {
            return Op::Retain { claim, nodes: self.nodes, rest_ms };
        }
        if self.nodes == NodeSet::ALL && !self.quiet {
            return Op::Release { claim };
        }
        Op::Undo { claim, nodes: self.nodes, quiet: self.quiet }
    }
}

/// The operation that releases a hold at `now` whose key has to stay until then.
pub fn release_op(now: Time, claim: Claim, stays_until: Time) -> Op {
    match rest_ms(now, stays_until) {
        Some(rest_ms) => Op::Retain { claim, nodes: NodeSet::ALL, rest_ms },
        None => Op::Release { claim },
    }
}

/// For how many milliseconds the key has to stay, if for any.
fn rest_ms(now: Time, stays_until: Time) -> Option<u64> {
    let rest = stays_until.since(now);
    (!rest.is_zero()).then(|| u64::try_from(rest.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
}

/// What is known about the request that may have created the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncertainty {
    /// The server confirmed the grant: the first answered release settles it.
    Confirmed,
    /// Requests went out on this ordered connection only: an undo answered on the same one settles it.
    Ordered(u64),
    /// Requests may still arrive on another connection.
    MayStillArrive,
}

#[derive(Debug)]
struct OpenUndo {
    undo: PendingUndo,
    next: Time,
    in_flight: bool,
    tries: u32,
    /// When to stop: not known to be answered yet, or one ttl after the first answer.
    until: Time,
    /// When to stop asking nodes that never answer.
    give_up_at: Time,
    answered: bool,
}

/// The open undos. Pure: the driver holds it behind a mutex and sleeps until [`CleanupQueue::wake_at`].
#[derive(Debug)]
pub struct CleanupQueue {
    open: HashMap<UndoId, OpenUndo>,
    timers: BTreeSet<(Time, UndoId)>,
    /// What has ended since the last look.
    ended: Vec<Claim>,
    next_id: UndoId,
    jitter: Jitter,
}

impl CleanupQueue {
    /// An empty queue.
    pub fn new(jitter: Jitter) -> CleanupQueue {
        CleanupQueue { open: HashMap::new(), timers: BTreeSet::new(), ended: Vec::new(), next_id: 0, jitter }
    }

    /// How many undos are queued.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether nothing is left to do.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether every undo was answered once. After that it is repeated only in case that a request of the acquire
    /// arrives late.
    pub fn is_answered(&self) -> bool {
        self.open.values().all(|open| open.answered)
    }

    /// Reserves memory for one more undo, so that [`CleanupQueue::take`] cannot fail.
    pub fn reserve(&mut self) {
        self.open.reserve(1);
    }

    /// Adds an undo; it is due at once.
    pub fn take(&mut self, now: Time, undo: PendingUndo) -> UndoId {
        let id = self.next_id;
        self.next_id += 1;
        let give_up_at = now + undo.server_ttl * 2 + UNANSWERED_LIMIT;
        let until = match undo.uncertainty {
            // the key dies by itself
            Uncertainty::Confirmed if undo.nodes == NodeSet::ALL => now + undo.server_ttl,
            // a node that has not answered yet may carry the acquire out late
            _ => give_up_at,
        };
        let open = OpenUndo { until, give_up_at, undo, next: now, in_flight: false, tries: 0, answered: false };
        self.open.insert(id, open);
        self.timers.insert((now, id));
        id
    }

    /// When [`CleanupQueue::poll`] has something to do; [`Time::MAX`] for never.
    pub fn wake_at(&self) -> Time {
        self.timers.first().map_or(Time::MAX, |(time, _)| *time)
    }

    /// The releases to send at `now`.
    pub fn poll(&mut self, now: Time) -> Vec<(UndoId, Op)> {
        let mut sends = Vec::new();
        while let Some(&(time, id)) = self.timers.first() {
            if time > now {
                break;
            }
            self.timers.pop_first();
            if let Some(open) = self.open.get_mut(&id) {
                // an acquire may arrive late, so the undo is sent once more at the very end
                let last_word = open.answered && open.undo.uncertainty != Uncertainty::Confirmed;
                if now >= open.until && open.tries > 0 && !last_word {
                    self.end(id);
                    continue;
                }
                open.in_flight = true;
                open.tries += 1;
                sends.push((id, open.undo.op(now)));
            }
        }
        sends
    }

    /// The claims whose undos were confirmed, or given up, since this was asked last.
    pub fn ended(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.ended)
    }

    fn end(&mut self, id: UndoId) {
        self.ended.extend(self.open.remove(&id).map(|open| open.undo.claim));
    }

    /// An undo was answered, or failed. True when it is done.
    pub fn answered(&mut self, now: Time, id: UndoId, answer: &Answer) -> bool {
        let Some(open) = self.open.get_mut(&id) else { return true };
        open.in_flight = false;
        let done = match &answer.outcome {
            Outcome::Applied(_) => {
                let settled = match open.undo.uncertainty {
                    Uncertainty::Confirmed => true,
                    Uncertainty::Ordered(connection) => answer.connection != 0 && answer.connection == connection,
                    Uncertainty::MayStillArrive => false,
                };
                if let Outcome::Applied(Reply::PartlyReleased { outstanding, may_still_arrive, .. }) = &answer.outcome {
                    return self.answered_by_some(now, id, *outstanding, *may_still_arrive, settled);
                }
                if !open.answered {
                    open.answered = true;
                    open.until = now + open.undo.server_ttl;
                    open.tries = 1;
                }
                settled
            }
            // what the server lacks (a disk, replicas) may come back before the key ends; other refusals are final
            Outcome::NotApplied(failure) => !failure.transient && failure.kind != ErrorKind::ServerRefused,
            Outcome::Indeterminate(failure) => {
                // what a majority confirmed, the others may carry out late
                if failure.kind == ErrorKind::NoQuorum {
                    open.until = open.until.max(open.give_up_at);
                }
                false
            }
        };
        if done || now >= open.until {
            self.end(id);
            return true;
        }
        self.schedule_retry(now, id);
        false
    }

    /// Some of several nodes answered. The undo continues on the others; where late requests are possible, it continues
    /// on those that answered too, as a separate entry.
    fn answered_by_some(
        &mut self,
        now: Time,
        id: UndoId,
        outstanding: NodeSet,
        may_still_arrive: bool,
        settled: bool,
    ) -> bool {
        let Some(open) = self.open.get_mut(&id) else { return true };
        open.in_flight = false;
        if open.answered && !may_still_arrive {
            // all of them have answered before: this was one more try in case of a late request, and there will be others
            let over = now >= open.until;
            if over {
                self.end(id);
            } else {
                self.schedule_retry(now, id);
            }
            return over;
        }
        let (tries, undo) = (open.tries, open.undo.clone());
        open.undo.nodes = outstanding;
        // what a majority confirmed, these may carry out late
        open.until = open.until.max(open.give_up_at);
        if may_still_arrive {
            open.undo.uncertainty = Uncertainty::MayStillArrive;
        }
        let over = now >= open.until;
        if over {
            self.end(id);
        } else {
            self.schedule_retry(now, id);
        }
        let done = undo.nodes.but(outstanding);
        if !settled && !done.is_empty() {
            let rest = OpenUndo {
                until: now + undo.server_ttl,
                give_up_at: now + undo.server_ttl,
                undo: PendingUndo { nodes: done, ..undo },
                next: now,
                in_flight: false,
                tries,
                answered: true,
            };
            let rest_id = self.next_id;
            self.next_id += 1;
            self.open.insert(rest_id, rest);
            self.schedule_retry(now, rest_id);
        }
        over
    }

    /// Whether an undo of this claim is open.
    pub fn has(&self, claim: &Claim) -> bool {
        self.open.values().any(|open| open.undo.claim == *claim)
    }

    /// Sets the time of the next try.
    fn schedule_retry(&mut self, now: Time, id: UndoId) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let most = RETRY_MAX.min(open.undo.server_ttl / 4).max(RETRY_MIN);
        let backoff = RETRY_MIN.saturating_mul(1 << open.tries.min(10)).min(most);
        open.next = (now + self.jitter.between(backoff / 2, backoff)).min(open.until);
        self.timers.insert((open.next, id));
    }
}

#[cfg(test)]
#[path = "cleanup_tests.rs"]
mod cleanup_tests;
