//! The stores under test, by their addresses. Each is started once; every test has a prefix of its own there.

use std::sync::LazyLock;

use onelock::ClientBuilder;
use onelock::store::SharedStore;
use onelock_tests::etcd::Etcd;
use onelock_tests::face::{Client, Face, side_by_side};
use onelock_tests::memcached::Memcached;
use onelock_tests::postgres::Postgres;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::unhurried;
use onelock_tests::topology::{Cluster, Mixed, Several};

/// The address of a store, and what it stands on: ends with the process.
struct Running {
    name: String,
    url: String,
    _servers: Box<dyn Send + Sync>,
}

static RUNNING: LazyLock<Vec<Running>> = LazyLock::new(|| {
    let running = |name: &str, url: String, servers: Box<dyn Send + Sync>| Running {
        name: name.to_owned(),
        url,
        _servers: servers,
    };
    let mut all = vec![running("memory", "memory://contract".to_owned(), Box::new(()))];
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let url = format!("file://{}", directory.path().display());
    all.push(running("file", url, Box::new(directory)));
    let memcached = Memcached::start();
    all.push(running("memcached", memcached.url(), Box::new(memcached)));
    let (postgres, second) = (Postgres::start(), Postgres::start());
    let mixed = Mixed::start(1, &[&postgres, &second]);
    all.push(running("mixture", mixed.url(), Box::new((mixed.servers, second))));
    all.push(running("postgres", postgres.url(""), Box::new(postgres)));
    let etcd = Etcd::start();
    all.push(running("etcd", etcd.url("/contract/"), Box::new(etcd)));
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        all.push(running(&format!("redis {flavor:?}"), server.url(), Box::new(server)));
    }
    let several = Several::start(Flavor::Valkey91, 3);
    all.push(running("redlock", several.url("quarantine_ms=0"), Box::new(several)));
    let cluster = Cluster::patient(Flavor::Valkey91);
    all.push(running("cluster", cluster.url(), Box::new(cluster)));
    all
});

/// Options with which servers that were just started vote at once, where stores vote.
fn fresh() -> ClientBuilder {
    unhurried().quarantine(std::time::Duration::ZERO)
}

/// A store, as one test sees it.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) url: String,
    /// What the names of all its locks begin with.
    pub(crate) test: String,
}

impl Place {
    /// A store of its own at this place: another client, as far as the place can tell.
    pub(crate) fn store(&self) -> SharedStore {
        fresh().open_store(&self.url).unwrap()
    }

    /// Options of a client with the test's prefix.
    pub(crate) fn options(&self) -> ClientBuilder {
        fresh().prefix(&self.test)
    }

    pub(crate) fn client(&self, face: Face) -> Client {
        Client::build(face, self.options(), &self.url).unwrap()
    }
}

/// Runs a test on every store, side by side.
pub(crate) fn everywhere(test_name: &str, test: impl Fn(&Place) + Sync) {
    let place = |running: &Running| Place {
        name: running.name.clone(),
        url: running.url.clone(),
        test: format!("{test_name}:"),
    };
    let cases: Vec<_> = RUNNING.iter().map(|running| (running.name.clone(), place(running))).collect();
    side_by_side(&cases, test);
}

/// The same with each face in turn.
pub(crate) fn on_both(test_name: &str, test: impl Fn(&Place, Face) + Sync) {
    everywhere(test_name, |place| Face::ALL.into_iter().for_each(|face| test(place, face)));
}
