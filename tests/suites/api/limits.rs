//! Every call returns in time, whatever the network does. The limits are those of `stage::quick`.

use std::time::Duration;

use onelock::{ErrorKind, Owner, Release};
use onelock_tests::face::{Client, on_both};
use onelock_tests::stage::{REQUEST, SLACK, SOON, Stage, fails, ms, promised, quick, timed};
use onelock_tests::wait::wait_until;

/// Every call that asks a server, in a black hole, with what must come of it.
fn every_call(client: &Client, held: &onelock_tests::face::Lease, inner: &onelock_tests::face::Lease, owner: &Owner) {
    let proof = format!("onelock1:{:032x}", 5);
    let within = |what: &str, wait: Duration, call: &dyn Fn()| {
        let (took, ()) = timed(call);
        assert!(took < promised(wait), "{what} took {took:?}");
    };
    let none = Duration::ZERO;
    within("try", none, &|| drop(fails(client.lock("a").try_acquire(), ErrorKind::Unavailable)));
    let wait = ms(500);
    within("acquire", wait, &|| drop(fails(client.lock("a").acquire_within(wait), ErrorKind::Unavailable)));
    within("re-enter once", none, &|| {
        fails(client.reentrant_lock("r").owner(owner).try_acquire(), ErrorKind::Unavailable);
    });
    within("re-enter", wait, &|| {
        fails(client.reentrant_lock("r").owner(owner).acquire_within(wait), ErrorKind::Unavailable);
    });
    within("extend", none, &|| drop(fails(held.extend(ms(50_000)), ErrorKind::Unavailable)));
    within("is_locked", none, &|| drop(fails(client.lock("a").is_locked(), ErrorKind::Unavailable)));
    within("inspect", none, &|| drop(fails(client.inspect("a"), ErrorKind::Unavailable)));
    within("force_release", none, &|| drop(fails(client.force_release("a"), ErrorKind::Unavailable)));
    within("attach", none, &|| drop(fails(client.lock("a").attach(&proof), ErrorKind::Unavailable)));
    within("check", none, &|| drop(fails(client.check(), ErrorKind::Unavailable)));
    let (took, release) = timed(|| inner.released());
    assert!(took < REQUEST + SLACK, "an inner release took {took:?} and found {release:?}");
    let (took, release) = timed(|| held.released());
    assert_eq!(release, Release::Unconfirmed);
    assert!(took < REQUEST + SLACK, "a release took {took:?}");
}

#[test]
fn every_call_returns_in_time_from_a_black_hole_that_opens_later() {
    on_both(|face| {
        for connected in [true, false] {
            let stage = Stage::valkey();
            let client = stage.client(face);
            let owner = Owner::new();
            let held = client.lock("held").acquire().unwrap();
            let outer = client.reentrant_lock("r").owner(&owner).acquire().unwrap();
            let inner = client.reentrant_lock("r").owner(&owner).acquire().unwrap();
            if !connected {
                // then even the handshake of a new connection is swallowed
                stage.proxy.cut_all();
            }
            stage.proxy.pause();
            every_call(&client, &held, &inner, &owner);
            assert!(outer.is_held());
            let (took, ()) = timed(|| client.close());
            assert!(took < ms(1000) + SLACK, "close took {took:?}");
        }
    });
}

#[test]
fn connecting_to_a_black_hole_returns_in_time() {
    on_both(|face| {
        let stage = Stage::valkey();
        stage.proxy.pause();
        let (took, result) = timed(|| Client::connect(face, quick(), &stage.proxy.url()).map(drop));
        fails(result, ErrorKind::Unavailable);
        assert!(took < promised(Duration::ZERO), "{took:?}");
    });
}

#[test]
fn waiting_ends_on_time_when_the_server_falls_silent_meanwhile() {
    on_both(|face| {
        let stage = Stage::valkey();
        let _theirs = stage.rival(face).lock("a").acquire().unwrap();
        let client = stage.client(face);
        std::thread::scope(|scope| {
            let waits = [ms(1200), ms(1500)];
            let calls = waits.map(|wait| {
                let client = &client;
                scope.spawn(move || timed(|| client.lock("a").acquire_within(wait).map(drop)))
            });
            wait_until(SOON, "both to wait", || client.stats().waiting == 2);
            stage.proxy.pause();
            for (call, wait) in calls.into_iter().zip(waits) {
                let (took, result) = call.join().unwrap();
                let kind = result.unwrap_err().kind();
                assert!(matches!(kind, ErrorKind::Timeout | ErrorKind::Unavailable), "{kind:?}");
                assert!(took >= wait.saturating_sub(ms(50)) && took < promised(wait), "{took:?} for {wait:?}");
            }
        });
    });
}

#[test]
fn a_thousand_callers_of_a_silent_server_all_return_in_time() {
    let stage = Stage::valkey();
    let client = quick().build(&stage.proxy.url()).unwrap();
    onelock_tests::face::block_on(async {
        client.lock("warm").acquire().await.unwrap().release().await.unwrap();
        stage.proxy.pause();
        let calls: Vec<_> = (0..1000)
            .map(|n| {
                let lock = client.lock(format!("a:{}", n % 10));
                tokio::spawn(async move {
                    let start = std::time::Instant::now();
                    let error = lock.acquire_within(ms(400)).await.map(drop).unwrap_err();
                    (start.elapsed(), error.kind())
                })
            })
            .collect();
        for call in calls {
            let (took, kind) = call.await.unwrap();
            assert!(matches!(kind, ErrorKind::Timeout | ErrorKind::Unavailable), "{kind:?}");
            assert!(took < promised(ms(400)), "{took:?}");
        }
    });
    assert_eq!(client.stats().waiting, 0);
    assert!(stage.proxy.passed().len() < 600, "{}", stage.proxy.passed().len());
}
