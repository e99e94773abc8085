//! Event loops in a group behind Sentinels, at the moment of a hand-over.

use onelock::ErrorKind;
use onelock_tests::servers::Flavor;
use onelock_tests::stage::{SOON, quick};
use onelock_tests::topology::Directed;
use onelock_tests::wait::wait_until;

use crate::Loop;

#[test]
fn a_loop_that_meets_the_old_master_goes_on_with_the_new_one_within_the_call() {
    let group = Directed::start(Flavor::Valkey91);
    let client = quick().connect_timeout(SOON).request_timeout(SOON).build(&group.url()).unwrap();
    let mut event_loop = Loop::new();
    event_loop.connected(&client);
    group.demote(0);
    let greeted = group.greetings(0);
    let lock = client.lock("a");
    let (_task, result) = event_loop.begin(async move { lock.try_acquire().await.map(|lease| lease.is_some()) });
    // a write that it refused, or a new connection to it, which is told its role
    wait_until(SOON, "a meeting with the old master", || {
        event_loop.turn();
        group.refused(0) > 0 || group.greetings(0) > greeted
    });
    group.name(1);
    assert!(event_loop.wait(&result).unwrap());
}

#[test]
fn a_group_without_a_master_is_unavailable_to_loops_too() {
    let group = Directed::start(Flavor::Valkey91);
    let client = quick().build(&group.url()).unwrap();
    let mut event_loop = Loop::new();
    event_loop.connected(&client);
    group.demote(0);
    let lock = client.lock("a");
    let error = event_loop.run(async move { lock.try_acquire().await.map(drop).unwrap_err() });
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
