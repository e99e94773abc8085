//! A server that is a little slower than the others: what it answers late is heard all the same.

use std::time::{Duration, Instant};

use onelock::Release;
use onelock_tests::face::{Client, Face, Lease, on_both};
use onelock_tests::proxy::{Match, Rule};
use onelock_tests::scripts;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, ms, unhurried};
use onelock_tests::topology::Several;
use onelock_tests::wait::wait_until;

/// Long enough that nothing ends by itself.
const LONG: Duration = Duration::from_secs(60);

fn client(face: Face, several: &Several) -> Client {
    Client::connect(face, unhurried(), &several.proxied("quarantine_ms=0")).unwrap()
}

/// The third server's replies come late.
fn slow(several: &Several, by: Duration) -> Rule {
    several.proxies[2].on(Match::any()).delay_reply(by)
}

/// A lease of this length on all three.
fn lease(client: &Client, several: &Several, name: &str, ttl: Duration, renewed: bool) -> Lease {
    let lock = client.lock(name).ttl(ttl).auto_renew(renewed);
    let mut lease = lock.acquire_within(SOON).unwrap();
    wait_until(SOON, "connections to all servers", || {
        if several.count(name) == 3 {
            return true;
        }
        lease.released();
        lease = lock.acquire_within(SOON).unwrap();
        several.count(name) == 3
    });
    lease
}

fn forget(server: &Server, name: &str) {
    assert_eq!(server.int(&["DEL", name]), 1);
}

#[test]
fn a_slow_server_gets_its_hold_back_and_the_lease_outlives_another_server() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = client(face, &several);
        let slow = slow(&several, ms(10));
        let lease = lease(&client, &several, "a", Duration::from_secs(3), true);
        forget(&several.servers[2], "a");
        let renewals = client.stats().renewals;
        wait_until(SOON, "the slow server to have it again", || several.count("a") == 3);
        assert!(client.stats().renewals <= renewals + 2, "the first renewal after that releases it");
        several.servers[0].kill();
        let renewals = client.stats().renewals;
        wait_until(SOON, "renewals by the other two", || client.stats().renewals >= renewals + 5);
        assert!(lease.is_held(), "two of three are there");
        assert_eq!(lease.released(), Release::Released);
        slow.remove();
    });
}

#[test]
fn an_extension_is_not_slowed_by_a_server_and_hears_it_nevertheless() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = client(face, &several);
        let lease = lease(&client, &several, "a", LONG, false);
        let slow = slow(&several, ms(1800));
        forget(&several.servers[2], "a");
        let begun = Instant::now();
        lease.extend(LONG).unwrap();
        assert!(begun.elapsed() < ms(1800), "{:?}", begun.elapsed());
        wait_until(SOON, "the slow server to have it again", || several.count("a") == 3);
        slow.remove();
        lease.released();
    });
}

#[test]
fn a_hold_that_one_of_equal_servers_lost_is_back_after_one_round() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = client(face, &several);
        let lease = lease(&client, &several, "a", LONG, false);
        for round in 0..30 {
            forget(&several.servers[round % 3], "a");
            lease.extend(LONG).unwrap();
            wait_until(SOON, "all three to have it again", || several.count("a") == 3);
        }
        lease.released();
    });
}

#[test]
fn a_server_that_answers_late_does_not_get_back_what_was_given_up_meanwhile() {
    on_both(|face| {
        type End = fn(&Lease);
        let ends: [(&str, End); 3] = [
            ("released", |lease| assert_eq!(lease.released(), Release::Released)),
            ("dropped", |_| {}),
            ("handed over", |lease| drop(lease.detach().unwrap())),
        ];
        for (how, end) in ends {
            let several = Several::start(Flavor::Valkey91, 3);
            let client = client(face, &several);
            let lease = lease(&client, &several, "a", LONG, false);
            forget(&several.servers[2], "a");
            let proxy = &several.proxies[2];
            let held = proxy.on(scripts::renew()).hold_reply();
            lease.extend(LONG).unwrap();
            held.wait_hits(1);
            end(&lease);
            drop(lease);
            let gone = if how == "handed over" { 2 } else { 0 };
            wait_until(SOON, "the others to know", || several.count("a") == gone);
            let acquires = proxy.requests(&scripts::acquire().with_arg("a")).len();
            held.release();
            wait_until(SOON, "the late answer", || {
                proxy.requests(&scripts::renew()).iter().all(|request| request.delivered_ns.is_some())
            });
            // what was heard before this is done with when this is answered by all
            wait_until(SOON, "everybody", || {
                let other = client.lock("b").acquire_within(SOON).unwrap();
                let all = several.count("b") == 3;
                other.released();
                all
            });
            let again = proxy.requests(&scripts::acquire().with_arg("a")).len();
            assert_eq!((again, several.count("a")), (acquires, gone), "{face:?}: {how}");
        }
    });
}

/// An extension whose last answer is still under way, of a lease that the third server lost.
fn extended(client: &Client, several: &Several) -> (Lease, Rule) {
    // what may be carried out late is cleaned up for one ttl, and a client without handles lives on for that
    let ttl = Duration::from_secs(6);
    let lease = lease(client, several, "a", ttl, false);
    forget(&several.servers[2], "a");
    let held = several.proxies[2].on(scripts::renew()).hold_reply();
    lease.extend(ttl).unwrap();
    held.wait_hits(1);
    (lease, held)
}

/// The answer comes when nobody is there any more: the third server is not asked for anything.
fn nothing_is_sent(several: &Several, held: &Rule, before: usize, left: usize) {
    held.release();
    let proxy = &several.proxies[2];
    wait_until(SOON, "the end of all connections", || proxy.open_connections().is_empty());
    assert_eq!(proxy.requests(&acquires()).len(), before);
    assert_eq!(several.count("a"), left);
}

fn acquires() -> Match {
    scripts::acquire().with_arg("a")
}

#[test]
fn the_end_of_a_client_is_the_end_of_what_it_listens_to() {
    on_both(|face| {
        for closed in [true, false] {
            let several = Several::start(Flavor::Valkey91, 3);
            let client = client(face, &several);
            let (lease, held) = extended(&client, &several);
            let before = several.proxies[2].requests(&acquires()).len();
            if closed {
                client.close();
                assert!(!lease.is_held());
            }
            drop(lease);
            drop(client);
            wait_until(SOON, "everything to be released", || several.count("a") == 0);
            nothing_is_sent(&several, &held, before, 0);
        }
    });
}

#[test]
fn the_end_of_a_runtime_is_the_end_of_what_it_listens_to() {
    let several = Several::start(Flavor::Valkey91, 3);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = several.proxied("quarantine_ms=0");
    let (client, lease) = runtime.block_on(async {
        let client = unhurried().connect(&url).await.unwrap();
        let lock = client.lock("a").ttl(LONG).auto_renew(false);
        // a server whose connection is just being made is done without
        loop {
            let lease = lock.acquire_within(SOON).await.unwrap();
            if several.count("a") == 3 {
                break (client, lease);
            }
            lease.release().await.unwrap();
        }
    });
    forget(&several.servers[2], "a");
    let held = several.proxies[2].on(scripts::renew()).hold_reply();
    runtime.block_on(lease.extend(LONG)).unwrap();
    held.wait_hits(1);
    let before = several.proxies[2].requests(&acquires()).len();
    drop(runtime);
    nothing_is_sent(&several, &held, before, 2);
    drop((lease, client));
}
