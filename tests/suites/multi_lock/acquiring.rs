//! How they are acquired: all or none, whatever comes in between.

use std::time::{Duration, Instant};

use onelock::{ErrorKind, LossReason, Owner, Release};
use onelock_tests::face::{Client, Face, MultiLock, block_on, everywhere, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::stage::{SOON, Stage, fails, ms, promised, timed, unhurried};
use onelock_tests::wait::wait_until;

#[test]
fn all_are_held_together_and_released_together() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.rival(face);
        let several = MultiLock::of([client.lock("b"), client.reentrant_lock("c"), client.lock("a")]);
        let lease = several.acquire().unwrap();
        assert!(["a", "b", "c"].iter().all(|name| stage.exists(name)));
        assert!(lease.is_held() && lease.remaining() > Duration::from_secs(28));
        for name in ["a", "b", "c"] {
            assert!(lease.fencing_token_of(name).is_some(), "{name}");
        }
        assert_eq!((lease.fencing_token_of("d"), lease.fencing_token(), lease.token()), (None, None, ""));
        assert!(several.try_acquire().unwrap().is_none());
        lease.extend(Duration::from_secs(60)).unwrap();
        assert!(lease.remaining() > Duration::from_secs(58));
        assert_eq!(lease.released(), Release::Released);
        assert_eq!(lease.released(), Release::AlreadyReleased);
        assert!(!["a", "b", "c"].iter().any(|name| stage.exists(name)), "when release returns, all are free");
        assert!(!lease.is_held() && lease.loss().is_none());
        let stats = client.stats();
        assert_eq!((stats.held, stats.acquired, stats.released, stats.lost), (0, 3, 3, 0));
    });
}

#[test]
fn when_one_is_taken_none_is_held() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (stage.client(face), stage.rival(face));
        let several = client.multi_lock(["a", "b", "c"]);
        let theirs = rival.lock("c").acquire().unwrap();
        assert!(several.try_acquire().unwrap().is_none());
        let busy = fails(several.acquire_within(Duration::ZERO), ErrorKind::Busy);
        assert_eq!(busy.lock_name(), Some("c"), "the error names the one that others hold");
        let (took, result) = timed(|| several.acquire_within(ms(100)));
        assert_eq!(fails(result, ErrorKind::Timeout).lock_name(), Some("c"));
        assert!(took >= ms(100), "{took:?}");
        for name in ["a", "b"] {
            stage.wait_clean(&client, name, SOON);
        }
        theirs.released();
        let lease = several.acquire_within(SOON).unwrap();
        drop(lease);
        for name in ["a", "b", "c"] {
            stage.wait_clean(&client, name, SOON);
        }
    });
}

#[test]
fn it_waits_for_each_and_holds_the_earlier_ones_meanwhile() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (stage.client(face), stage.rival(face));
        let theirs = rival.lock("b").acquire().unwrap();
        // named in another order: they are taken in the order of their keys all the same
        let several = MultiLock::of([
            client.lock("b").ttl(ms(2500)),
            client.lock("a").ttl(ms(2500)),
            client.lock("c").ttl(ms(2500)),
        ]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| several.acquire_within(SOON).unwrap());
            wait_until(SOON, "it waits for b", || client.stats().waiting == 1);
            let start = Instant::now();
            wait_until(SOON, "longer than the ttl", || start.elapsed() > ms(3500));
            assert!(stage.exists("a") && !stage.exists("c"), "a is renewed, and c not taken yet");
            theirs.released();
            let lease = waiter.join().unwrap();
            assert!(lease.is_held() && lease.remaining() > ms(400));
            lease.released();
        });
    });
}

#[test]
fn one_that_is_lost_meanwhile_is_not_taken_again_alone() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (stage.client(face), stage.rival(face));
        let theirs = rival.lock("c").acquire().unwrap();
        let several = MultiLock::of(["a", "b", "c"].map(|name| client.lock(name).renew_every(ms(150))));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| several.acquire_within(SOON).unwrap());
            wait_until(SOON, "it waits for c", || client.stats().waiting == 1 && stage.exists("b"));
            // somebody takes the first away and keeps it
            stage.server.cmd(&["SET", "a", "stranger", "PX", "60000"]);
            wait_until(SOON, "everything to be released", || !stage.exists("b"));
            theirs.released();
            let start = Instant::now();
            wait_until(SOON, "some time in which it could go on", || start.elapsed() > ms(300));
            assert!(!stage.exists("b") && !stage.exists("c"), "it waits for the first, and holds nothing");
            stage.server.cmd(&["DEL", "a"]);
            let lease = waiter.join().unwrap();
            assert!(lease.is_held() && lease.loss().is_none());
            lease.released();
        });
    });
}

#[test]
fn one_that_is_lost_before_all_are_held_costs_the_whole_nothing() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (stage.client(face), stage.rival(face));
        let theirs = rival.lock("b").acquire().unwrap();
        let (sender, told) = std::sync::mpsc::channel();
        let several = MultiLock::of(["a", "b"].map(|name| client.lock(name).renew_every(ms(150))));
        let several = several.on_lost(move |reason| sender.send(reason).unwrap());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| several.acquire_within(SOON).unwrap());
            wait_until(SOON, "it waits for b", || client.stats().waiting == 1 && stage.exists("a"));
            stage.server.cmd(&["DEL", "a"]);
            // the loss is found by the next renewal, and it begins anew
            wait_until(SOON, "a to be taken again", || stage.exists("a"));
            theirs.released();
            let lease = waiter.join().unwrap();
            assert!(lease.is_held());
            assert_eq!(lease.released(), Release::Released);
        });
        drop(several);
        assert_eq!(told.recv(), Err(std::sync::mpsc::RecvError), "nobody was told of a loss: nothing was handed out");
    });
}

#[test]
fn cancelled_at_any_point_it_leaves_nothing_held() {
    let stage = Stage::valkey();
    let Client::Async(client) = stage.client(Face::Async) else { unreachable!() };
    let theirs = stage.rival(Face::Blocking).lock("c").acquire().unwrap();
    for micros in (0..3000).step_by(100) {
        block_on(async {
            let limit = Duration::from_micros(micros);
            let _ = tokio::time::timeout(limit, client.multi_lock(["a", "b", "c"]).acquire()).await;
        });
    }
    for name in ["a", "b"] {
        stage.wait_clean(&Client::Async(client.clone()), name, SOON);
    }
    theirs.released();

    let Client::Blocking(client) = stage.client(Face::Blocking) else { unreachable!() };
    let theirs = stage.rival(Face::Blocking).lock("c").acquire().unwrap();
    let cancel = onelock::blocking::Cancel::new();
    std::thread::scope(|scope| {
        let lock = client.multi_lock(["a", "b", "c"]).interrupt(cancel.clone());
        let waiter = scope.spawn(move || lock.acquire().map(drop).unwrap_err());
        wait_until(SOON, "it waits for c", || client.stats().waiting == 1 && stage.exists("b"));
        cancel.cancel();
        assert_eq!(waiter.join().unwrap().kind(), ErrorKind::Cancelled);
    });
    for name in ["a", "b"] {
        stage.wait_clean(&Client::Blocking(client.clone()), name, SOON);
    }
    theirs.released();
}

#[test]
fn what_does_not_go_together_is_refused_before_any_request() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let none: [&str; 0] = [];
        let kinds = MultiLock::of([client.lock("b"), client.lock("a"), client.reentrant_lock("a")]);
        let many = client.multi_lock((0..33).map(|number| number.to_string()));
        for (several, words) in [(client.multi_lock(none), "at least one"), (kinds, "one kind"), (many, "33 locks; 32")]
        {
            for result in [several.validate(), several.acquire().map(drop), several.try_acquire().map(drop)] {
                let error = fails(result, ErrorKind::InvalidArgument);
                assert!(error.to_string().contains(words), "{error}");
            }
        }
        fails(client.multi_lock(["a", ""]).validate(), ErrorKind::InvalidArgument);
        fails(MultiLock::of([client.lock("a").owner(&Owner::new())]).acquire(), ErrorKind::InvalidArgument);
        assert_eq!(client.stats().commands_sent, 0);
        let (one, two) = (Owner::new(), Owner::new());
        let owners = MultiLock::of([&one, &two].map(|owner| client.reentrant_lock("a").owner(owner)));
        for result in [owners.validate(), owners.acquire().map(drop)] {
            assert!(fails(result, ErrorKind::InvalidArgument).to_string().contains("different owners"));
        }
        // a lock that is named twice is held once
        let lease = client.multi_lock(["a", "b", "a"]).acquire_within(SOON).unwrap();
        assert!(lease.is_held() && stage.exists("a") && stage.exists("b"));
        assert_eq!(lease.released(), Release::Released);
    });
}

#[test]
fn what_limits_a_hold_counts_from_the_moment_when_all_are_held() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (stage.client(face), stage.rival(face));
        let theirs = rival.lock("c").acquire().unwrap();
        let several = MultiLock::of([
            client.lock("a").ttl(ms(700)).auto_renew(false),
            client.lock("b").ttl(ms(30_000)).max_hold(ms(700)),
            client.lock("c"),
        ]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| several.acquire_within(SOON).unwrap());
            wait_until(SOON, "it waits for c", || client.stats().waiting == 1 && stage.exists("b"));
            let start = Instant::now();
            wait_until(SOON, "longer than both", || start.elapsed() > ms(1500));
            assert!(stage.exists("a") && stage.exists("b"));
            theirs.released();
            let lease = waiter.join().unwrap();
            assert!(lease.remaining() > ms(450), "{:?}: a fresh lease", lease.remaining());
            let (took, reason) = timed(|| lease.wait_lost(SOON));
            assert!(matches!(reason, Some(LossReason::Expired | LossReason::MaxHold)), "{reason:?}");
            assert!(took > ms(400), "{took:?}");
            lease.released();
        });
    });
}

#[test]
fn one_that_fails_leaves_nothing_for_a_shortest_time_and_one_that_succeeds_stays_for_it() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (stage.client(face), stage.rival(face));
        let theirs = rival.lock("c").acquire().unwrap();
        let several = MultiLock::of([
            client.lock("a").min_hold(ms(20_000)),
            client.reentrant_lock("b").min_hold(ms(20_000)),
            client.lock("c"),
        ]);
        assert!(several.try_acquire().unwrap().is_none());
        fails(several.acquire_within(ms(100)), ErrorKind::Timeout);
        assert!(!stage.exists("a") && !stage.exists("b"), "nobody held them");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| several.acquire_within(SOON).unwrap());
            wait_until(SOON, "it waits for c", || client.stats().waiting == 1 && stage.exists("b"));
            let start = Instant::now();
            wait_until(SOON, "a part of the shortest time", || start.elapsed() > ms(1500));
            theirs.released();
            let lease = waiter.join().unwrap();
            assert!(stage.pttl("a") > 29_000, "{}: a fresh lease", stage.pttl("a"));
            assert_eq!(lease.released(), Release::Released);
        });
        for name in ["a", "b"] {
            let left = stage.pttl(name);
            assert!((19_000..=20_500).contains(&left), "{name}: {left} ms from the handing out");
        }
        assert!(!stage.exists("c"));
    });
}

#[test]
fn many_slow_members_take_no_longer_than_one() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let names: Vec<String> = (0..32).map(|number| format!("lock {number}")).collect();
        // of a kind that no single request takes; a request under way is undone for one ttl
        let several = MultiLock::of(names.iter().map(|name| client.reentrant_lock(name).ttl(ms(8000))));
        let lease = several.acquire_within(SOON).unwrap();
        stage.proxy.latency(ms(100));
        let (took, extended) = timed(|| lease.extend(Duration::from_secs(60)));
        extended.unwrap();
        assert!(took < promised(Duration::ZERO), "an extension: {took:?}");
        assert_eq!(lease.released(), Release::Released);
        let (took, locked) = timed(|| several.is_locked());
        assert!(!locked.unwrap());
        assert!(took < promised(Duration::ZERO), "a look: {took:?}");
        let (took, result) = timed(|| several.try_acquire());
        fails(result, ErrorKind::Unavailable);
        assert!(took < promised(Duration::ZERO), "a try: {took:?}");
        stage.proxy.latency(Duration::ZERO);
        for name in &names {
            stage.wait_clean(&client, name, SOON);
        }
        stage.proxy.latency(ms(100));
        let (took, result) = timed(|| several.acquire_within(ms(200)));
        fails(result, ErrorKind::Unavailable);
        assert!(took < promised(ms(200)), "a wait: {took:?}");
        stage.proxy.heal();
        for name in names {
            stage.wait_clean(&client, name, SOON);
        }
    });
}

#[test]
fn a_try_that_loses_a_member_has_released_the_others_when_it_returns() {
    on_both(|face| {
        let (here, there) = (Stage::valkey(), Stage::valkey());
        let (client, other) = (here.client_with(face, unhurried()), there.client_with(face, unhurried()));
        client.lock("warm").acquire().unwrap().released();
        other.lock("warm").acquire().unwrap().released();
        here.proxy.latency(ms(50));
        let late = there.proxy.on(Match::any().with_arg("c")).once().delay_reply(ms(7500));
        let several = MultiLock::of([
            client.lock("a").renew_every(ms(300)),
            client.lock("b").renew_every(ms(300)),
            other.lock("c").ttl(ms(20_000)),
        ]);
        std::thread::scope(|scope| {
            let trying = scope.spawn(|| {
                let (took, result) = timed(|| several.try_acquire());
                (took, result.map(|lease| lease.is_some()), here.exists("b"))
            });
            wait_until(SOON, "it asks for c", || late.hits() == 1);
            assert!(here.exists("b"));
            here.server.cmd(&["DEL", "a"]);
            let (took, result, b_is_held) = trying.join().unwrap();
            assert!(matches!(result, Ok(false)), "{result:?}");
            assert!(took < ms(7000), "{took:?}: the loss ended it, not the answer for c");
            assert!(!b_is_held, "released before it returned");
        });
    });
}
