//! The connections of a client: all to one server, made in time, given up when they are silent, and never left behind.

use std::sync::atomic::Ordering;
use std::time::Instant;

use onelock::LossReason;
use onelock::machine::{Op, Outcome, Time};
use onelock_tests::face::{Client, Face, block_on, on_both};
use onelock_tests::postgres::Postgres;
use onelock_tests::stage::{SOON, ms, quick, unhurried};
use onelock_tests::wait::wait_until;

use crate::place::{Table, is_free, server};
use crate::wire::{Rules, Wire};

#[test]
fn all_connections_of_a_client_go_to_one_server() {
    let second = Postgres::start();
    on_both(|face| {
        let table = Table::new();
        second.session().run(&format!("CREATE USER {} SUPERUSER", table.name));
        let (first_wire, second_wire) =
            (Wire::to(server().port(), Rules::default()), Wire::to(second.port(), Rules::default()));
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", first_wire.port(), second_wire.port());
        let url = format!("postgres://{}@{hosts}/postgres?table={}", table.name, table.name);
        let client = Client::build(face, unhurried(), &url).unwrap();
        let lease = client.lock("a").ttl(ms(20_000)).renew_every(ms(100)).acquire().unwrap();
        wait_until(SOON, "the connection for renewals", || table.connections().len() == 2);
        // the first server is cut off, but for the connection that renews
        first_wire.set(Rules { refuse_all: true, ..Rules::default() });
        table.session.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE usename = '{}' \
             ORDER BY backend_start LIMIT 1) oldest",
            table.name
        ));
        let other = client.lock("b").acquire_within(SOON).unwrap();
        assert_eq!(lease.wait_lost(ms(5000)), Some(LossReason::Taken), "it was renewed on a server of yesterday");
        wait_until(SOON, "the connections to the first to end", || table.connections().is_empty());
        other.released();
        client.close();
    });
}

#[test]
fn a_connection_that_takes_longer_than_a_renewal_may_is_made_all_the_same() {
    on_both(|face| {
        let table = Table::new();
        let wire = Wire::to(server().port(), Rules { connect_delay: ms(600), ..Rules::default() });
        let client = Client::build(face, unhurried(), &table.url_at(wire.port())).unwrap();
        // a renewal has a sixth of that
        let lease = client.lock("a").ttl(ms(3000)).acquire().unwrap();
        std::thread::sleep(ms(3500));
        assert!(lease.is_held());
        lease.released();
        client.close();
    });
}

#[test]
fn a_silent_connection_is_given_up_though_each_renewal_is_short() {
    on_both(|face| {
        let table = Table::new();
        let wire = Wire::to(server().port(), Rules::default());
        let options = quick().connect_timeout(ms(2000)).request_timeout(ms(1000));
        let client = Client::build(face, options, &table.url_at(wire.port())).unwrap();
        // a renewal has 600 ms, less than a request
        let lease = client.lock("a").ttl(ms(3600)).renew_every(ms(300)).acquire().unwrap();
        wait_until(SOON, "the connection for renewals", || table.connections().len() == 2);
        let renewed = lease.remaining();
        wait_until(SOON, "a renewal", || lease.remaining() > renewed);
        wire.set(Rules { silent_before: wire.made.load(Ordering::Relaxed), ..Rules::default() });
        std::thread::sleep(ms(4000));
        assert!(lease.is_held());
        lease.released();
        client.close();
    });
}

#[test]
fn a_statement_that_was_given_up_and_answered_later_ends_no_connection() {
    let table = Table::new();
    let wire = Wire::to(server().port(), Rules::default());
    let options = unhurried().request_timeout(ms(1000));
    let store = options.open_store(&table.url_at(wire.port())).unwrap();
    let now = || Time::from_nanos(onelock_tests::clock::boot_ns());
    let look = |limit| {
        let look = Op::Inspect { key: (*b"a").into() };
        let answer = block_on(async { store.call(look, now() + limit).await });
        (answer.connection, matches!(answer.outcome, Outcome::Applied(_)))
    };
    let (first, is_answered) = look(SOON);
    assert!(is_answered);
    // twice a statement has less time than its answer takes, and nothing is asked for longer than a request may take
    for _ in 0..2 {
        wire.set(Rules { delay: ms(300), ..Rules::default() });
        assert_eq!(look(ms(60)), (first, false));
        std::thread::sleep(ms(1100));
    }
    wire.set(Rules::default());
    assert_eq!(look(SOON), (first, true), "a connection on which every statement was answered was given up");
    store.close();
}

#[test]
fn a_server_that_falls_silent_leaves_no_open_connections() {
    on_both(|face| {
        let table = Table::new();
        assert!(is_free(&table.client(face), "warm"));
        let wire = Wire::to(server().port(), Rules { silent_after: Some("pg_is_in_recovery"), ..Rules::default() });
        let client = Client::build(face, quick(), &table.url_at(wire.port())).unwrap();
        for _ in 0..3 {
            assert!(client.lock("a").try_acquire().is_err());
        }
        assert!(wire.made.load(Ordering::Relaxed) >= 3);
        client.close();
        // in the middle of a statement, too
        wire.set(Rules { silent_after: Some("onelock1:"), ..Rules::default() });
        let client = Client::build(face, quick(), &table.url_at(wire.port())).unwrap();
        assert!(client.lock("a").try_acquire().is_err());
        drop(client);
        let begun = Instant::now();
        wait_until(SOON, "the connections to end", || wire.open.load(Ordering::Relaxed) == 0);
        assert!(begun.elapsed() < ms(8000), "only the system ended them: {:?}", begun.elapsed());
    });
}

#[test]
fn a_client_goes_on_when_the_runtime_that_connected_has_ended() {
    let table = Table::new();
    let Client::Async(client) = table.client(Face::Async) else { unreachable!() };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cycle = || async {
        let lease = client.lock("a").acquire_within(SOON).await.unwrap();
        lease.release().await.unwrap();
    };
    let first = runtime();
    first.block_on(cycle());
    drop(first);
    // one that is there but does nothing, too
    let second = runtime();
    second.block_on(cycle());
    let third = runtime();
    third.block_on(cycle());
    third.block_on(client.close());
}
