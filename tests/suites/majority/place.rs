//! Mixtures of stores. The databases are those of all tests that do not break them; each test has tables of its own.

use std::sync::LazyLock;
use std::time::Duration;

use onelock::ClientBuilder;
use onelock_tests::face::{Client, Face, side_by_side};
use onelock_tests::postgres::Postgres;
use onelock_tests::stage::{SOON, unhurried};
use onelock_tests::topology::Mixed;
use onelock_tests::wait::wait_until;

static DATABASES: LazyLock<[Postgres; 3]> = LazyLock::new(|| {
    std::thread::scope(|scope| [(); 3].map(|()| scope.spawn(Postgres::start)).map(|started| started.join().unwrap()))
});

pub(crate) fn database(number: usize) -> &'static Postgres {
    &DATABASES[number]
}

/// So many Redis servers and so many databases.
pub(crate) fn mixture(servers: usize, databases: usize) -> Mixed {
    Mixed::start(servers, &DATABASES.iter().take(databases).collect::<Vec<_>>())
}

/// Options with which servers that were just started vote at once.
pub(crate) fn fresh() -> ClientBuilder {
    unhurried().quarantine(Duration::ZERO)
}

/// Runs a test on every mixture with both faces.
pub(crate) fn everywhere(test: impl Fn(&Mixed, Face) + Sync) {
    let mut cases = Vec::new();
    for (servers, databases) in [(2, 1), (1, 2), (0, 3)] {
        for face in Face::ALL {
            cases.push((format!("{servers} servers, {databases} databases, {face:?}"), (servers, databases, face)));
        }
    }
    side_by_side(&cases, |(servers, databases, face)| test(&mixture(*servers, *databases), *face));
}

/// A client that is connected to all: whoever is just being connected to is done without.
pub(crate) fn client(face: Face, mixed: &Mixed) -> Client {
    let client = Client::connect(face, fresh(), &mixed.url()).unwrap();
    wait_until(SOON, "connections to all", || {
        let lease = client.lock("first").acquire().unwrap();
        let all = mixed.count("first") == mixed.len();
        lease.released();
        all
    });
    client
}
