//! The server's state: loading, busy, frozen, paused, out of memory, out of connections; connections that it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use onelock::{ErrorKind, Kind, LossReason, Owner, Release};
use onelock_tests::face::{Client, everywhere, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SLACK, SOON, Stage, fails, ms, promised, quick, timed};
use onelock_tests::wait::{wait_for, wait_until};

/// A server that takes about two seconds to load its data when it starts again.
fn slow_to_load(flavor: Flavor) -> Stage {
    let builder = Server::builder(flavor).aof("always").config("aof-use-rdb-preamble", "no");
    let server = builder.config("key-load-delay", "100").start();
    server.cmd(&["EVAL", "for i = 1, 20000 do redis.call('SET', 'filler:' .. i, string.rep('x', 100)) end", "0"]);
    Stage::with(server)
}

#[test]
fn f13_loading_is_waited_for_and_named() {
    everywhere(|flavor, face| {
        let stage = slow_to_load(flavor);
        let client = stage.client(face);
        let before = client.lock("before").ttl(ms(60_000)).acquire().unwrap();
        stage.server.restart();
        // a server that loads says so when it can spare the time, and is silent when it cannot
        let error = wait_for(SOON, "LOADING to be named", || {
            let error = client.lock("a").try_acquire().unwrap_err();
            assert!(error.is_retryable(), "{error}");
            (error.kind() == ErrorKind::ServerRefused).then_some(error)
        });
        assert!(error.to_string().contains("LOADING"), "{error}");
        // whoever waits gets it once the data is there
        let lease = client.lock("a").acquire_within(ms(20_000)).unwrap();
        assert!(lease.is_held());
        assert!(before.is_held() && stage.exists("before"), "written always, so it is still there");
        let asked = stage.requests(&Match::any()).len();
        assert!(asked < 150, "{asked} requests while it was loading");
        before.released();
        lease.released();
        wait_until(SOON, "both to be released", || !stage.exists("a") && !stage.exists("before"));
    });
}

#[test]
fn f14_busy_script_is_waited_for_and_the_holder_keeps_its_deadline() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        stage.server.config_set("lua-time-limit", "10");
        let client = stage.client(face);
        let held = client.lock("held").ttl(ms(6000)).acquire().unwrap();
        let mut endless = stage.server.connect();
        endless.send(&["EVAL", "while true do end", "0"]).unwrap();
        wait_until(SOON, "BUSY", || stage.server.try_cmd(&["PING"]).is_err_and(|error| error.starts_with("BUSY")));

        let error = fails(client.lock("a").try_acquire(), ErrorKind::ServerRefused);
        assert!(error.to_string().contains("BUSY"), "{error}");
        let (took, result) = timed(|| client.lock("a").acquire_within(ms(400)));
        fails(result, ErrorKind::ServerRefused);
        assert!(took < promised(ms(400)), "{took:?}");
        assert!(held.is_held(), "busy is not dead");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            stage.server.cmd(&["SCRIPT", "KILL"]);
            assert_eq!(waiter.join().unwrap().released(), Release::Released);
        });
        held.extend(ms(6000)).unwrap();
        assert_eq!(held.released(), Release::Released);
        assert!(stage.requests(&scripts::acquire()).len() < 60);
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn f15_noscript_is_answered_with_the_text() {
    everywhere(|flavor, face| {
        let server = Server::start(flavor);
        let client = Client::build(face, quick(), &server.url()).unwrap();
        let flush = || drop(server.cmd(&["SCRIPT", "FLUSH"]));
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let owner = Owner::new();
            let lock = client.lock_of(kind, format!("{kind:?}"));
            let lock = if kind == Kind::Reentrant { lock.owner(&owner) } else { lock };
            flush();
            let lease = lock.acquire().unwrap();
            flush();
            lease.extend(ms(60_000)).unwrap();
            flush();
            assert!(client.inspect(format!("{kind:?}")).unwrap().is_some());
            flush();
            if kind == Kind::Reentrant {
                assert_eq!(lock.acquire().unwrap().released(), Release::Released);
                flush();
            }
            assert_eq!(lease.released(), Release::Released);
            let _taken_by_force = lock.acquire().unwrap();
            flush();
            assert!(client.force_release(format!("{kind:?}")).unwrap());
        }
    });
}

#[test]
fn f16_frozen_server_the_holder_loses_at_its_deadline() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client(face);
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let start = Instant::now();
        let lease = client.lock("a").ttl(ms(1500)).acquire().unwrap();
        lease.on_lost(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        stage.server.stop();
        fails(client.lock("b").ttl(ms(20_000)).acquire_within(ms(200)), ErrorKind::Unavailable);
        wait_until(SOON, "the deadline", || !lease.is_held());
        assert!(start.elapsed() < ms(1500) + SLACK, "{:?}", start.elapsed());
        assert_eq!(lease.wait_lost(SOON), Some(LossReason::Expired));
        assert_eq!(lease.released(), Release::AlreadyExpired);
        stage.server.cont();
        // what was queued on closed sockets still runs, and is undone
        wait_until(SOON, "the ghost of b to go", || client.stats().held == 0 && !stage.exists("b"));
        let next = client.lock("a").acquire_within(SOON).unwrap();
        assert!(next.is_held() && next.fence() > lease.fence());
        wait_until(SOON, "the loss to be told", || told.load(Ordering::Relaxed) == 1);
    });
}

#[test]
fn f16_debug_sleep_shorter_than_the_lease_is_survived() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client(face);
        let lease = client.lock("a").ttl(ms(8000)).on_lost(|reason| panic!("{reason:?}")).acquire().unwrap();
        let mut sleeper = stage.server.connect();
        sleeper.send(&["DEBUG", "SLEEP", "1.5"]).unwrap();
        let other = client.lock("b").acquire_within(SOON).unwrap();
        sleeper.read().unwrap();
        wait_until(SOON, "a renewal after that", || client.stats().renewals >= 1);
        assert!(lease.is_held() && other.is_held());
        assert_eq!(lease.released(), Release::Released);
        assert_eq!(client.stats().lost, 0);
    });
}

#[test]
fn f17_out_of_memory_refuses_acquires_while_renewal_and_release_work() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client(face);
        let owner = Owner::new();
        let mutex = client.lock("m").ttl(ms(10_000)).renew_every(ms(50)).acquire().unwrap();
        let lock = client.reentrant_lock("r").owner(&owner).ttl(ms(10_000)).renew_every(ms(50));
        let outer = lock.acquire().unwrap();
        let inner = lock.acquire().unwrap();
        stage.server.config_set("maxmemory", "1");

        for kind in [Kind::Mutex, Kind::Reentrant] {
            let before = stage.requests(&Match::any()).len();
            let (took, result) = timed(|| client.lock_of(kind, "new").acquire_within(SOON));
            let error = fails(result, ErrorKind::ServerRefused);
            assert!(error.to_string().contains("OOM"), "{error}");
            assert!(took < SOON / 2, "{took:?}");
            assert!(stage.requests(&Match::any()).len() - before < 30);
            assert!(!stage.exists("new"));
        }
        let renewals = client.stats().renewals;
        wait_until(SOON, "renewals", || client.stats().renewals >= renewals + 4);
        mutex.extend(ms(20_000)).unwrap();
        let again = lock.acquire().unwrap();
        assert_eq!(again.hold_count(), 3);
        assert_eq!(again.released(), Release::Released);
        assert_eq!(inner.released(), Release::Released);
        assert_eq!(outer.hold_count(), 1);
        assert_eq!(outer.released(), Release::Released);
        assert_eq!(mutex.released(), Release::Released);
        assert!(!stage.exists("m") && !stage.exists("r"));
        assert_eq!(client.stats().lost, 0);
        stage.server.config_set("maxmemory", "0");
        assert!(client.lock("new").try_acquire().unwrap().is_some());
    });
}

#[test]
fn f23_too_many_clients_is_unavailable_and_not_hammered() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        stage.server.config_set("maxclients", "1");
        let client = stage.client(face);
        let error = fails(client.lock("a").try_acquire(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("max number of clients"), "{error}");
        fails(client.lock("a").acquire_within(ms(800)), ErrorKind::Unavailable);
        let connections = stage.proxy.connections();
        assert!((2..=30).contains(&connections), "{connections}");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            stage.server.config_set("maxclients", "100");
            assert_eq!(waiter.join().unwrap().released(), Release::Released);
        });
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn f23_protected_mode_is_named() {
    on_both(|face| {
        let stage = Stage::valkey();
        let denied = "-DENIED Redis is running in protected mode because protected mode is enabled\r\n";
        stage.proxy.on(Match::any()).answer(denied);
        let client = stage.client(face);
        let error = fails(client.lock("a").acquire_within(ms(300)), ErrorKind::Unavailable);
        assert!(error.to_string().contains("protected mode"), "{error}");
        assert!(stage.proxy.connections() < 20);
    });
}

#[test]
fn f31_killed_connections_are_replaced_and_renewal_goes_on() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client(face);
        let lock = client.lock("a").ttl(ms(10_000)).renew_every(ms(30)).on_lost(|reason| panic!("{reason:?}"));
        let lease = lock.acquire().unwrap();
        for round in 1..=5 {
            let renewals = client.stats().renewals;
            stage.server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            wait_until(SOON, "a renewal after the kill", || client.stats().renewals > renewals + 1);
            let other = client.lock(format!("other:{round}")).try_acquire().unwrap().unwrap();
            assert_eq!(other.released(), Release::Released);
        }
        assert!(lease.is_held());
        assert_eq!(lease.released(), Release::Released);
        assert!(stage.proxy.connections() < 30, "{}", stage.proxy.connections());
        assert_eq!(client.stats().lost, 0);
    });
}

#[test]
fn f31_killed_in_flight_is_asked_again() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        client.lock("warm").acquire().unwrap().released();
        // carried out, the reply is under way, and the connection dies
        let held = stage.proxy.on(scripts::acquire()).once().hold_reply();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            held.wait_hits(1);
            stage.server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
            stage.proxy.cut_all();
            assert_eq!(call.join().unwrap().released(), Release::Released);
        });
        assert_eq!(stage.requests(&scripts::acquire().with_arg("a")).len(), 2);
        wait_until(SOON, "nothing to be left", || !stage.exists("a"));
    });
}

#[test]
fn f31_connections_closed_for_idleness_are_not_noticed() {
    on_both(|face| {
        let stage = Stage::valkey();
        stage.server.config_set("timeout", "1");
        let client = stage.client(face);
        let connected = || {
            let list = stage.server.text(&["CLIENT", "LIST", "TYPE", "normal"]);
            list.lines().filter(|line| !line.contains("user=fixture")).count()
        };
        for _ in 0..2 {
            assert_eq!(client.lock("a").try_acquire().unwrap().unwrap().released(), Release::Released);
            assert!(connected() > 0);
            wait_until(SOON, "the server to close idle connections", || connected() == 0);
        }
        let lease = client.lock("a").try_acquire().unwrap().unwrap();
        wait_until(SOON, "the server to close idle connections", || connected() == 0);
        lease.extend(ms(30_000)).unwrap();
        assert_eq!(lease.released(), Release::Released, "not even a release is in doubt");
    });
}

#[test]
fn f32_client_pause_delays_and_loses_nothing() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client_with(face, quick().request_timeout(ms(8000)));
        let lock = client.lock("a").ttl(ms(10_000)).renew_every(ms(100)).on_lost(|reason| panic!("{reason:?}"));
        let lease = lock.acquire().unwrap();
        stage.server.cmd(&["CLIENT", "PAUSE", "400", "WRITE"]);
        let (took, other) = timed(|| client.lock("b").try_acquire().unwrap().unwrap());
        assert!(took < SLACK, "{took:?}");
        assert!(other.is_held() && lease.is_held());
        assert_eq!(other.released(), Release::Released);
        assert_eq!(lease.released(), Release::Released);
        stage.wait_clean(&client, "a", SOON);
        assert_eq!(client.stats().lost, 0);
    });
}

#[test]
fn f33_a_subscriber_killed_for_its_backlog_still_gets_the_lock() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client_with(face, quick().request_timeout(ms(5000)));
        let holder = stage.rival(face);
        let lease = holder.lock("a").acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(ms(20_000)).unwrap());
            stage.proxy.wait_requests(&Match::command("SUBSCRIBE"), 1);
            wait_until(SOON, "the second look", || stage.requests(&scripts::acquire()).len() >= 2);
            stage.server.config_set("client-output-buffer-limit", "pubsub 65536 32768 1 normal 65536 32768 1");
            stage.proxy.pause_replies();
            let big = "x".repeat(1 << 20);
            wait_until(SOON, "the server to end the subscriber", || {
                stage.server.cmd(&["PUBLISH", "onelock_channel:{a}", &big]);
                stage.server.text(&["CLIENT", "LIST", "TYPE", "pubsub"]).is_empty()
            });
            assert_eq!(lease.released(), Release::Released);
            stage.proxy.resume();
            let (took, got) = timed(|| waiter.join().unwrap());
            assert!(got.is_held() && took < ms(10_000), "{took:?}");
        });
    });
}
