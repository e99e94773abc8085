//! What a message that tells a grant is worth: a hand-over costs the waiter no request. And what it is not worth: one that is
//! late, comes again, or was made up, and one after which the lease could not be kept.

use std::time::{Duration, Instant};

use onelock::{Kind, LossReason, Release};
use onelock_tests::face::{Client, Face, on_both, side_by_side};
use onelock_tests::proxy::{Cut, Match};
use onelock_tests::scripts;
use onelock_tests::stage::{SOON, Stage, ms, unhurried};
use onelock_tests::wait::wait_until;

use super::{holder, left, list, listening, queue};

/// A place is kept every 160 ms at the earliest: what is done by then meets no keep.
const BEFORE_THE_NEXT_KEEP: Duration = ms(100);
const TRIES: usize = 20;

fn client(stage: &Stage, face: Face, protocol: &str) -> Client {
    Client::build(face, unhurried(), &stage.proxy.url_with("", protocol)).unwrap()
}

/// Requests that take the write side of a read/write lock, or take or keep a place.
fn enter_to_write() -> Match {
    Match::script(scripts::RW_LOCK).with_arg("enter")
}

/// Waits until a place has just been kept, and says how many requests there were.
fn just_kept(stage: &Stage, enters: &Match) -> (usize, Instant) {
    let before = stage.requests(enters).len();
    let count = stage.proxy.wait_requests(enters, before + 1).len();
    (count, Instant::now())
}

/// What a message tells of, on both faces.
fn each_kind() -> Vec<(String, (Kind, Face))> {
    let named = |kind: Kind, face: Face| (format!("{kind:?} {face:?}"), (kind, face));
    [Kind::Fair, Kind::Write].into_iter().flat_map(|kind| Face::ALL.map(|face| named(kind, face))).collect()
}

#[test]
fn a_hand_over_that_nothing_disturbs_costs_the_waiter_no_request() {
    side_by_side(&each_kind(), |(kind, face)| {
        let stage = Stage::valkey();
        let (client, rival) = (client(&stage, *face, "/?protocol=resp3"), stage.rival(*face));
        let enters = if *kind == Kind::Fair { scripts::enter() } else { enter_to_write() };
        for attempt in 0.. {
            assert!(attempt < TRIES, "a keep came between each time, or each message was answered");
            let theirs = rival.lock_of(*kind, "x").acquire().unwrap();
            let asked_at_all = std::thread::scope(|scope| {
                let waiter = scope.spawn(|| client.lock_of(*kind, "x").acquire_within(SOON).unwrap());
                wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
                let (asked, kept_at) = just_kept(&stage, &enters);
                theirs.released();
                let lease = waiter.join().unwrap();
                let in_time = kept_at.elapsed() < BEFORE_THE_NEXT_KEEP;
                assert!(lease.is_held() && lease.fence() > theirs.fence());
                // the first renewal makes it a lease like any other
                wait_until(SOON, "its renewal", || lease.remaining() > ms(20_000));
                let asked_at_all = stage.requests(&enters).len() > asked;
                assert_eq!(lease.released(), Release::Released);
                (in_time, asked_at_all)
            });
            match asked_at_all {
                (true, false) => break,
                (true, true) => panic!("it asked though it was told"),
                (false, _) => {}
            }
        }
        wait_until(SOON, "nothing to be left", || left(&stage.server, "x").is_empty());
    });
}

/// A lease of which a message told: the key is short until its first renewal.
#[test]
fn a_told_hold_that_is_detached_at_once_stays_for_its_ttl() {
    side_by_side(&each_kind(), |(kind, face)| {
        let stage = Stage::valkey();
        let rival = stage.rival(*face);
        for attempt in 0.. {
            assert!(attempt < TRIES, "it was renewed before it could be detached, each time");
            let client = client(&stage, *face, "/?protocol=resp3");
            let theirs = rival.lock_of(*kind, "x").acquire().unwrap();
            let (proof, left) = std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let lease = client.lock_of(*kind, "x").acquire_within(SOON).unwrap();
                    let left = lease.remaining();
                    (lease.detach().unwrap(), left)
                });
                wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
                theirs.released();
                waiter.join().unwrap()
            });
            // the end of the client waits for it
            client.close();
            assert!(stage.pttl("x") > 20_000, "{}", stage.pttl("x"));
            let attached = rival.lock_of(*kind, "x").attach(&proof).unwrap();
            assert!(attached.fence() > theirs.fence());
            attached.released();
            if left < ms(1000) {
                break;
            }
        }
    });
}

/// There the messages come on another connection than the answers, and after a switch from another server.
#[test]
fn over_resp2_a_waiter_asks_whatever_it_was_told() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (client(&stage, face, "/?protocol=resp2"), stage.rival(face));
        for _ in 0..3 {
            let theirs = rival.lock_of(Kind::Fair, "x").acquire().unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let lease = client.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap();
                    (lease.remaining(), lease)
                });
                wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
                just_kept(&stage, &scripts::enter());
                theirs.released();
                let (left, lease) = waiter.join().unwrap();
                assert!(left > ms(20_000), "{left:?}");
                lease.released();
            });
        }
    });
}

/// The holder computes on the only thread of its runtime: nothing is renewed meanwhile.
#[test]
fn a_holder_that_computes_on_its_only_thread_keeps_what_it_was_granted() {
    let stage = Stage::valkey();
    let (rival, url) = (stage.rival(Face::Blocking), stage.proxy.url_with("", "/?protocol=resp3"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let theirs = rival.lock_of(Kind::Fair, "x").acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            runtime.block_on(async {
                let client = onelock::Client::connect(&url).await.unwrap();
                let lease = client.fair_lock("x").acquire().await.unwrap();
                std::thread::sleep(ms(700));
                let held = lease.is_held();
                lease.release().await.unwrap();
                held
            })
        });
        wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
        just_kept(&stage, &scripts::enter());
        theirs.released();
        assert!(waiter.join().unwrap());
    });
}

/// A lease that is never renewed, and keys that have to stay longer than a place.
#[test]
fn what_a_told_grant_cannot_promise_is_asked_for() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (client(&stage, face, "/"), stage.rival(face));
        for described in 0..3 {
            let lock = client.lock_of(Kind::Fair, "x").ttl(ms(60_000));
            let lock = match described {
                0 => lock.auto_renew(false),
                1 => lock.min_hold(ms(1)),
                _ => lock.lock_delay(ms(1)),
            };
            let theirs = rival.lock_of(Kind::Fair, "x").acquire().unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| lock.acquire_within(SOON).unwrap());
                wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
                just_kept(&stage, &scripts::enter());
                theirs.released();
                let lease = waiter.join().unwrap();
                assert!(lease.remaining() > ms(30_000), "{described}: {:?}", lease.remaining());
                lease.released();
            });
        }
    });
}

/// The waiter hears nothing until its hold has ended and somebody else has the lock.
#[test]
fn a_message_that_comes_after_the_end_is_not_believed() {
    for protocol in ["/?protocol=resp3", "/?protocol=resp2"] {
        on_both(|face| {
            let stage = Stage::valkey();
            let (client, rival) = (client(&stage, face, protocol), stage.rival(face));
            let theirs = rival.lock_of(Kind::Fair, "x").acquire().unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| client.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap());
                wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
                let token = queue(&stage.server, "x").remove(0);
                just_kept(&stage, &scripts::enter());
                stage.proxy.pause();
                theirs.released();
                wait_until(SOON, "the grant", || holder(&stage.server, "x").as_ref() == Some(&token));
                wait_until(SOON, "its end", || left(&stage.server, "x").is_empty());
                let next = rival.lock_of(Kind::Fair, "x").acquire().unwrap();
                stage.proxy.resume();
                let asked = stage.requests(&scripts::enter()).len();
                stage.proxy.wait_requests(&scripts::enter(), asked + 3);
                assert_eq!(holder(&stage.server, "x").as_deref(), Some(next.token()));
                assert!(next.is_held() && !waiter.is_finished());
                next.released();
                let lease = waiter.join().unwrap();
                assert!(lease.fence() > next.fence());
                lease.released();
            });
        });
    }
}

/// The channel on which the only client that waits is told.
fn channel(stage: &Stage) -> String {
    list(&stage.server.cmd(&["PUBSUB", "CHANNELS", "onelock_grant:*"])).remove(0)
}

fn server_us(stage: &Stage) -> u64 {
    let [seconds, micros] = list(&stage.server.cmd(&["TIME"])).try_into().unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

#[test]
fn a_message_that_was_made_up_is_a_reason_to_ask_and_no_more() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (client(&stage, face, "/"), stage.rival(face));
        let theirs = rival.lock_of(Kind::Fair, "x").acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap());
            wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
            let token = queue(&stage.server, "x").remove(0);
            let (channel, far) = (channel(&stage), 9_007_199_254_740_990_u64);
            let other = "onelock1:00000000000000000000000000000000";
            // a grant is numbered by the server's clock
            let before = theirs.fence();
            let payloads: [&dyn Fn(u64) -> String; 9] = [
                &|us| format!("{other} {us} {us}"),
                // the right token, and not a grant; one of before its place; one of another time
                &|us| format!("{token} 0 {us}"),
                &|us| format!("{token} {before} {us}"),
                &|us| format!("{token} {us} {}", us - 60_000_000),
                &|us| format!("{token} {us} {}", us + 60_000_000),
                // a number that would shut out all later holders
                &|us| format!("{token} {far} {us}"),
                &|us| format!("{token} {us}"),
                &|_| "1".to_owned(),
                &|_| "x".repeat(100_000),
            ];
            for payload in payloads {
                let (asked, _) = just_kept(&stage, &scripts::enter());
                let payload = payload(server_us(&stage));
                stage.server.cmd(&["PUBLISH", &channel, &payload]);
                // a message, and the keep after it
                stage.proxy.wait_requests(&scripts::enter(), asked + 2);
                assert!(theirs.is_held() && !waiter.is_finished(), "{payload:.80}");
                assert_eq!(holder(&stage.server, "x").as_deref(), Some(theirs.token()));
            }
            // all of them could have been believed: one that says what the server would say is
            for attempt in 0.. {
                assert!(attempt < TRIES && theirs.is_held());
                just_kept(&stage, &scripts::enter());
                let us = server_us(&stage);
                stage.server.cmd(&["PUBLISH", &channel, &format!("{token} {us} {us}")]);
                let told_at = Instant::now();
                while !waiter.is_finished() && told_at.elapsed() < BEFORE_THE_NEXT_KEEP {
                    std::thread::yield_now();
                }
                if waiter.is_finished() {
                    break;
                }
            }
            let lease = waiter.join().unwrap();
            assert!(lease.fence() > before);
            assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
            theirs.released();
        });
    });
}

/// The same message again, while its hold goes on and the next one of the client waits.
#[test]
fn a_message_that_comes_again_grants_nothing() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (client(&stage, face, "/"), stage.rival(face));
        let theirs = rival.lock_of(Kind::Fair, "x").acquire().unwrap();
        std::thread::scope(|scope| {
            let acquire = || client.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap();
            let first = scope.spawn(acquire);
            wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
            let channel = channel(&stage);
            let told_at = server_us(&stage);
            theirs.released();
            let lease = first.join().unwrap();
            let message = format!("{} {} {told_at}", lease.token(), lease.fence());
            let second = scope.spawn(acquire);
            wait_until(SOON, "the second one's place", || listening(&stage.server, "x") == 1);
            let (asked, _) = just_kept(&stage, &scripts::enter());
            stage.server.cmd(&["PUBLISH", &channel, &message]);
            stage.proxy.wait_requests(&scripts::enter(), asked + 2);
            assert!(lease.is_held() && !second.is_finished());
            assert_eq!(holder(&stage.server, "x").as_deref(), Some(lease.token()));
            lease.released();
            second.join().unwrap().released();
        });
    });
}

/// The message is lost with its connection, and the server is another one when there is a connection again.
#[test]
fn over_a_connection_that_was_cut_and_a_server_that_was_restarted_nothing_is_believed() {
    for protocol in ["/?protocol=resp3", "/?protocol=resp2"] {
        on_both(|face| {
            let stage = Stage::valkey();
            let (client, rival) = (client(&stage, face, protocol), stage.rival(face));
            let theirs = rival.lock_of(Kind::Fair, "x").acquire().unwrap();
            let cut = stage.proxy.on(Match::push("message")).once().cut_instead_of_reply(Cut::Reset);
            let lease = std::thread::scope(|scope| {
                let waiter =
                    scope.spawn(|| client.lock_of(Kind::Fair, "x").ttl(ms(3000)).acquire_within(SOON).unwrap());
                wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
                just_kept(&stage, &scripts::enter());
                theirs.released();
                let lease = waiter.join().unwrap();
                // the answer to a keep that was under way may have been first
                cut.wait_hits(1);
                lease
            });
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| rival.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap());
                wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
                // without its data: whoever waits begins anew, and nobody holds anything
                stage.server.restart();
                let next = waiter.join().unwrap();
                assert_eq!(holder(&stage.server, "x").as_deref(), Some(next.token()));
                assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
                next.released();
            });
        });
    }
}
