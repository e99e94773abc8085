//! Going on with a hold that was handed over: a majority of servers exchanges its token for whoever attaches.

use onelock::{ErrorKind, Kind, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::proxy::Cut;
use onelock_tests::scripts;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, fails, ms, quick, unhurried};
use onelock_tests::topology::Several;
use onelock_tests::wait::wait_until;

const FRESH: &str = "quarantine_ms=0";
const KINDS: [Kind; 2] = [Kind::Mutex, Kind::Reentrant];

/// Has a client connect to all servers. One that an attach does not reach has the former hold for its ttl.
fn connect_to_all(client: &Client, several: &Several) {
    on_all(client, several, Kind::Mutex).released();
    wait_until(SOON, "no server", || several.count("a") == 0);
}

/// A lease on all servers.
fn on_all(client: &Client, several: &Several, kind: Kind) -> onelock_tests::face::Lease {
    loop {
        let lease = client.lock_of(kind, "a").ttl(ms(60_000)).acquire().unwrap();
        if several.count("a") == several.servers.len() {
            return lease;
        }
        lease.released();
        wait_until(SOON, "no server", || several.count("a") == 0);
    }
}

#[test]
fn a_proof_that_arrives_many_times_at_once_attaches_at_most_once() {
    for kind in KINDS {
        let several = Several::start(Flavor::Valkey91, 5);
        let clients: Vec<Client> = (0..6)
            .map(|n| if n % 2 == 0 { Face::Async } else { Face::Blocking })
            .map(|face| Client::connect(face, unhurried(), &several.url(FRESH)).unwrap())
            .collect();
        for client in &clients {
            connect_to_all(client, &several);
        }
        let mut attached = 0;
        for _ in 0..30 {
            let lease = on_all(&clients[0], &several, kind);
            let proof = lease.detach().unwrap();
            let mine: Vec<_> = std::thread::scope(|scope| {
                let attach = |client: &Client| client.lock_of(kind, "a").attach(&proof);
                let calls: Vec<_> = clients.iter().map(|client| scope.spawn(move || attach(client))).collect();
                calls.into_iter().filter_map(|call| call.join().unwrap().ok()).collect()
            });
            assert!(mine.len() <= 1, "{} have it", mine.len());
            if let [mine] = &mine[..] {
                attached += 1;
                assert_eq!(mine.fence(), lease.fence());
                // who lost releases what it took, and nothing else
                let others = |server: &Server| match kind {
                    Kind::Mutex => server.int(&["EXISTS", "a"]) == 1 && server.text(&["GET", "a"]) != mine.token(),
                    _ => server.int(&["HLEN", "a"]) != 0 && server.int(&["HEXISTS", "a", mine.token()]) == 0,
                };
                wait_until(SOON, "nothing of the others", || !several.servers.iter().any(others));
                assert!(mine.is_held() && several.count("a") >= 3);
                mine.extend(ms(60_000)).unwrap();
                assert_eq!(mine.released(), Release::Released);
            }
            wait_until(SOON, "nothing left", || several.count("a") == 0);
        }
        assert!(attached > 0, "none of 30 was attached");
    }
}

#[test]
fn two_who_split_the_servers_leave_nothing_held() {
    on_both(|face| {
        for kind in KINDS {
            let several = Several::start(Flavor::Valkey91, 3);
            let holder = Client::connect(face, unhurried(), &several.url(FRESH)).unwrap();
            let proof = on_all(&holder, &several, kind).detach().unwrap();
            // the first reaches one server of three, the second another: the third is away
            let clients =
                [0, 1].map(|_| Client::connect(face, quick().node_timeout(ms(200)), &several.proxied(FRESH)).unwrap());
            several.servers[2].kill();
            let attach = |client: &Client, away: usize| {
                let rule = several.proxies[away].on(scripts::attach()).cut_before(Cut::Reset);
                let result = client.lock_of(kind, "a").attach(&proof);
                assert!(rule.hits() > 0);
                rule.remove();
                result
            };
            fails(attach(&clients[0], 1), ErrorKind::NoQuorum);
            // released where it was exchanged, while the other server has the hold as it was
            wait_until(SOON, "the undo", || several.count("a") == 1);
            assert_eq!(several.servers[1].int(&["EXISTS", "a"]), 1);
            fails(attach(&clients[1], 0), ErrorKind::NoQuorum);
            wait_until(SOON, "nothing left", || several.count("a") == 0);
            assert!(holder.lock_of(kind, "a").try_acquire().unwrap().is_some());
        }
    });
}

#[test]
fn replies_of_a_majority_that_are_lost_are_one_hold() {
    on_both(|face| {
        for kind in KINDS {
            let several = Several::start(Flavor::Valkey91, 3);
            let holder = Client::connect(face, unhurried(), &several.url(FRESH)).unwrap();
            let client = Client::connect(face, unhurried(), &several.proxied(FRESH)).unwrap();
            connect_to_all(&client, &several);
            let lease = on_all(&holder, &several, kind);
            let proof = lease.detach().unwrap();
            let rules: Vec<_> = several.proxies[..2]
                .iter()
                .map(|proxy| proxy.on(scripts::attach()).once().cut_instead_of_reply(Cut::Reset))
                .collect();
            let attached = client.lock_of(kind, "a").attach(&proof).unwrap();
            assert!(rules.iter().all(|rule| rule.hits() == 1));
            assert_eq!(attached.fence(), lease.fence());
            fails(holder.lock_of(kind, "a").attach(&proof), ErrorKind::Lost);
            attached.extend(ms(60_000)).unwrap();
            assert_eq!(attached.released(), Release::Released);
            wait_until(SOON, "nothing left", || several.count("a") == 0);
        }
    });
}

#[test]
fn the_token_is_never_lower_than_that_of_the_former_holder() {
    on_both(|face| {
        for kind in KINDS {
            let several = Several::start(Flavor::Valkey91, 3);
            let client = Client::connect(face, unhurried(), &several.url(FRESH)).unwrap();
            let lease = client.lock_of(kind, "a").renew_every(ms(150)).acquire().unwrap();
            let fence = lease.fence();
            // two servers lose the hold, one after the other, and are given it again with counters of their own
            for lost in [0, 1] {
                wait_until(SOON, "all servers", || several.count("a") == 3);
                several.servers[lost].cmd(&["DEL", "a"]);
                wait_until(SOON, "the hold to be there again", || several.count("a") == 3);
            }
            assert!(lease.is_held());
            lease.extend(ms(60_000)).unwrap();
            let proof = lease.detach().unwrap();
            let attached = client.lock_of(kind, "a").attach(&proof).unwrap();
            assert!(attached.fence() >= fence, "{} after {fence}", attached.fence());
            assert_eq!(attached.released(), Release::Released);
            let next = client.lock_of(kind, "a").acquire_within(SOON).unwrap();
            assert!(next.fence() > attached.fence(), "{} after {}", next.fence(), attached.fence());
        }
    });
}
