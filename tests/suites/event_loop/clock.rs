//! The server's clock, as the replies over a loop's own connection tell it.

use std::thread;

use onelock::LossReason;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, Stage, ms, quick};
use onelock_tests::wait::wait_until;

use crate::{Loop, acquire, release};

#[test]
fn a_server_clock_that_jumps_ahead_is_noticed_by_a_loop() {
    let stage = Stage::with(Server::builder(Flavor::Valkey91).clock().start());
    let client = quick().build(&stage.proxy.url()).unwrap();
    let mut event_loop = Loop::new();
    event_loop.connected(&client);
    let lock = client.lock("a").ttl(ms(60_000)).auto_renew(false);
    let lease = event_loop.run(async move { lock.acquire().await.unwrap() });
    let cycle = |event_loop: &mut Loop| {
        let (lease, granted_on) = event_loop.run(acquire(&client, "b"));
        assert_eq!(granted_on, thread::current().id(), "over the loop's own connection");
        event_loop.run(release(lease));
    };
    cycle(&mut event_loop);
    assert!(lease.is_held());
    stage.server.set_clock(90);
    wait_until(SOON, "the server's key to end early", || !stage.exists("a"));
    wait_until(SOON, "the jump to be noticed", || {
        cycle(&mut event_loop);
        !lease.is_held()
    });
    assert_eq!(lease.loss(), Some(LossReason::ClockAnomaly));
    assert_eq!(client.stats().lost, 1);
}
