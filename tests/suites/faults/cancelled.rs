//! Futures that are dropped at every step: nothing is left held, long before the ttl, and the next acquire works.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use onelock::{Client, ErrorKind, Kind, Lease, Owner};
use onelock_tests::face::{self, block_on, side_by_side};
use onelock_tests::proxy::{Match, Rule};
use onelock_tests::scripts;
use onelock_tests::stage::{SLACK, SOON, Stage, ms, quick};
use onelock_tests::wait::wait_until;

/// Far longer than any of these tests: whatever is gone sooner was released.
const TTL: Duration = Duration::from_secs(120);

/// Which lock is acquired, and whether somebody else has it.
#[derive(Clone, Copy)]
struct Case {
    kind: Kind,
    /// A reentrant lock is entered by an owner with a name.
    owned: bool,
    contended: bool,
}

fn cases() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for contended in [false, true] {
        for (kind, owned) in
            [(Kind::Mutex, false), (Kind::Reentrant, false), (Kind::Reentrant, true), (Kind::Fair, false)]
        {
            let name = format!("{kind:?} owned: {owned} contended: {contended}");
            cases.push((name, Case { kind, owned, contended }));
        }
    }
    cases
}

fn lock(client: &Client, case: Case, name: &str) -> onelock::Lock {
    let lock = client.lock_of(case.kind, name).ttl(TTL);
    if case.owned { lock.owner(&Owner::named("the caller")) } else { lock }
}

fn acquires(kind: Kind) -> Match {
    match kind {
        Kind::Mutex => scripts::acquire(),
        Kind::Fair => scripts::enter(),
        _ => scripts::acquire_reentrant(),
    }
}

fn releases(kind: Kind) -> Match {
    if kind == Kind::Fair { scripts::leave() } else { scripts::release() }
}

/// Polls a future at most `polls` times, each time once it is woken, and then drops it. What it gave, if it got there.
async fn polled<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |cx| {
        if left == 0 {
            return std::task::Poll::Ready(None);
        }
        left -= 1;
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() && left == 0 { std::task::Poll::Ready(None) } else { polled.map(Some) }
    })
    .await
}

/// Nothing is owed, nobody waits, nothing is listened to, and the next one gets it at once.
fn expect_nothing_left(stage: &Stage, client: &Client, case: Case, name: &str) {
    let start = Instant::now();
    stage.wait_clean(&face::Client::Async(client.clone()), name, SOON);
    let lease = block_on(lock(client, case, name).try_acquire()).unwrap().expect("free at once");
    assert!(lease.is_held() && start.elapsed() < TTL / 4);
    assert_eq!(block_on(lease.release()).unwrap(), onelock::Release::Released);
}

#[test]
fn f51_dropped_after_k_polls_for_every_k() {
    side_by_side(&cases(), |case| {
        let stage = Stage::valkey();
        let client = Client::builder().build(&stage.proxy.url()).unwrap();
        let rival = stage.rival(face::Face::Async);
        let mut finished = 0;
        let mut polls = 0;
        while finished < 3 {
            assert!(polls < 200, "never granted");
            let name = format!("k{polls}");
            let theirs = case.contended.then(|| rival.lock_of(case.kind, &name).acquire().unwrap());
            let freed = AtomicBool::new(false);
            let granted = std::thread::scope(|scope| {
                if let Some(theirs) = theirs {
                    // released a little later, so that the polls fall before, at and after the wake-up
                    scope.spawn(|| {
                        let limit = Instant::now() + ms(15);
                        wait_until(SOON, "a while", || Instant::now() >= limit || freed.load(Ordering::Acquire));
                        theirs.released();
                        drop(theirs);
                    });
                }
                let granted = block_on(polled(polls, lock(&client, *case, &name).acquire()));
                freed.store(true, Ordering::Release);
                granted.is_some_and(|lease: Result<Lease, _>| lease.unwrap().is_held())
            });
            finished += usize::from(granted);
            expect_nothing_left(&stage, &client, *case, &name);
            polls += 1;
        }
        let stats = client.stats();
        assert_eq!((stats.held, stats.waiting, stats.cleaning), (0, 0, 0));
        assert!(stats.cancelled >= polls as u64 - 4, "{stats:?} after {polls}");
    });
}

/// Starts an acquire, waits until the rule has bitten, and drops the acquire.
fn dropped_at(client: &Client, case: Case, name: &str, rule: &Rule) {
    dropped_when(client, case, name, || rule.wait_hits(1));
}

/// The acquire is dropped once `come` has returned.
fn dropped_when(client: &Client, case: Case, name: &str, come: impl FnOnce()) {
    block_on(async {
        let lock = lock(client, case, name);
        let call = tokio::spawn(async move { lock.acquire().await });
        tokio::task::block_in_place(come);
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    });
}

fn uncontended() -> Vec<(String, Case)> {
    cases().into_iter().filter(|(_, case)| !case.contended).collect()
}

#[test]
fn f51_dropped_before_anything_was_sent() {
    side_by_side(&uncontended(), |case| {
        let stage = Stage::valkey();
        let client = Client::builder().build(&stage.proxy.url()).unwrap();
        // never polled
        drop(lock(&client, *case, "a").acquire());
        // polled once, with nobody to wake, while the connection is being made
        block_on(async {
            let lock = lock(&client, *case, "a");
            let mut call = pin!(lock.acquire());
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        });
        expect_nothing_left(&stage, &client, *case, "a");
        assert!(stage.requests(&acquires(case.kind)).len() <= 2, "that of the dropped one at most, and the last");
    });
}

#[test]
fn f51_dropped_while_the_request_is_on_its_way() {
    side_by_side(&uncontended(), |case| {
        let stage = Stage::valkey();
        let client = Client::builder().request_timeout(ms(5000)).build(&stage.proxy.url()).unwrap();
        let held = stage.proxy.on(acquires(case.kind).with_arg("a")).once().hold();
        dropped_at(&client, *case, "a", &held);
        assert_eq!(client.stats().cleaning, 1, "owed before anything is known");
        assert!(!stage.exists("a"));
        held.release();
        // the undo goes down the same connection: it cannot overtake the acquire
        stage.proxy.wait_requests(&releases(case.kind), 1);
        expect_nothing_left(&stage, &client, *case, "a");
        assert_eq!(stage.proxy.connections(), 1);
    });
}

#[test]
fn f51_dropped_when_granted_and_not_delivered() {
    side_by_side(&uncontended(), |case| {
        let stage = Stage::valkey();
        let client = Client::builder().request_timeout(ms(5000)).build(&stage.proxy.url()).unwrap();
        let held = stage.proxy.on(acquires(case.kind).with_arg("a")).once().hold_reply();
        // looked at before: the undo is quick
        dropped_when(&client, *case, "a", || {
            held.wait_hits(1);
            wait_until(SOON, "the grant", || stage.exists("a"));
        });
        held.release();
        expect_nothing_left(&stage, &client, *case, "a");
        assert_eq!(client.stats().acquired, 1, "the last one only");
    });
}

#[test]
fn f51_dropped_when_granted_and_the_connection_breaks() {
    side_by_side(&uncontended(), |case| {
        let stage = Stage::valkey();
        let client = quick().build(&stage.proxy.url()).unwrap();
        let held = stage.proxy.on(acquires(case.kind).with_arg("a")).once().hold_reply();
        dropped_at(&client, *case, "a", &held);
        stage.proxy.cut_all();
        // on another connection the undo might overtake the acquire, so it is repeated; the key goes with the first
        wait_until(SOON, "the key to be gone", || !stage.exists("a"));
        let lease = block_on(lock(&client, *case, "a").try_acquire()).unwrap().expect("free at once");
        assert!(stage.exists("a") && client.stats().cleaning == 1);
        // the repeated undo of the dead token does not touch the next hold
        let undone = stage.requests(&releases(case.kind)).len();
        stage.proxy.wait_requests(&releases(case.kind), undone + 2);
        assert!(lease.is_held() && stage.exists("a"));
    });
}

#[test]
fn f51_dropped_while_waiting_leaves_no_subscription_and_no_place_in_the_line() {
    let contended = cases().into_iter().filter(|(_, case)| case.contended).collect::<Vec<_>>();
    side_by_side(&contended, |case| {
        let stage = Stage::valkey();
        let client = Client::builder().build(&stage.proxy.url()).unwrap();
        let theirs = stage.rival(face::Face::Async).lock_of(case.kind, "a").acquire().unwrap();
        let subscribers = || stage.server.int(&["EVAL", "return #redis.call('PUBSUB', 'CHANNELS')", "0"]);
        let lock = Case { owned: false, ..*case };
        block_on(async {
            let start = |client: &Client| {
                let lock = self::lock(client, lock, "a");
                tokio::spawn(async move { lock.acquire().await })
            };
            let (first, second, third) = (start(&client), start(&client), start(&client));
            tokio::task::block_in_place(|| {
                wait_until(SOON, "three waiters", || client.stats().waiting == 3 && subscribers() == 1);
            });
            // the head, one in the middle, and the last: each in turn
            first.abort();
            third.abort();
            assert!(first.await.unwrap_err().is_cancelled() && third.await.unwrap_err().is_cancelled());
            theirs.release_soon();
            let got = second.await.unwrap().unwrap();
            assert!(got.is_held());
        });
        wait_until(SOON, "the subscription to end", || subscribers() == 0);
        expect_nothing_left(&stage, &client, *case, "a");
        assert_eq!(client.stats().cancelled, 2);
    });
}

trait Soon {
    fn release_soon(&self);
}

impl Soon for face::Lease {
    /// From inside the runtime.
    fn release_soon(&self) {
        let lease = self.clone();
        std::thread::spawn(move || lease.released());
    }
}

/// A hold that was handed over, for a lock of `client`.
fn proof_of(stage: &Stage, case: Case, name: &str) -> String {
    stage.rival(face::Face::Async).lock_of(case.kind, name).ttl(TTL).acquire().unwrap().detach().unwrap()
}

#[test]
fn f51_attach_dropped_after_k_polls_leaves_nothing_of_its_own_held() {
    side_by_side(&uncontended(), |case| {
        let stage = Stage::valkey();
        let client = Client::builder().build(&stage.proxy.url()).unwrap();
        let rival = stage.rival(face::Face::Async);
        let mut finished = 0;
        for polls in 0.. {
            assert!(polls < 200, "never attached");
            let name = format!("k{polls}");
            let proof = proof_of(&stage, *case, &name);
            let attached = block_on(polled(polls, lock(&client, *case, &name).attach(&proof)));
            let granted = attached.is_some_and(|lease: Result<Lease, _>| lease.unwrap().is_held());
            finished += usize::from(granted);
            let face = face::Client::Async(client.clone());
            wait_until(SOON, "clean-up", || face.stats().cleaning == 0);
            // exchanged and undone, or untouched: then the proof is as good as before
            if stage.exists(&name) {
                assert!(!granted);
                let lease = rival.lock_of(case.kind, &name).attach(&proof).unwrap();
                assert_eq!(lease.released(), onelock::Release::Released);
            }
            expect_nothing_left(&stage, &client, *case, &name);
            if finished == 3 {
                break;
            }
        }
    });
}

#[test]
fn f51_attach_dropped_when_exchanged_and_not_delivered() {
    side_by_side(&uncontended(), |case| {
        let stage = Stage::valkey();
        let client = Client::builder().request_timeout(ms(5000)).build(&stage.proxy.url()).unwrap();
        let proof = proof_of(&stage, *case, "a");
        let waiter = stage.rival(face::Face::Async).lock_of(case.kind, "a");
        let held = stage.proxy.on(scripts::attach()).once().hold_reply();
        std::thread::scope(|scope| {
            // who waits for the hold that was handed over is told that it has ended
            let waiting = scope.spawn(|| {
                let begun = Instant::now();
                waiter.acquire().unwrap().released();
                begun.elapsed()
            });
            let subscribed = || stage.server.int(&["EVAL", "return #redis.call('PUBSUB', 'CHANNELS')", "0"]) == 1;
            wait_until(SOON, "the waiter", subscribed);
            block_on(async {
                let lock = lock(&client, *case, "a");
                let proof = proof.clone();
                let call = tokio::spawn(async move { lock.attach(&proof).await });
                tokio::task::block_in_place(|| held.wait_hits(1));
                call.abort();
                assert!(call.await.unwrap_err().is_cancelled());
            });
            held.release();
            assert!(waiting.join().unwrap() < TTL / 4);
        });
        expect_nothing_left(&stage, &client, *case, "a");
        let error = block_on(lock(&client, *case, "a").attach(&proof)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    });
}

#[test]
fn f51_timed_out_from_outside_at_any_moment() {
    side_by_side(&cases(), |case| {
        let stage = Stage::valkey();
        let client = Client::builder().build(&stage.proxy.url()).unwrap();
        block_on(lock(&client, *case, "warm").acquire()).unwrap();
        let theirs = case.contended.then(|| stage.rival(face::Face::Async).lock_of(case.kind, "a").acquire().unwrap());
        for us in (0..3000).step_by(100) {
            let limit = Duration::from_micros(us);
            let lock = lock(&client, *case, "a");
            let result = block_on(async { tokio::time::timeout(limit, lock.acquire()).await });
            assert!(!case.contended || result.is_err());
        }
        drop(theirs);
        expect_nothing_left(&stage, &client, *case, "a");
    });
}

#[test]
fn f51_re_entry_and_release_dropped_half_way_keep_the_count_right() {
    let stage = Stage::valkey();
    let client = Client::builder().request_timeout(ms(5000)).build(&stage.proxy.url()).unwrap();
    let lock = client.reentrant_lock("a").ttl(TTL).owner(&Owner::named("me"));
    let outer = block_on(lock.acquire()).unwrap();
    for _ in 0..3 {
        // a re-entry that was carried out but not delivered has not happened
        let held = stage.proxy.on(scripts::set_count()).once().hold_reply();
        block_on(async {
            let lock = lock.clone();
            let call = tokio::spawn(async move { lock.acquire().await });
            tokio::task::block_in_place(|| held.wait_hits(1));
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
        });
        held.release();
        assert_eq!(outer.hold_count(), 1);
    }
    let inner = block_on(lock.acquire()).unwrap();
    assert_eq!(inner.hold_count(), 2);
    // an inner release that is dropped half-way has happened
    let held = stage.proxy.on(scripts::set_count()).once().hold_reply();
    block_on(async {
        let inner = Arc::new(inner);
        let call = tokio::spawn(async move { inner.release().await });
        tokio::task::block_in_place(|| held.wait_hits(1));
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    });
    held.release();
    assert!(outer.is_held() && outer.hold_count() == 1);
    // and so has the outer one, which the cleanup finishes
    let held = stage.proxy.on(scripts::release()).once().hold();
    block_on(async {
        let call = tokio::spawn(async move { outer.release().await });
        tokio::task::block_in_place(|| held.wait_hits(1));
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    });
    held.release();
    stage.wait_clean(&face::Client::Async(client.clone()), "a", SOON);
    assert!(block_on(lock.try_acquire()).unwrap().is_some());
}

#[test]
fn f51_blocking_calls_are_cancelled_within_a_tenth_of_a_second() {
    use onelock::blocking::Cancel;
    let waits = ["busy", "silent", "refused", "in line"].map(|how| (how.to_owned(), how));
    side_by_side(&waits, |how| {
        let stage = Stage::valkey();
        let patient = Client::builder().request_timeout(ms(20_000)).connect_timeout(ms(20_000));
        let client = patient.build_blocking(&stage.proxy.url()).unwrap();
        let theirs =
            (*how == "busy" || *how == "in line").then(|| stage.rival(face::Face::Blocking).lock("a").acquire());
        client.lock("warm").acquire().unwrap().release().unwrap();
        match *how {
            "silent" => stage.proxy.pause(),
            "refused" => {
                stage.proxy.refuse();
                stage.proxy.cut_all();
            }
            _ => {}
        }
        let cancel = Cancel::new();
        let lock = client.lock("a").ttl(TTL).interrupt(cancel.clone());
        std::thread::scope(|scope| {
            if *how == "in line" {
                let cancel = cancel.clone();
                let lock = client.lock("a").interrupt(cancel);
                scope.spawn(move || assert_eq!(lock.acquire().unwrap_err().kind(), ErrorKind::Cancelled));
                wait_until(SOON, "the first in line", || client.stats().waiting == 1);
            }
            let asked = client.stats().commands_sent;
            let call = scope.spawn(|| {
                let error = lock.acquire().unwrap_err();
                (Instant::now(), error)
            });
            match *how {
                "silent" => wait_until(SOON, "the request", || client.stats().commands_sent > asked),
                "in line" => wait_until(SOON, "two waiters", || client.stats().waiting == 2),
                _ => wait_until(SOON, "the waiter", || client.stats().waiting == 1),
            }
            let cancelled = Instant::now();
            cancel.cancel();
            let (returned, error) = call.join().unwrap();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            let took = returned.duration_since(cancelled);
            assert!(took < SLACK, "{took:?}: at most 100 ms on a machine that is not busy, and the limits are 20 s");
        });
        drop(theirs);
        stage.proxy.heal();
        wait_until(SOON, "nothing to be left", || !stage.exists("a") && client.stats().waiting == 0);
    });
}
