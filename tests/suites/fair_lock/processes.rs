//! Processes that wait and are killed or stopped, before and after the lock was given to them.

use std::time::{Duration, Instant};

use onelock::Kind;
use onelock_tests::face::{Client, Face, Lease, on_both};
use onelock_tests::holder::Holder;
use onelock_tests::servers::{Flavor, Monitor, Server, cont, stop};
use onelock_tests::stage::{SLACK, SOON, ms};
use onelock_tests::wait::wait_until;

use super::{holder, left, list, listening, number, place_lasts_ms, queue};

/// A place lasts so long without being kept, a grant to its client no longer, and whoever waits looks so often.
const GONE: Duration = ms(600 + 200 + 200);

/// Starts a process that waits, and waits until it has its place and listens.
fn waiting(server: &Server, name: &str, face: Face) -> Holder {
    let before = listening(server, name);
    let mut waiter = Holder::start(env!("CARGO_BIN_EXE_onelock-holder"), face, &server.url());
    waiter.order(&format!("fair {name} 30000 true"));
    wait_until(SOON, "its place", || listening(server, name) == before + 1);
    waiter
}

/// Waits until the lock is granted to the process: its fencing token, and how long that took.
fn granted(waiter: &mut Holder) -> (u64, Duration) {
    let begun = Instant::now();
    let fence = waiter.answer().parse().unwrap();
    (fence, begun.elapsed())
}

fn held(server: &Server, name: &str, face: Face) -> Lease {
    let client = Client::build(face, onelock::Client::builder(), &server.url()).unwrap();
    client.lock_of(Kind::Fair, name).acquire().unwrap()
}

/// The tokens that the scripts made the holder, in order.
fn grants(monitor: &Monitor, name: &str) -> Vec<String> {
    let seen = monitor.seen();
    let grants = seen.iter().filter(|line| line.is("HSET") && line.args[1..4] == [name, "mode", "fair"]);
    grants.map(|line| line.args[4].clone()).collect()
}

/// Nothing is left of the lock, once those that are dead have been forgotten.
fn expect_nothing_left(server: &Server, name: &str, face: Face) {
    let client = Client::build(face, onelock::Client::builder(), &server.url()).unwrap();
    wait_until(SOON, "nothing to be left", || {
        if let Some(lease) = client.lock_of(Kind::Fair, name).try_acquire().unwrap() {
            lease.released();
        }
        left(server, name).is_empty() && list(&server.cmd(&["PUBSUB", "CHANNELS"])).is_empty()
    });
}

#[test]
fn f73_killed_waiters_are_passed_over() {
    on_both(|face| {
        let server = Server::valkey();
        let lease = held(&server, "x", face);
        let mut killed: Vec<Holder> = (0..5).map(|_| waiting(&server, "x", face)).collect();
        let (mut next, mut last) = (waiting(&server, "x", face), waiting(&server, "x", face));
        let order = queue(&server, "x");
        for waiter in &mut killed {
            waiter.kill();
        }
        wait_until(SOON, "their subscriptions to end", || list(&server.cmd(&["PUBSUB", "CHANNELS"])).len() == 2);
        let monitor = server.monitor();
        lease.released();
        let (first, took) = granted(&mut next);
        assert!(took < SLACK, "{took:?}");
        assert_eq!(grants(&monitor, "x"), order[5..6], "none of the dead ones got it in between");
        assert_eq!(next.ask("release"), "released");
        let (second, took) = granted(&mut last);
        assert!(took < SLACK && second > first, "{took:?}");
        assert_eq!(grants(&monitor, "x"), order[5..7]);
        assert_eq!(last.ask("release"), "released");
        drop((next, last));
        expect_nothing_left(&server, "x", face);
    });
}

/// Has the first of three waiters be given the lock while it is stopped: the waiters, their tokens, and since when.
fn given_to_a_stopped_one(server: &Server, face: Face) -> (String, [Holder; 3], Vec<String>, Instant) {
    for attempt in 0..20 {
        let name = format!("x{attempt}");
        let lease = held(server, &name, face);
        let waiters = [(); 3].map(|()| waiting(server, &name, face));
        let (order, monitor) = (queue(server, &name), server.monitor());
        stop(waiters[0].pid());
        // on a busy machine its place may be over by now
        lease.released();
        let begun = Instant::now();
        wait_until(SOON, "somebody to get it", || !grants(&monitor, &name).is_empty());
        if grants(&monitor, &name)[0] == order[0] {
            return (name, waiters, order, begun);
        }
    }
    panic!("a stopped waiter never got it");
}

#[test]
fn f73_killed_when_the_lock_was_given_to_it() {
    on_both(|face| {
        let server = Server::valkey();
        let (name, [mut first, mut second, mut third], order, begun) = given_to_a_stopped_one(&server, face);
        first.kill();
        granted(&mut second);
        let took = begun.elapsed();
        assert!(took < GONE + SLACK, "{took:?}");
        assert_eq!((holder(&server, &name).as_ref(), second.ask("held").as_str()), (Some(&order[1]), "true"));
        second.ask("release");
        granted(&mut third);
        third.ask("release");
        drop((second, third));
        expect_nothing_left(&server, &name, face);
    });
}

#[test]
fn f74_stopped_before_it_is_its_turn_and_continued_later() {
    on_both(|face| {
        let server = Server::valkey();
        let lease = held(&server, "x", face);
        let [mut first, mut second, mut third, mut fourth] = [(); 4].map(|()| waiting(&server, "x", face));
        let order = queue(&server, "x");
        let numbers: Vec<_> = order[..2].iter().map(|token| number(&server, "x", token)).collect();
        stop(first.pid());
        stop(second.pid());
        wait_until(SOON, "both places to be over", || {
            order[..2].iter().all(|token| place_lasts_ms(&server, "x", token).unwrap() < 0)
        });
        let monitor = server.monitor();
        lease.released();
        let (fence, took) = granted(&mut third);
        assert!(took < SLACK, "{took:?}");
        assert_eq!(grants(&monitor, "x"), order[2..3], "none of the stopped ones got it in between");
        assert_eq!(queue(&server, "x"), order[3..]);
        cont(first.pid());
        cont(second.pid());
        let back = [&order[0], &order[1], &order[3]].map(String::clone);
        wait_until(SOON, "both to be back", || queue(&server, "x") == back);
        assert_eq!(order[..2].iter().map(|token| number(&server, "x", token)).collect::<Vec<_>>(), numbers);
        let mut fences = vec![fence];
        third.ask("release");
        for waiter in [&mut first, &mut second, &mut fourth] {
            fences.push(granted(waiter).0);
            assert_eq!(waiter.ask("held"), "true");
            assert_eq!(waiter.ask("release"), "released");
        }
        assert!(fences.is_sorted_by(|one, other| one < other), "{fences:?}");
        drop((first, second, third, fourth));
        expect_nothing_left(&server, "x", face);
    });
}

#[test]
fn f74_stopped_when_the_lock_is_given_to_it_and_continued_later() {
    on_both(|face| {
        let server = Server::valkey();
        let (name, [mut first, mut second, mut third], order, begun) = given_to_a_stopped_one(&server, face);
        let (second_fence, _) = granted(&mut second);
        let took = begun.elapsed();
        assert!(took < GONE + SLACK, "{took:?}");
        // in its socket lies the message about a hold that is over
        cont(first.pid());
        let back = [&order[0], &order[2]].map(String::clone);
        wait_until(SOON, "it to be back", || queue(&server, &name) == back);
        assert_eq!((holder(&server, &name).as_ref(), second.ask("held").as_str()), (Some(&order[1]), "true"));
        second.ask("release");
        let (first_fence, _) = granted(&mut first);
        assert!(first_fence > second_fence);
        assert_eq!((holder(&server, &name).as_ref(), first.ask("held").as_str()), (Some(&order[0]), "true"));
        first.ask("release");
        assert!(granted(&mut third).0 > first_fence);
        third.ask("release");
        drop((first, second, third));
        expect_nothing_left(&server, &name, face);
    });
}

/// The server's clock is set back: by it the places of those that are stopped would last for another hour.
#[test]
fn f77_stopped_waiters_do_not_last_because_the_clock_is_set_back() {
    let server = Server::builder(Flavor::Valkey91).clock().start();
    let lease = held(&server, "x", Face::Async);
    let [first, second, mut third] = [(); 3].map(|()| waiting(&server, "x", Face::Async));
    stop(first.pid());
    stop(second.pid());
    let tokens = queue(&server, "x");
    server.set_clock(-3600);
    // a grant made before would last for an hour by the new clock, as every key does
    wait_until(SOON, "the clock to be set", || {
        place_lasts_ms(&server, "x", &tokens[0]).is_some_and(|ms| ms > 3_000_000)
    });
    let monitor = server.monitor();
    lease.released();
    let (_, took) = granted(&mut third);
    assert!(took < GONE + SLACK, "{took:?}");
    assert_eq!(grants(&monitor, "x"), tokens[2..], "none of the stopped ones got it in between");
    third.ask("release");
}
