//! Fencing tokens over a quorum: growing, and nearly always in one round trip.

use std::time::Duration;

use onelock_tests::face::{Client, on_both};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::unhurried;
use onelock_tests::topology::Several;

const FRESH: &str = "quarantine_ms=0";

#[test]
fn ninety_nine_of_a_hundred_uncontended_acquires_take_one_round_trip() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = Client::connect(face, unhurried(), &several.url(FRESH)).unwrap();
        let cycle = |name: &str| {
            let lease = client.lock(name).acquire().unwrap();
            lease.released();
            lease.fence()
        };
        cycle("a");
        let writes = || -> Vec<u64> {
            let calls = |server: &Server| {
                let stats = server.info("commandstats");
                let set = stats
                    .get("cmdstat_set")
                    .and_then(|text| text.strip_prefix("calls=")?.split(',').next()?.parse().ok());
                set.unwrap_or(0)
            };
            several.servers.iter().map(calls).collect()
        };
        let before = writes();
        let mut last = 0;
        for _ in 0..500 {
            let fence = cycle("a");
            assert!(fence > last, "{fence} after {last}");
            last = fence;
        }
        let after = writes();
        // an acquire sets the lock and the counter; a write-back would set the counter once more
        for (before, after) in before.iter().zip(&after) {
            assert!(after - before <= 1005, "{} writes for 500 acquires", after - before);
        }
    });
}

#[test]
fn tokens_grow_when_the_counters_of_the_servers_disagree() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = Client::connect(face, unhurried(), &several.url(FRESH)).unwrap();
        let cycle = |client: &Client| {
            let lease = client.lock("a").acquire_within(Duration::from_secs(5)).unwrap();
            lease.released();
            lease.fence()
        };
        let first = cycle(&client);
        // one server is far ahead, as after an acquire that failed elsewhere
        let ahead = first + 600_000_000;
        several.servers[2].cmd(&["SET", "onelock_fence:{a}", &ahead.to_string(), "PX", "600000"]);
        let second = cycle(&client);
        assert!(second > first);
        // whoever was told the high token is on two servers now, so that it can't be forgotten by losing one
        let third = {
            several.servers[2].kill();
            cycle(&client)
        };
        assert!(third > second, "{third} after {second}");
        let stranger = Client::connect(face, unhurried(), &several.url(FRESH)).unwrap();
        let fourth = cycle(&stranger);
        assert!(fourth > third, "{fourth} after {third}");
    });
}
