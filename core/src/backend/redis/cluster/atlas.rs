//! Keeps the map of the cluster: asks for it, corrects it as nodes say, and tells who follows it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::Value;
use tokio::sync::watch;

use super::super::RedisOptions;
use super::super::endpoint::{Endpoint, Place};
use super::super::hosts::{Seeds, listed};
use super::super::inquiry::{ask, ask_blocking, refused};
use super::super::line::Patience;
use super::super::node::Node;
use super::super::request::Announce;
use super::super::shared::Common;
use super::map::{self, Map};
use crate::backend::Notify;
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};

/// What is asked for a map. A server that doesn't know the second question has no sharded channels.
const QUESTIONS: &[&[&str]] = &[&["CLUSTER", "SLOTS"], &["PUBSUB", "SHARDNUMSUB"]];
/// Suspicions that come closer together than this are looked into together.
const SPACING: Duration = Duration::from_millis(50);

type Spot = (String, u16);

/// The nodes of a cluster and the map of its slots.
pub(super) struct Atlas {
    template: Endpoint,
    options: RedisOptions,
    pub(super) common: Arc<Common>,
    pub(super) name: String,
    map: ArcSwap<Map>,
    /// When the present map was asked for.
    asked_at: Mutex<Time>,
    nodes: Mutex<Nodes>,
    /// Those of the address: whom to ask when nobody else is known.
    seeds: Vec<Arc<Endpoint>>,
    /// Whom to ask, in turn: the seeds, and who stands on the latest map.
    informants: Mutex<Vec<Arc<Endpoint>>>,
    /// One task asks, the others wait for what it learns.
    asking: tokio::sync::Mutex<Option<Vain>>,
    suspected: AtomicBool,
    versions: watch::Sender<u64>,
}

/// The nodes that are spoken to.
#[derive(Default)]
struct Nodes {
    known: HashMap<Spot, Known>,
    /// How many there have been.
    made: u64,
}

struct Known {
    node: Arc<Node>,
    /// When somebody spoke of it last.
    named_at: Time,
}

/// A round of questions that nobody could answer.
struct Vain {
    ended_at: Time,
    failure: Failure,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Atlas {
    pub(super) fn new(seeds: Seeds, options: RedisOptions) -> Atlas {
        let scheme = if seeds.nodes.iter().any(|node| node.tls.is_some()) { "rediss" } else { "redis" };
        let name = format!("{scheme}+cluster://{}", listed(seeds.nodes.iter()));
        let informants: Vec<_> = seeds.nodes.iter().map(|node| Arc::new(node.for_questions())).collect();
        let template = seeds.nodes.into_iter().next().unwrap_or_else(Endpoint::nowhere);
        Atlas {
            template,
            options,
            common: Arc::new(Common::default()),
            name,
            map: ArcSwap::from_pointee(Map::empty()),
            asked_at: Mutex::new(Time::ZERO),
            nodes: Mutex::default(),
            seeds: informants.clone(),
            informants: Mutex::new(informants),
            asking: tokio::sync::Mutex::default(),
            suspected: AtomicBool::new(false),
            versions: watch::Sender::new(0),
        }
    }

    pub(super) fn map(&self) -> arc_swap::Guard<Arc<Map>> {
        self.map.load()
    }

    /// The node that serves a slot, as far as is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.load().owner(slot).cloned()
    }

    /// Changes with every new map.
    pub(super) fn versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// How releases are announced here.
    pub(super) fn announce(&self) -> Announce {
        match self.options.notify {
            Notify::Auto if self.map.load().sharded => Announce::Sharded,
            Notify::Auto | Notify::Classic => Announce::Classic,
            Notify::Sharded => Announce::Sharded,
            Notify::Both => Announce::Both,
        }
    }

    /// Every node that is spoken to.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        locked(&self.nodes).known.values().map(|known| known.node.clone()).collect()
    }

    /// The node at this place.
    pub(super) fn node_at(&self, host: &str, port: u16) -> Arc<Node> {
        let mut nodes = locked(&self.nodes);
        let Nodes { known, made } = &mut *nodes;
        let named_at = clock::now();
        let entry = known.entry((host.to_owned(), port)).or_insert_with(|| {
            *made += 1;
            let endpoint = self.template.moved_to(host, port);
            // so many connections that none will ever have the number of another node's
            let node = Node::at(endpoint, self.options.clone(), self.common.clone(), *made << 32);
            Known { node: Arc::new(node), named_at }
        });
        entry.named_at = named_at;
        entry.node.clone()
    }

    /// Nodes that a map does not know, and nobody has spoken of since it was asked for, are not spoken to any more. What is
    /// under way there goes on.
    fn forget(&self, places: &[&Spot], asked_at: Time) {
        let mut gone = Vec::new();
        locked(&self.nodes).known.retain(|place, known| {
            let stays = known.named_at >= asked_at || places.contains(&place);
            if !stays {
                gone.push(known.node.clone());
            }
            stays
        });
        for node in gone {
            node.part();
        }
    }

    /// A node said that the slot is served elsewhere.
    pub(super) fn moved(&self, slot: u16, host: &str, port: u16) -> Arc<Node> {
        let node = self.node_at(host, port);
        self.replace(|map| {
            let known = map.owner(slot).is_some_and(|owner| Arc::ptr_eq(owner, &node));
            (!known).then(|| map.with(slot, &node))
        });
        node
    }

    fn replace(&self, next: impl Fn(&Map) -> Option<Map>) {
        loop {
            let present = self.map.load_full();
            let Some(next) = next(&present) else { return };
            let version = next.version;
            let seen = self.map.compare_and_swap(&present, Arc::new(next));
            if Arc::ptr_eq(&seen, &present) {
                self.versions.send_if_modified(|known| std::mem::replace(known, (*known).max(version)) < version);
                return;
            }
        }
    }

    /// The map may be wrong: looks into it in the background, if nobody does already. Needs a runtime context.
    pub(super) fn suspect(self: &Arc<Self>) {
        if self.common.check_open().is_err() || self.suspected.swap(true, Ordering::AcqRel) {
            return;
        }
        let (atlas, doubtful_at) = (self.clone(), clock::now());
        tokio::spawn(async move {
            tokio::time::sleep(SPACING).await;
            atlas.suspected.store(false, Ordering::Release);
            if let Err(failure) = atlas.refresh(doubtful_at).await {
                tracing::debug!(cause = failure.detail, "the cluster's map could not be had");
            }
        });
    }

    /// A map that was asked for after `doubtful_at`.
    pub(super) async fn refresh(&self, doubtful_at: Time) -> Result<(), Failure> {
        let came_at = clock::now();
        let mut vain = self.asking.lock().await;
        if *locked(&self.asked_at) > doubtful_at {
            return Ok(());
        }
        if let Some(vain) = vain.as_ref().filter(|vain| vain.ended_at > came_at) {
            // who waited for a round shares in what came of it, be it nothing
            return Err(vain.failure.clone());
        }
        let mut search = Search::new(self);
        while let Some((informant, share)) = search.next() {
            let asked_at = clock::now();
            let answers = ask(&self.common, &self.options, &informant, QUESTIONS, share).await;
            if search.answered(&informant, answers, asked_at) {
                return Ok(());
            }
        }
        let failure = search.give_up();
        *vain = Some(Vain { ended_at: clock::now(), failure: failure.clone() });
        Err(failure)
    }

    /// The same from a thread.
    pub(super) fn refresh_blocking(&self, doubtful_at: Time, patience: Patience<'_>) -> Result<(), Failure> {
        let mut search = Search::new(self);
        search.until = search.until.min(patience.until);
        while *locked(&self.asked_at) <= doubtful_at {
            let Some((informant, share)) = search.next() else { return Err(search.give_up()) };
            let asked_at = clock::now();
            let answers = ask_blocking(&self.common, &self.options, &informant, QUESTIONS, share, patience);
            search.answered(&informant, answers, asked_at);
        }
        Ok(())
    }

    /// Takes over what an informant says.
    fn learn(&self, informant: &Endpoint, answers: &[Value], asked_at: Time) -> Result<(), Failure> {
        let (slots, shards) = (answers.first().unwrap_or(&Value::Nil), answers.get(1).unwrap_or(&Value::Nil));
        if let Some(failure) = refused(informant, slots) {
            if failure.kind == ErrorKind::ServerRefused && failure.detail.contains("cluster support disabled") {
                let detail =
                    format!("{informant}: this server is no node of a cluster; its address begins with redis://");
                return Err(Failure::lasting(ErrorKind::InvalidArgument, detail));
            }
            return Err(failure);
        }
        let here = match &informant.place {
            Place::Tcp { host, .. } => host.as_str(),
            Place::Unix(_) => "localhost",
        };
        let ranges = map::read(slots, here).filter(|ranges| !ranges.is_empty()).ok_or_else(|| {
            Failure::transient(ErrorKind::Unavailable, format!("{informant}: this node knows of no slots"))
        })?;
        let sharded = !matches!(shards, Value::ServerError(_));
        {
            let mut latest = locked(&self.asked_at);
            if asked_at <= *latest {
                return Ok(());
            }
            *latest = asked_at;
        }
        let places: Vec<_> =
            ranges.iter().flat_map(|range| std::iter::once(&range.master).chain(&range.replicas)).collect();
        self.remember(&places);
        self.replace(|present| {
            let mut next = Map::new(present.version + 1, sharded);
            for range in &ranges {
                next.give(range.from, range.to, &self.node_at(&range.master.0, range.master.1));
            }
            Some(next)
        });
        self.forget(&places, asked_at);
        Ok(())
    }

    /// Those who were named last can be asked next time, and those of the address; nobody else.
    fn remember(&self, places: &[&Spot]) {
        let mut next: Vec<Arc<Endpoint>> = Vec::new();
        let named = places.iter().map(|(host, port)| Arc::new(self.template.moved_to(host, *port).for_questions()));
        for informant in named.chain(self.seeds.iter().cloned()) {
            if !next.contains(&informant) {
                next.push(informant);
            }
        }
        let mut informants = locked(&self.informants);
        // in the order in which it is their turn: those who stay, then those who are new
        let mut turn: Vec<_> = informants.iter().filter(|known| next.contains(known)).cloned().collect();
        turn.extend(next.into_iter().filter(|new| !informants.contains(new)));
        *informants = turn;
    }
}

/// One round of questions, each with its share of the time.
struct Search<'a> {
    atlas: &'a Atlas,
    left: std::vec::IntoIter<Arc<Endpoint>>,
    until: Time,
    failure: Option<Failure>,
}

/// No more are asked in one round.
const ASKED: usize = 6;

impl<'a> Search<'a> {
    fn new(atlas: &'a Atlas) -> Search<'a> {
        let mut informants = locked(&atlas.informants);
        let turn: Vec<_> = informants.iter().take(ASKED).cloned().collect();
        // another one begins each time: a node that is cut off goes on telling what it knows
        if !informants.is_empty() {
            informants.rotate_left(1);
        }
        let until = clock::now() + atlas.options.connect_timeout;
        Search { atlas, left: turn.into_iter(), until, failure: None }
    }

    fn next(&mut self) -> Option<(Arc<Endpoint>, Duration)> {
        let parts = u32::try_from(self.left.len()).unwrap_or(u32::MAX).max(1);
        let share = self.until.since(clock::now()) / parts;
        Some((self.left.next()?, share.max(Duration::from_millis(1))))
    }

    fn answered(&mut self, informant: &Endpoint, answers: Result<Vec<Value>, Failure>, asked_at: Time) -> bool {
        let learnt = answers.and_then(|answers| self.atlas.learn(informant, &answers, asked_at));
        let Err(failure) = learnt else { return true };
        tracing::debug!(cause = failure.detail, "a node did not tell where the slots are");
        if self.failure.as_ref().is_none_or(|known| known.transient) {
            self.failure = Some(failure);
        }
        false
    }

    fn give_up(self) -> Failure {
        self.failure.unwrap_or_else(|| Failure::transient(ErrorKind::Unavailable, "no node of the cluster answered"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// One node has all slots.
    fn all_slots_at(host: &str) -> Value {
        let node = Value::Array(vec![Value::BulkString(host.as_bytes().to_vec()), Value::Int(6379)]);
        Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16383), node])])
    }

    #[test]
    fn addresses_of_yesterday_are_forgotten() {
        let options = RedisOptions::default();
        let seed = Endpoint::parse("redis://seed", &options).unwrap();
        let atlas = Atlas::new(Seeds { nodes: vec![seed.clone()] }, options);
        for day in 0..200 {
            let answers = [all_slots_at(&format!("10.0.0.{day}")), Value::Array(Vec::new())];
            atlas.learn(&seed, &answers, clock::now()).unwrap();
        }
        let informants: Vec<String> = locked(&atlas.informants).iter().map(ToString::to_string).collect();
        assert_eq!(informants, ["redis://seed:6379", "redis://10.0.0.199:6379"]);
        let names: Vec<String> = atlas.nodes().iter().map(|node| node.shared.name.clone()).collect();
        assert_eq!(names, ["redis://10.0.0.199:6379"]);
    }

    #[test]
    fn a_node_of_which_somebody_spoke_since_the_map_was_asked_for_stays() {
        let options = RedisOptions::default();
        let seed = Endpoint::parse("redis://seed", &options).unwrap();
        let atlas = Atlas::new(Seeds { nodes: vec![seed.clone()] }, options);
        let asked_at = clock::now();
        let moved = atlas.moved(7, "10.0.0.1", 6379);
        atlas.learn(&seed, &[all_slots_at("10.0.0.2"), Value::Array(Vec::new())], asked_at).unwrap();
        assert!(Arc::ptr_eq(&atlas.node_at("10.0.0.1", 6379), &moved));
        assert_eq!(atlas.nodes().len(), 2);
    }
}
