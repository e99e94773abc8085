//! Listing what stands in a cluster: master by master, in the order of their addresses.

use std::sync::Arc;

use futures_util::future::join_all;

use super::map::ClusterTopology;
use crate::machine::{Failure, Key, Kind, Time, naming};
use crate::store::redis::command::call::Announce;
use crate::store::redis::connection::socket::no_connection_in_time;
use crate::store::redis::node::{Node, scan};
use crate::store::{Scan, Scanned, foreign_cursor};
use crate::sys::clock;
use crate::sys::task;

/// One step on one master. A cursor is `<address>/<its own>`; of a master that is gone, the scan goes on with the next.
pub(super) async fn step(topology: &Arc<ClusterTopology>, scan: &Scan, until: Time) -> Result<Scanned, Failure> {
    if scan.cursor.is_none() || topology.map().nodes.is_empty() {
        refresh(topology, until).await?;
    }
    let (from, cursor) = match &scan.cursor {
        None => ("", scan::ENDS),
        Some(cursor) => cursor.rsplit_once('/').ok_or_else(foreign_cursor)?,
    };
    let nodes = masters(topology);
    let Some((node, after)) = from_on(&nodes, from) else { return Ok(Scanned { keys: Vec::new(), next: None }) };
    let cursor = if node.context.name == from { cursor } else { scan::ENDS };
    match scan::scan(node, scan, cursor, until).await {
        Ok((keys, next)) => {
            let next = next.map(|next| format!("{}/{next}", node.context.name));
            let following = || after.first().map(|node| format!("{}/{}", node.context.name, scan::ENDS));
            Ok(Scanned { keys, next: next.or_else(following) })
        }
        Err(failure) if scan::is_refusal(&failure) => Err(failure),
        Err(failure) => {
            // replaced by another one: what it served is listed there, if that comes later
            refresh(topology, until).await.map_err(|_| failure.clone())?;
            if masters(topology).iter().any(|master| Arc::ptr_eq(master, node)) {
                return Err(failure);
            }
            let next = Some(format!("{}/{}", node.context.name, scan::ENDS));
            Ok(Scanned { keys: Vec::new(), next })
        }
    }
}

fn masters(topology: &ClusterTopology) -> Vec<Arc<Node>> {
    let mut nodes = topology.map().nodes.clone();
    nodes.sort_by(|one, other| one.context.name.cmp(&other.context.name));
    nodes
}

/// The first node whose name is not before `name`, and those behind it.
fn from_on<'a>(nodes: &'a [Arc<Node>], name: &str) -> Option<(&'a Arc<Node>, &'a [Arc<Node>])> {
    nodes[nodes.partition_point(|node| node.context.name.as_str() < name)..].split_first()
}

async fn refresh(topology: &ClusterTopology, until: Time) -> Result<(), Failure> {
    let begun = clock::now();
    let refreshed = task::timeout(until.since(begun), topology.refresh(begun)).await;
    refreshed.unwrap_or_else(|_| Err(no_connection_in_time(&topology.name)))
}

/// Told where waiting goes over sharded channels alone: a node counts no listeners on classic ones but its own.
pub(super) async fn listening(topology: &Arc<ClusterTopology>, locks: &[(Kind, Key)], until: Time) -> Vec<Option<u64>> {
    if topology.announce() != Announce::Sharded {
        return vec![None; locks.len()];
    }
    let told = locks.iter().map(|lock| async move {
        let node = topology.owner(naming::slot(&lock.1))?;
        scan::listening(&node, "SHARDNUMSUB", std::slice::from_ref(lock), until).await.pop().flatten()
    });
    join_all(told).await
}
