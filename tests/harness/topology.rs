//! Several servers that belong together.

mod cluster;
mod directed;
mod group;
mod mixed;
mod several;

pub use cluster::Cluster;
pub use directed::Directed;
pub use group::{GROUP, Group};
pub use mixed::{MemberTable, Mixed};
pub use several::Several;
