//! The store of a whole cluster: sends every operation to the node that serves its slot.
//!
//! | file | is |
//! |---|---|
//! | `map` | which node serves which slot |
//! | `atlas` | keeps the map: asks for it, corrects it |
//! | `course` | what to do after a node's answer: send on, wait, split, or be done |
//! | `relay` | subscriptions that follow their slot |
//!
//! What a node did not do can be sent on; what it may have done never is: that is for the machine room to decide.

mod atlas;
mod course;
mod map;
mod relay;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use self::atlas::Atlas;
use self::course::{Course, Turn};
use super::line::Patience;
use super::node::{How, Node, not_sent};
use super::{RedisOptions, Seeds, facts, pursuit};
use crate::backend::finding::{SLOTS, finding};
use crate::backend::{Boxed, Facts, Interrupt, Store, StoreStats, Subscription};
use crate::driver::clock;
use crate::error::{Error, ErrorKind};
use crate::machine::{Answer, Claim, Failure, Grade, Key, Kind, Op, Outcome, Renewal, Reply, Time, naming};

/// Locks on a Redis or Valkey cluster, 6.2 or newer.
pub struct ClusterStore {
    atlas: Arc<Atlas>,
}

impl ClusterStore {
    /// A store for the cluster at `address` (see [`Seeds::parse`]). No I/O happens; a bad address is `InvalidArgument`.
    pub fn new(address: &str, options: RedisOptions) -> Result<ClusterStore, Error> {
        Ok(ClusterStore::at(Seeds::parse(address, &options)?, options))
    }

    /// A store for the cluster that these nodes belong to. No I/O happens.
    pub fn at(seeds: Seeds, options: RedisOptions) -> ClusterStore {
        ClusterStore { atlas: Arc::new(Atlas::new(seeds, options)) }
    }
}

impl Store for ClusterStore {
    fn call(&self, op: Op, until: Time) -> Boxed<Answer> {
        let atlas = self.atlas.clone();
        Box::pin(async move { call(&atlas, &op, until).await })
    }

    fn call_blocking(&self, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Answer {
        if let Some(parts) = parts(op) {
            let answers = parts.iter().map(|(_, op)| self.call_blocking(op, until, interrupt)).collect();
            return merged(&parts, answers);
        }
        if let Some(answer) = call_one_blocking(&self.atlas, op, until, interrupt) {
            return answer;
        }
        let Some(singles) = one_by_one(op) else { return stuck() };
        let call = |op: &Op| call_one_blocking(&self.atlas, op, until, interrupt).unwrap_or_else(stuck);
        let answers = singles.iter().map(|(_, op)| call(op)).collect();
        merged(&singles, answers)
    }

    fn connection(&self) -> u64 {
        // an operation may have gone to several nodes, so an undo is repeated until nothing can come after it
        0
    }

    fn shard(&self, key: &Key) -> u32 {
        u32::from(naming::slot(key))
    }

    fn subscribe(&self, kind: Kind, key: &Key) -> Subscription {
        relay::subscribe(&self.atlas, naming::slot(key), naming::channel(kind, key))
    }

    fn facts(&self, until: Time) -> Boxed<Result<Facts, Failure>> {
        let atlas = self.atlas.clone();
        Box::pin(async move { look(&atlas, until).await })
    }

    fn stats(&self) -> StoreStats {
        self.atlas.common.stats()
    }

    fn address(&self) -> &str {
        &self.atlas.name
    }

    fn close(&self) {
        self.atlas.common.close();
        for node in self.atlas.nodes() {
            node.close();
        }
    }
}

impl Drop for ClusterStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// The key that says where an operation goes.
fn key(op: &Op) -> Option<&Key> {
    match op {
        Op::Acquire { claim, .. }
        | Op::Attach { claim, .. }
        | Op::SetCount { claim, .. }
        | Op::Release { claim }
        | Op::Retain { claim, .. }
        | Op::Undo { claim, .. }
        | Op::Vote { claim, .. }
        | Op::WriteBack { claim, .. } => Some(&claim.key),
        Op::Renew { holds } => holds.first().map(|(claim, _)| &claim.key),
        Op::Inspect { key } | Op::ForceRelease { key, .. } => Some(key),
    }
}

/// Parts of an operation, each with the positions of its holds.
type Parts = Vec<(Vec<usize>, Op)>;

/// A renewal of holds in several slots, slot by slot.
fn parts(op: &Op) -> Option<Parts> {
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
fn one_by_one(op: &Op) -> Option<Parts> {
    let Op::Renew { holds } = op else { return None };
    let single = |(at, hold): (usize, &(Claim, u64))| (vec![at], Op::Renew { holds: vec![hold.clone()] });
    (holds.len() > 1).then(|| holds.iter().enumerate().map(single).collect())
}

/// One answer out of those to the parts. Its deadline counts from the earliest.
fn merged(parts: &Parts, answers: Vec<Answer>) -> Answer {
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

async fn call(atlas: &Arc<Atlas>, op: &Op, until: Time) -> Answer {
    if let Some(parts) = parts(op) {
        let answers = join_all(parts.iter().map(|(_, op)| Box::pin(call(atlas, op, until)))).await;
        return merged(&parts, answers);
    }
    if let Some(answer) = call_one(atlas, op, until).await {
        return answer;
    }
    let Some(singles) = one_by_one(op) else { return stuck() };
    let answers = join_all(singles.iter().map(|(_, op)| call_one(atlas, op, until))).await;
    merged(&singles, answers.into_iter().map(|answer| answer.unwrap_or_else(stuck)).collect())
}

/// Before any I/O: what can never work here, and a store that was closed.
fn refused_at_once(atlas: &Atlas, op: &Op) -> Option<Answer> {
    let failure = match key(op) {
        _ if atlas.common.check_open().is_err() => atlas.common.check_open().err()?,
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
async fn call_one(atlas: &Arc<Atlas>, op: &Op, until: Time) -> Option<Answer> {
    if let Some(answer) = refused_at_once(atlas, op) {
        return Some(answer);
    }
    let (slot, several) = (naming::slot(key(op)?), one_by_one(op).is_some());
    let (mut course, mut to) = (Course::new(until), None);
    loop {
        let begun = clock::now();
        let (node, asking) = match to.take() {
            Some(node) => (node, true),
            None => match owner(atlas, slot, until).await {
                Ok(node) => (node, false),
                Err(failure) => return Some(not_sent(begun, failure).answer),
            },
        };
        let told = node.call(op, How { announce: atlas.announce(), asking }, until).await;
        match course.next(&told, clock::now(), several) {
            Turn::Done => return Some(course.settled(told)),
            Turn::DoneInDoubt => {
                atlas.suspect();
                return Some(course.settled(told));
            }
            Turn::Moved { slot, host, port } => {
                atlas.moved(slot, &host, port);
                atlas.suspect();
            }
            Turn::Ask { host, port } => to = Some(atlas.node_at(&host, port)),
            Turn::Again(pause) => tokio::time::sleep(pause).await,
            Turn::Split => return None,
            Turn::Pursue(pause) => {
                tokio::time::sleep(pause).await;
                let _ = tokio::time::timeout(until.since(clock::now()), atlas.refresh(begun)).await;
            }
            Turn::Look => {
                let limit = tokio::time::timeout(until.since(clock::now()), atlas.refresh(begun)).await;
                if !matches!(limit, Ok(Ok(()))) || is_served_by(atlas, slot, &node) {
                    return Some(course.settled(told));
                }
            }
        }
    }
}

/// The same from a thread.
fn call_one_blocking(atlas: &Arc<Atlas>, op: &Op, until: Time, interrupt: &dyn Interrupt) -> Option<Answer> {
    if let Some(answer) = refused_at_once(atlas, op) {
        return Some(answer);
    }
    let (slot, several) = (naming::slot(key(op)?), one_by_one(op).is_some());
    let (mut course, mut to) = (Course::new(until), None);
    let patience = Patience { until, interrupt };
    loop {
        let begun = clock::now();
        let (node, asking) = match to.take() {
            Some(node) => (node, true),
            None => match owner_blocking(atlas, slot, patience) {
                Ok(node) => (node, false),
                Err(failure) => return Some(not_sent(begun, failure).answer),
            },
        };
        let told = node.call_blocking(op, How { announce: atlas.announce(), asking }, until, interrupt);
        match course.next(&told, clock::now(), several) {
            Turn::Done => return Some(course.settled(told)),
            Turn::Split => return None,
            _ if interrupt.interrupted() => return Some(course.settled(told)),
            Turn::Moved { slot, host, port } => drop(atlas.moved(slot, &host, port)),
            Turn::Ask { host, port } => to = Some(atlas.node_at(&host, port)),
            Turn::Again(pause) => pursuit::pause_on_thread(pause, patience),
            Turn::Pursue(pause) => {
                pursuit::pause_on_thread(pause, patience);
                let _ = atlas.refresh_blocking(begun, patience);
            }
            // the resent request must find a new map, if there is one
            Turn::DoneInDoubt => {
                let _ = atlas.refresh_blocking(begun, patience);
                return Some(course.settled(told));
            }
            Turn::Look => {
                if atlas.refresh_blocking(begun, patience).is_err() || is_served_by(atlas, slot, &node) {
                    return Some(course.settled(told));
                }
            }
        }
    }
}

async fn owner(atlas: &Atlas, slot: u16, until: Time) -> Result<Arc<Node>, Failure> {
    if let Some(node) = atlas.owner(slot) {
        return Ok(node);
    }
    let now = clock::now();
    let asked = tokio::time::timeout(until.since(now), atlas.refresh(now)).await;
    asked.unwrap_or_else(|_| Err(super::socket::no_connection_in_time(&atlas.name)))?;
    atlas.owner(slot).ok_or_else(|| unserved(slot))
}

fn owner_blocking(atlas: &Atlas, slot: u16, patience: Patience<'_>) -> Result<Arc<Node>, Failure> {
    if let Some(node) = atlas.owner(slot) {
        return Ok(node);
    }
    atlas.refresh_blocking(clock::now(), patience)?;
    atlas.owner(slot).ok_or_else(|| unserved(slot))
}

fn unserved(slot: u16) -> Failure {
    Failure::transient(ErrorKind::ServerRefused, format!("no node of the cluster serves slot {slot}"))
}

fn is_served_by(atlas: &Atlas, slot: u16, node: &Arc<Node>) -> bool {
    atlas.owner(slot).is_none_or(|owner| Arc::ptr_eq(&owner, node))
}

/// A single hold cannot be split any further.
fn stuck() -> Answer {
    not_sent(clock::now(), Failure::transient(ErrorKind::ServerRefused, "the slot is being moved")).answer
}

/// What the masters say about themselves. Those that don't answer are passed over, unless none does.
async fn look(atlas: &Arc<Atlas>, until: Time) -> Result<Facts, Failure> {
    let begun = clock::now();
    let refreshed = tokio::time::timeout(until.since(begun), atlas.refresh(begun)).await;
    refreshed.unwrap_or_else(|_| Err(super::socket::no_connection_in_time(&atlas.name)))?;
    let map = atlas.map().clone();
    let answers = join_all(map.nodes.iter().map(|node| facts::look(node, until))).await;
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
    if !map.is_whole() {
        let text = "some slots of the cluster have no master: locks in them can't be taken";
        found.warnings.push(finding(SLOTS, text));
    }
    found.warnings.sort();
    found.warnings.dedup();
    Ok(found)
}
