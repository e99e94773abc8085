//! Finding the server that serves a lock: Sentinel and cluster.
//!
//! | file | is |
//! |---|---|
//! | `sentinel` | the present master of a group, from its Sentinels |
//! | `cluster/` | the store of a cluster: slot map, routing, redirections |
//! | `failover` | repeating a call while a master is being replaced |
//! | `query` | a few commands to one server, on a connection made for them |

pub(crate) mod cluster;
pub(crate) mod failover;
pub(crate) mod query;
pub(crate) mod sentinel;
