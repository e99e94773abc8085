//! Where a run plays: which servers there are, and which faults suit them.

use std::time::Duration;

use crate::proxy::Proxy;
use crate::servers::{Flavor, Server};
use crate::topology::{Cluster, Group, Several};
use crate::wait::wait_until;

/// How long a server that came back empty does not vote: twice the longest lease that a worker asks for.
const QUARANTINE: Duration = Duration::from_secs(3);

/// Where a run plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One server, with a fault proxy in front of it.
    Single,
    /// A master with replicas, behind Sentinels.
    Sentinel,
    /// A cluster of three masters with a replica each.
    Cluster,
    /// Three independent servers that forget everything when they restart, each behind a fault proxy.
    Redlock,
}

/// The servers.
pub(super) enum Ground {
    Single { server: Box<Server>, proxy: Box<Proxy> },
    Group(Box<Group>),
    Cluster(Box<Cluster>),
    Several(Box<Several>),
}

impl Ground {
    pub(super) fn start(place: Place, loses_data: bool) -> Ground {
        let flavor = Flavor::Valkey91;
        match place {
            Place::Single => {
                let builder = Server::builder(flavor);
                let server = if loses_data { builder } else { builder.aof("always") }.start();
                Ground::Single { proxy: Box::new(Proxy::start(&server)), server: Box::new(server) }
            }
            // where nothing may be lost, nobody takes over from a master that is merely slow
            Place::Sentinel => {
                let group = Group::start(flavor);
                if loses_data {
                    group.watch_closely();
                }
                Ground::Group(Box::new(group))
            }
            Place::Cluster if loses_data => Ground::Cluster(Box::new(Cluster::replicated(flavor))),
            Place::Cluster => Ground::Cluster(Box::new(Cluster::with(flavor, 1, |node| node))),
            Place::Redlock => Ground::Several(Box::new(Several::start(flavor, 3))),
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Ground::Single { proxy, .. } => proxy.url(),
            Ground::Group(group) => group.url(),
            Ground::Cluster(cluster) => cluster.url(),
            Ground::Several(several) => several.proxied(&format!("quarantine_ms={}", QUARANTINE.as_millis())),
        }
    }

    /// The server that keeps a lock at present; the first one where it is on several.
    pub(super) fn keeper(&self, name: &str) -> &Server {
        match self {
            Ground::Single { server, .. } => server,
            Ground::Group(group) => group.master(),
            Ground::Cluster(cluster) => cluster.keeper(name),
            Ground::Several(several) => &several.servers[0],
        }
    }

    /// Every server that keeps locks.
    pub(super) fn servers(&self) -> Vec<&Server> {
        match self {
            Ground::Single { server, .. } => vec![server],
            Ground::Group(group) => group.servers.iter().collect(),
            Ground::Cluster(cluster) => cluster.nodes.iter().collect(),
            Ground::Several(several) => several.servers.iter().collect(),
        }
    }

    /// Everything is as it was.
    pub(super) fn heal(&self) {
        match self {
            Ground::Single { proxy, .. } => proxy.heal(),
            Ground::Group(group) => group.wait_calm(),
            Ground::Cluster(cluster) => {
                cluster.wait_whole();
                cluster.wait_agreed();
            }
            Ground::Several(several) => {
                several.proxies.iter().for_each(Proxy::heal);
                for server in &several.servers {
                    // in whole seconds, and rounded down
                    wait_until(4 * QUARANTINE, "the quarantine to be over", || {
                        let uptime = server.info("server")["uptime_in_seconds"].parse::<u64>();
                        uptime.is_ok_and(|seconds| seconds > QUARANTINE.as_secs() + 1)
                    });
                }
            }
        }
    }
}
