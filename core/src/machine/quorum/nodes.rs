//! Sets of nodes.

use std::fmt;

/// The most nodes a quorum may have.
pub const NODES_MAX: usize = 9;

/// A set of nodes, by their place in the list of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NodeSet(u16);

impl NodeSet {
    /// No node.
    pub const NONE: NodeSet = NodeSet(0);
    /// Every node, however many there are.
    pub const ALL: NodeSet = NodeSet(u16::MAX);

    /// The first `count` nodes.
    pub const fn first(count: usize) -> NodeSet {
        NodeSet(((1_u32 << count) - 1) as u16)
    }

    /// Whether the set has this node.
    pub const fn has(self, node: usize) -> bool {
        self.0 & (1 << node) != 0
    }

    /// The set and this node.
    #[must_use]
    pub const fn with(self, node: usize) -> NodeSet {
        NodeSet(self.0 | (1 << node))
    }

    /// The set without this node.
    #[must_use]
    pub const fn without(self, node: usize) -> NodeSet {
        NodeSet(self.0 & !(1 << node))
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & other.0)
    }

    /// What is in either.
    #[must_use]
    pub const fn or(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 | other.0)
    }

    /// What is in this one and not in the other.
    #[must_use]
    pub const fn but(self, other: NodeSet) -> NodeSet {
        NodeSet(self.0 & !other.0)
    }

    /// How many there are.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..16).filter(move |node| self.has(*node))
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> NodeSet {
        nodes.into_iter().fold(NodeSet::NONE, NodeSet::with)
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
