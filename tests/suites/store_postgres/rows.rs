//! Rows: locked by strangers, removed, old ones, and many clients at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::{ErrorKind, LossReason, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::stage::{SOON, fails, ms, quick, unhurried};
use onelock_tests::wait::wait_until;

use crate::place::{Table, is_free, server};

#[test]
fn a_row_that_a_stranger_keeps_locked_delays_nobody_for_long() {
    on_both(|face| {
        let table = Table::new();
        let client = table.client_with(face, quick().request_timeout(ms(800)));
        assert!(is_free(&client, "stuck"));
        let held = client.lock("held").ttl(ms(3000)).renew_every(ms(100)).acquire().unwrap();
        let stuck = client.lock("kept").ttl(ms(60_000)).renew_every(ms(100)).acquire().unwrap();
        let stranger = server().session();
        stranger.run(&format!("BEGIN; SELECT * FROM {} WHERE name IN ('stuck', 'kept') FOR UPDATE", table.name));
        let begun = Instant::now();
        let error = fails(client.lock("stuck").try_acquire(), ErrorKind::ServerRefused);
        assert!(begun.elapsed() < SOON && error.to_string().contains("another transaction"), "{error}");
        assert!(is_free(&client, "other"), "others are not in its way");
        std::thread::sleep(ms(3200));
        assert!(held.is_held(), "renewed in one statement with a row that is locked");
        assert!(stuck.is_held(), "its own time is not over");
        stranger.run("ROLLBACK");
        wait_until(SOON, "cleanup", || client.stats().cleaning == 0);
        assert!(is_free(&client, "stuck"));
        assert_eq!((held.released(), stuck.released()), (Release::Released, Release::Released));
        client.close();
    });
}

#[test]
fn a_row_or_table_that_is_removed_ends_the_lease_and_its_number_grows() {
    on_both(|face| {
        let table = Table::new();
        let client = table.client(face);
        let mut last = 0;
        for remove in ["DELETE FROM", "TRUNCATE", "DROP TABLE"] {
            let lease = client.lock("a").ttl(ms(1500)).acquire().unwrap();
            assert!(lease.fence() > last, "{remove}");
            last = lease.fence();
            table.session.run(&format!("{remove} {}", table.name));
            assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken), "{remove}");
            let next = client.lock("a").acquire().unwrap();
            assert!(next.fence() > last, "{remove}");
            last = next.fence();
            assert_eq!(next.released(), Release::Released);
        }
        client.close();
    });
}

#[test]
fn rows_that_nobody_used_for_seven_days_are_removed() {
    let table = Table::new();
    let client = table.client(Face::Blocking);
    assert!(client.check().is_ok());
    for (name, days, owner) in [("old", 8, "NULL"), ("dead", 8, "'somebody'"), ("young", 6, "NULL")] {
        table.run(&format!(
            "INSERT INTO TABLE SELECT '{name}', 1, {owner}, 0, us, 1, true, NULL, us FROM (SELECT \
             (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - {days} * 86400000000 AS us) t"
        ));
    }
    assert!(is_free(&client, "a"));
    let names = || table.rows("SELECT encode(name, 'escape') FROM TABLE ORDER BY name");
    wait_until(SOON, "the old rows to go", || names() == ["a", "young"]);
    client.close();
}

#[test]
fn nobody_is_told_of_a_release_for_which_nobody_waits() {
    let table = Table::new();
    let (client, other) = (table.client(Face::Blocking), table.client(Face::Async));
    assert!(is_free(&client, "alone"));
    let marked = |name: &str| table.rows(&format!("SELECT 1 FROM TABLE WHERE name = '{name}' AND waited_us > 0")).len();
    assert_eq!(marked("alone"), 0);
    let lease = client.lock("waited").acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| other.lock("waited").acquire_within(SOON).unwrap());
        wait_until(SOON, "the mark", || marked("waited") == 1);
        let begun = Instant::now();
        assert_eq!(lease.released(), Release::Released);
        waiter.join().unwrap().released();
        assert!(begun.elapsed() < ms(500), "it was told: {:?}", begun.elapsed());
    });
    // one listens for all, and only while somebody waits
    wait_until(SOON, "the listener to end", || table.connections().len() <= 2);
    client.close();
    other.close();
    wait_until(SOON, "the connections to end", || table.connections().is_empty());
}

#[test]
fn many_clients_at_once_never_overlap() {
    let table = Table::new();
    let (inside, last, grants) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (table, inside, last, grants) = (&table, &inside, &last, &grants);
            scope.spawn(move || {
                let client = table.client(Face::ALL[number % 2]);
                while begun.elapsed() < Duration::from_secs(2) {
                    let lease = client.lock("hot").acquire().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    assert!(last.swap(lease.fence(), Ordering::SeqCst) < lease.fence());
                    grants.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(lease.released(), Release::Released);
                }
                client.close();
            });
        }
    });
    assert!(grants.load(Ordering::SeqCst) > 50, "{grants:?}");
}

#[test]
fn the_table_is_the_one_in_the_documents() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let statement = read("core/src/store/postgres/sql/table.sql").replace("{table}", "\"onelock_locks\"");
    let (_, statement) = statement.split_once('\n').unwrap();
    assert!(read("PROTOCOL.md").contains(statement), "{statement}");
    for file in std::fs::read_dir(root.join("core/src/store/postgres/sql")).unwrap() {
        let name = file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(name == "table" || read("PROTOCOL.md").contains(&format!("`{name}`")), "{name}");
    }
    // run by hand, it is the one that a client expects
    let table = Table::new();
    table.session.run(&statement.replace("\"onelock_locks\"", &table.name));
    let client = Client::build(Face::Blocking, unhurried(), &format!("{}&ddl=expect", table.url())).unwrap();
    assert!(is_free(&client, "a"));
    client.close();
}
