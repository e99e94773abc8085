//! Waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onelock::{ErrorKind, Kind, Release};
use onelock_tests::face::{block_on, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::stage::{SOON, Stage, fails, ms, promised, quick_once, timed};
use onelock_tests::wait::wait_until;
use redis::Value;

#[test]
fn r09_granted_soon_after_the_release_and_never_later_than_the_wait() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        // the safety poll would come after a second at the earliest
        quick_once(ms(400), "granted after the release", || {
            let held = stage.rival(face).lock("a").acquire_within(SOON).unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let lease = client.lock("a").acquire_within(SOON).unwrap();
                    (Instant::now(), lease)
                });
                let start = Instant::now();
                wait_until(SOON, "half a second", || start.elapsed() > ms(500));
                let freed = Instant::now();
                held.released();
                let (got, lease) = waiter.join().unwrap();
                drop(lease);
                got.duration_since(freed)
            })
        });
        let _again = stage.rival(face).lock("a").acquire_within(SOON).unwrap();
        let (took, result) = timed(|| client.lock("a").acquire_within(ms(900)));
        fails(result, ErrorKind::Timeout);
        assert!(took >= ms(900) && took < promised(ms(900)), "{took:?}");
    });
}

#[test]
fn r10_a_guard_with_a_bounded_wait_gives_up_when_it_should() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let _held = stage.rival(face).lock("a").acquire().unwrap();
        let (took, result) = timed(|| client.lock("a").acquire_within(Duration::ZERO));
        fails(result, ErrorKind::Busy);
        assert!(took < promised(Duration::ZERO), "{took:?}");
        let (took, result) = timed(|| client.lock("a").acquire_within(ms(300)));
        fails(result, ErrorKind::Timeout);
        assert!(took >= ms(300) && took < promised(ms(300)), "{took:?}");
    });
}

#[test]
fn r11_a_plain_try_is_one_request_no_sleep_and_no_error() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        client.lock("warm").acquire().unwrap().released();
        client.check().unwrap();
        let _held = stage.rival(face).lock("a").acquire().unwrap();
        let mut tries = 0;
        quick_once(ms(100), "a try", || {
            let before = stage.requests(&Match::any()).len();
            let (took, found) = timed(|| client.lock("a").try_acquire().unwrap());
            assert!(found.is_none());
            assert_eq!(stage.requests(&Match::any()).len() - before, 1);
            tries += 1;
            took
        });
        assert_eq!(client.stats().busy, tries);
    });
}

#[test]
fn r13_a_wait_longer_than_the_ttl_is_fine() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let held = stage.rival(face).lock("a").acquire().unwrap();
        std::thread::scope(|scope| {
            let lock = client.lock("a").ttl(ms(1000));
            let waiter = scope.spawn(move || lock.acquire_within(Duration::from_secs(60)).unwrap());
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            let start = Instant::now();
            wait_until(SOON, "twice its ttl", || start.elapsed() > ms(2000));
            held.released();
            assert!(waiter.join().unwrap().is_held());
        });
    });
}

/// How many scripts the server was asked to run.
fn scripts_run(stage: &Stage) -> i64 {
    let stats = stage.server.info("commandstats");
    let calls = |command: &str| {
        let line = stats.get(command)?;
        line.strip_prefix("calls=")?.split(',').next()?.parse::<i64>().ok()
    };
    calls("cmdstat_evalsha").unwrap_or(0) + calls("cmdstat_eval").unwrap_or(0)
}

#[test]
fn r14_two_hundred_waiters_leave_the_server_alone() {
    let stage = Stage::valkey();
    let clients: Vec<_> = (0..10).map(|_| onelock::Client::new(&stage.server.url()).unwrap()).collect();
    let holder = onelock::Client::new(&stage.server.url()).unwrap();
    block_on(async {
        let held = holder.lock("a").acquire().await.unwrap();
        let got = Arc::new(std::sync::atomic::AtomicI64::new(0));
        let waiters: Vec<_> = (0..200)
            .map(|n| {
                let (lock, got) = (clients[n % 10].lock("a"), got.clone());
                tokio::spawn(async move {
                    let lease = lock.acquire_within(Duration::from_secs(60)).await.unwrap();
                    got.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    assert_eq!(lease.release().await.unwrap(), Release::Released);
                })
            })
            .collect();
        let waiting = || clients.iter().map(|client| client.stats().waiting).sum::<u64>();
        tokio::task::block_in_place(|| wait_until(SOON, "200 waiters", || waiting() == 200));
        // let the first looks pass: each client's head asks, subscribes, asks again
        let settled = scripts_run(&stage);
        assert!(settled < 60, "{settled}");
        let start = Instant::now();
        tokio::time::sleep(ms(3000)).await;
        let polled = scripts_run(&stage) - settled;
        // ten heads, a safety poll a second each, and the holder's renewals; not two hundred pollers
        assert!(polled < 60, "{polled} in {:?}", start.elapsed());

        let before = scripts_run(&stage);
        held.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        let per_release = (scripts_run(&stage) - before) as f64 / 200.0;
        // one release and one look for each client that waits, and some luck
        assert!(per_release < 2.0 * 10.0 + 4.0, "{per_release} requests for each release");
    });
}

#[test]
fn r15_keys_do_not_pile_up() {
    let stage = Stage::valkey();
    let client = onelock::Client::new(&stage.server.url()).unwrap();
    block_on(async {
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..50 {
            let client = client.clone();
            workers.spawn(async move {
                for n in 0..200 {
                    let name = format!("{worker}:{n}");
                    let lock = if n % 2 == 0 { client.lock(&name) } else { client.reentrant_lock(&name) };
                    let lease = lock.fencing(n % 4 < 2).acquire().await.unwrap();
                    assert_eq!(lease.release().await.unwrap(), Release::Released);
                }
            });
        }
        while let Some(done) = workers.join_next().await {
            done.unwrap();
        }
    });
    let keys = |pattern: &str| match stage.server.cmd(&["KEYS", pattern]) {
        Value::Array(keys) => keys,
        other => panic!("{other:?}"),
    };
    assert_eq!(keys("*").len(), 5000, "one counter for each fenced name");
    assert_eq!(keys("onelock_fence:*").len(), 5000);
    assert_eq!(stage.server.info("keyspace")["db0"].split(',').nth(1), Some("expires=5000"));
    assert_eq!(stage.server.int(&["EVAL", "return #redis.call('PUBSUB', 'CHANNELS')", "0"]), 0);
    let stats = client.stats();
    assert_eq!((stats.held, stats.cleaning, stats.waiting, stats.acquired), (0, 0, 0, 10_000));
}

#[test]
fn r42_a_refused_second_acquire_leaves_the_first_releasable() {
    on_both(|face| {
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let stage = Stage::valkey();
            let client = stage.client(face);
            let lock = client.lock_of(kind, "a");
            let held = lock.acquire().unwrap();
            assert!(lock.try_acquire().unwrap().is_none());
            fails(lock.acquire_within(ms(30)), ErrorKind::Timeout);
            assert!(held.is_held());
            held.extend(ms(40_000)).unwrap();
            assert_eq!(held.released(), Release::Released);
            stage.wait_clean(&client, "a", SOON);
        }
    });
}
