//! Which node serves which slot, as one of the nodes told it.

use std::sync::Arc;

use redis::Value;

use super::super::node::Node;
use super::super::value::text;
use crate::machine::naming::SLOTS;

const NOBODY: u16 = u16::MAX;

/// Where the slots are. Never changed: a new one takes its place.
pub(super) struct Map {
    /// Grows from map to map.
    pub(super) version: u64,
    /// The masters.
    pub(super) nodes: Vec<Arc<Node>>,
    /// For each slot, the position of its master.
    owners: Box<[u16]>,
    /// Whether the nodes know sharded channels.
    pub(super) sharded: bool,
}

impl Map {
    /// Before anybody was asked.
    pub(super) fn empty() -> Map {
        Map::new(0, false)
    }

    pub(super) fn new(version: u64, sharded: bool) -> Map {
        let owners = vec![NOBODY; usize::from(SLOTS)].into_boxed_slice();
        Map { version, nodes: Vec::new(), owners, sharded }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        self.nodes.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// Gives slots to a node.
    pub(super) fn give(&mut self, from: u16, to: u16, node: &Arc<Node>) {
        let at = self.nodes.iter().position(|known| Arc::ptr_eq(known, node)).unwrap_or_else(|| {
            self.nodes.push(node.clone());
            self.nodes.len() - 1
        });
        if let Some(slots) = self.owners.get_mut(usize::from(from)..=usize::from(to)) {
            slots.fill(at as u16);
        }
    }

    /// The next map, in which one slot has another master.
    pub(super) fn with(&self, slot: u16, node: &Arc<Node>) -> Map {
        let (nodes, owners) = (self.nodes.clone(), self.owners.clone());
        let mut next = Map { version: self.version + 1, nodes, owners, sharded: self.sharded };
        next.give(slot, slot, node);
        next
    }

    /// Whether every slot has a master.
    pub(super) fn is_whole(&self) -> bool {
        !self.owners.contains(&NOBODY)
    }
}

/// A range of slots, its master, and everybody else who could be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) master: (String, u16),
    pub(super) replicas: Vec<(String, u16)>,
}

/// Reads the reply to `CLUSTER SLOTS`. `here` is who answers: a node that doesn't know its own name leaves it out.
pub(super) fn read(reply: &Value, here: &str) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(|range| read_range(range, here)).collect()
}

fn read_range(range: &Value, here: &str) -> Option<Range> {
    let Value::Array(items) = range else { return None };
    let [Value::Int(from), Value::Int(to), master, replicas @ ..] = &items[..] else { return None };
    let slot = |number: i64| u16::try_from(number).ok().filter(|slot| *slot < SLOTS);
    Some(Range {
        from: slot(*from)?,
        to: slot(*to)?,
        master: place(master, here)?,
        replicas: replicas.iter().filter_map(|replica| place(replica, here)).collect(),
    })
}

fn place(node: &Value, here: &str) -> Option<(String, u16)> {
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
        let range = |from, to, host: &str, port, replicas: Vec<(String, u16)>| Range {
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
