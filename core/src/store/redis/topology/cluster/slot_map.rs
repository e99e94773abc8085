//! The slot map: which node serves which slot.

use std::sync::Arc;

use redis::Value;

use crate::machine::naming::SLOTS;
use crate::store::redis::node::Node;
use crate::store::redis::resp::value::text;

const NO_OWNER: u16 = u16::MAX;

/// A slot map. Immutable: an update replaces it.
pub(crate) struct SlotMap {
    /// Grows with every map.
    pub(crate) version: u64,
    /// The masters.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// For each slot, the index of its master.
    owners: Box<[u16]>,
    /// Whether the nodes have sharded channels.
    pub(crate) sharded: bool,
}

impl SlotMap {
    /// A map before the first refresh.
    pub(crate) fn empty() -> SlotMap {
        SlotMap::new(0, false)
    }

    pub(crate) fn new(version: u64, sharded: bool) -> SlotMap {
        let owners = vec![NO_OWNER; usize::from(SLOTS)].into_boxed_slice();
        SlotMap { version, nodes: Vec::new(), owners, sharded }
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        self.nodes.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// Assigns slots to a node.
    pub(crate) fn assign(&mut self, from: u16, to: u16, node: &Arc<Node>) {
        let at = self.nodes.iter().position(|known| Arc::ptr_eq(known, node)).unwrap_or_else(|| {
            self.nodes.push(node.clone());
            self.nodes.len() - 1
        });
        if let Some(slots) = self.owners.get_mut(usize::from(from)..=usize::from(to)) {
            slots.fill(at as u16);
        }
    }

    /// The next map, in which one slot has another master.
    pub(crate) fn with_owner(&self, slot: u16, node: &Arc<Node>) -> SlotMap {
        let (nodes, owners) = (self.nodes.clone(), self.owners.clone());
        let mut next = SlotMap { version: self.version + 1, nodes, owners, sharded: self.sharded };
        next.assign(slot, slot, node);
        next
    }

    /// Whether every slot has a master.
    pub(crate) fn is_complete(&self) -> bool {
        !self.owners.contains(&NO_OWNER)
    }
}

/// A range of slots, its master, and its replicas, which can be queried too.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) from: u16,
    pub(crate) to: u16,
    pub(crate) master: (String, u16),
    pub(crate) replicas: Vec<(String, u16)>,
}

/// Reads the reply to `CLUSTER SLOTS`. `here` is the answering node's host: a node that does not know its own leaves it
/// out.
pub(crate) fn read(reply: &Value, here: &str) -> Option<Vec<SlotRange>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(|range| read_range(range, here)).collect()
}

fn read_range(range: &Value, here: &str) -> Option<SlotRange> {
    let Value::Array(items) = range else { return None };
    let [Value::Int(from), Value::Int(to), master, replicas @ ..] = &items[..] else { return None };
    let slot = |number: i64| u16::try_from(number).ok().filter(|slot| *slot < SLOTS);
    Some(SlotRange {
        from: slot(*from)?,
        to: slot(*to)?,
        master: node_address(master, here)?,
        replicas: replicas.iter().filter_map(|replica| node_address(replica, here)).collect(),
    })
}

fn node_address(node: &Value, here: &str) -> Option<(String, u16)> {
    let Value::Array(items) = node else { return None };
    let [host, Value::Int(port), ..] = &items[..] else { return None };
    let host = match text(host) {
        None | Some(b"" | b"?") => here,
        Some(host) => str::from_utf8(host).ok()?,
    };
    Some((host.to_owned(), u16::try_from(*port).ok().filter(|port| *port != 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Value {
        redis::parse_redis_value(text.replace('\n', "\r\n").as_bytes()).unwrap()
    }

    #[test]
    fn ranges_with_and_without_names() {
        let reply = line(
            "*2\n*4\n:0\n:8191\n*3\n$2\nh1\n:7000\n$2\nid\n*3\n$2\nh2\n:7001\n$2\nid\n*3\n:8192\n:16383\n*4\n$-1\n:7002\n$2\nid\n*0\n",
        );
        let ranges = read(&reply, "me").unwrap();
        let range = |from, to, host: &str, port, replicas: Vec<(String, u16)>| SlotRange {
            from,
            to,
            master: (host.to_owned(), port),
            replicas,
        };
        assert_eq!(ranges[0], range(0, 8191, "h1", 7000, vec![("h2".to_owned(), 7001)]));
        assert_eq!(ranges[1], range(8192, 16383, "me", 7002, Vec::new()));
        for odd in ["+OK\n", "*1\n:1\n", "*1\n*3\n:0\n:99999\n*2\n$1\nh\n:1\n", "*1\n*3\n:0\n:1\n*2\n$1\nh\n:0\n"] {
            assert_eq!(read(&line(odd), "me"), None, "{odd}");
        }
    }
}
