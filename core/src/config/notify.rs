//! How releases are announced in a cluster.

/// How the releases of locks in a cluster are announced to waiters.
///
/// All clients of a lock must have one way in common; otherwise waiters find out by polling. Outside a cluster releases
/// are always announced on classic channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notify {
    /// Sharded channels where the cluster has them (7.0 and newer), else classic ones; as Redisson 3.22 and newer do.
    #[default]
    Auto,
    /// Classic channels, which every node repeats to every other.
    Classic,
    /// Sharded channels, which stay on the nodes of their slot.
    Sharded,
    /// Both at once: for a migration during which clients use different ways.
    Both,
}

impl Notify {
    /// Every way, in the order of the documentation.
    pub const ALL: [Notify; 4] = [Notify::Auto, Notify::Classic, Notify::Sharded, Notify::Both];

    /// The word for options in every language: `auto`, `classic`, `sharded` or `both`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Notify::Auto => "auto",
            Notify::Classic => "classic",
            Notify::Sharded => "sharded",
            Notify::Both => "both",
        }
    }
}
