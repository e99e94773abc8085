//! Connections that end, replies that are lost or late, servers that restart, announcements that do not arrive.

use std::sync::atomic::Ordering;
use std::time::Instant;

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, on_both};
use onelock_tests::postgres::Postgres;
use onelock_tests::stage::{SOON, fails, ms, quick, unhurried};
use onelock_tests::wait::wait_until;

use crate::place::{Table, is_free, server};
use crate::wire::{Rules, Wire};

#[test]
fn a_lost_reply_is_the_same_grant_when_asked_again_and_undone_when_given_up() {
    on_both(|face| {
        let table = Table::new();
        assert!(is_free(&table.client(face), "warm"));
        let wire = Wire::to(server().port(), Rules::default());
        let client = Client::build(face, unhurried(), &table.url_at(wire.port())).unwrap();
        assert!(is_free(&client, "warm"));
        let lose = || wire.set(Rules { lose_reply_to: Some("onelock1:"), ..Rules::default() });
        lose();
        let lease = client.lock("again").acquire_within(SOON).unwrap();
        assert_eq!(wire.lost.load(Ordering::Relaxed), 1);
        let fences = table.rows("SELECT fence FROM TABLE WHERE name = 'again' AND count = 1");
        assert_eq!(fences, [lease.fence().to_string()], "the first grant is the one that counts");
        lose();
        // repeated: the first one did it, or something else ended the lease; nobody knows
        assert_eq!(lease.released(), Release::Unconfirmed);
        assert!(is_free(&client, "again"));
        client.close();

        // one try, and the caller is told that nobody knows
        let client = Client::build(face, quick(), &table.url_at(wire.port())).unwrap();
        assert!(is_free(&client, "warm"));
        lose();
        let tried = client.lock("undone").acquire_within(ms(1));
        wait_until(SOON, "cleanup", || {
            table.rows("SELECT 1 FROM TABLE WHERE owner IS NOT NULL").is_empty() || tried.is_ok()
        });
        client.close();
    });
}

#[test]
fn a_deadline_counts_from_the_sending_of_its_request() {
    on_both(|face| {
        let table = Table::new();
        let wire = Wire::to(server().port(), Rules::default());
        let client = Client::build(face, unhurried(), &table.url_at(wire.port())).unwrap();
        assert!(is_free(&client, "warm"));
        wire.set(Rules { delay: ms(400), ..Rules::default() });
        let lease = client.lock("a").ttl(ms(3000)).auto_renew(false).acquire().unwrap();
        assert!(lease.remaining() <= ms(2600), "{:?}", lease.remaining());
        // a grant whose time is over when it arrives is none, and is undone
        wire.set(Rules { delay: ms(300), ..Rules::default() });
        assert!(client.lock("late").ttl(ms(200)).auto_renew(false).acquire_within(ms(700)).is_err());
        wire.set(Rules::default());
        let other = table.client(face);
        other.lock("late").acquire_within(SOON).unwrap().released();
        lease.released();
        client.close();
        other.close();
    });
}

#[test]
fn terminated_connections_are_made_anew_and_leases_go_on() {
    on_both(|face| {
        let table = Table::new();
        let client = table.client(face);
        let lease = client.lock("a").ttl(ms(4000)).renew_every(ms(100)).acquire().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < ms(4500) {
            table.terminate();
            std::thread::sleep(ms(300));
            assert!(lease.is_held());
        }
        assert_eq!(lease.released(), Release::Released);
        assert!(client.stats().reconnects > 0);
        // in the middle of a statement, too: it waits for a row
        let stranger = server().session();
        stranger.run(&format!("BEGIN; SELECT * FROM {} WHERE name = 'a' FOR UPDATE", table.name));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "a statement that waits", || {
                let text = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = 'TABLE'";
                !table.rows(text).is_empty()
            });
            table.terminate();
            stranger.run("ROLLBACK");
            assert_eq!(waiter.join().unwrap().released(), Release::Released);
        });
        client.close();
        wait_until(SOON, "the connections to end", || table.connections().is_empty());
    });
}

#[test]
fn a_server_that_restarts_still_has_its_locks() {
    on_both(|face| {
        let server = Postgres::start();
        let client = Client::build(face, unhurried(), &server.url("")).unwrap();
        let other = Client::build(face, unhurried(), &server.url("")).unwrap();
        let lease = client.lock("a").ttl(ms(20_000)).renew_every(ms(200)).acquire().unwrap();
        server.restart();
        assert!(other.lock("a").try_acquire().unwrap().is_none());
        let renewed = lease.remaining();
        wait_until(SOON, "a renewal", || lease.remaining() > renewed);
        assert_eq!(lease.released(), Release::Released);
        server.kill();
        fails(other.lock("a").acquire_within(ms(200)), ErrorKind::Unavailable);
        client.close();
        other.close();
    });
}

#[test]
fn waiters_get_the_lock_though_announcements_are_lost() {
    on_both(|face| {
        let table = Table::new();
        // as behind a pooler; switched off; and with listeners that are cut again and again
        let wire =
            Wire::to(server().port(), Rules { no_announcements: true, refuse_settings: true, ..Rules::default() });
        let plain = Wire::to(server().port(), Rules::default());
        let urls = [table.url_at(wire.port()), format!("{}&wake=poll", table.url()), table.url_at(plain.port())];
        for url in &urls {
            let (holder, waiting) = (table.client(face), Client::build(face, unhurried(), url).unwrap());
            let lease = holder.lock("a").acquire().unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| waiting.lock("a").acquire_within(SOON).unwrap());
                wait_until(SOON, "the waiter", || waiting.stats().waiting == 1);
                let begun = Instant::now();
                while begun.elapsed() < ms(2500) && *url == urls[2] {
                    table.terminate();
                    std::thread::sleep(ms(100));
                }
                if *url == urls[0] {
                    // until it knows that it hears nothing
                    std::thread::sleep(ms(2500));
                }
                let begun = Instant::now();
                assert_eq!(lease.released(), Release::Released);
                waiter.join().unwrap().released();
                assert!(begun.elapsed() < SOON / 2, "{url}: {:?}", begun.elapsed());
            });
            waiting.close();
            holder.close();
        }
        assert!(wire.refused.load(Ordering::Relaxed) >= 1, "settings in the startup packet were tried");
    });
}
