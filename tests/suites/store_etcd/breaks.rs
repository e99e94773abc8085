//! Servers that restart or stand still, replies that are lost, processes that fork.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use onelock::{ErrorKind, LossReason, Owner, Release};
use onelock_tests::etcd::Etcd;
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::servers;
use onelock_tests::stage::{SOON, fails, ms, quick, unhurried};
use onelock_tests::wait::wait_until;
use onelock_tests::wire::{Rules, Wire};

use crate::place::{Place, SERVER, is_free, losing_reply_to};

#[test]
fn a_server_that_restarts_keeps_the_locks_and_one_that_stays_away_loses_them_in_time() {
    let server = Etcd::start();
    let client = Client::build(Face::Blocking, quick(), &server.url("")).unwrap();
    let lease = client.lock("kept").ttl(ms(10_000)).acquire().unwrap();
    server.restart();
    let waiter = Client::build(Face::Blocking, quick(), &server.url("")).unwrap();
    wait_until(SOON, "the server", || waiter.lock("other").try_acquire().is_ok());
    assert!(lease.is_held() && waiter.lock("kept").try_acquire().unwrap().is_none());
    assert!(is_free(&client, "again"), "the client has connected again");
    // one that stands still: the deadline passes before the server could end the lease
    let short = client.lock("short").ttl(ms(2000)).acquire().unwrap();
    servers::stop(server.pid());
    let begun = Instant::now();
    assert_eq!(short.wait_lost(SOON), Some(LossReason::Expired));
    assert!(begun.elapsed() <= ms(2500) && !short.is_held(), "{:?}", begun.elapsed());
    let error = fails(client.lock("new").try_acquire(), ErrorKind::Unavailable).to_string();
    assert!(error.contains("etcd://127.0.0.1"), "{error}");
    servers::cont(server.pid());
    wait_until(SOON, "the server", || waiter.lock("short").try_acquire().is_ok_and(|lease| lease.is_some()));
    client.close();
    waiter.close();
}

#[test]
fn a_key_whose_reply_was_lost_is_found_again_by_its_token() {
    on_both(|face| {
        let place = Place::new();
        let wire = Wire::to(SERVER.port());
        let client = Client::build(face, unhurried(), &place.url_at(wire.port())).unwrap();
        assert!(is_free(&client, "warm"));
        wire.set(losing_reply_to("onelock1:"));
        let lease = client.lock("a").acquire_within(SOON).unwrap();
        assert_eq!(wire.lost.load(Ordering::SeqCst), 1);
        let keys = place.keys("a/");
        assert_eq!(keys.len(), 1, "one acquire, one key: {keys:?}");
        assert_eq!(client.inspect("a").unwrap().unwrap().fencing_token, Some(lease.fence()));
        assert!(lease.remaining() > ms(20_000));
        assert_eq!(lease.released(), Release::Released);
        client.close();
        // given up: nothing stays, long before its end
        let short = Client::build(face, quick(), &place.url_at(wire.port())).unwrap();
        assert!(is_free(&short, "warm"));
        wire.set(losing_reply_to("onelock1:"));
        wait_until(SOON, "a lost reply", || {
            if let Ok(lease) = short.lock("b").ttl(ms(60_000)).acquire_within(ms(50)) {
                lease.released();
            }
            wire.lost.load(Ordering::SeqCst) == 2
        });
        wait_until(SOON, "cleanup", || place.keys("b/").is_empty() && short.stats().cleaning == 0);
        short.close();
    });
}

#[test]
fn a_try_that_ends_before_its_key_is_made_leaves_no_lease() {
    on_both(|face| {
        let server = Etcd::start();
        let wire = Wire::to(server.port());
        let options = quick().request_timeout(ms(600));
        let client = Client::build(face, options, &format!("etcd://127.0.0.1:{}", wire.port())).unwrap();
        assert!(is_free(&client, "warm"));
        // time enough for the look before it, and not for the lease
        wire.set(Rules { delay: ms(400), ..Rules::default() });
        assert!(client.lock("a").ttl(ms(3_600_000)).try_acquire().is_err());
        wire.set(Rules::default());
        wait_until(SOON, "the end of all leases", || server.leases() == 0);
        assert!(server.keys("").is_empty());
        client.close();
    });
}

#[test]
fn a_release_whose_reply_was_lost_is_asked_again() {
    on_both(|face| {
        let place = Place::new();
        let wire = Wire::to(SERVER.port());
        let client = Client::build(face, unhurried(), &place.url_at(wire.port())).unwrap();
        let lease = client.lock("a").ttl(ms(60_000)).acquire().unwrap();
        let key = place.keys("a/").pop().unwrap();
        wire.set(losing_reply_to(&format!("{key}\x18\x01")));
        assert!(matches!(lease.released(), Release::Released | Release::Unconfirmed));
        assert_eq!(wire.lost.load(Ordering::SeqCst), 1);
        wait_until(SOON, "the release", || place.keys("a/").is_empty() && client.stats().cleaning == 0);
        client.close();
    });
}

#[test]
fn a_full_server_takes_no_locks_and_keeps_and_releases_those_it_has() {
    let server = Etcd::with(&["--quota-backend-bytes", "1000000"]);
    let client = Client::build(Face::Blocking, unhurried(), &server.url("")).unwrap();
    let owner = Owner::new();
    let lease = client.reentrant_lock("kept").owner(&owner).ttl(ms(3000)).renew_every(ms(200)).acquire().unwrap();
    let large = "x".repeat(100_000);
    wait_until(SOON, "a full server", || server.try_ctl(&["put", "large", &large]).is_err());
    let error = fails(client.lock("a").ttl(ms(60_000)).try_acquire(), ErrorKind::ServerRefused).to_string();
    assert!(error.contains("space exceeded"), "{error}");
    fails(client.lock("b").ttl(ms(60_000)).acquire_within(ms(200)), ErrorKind::ServerRefused);
    fails(lease.extend(ms(60_000)), ErrorKind::ServerRefused);
    let renewals = client.stats().renewals;
    wait_until(SOON, "renewals", || client.stats().renewals > renewals + 2);
    assert!(lease.is_held());
    assert_eq!(lease.released(), Release::Released);
    wait_until(SOON, "cleanup", || client.stats().cleaning == 0);
    assert_eq!(server.keys(""), ["large"]);
    client.close();
}

/// A server that knows users only, and the address of one of them through a wire.
fn with_users() -> (Etcd, Wire, String) {
    let server = Etcd::start();
    for arguments in [&["user", "add", "root:top"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]] {
        server.ctl(arguments);
    }
    let wire = Wire::to(server.port());
    let url = format!("etcd://root:top@127.0.0.1:{}", wire.port());
    (server, wire, url)
}

#[test]
fn a_connection_has_all_its_time_though_a_renewal_has_not() {
    on_both(|face| {
        let (_server, wire, url) = with_users();
        // a renewal may take 300 ms, and a connection 8 s
        let options = quick().connect_timeout(ms(8000));
        let client = Client::build(face, options, &url).unwrap();
        let lease = client.lock("a").ttl(ms(20_000)).renew_every(ms(200)).acquire().unwrap();
        let before = wire.made.load(Ordering::SeqCst);
        wire.set(Rules { lose_request: Some("a/".to_owned()), hold_after_loss: true, ..Rules::default() });
        wait_until(SOON, "the next connection", || wire.made.load(Ordering::SeqCst) == before + 1);
        // renewals come and go meanwhile
        std::thread::sleep(ms(1500));
        assert_eq!(wire.made.load(Ordering::SeqCst), before + 1, "each renewal began a connection anew");
        wire.set(Rules::default());
        let renewals = client.stats().renewals;
        wait_until(SOON, "renewals", || client.stats().renewals > renewals + 1);
        assert!(lease.is_held());
        assert_eq!(lease.released(), Release::Released);
        client.close();
    });
}

/// What the processes see is checked by `tests/harness/bin/forker.rs`.
fn fork(what: &str) {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let mut command = Command::new(env!("CARGO_BIN_EXE_onelock-forker"));
    command.args([what, &place.url("")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = servers::spawn(command).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "look\n", "it has ended");
        assert!(client.lock("a").try_acquire().unwrap().is_none(), "the parent has it");
        child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}; see its messages above");
    assert!(is_free(&client, "a"));
}

#[test]
fn a_forked_child_leaves_the_connections_of_its_parent_alone() {
    fork("blocking");
    fork("async");
}

#[test]
fn forks_in_the_middle_of_everything() {
    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onelock-forker"));
    command.args(["storm", &place.url("")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    assert!(servers::spawn(command).unwrap().wait().unwrap().success());
}
