//! Several servers that belong together.

mod cluster;
mod group;

pub use cluster::Cluster;
pub use group::{GROUP, Group};
