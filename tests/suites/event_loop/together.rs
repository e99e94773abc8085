//! Several calls at a time: requests that come together are sent together, over the loop's own connection.

use std::sync::mpsc::TryRecvError;
use std::thread;

use onelock::{Client, Release};
use onelock_tests::proxy::Cut;
use onelock_tests::scripts;
use onelock_tests::servers::Server;
use onelock_tests::stage::{REQUEST, SOON, Stage};
use onelock_tests::wait::wait_until;

use super::{Loop, acquire, release, set, wait_clean, ways};

/// More requests than this at a time go over the shared connection.
const ABOARD: usize = 512;
/// So many that wait are sent before the loop has gone round.
const TOGETHER: usize = 16;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

/// How many acquires have come to the server.
fn asked(stage: &Stage) -> usize {
    stage.requests(&scripts::acquire()).len()
}

#[test]
fn the_first_is_sent_at_once_and_the_rest_when_the_loop_has_gone_round() {
    let (stage, client, mut event_loop) = set();
    let held = stage.proxy.on(scripts::acquire()).once().hold_reply();
    let calls: Vec<_> = names(5).iter().map(|name| event_loop.begin(acquire(&client, name)).1).collect();
    held.wait_hits(1);
    assert!(event_loop.port.needs_flush());
    assert_eq!(asked(&stage), 1, "the others wait for the loop");
    event_loop.turn();
    assert!(!event_loop.port.needs_flush());
    stage.proxy.wait_requests(&scripts::acquire(), 5);
    held.release();
    let leases: Vec<_> = calls.iter().map(|call| event_loop.wait(call)).collect();
    assert!(leases.iter().all(|(_, granted_on)| *granted_on == thread::current().id()));
    let ways = ways(&stage);
    assert!(ways.iter().all(|way| *way == ways[0]), "{ways:?}");
    for (number, (lease, _)) in leases.into_iter().enumerate() {
        assert_eq!(lease.name(), format!("n{number}").as_bytes());
        assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    }
}

#[test]
fn many_are_begun_with_before_the_loop_has_gone_round() {
    let (stage, client, mut event_loop) = set();
    let calls: Vec<_> = names(2 * TOGETHER).iter().map(|name| event_loop.begin(acquire(&client, name)).1).collect();
    // the loop does nothing here
    stage.proxy.wait_requests(&scripts::acquire(), 1 + TOGETHER);
    for call in &calls {
        let (lease, _) = event_loop.wait(call);
        assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    }
}

#[test]
fn more_than_one_connection_should_carry_go_over_the_shared_one() {
    let (stage, client, mut event_loop) = set();
    let held = stage.proxy.on(scripts::acquire()).once().hold_reply();
    let calls: Vec<_> = names(ABOARD + 50).iter().map(|name| event_loop.begin(acquire(&client, name)).1).collect();
    held.wait_hits(1);
    event_loop.turn();
    stage.proxy.wait_requests(&scripts::acquire(), ABOARD + 50);
    held.release();
    for call in &calls {
        let (lease, _) = event_loop.wait(call);
        assert!(lease.is_held());
    }
    let ways = ways(&stage);
    // which of the two the first request is seen on, is left open
    let other = ways.iter().filter(|way| **way != ways[0]).count();
    assert_eq!((other.max(ways.len() - other), ways.len()), (ABOARD, ABOARD + 50));
}

#[test]
fn cancelled_while_it_waits_to_be_sent_nothing_stays_held() {
    let (stage, client, mut event_loop) = set();
    let held = stage.proxy.on(scripts::acquire()).once().hold_reply();
    let (_, first) = event_loop.begin(acquire(&client, "first"));
    held.wait_hits(1);
    let (task, cancelled) = event_loop.begin(acquire(&client, "cancelled"));
    task.abort();
    drop(cancelled);
    event_loop.turn();
    held.release();
    let (lease, _) = event_loop.wait(&first);
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    // not an obligation for a whole ttl: the reply tells what there is to undo
    wait_until(SOON, "clean-up", || {
        event_loop.turn();
        !stage.exists("cancelled") && client.stats().cleaning == 0
    });
    assert_eq!(event_loop.sockets.len(), 1);
}

#[test]
fn a_loop_that_stands_still_delays_what_waits_for_it_by_one_time_limit() {
    let (stage, client, mut event_loop) = set();
    let held = stage.proxy.on(scripts::acquire()).once().hold_reply();
    let (_, first) = event_loop.begin(acquire(&client, "first"));
    held.wait_hits(1);
    let (_, second) = event_loop.begin(acquire(&client, "second"));
    // not sent: then another thread sends it, over the shared connection
    let (lease, granted_on) = second.recv_timeout(SOON).unwrap();
    assert_ne!(granted_on, thread::current().id());
    assert!(lease.remaining() > REQUEST);
    held.release();
    let (other, _) = event_loop.wait(&first);
    for lease in [lease, other] {
        assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    }
    wait_clean(&stage, &client, "second");
    assert_eq!(stage.requests(&scripts::acquire().containing("second")).len(), 1);
}

#[test]
fn a_connection_that_breaks_under_many_costs_no_lock() {
    let (stage, client, mut event_loop) = set();
    let names = names(40);
    let rule = stage.proxy.on(scripts::acquire().containing("n20")).once().cut_instead_of_reply(Cut::Reset);
    let calls: Vec<_> = names.iter().map(|name| event_loop.begin(acquire(&client, name)).1).collect();
    let leases: Vec<_> = calls.iter().map(|call| event_loop.wait(call).0).collect();
    rule.wait_hits(1);
    assert!(leases.iter().all(onelock::Lease::is_held));
    for (lease, name) in leases.into_iter().zip(&names) {
        assert_eq!(event_loop.run(release(lease)).0, Release::Released, "{name}");
    }
    wait_clean(&stage, &client, "n20");
}

#[test]
fn a_socket_that_takes_only_a_part_gets_the_rest_later() {
    let server = Server::valkey();
    let client = Client::builder().build(&server.unix_url()).unwrap();
    let mut event_loop = Loop::new();
    event_loop.connected(&client);
    // from here on the server knows the scripts
    let (lease, _) = event_loop.run(acquire(&client, "a"));
    assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    // more than fits into the buffers of a socket in the file system
    let names: Vec<_> = (0..ABOARD - 1).map(|number| format!("{number}-{}", "x".repeat(500))).collect();
    server.stop();
    let calls: Vec<_> = names.iter().map(|name| event_loop.begin(acquire(&client, name)).1).collect();
    event_loop.turn();
    assert!(calls.iter().all(|call| matches!(call.try_recv(), Err(TryRecvError::Empty))));
    server.cont();
    for (call, name) in calls.iter().zip(&names) {
        let (lease, granted_on) = event_loop.wait(call);
        assert!(lease.name() == name.as_bytes() && granted_on == thread::current().id());
        assert_eq!(event_loop.run(release(lease)).0, Release::Released);
    }
    wait_until(SOON, "nothing to clean", || client.stats().cleaning == 0);
}
