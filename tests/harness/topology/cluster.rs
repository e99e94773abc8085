//! A cluster of masters, with replicas if wanted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis::Value;

use crate::resp::text;
use crate::servers::{Builder, Flavor, Server};
use crate::wait::wait_until;

/// Far longer than anything takes here, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
const SLOTS: u16 = 16384;

/// Three masters, and as many replicas if wanted.
pub struct Cluster {
    /// The nodes: the masters first, then their replicas in the same order.
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// Three masters without replicas.
    pub fn start(flavor: Flavor) -> Cluster {
        Cluster::with(flavor, 0, |node| node)
    }

    /// Three masters with one replica each, which takes over when its master was silent for a second and a half.
    pub fn replicated(flavor: Flavor) -> Cluster {
        Cluster::with(flavor, 1, |node| node.config("cluster-node-timeout", "1500"))
    }

    /// Three masters that are not replaced when they are silent for a while.
    pub fn patient(flavor: Flavor) -> Cluster {
        Cluster::with(flavor, 0, |node| node.config("cluster-node-timeout", "60000"))
    }

    /// Three masters with so many replicas each, and more configuration. A node that a busy machine keeps waiting is not taken
    /// for dead.
    pub fn with(flavor: Flavor, replicas: usize, more: impl Fn(Builder) -> Builder) -> Cluster {
        let masters = 3;
        let builder = || {
            let builder = Server::builder(flavor)
                .config("cluster-enabled", "yes")
                .config("cluster-node-timeout", "15000")
                .config("cluster-replica-validity-factor", "0")
                .config("repl-diskless-sync-delay", "0");
            more(builder)
        };
        let nodes: Vec<Server> = (0..masters * (1 + replicas)).map(|_| builder().start()).collect();
        let cluster = Cluster { nodes };
        let share = usize::from(SLOTS).div_ceil(masters);
        for (at, node) in cluster.nodes.iter().enumerate() {
            node.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            if at < masters {
                let slots = at * share..((at + 1) * share).min(usize::from(SLOTS));
                let words: Vec<String> = ["CLUSTER", "ADDSLOTS"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain(slots.map(|it| it.to_string()))
                    .collect();
                node.cmd(&words);
            }
        }
        for node in &cluster.nodes[1..] {
            cluster.nodes[0].cmd(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()]);
        }
        cluster.wait_whole();
        for (at, node) in cluster.nodes.iter().enumerate().skip(masters) {
            let master = cluster.id(at % masters);
            wait_until(LIMIT, "the master to be known", || node.try_cmd(&["CLUSTER", "REPLICATE", &master]).is_ok());
        }
        for node in &cluster.nodes[masters..] {
            wait_until(LIMIT, "a replica's data", || {
                node.info("replication").get("master_link_status").is_some_and(|status| status == "up")
            });
        }
        cluster.wait_agreed();
        cluster
    }

    /// Its address, with all nodes.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The name of a node inside the cluster.
    pub fn id(&self, at: usize) -> String {
        self.nodes[at].text(&["CLUSTER", "MYID"])
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        self.nodes[0].int(&["CLUSTER", "KEYSLOT", key]) as u16
    }

    /// The position of the node that serves this slot, as this node sees it.
    pub fn owner_seen_by(&self, node: &Server, slot: u16) -> Option<usize> {
        let Ok(Value::Array(ranges)) = node.try_cmd(&["CLUSTER", "SLOTS"]) else { return None };
        let port = ranges.iter().find_map(|range| {
            let Value::Array(items) = range else { return None };
            let [Value::Int(from), Value::Int(to), Value::Array(master), ..] = &items[..] else { return None };
            (i64::from(slot) >= *from && i64::from(slot) <= *to).then(|| text(&master[1]))
        })?;
        self.nodes.iter().position(|node| node.port().to_string() == port)
    }

    /// The position of the node that serves this slot.
    pub fn owner(&self, slot: u16) -> usize {
        let alive = self.nodes.iter().find(|node| node.is_running()).expect("a node that runs");
        self.owner_seen_by(alive, slot).expect("the slot is served")
    }

    /// A name whose slot this node serves.
    pub fn name_on(&self, at: usize, prefix: &str) -> String {
        let mut names = (0..).map(|number| format!("{prefix}{number}"));
        names.find(|name| self.owner(self.slot(name)) == at).expect("some name")
    }

    /// Whether this node serves slots, or could.
    pub fn is_master(&self, at: usize) -> bool {
        self.nodes[at].info("replication")["role"] == "master"
    }

    /// Has a replica take over from the master of a slot in good order. Returns both.
    pub fn hand_over(&self, slot: u16) -> (usize, usize) {
        let from = self.owner(slot);
        let master = self.nodes[from].port().to_string();
        let to = (0..self.nodes.len()).find(|at| {
            let info = self.nodes[*at].info("replication");
            info["role"] == "slave" && info["master_port"] == master
        });
        let to = to.expect("the master has a replica");
        let mut asked: Option<Instant> = None;
        wait_until(LIMIT, "the replica to take over", || {
            // it gives up when the votes do not come in time
            if asked.is_none_or(|at| at.elapsed() > Duration::from_secs(6)) {
                let _ = self.nodes[to].try_cmd(&["CLUSTER", "FAILOVER"]);
                asked = Some(Instant::now());
            }
            self.owner_seen_by(&self.nodes[to], slot) == Some(to)
        });
        self.wait_moved(slot, from);
        (from, to)
    }

    /// The node that keeps a key.
    pub fn keeper(&self, key: &str) -> &Server {
        &self.nodes[self.owner(self.slot(key))]
    }

    /// Carries out a command as if this were one server: where its key is, or everywhere, with the replies joined.
    ///
    /// # Errors
    /// What a node refused.
    pub fn command(&self, words: &[String]) -> Result<Value, String> {
        let everywhere = |words: &[String]| -> Result<Vec<Value>, String> {
            let masters = self.nodes.iter().filter(|node| node.info("replication")["role"] == "master");
            masters.map(|node| node.try_cmd(words)).collect()
        };
        let key = if words[0] == "EVAL" { words.get(3) } else { words.get(1) };
        match (words[0].as_str(), key) {
            ("FLUSHALL", _) => Ok(everywhere(words)?.swap_remove(0)),
            ("KEYS", _) => Ok(joined(everywhere(words)?)),
            // what is announced is announced on sharded channels
            ("PUBLISH", Some(channel)) => {
                self.keeper(channel).try_cmd(&[&["SPUBLISH".to_owned()], &words[1..]].concat())
            }
            ("PUBSUB", Some(what)) => {
                let word = format!("SHARD{what}");
                let words = [&["PUBSUB".to_owned(), word], &words[2..]].concat();
                match words.get(2) {
                    Some(channel) => self.keeper(channel).try_cmd(&words),
                    None => Ok(joined(everywhere(&words)?)),
                }
            }
            ("EXISTS" | "DEL", _) => {
                let one = |key: &String| self.keeper(key).try_cmd(&[&words[0], key]);
                let counts: Vec<Value> = words[1..].iter().map(one).collect::<Result<_, _>>()?;
                let count = |value: &Value| if let Value::Int(count) = value { *count } else { 0 };
                Ok(Value::Int(counts.iter().map(count).sum()))
            }
            (_, Some(key)) => self.keeper(key).try_cmd(words),
            (_, None) => Err("a command without a key".to_owned()),
        }
    }

    /// Waits until every node that runs says that all is well.
    pub fn wait_whole(&self) {
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            wait_until(LIMIT, "the cluster to be whole", || {
                let info = node.text(&["CLUSTER", "INFO"]);
                let nodes = format!("cluster_known_nodes:{}", self.nodes.len());
                info.contains("cluster_state:ok") && info.contains(&nodes)
            });
        }
    }

    /// Waits until every node that runs sees the same masters, slots, replicas and epochs, and no two masters have one epoch.
    pub fn wait_agreed(&self) {
        wait_until(LIMIT, "the nodes to agree", || {
            let running = self.nodes.iter().filter(|node| node.is_running());
            let views: Option<Vec<_>> =
                running.map(|node| Some((replicas_seen_by(node)?, masters_seen_by(node)?))).collect();
            let Some(views) = views else { return false };
            let epochs: BTreeSet<&str> = views[0].1.iter().map(|master| master.epoch.as_str()).collect();
            epochs.len() == views[0].1.len() && views.iter().all(|view| *view == views[0])
        });
    }

    /// Begins to move a slot: both nodes know, the keys are still where they were. Waits before until the nodes agree: after
    /// two moves in quick succession two nodes can name each other as the owner of a slot, and never find out.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        self.wait_agreed();
        let (slot, source, target) = (slot.to_string(), self.id(from), self.id(to));
        self.nodes[to].cmd(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        self.nodes[from].cmd(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    }

    /// Moves the keys of a slot that are there, and returns how many there were.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) -> usize {
        let (slot, port) = (slot.to_string(), self.nodes[to].port().to_string());
        let mut moved = 0;
        loop {
            let Value::Array(keys) = self.nodes[from].cmd(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]) else {
                panic!("no list of keys")
            };
            if keys.is_empty() {
                return moved;
            }
            for key in keys {
                let Value::BulkString(key) = key else { panic!("a key is a string") };
                let words: [&[u8]; 6] = [b"MIGRATE", b"127.0.0.1", port.as_bytes(), &key, b"0", b"5000"];
                // gone meanwhile: NOKEY
                self.nodes[from].cmd(&words);
                moved += 1;
            }
        }
    }

    /// Ends the move of a slot whose keys have been moved.
    pub fn end_move(&self, slot: u16, to: usize) {
        let (slot, target) = (slot.to_string(), self.id(to));
        // the new owner first, so that there is one at every moment; replicas hear it from their masters
        let masters = (0..self.nodes.len()).filter(|at| *at != to);
        for at in std::iter::once(to).chain(masters) {
            let node = &self.nodes[at];
            if node.is_running() {
                let _ = node.try_cmd(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
            }
        }
    }

    /// Moves a slot with everything in it.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, to);
    }

    /// Waits until another node than `before` serves the slot, and everybody that runs knows.
    pub fn wait_moved(&self, slot: u16, before: usize) -> usize {
        wait_until(LIMIT, "another owner of the slot", || {
            let running = self.nodes.iter().filter(|node| node.is_running());
            let owners: Vec<_> = running.map(|node| self.owner_seen_by(node, slot)).collect();
            owners[0].is_some_and(|owner| owner != before) && owners.iter().all(|owner| *owner == owners[0])
        });
        self.owner(slot)
    }
}

/// A master with slots, as a node sees it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Master {
    id: String,
    epoch: String,
    slots: Vec<String>,
}

/// The masters that serve slots, as this node sees them, in order; `None` when it does not answer.
fn masters_seen_by(node: &Server) -> Option<Vec<Master>> {
    let Ok(reply) = node.try_cmd(&["CLUSTER", "NODES"]) else { return None };
    let reply = text(&reply);
    let master = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _, flags, _, _, _, epoch, _, slots @ ..] = &words[..] else { return None };
        // in brackets: slots on their way, which only their own node knows
        let slots: Vec<String> = slots.iter().filter(|it| !it.starts_with('[')).map(ToString::to_string).collect();
        let serves = flags.split(',').any(|flag| flag == "master") && !slots.is_empty();
        serves.then(|| Master { id: id.to_string(), epoch: epoch.to_string(), slots })
    };
    let mut masters: Vec<Master> = reply.lines().filter_map(master).collect();
    masters.sort();
    Some(masters)
}

/// Every range of slots with the number of nodes that have it, as this node sees it, in order.
fn replicas_seen_by(node: &Server) -> Option<Vec<String>> {
    let Ok(Value::Array(ranges)) = node.try_cmd(&["CLUSTER", "SLOTS"]) else { return None };
    let range = |range: &Value| {
        let Value::Array(items) = range else { return String::new() };
        format!("{} {} {}", text(&items[0]), text(&items[1]), items.len())
    };
    let mut ranges: Vec<String> = ranges.iter().map(range).collect();
    ranges.sort();
    Some(ranges)
}

/// The items of several lists in one.
fn joined(lists: Vec<Value>) -> Value {
    let items = lists.into_iter().flat_map(|list| match list {
        Value::Array(items) => items,
        other => vec![other],
    });
    Value::Array(items.collect())
}
