//! Servers that are replicas of a master that is gone, and say so.

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, everywhere};
use onelock_tests::servers::Server;
use onelock_tests::stage::{SOON, ms, quick};
use onelock_tests::topology::Several;
use onelock_tests::wait::wait_until;

/// Makes it a replica of nobody, that answers nothing of its old data.
fn orphan(server: &Server, port: u16) {
    server.config_set("replica-serve-stale-data", "no");
    server.cmd(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
    let told = server.try_cmd(&["EXISTS", "a"]);
    assert!(told.as_ref().is_err_and(|error| error.contains("MASTERDOWN")), "{told:?}");
}

#[test]
fn f30_a_minority_without_its_master_changes_nothing_and_a_majority_is_named() {
    everywhere(|flavor, face| {
        for number in [3, 5] {
            let several = Several::start(flavor, number);
            let client = Client::connect(face, quick(), &several.url("quarantine_ms=0")).unwrap();
            let gone = Server::start(flavor);
            let port = gone.port();
            gone.kill();
            let held = client.lock("held").ttl(ms(4000)).renew_every(ms(300)).acquire().unwrap();
            // granted by a bare majority, it would not survive the loss of one of these
            wait_until(SOON, "all servers", || several.count("held") == number);
            for server in &several.servers[..number / 2] {
                orphan(server, port);
            }
            let renewals = client.stats().renewals;
            wait_until(SOON, "renewals by the rest", || client.stats().renewals > renewals + 3);
            assert!(held.is_held());
            let lease = client.lock("a").acquire_within(SOON).unwrap();
            assert!(lease.is_held());
            assert_eq!(lease.released(), Release::Released);
            orphan(&several.servers[number - 1], port);
            let error = client.lock("b").acquire_within(ms(300)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
            // asked on a new connection it says that it is a replica at all
            let told = ["MASTERDOWN", "is a replica", "no answer in time"];
            let named = error.causes().iter().filter(|cause| told.iter().any(|told| cause.contains(told))).count();
            assert_eq!((error.causes().len(), named), (number, number / 2 + 1), "{error}");
            assert!(held.wait_lost(SOON).is_some(), "no majority renews it");
            drop(held);
            for server in several.servers[..number / 2].iter().chain(several.servers.last()) {
                server.cmd(&["REPLICAOF", "NO", "ONE"]);
            }
            wait_until(SOON, "all of them to take part again", || {
                let lease = client.lock("c").acquire_within(SOON).unwrap();
                let all = several.count("c") == number;
                lease.released();
                all
            });
            wait_until(SOON, "nothing left", || ["held", "a", "b", "c"].iter().all(|name| several.count(name) == 0));
        }
    });
}
