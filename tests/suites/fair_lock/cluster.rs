//! A fair lock in a cluster: handed over on the channels that the nodes have, and released while its slot moves.

use std::time::{Duration, Instant};

use onelock::{Kind, Release};
use onelock_tests::face::{Client, Face, side_by_side};
use onelock_tests::servers::Flavor;
use onelock_tests::stage::{SOON, ms, unhurried};
use onelock_tests::topology::Cluster;
use onelock_tests::wait::wait_until;

use super::{left, queue};

fn client(face: Face, cluster: &Cluster) -> Client {
    Client::build(face, unhurried(), &cluster.url()).unwrap()
}

/// So many turns of two clients, one after the other.
fn turns(cluster: &Cluster, face: Face, name: &str, count: usize) -> Duration {
    let clients = [client(face, cluster), client(face, cluster)];
    for client in &clients {
        client.lock_of(Kind::Fair, name).acquire().unwrap().released();
    }
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                for _ in 0..count {
                    let lease = client.lock_of(Kind::Fair, name).acquire_within(SOON).unwrap();
                    std::thread::sleep(ms(3));
                    assert!(lease.is_held());
                    lease.released();
                }
            });
        }
    });
    begun.elapsed()
}

#[test]
fn a_lock_is_handed_over_by_a_message() {
    side_by_side(&Flavor::ALL.map(|flavor| (format!("{flavor:?}"), flavor)), |flavor| {
        let cluster = Cluster::start(*flavor);
        let name = cluster.name_on(0, "x");
        // 40 turns without messages take 3 s and more; on a busy machine they are tried again
        let quick = (0..5).any(|attempt| turns(&cluster, Face::ALL[attempt % 2], &name, 20) < ms(1500));
        assert!(quick, "nobody hears of it");
        assert!(left(&cluster.nodes[0], &name).is_empty());
    });
}

#[test]
fn f79_a_hold_is_released_while_its_slot_moves_and_who_waits_gets_it() {
    side_by_side(&Face::ALL.map(|face| (format!("{face:?}"), face)), |face| {
        let cluster = Cluster::start(Flavor::Valkey91);
        let (client, other) = (client(*face, &cluster), client(*face, &cluster));
        for (contended, part) in [(false, false), (true, false), (true, true)] {
            let name = cluster.name_on(0, &format!("{contended} {part}"));
            let slot = cluster.slot(&name);
            let lease = client.lock_of(Kind::Fair, &name).ttl(ms(60_000)).acquire().unwrap();
            std::thread::scope(|scope| {
                let waiter = contended.then(|| {
                    let waiter = scope.spawn(|| other.lock_of(Kind::Fair, &name).acquire_within(ms(60_000)).unwrap());
                    wait_until(SOON, "its place", || queue(&cluster.nodes[0], &name).len() == 1);
                    waiter
                });
                cluster.begin_move(slot, 0, 1);
                if part {
                    let port = cluster.nodes[1].port().to_string();
                    cluster.nodes[0].cmd(&["MIGRATE", "127.0.0.1", &port, &name, "0", "5000"]);
                }
                lease.extend(ms(60_000)).unwrap();
                let fence = lease.fence();
                let lease = client.lock_of(Kind::Fair, &name).attach(&lease.detach().unwrap()).unwrap();
                assert_eq!(lease.fence(), fence);
                let begun = Instant::now();
                assert_eq!(lease.released(), Release::Released, "{name}");
                assert!(begun.elapsed() < SOON / 2, "{:?}", begun.elapsed());
                cluster.move_keys(slot, 0, 1);
                cluster.end_move(slot, 1);
                if let Some(waiter) = waiter {
                    let next = waiter.join().unwrap();
                    assert!(next.is_held() && next.fence() > lease.fence());
                    assert_eq!(next.released(), Release::Released);
                }
                cluster.wait_moved(slot, 0);
                let next = client.lock_of(Kind::Fair, &name).acquire_within(ms(60_000)).unwrap();
                assert_eq!(next.released(), Release::Released);
                assert!(left(&cluster.nodes[1], &name).is_empty());
            });
        }
    });
}
