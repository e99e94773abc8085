//! Holders that end, stop, and go on.

use std::time::{Duration, Instant};

use onelock::{ErrorKind, LossReason, Release};
use onelock_tests::face::{Face, on_both};
use onelock_tests::stage::{SOON, fails, ms};
use onelock_tests::wait::wait_until;

use crate::place::{Place, is_free};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_killed_holder_is_followed_by_a_waiter_long_before_its_lease_would_end() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let mut fence = 0;
        for _ in 0..5 {
            let mut holder = place.holder(face);
            let granted = holder.acquire("a", LONG, true);
            assert!(granted > fence && client.lock("a").try_acquire().unwrap().is_none());
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
                wait_until(SOON, "the waiter", || client.stats().waiting == 1);
                holder.kill();
                let next = waiter.join().unwrap();
                fence = next.fence();
                assert!(fence > granted);
                assert_eq!(next.released(), Release::Released);
            });
        }
        client.close();
    });
}

#[test]
fn a_killed_holder_leaves_nothing_behind() {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let mut holder = place.holder(Face::Blocking);
    holder.acquire("a", LONG, true);
    let seen = client.inspect("a").unwrap().unwrap();
    assert_eq!(seen.kind, onelock::Kind::Mutex);
    assert_eq!(client.listing("*").unwrap().len(), 1);
    holder.kill();
    assert!(client.inspect("a").unwrap().is_none());
    assert!(!client.lock("a").is_locked().unwrap() && client.listing("*").unwrap().is_empty());
    assert!(!client.force_release("a").unwrap());
    assert!(is_free(&client, "a"));
    client.close();
}

#[test]
fn a_stopped_holder_keeps_others_out_and_then_knows_that_its_lease_has_ended() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let mut holder = place.holder(face);
        let begun = Instant::now();
        holder.acquire("a", ms(300), true);
        signal(&holder, "STOP");
        // past the end of its lease nobody else gets it
        assert_eq!(client.lock("a").refusal(ms(1200)), ErrorKind::Timeout);
        assert!(begun.elapsed() > ms(600));
        signal(&holder, "CONT");
        assert_eq!(holder.ask("held"), "false");
        let next = client.lock("a").acquire_within(SOON).unwrap();
        wait_until(SOON, "the reason", || holder.ask("loss") == LossReason::Expired.as_str());
        assert_eq!(holder.ask("release"), "already_expired");
        assert!(next.is_held());
        assert_eq!(next.released(), Release::Released);
        client.close();
    });
}

fn signal(holder: &onelock_tests::holder::Holder, name: &str) {
    let done =
        std::process::Command::new("kill").args([format!("-{name}"), holder.pid().to_string()]).status().unwrap();
    assert!(done.success());
    if name == "STOP" {
        let stat = format!("/proc/{}/stat", holder.pid());
        let is_stopped = || std::fs::read_to_string(&stat).unwrap().rsplit(") ").next().unwrap().starts_with('T');
        wait_until(SOON, "the process to stop", is_stopped);
    }
}

#[test]
fn a_waiter_sleeps_until_it_is_woken() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let mut holder = place.holder(face);
        holder.acquire("a", LONG, true);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            let before = client.stats().commands_sent;
            std::thread::sleep(ms(2000));
            // the safety poll begins with a second; the first attempts may be counted, too
            let attempts = client.stats().commands_sent - before;
            assert!(attempts <= 8, "{attempts} attempts in two seconds");
            assert_eq!(holder.ask("release"), "released");
            waiter.join().unwrap().released();
        });
        client.close();
    });
}

#[test]
fn six_processes_count_to_the_same_number() {
    let place = Place::new();
    let counter = place.file("counter");
    std::fs::write(&counter, "0").unwrap();
    let children: Vec<_> = (0..6)
        .map(|number| {
            let face = if number % 2 == 0 { "count-blocking" } else { "count-async" };
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onelock-forker"));
            command.args([face, &place.url()]).env("COUNTER", &counter);
            onelock_tests::servers::spawn(command).unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(std::fs::read_to_string(&counter).unwrap(), "600");
}

#[test]
fn a_hold_can_be_taken_from_another_process() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let mut holder = place.holder(face);
        let fence = holder.acquire("a", ms(600), true);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || client.stats().waiting == 1);
            assert!(place.client(face).force_release("a").unwrap());
            let next = waiter.join().unwrap();
            assert!(next.fence() > fence, "the counter goes on");
            wait_until(SOON, "the holder to learn it", || holder.ask("held") == "false");
            assert_eq!(holder.ask("loss"), LossReason::Taken.as_str());
            assert_eq!(holder.ask("release"), "already_expired");
            assert!(next.is_held() && client.lock("a").try_acquire().unwrap().is_none());
            next.released();
        });
        client.close();
    });
}

#[test]
fn another_kind_of_lock_under_the_name_is_seen_from_another_process() {
    let place = Place::new();
    let client = place.client(Face::Blocking);
    let mut holder = place.holder(Face::Blocking);
    holder.acquire("a", LONG, true);
    fails(client.reentrant_lock("a").try_acquire(), ErrorKind::WrongKind);
    assert_eq!(holder.ask("release"), "released");
    assert!(client.reentrant_lock("a").try_acquire().unwrap().is_some());
    client.close();
}
