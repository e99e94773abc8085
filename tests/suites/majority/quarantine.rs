//! Members that come back without their data, with other data, and with their own.

use std::time::Duration;

use onelock::Error;
use onelock_tests::face::{Client, Lease, on_both};
use onelock_tests::postgres::Postgres;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, ms, unhurried};
use onelock_tests::topology::{MemberTable, Mixed};
use onelock_tests::wait::wait_until;

use crate::place::mixture;

const QUARANTINE: Duration = Duration::from_secs(5);
/// Shorter, as it has to be; long enough for a server to be made meanwhile.
const TTL: Duration = Duration::from_secs(4);
const BARRED: &str = "does not vote for another";

/// Two members that never forget, and a table of this server.
fn with_own(own: &Postgres, servers: usize) -> Mixed {
    let keeping = || Server::builder(Flavor::Valkey91).aof("always").start();
    Mixed { servers: (0..servers).map(|_| keeping()).collect(), tables: vec![MemberTable::new(own)] }
}

/// Asks until nobody is barred any more who was just set up.
fn settled(client: &Client) {
    wait_until(SOON, "who is new votes", || client.lock("first").try_acquire().is_ok_and(|lease| lease.is_some()));
}

fn is_barred(result: &Result<Option<Lease>, Error>) -> bool {
    match result {
        Err(error) => error.causes().iter().any(|cause| cause.contains(BARRED)) || error.to_string().contains(BARRED),
        Ok(_) => false,
    }
}

/// Two of three hold a lock, and the database forgets it: an honest majority would be the two that know nothing. `forget` is
/// given the table.
fn forgets(forget: impl Fn(&Postgres, &MemberTable) + Sync) {
    on_both(|face| {
        let own = Postgres::with(&["fsync=on"]);
        let mixed = with_own(&own, 2);
        let connect = || Client::build(face, unhurried().quarantine(QUARANTINE), &mixed.url()).unwrap();
        let (client, rival) = (connect(), connect());
        settled(&client);
        // without the database there is no majority, so the rival has met it
        mixed.servers[0].kill();
        settled(&rival);
        mixed.servers[0].restart();
        mixed.servers[1].kill();
        let lease = client.lock("a").ttl(TTL).acquire_within(SOON).unwrap();
        assert_eq!(mixed.count("a"), 2);
        forget(&own, &mixed.tables[0]);
        // whoever is granted it now is so by the one that forgot
        mixed.servers[0].kill();
        mixed.servers[1].restart();
        wait_until(SOON, "somebody says why", || {
            let tried = rival.lock("a").try_acquire();
            assert!(!(matches!(tried, Ok(Some(_))) && lease.is_held()), "granted to a second holder");
            is_barred(&tried)
        });
        drop(lease);
        wait_until(SOON, "votes again after its quarantine", || {
            rival.lock("a").try_acquire().is_ok_and(|lease| lease.is_some())
        });
        rival.close();
        client.close();
    });
}

#[test]
fn a_database_whose_disk_was_exchanged_does_not_vote_until_its_quarantine_is_over() {
    forgets(|own, table| {
        own.wipe();
        own.session().run(&format!("CREATE USER {} SUPERUSER", table.name()));
    });
}

#[test]
fn a_table_that_was_made_anew_counts_as_other_data() {
    forgets(|own, table| own.session().run(&format!("DROP TABLE {}", table.name())));
}

/// Nobody sees that the table was gone: its vote tells that it is another one.
#[test]
fn a_table_that_somebody_put_in_place_of_another_counts_as_other_data() {
    forgets(|own, table| {
        let name = table.name();
        own.session().run(&format!(
            "BEGIN; CREATE TABLE {name}_new (LIKE {name} INCLUDING ALL); DROP TABLE {name}; \
             ALTER TABLE {name}_new RENAME TO {name}; COMMIT"
        ));
    });
}

#[test]
fn a_database_that_keeps_its_data_votes_as_soon_as_it_is_back() {
    on_both(|face| {
        let own = Postgres::with(&["fsync=on"]);
        let mixed = with_own(&own, 2);
        let client = Client::build(face, unhurried().quarantine(QUARANTINE), &mixed.url()).unwrap();
        settled(&client);
        // from now on the database is needed
        mixed.servers[1].kill();
        let lease = client.lock("a").acquire_within(SOON).unwrap();
        own.restart();
        assert_eq!(mixed.tables.len(), 1);
        let rival = Client::build(face, unhurried().quarantine(ms(0)), &mixed.url()).unwrap();
        wait_until(SOON, "a refusal by both", || match rival.lock("a").try_acquire() {
            Ok(None) => true,
            Ok(Some(_)) => panic!("granted to a second holder"),
            Err(_) => false,
        });
        lease.released();
        wait_until(SOON, "the next lease", || {
            let tried = client.lock("a").try_acquire();
            assert!(!is_barred(&tried), "{:?}", tried.err());
            tried.is_ok_and(|lease| lease.is_some())
        });
        rival.close();
        client.close();
    });
}

#[test]
fn a_database_that_may_just_have_forgotten_is_barred_from_the_beginning() {
    on_both(|face| {
        // fsync is off there, or they are as young as this test
        let mixed = mixture(0, 3);
        let client = Client::build(face, unhurried().quarantine(Duration::from_secs(86_400)), &mixed.url()).unwrap();
        wait_until(SOON, "all were asked", || is_barred(&client.lock("a").try_acquire()));
        client.close();
    });
}
