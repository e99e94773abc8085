//! Releasing, and telling errors apart.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use onelock::{ErrorKind, LossReason, Release};
use onelock_tests::face::{Client, Face, Lease, block_on, on_both};
use onelock_tests::proxy::{Cut, Match};
use onelock_tests::scripts;
use onelock_tests::servers::Port;
use onelock_tests::stage::{SLACK, SOON, Stage, fails, ms, promised, quick, timed, unhurried};
use onelock_tests::wait::wait_until;

/// What "at once" means on a busy machine. That nothing is tried again is seen by the number of requests.
const AT_ONCE: Duration = SLACK;

/// A lease that ran out, and its key with it.
fn expired(stage: &Stage, client: &Client, name: &str) -> Lease {
    let lease = client.lock(name).ttl(ms(100)).auto_renew(false).acquire().unwrap();
    wait_until(SOON, "it to run out", || !lease.is_held() && !stage.exists(name));
    lease
}

#[test]
fn r01_releasing_an_expired_lock_is_one_round_trip_and_no_error() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = expired(&stage, &client, "a");
        let (took, release) = timed(|| lease.released());
        assert_eq!(release, Release::AlreadyExpired);
        assert!(took < AT_ONCE, "{took:?}");
        stage.wait_clean(&client, "a", SOON);
        assert_eq!(stage.requests(&scripts::release()).len(), 1);
    });
}

#[test]
fn r02_the_wait_of_an_acquire_has_no_bearing_on_a_release() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        for wait in [None, Some(Duration::from_secs(3600))] {
            let lock = client.lock("a").ttl(ms(100)).auto_renew(false);
            let lease = wait.map_or_else(|| lock.acquire(), |wait| lock.acquire_within(wait)).unwrap();
            wait_until(SOON, "it to run out", || !lease.is_held());
            let before = stage.requests(&scripts::release()).len();
            let (took, release) = timed(|| lease.released());
            assert_eq!(release, Release::AlreadyExpired);
            assert!(took < AT_ONCE, "{took:?}");
            assert!(stage.requests(&scripts::release()).len() <= before + 1);
        }
        // nor when the server is away
        let lease = client.lock("b").acquire().unwrap();
        stage.proxy.refuse();
        stage.proxy.cut_all();
        let (took, release) = timed(|| lease.released());
        assert_eq!(release, Release::Unconfirmed);
        assert!(took < promised(Duration::ZERO), "{took:?}");
    });
}

#[test]
fn r03_the_second_release_says_so_and_sends_nothing() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = client.lock("a").acquire().unwrap();
        assert_eq!(lease.released(), Release::Released);
        let next = client.lock("a").acquire().unwrap();
        let before = stage.requests(&scripts::release()).len();
        for _ in 0..3 {
            assert_eq!(lease.released(), Release::AlreadyReleased);
        }
        drop(lease);
        assert!(next.is_held());
        assert_eq!(next.released(), Release::Released);
        assert_eq!(stage.requests(&scripts::release()).len(), before + 1, "that of the next holder");
    });
}

#[test]
fn r04_released_expired_and_taken_are_three_answers_with_the_name() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let released = client.lock("the name").acquire().unwrap();
        released.released();
        let error = fails(released.extend(ms(1000)), ErrorKind::NotHeld);
        let mut texts = vec![error.to_string()];

        let expired = expired(&stage, &client, "the name");
        let error = fails(expired.extend(ms(1000)), ErrorKind::Lost);
        assert_eq!(expired.loss(), Some(LossReason::Expired));
        texts.push(error.to_string());

        let taken = client.lock("the name").acquire().unwrap();
        stage.server.cmd(&["DEL", "the name"]);
        let _theirs = stage.rival(face).lock("the name").acquire().unwrap();
        let error = fails(taken.extend(ms(1000)), ErrorKind::Lost);
        assert_eq!(taken.loss(), Some(LossReason::Taken));
        texts.push(error.to_string());

        assert!(texts.iter().all(|text| text.contains("the name")), "{texts:?}");
        assert_eq!(texts.iter().collect::<HashSet<_>>().len(), 3, "{texts:?}");
        assert_eq!(taken.released(), Release::AlreadyExpired);
    });
}

#[test]
fn r05_contention_outage_and_later_loss_are_kinds_of_their_own() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let held = client.lock("a").acquire().unwrap();
        let busy = fails(client.lock("a").acquire_within(Duration::ZERO), ErrorKind::Busy);
        let timeout = fails(client.lock("a").acquire_within(ms(30)), ErrorKind::Timeout);
        stage.server.cmd(&["DEL", "a"]);
        let lost = fails(held.extend(ms(1000)), ErrorKind::Lost);
        let nowhere = Port::reserve();
        let away = Client::build(face, quick(), &format!("redis://127.0.0.1:{}", nowhere.number())).unwrap();
        let outage = fails(away.lock("a").try_acquire(), ErrorKind::Unavailable);
        assert!(busy.is_not_acquired() && timeout.is_not_acquired());
        assert!(!lost.is_not_acquired() && !outage.is_not_acquired());
        assert!(busy.causes().is_empty() && lost.causes().is_empty());
        assert_eq!(outage.causes().len(), 1, "what each server said");
        assert!(outage.causes()[0].contains("refused"), "{outage}");
    });
}

#[test]
fn r06_a_cancelled_wait_and_one_that_was_used_up_are_told_apart() {
    let stage = Stage::valkey();
    let _theirs = stage.rival(Face::Blocking).lock("a").acquire().unwrap();
    let client = quick().build_blocking(&stage.proxy.url()).unwrap();
    let cancel = onelock::blocking::Cancel::new();
    let lock = client.lock("a").interrupt(cancel.clone());
    let cancelled = std::thread::scope(|scope| {
        let call = scope.spawn(|| lock.acquire_within(SOON).unwrap_err());
        wait_until(SOON, "the waiter", || client.stats().waiting == 1);
        cancel.cancel();
        call.join().unwrap()
    });
    let timeout = client.lock("a").acquire_within(ms(50)).unwrap_err();
    assert_eq!((cancelled.kind(), timeout.kind()), (ErrorKind::Cancelled, ErrorKind::Timeout));
    assert!(cancelled.is_not_acquired() && timeout.is_not_acquired());
    assert_eq!((client.stats().cancelled, client.stats().timeouts), (1, 1));

    // a dropped future has nobody to tell; the counters do
    let client = onelock::Client::new(&stage.proxy.url()).unwrap();
    block_on(async {
        let lock = client.lock("a");
        assert!(tokio::time::timeout(ms(50), lock.acquire()).await.is_err());
        assert_eq!(lock.acquire_within(ms(50)).await.unwrap_err().kind(), ErrorKind::Timeout);
    });
    assert_eq!((client.stats().cancelled, client.stats().timeouts), (1, 1));
}

#[derive(Debug, PartialEq)]
enum BodyError {
    Mine,
    Lock(ErrorKind),
}

impl From<onelock::Error> for BodyError {
    fn from(error: onelock::Error) -> BodyError {
        BodyError::Lock(error.kind())
    }
}

#[test]
fn r07_the_error_of_the_body_comes_through() {
    let stage = Stage::valkey();
    let blocking = quick().build_blocking(&stage.proxy.url()).unwrap();
    let result: Result<(), _> = blocking.lock("a").with(|_| {
        stage.server.cmd(&["DEL", "a"]);
        Err(BodyError::Mine)
    });
    assert_eq!(result, Err(BodyError::Mine));
    // no error of its own: then the loss is one
    let result: Result<(), BodyError> = blocking.lock("a").ttl(ms(600)).with(|lease| {
        stage.server.cmd(&["DEL", "a"]);
        wait_until(SOON, "the loss", || !lease.is_held());
        Ok(())
    });
    assert_eq!(result, Err(BodyError::Lock(ErrorKind::Lost)));

    let client = quick().build(&stage.proxy.url()).unwrap();
    block_on(async {
        let result: Result<(), _> = client
            .lock("a")
            .with(|_| async {
                tokio::task::block_in_place(|| stage.server.cmd(&["DEL", "a"]));
                Err(BodyError::Mine)
            })
            .await;
        assert_eq!(result, Err(BodyError::Mine));
        let result: Result<(), BodyError> = client
            .lock("a")
            .ttl(ms(600))
            .with(|_| async {
                tokio::task::block_in_place(|| stage.server.cmd(&["DEL", "a"]));
                std::future::pending().await
            })
            .await;
        assert_eq!(result, Err(BodyError::Lock(ErrorKind::Lost)));
    });
}

#[test]
fn r08_leaving_the_scope_of_a_lost_lock_takes_no_time_and_retries_nothing() {
    let stage = Stage::valkey();
    let blocking = quick().build_blocking(&stage.proxy.url()).unwrap();
    let mut left = Instant::now();
    let result: Result<(), onelock::Error> = blocking.lock("a").ttl(ms(600)).with(|lease| {
        stage.server.cmd(&["DEL", "a"]);
        wait_until(SOON, "the loss", || !lease.is_held());
        left = Instant::now();
        Ok(())
    });
    assert!(left.elapsed() < AT_ONCE, "{:?}", left.elapsed());
    fails(result, ErrorKind::Lost);

    let client = quick().build(&stage.proxy.url()).unwrap();
    block_on(async {
        let lock = client.lock("a").ttl(ms(600));
        let run = lock.with(|_| async {
            tokio::task::block_in_place(|| stage.server.cmd(&["DEL", "a"]));
            std::future::pending::<Result<(), onelock::Error>>().await
        });
        let (took, result) = {
            let start = Instant::now();
            let result = run.await;
            (start.elapsed(), result)
        };
        fails(result, ErrorKind::Lost);
        assert!(took < ms(200) + AT_ONCE * 2, "one renewal period and nothing more: {took:?}");
    });
    wait_until(SOON, "clean-up", || client.stats().cleaning == 0 && blocking.stats().cleaning == 0);
    assert!(stage.requests(&scripts::release()).len() <= 2, "one each");
    assert!(stage.requests(&Match::any()).len() < 60);
}

#[test]
fn a_connection_that_was_closed_meanwhile_costs_no_release_its_answer() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client_with(face, unhurried());
        for _ in 0..5 {
            let lease = client.lock("a").acquire_within(SOON).unwrap();
            stage.server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
            assert_eq!(lease.released(), Release::Released);
        }
        stage.wait_clean(&client, "a", SOON);
        assert_eq!(client.stats().lost, 0);
    });
}

#[test]
fn closing_after_lost_replies_does_not_wait_for_copies_that_may_come_late() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client_with(face, quick().close_timeout(Duration::from_secs(60)));
        let rule = stage.proxy.on(scripts::acquire()).cut_instead_of_reply(Cut::Reset);
        assert!(client.lock("a").try_acquire().is_err(), "no reply, no lock");
        rule.wait_hits(1);
        let (took, ()) = timed(|| client.close());
        assert!(took < SOON && !stage.exists("a"), "{took:?}");
    });
}
