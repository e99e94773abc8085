//! The topology of a cluster: fetches the slot map, corrects it after redirections, and notifies subscriptions of
//! changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::Value;
use tokio::sync::watch;

use super::slot_map::{self, SlotMap};
use crate::config::Notify;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};
use crate::store::redis::address::endpoint::{ConnectionAddr, Endpoint};
use crate::store::redis::address::multi::{ClusterSeeds, host_list};
use crate::store::redis::command::call::Announce;
use crate::store::redis::connection::context::StoreState;
#[cfg(not(target_family = "wasm"))]
use crate::store::redis::connection::deadline::Deadline;
use crate::store::redis::node::Node;
use crate::store::redis::options::RedisOptions;
#[cfg(not(target_family = "wasm"))]
use crate::store::redis::topology::query::query_blocking;
use crate::store::redis::topology::query::{query, server_failure};
use crate::sys::clock;
use crate::sys::task;

/// The commands that fetch a map. A server that does not know the second one has no sharded channels.
const DISCOVERY_COMMANDS: &[&[&str]] = &[&["CLUSTER", "SLOTS"], &["PUBSUB", "SHARDNUMSUB"]];
/// Refreshes that are requested closer together than this are done once.
const REFRESH_DELAY: Duration = Duration::from_millis(50);

type NodeAddress = (String, u16);

/// The nodes of a cluster and its slot map.
pub(crate) struct ClusterTopology {
    template: Endpoint,
    options: RedisOptions,
    pub(crate) store_state: Arc<StoreState>,
    pub(crate) name: String,
    map: ArcSwap<SlotMap>,
    /// When the present map was requested.
    map_requested_at: Mutex<Time>,
    nodes: Mutex<KnownNodes>,
    /// The nodes of the address, queried when no other is known.
    seeds: Vec<Arc<Endpoint>>,
    /// The nodes to query, in turn: the seeds, and those of the latest map.
    discovery_nodes: Mutex<Vec<Arc<Endpoint>>>,
    /// One task refreshes, the others wait for its result.
    refreshing: tokio::sync::Mutex<Option<FailedRefresh>>,
    refresh_scheduled: AtomicBool,
    versions: watch::Sender<u64>,
}

/// The nodes with connections.
#[derive(Default)]
struct KnownNodes {
    known: HashMap<NodeAddress, KnownNode>,
    /// How many were created.
    created: u64,
}

struct KnownNode {
    node: Arc<Node>,
    /// When a map or a redirection named it last.
    last_named_at: Time,
}

/// A refresh that no node could answer.
struct FailedRefresh {
    ended_at: Time,
    failure: Failure,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClusterTopology {
    pub(crate) fn new(seeds: ClusterSeeds, options: RedisOptions) -> ClusterTopology {
        let scheme = if seeds.nodes.iter().any(|node| node.tls.is_some()) { "rediss" } else { "redis" };
        let name = format!("{scheme}+cluster://{}", host_list(seeds.nodes.iter()));
        let discovery_nodes: Vec<_> = seeds.nodes.iter().map(|node| Arc::new(node.for_queries())).collect();
        let template = seeds.nodes.into_iter().next().unwrap_or_else(Endpoint::nowhere);
        ClusterTopology {
            template,
            options,
            store_state: Arc::new(StoreState::default()),
            name,
            map: ArcSwap::from_pointee(SlotMap::empty()),
            map_requested_at: Mutex::new(Time::ZERO),
            nodes: Mutex::default(),
            seeds: discovery_nodes.clone(),
            discovery_nodes: Mutex::new(discovery_nodes),
            refreshing: tokio::sync::Mutex::default(),
            refresh_scheduled: AtomicBool::new(false),
            versions: watch::Sender::new(0),
        }
    }

    pub(crate) fn map(&self) -> arc_swap::Guard<Arc<SlotMap>> {
        self.map.load()
    }

    /// The node that serves a slot, as far as is known.
    pub(crate) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.load().owner(slot).cloned()
    }

    /// Changes with every new map.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// How releases are announced in this cluster.
    pub(crate) fn announce(&self) -> Announce {
        match self.options.notify {
            Notify::Auto if self.map.load().sharded => Announce::Sharded,
            Notify::Auto | Notify::Classic => Announce::Forwarded,
            Notify::Sharded => Announce::Sharded,
            Notify::Both => Announce::Both,
        }
    }

    /// Every node with connections.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        locked(&self.nodes).known.values().map(|known| known.node.clone()).collect()
    }

    /// The node at this address.
    pub(crate) fn node_at(&self, host: &str, port: u16) -> Arc<Node> {
        let mut nodes = locked(&self.nodes);
        let KnownNodes { known, created: made } = &mut *nodes;
        let named_at = clock::now();
        let entry = known.entry((host.to_owned(), port)).or_insert_with(|| {
            *made += 1;
            let endpoint = self.template.moved_to(host, port);
            // no node makes so many connections that their numbers reach another node's
            let node = Node::at(endpoint, self.options.clone(), self.store_state.clone(), *made << 32);
            KnownNode { node: Arc::new(node), last_named_at: named_at }
        });
        entry.last_named_at = named_at;
        entry.node.clone()
    }

    /// Drops nodes that are not in a map, and that no redirection has named since the map was requested. Their requests
    /// in flight continue.
    fn drop_unnamed(&self, places: &[&NodeAddress], asked_at: Time) {
        let mut gone = Vec::new();
        locked(&self.nodes).known.retain(|place, known| {
            let stays = known.last_named_at >= asked_at || places.contains(&place);
            if !stays {
                gone.push(known.node.clone());
            }
            stays
        });
        for node in gone {
            node.drop_idle();
        }
    }

    /// A node redirected this slot.
    pub(crate) fn on_moved(&self, slot: u16, host: &str, port: u16) -> Arc<Node> {
        let node = self.node_at(host, port);
        self.replace(|map| {
            let known = map.owner(slot).is_some_and(|owner| Arc::ptr_eq(owner, &node));
            (!known).then(|| map.with_owner(slot, &node))
        });
        node
    }

    fn replace(&self, next: impl Fn(&SlotMap) -> Option<SlotMap>) {
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

    /// The map may be wrong: refreshes it in the background, unless a refresh is scheduled already. Needs a runtime
    /// context.
    pub(crate) fn schedule_refresh(self: &Arc<Self>) {
        if self.store_state.check_open().is_err() || self.refresh_scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let (topology, doubtful_at) = (self.clone(), clock::now());
        task::spawn(async move {
            task::sleep(REFRESH_DELAY).await;
            topology.refresh_scheduled.store(false, Ordering::Release);
            if let Err(failure) = topology.refresh(doubtful_at).await {
                tracing::debug!(cause = failure.detail, "the cluster's map could not be had");
            }
        });
    }

    /// Fetches a map that is requested after `doubtful_at`.
    pub(crate) async fn refresh(&self, doubtful_at: Time) -> Result<(), Failure> {
        let came_at = clock::now();
        let mut failed = self.refreshing.lock().await;
        if *locked(&self.map_requested_at) > doubtful_at {
            return Ok(());
        }
        if let Some(failed) = failed.as_ref().filter(|failed| failed.ended_at > came_at) {
            // callers that waited for this refresh share its result, also when it failed
            return Err(failed.failure.clone());
        }
        let mut search = DiscoverySearch::new(self);
        while let Some((discovery_node, share)) = search.next() {
            let asked_at = clock::now();
            let answers = query(&self.store_state, &self.options, &discovery_node, DISCOVERY_COMMANDS, share).await;
            if search.answered(&discovery_node, answers, asked_at) {
                return Ok(());
            }
        }
        let failure = search.give_up();
        *failed = Some(FailedRefresh { ended_at: clock::now(), failure: failure.clone() });
        Err(failure)
    }

    /// The same from a thread.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn refresh_blocking(&self, doubtful_at: Time, deadline: Deadline<'_>) -> Result<(), Failure> {
        let mut search = DiscoverySearch::new(self);
        search.until = search.until.min(deadline.until);
        while *locked(&self.map_requested_at) <= doubtful_at {
            let Some((discovery_node, share)) = search.next() else { return Err(search.give_up()) };
            let asked_at = clock::now();
            let answers =
                query_blocking(&self.store_state, &self.options, &discovery_node, DISCOVERY_COMMANDS, share, deadline);
            search.answered(&discovery_node, answers, asked_at);
        }
        Ok(())
    }

    /// Applies the map that a node returned.
    fn apply(&self, discovery_node: &Endpoint, answers: &[Value], asked_at: Time) -> Result<(), Failure> {
        let (slots, shards) = (answers.first().unwrap_or(&Value::Nil), answers.get(1).unwrap_or(&Value::Nil));
        if let Some(failure) = server_failure(discovery_node, slots) {
            if failure.kind == ErrorKind::ServerRefused && failure.detail.contains("cluster support disabled") {
                let detail =
                    format!("{discovery_node}: this server is no node of a cluster; its address begins with redis://");
                return Err(Failure::lasting(ErrorKind::InvalidArgument, detail));
            }
            return Err(failure);
        }
        let here = match &discovery_node.addr {
            ConnectionAddr::Tcp { host, .. } => host.as_str(),
            ConnectionAddr::Unix(_) => "localhost",
        };
        let ranges = slot_map::read(slots, here).filter(|ranges| !ranges.is_empty()).ok_or_else(|| {
            Failure::transient(ErrorKind::Unavailable, format!("{discovery_node}: this node knows of no slots"))
        })?;
        let sharded = !matches!(shards, Value::ServerError(_));
        {
            let mut latest = locked(&self.map_requested_at);
            if asked_at <= *latest {
                return Ok(());
            }
            *latest = asked_at;
        }
        let places: Vec<_> =
            ranges.iter().flat_map(|range| std::iter::once(&range.master).chain(&range.replicas)).collect();
        self.set_discovery_nodes(&places);
        self.replace(|present| {
            let mut next = SlotMap::new(present.version + 1, sharded);
            for range in &ranges {
                next.assign(range.from, range.to, &self.node_at(&range.master.0, range.master.1));
            }
            Some(next)
        });
        self.drop_unnamed(&places, asked_at);
        Ok(())
    }

    /// The nodes to query next time: those named last, and those of the address.
    fn set_discovery_nodes(&self, places: &[&NodeAddress]) {
        let mut next: Vec<Arc<Endpoint>> = Vec::new();
        let named = places.iter().map(|(host, port)| Arc::new(self.template.moved_to(host, *port).for_queries()));
        for discovery_node in named.chain(self.seeds.iter().cloned()) {
            if !next.contains(&discovery_node) {
                next.push(discovery_node);
            }
        }
        let mut discovery_nodes = locked(&self.discovery_nodes);
        // in turn: the present ones first, then the new ones
        let mut turn: Vec<_> = discovery_nodes.iter().filter(|known| next.contains(known)).cloned().collect();
        turn.extend(next.into_iter().filter(|new| !discovery_nodes.contains(new)));
        *discovery_nodes = turn;
    }
}

/// One round of queries, each with its share of the time.
struct DiscoverySearch<'a> {
    topology: &'a ClusterTopology,
    left: std::vec::IntoIter<Arc<Endpoint>>,
    until: Time,
    failure: Option<Failure>,
}

/// At most so many nodes are queried in one round.
const MAX_ASKED: usize = 6;

impl<'a> DiscoverySearch<'a> {
    fn new(topology: &'a ClusterTopology) -> DiscoverySearch<'a> {
        let mut discovery_nodes = locked(&topology.discovery_nodes);
        let turn: Vec<_> = discovery_nodes.iter().take(MAX_ASKED).cloned().collect();
        // each round starts with another node: one that is cut off keeps returning an old map
        if !discovery_nodes.is_empty() {
            discovery_nodes.rotate_left(1);
        }
        let until = clock::now() + topology.options.connect_timeout;
        DiscoverySearch { topology, left: turn.into_iter(), until, failure: None }
    }

    fn next(&mut self) -> Option<(Arc<Endpoint>, Duration)> {
        let parts = u32::try_from(self.left.len()).unwrap_or(u32::MAX).max(1);
        let share = self.until.since(clock::now()) / parts;
        Some((self.left.next()?, share.max(Duration::from_millis(1))))
    }

    fn answered(&mut self, discovery_node: &Endpoint, answers: Result<Vec<Value>, Failure>, asked_at: Time) -> bool {
        let learnt = answers.and_then(|answers| self.topology.apply(discovery_node, &answers, asked_at));
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
        let topology = ClusterTopology::new(ClusterSeeds { nodes: vec![seed.clone()] }, options);
        for day in 0..200 {
            let answers = [all_slots_at(&format!("10.0.0.{day}")), Value::Array(Vec::new())];
            topology.apply(&seed, &answers, clock::now()).unwrap();
        }
        let discovery_nodes: Vec<String> = locked(&topology.discovery_nodes).iter().map(ToString::to_string).collect();
        assert_eq!(discovery_nodes, ["redis://seed:6379", "redis://10.0.0.199:6379"]);
        let names: Vec<String> = topology.nodes().iter().map(|node| node.context.name.clone()).collect();
        assert_eq!(names, ["redis://10.0.0.199:6379"]);
    }

    #[test]
    fn a_node_of_which_somebody_spoke_since_the_map_was_asked_for_stays() {
        let options = RedisOptions::default();
        let seed = Endpoint::parse("redis://seed", &options).unwrap();
        let topology = ClusterTopology::new(ClusterSeeds { nodes: vec![seed.clone()] }, options);
        let asked_at = clock::now();
        let moved = topology.on_moved(7, "10.0.0.1", 6379);
        topology.apply(&seed, &[all_slots_at("10.0.0.2"), Value::Array(Vec::new())], asked_at).unwrap();
        assert!(Arc::ptr_eq(&topology.node_at("10.0.0.1", 6379), &moved));
        assert_eq!(topology.nodes().len(), 2);
    }
}
