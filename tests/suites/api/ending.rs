//! Close, drop, and calls from the wrong place.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onelock::{Error, ErrorKind, Release};
use onelock_tests::face::{Client, block_on, on_both};
use onelock_tests::stage::{SLACK, SOON, Stage, fails, ms, quick, timed};
use onelock_tests::wait::wait_until;

#[test]
fn after_close_everything_but_release_and_drop_says_closed() {
    on_both(|face| {
        for used in [true, false] {
            let stage = Stage::valkey();
            let client = stage.client(face);
            let lease = used.then(|| client.lock("held").acquire().unwrap());
            let other = used.then(|| client.lock("other").acquire().unwrap());
            client.close();
            assert!(!stage.exists("held") && !stage.exists("other"), "what was held is released");
            let results: [Result<(), Error>; 8] = [
                client.lock("a").acquire().map(drop),
                client.lock("a").try_acquire().map(drop),
                client.reentrant_lock("a").acquire_within(ms(10)).map(drop),
                client.lock("a").is_locked().map(drop),
                client.lock("a").attach(&format!("onelock1:{:032x}", 5)).map(drop),
                client.inspect("a").map(drop),
                client.force_release("a").map(drop),
                client.check().map(drop),
            ];
            for result in results {
                fails(result, ErrorKind::Closed);
            }
            if let (Some(lease), Some(other)) = (lease, other) {
                assert!(!lease.is_held());
                fails(lease.extend(ms(1000)), ErrorKind::Closed);
                assert_eq!(lease.released(), Release::AlreadyReleased);
                drop(other);
            }
            client.close();
            let stats = client.stats();
            assert_eq!((stats.held, stats.waiting, stats.cleaning), (0, 0, 0));
            wait_until(SOON, "the connections to end", || stage.proxy.open_connections().is_empty());
        }
    });
}

#[test]
fn close_ends_those_who_wait() {
    on_both(|face| {
        let stage = Stage::valkey();
        let _theirs = stage.rival(face).lock("a").acquire().unwrap();
        let client = stage.client(face);
        std::thread::scope(|scope| {
            let waiters = [(); 3].map(|()| scope.spawn(|| client.lock("a").acquire().map(drop).unwrap_err()));
            wait_until(SOON, "three waiters", || client.stats().waiting == 3);
            let (took, ()) = timed(|| client.close());
            assert!(took < ms(1000) + SLACK, "{took:?}");
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap().kind(), ErrorKind::Closed);
            }
        });
        assert!(stage.exists("a"));
    });
}

#[test]
fn dropping_everything_gives_everything_back() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let leases: Vec<_> = (0..20).map(|n| client.lock(format!("{n}")).acquire().unwrap()).collect();
        drop(client);
        assert!(leases.iter().all(onelock_tests::face::Lease::is_held), "leases outlive their client's handle");
        drop(leases);
        wait_until(SOON, "all to be released", || (0..20).all(|n| !stage.exists(format!("{n}"))));
        wait_until(SOON, "the connections to end", || stage.proxy.open_connections().is_empty());
    });
}

#[test]
fn blocking_calls_inside_a_runtime_are_refused_and_never_panic() {
    let stage = Stage::valkey();
    let Client::Blocking(client) = stage.client(onelock_tests::face::Face::Blocking) else { unreachable!() };
    let lease = client.lock("held").acquire().unwrap();
    let other = client.lock("other").acquire().unwrap();
    let proof = format!("onelock1:{:032x}", 5);
    block_on(async {
        let results: [Result<(), Error>; 11] = [
            client.lock("a").acquire().map(drop),
            client.lock("a").try_acquire().map(drop),
            client.lock("a").acquire_within(ms(10)).map(drop),
            client.lock("a").with(|_| Ok::<_, Error>(())),
            client.lock("a").is_locked().map(drop),
            client.lock("a").attach(&proof).map(drop),
            client.inspect("a").map(drop),
            client.force_release("a").map(drop),
            client.check().map(drop),
            lease.extend(ms(1000)),
            lease.wait_lost(ms(10)).map(drop),
        ];
        for result in results {
            let error = fails(result, ErrorKind::Unsupported);
            assert!(error.to_string().contains("onelock::Client"), "it says what to use: {error}");
        }
        let connected = onelock::blocking::Client::connect(&stage.proxy.url()).map(drop);
        fails(connected, ErrorKind::Unsupported);
        // what needs no server works here, too; a release does not wait
        assert!(lease.is_held() && lease.remaining() > ms(1000));
        assert_eq!(lease.release().unwrap(), Release::Unconfirmed);
        assert!(!lease.is_held());
        drop(other);
        tokio::task::block_in_place(|| {
            wait_until(SOON, "both to be released", || !stage.exists("held") && !stage.exists("other"));
        });
        client.close();
    });
    fails(client.lock("a").acquire(), ErrorKind::Closed);
}

#[test]
fn async_calls_without_a_runtime_are_refused_and_never_panic() {
    fn now<T>(future: impl Future<Output = Result<T, Error>>) -> Error {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => fails(result, ErrorKind::Unsupported),
            Poll::Pending => panic!("it waits for a runtime that is not there"),
        }
    }
    let client = onelock::Client::new("memory://").unwrap();
    for error in [
        now(client.lock("a").acquire()),
        now(client.lock("a").try_acquire()),
        now(client.inspect("a")),
        now(client.force_release("a")),
        now(client.check()),
    ] {
        assert!(error.to_string().contains("onelock::blocking"), "it says what to use: {error}");
    }
    assert_eq!(client.stats().held, 0);
    // and works as soon as there is one
    block_on(async { client.lock("a").acquire().await.unwrap().release().await.unwrap() });
}

#[test]
fn the_runtime_may_end_before_the_lease() {
    let stage = Stage::valkey();
    let client = onelock::Client::new(&stage.proxy.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let lease = runtime.block_on(client.lock("a").ttl(ms(3000)).acquire()).unwrap();
    runtime.shutdown_timeout(Duration::from_secs(5));
    // nobody renews any more, and the call is still the truth
    assert!(lease.is_held());
    wait_until(SOON, "the deadline", || !lease.is_held());
    wait_until(SOON, "the key to end", || !stage.exists("a"));
    drop(lease);
    drop(client);
}

#[test]
fn handles_may_be_sent_and_shared() {
    fn shareable<T: Send + Sync + 'static>() {}
    shareable::<onelock::Client>();
    shareable::<onelock::Lock>();
    shareable::<onelock::Lease>();
    shareable::<onelock::Error>();
    shareable::<onelock::blocking::Client>();
    shareable::<onelock::blocking::Lock>();
    shareable::<onelock::blocking::Lease>();
}

/// Where tokio lets a thread block, it may; inside a task it may not, whichever runtime that is of.
#[test]
fn blocking_calls_are_at_home_where_a_runtime_lets_block() {
    let stage = Stage::valkey();
    let Client::Blocking(client) = stage.client(onelock_tests::face::Face::Blocking) else { unreachable!() };
    let works = |client: &onelock::blocking::Client| {
        let lease = client.lock("a").acquire_within(SOON).unwrap();
        lease.extend(ms(20_000)).unwrap();
        assert_eq!(lease.release().unwrap(), Release::Released);
    };
    let refused =
        |client: &onelock::blocking::Client| drop(fails(client.lock("a").try_acquire(), ErrorKind::Unsupported));
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for runtime in [&one, &several] {
        runtime.block_on(async {
            refused(&client);
            let theirs = client.clone();
            tokio::task::spawn_blocking(move || works(&theirs)).await.unwrap();
            let theirs = client.clone();
            tokio::spawn(async move { refused(&theirs) }).await.unwrap();
            tokio::task::LocalSet::new().run_until(async { refused(&client) }).await;
            // the look for a task takes nothing from it
            refused(&client);
            tokio::task::yield_now().await;
        });
        let entered = runtime.enter();
        works(&client);
        drop(entered);
    }
    several.block_on(async {
        let theirs = client.clone();
        let task = tokio::spawn(async move {
            tokio::task::block_in_place(|| works(&theirs));
            // a runtime inside is a runtime
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(async { refused(&theirs) }));
            refused(&theirs);
        });
        task.await.unwrap();
    });
    works(&client);
}

/// A client that outlives its first runtime has its leases renewed on the next one.
#[test]
fn a_client_goes_on_with_the_next_runtime() {
    let stage = Stage::valkey();
    let client = quick().build(&stage.proxy.url()).unwrap();
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for round in 0..3 {
        let runtime = runtime();
        runtime.block_on(async {
            let lease = client.lock(format!("{round}")).ttl(ms(10_000)).renew_every(ms(100)).acquire().await.unwrap();
            let before = client.stats().renewals;
            while client.stats().renewals < before + 8 {
                assert!(lease.is_held(), "it was not renewed");
                tokio::time::sleep(ms(5)).await;
            }
            assert_eq!(lease.release().await.unwrap(), Release::Released);
        });
        drop(runtime);
    }
    // a store of the client alone ends with the runtime
    let client = onelock::Client::new("memory://").unwrap();
    runtime().block_on(async { drop(client.lock("a").acquire().await.unwrap()) });
    runtime().block_on(async { fails(client.lock("a").acquire().await.map(drop), ErrorKind::Unsupported) });
}
