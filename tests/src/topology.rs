//! Several servers that belong together.

mod cluster;
mod group;
mod several;

pub use cluster::Cluster;
pub use group::{GROUP, Group};
pub use several::Several;
