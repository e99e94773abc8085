//! Members that are stopped, killed, cut off, and replies that are lost.

use std::sync::atomic::Ordering;

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, on_both};
use onelock_tests::proxy::Proxy;
use onelock_tests::stage::{SOON, fails, ms};
use onelock_tests::wait::wait_until;

use crate::place::{client, database, fresh, mixture};
use crate::wire::{Rules, Wire};

/// Acquire and release.
fn cycle(client: &Client, name: &str) {
    let lease = client.lock(name).acquire_within(SOON).unwrap();
    assert!(lease.is_held());
    assert_eq!(lease.released(), Release::Released);
}

#[test]
fn a_member_that_is_killed_is_done_without_and_a_majority_is_named_one_by_one() {
    on_both(|face| {
        let mixed = mixture(2, 1);
        let client = client(face, &mixed);
        let held = client.lock("held").ttl(ms(4000)).acquire().unwrap();
        // granted by a bare majority, it would not survive the loss of one of these
        wait_until(SOON, "all members", || mixed.count("held") == 3);
        mixed.servers[0].kill();
        cycle(&client, "b");
        std::thread::sleep(ms(4300));
        assert!(held.is_held(), "renewed by the rest");
        mixed.servers[1].kill();
        let error = fails(client.lock("c").acquire_within(ms(300)), ErrorKind::NoQuorum);
        let names = [mixed.servers[0].port().to_string(), "postgres://".to_owned()];
        let causes = error.causes();
        assert!(names.iter().all(|name| causes.iter().any(|cause| cause.contains(name.as_str()))), "{error}");
        assert!(held.wait_lost(SOON).is_some(), "no majority renews it");
        mixed.servers.iter().for_each(onelock_tests::servers::Server::restart);
        cycle(&client, "d");
        wait_until(SOON, "nothing left", || ["b", "c", "d"].iter().all(|name| mixed.count(name) == 0));
        client.close();
    });
}

#[test]
fn a_member_that_is_cut_off_takes_part_again_when_it_is_back() {
    on_both(|face| {
        let mixed = mixture(1, 2);
        let proxy = Proxy::start(&mixed.servers[0]);
        let wire = Wire::to(database(0).port(), Rules::default());
        let url = format!("{} {} {}", proxy.url(), mixed.tables[0].url_at(wire.port()), mixed.tables[1].url());
        let client = Client::build(face, fresh().node_timeout(ms(300)), &url).unwrap();
        let everywhere = || {
            let lease = client.lock("a").acquire_within(SOON).unwrap();
            std::thread::sleep(ms(50));
            let all = mixed.count("a") == 3;
            lease.released();
            all
        };
        wait_until(SOON, "all take part", everywhere);
        let held = client.lock("held").ttl(ms(3000)).acquire_within(SOON).unwrap();
        // the database, which says nothing from now on
        wire.set(Rules { hold: true, ..Rules::default() });
        for _ in 0..4 {
            cycle(&client, "b");
        }
        std::thread::sleep(ms(3300));
        assert!(held.is_held(), "renewed by the rest");
        wire.set(Rules::default());
        wait_until(SOON, "the database takes part again", everywhere);
        // the server
        proxy.pause();
        for _ in 0..4 {
            cycle(&client, "b");
        }
        proxy.heal();
        wait_until(SOON, "the server takes part again", everywhere);
        assert!(held.is_held());
        assert_eq!(held.released(), Release::Released);
        wait_until(SOON, "what they were asked meanwhile is released", || {
            ["a", "b", "held"].iter().all(|name| mixed.count(name) == 0)
        });
        client.close();
    });
}

#[test]
fn a_vote_of_which_nobody_heard_is_undone() {
    on_both(|face| {
        let mixed = mixture(1, 2);
        let wire = Wire::to(database(0).port(), Rules::default());
        let url =
            format!("{} {} {}", mixed.servers[0].url(), mixed.tables[0].url_at(wire.port()), mixed.tables[1].url());
        let client = Client::connect(face, fresh(), &url).unwrap();
        wait_until(SOON, "all take part", || {
            let lease = client.lock("warm").acquire_within(SOON).unwrap();
            let all = mixed.count("warm") == 3;
            lease.released();
            all
        });
        wait_until(SOON, "nothing is on the way", || mixed.count("warm") == 0);
        // somebody has it at two members, so the third one's vote is of no use
        mixed.servers[0].cmd(&["SET", "a", "somebody", "PX", "60000"]);
        let taken = "INSERT INTO TABLE (name, kind, owner, count, expires_us, fence, fenced, touched_us) VALUES \
                     ('a', 1, 'somebody', 1, 9000000000000000, 1, true, 0)";
        mixed.tables[1].rows(taken);
        wire.set(Rules { lose_reply_to: Some("onelock1:"), ..Rules::default() });
        assert!(!matches!(client.lock("a").ttl(ms(60_000)).try_acquire(), Ok(Some(_))));
        assert_eq!(wire.lost.load(Ordering::Relaxed), 1);
        wait_until(SOON, "released where it was granted", || {
            mixed.tables[0].fence("a").is_some() && !mixed.tables[0].has("a")
        });
        // a release whose reply is lost: the lock is free soon all the same
        mixed.servers[0].cmd(&["DEL", "a"]);
        mixed.tables[1].rows("UPDATE TABLE SET owner = NULL, expires_us = 0 WHERE name = 'a'");
        let lease = client.lock("a").acquire_within(SOON).unwrap();
        wait_until(SOON, "all members", || mixed.count("a") == 3);
        wire.set(Rules { lose_reply_to: Some("onelock1:"), ..Rules::default() });
        lease.released();
        wait_until(SOON, "no member", || mixed.count("a") == 0);
        client.close();
    });
}
