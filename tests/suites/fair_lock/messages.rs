//! Messages of grants that are lost or come late: none is missed for long, and none harms whoever holds the lock by then.

use std::time::Instant;

use onelock::{Kind, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::stage::{SLACK, SOON, Stage, ms, unhurried};
use onelock_tests::wait::wait_until;

use super::{holder, left, listening};

/// A client with a connection of its own for messages.
fn client(stage: &Stage, face: Face) -> Client {
    Client::build(face, unhurried(), &stage.proxy.url_with("", "/?protocol=resp2")).unwrap()
}

#[test]
fn f71_whose_message_is_lost_has_the_lock_as_soon_as_it_looks() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = client(&stage, face);
        let theirs = stage.rival(face).lock_of(Kind::Fair, "x").acquire().unwrap();
        let lost = stage.proxy.on(Match::push("message")).drop_reply();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap());
            wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
            let begun = Instant::now();
            theirs.released();
            let lease = waiter.join().unwrap();
            assert!(begun.elapsed() < ms(250) + SLACK, "{:?}", begun.elapsed());
            assert!(lease.fence() > theirs.fence());
            assert_eq!(lost.hits(), 1);
            lease.released();
        });
        assert!(left(&stage.server, "x").is_empty());
    });
}

/// The message about a hold comes when that is on its way to another process, and a second waiter of the client listens.
#[test]
fn f92_a_message_about_a_hold_that_was_handed_over_does_not_end_it() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, rival) = (client(&stage, face), stage.rival(face));
        let theirs = rival.lock_of(Kind::Fair, "x").acquire().unwrap();
        let late = stage.proxy.on(Match::push("message")).once().hold_reply();
        std::thread::scope(|scope| {
            let acquire = || client.lock_of(Kind::Fair, "x").ttl(ms(60_000)).acquire_within(SOON).unwrap();
            let first = scope.spawn(acquire);
            wait_until(SOON, "its place", || listening(&stage.server, "x") == 1);
            let second = scope.spawn(acquire);
            wait_until(SOON, "the second to wait", || client.stats().waiting == 2);
            theirs.released();
            let lease = first.join().unwrap();
            late.wait_hits(1);
            let proof = lease.detach().unwrap();
            wait_until(SOON, "the second one's place", || listening(&stage.server, "x") == 1);
            let asked = stage.requests(&scripts::enter()).len();
            late.release();
            // it has been heard once this has gone on for a while
            stage.proxy.wait_requests(&scripts::enter(), asked + 3);
            assert_eq!(holder(&stage.server, "x").as_deref(), Some(lease.token()));
            // an attach exchanges the token: from here on a release of the former one would find nothing
            let attached = rival.lock_of(Kind::Fair, "x").attach(&proof).unwrap();
            assert_eq!(attached.fence(), lease.fence());
            assert_eq!(attached.release().unwrap(), Release::Released);
            let next = second.join().unwrap();
            assert!(next.fence() > attached.fence());
            next.released();
        });
        assert!(left(&stage.server, "x").is_empty());
    });
}
