//! The waiters of one client: a head that gives up leaves its place, or what was given to it, to the next one.

use std::time::{Duration, Instant};

use onelock::{Client, ErrorKind, Kind, Lease};
use onelock_tests::face::{self, Face, block_on, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::stage::{SOON, Stage, fails, ms};
use onelock_tests::wait::wait_until;
use tokio::task::JoinHandle;

use super::{holder, left, listening, queue};

/// Far longer than any of these tests: whatever is gone sooner was released.
const LONG: Duration = Duration::from_secs(120);

fn client(stage: &Stage) -> Client {
    Client::builder().request_timeout(ms(5000)).build(&stage.proxy.url()).unwrap()
}

fn held(stage: &Stage) -> face::Lease {
    stage.rival(Face::Async).lock_of(Kind::Fair, "x").acquire().unwrap()
}

/// Starts an acquire, and waits until it stands in the client's own queue.
fn start(client: &Client, lock: onelock::Lock) -> JoinHandle<Result<Lease, onelock::Error>> {
    let before = client.stats().waiting;
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::task::block_in_place(|| wait_until(SOON, "it to wait", || client.stats().waiting == before + 1));
    waiter
}

/// What a head had under way when it was cancelled does not stay for ever in the clean-up of what comes after it.
#[test]
fn f51_cancelled_while_it_keeps_its_place_the_next_one_takes_it_over_and_leaves_nothing() {
    // where the request is when the head is cancelled, and whether the lock is given to it meanwhile
    for (carried_out, given) in [(false, false), (true, false), (false, true), (true, true)] {
        let stage = Stage::valkey();
        let (client, theirs) = (client(&stage), held(&stage));
        let lock = client.fair_lock("x").ttl(LONG);
        block_on(async {
            let first = start(&client, lock.clone());
            let second = start(&client, lock.clone());
            tokio::task::block_in_place(|| {
                wait_until(SOON, "the place", || listening(&stage.server, "x") == 1);
                let token = queue(&stage.server, "x");
                let keeps = stage.proxy.on(scripts::enter()).once();
                let rule = if carried_out { keeps.hold_reply() } else { keeps.hold() };
                rule.wait_hits(1);
                if given {
                    theirs.clone().release_on_a_thread();
                    wait_until(SOON, "the grant", || holder(&stage.server, "x").as_ref() == Some(&token[0]));
                }
                first.abort();
                wait_until(SOON, "it to be gone", || client.stats().cancelled == 1);
                rule.release();
                if !given {
                    theirs.clone().release_on_a_thread();
                }
            });
            assert!(first.await.unwrap_err().is_cancelled());
            let lease = second.await.unwrap().unwrap();
            assert!(lease.is_held());
            drop(lease);
        });
        let begun = Instant::now();
        stage.wait_clean(&face::Client::Async(client.clone()), "x", SOON);
        assert!(begun.elapsed() < ms(10_000), "{:?}", begun.elapsed());
        assert!(left(&stage.server, "x").is_empty());
        let tokens = tokens(&stage, &scripts::enter());
        assert_eq!(tokens.len(), 1, "the second one went on with the token of the first: {tokens:?}");
    }
}

/// The tokens in the requests that match, each once.
fn tokens(stage: &Stage, matching: &Match) -> Vec<Vec<u8>> {
    let requests = stage.requests(matching);
    let mut tokens: Vec<_> = requests
        .iter()
        .filter_map(|request| request.args.iter().find(|arg| arg.starts_with(b"onelock1:")).cloned())
        .collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

trait OnAThread {
    fn release_on_a_thread(self);
}

impl OnAThread for face::Lease {
    /// From inside the runtime.
    fn release_on_a_thread(self) {
        std::thread::spawn(move || self.released()).join().unwrap();
    }
}

/// The heir's own options count, not those of the one whose place it takes.
#[test]
fn the_next_one_has_its_own_ttl_and_its_own_fencing() {
    for (first_ttl, second_ttl) in [(LONG, ms(900)), (ms(900), LONG)] {
        let stage = Stage::valkey();
        let (client, theirs) = (client(&stage), held(&stage));
        block_on(async {
            let first = start(&client, client.fair_lock("x").ttl(first_ttl));
            let second = client.fair_lock("x").ttl(second_ttl).fencing(false).min_hold(ms(700));
            let second = start(&client, second);
            tokio::task::block_in_place(|| {
                wait_until(SOON, "the place", || listening(&stage.server, "x") == 1);
            });
            first.abort();
            let place = tokio::task::block_in_place(|| {
                wait_until(SOON, "it to be gone", || client.stats().cancelled == 1);
                queue(&stage.server, "x")
            });
            theirs.clone().release_on_a_thread();
            let lease = second.await.unwrap().unwrap();
            assert_eq!((lease.token(), lease.fencing_token()), (place[0].as_str(), None));
            assert!(lease.remaining() <= second_ttl && lease.remaining() > second_ttl / 10);
            let pttl = stage.pttl("x");
            assert!(pttl > 0 && u128::try_from(pttl).unwrap() <= second_ttl.max(ms(3000)).as_millis(), "{pttl}");
            let renewed = Instant::now() + ms(1100);
            tokio::task::block_in_place(|| wait_until(SOON, "renewals", || Instant::now() > renewed));
            assert!(lease.is_held());
            lease.release().await.unwrap();
        });
        stage.wait_clean(&face::Client::Async(client.clone()), "x", SOON);
        assert!(left(&stage.server, "x").is_empty());
    }
}

#[test]
fn closing_ends_all_who_wait_and_takes_the_place_along() {
    for in_flight in [false, true] {
        let stage = Stage::valkey();
        let (client, theirs) = (client(&stage), held(&stage));
        block_on(async {
            let mut waiters = Vec::new();
            for _ in 0..3 {
                waiters.push(start(&client, client.fair_lock("x").ttl(LONG)));
            }
            tokio::task::block_in_place(|| wait_until(SOON, "the place", || listening(&stage.server, "x") == 1));
            if in_flight {
                let held = stage.proxy.on(scripts::enter()).once().delay_reply(ms(50));
                tokio::task::block_in_place(|| held.wait_hits(1));
            }
            client.close().await;
            assert_eq!(queue(&stage.server, "x"), [""; 0]);
            for waiter in waiters {
                assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
            }
        });
        theirs.released();
        assert!(left(&stage.server, "x").is_empty());
    }
}

/// Every connection of the head is cut, again and again: it keeps its place, and its turn comes.
#[test]
fn f31_who_loses_the_connection_while_waiting_keeps_the_place() {
    let stage = Stage::valkey();
    let (client, theirs) = (client(&stage), held(&stage));
    block_on(async {
        let first = start(&client, client.fair_lock("x").ttl(LONG));
        tokio::task::block_in_place(|| wait_until(SOON, "the place", || listening(&stage.server, "x") == 1));
        let rival = stage.rival(Face::Async);
        let place = queue(&stage.server, "x");
        let second = std::thread::spawn(move || rival.lock_of(Kind::Fair, "x").acquire().unwrap());
        tokio::task::block_in_place(|| {
            wait_until(SOON, "both places", || listening(&stage.server, "x") == 2);
            for cut in 0..5 {
                let before = stage.requests(&scripts::enter()).len();
                stage.proxy.cut_all();
                stage.proxy.wait_requests(&scripts::enter(), before + 1 + cut % 2);
            }
            wait_until(SOON, "it to be back", || listening(&stage.server, "x") == 2);
            assert_eq!(queue(&stage.server, "x")[0], place[0]);
        });
        theirs.clone().release_on_a_thread();
        let lease = first.await.unwrap().unwrap();
        assert_eq!(lease.token(), place[0]);
        lease.release().await.unwrap();
        tokio::task::block_in_place(|| second.join().unwrap()).clone().release_on_a_thread();
    });
    assert!(left(&stage.server, "x").is_empty());
}

/// Copies of requests that were given up come late, when their token is nobody's any more: they take nothing for long.
#[test]
fn f06_a_late_copy_of_one_who_gave_up_delays_the_next_a_little_and_leaves_nothing() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, theirs) = (stage.client(face), held(&stage));
        let copies = stage.proxy.on(scripts::enter()).hold();
        fails(client.lock_of(Kind::Fair, "x").ttl(ms(20_000)).acquire_within(ms(300)), ErrorKind::Unavailable);
        stage.proxy.wait_requests(&scripts::leave(), 1);
        let rival = stage.rival(face);
        std::thread::scope(|scope| {
            // with nobody who waits behind it, a copy would take the lock
            copies.release();
            wait_until(SOON, "the copies", || {
                let requests = stage.requests(&scripts::enter());
                requests.iter().all(|request| request.reply.is_some()) || listening(&stage.server, "x") > 0
            });
            let next = scope.spawn(|| rival.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap());
            wait_until(SOON, "the next one's place", || listening(&stage.server, "x") == 1);
            let begun = Instant::now();
            theirs.released();
            next.join().unwrap().released();
            assert!(begun.elapsed() < SOON / 2, "long before its ttl: {:?}", begun.elapsed());
        });
        wait_until(SOON, "nothing to be left", || left(&stage.server, "x").is_empty());
    });
}

/// The server stands still for longer than places last: everybody comes back, and gets it.
#[test]
fn f75_a_server_that_stood_still_serves_everybody() {
    let stage = Stage::valkey();
    let theirs = held(&stage);
    let clients = [(); 4].map(|()| stage.rival(Face::Async));
    std::thread::scope(|scope| {
        let waiters: Vec<_> = clients
            .iter()
            .map(|client| scope.spawn(|| client.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap().released()))
            .collect();
        wait_until(SOON, "four places", || listening(&stage.server, "x") == 4);
        stage.server.stop();
        let until = Instant::now() + ms(800);
        wait_until(SOON, "a while", || Instant::now() > until);
        stage.server.cont();
        theirs.released();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    wait_until(SOON, "nothing to be left", || left(&stage.server, "x").is_empty());
}
