//! Leases: how long they last, and what the server is told.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use onelock::{ErrorKind, Kind, LossReason, Owner, Release};
use onelock_tests::face::{Client, everywhere, on_both};
use onelock_tests::servers::{Monitor, Server};
use onelock_tests::stage::{SLACK, SOON, Stage, fails, ms, quick};
use onelock_tests::wait::wait_until;

#[test]
fn r17_waiting_does_not_eat_the_lease() {
    on_both(|face| {
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let stage = Stage::valkey();
            let client = stage.client(face);
            let held = stage.rival(face).lock_of(kind, "a").acquire().unwrap();
            std::thread::scope(|scope| {
                let lock = client.lock_of(kind, "a").ttl(ms(2000));
                let waiter = scope.spawn(move || {
                    let lease = lock.acquire_within(SOON).unwrap();
                    let remaining = lease.remaining();
                    (lease, remaining)
                });
                wait_until(SOON, "the waiter", || client.stats().waiting == 1);
                let start = Instant::now();
                wait_until(SOON, "more than its ttl", || start.elapsed() > ms(2300));
                held.released();
                let (lease, remaining) = waiter.join().unwrap();
                assert!(remaining > ms(1000), "{remaining:?}: nearly all of it");
                assert!(lease.is_held());
            });
        }
    });
}

#[test]
fn r18_extending_sets_and_never_adds() {
    on_both(|face| {
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let stage = Stage::valkey();
            let lease = stage.client(face).lock_of(kind, "a").ttl(ms(10_000)).acquire().unwrap();
            for _ in 0..5 {
                lease.extend(ms(10_000)).unwrap();
                assert!((8_000..=10_000).contains(&stage.pttl("a")), "{}", stage.pttl("a"));
                assert!(lease.remaining() <= ms(10_000) && lease.remaining() > ms(8_000));
            }
            // and never shortens
            lease.extend(ms(1_000)).unwrap();
            assert!(stage.pttl("a") > 8_000 && lease.remaining() > ms(8_000));
        }
    });
}

#[test]
fn r19_the_same_lease_can_be_extended_again_and_again() {
    on_both(|face| {
        let stage = Stage::valkey();
        let lease = stage.client(face).lock("a").ttl(ms(2000)).auto_renew(false).acquire().unwrap();
        let fence = lease.fence();
        for seconds in [5, 10, 20] {
            lease.extend(Duration::from_secs(seconds)).unwrap();
            assert!(lease.is_held() && lease.remaining() > Duration::from_secs(seconds - 2));
        }
        assert_eq!(lease.fence(), fence);
        assert_eq!(lease.released(), Release::Released);
        fails(lease.extend(ms(1000)), ErrorKind::NotHeld);
    });
}

#[test]
fn r20_fractions_are_kept_and_nonsense_is_refused() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        // or it would look at the server in its own time
        client.check().unwrap();
        let lease = client.lock("a").ttl(Duration::from_secs_f64(0.5)).auto_renew(false).acquire().unwrap();
        let (before, left) = (lease.remaining(), stage.pttl("a"));
        assert!(left <= 500 && i128::from(left) + 200 > before.as_millis().cast_signed(), "{left} {before:?}");
        let asked = client.stats().commands_sent;
        for ttl in [Duration::from_secs_f64(0.0004), Duration::ZERO] {
            fails(client.lock("b").ttl(ttl).try_acquire(), ErrorKind::InvalidArgument);
            fails(lease.extend(ttl), ErrorKind::InvalidArgument);
        }
        assert_eq!(client.stats().commands_sent, asked);
    });
}

/// What a server was told about keys, in its own order.
#[derive(Default)]
struct Keys {
    /// Whether a key that was written has an end.
    bounded: HashMap<String, bool>,
    writes: usize,
}

impl Keys {
    /// Follows everything that scripts did. Between scripts, no key may be without an end.
    fn follow(&mut self, monitor: &Monitor) {
        for line in monitor.seen() {
            if line.source != "lua" {
                let unbounded: Vec<_> = self.bounded.iter().filter(|(_, bounded)| !**bounded).collect();
                assert!(unbounded.is_empty(), "without an end: {unbounded:?} before {line:?}");
                continue;
            }
            let args: Vec<&str> = line.args.iter().map(String::as_str).collect();
            match (args[0].to_ascii_uppercase().as_str(), &args[1..]) {
                ("SET", [key, _, px, span] | [key, _, px, span, "GET"]) if px.eq_ignore_ascii_case("PX") => {
                    assert!(span.parse::<u64>().unwrap() > 0);
                    self.writes += 1;
                    self.bounded.insert((*key).to_owned(), true);
                }
                // writes nothing where something stands
                ("SET", [key, _, nx, px, span]) if nx.eq_ignore_ascii_case("NX") && px.eq_ignore_ascii_case("PX") => {
                    assert!(span.parse::<u64>().unwrap() > 0);
                    self.writes += 1;
                    self.bounded.entry((*key).to_owned()).or_insert(true);
                }
                ("HSET", [key, ..]) => {
                    self.writes += 1;
                    self.bounded.entry((*key).to_owned()).or_insert(false);
                }
                ("PEXPIRE", [key, span]) => {
                    assert!(span.parse::<u64>().unwrap() > 0);
                    self.bounded.entry((*key).to_owned()).and_modify(|bounded| *bounded = true);
                }
                ("DEL", [key]) => drop(self.bounded.remove(*key)),
                // what is left of the key keeps its end
                ("HDEL", [_, _, ..]) => self.writes += 1,
                (
                    "GET" | "EXISTS" | "HMGET" | "HEXISTS" | "HSCAN" | "PTTL" | "TYPE" | "TIME" | "GETRANGE"
                    | "PUBLISH",
                    _,
                ) => {}
                _ => panic!("a command that is new here: {:?}", line.args),
            }
        }
    }
}

/// Everything that a client can do with a lock.
fn everything(client: &Client, other: &Client, kind: Kind) {
    let name = format!("{kind:?}");
    let owner = Owner::new();
    let lock = client.lock_of(kind, &name).ttl(ms(2000)).renew_every(ms(20));
    let lock = if kind == Kind::Reentrant { lock.owner(&owner) } else { lock };
    let lease = lock.acquire().unwrap();
    lease.extend(ms(3000)).unwrap();
    if kind == Kind::Reentrant {
        let inner = lock.acquire().unwrap();
        lock.acquire().unwrap().released();
        inner.released();
    }
    client.inspect(&name).unwrap();
    wait_until(SOON, "renewals", || client.stats().renewals >= 3);
    assert!(other.lock_of(kind, &name).try_acquire().unwrap().is_none());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| other.lock_of(kind, &name).acquire_within(SOON).unwrap());
        wait_until(SOON, "the waiter", || other.stats().waiting == 1);
        lease.released();
        let lease = waiter.join().unwrap();
        assert!(client.force_release(&name).unwrap());
        lease.released();
    });
    let proof = client.lock_of(kind, &name).acquire().unwrap().detach().unwrap();
    other.lock_of(kind, &name).attach(&proof).unwrap().released();
    client.lock_of(kind, &name).fencing(false).acquire().unwrap().released();
    drop(client.lock_of(kind, &name).lock_delay(ms(500)).ttl(ms(50)).auto_renew(false).acquire().unwrap());
    fails(client.lock_of(kind, "occupied").try_acquire(), ErrorKind::WrongKind);
}

#[test]
fn r21_no_key_is_ever_written_without_an_end() {
    everywhere(|flavor, face| {
        let server = Server::start(flavor);
        server.cmd(&["RPUSH", "occupied", "x"]);
        let monitor = server.monitor();
        let new = || Client::build(face, quick().request_timeout(ms(2000)).inspectable(true), &server.url()).unwrap();
        let (client, other) = (new(), new());
        for kind in [Kind::Mutex, Kind::Reentrant] {
            everything(&client, &other, kind);
        }
        wait_until(SOON, "clean-up", || client.stats().cleaning == 0 && other.stats().cleaning == 0);
        let mut keys = Keys::default();
        keys.follow(&monitor);
        assert!(keys.writes > 20, "{}", keys.writes);
        server.cmd(&["DEL", "occupied"]);
        let redis::Value::Array(left) = server.cmd(&["KEYS", "*"]) else { panic!("no keys") };
        for key in left {
            let key = onelock_tests::resp::text(&key);
            assert!(server.int(&["PTTL", &key]) > 0, "{key}");
        }
    });
}

#[test]
fn r24_one_failed_renewal_gives_nothing_up() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lock = client.lock("a").ttl(ms(3000)).on_lost(|reason| panic!("{reason:?}"));
        let lease = lock.acquire().unwrap();
        // the first renewal is reset, and for a while there is nobody there
        let renewals = onelock_tests::scripts::renew();
        let fault = stage.proxy.on(renewals.clone()).once().cut_before(onelock_tests::proxy::Cut::Reset);
        fault.wait_hits(1);
        stage.proxy.refuse();
        let start = Instant::now();
        wait_until(SOON, "200 ms", || start.elapsed() > ms(200));
        stage.proxy.admit();
        wait_until(SOON, "a renewal that is confirmed", || client.stats().renewals >= 1);
        assert!(lease.is_held() && lease.remaining() > ms(1500));
        assert_eq!(client.stats().lost, 0);
        assert_eq!(lease.released(), Release::Released);
    });
}

#[test]
fn r25_a_lock_that_was_won_after_waiting_is_renewed_too() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let held = stage.rival(face).lock("a").acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").ttl(ms(2500)).acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            held.released();
            let lease = waiter.join().unwrap();
            let start = Instant::now();
            while start.elapsed() < ms(6000) {
                assert!(lease.is_held(), "lost after {:?}: {:?}", start.elapsed(), lease.loss());
                std::thread::sleep(ms(20));
            }
            assert!(client.stats().renewals >= 4);
        });
    });
}

#[test]
fn r26_max_hold_ends_a_hung_holder_and_so_does_dropping_the_lease() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let start = Instant::now();
        let lease = client.lock("a").ttl(ms(1800)).max_hold(ms(2500)).acquire().unwrap();
        assert_eq!(lease.wait_lost(SOON), Some(LossReason::MaxHold));
        let held_for = start.elapsed();
        assert!(held_for >= ms(2500) && held_for < ms(2500) + SLACK, "{held_for:?}");
        assert!(!lease.is_held());
        wait_until(SOON, "the key to end by itself", || !stage.exists("a"));
        assert_eq!(lease.released(), Release::AlreadyExpired);

        let lease = client.lock("b").ttl(ms(60_000)).renew_every(ms(20)).acquire().unwrap();
        let renew = onelock_tests::scripts::renew().with_arg("b");
        stage.proxy.wait_requests(&renew, 1);
        drop(lease);
        wait_until(SOON, "the dropped lease to be released", || !stage.exists("b"));
        let renewals = stage.requests(&renew).len();
        let start = Instant::now();
        wait_until(SOON, "five periods", || start.elapsed() > ms(100));
        assert_eq!(stage.requests(&renew).len(), renewals, "not renewed any more");
    });
}
