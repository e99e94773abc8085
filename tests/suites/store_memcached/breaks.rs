//! Connections that end, requests and replies that are lost or late, and a server that stands still.

use std::sync::atomic::Ordering;
use std::time::Instant;

use onelock::{ErrorKind, Release};
use onelock_tests::face::on_both;
use onelock_tests::memcached::Memcached;
use onelock_tests::servers::{cont, stop};
use onelock_tests::stage::{SOON, fails, ms, quick, unhurried};
use onelock_tests::wait::wait_until;
use onelock_tests::wire::{Rules, Wire};

use crate::place::{at, client, client_at, is_free, item, server};

fn losing_reply_to(text: &str) -> Rules {
    Rules { lose_reply_to: Some(text.to_owned()), ..Rules::default() }
}

#[test]
fn a_lost_reply_is_the_same_grant_when_asked_again_and_undone_when_given_up() {
    on_both(|face| {
        let wire = Wire::to(server().port());
        let (client, other) = (client_at(face, "lost", unhurried(), &at(wire.port())), client(face, "lost"));
        assert!(is_free(&client, "warm"));
        wire.set(losing_reply_to("ms "));
        let lease = client.lock("again").acquire_within(SOON).unwrap();
        assert_eq!(wire.lost.load(Ordering::Relaxed), 1);
        assert!(lease.is_held() && !is_free(&other, "again"));
        let mut session = server().session();
        session.ask(&format!("mg {} v", item(&format!("lost{face:?}:again"))));
        assert_eq!(session.line(), lease.token(), "the first grant is the one that counts");
        // renewed, found, and released though the reply to that is lost, too
        lease.extend(ms(60_000)).unwrap();
        wire.set(losing_reply_to("md "));
        assert_eq!(lease.released(), Release::Unconfirmed);
        assert!(is_free(&client, "again"));

        // the renewal's reply is lost: asked again, by itself
        let lease = client.lock("renewed").ttl(ms(3000)).renew_every(ms(100)).acquire().unwrap();
        wire.set(losing_reply_to(" I T"));
        wait_until(SOON, "the loss", || wire.lost.load(Ordering::Relaxed) == 3);
        let before = client.stats().renewals;
        wait_until(SOON, "other renewals", || client.stats().renewals > before + 1);
        assert_eq!(lease.released(), Release::Released);

        // one try whose reply is lost: whoever gives up leaves nothing behind
        let short = client_at(face, "lost", quick(), &at(wire.port()));
        assert!(is_free(&short, "warm"));
        let lost = wire.lost.load(Ordering::Relaxed);
        wire.set(losing_reply_to("ms "));
        wait_until(SOON, "a lost reply", || {
            match short.lock("undone").ttl(ms(60_000)).acquire_within(ms(50)) {
                Ok(lease) => drop(lease.release()),
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error}"),
            }
            wire.lost.load(Ordering::Relaxed) > lost
        });
        // long before its end
        wait_until(SOON, "cleanup", || is_free(&other, "undone"));
        client.close();
        short.close();
        other.close();
    });
}

#[test]
fn a_lost_request_does_nothing_and_is_sent_again() {
    on_both(|face| {
        let wire = Wire::to(server().port());
        let client = client_at(face, "request", unhurried(), &at(wire.port()));
        assert!(is_free(&client, "warm"));
        wire.set(Rules { lose_request: Some("ms ".to_owned()), ..Rules::default() });
        let lease = client.lock("a").acquire_within(SOON).unwrap();
        assert_eq!(wire.lost.load(Ordering::Relaxed), 1);
        wire.set(Rules { lose_request: Some("md ".to_owned()), ..Rules::default() });
        // not known to have happened, and it had not: cleanup goes on
        assert!(matches!(lease.released(), Release::Released | Release::Unconfirmed));
        wait_until(SOON, "the release", || is_free(&client, "a"));
        client.close();
    });
}

#[test]
fn a_deadline_counts_from_the_sending_of_its_request() {
    on_both(|face| {
        let wire = Wire::to(server().port());
        let (client, other) = (client_at(face, "late", unhurried(), &at(wire.port())), client(face, "late"));
        assert!(is_free(&client, "warm"));
        wire.set(Rules { delay: ms(400), ..Rules::default() });
        let lease = client.lock("a").ttl(ms(3000)).auto_renew(false).acquire().unwrap();
        assert!(lease.remaining() <= ms(2600), "{:?}", lease.remaining());
        // a grant whose time is over when it arrives is none, and is undone: the item would stay for a minute
        wire.set(Rules { delay: ms(300), ..Rules::default() });
        let granted = || wire.sent().matches("ms ").count();
        let before = granted();
        let lock = client.lock("b").ttl(ms(200)).lock_delay(ms(60_000)).auto_renew(false);
        assert!(lock.acquire_within(ms(700)).is_err());
        assert!(granted() > before, "it was never asked for");
        wire.set(Rules::default());
        other.lock("b").acquire_within(SOON).unwrap().released();
        lease.released();
        client.close();
        other.close();
    });
}

#[test]
fn a_server_that_stands_still_ends_no_lease_before_its_time_and_every_one_then() {
    on_both(|face| {
        let server = Memcached::start();
        let client = client_at(face, "still", quick(), &server.url());
        let lease = client.lock("a").ttl(ms(1500)).renew_every(ms(200)).acquire().unwrap();
        stop(server.pid());
        let begun = Instant::now();
        assert!(lease.is_held());
        assert!(lease.wait_lost(SOON).is_some());
        assert!(!lease.is_held() && begun.elapsed() <= ms(1500) + onelock_tests::stage::SLACK, "{:?}", begun.elapsed());
        let error = fails(client.lock("b").acquire_within(ms(100)), ErrorKind::Unavailable);
        assert!(error.to_string().contains("memcached://127.0.0.1"), "{error}");
        cont(server.pid());
        // what was sent to it while it stood still is undone
        wait_until(SOON, "a lock", || client.lock("b").acquire_within(ms(500)).is_ok_and(|l| l.release().is_ok()));
        client.close();
    });
}

#[test]
fn cut_connections_are_made_anew_and_leases_go_on() {
    on_both(|face| {
        let server = Memcached::with(&["-o", "idle_timeout=1"]);
        let client = client_at(face, "cut", unhurried(), &server.url());
        let lease = client.lock("a").ttl(ms(60_000)).acquire().unwrap();
        // the server has forgotten the connection, and the number of the item with it
        let before = server.stat("idle_kicks");
        wait_until(SOON, "the end of the connection", || server.stat("idle_kicks") > before);
        assert!(lease.is_held());
        assert_eq!(lease.released(), Release::Released);
        assert_eq!(client.stats().reconnects, 1);
        client.close();
    });
}
