//! Fencing tokens: a majority of members acknowledges each of them, so they grow over every mixture.

use std::time::Duration;

use onelock_tests::face::Client;
use onelock_tests::stage::SOON;

use crate::place::{client, everywhere, fresh};

fn cycle(client: &Client) -> u64 {
    let lease = client.lock("a").acquire_within(SOON).unwrap();
    lease.released();
    lease.fence()
}

#[test]
fn a_token_stands_on_a_majority_when_it_is_told_and_the_next_one_is_higher() {
    everywhere(|mixed, face| {
        let client = client(face, mixed);
        let mut last = cycle(&client);
        let numbers = mixed.servers.len();
        // each member in turn is far ahead, as after an acquire that failed elsewhere
        for ahead in 0..mixed.len() {
            let counter = last + 60_000_000;
            match mixed.servers.get(ahead) {
                Some(server) => {
                    server.cmd(&["SET", "onelock_fence:{a}", &counter.to_string(), "PX", "600000"]);
                }
                None => {
                    mixed.tables[ahead - numbers].rows(&format!("UPDATE TABLE SET fence = {counter} WHERE name = 'a'"));
                }
            }
            // without the one that is ahead this would be no token of a majority
            let mut told = 0;
            for _ in 0..3 {
                let lease = client.lock("a").acquire_within(SOON).unwrap();
                let (fence, fences) = (lease.fence(), mixed.fences("a"));
                assert!(fences.iter().filter(|counter| **counter >= fence).count() >= 2, "{fence} on {fences:?}");
                lease.released();
                assert!(fence > last, "{fence} after {last}");
                (last, told) = (fence, told.max(fence));
            }
            let stranger = Client::connect(face, fresh(), &mixed.url()).unwrap();
            let next = cycle(&stranger);
            assert!(next > told, "{next} after {told}");
            last = next;
            stranger.close();
        }
        client.close();
    });
}

#[test]
fn a_proposal_from_a_clock_that_is_ahead_goes_up_an_hour_at_most() {
    everywhere(|mixed, face| {
        let client = client(face, mixed);
        let first = cycle(&client);
        let hour = 3_600_000_000;
        // one member has heard of a token of the far future; whoever is told it proposes it to all from then on
        let future = first + 10 * hour;
        mixed.tables[0].rows(&format!("UPDATE TABLE SET fence = {future} WHERE name = 'a'"));
        let mut last = first;
        for _ in 0..6 {
            let fence = cycle(&client);
            assert!(fence > last, "{fence} after {last}");
            last = fence;
        }
        // another lock of the same client is not carried along by more than an hour
        let other = client.lock("b").acquire_within(Duration::from_secs(20)).unwrap();
        assert!(other.fence() < first + 2 * hour, "{} by {first}", other.fence());
        other.released();
        client.close();
    });
}
