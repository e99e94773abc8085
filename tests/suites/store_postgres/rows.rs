//! Rows: locked by strangers, removed, old ones, and many clients at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::machine::{Claim, Kind, Op, Outcome, Renewal, Reply, Time};
use onelock::store::Scan;
use onelock::{ErrorKind, LossReason, Release};
use onelock_tests::face::{Client, Face, block_on, on_both};
use onelock_tests::stage::{SOON, fails, ms, quick, quick_once, unhurried};
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
    let mut names = (0..).map(|number| format!("waited {number}"));
    quick_once(ms(500), "told", || {
        let name = names.next().unwrap();
        let lease = client.lock(&name).acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.lock(&name).acquire_within(SOON).unwrap());
            wait_until(SOON, "the mark", || marked(&name) == 1);
            let begun = Instant::now();
            assert_eq!(lease.released(), Release::Released);
            waiter.join().unwrap().released();
            begun.elapsed()
        })
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

#[test]
fn rows_that_are_locked_fail_alone_and_at_once_in_a_renewal_of_many() {
    let table = Table::new();
    let store = unhurried().open_store(&table.url()).unwrap();
    let ask = |op: Op| block_on(async { store.call(op, Time::MAX).await }).outcome;
    let claims: Vec<Claim> = (0..8)
        .map(|number| {
            let (key, token) = (format!("n{number}"), format!("onelock1:{number:032x}"));
            Claim { kind: Kind::Mutex, key: key.as_bytes().into(), token: token.into() }
        })
        .collect();
    for claim in &claims[..7] {
        let acquire = Op::Acquire { claim: claim.clone(), ttl_ms: 60_000, fence_ttl_ms: None, info: None };
        assert!(matches!(ask(acquire), Outcome::Applied(Reply::Granted { .. })));
    }
    let stranger = server().session();
    stranger.run(&format!("BEGIN; SELECT * FROM {} WHERE name IN ('n1', 'n2', 'n3', 'n4') FOR UPDATE", table.name));
    let renew = || Op::Renew { holds: claims.iter().map(|claim| (claim.clone(), 60_000)).collect() };
    let mut verdicts = Vec::new();
    // the server would wait two seconds for each of them
    quick_once(ms(1500), "a renewal", || {
        let begun = Instant::now();
        let Outcome::Applied(Reply::Renewed(said)) = ask(renew()) else { panic!("one locked row fails them all") };
        verdicts = said;
        begun.elapsed()
    });
    for (at, verdict) in verdicts.iter().enumerate() {
        match at {
            1..=4 => assert!(matches!(verdict, Renewal::Failed(why) if why.contains("locked")), "{verdicts:?}"),
            7 => assert_eq!(*verdict, Renewal::NotMine),
            _ => assert_eq!(*verdict, Renewal::Renewed, "{at}"),
        }
    }
    stranger.run("ROLLBACK");
    let Outcome::Applied(Reply::Renewed(verdicts)) = ask(renew()) else { panic!() };
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == Renewal::Renewed).count(), 7, "{verdicts:?}");
    store.close();
}

#[test]
fn names_have_any_bytes_and_one_that_is_too_long_is_refused_before_it_is_sent() {
    let table = Table::new();
    // what cannot be made shorter, and all bytes there are
    let prefix = bytes_of(512);
    on_both(|face| {
        let client = table.client_with(face, unhurried().prefix(&prefix));
        for name in [bytes_of(512), (0..=255).collect::<Vec<u8>>(), b"\0".to_vec()] {
            let lease = client.lock(&name).acquire().unwrap();
            assert!(client.inspect(&name).unwrap().is_some());
            assert_eq!(lease.released(), Release::Released);
        }
        let error = fails(client.lock(vec![b'a'; 10_000]).try_acquire(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("1 to 512 bytes"), "{error}");
        client.close();
    });
    // whoever asks the store itself
    let store = unhurried().open_store("postgres://nobody@127.0.0.1:1/nowhere").unwrap();
    for op in [
        Op::Inspect { key: vec![1; 10_000].into() },
        Op::Release { claim: Claim { kind: Kind::Mutex, key: vec![1; 2_601].into(), token: "onelock1:0".into() } },
    ] {
        let Outcome::NotApplied(failure) = block_on(async { store.call(op, Time::MAX).await }).outcome else {
            panic!("it was sent");
        };
        assert_eq!(failure.kind, ErrorKind::InvalidArgument);
        assert!(failure.detail.contains("2600 bytes"), "{failure:?}");
    }
}

/// So many bytes that cannot be compressed.
fn bytes_of(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[test]
fn a_step_of_a_listing_looks_at_no_more_rows_than_it_may() {
    let table = Table::new();
    let client = table.client(Face::Blocking);
    assert!(is_free(&client, "a"));
    table.run(
        "INSERT INTO TABLE SELECT convert_to('free' || lpad(n::text, 4, '0'), 'UTF8'), 1, NULL, 0, 0, 1, true, NULL, 9000000000000000 FROM \
         generate_series(1, 300) n",
    );
    let lease = client.lock("z").acquire().unwrap();
    let store = unhurried().open_store(&table.url()).unwrap();
    let (mut cursor, mut steps, mut found) = (None, 0, Vec::new());
    loop {
        let scan = Scan { pattern: b"*".to_vec(), count: 50, cursor };
        let scanned = block_on(async { store.scan(scan, Time::MAX).await }).unwrap();
        steps += 1;
        found.extend(scanned.keys);
        cursor = scanned.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found.iter().map(|key| key.to_vec()).collect::<Vec<_>>(), [b"z"]);
    assert!((6..=8).contains(&steps), "{steps}");
    lease.released();
    client.close();
    store.close();
}
