//! Independent stores of several kinds, of which a majority keeps a lock: Redis servers, and tables in databases.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::postgres::{Postgres, Session};
use crate::servers::{Flavor, Server};

/// A table of its own in a database that many tests share, and a user of the same name.
pub struct MemberTable {
    name: String,
    port: u16,
    session: Session,
}

impl MemberTable {
    /// A table that is not there yet: its clients make it.
    pub fn new(server: &Postgres) -> MemberTable {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("member_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let session = server.session();
        session.run(&format!("CREATE USER {name} SUPERUSER"));
        MemberTable { name, port: server.port(), session }
    }

    /// Of the table and of the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address for a client.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same through another port, such as that of a proxy.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://{}@127.0.0.1:{port}/postgres?table={}", self.name, self.name)
    }

    /// Runs a statement in which `TABLE` stands for the table: its rows.
    ///
    /// # Panics
    /// When the server refuses it.
    pub fn rows(&self, text: &str) -> Vec<String> {
        self.session.query(&text.replace("TABLE", &self.name)).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Whether somebody has this lock here.
    pub fn has(&self, lock: &str) -> bool {
        let text = format!(
            "SELECT 1 FROM {} WHERE name = '{lock}' AND owner IS NOT NULL AND expires_us > \
             extract(epoch FROM clock_timestamp()) * 1000000",
            self.name
        );
        // there is no table before anything was done
        self.session.query(&text).is_ok_and(|rows| !rows.is_empty())
    }

    /// The fencing counter of this lock.
    pub fn fence(&self, lock: &str) -> Option<u64> {
        let rows = self.session.query(&format!("SELECT fence FROM {} WHERE name = '{lock}'", self.name));
        rows.ok()?.first()?.parse().ok()
    }

    /// Locks that are still held by somebody, and connections.
    pub fn leftovers(&self) -> Vec<String> {
        let held = format!(
            "SELECT encode(name, 'escape') FROM {} WHERE owner <> 'onelock1:released' AND expires_us > \
             extract(epoch FROM clock_timestamp()) * 1000000",
            self.name
        );
        let mut left = self.session.query(&held).unwrap_or_default();
        left.extend(
            self.rows(&format!("SELECT 'connection ' || query FROM pg_stat_activity WHERE usename = '{}'", self.name)),
        );
        left
    }
}

/// Stores that know nothing of each other.
pub struct Mixed {
    /// The Redis servers.
    pub servers: Vec<Server>,
    /// The tables, one in each database.
    pub tables: Vec<MemberTable>,
}

impl Mixed {
    /// So many servers without persistence, and a table in each of these databases.
    pub fn start(servers: usize, databases: &[&Postgres]) -> Mixed {
        let servers = (0..servers).map(|_| Server::start(Flavor::Valkey91)).collect();
        Mixed { servers, tables: databases.iter().map(|server| MemberTable::new(server)).collect() }
    }

    /// All addresses, separated by spaces. They vote at once for a client whose quarantine is zero.
    pub fn url(&self) -> String {
        let servers = self.servers.iter().map(Server::url);
        servers.chain(self.tables.iter().map(MemberTable::url)).collect::<Vec<_>>().join(" ")
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.servers.len() + self.tables.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// On how many of those that run a lock stands.
    pub fn count(&self, name: &str) -> usize {
        let servers = self.servers.iter().filter(|server| server.is_running());
        servers.filter(|server| server.int(&["EXISTS", name]) == 1).count()
            + self.tables.iter().filter(|table| table.has(name)).count()
    }

    /// The fencing counters of a lock, where there are any.
    pub fn fences(&self, name: &str) -> Vec<u64> {
        let key = format!("onelock_fence:{{{name}}}");
        let servers = self.servers.iter().filter(|server| server.is_running());
        let counters = servers.filter_map(|server| server.text(&["GET", &key]).parse().ok());
        counters.chain(self.tables.iter().filter_map(|table| table.fence(name))).collect()
    }
}
