//! Two servers and a Sentinel that decides nothing by itself, so that a hand-over happens step by step.

use std::time::Duration;

use super::GROUP;
use crate::resp::encode;
use crate::servers::{Flavor, Server};
use crate::wait::wait_until;

const LIMIT: Duration = Duration::from_secs(30);

/// Two servers, and one Sentinel that names the master that it is told.
pub struct Directed {
    /// The servers. The first one is the master at the beginning.
    pub servers: [Server; 2],
    sentinel: Server,
}

impl Directed {
    /// The Sentinel names the first of the servers.
    pub fn start(flavor: Flavor) -> Directed {
        let master = Server::start(flavor);
        let replica = Server::builder(flavor).config("replicaof", &format!("127.0.0.1 {}", master.port())).start();
        let servers = [master, replica];
        wait_until(LIMIT, "the replica's data", || servers[1].info("replication")["master_link_status"] == "up");
        let watched = format!("monitor {GROUP} 127.0.0.1 {} 99", servers[0].port());
        let patient = format!("down-after-milliseconds {GROUP} 600000");
        let sentinel =
            Server::builder(flavor).sentinel().config("sentinel", &watched).config("sentinel", &patient).start();
        Directed { servers, sentinel }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{GROUP}", self.sentinel.port())
    }

    /// This server becomes a replica of the other one, which has everything by then. The Sentinel goes on naming the one
    /// that it named before.
    pub fn demote(&self, number: usize) {
        let (old, new) = (&self.servers[number], &self.servers[1 - number]);
        let offset = |server: &Server| server.info("replication")["master_repl_offset"].clone();
        wait_until(LIMIT, "the replica to have everything", || offset(old) == offset(new));
        new.cmd(&["REPLICAOF", "NO", "ONE"]);
        old.cmd(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    }

    /// The Sentinel names this server from now on. Nothing is announced.
    pub fn name(&self, number: usize) {
        let port = self.servers[number].port().to_string();
        let words: [&[&str]; 3] = [
            &["SENTINEL", "REMOVE", GROUP],
            &["SENTINEL", "MONITOR", GROUP, "127.0.0.1", &port, "99"],
            &["SENTINEL", "SET", GROUP, "down-after-milliseconds", "600000"],
        ];
        // all at once, so that nobody is told in between that there is no such group
        let bytes: Vec<u8> = words.iter().flat_map(|words| encode(words)).collect();
        let mut connection = self.sentinel.connect();
        connection.send_raw(&bytes).expect("the Sentinel listens");
        for _ in words {
            connection.read().expect("the Sentinel answers");
        }
    }

    /// How many writes this server refused because it is a replica.
    pub fn refused(&self, number: usize) -> u64 {
        let stats = self.servers[number].info("errorstats");
        stats.get("errorstat_READONLY").and_then(|line| line.rsplit('=').next()?.parse().ok()).unwrap_or(0)
    }
}
