//! The store of a cluster: sends every operation to the node that serves its slot.
//!
//! | file | is |
//! |---|---|
//! | `slot_map` | which node serves which slot |
//! | `map` | keeps the slot map: fetches it, corrects it |
//! | `routing` | what to do after a node's answer: redirect, wait, split, or finish |
//! | `redirect` | the redirections of nodes |
//! | `pubsub` | subscriptions that follow their slot |
//! | `scan` | listing the keys of all masters |
//!
//! An operation that a node did not apply is sent to another one; an indeterminate one never is: the machine decides about
//! it.

mod map;
mod pubsub;
pub(crate) mod redirect;
mod routing;
mod scan;
pub(crate) mod slot_map;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use self::map::ClusterTopology;
use self::routing::{RouteStep, Router};
#[cfg(not(target_family = "wasm"))]
use super::failover;
use crate::config::warning::{SLOTS, finding};
use crate::error::{Error, ErrorKind};
use crate::machine::{
    Answer, Claim, ClientTag, Failure, Grade, Key, Kind, NodeSet, Op, Outcome, Renewal, Reply, Time, naming,
};
#[cfg(not(target_family = "wasm"))]
use crate::store::Interrupt;
use crate::store::redis::address::multi::ClusterSeeds;
#[cfg(not(target_family = "wasm"))]
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::connection::socket::no_connection_in_time;
use crate::store::redis::node::server_info;
use crate::store::redis::node::{Node, SendOptions, not_sent};
use crate::store::redis::options::RedisOptions;
use crate::store::{Boxed, Capabilities, Facts, Scan, Scanned, Store, StoreStats, Subscription};
use crate::sys::clock;
use crate::sys::task;

/// Locks on a Redis or Valkey cluster, 6.2 or newer.
pub struct ClusterStore {
    topology: Arc<ClusterTopology>,
}

impl ClusterStore {
    /// A store for the cluster at `address` (see [`ClusterSeeds::parse`]). No I/O happens; a bad address is
    /// `InvalidArgument`.
    pub fn new(address: &str, options: RedisOptions) -> Result<ClusterStore, Error> {
        Ok(ClusterStore::at(ClusterSeeds::parse(address, &options)?, options))
    }

    /// A store for the cluster that these nodes belong to. No I/O happens.
    pub fn at(seeds: ClusterSeeds, options: RedisOptions) -> ClusterStore {
        ClusterStore { topology: Arc::new(ClusterTopology::new(seeds, options)) }
    }
}

impl Store for ClusterStore {
    fn capabilities(&self) -> &'static Capabilities {
        &crate::store::redis::CAPABILITIES
    }

    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let topology = self.topology.clone();
        Box::pin(async move { call(&topology, &op, until).await })
    }

    #[cfg(not(target_family = "wasm"))]
    fn call_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Answer {
        if let Some(parts) = split_by_slot(op) {
            let answers = parts.iter().map(|(_, op)| self.call_blocking(op, until, interrupt)).collect();
            return merge_answers(&parts, answers);
        }
        if let Some(answer) = call_one_blocking(&self.topology, op, until, interrupt) {
            return answer;
        }
        let call = |op: &Op| call_one_blocking(&self.topology, op, until, interrupt).unwrap_or_else(slot_is_moving);
        let Some(singles) = split_by_hold(op) else {
            return alone(op).map_or_else(slot_is_moving, |op| found(call(&op)));
        };
        let answers = singles.iter().map(|(_, op)| call(op)).collect();
        merge_answers(&singles, answers)
    }

    fn connection(&self) -> u64 {
        // an operation may have gone to several nodes, so an undo is repeated until nothing can arrive after it
        0
    }

    fn shard(&self, key: &Key) -> u32 {
        u32::from(naming::slot(key))
    }

    fn subscribe(&self, kind: Kind, key: &Key, client: ClientTag) -> Subscription {
        pubsub::subscribe(&self.topology, naming::slot(key), naming::wake_up_channel(kind, key, client))
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let topology = self.topology.clone();
        Box::pin(async move { query_server_info(&topology, until).await })
    }

    fn scan(&self, scan: Scan, until: Time) -> Boxed<Result<Scanned, Failure>> {
        let topology = self.topology.clone();
        Box::pin(async move { scan::step(&topology, &scan, until).await })
    }

    fn listening(&self, locks: Vec<(Kind, Key)>, until: Time) -> Boxed<Vec<Option<u64>>> {
        let topology = self.topology.clone();
        Box::pin(async move { scan::listening(&topology, &locks, until).await })
    }

    fn stats(&self) -> StoreStats {
        self.topology.store_state.stats()
    }

    fn address(&self) -> &str {
        &self.topology.name
    }

    fn close(&self) {
        self.topology.store_state.close();
        for node in self.topology.nodes() {
            node.close();
        }
    }
}

impl Drop for ClusterStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// The key that decides where an operation goes.
fn key(op: &Op) -> Option<&Key> {
    match op {
        Op::Acquire { claim, .. }
        | Op::AcquirePermits { claim, .. }
        | Op::Enter { claim, .. }
        | Op::Downgrade { claim, .. }
        | Op::Attach { claim, .. }
        | Op::SetCount { claim, .. }
        | Op::Release { claim }
        | Op::Retain { claim, .. }
        | Op::Undo { claim, .. }
        | Op::Vote { claim, .. }
        | Op::WriteBack { claim, .. } => Some(&claim.key),
        Op::Renew { holds: claims } | Op::AcquireMany { claims, .. } => claims.first().map(|(claim, _)| &claim.key),
        Op::ReleaseMany { claims } => claims.first().map(|claim| &claim.key),
        Op::Inspect { key }
        | Op::ForceRelease { key, .. }
        | Op::InspectPermits { key }
        | Op::InspectQueue { key }
        | Op::SetPermits { key, .. }
        | Op::ForceReleasePermits { key } => Some(key),
    }
}

/// Parts of an operation, each with the positions of its holds.
type SplitOp = Vec<(Vec<usize>, Op)>;

/// A renewal of holds in several slots, slot by slot.
fn split_by_slot(op: &Op) -> Option<SplitOp> {
    let Op::Renew { holds } = op else { return None };
    let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (at, (claim, _)) in holds.iter().enumerate() {
        slots.entry(naming::slot(&claim.key)).or_default().push(at);
    }
    let part = |positions: Vec<usize>| {
        let holds = positions.iter().filter_map(|at| holds.get(*at).cloned()).collect();
        (positions, Op::Renew { holds })
    };
    (slots.len() > 1).then(|| slots.into_values().map(part).collect())
}

/// A renewal of several holds, hold by hold.
fn split_by_hold(op: &Op) -> Option<SplitOp> {
    let Op::Renew { holds } = op else { return None };
    let single = |(at, hold): (usize, &(Claim, u64))| (vec![at], Op::Renew { holds: vec![hold.clone()] });
    (holds.len() > 1).then(|| holds.iter().enumerate().map(single).collect())
}

/// The release of a lock with a queue, without the queue, whose key may be on another node than the lock: whoever waits
/// finds it free.
fn alone(op: &Op) -> Option<Op> {
    let Op::Release { claim } = op else { return None };
    // a side of a read/write lock has more keys than that one
    let quiet = claim.kind.row().queues && !claim.kind.is_shared();
    quiet.then(|| Op::Undo { claim: claim.clone(), nodes: NodeSet::ALL, quiet })
}

/// The answer to it. It may have been the release of a place in the queue, which is still there: nothing is known then.
fn found(answer: Answer) -> Answer {
    if answer.outcome == Outcome::Applied(Reply::Released(false)) { slot_is_moving() } else { answer }
}

/// Whether it can be done in parts while its slot moves: here, or by whoever asked for several at once.
fn is_divisible(op: &Op) -> bool {
    let many = matches!(op, Op::AcquireMany { .. } | Op::ReleaseMany { .. });
    many || split_by_hold(op).is_some() || alone(op).is_some()
}

/// One answer made of those to the parts. Its deadline counts from the earliest.
fn merge_answers(parts: &SplitOp, answers: Vec<Answer>) -> Answer {
    let count = parts.iter().map(|(positions, _)| positions.len()).sum();
    let mut renewals = vec![Renewal::Failed("not asked".to_owned()); count];
    let sent_at = answers.iter().map(|answer| answer.sent_at).min().unwrap_or(Time::ZERO);
    for ((positions, _), answer) in parts.iter().zip(answers) {
        for (index, position) in positions.iter().enumerate() {
            renewals[*position] = match &answer.outcome {
                Outcome::Applied(Reply::Renewed(verdicts)) => match verdicts.get(index) {
                    Some(verdict) => verdict.clone(),
                    None => continue,
                },
                outcome => Renewal::Failed(outcome.failure().map(|it| it.detail.clone()).unwrap_or_default()),
            };
        }
    }
    let outcome = Outcome::Applied(Reply::Renewed(renewals));
    Answer { sent_at, received_at: clock::now(), connection: 0, server_time_us: None, outcome }
}

async fn call(topology: &Arc<ClusterTopology>, op: &Op, until: Time) -> Answer {
    if let Some(parts) = split_by_slot(op) {
        let answers = join_all(parts.iter().map(|(_, op)| Box::pin(call(topology, op, until)))).await;
        return merge_answers(&parts, answers);
    }
    if let Some(answer) = call_one(topology, op, until).await {
        return answer;
    }
    let Some(singles) = split_by_hold(op) else {
        let Some(op) = alone(op) else { return slot_is_moving() };
        return found(call_one(topology, &op, until).await.unwrap_or_else(slot_is_moving));
    };
    let answers = join_all(singles.iter().map(|(_, op)| call_one(topology, op, until))).await;
    merge_answers(&singles, answers.into_iter().map(|answer| answer.unwrap_or_else(slot_is_moving)).collect())
}

/// Fails before any I/O what can never work here, and every call after `close`.
fn check_before_send(topology: &ClusterTopology, op: &Op) -> Option<Answer> {
    let failure = match key(op) {
        _ if topology.store_state.check_open().is_err() => topology.store_state.check_open().err()?,
        Some(key) if !naming::shares_slot(key) => Failure::lasting(
            ErrorKind::InvalidArgument,
            "in a cluster the braces of a name must enclose something, as in {orders}:42: what belongs to this lock would \
             not live on the node of its name; write the name without braces, or with a whole pair",
        ),
        Some(_) => return None,
        None => Failure::lasting(ErrorKind::Internal, "nothing to renew"),
    };
    Some(not_sent(clock::now(), failure).answer)
}

/// One operation on one slot; `None`: to be sent hold by hold.
async fn call_one(topology: &Arc<ClusterTopology>, op: &Op, until: Time) -> Option<Answer> {
    if let Some(answer) = check_before_send(topology, op) {
        return Some(answer);
    }
    let (slot, several) = (naming::slot(key(op)?), is_divisible(op));
    let (mut router, mut to) = (Router::new(until), None);
    loop {
        let begun = clock::now();
        let (node, asking) = match to.take() {
            Some(node) => (node, true),
            None => match owner(topology, slot, until).await {
                Ok(node) => (node, false),
                Err(failure) => return Some(not_sent(begun, failure).answer),
            },
        };
        let reply = node.call(op, SendOptions { announce: topology.announce(), asking }, until).await;
        match router.next(&reply, clock::now(), several) {
            RouteStep::Done => return Some(router.final_answer(reply)),
            RouteStep::DoneAndRefresh => {
                topology.schedule_refresh();
                return Some(router.final_answer(reply));
            }
            RouteStep::Moved { slot, host, port } => {
                topology.on_moved(slot, &host, port);
                topology.schedule_refresh();
            }
            RouteStep::Ask { host, port } => to = Some(topology.node_at(&host, port)),
            RouteStep::Retry(pause) => task::sleep(pause).await,
            RouteStep::Split => return None,
            RouteStep::RetryAfterFailover(pause) => {
                task::sleep(pause).await;
                let _ = task::timeout(until.since(clock::now()), topology.refresh(begun)).await;
            }
            RouteStep::RefreshThenRetry => {
                let limit = task::timeout(until.since(clock::now()), topology.refresh(begun)).await;
                if !matches!(limit, Ok(Ok(()))) || is_served_by(topology, slot, &node) {
                    return Some(router.final_answer(reply));
                }
            }
        }
    }
}

/// The same from a thread.
#[cfg(not(target_family = "wasm"))]
fn call_one_blocking(
    topology: &Arc<ClusterTopology>,
    op: &Op,
    until: Time,
    interrupt: &dyn Interrupt,
) -> Option<Answer> {
    if let Some(answer) = check_before_send(topology, op) {
        return Some(answer);
    }
    let (slot, several) = (naming::slot(key(op)?), is_divisible(op));
    let (mut router, mut to) = (Router::new(until), None);
    let deadline = Deadline { until, interrupt };
    loop {
        let begun = clock::now();
        let (node, asking) = match to.take() {
            Some(node) => (node, true),
            None => match owner_blocking(topology, slot, deadline) {
                Ok(node) => (node, false),
                Err(failure) => return Some(not_sent(begun, failure).answer),
            },
        };
        let reply = node.call_blocking(op, SendOptions { announce: topology.announce(), asking }, until, interrupt);
        match router.next(&reply, clock::now(), several) {
            RouteStep::Done => return Some(router.final_answer(reply)),
            RouteStep::Split => return None,
            _ if interrupt.interrupted() => return Some(router.final_answer(reply)),
            RouteStep::Moved { slot, host, port } => drop(topology.on_moved(slot, &host, port)),
            RouteStep::Ask { host, port } => to = Some(topology.node_at(&host, port)),
            RouteStep::Retry(pause) => failover::pause_blocking(pause, deadline),
            RouteStep::RetryAfterFailover(pause) => {
                failover::pause_blocking(pause, deadline);
                let _ = topology.refresh_blocking(begun, deadline);
            }
            // the resent request must find a new map, if there is one
            RouteStep::DoneAndRefresh => {
                let _ = topology.refresh_blocking(begun, deadline);
                return Some(router.final_answer(reply));
            }
            RouteStep::RefreshThenRetry => {
                if topology.refresh_blocking(begun, deadline).is_err() || is_served_by(topology, slot, &node) {
                    return Some(router.final_answer(reply));
                }
            }
        }
    }
}

async fn owner(topology: &ClusterTopology, slot: u16, until: Time) -> Result<Arc<Node>, Failure> {
    if let Some(node) = topology.owner(slot) {
        return Ok(node);
    }
    let now = clock::now();
    let asked = task::timeout(until.since(now), topology.refresh(now)).await;
    asked.unwrap_or_else(|_| Err(no_connection_in_time(&topology.name)))?;
    topology.owner(slot).ok_or_else(|| unserved(slot))
}

#[cfg(not(target_family = "wasm"))]
fn owner_blocking(topology: &ClusterTopology, slot: u16, deadline: Deadline<'_>) -> Result<Arc<Node>, Failure> {
    if let Some(node) = topology.owner(slot) {
        return Ok(node);
    }
    topology.refresh_blocking(clock::now(), deadline)?;
    topology.owner(slot).ok_or_else(|| unserved(slot))
}

fn unserved(slot: u16) -> Failure {
    Failure::transient(ErrorKind::ServerRefused, format!("no node of the cluster serves slot {slot}"))
}

fn is_served_by(topology: &ClusterTopology, slot: u16, node: &Arc<Node>) -> bool {
    topology.owner(slot).is_none_or(|owner| Arc::ptr_eq(&owner, node))
}

/// A single hold cannot be split any further.
fn slot_is_moving() -> Answer {
    not_sent(clock::now(), Failure::transient(ErrorKind::ServerRefused, "the slot is being moved")).answer
}

/// What the masters report about themselves. Those that do not answer are skipped, unless none does.
async fn query_server_info(topology: &Arc<ClusterTopology>, until: Time) -> Result<Facts, Failure> {
    let begun = clock::now();
    let refreshed = task::timeout(until.since(begun), topology.refresh(begun)).await;
    refreshed.unwrap_or_else(|_| Err(no_connection_in_time(&topology.name)))?;
    let map = topology.map().clone();
    let answers = join_all(map.nodes.iter().map(|node| server_info::query(node, until))).await;
    let (mut found, mut failure): (Option<Facts>, _) = (None, None);
    for answer in answers {
        match (answer, &mut found) {
            (Ok(facts), None) => found = Some(facts),
            (Ok(facts), Some(found)) => {
                found.grade = found.grade.min(facts.grade);
                found.warnings.extend(facts.warnings);
            }
            (Err(why), _) => failure = Some(why),
        }
    }
    let nobody = || Failure::transient(ErrorKind::Unavailable, "no master of the cluster answered");
    let Some(mut found) = found else { return Err(failure.unwrap_or_else(nobody)) };
    found.grade = found.grade.min(Grade::BestEffort);
    if !map.is_complete() {
        let text = "some slots of the cluster have no master: locks in them can't be taken";
        found.warnings.push(finding(SLOTS, text));
    }
    found.warnings.sort();
    found.warnings.dedup();
    Ok(found)
}
