//! Servers whose time of day jumps: keys end too early on them, or too late.

use std::time::{Duration, Instant};

use onelock_tests::face::{Client, Face, everywhere, on_both};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SLACK, SOON, ms, unhurried};
use onelock_tests::topology::Several;
use onelock_tests::wait::{wait_for, wait_until};

fn several(flavor: Flavor) -> Several {
    Several::with(3, || Server::builder(flavor).clock())
}

/// Who never asks for a longer lease than this, so that a server whose clock jumped votes again after twice as long.
fn client(face: Face, several: &Several, ttl: Duration) -> Client {
    Client::connect(face, unhurried().ttl(ttl), &several.url("quarantine_ms=0")).unwrap()
}

fn seconds(server: &Server) -> i64 {
    let redis::Value::Array(parts) = server.cmd(&["TIME"]) else { panic!("TIME answers two numbers") };
    onelock_tests::resp::text(&parts[0]).parse().unwrap()
}

/// Sets the clock of a server, and waits until it has noticed: some look at it now and then only.
fn set_clock(server: &Server, beside_s: i64) {
    let truth = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs().cast_signed();
    server.set_clock(beside_s);
    wait_until(SOON, "the server to see the step", || (seconds(server) - truth - beside_s).abs() < 8);
}

/// As often as it takes until all servers took part: one whose connection is just being made is done without.
fn everybody(client: &Client, several: &Several, name: &str) {
    wait_until(SOON, "all servers", || {
        let lease = client.lock(name).acquire_within(SOON).unwrap();
        let all = several.count(name) == 3;
        lease.released();
        all
    });
}

#[test]
fn f42_a_server_whose_clock_jumps_ahead_lets_nobody_else_in() {
    everywhere(|flavor, face| {
        let ttl = Duration::from_secs(6);
        let several = several(flavor);
        let (holder, rival) = (client(face, &several, ttl), client(face, &several, ttl));
        everybody(&holder, &several, "before");
        everybody(&rival, &several, "before");
        let lock = holder.lock("a").auto_renew(false);
        let lease = lock.acquire().unwrap();
        wait_until(SOON, "all servers", || several.count("a") == 3);
        // two of three have it, and on one of these it ends early
        several.servers[2].cmd(&["DEL", "a"]);
        set_clock(&several.servers[1], 20);
        assert_eq!(several.count("a"), 1);
        let refused = rival.lock("a").acquire_within(ms(1000));
        assert!(refused.is_err() && lease.is_held(), "two hold it at once");
        // when the lease has ended by everybody's clock but that one's
        let granted = rival.lock("a").acquire_within(Duration::from_secs(20)).unwrap();
        assert!(!lease.is_held() && granted.fence() > lease.fence());
        granted.released();
    });
}

#[test]
fn f42_a_jump_ahead_of_one_server_costs_no_lease_and_it_gets_the_hold_again() {
    on_both(|face| {
        let ttl = ms(1500);
        let several = several(Flavor::Valkey91);
        let client = client(face, &several, ttl);
        everybody(&client, &several, "before");
        let lease = client.lock("a").acquire().unwrap();
        wait_until(SOON, "all servers", || several.count("a") == 3);
        set_clock(&several.servers[0], 20);
        let ended = || several.servers[0].info("stats")["expired_keys"] != "0";
        wait_until(SOON, "the server to lose it and to get it again", || several.count("a") == 3 && ended());
        let renewals = client.stats().renewals;
        wait_until(SOON, "more renewals", || client.stats().renewals > renewals + 2);
        assert!(lease.is_held());
        // of two servers at once: no majority knows the hold any more
        several.servers[1..].iter().for_each(|server| server.set_clock(20));
        assert!(lease.wait_lost(SOON).is_some());
        drop(lease);
        wait_until(SOON, "nothing left", || several.count("a") == 0);
        everybody(&client, &several, "a");
    });
}

#[test]
fn f42_a_server_whose_clock_is_set_back_keeps_nobody_out() {
    on_both(|face| {
        let ttl = ms(2000);
        let several = several(Flavor::Valkey91);
        let (holder, rival) = (client(face, &several, ttl), client(face, &several, ttl));
        everybody(&holder, &several, "before");
        everybody(&rival, &several, "before");
        let lease = holder.lock("a").auto_renew(false).acquire().unwrap();
        wait_until(SOON, "all servers", || several.count("a") == 3);
        set_clock(&several.servers[1], -100);
        // as a holder that crashed: what it leaves stays for another hundred seconds there
        let granted = rival.lock("a").acquire_within(Duration::from_secs(20)).unwrap();
        assert!(!lease.is_held() && granted.fence() > lease.fence());
        assert!(several.servers[1].int(&["PTTL", "a"]) > 50_000, "the old key is still there");
        let renewals = rival.stats().renewals;
        wait_until(SOON, "renewals by the others", || rival.stats().renewals > renewals + 1);
        granted.released();
        assert!(lease.release().is_ok());
    });
}

#[test]
fn f42_tokens_grow_whatever_the_clocks_say() {
    on_both(|face| {
        let ttl = ms(500);
        let several = several(Flavor::Valkey91);
        let clients = [client(face, &several, ttl), client(face, &several, ttl)];
        let mut last = 0;
        let begun = Instant::now();
        for (turn, beside) in [0, 20, -100, 0, 3600, -3600, 7200, 0].into_iter().enumerate() {
            set_clock(&several.servers[turn % 3], beside);
            for client in &clients {
                // a server that jumped ahead does not vote for twice the ttl
                let fence = wait_for(Duration::from_secs(20), "a lease", || {
                    let lease = client.lock("a").acquire_within(SOON).ok()?;
                    lease.released();
                    Some(lease.fence())
                });
                assert!(fence > last, "{fence} after {last}, in turn {turn}");
                last = fence;
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(60) + SLACK, "{:?}", begun.elapsed());
    });
}
