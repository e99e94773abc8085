//! Where one server can take them all in one step, one request does it, and one releases them.

use std::time::Duration;

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, Face, MultiLock, block_on, everywhere, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::stage::{SOON, Stage, fails, ms};
use onelock_tests::wait::wait_until;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn takes() -> Match {
    Match::script(scripts::ACQUIRE_MANY)
}

fn releases() -> Match {
    Match::script(scripts::RELEASE_MANY)
}

/// How many requests that take or release a lock by itself.
fn single(stage: &Stage) -> usize {
    stage.requests(&scripts::acquire()).len() + stage.requests(&scripts::release()).len()
}

#[test]
fn one_request_takes_all_and_one_releases_them() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client(face);
        let lease = client.multi_lock(NAMES).acquire().unwrap();
        let tokens: Vec<_> = NAMES.iter().map(|name| lease.fencing_token_of(name).unwrap()).collect();
        assert!(NAMES.iter().all(|name| stage.exists(name) && stage.pttl(name) > 29_000));
        assert!(lease.is_held() && lease.remaining() > Duration::from_secs(28));
        assert_eq!(lease.released(), Release::Released);
        assert!(!NAMES.iter().any(|name| stage.exists(name)));
        assert_eq!((stage.requests(&takes()).len(), stage.requests(&releases()).len(), single(&stage)), (1, 1, 0));
        // the tokens grow with every grant, whichever way
        let one = client.lock("c").acquire().unwrap();
        assert!(one.fence() > tokens[2]);
        let before = one.fence();
        one.released();
        let again = client.multi_lock(["c", "d"]).acquire().unwrap();
        assert!(again.fencing_token_of("c").unwrap() > before && again.fencing_token_of("d").unwrap() > tokens[3]);
        again.released();
        let stats = client.stats();
        assert_eq!((stats.held, stats.acquired, stats.released, stats.lost, stats.cleaning), (0, 7, 7, 0, 0));
    });
}

#[test]
fn one_that_others_hold_is_named_and_nothing_is_taken() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let (client, rival) = (stage.client(face), stage.rival(face));
        let theirs = rival.lock("c").acquire().unwrap();
        let several = client.multi_lock(NAMES);
        assert!(several.try_acquire().unwrap().is_none());
        let busy = fails(several.acquire_within(Duration::ZERO), ErrorKind::Busy);
        assert_eq!(busy.lock_name(), Some("c"));
        assert!(busy.to_string().contains("held by somebody else for another"), "{busy}");
        assert_eq!((stage.requests(&takes()).len(), single(&stage)), (2, 0), "a try is one request");
        assert!(!["a", "b", "d"].iter().any(|name| stage.exists(name)));
        // one that waits takes them one after the other from then on
        let timeout = fails(several.acquire_within(ms(150)), ErrorKind::Timeout);
        assert_eq!(timeout.lock_name(), Some("c"));
        assert_eq!(stage.requests(&takes()).len(), 3);
        theirs.released();
        stage.server.cmd(&["RPUSH", "b", "data"]);
        let wrong = fails(several.try_acquire(), ErrorKind::WrongKind);
        assert_eq!(wrong.lock_name(), Some("b"));
        for name in ["a", "c", "d"] {
            stage.wait_clean(&client, name, SOON);
        }
    });
}

#[test]
fn a_release_wakes_those_who_wait_for_any_of_them() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (stage.client(face), stage.rival(face));
        let lease = client.multi_lock(NAMES).acquire().unwrap();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = ["b", "d"]
                .map(|name| rival.lock(name))
                .into_iter()
                .map(|lock| scope.spawn(move || lock.acquire_within(SOON).unwrap().released()))
                .collect();
            wait_until(SOON, "both to wait", || rival.stats().waiting == 2);
            assert_eq!(lease.released(), Release::Released);
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Release::Released);
            }
        });
        assert_eq!(stage.requests(&releases()).len(), 1);
    });
}

#[test]
fn a_lost_answer_is_asked_for_again_and_takes_nothing_twice() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lost = stage.proxy.on(takes()).once().drop_reply();
        // what may still arrive is undone for one ttl
        let several = MultiLock::of(NAMES.map(|name| client.lock(name).ttl(ms(1500))));
        let lease = several.acquire_within(SOON).unwrap();
        assert_eq!(lost.hits(), 1);
        let asked = stage.requests(&takes());
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0].args, asked[1].args, "the same request, with the same tokens");
        assert!(lease.is_held());
        // the answer to the release is lost as well: whether it was done, the second one tells nothing of
        let lost = stage.proxy.on(releases()).once().cut_instead_of_reply(onelock_tests::proxy::Cut::Reset);
        assert_eq!(lease.released(), Release::Unconfirmed);
        assert_eq!(lost.hits(), 1);
        for name in NAMES {
            stage.wait_clean(&client, name, SOON);
        }
    });
}

#[test]
fn cancelled_while_one_request_takes_them_it_leaves_nothing_held() {
    let stage = Stage::valkey();
    let Client::Async(client) = stage.client(Face::Async) else { unreachable!() };
    let late = stage.proxy.on(takes()).after(1).times(20).delay_reply(ms(40));
    for _ in 0..2 {
        block_on(async { client.multi_lock(NAMES).acquire().await.unwrap().release().await.unwrap() });
    }
    for micros in (0..40_000).step_by(2_000) {
        let limit = Duration::from_micros(micros);
        block_on(async { drop(tokio::time::timeout(limit, client.multi_lock(NAMES).acquire()).await) });
    }
    assert!(late.hits() >= 5, "{}: cancelled after the server had taken them", late.hits());
    for name in NAMES {
        stage.wait_clean(&Client::Async(client.clone()), name, SOON);
    }

    let Client::Blocking(client) = stage.client(Face::Blocking) else { unreachable!() };
    let cancel = onelock::blocking::Cancel::new();
    let held = stage.proxy.on(takes()).once().hold_reply();
    std::thread::scope(|scope| {
        let members = NAMES.map(|name| client.lock(name).ttl(ms(1500)));
        let lock = onelock::blocking::MultiLock::new(members).interrupt(cancel.clone());
        let waiter = scope.spawn(move || lock.acquire().map(drop).unwrap_err());
        wait_until(SOON, "the server to have taken them", || held.hits() == 1 && stage.exists("d"));
        cancel.cancel();
        assert_eq!(waiter.join().unwrap().kind(), ErrorKind::Cancelled);
    });
    stage.proxy.heal();
    for name in NAMES {
        stage.wait_clean(&Client::Blocking(client.clone()), name, SOON);
    }
}

#[test]
fn a_release_that_finds_one_gone_says_so_and_frees_the_others() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = client.multi_lock(NAMES).acquire().unwrap();
        stage.server.cmd(&["SET", "b", "stranger", "PX", "60000"]);
        assert_eq!(lease.released(), Release::AlreadyExpired);
        assert!(!["a", "c", "d"].iter().any(|name| stage.exists(name)));
        assert!(stage.exists("b"), "what is somebody else's stays");
        assert_eq!((stage.requests(&releases()).len(), single(&stage)), (1, 0));
    });
}

#[test]
fn what_no_single_request_can_do_is_done_one_by_one() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        // a kind that it does not know
        let mixed = MultiLock::of([client.lock("a"), client.reentrant_lock("b"), client.lock("c")]);
        let lease = mixed.acquire().unwrap();
        assert_eq!(stage.requests(&takes()).len(), 0);
        assert_eq!(lease.released(), Release::Released);
        // a key that stays for its shortest time
        let kept = MultiLock::of([client.lock("e").min_hold(ms(20_000)), client.lock("f"), client.lock("g")]);
        assert_eq!(kept.acquire().unwrap().released(), Release::Released);
        assert!(stage.pttl("e") > 15_000 && !stage.exists("f") && !stage.exists("g"));
        // a user who may not: the error is that of one lock
        let rule = ["ACL", "SETUSER", "default", "-set"];
        stage.server.cmd(&rule);
        let refused = fails(client.multi_lock(["x", "y"]).try_acquire(), ErrorKind::NotPermitted);
        assert_eq!(refused.lock_name(), Some("x"));
        stage.server.cmd(&["ACL", "SETUSER", "default", "+set"]);
        let lease = client.multi_lock(["x", "y"]).acquire().unwrap();
        assert_eq!(lease.released(), Release::Released);
        // others of this client wait for one of them: it stands in line
        let theirs = stage.rival(face).lock("y").acquire().unwrap();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| client.lock("y").acquire_within(SOON).unwrap().released());
            wait_until(SOON, "it waits for y", || client.stats().waiting == 1);
            let before = stage.requests(&takes()).len();
            let second = scope.spawn(|| client.multi_lock(["x", "y"]).acquire_within(SOON).unwrap().released());
            wait_until(SOON, "the other one waits too", || client.stats().waiting == 2);
            assert_eq!(stage.requests(&takes()).len(), before);
            theirs.released();
            assert_eq!((first.join().unwrap(), second.join().unwrap()), (Release::Released, Release::Released));
        });
    });
}
