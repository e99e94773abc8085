//! A table of its own for each test, on one server for all that do not break it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use onelock::ClientBuilder;
use onelock_tests::face::{Client, Face};
use onelock_tests::postgres::{Postgres, Session};
use onelock_tests::stage::unhurried;

static SERVER: LazyLock<Postgres> = LazyLock::new(Postgres::start);
static NUMBER: AtomicU32 = AtomicU32::new(0);

pub(crate) fn server() -> &'static Postgres {
    &SERVER
}

/// A table on the server of all, and a superuser of the same name.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) session: Session,
}

impl Table {
    pub(crate) fn new() -> Table {
        let name = format!("locks_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let session = server().session();
        session.run(&format!("CREATE USER {name} SUPERUSER"));
        Table { name, session }
    }

    pub(crate) fn url(&self) -> String {
        self.url_at(server().port())
    }

    /// The same table through another port, such as that of a proxy.
    pub(crate) fn url_at(&self, port: u16) -> String {
        format!("postgres://{}@127.0.0.1:{port}/postgres?table={}", self.name, self.name)
    }

    pub(crate) fn client(&self, face: Face) -> Client {
        self.client_with(face, unhurried())
    }

    pub(crate) fn client_with(&self, face: Face, options: ClientBuilder) -> Client {
        Client::build(face, options, &self.url()).unwrap()
    }

    /// Runs a statement in which `TABLE` stands for the table.
    pub(crate) fn run(&self, text: &str) {
        self.session.run(&text.replace("TABLE", &self.name));
    }

    pub(crate) fn rows(&self, text: &str) -> Vec<String> {
        self.session.query(&text.replace("TABLE", &self.name)).unwrap()
    }

    /// The numbers of the server's processes that serve this user.
    pub(crate) fn connections(&self) -> Vec<String> {
        let text = format!("SELECT pid FROM pg_stat_activity WHERE usename = '{}' ORDER BY pid", self.name);
        self.session.query(&text).unwrap()
    }

    /// Ends all connections of this user, whatever they are doing.
    pub(crate) fn terminate(&self) {
        let text = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{}'", self.name);
        self.session.run(&text);
    }
}

/// Whether nobody has the lock.
pub(crate) fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).try_acquire().unwrap().is_some_and(|lease| lease.release().is_ok())
}
