//! Three members: one is killed, cut off, restarted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onelock::{ErrorKind, LossReason, Release};
use onelock_tests::etcd::EtcdMembers;
use onelock_tests::face::{Client, Face};
use onelock_tests::stage::{SOON, fails, ms, quick};
use onelock_tests::wait::wait_until;

use crate::place::is_free;

fn client(cluster: &EtcdMembers, face: Face, members: &[usize]) -> Client {
    Client::build(face, quick(), &cluster.url(members)).unwrap()
}

/// Waits until the client has renewed what it holds.
fn renewed(client: &Client) {
    let renewals = client.stats().renewals;
    wait_until(ms(60_000), "renewals", || client.stats().renewals > renewals + 1);
}

#[test]
fn f61_the_leader_is_killed_and_all_members_are_restarted() {
    let cluster = EtcdMembers::start();
    let leader = cluster.leader();
    let all = EtcdMembers::all_from(leader);
    let (holder, rival) = (client(&cluster, Face::Async, &all), client(&cluster, Face::Blocking, &all));
    let lease = holder.lock("a").ttl(ms(60_000)).renew_every(ms(500)).acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| rival.lock("a").ttl(ms(60_000)).acquire_within(ms(600_000)).unwrap());
        wait_until(SOON, "its place", || cluster.members[all[1]].keys("a/").len() == 2);
        cluster.members[leader].kill();
        let next = cluster.leader_but(&[leader]);
        renewed(&holder);
        assert!(lease.is_held() && !waiter.is_finished());
        assert!(holder.lock("a").try_acquire().unwrap().is_none());
        wait_until(SOON, "another lock", || rival.lock("b").try_acquire().is_ok_and(|lease| lease.is_some()));
        cluster.restart(leader);
        for member in [next, leader, 3 - next - leader] {
            cluster.restart(member);
            cluster.leader();
        }
        renewed(&holder);
        assert!(lease.is_held() && !waiter.is_finished());
        let fence = lease.fence();
        assert_eq!(lease.released(), Release::Released);
        let second = waiter.join().unwrap();
        assert!(second.fence() > fence);
        assert_eq!(second.released(), Release::Released);
    });
    holder.close();
    rival.close();
}

/// Who holds a lock through a member that is cut off loses it before the others are let in.
fn is_lost_before_others_have_it(leads: bool, face: Face) {
    let cluster = EtcdMembers::start();
    let leader = cluster.leader();
    let lonely = if leads { leader } else { (leader + 1) % 3 };
    let others = &EtcdMembers::all_from(lonely)[1..];
    let (alone, movable) = (client(&cluster, face, &[lonely]), client(&cluster, face, &EtcdMembers::all_from(lonely)));
    let rival = client(&cluster, face, others);
    let lease = alone.lock("a").ttl(ms(5000)).renew_every(ms(300)).acquire().unwrap();
    let kept = movable.lock("kept").ttl(ms(60_000)).renew_every(ms(500)).acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let next = rival.lock("a").ttl(ms(60_000)).acquire_within(ms(600_000)).unwrap();
            // at this moment at the latest
            (lease.is_held(), next)
        });
        wait_until(SOON, "its place", || cluster.members[others[0]].keys("a/").len() == 2);
        renewed(&alone);
        assert!(lease.is_held());
        cluster.cut_off(lonely);
        assert_eq!(lease.wait_lost(ms(60_000)), Some(LossReason::Expired));
        let (was_held, next) = waiter.join().unwrap();
        assert!(!was_held && next.fence() > lease.fence());
        fails(alone.lock("b").try_acquire(), ErrorKind::Unavailable);
        assert!(is_free(&rival, "b"));
        // who knows of the others goes on with one of them
        renewed(&movable);
        assert!(kept.is_held());
        cluster.heal();
        wait_until(ms(60_000), "the member", || alone.lock("b").try_acquire().is_ok_and(|lease| lease.is_some()));
        assert!(alone.lock("a").try_acquire().unwrap().is_none() && next.is_held());
        assert_eq!((next.released(), kept.released()), (Release::Released, Release::Released));
        assert!(is_free(&alone, "a") && is_free(&alone, "kept"));
    });
    assert_eq!(lease.released(), Release::AlreadyExpired);
    for client in [alone, movable, rival] {
        client.close();
    }
}

#[test]
fn f61_a_leader_is_cut_off_from_its_followers() {
    is_lost_before_others_have_it(true, Face::Async);
}

#[test]
fn f61_a_follower_is_cut_off() {
    is_lost_before_others_have_it(false, Face::Blocking);
}

#[test]
fn f61_leaders_come_and_go_while_many_want_it() {
    const TURNS: u64 = 30;
    let cluster = EtcdMembers::start();
    let (busy, last, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|at| {
                let client =
                    client(&cluster, if at == 0 { Face::Blocking } else { Face::Async }, &EtcdMembers::all_from(at));
                let (busy, last, done) = (&busy, &last, &done);
                scope.spawn(move || {
                    let lock = client.lock("a").ttl(ms(60_000));
                    while done.load(Ordering::SeqCst) < 3 * TURNS {
                        let lease = lock.acquire_within(ms(600_000)).unwrap();
                        assert!(!busy.swap(true, Ordering::SeqCst), "two holders");
                        assert!(last.swap(lease.fence(), Ordering::SeqCst) < lease.fence());
                        std::thread::sleep(ms(5));
                        assert!(lease.is_held(), "{:?}", lease.loss());
                        busy.store(false, Ordering::SeqCst);
                        assert!(matches!(lease.released(), Release::Released | Release::Unconfirmed));
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    client.close();
                })
            })
            .collect();
        let turns = |count: u64| {
            let has = || {
                done.load(Ordering::SeqCst) >= count || workers.iter().any(std::thread::ScopedJoinHandle::is_finished)
            };
            wait_until(ms(120_000), "turns", has);
        };
        turns(TURNS);
        let leader = cluster.leader();
        cluster.members[leader].kill();
        cluster.leader_but(&[leader]);
        turns(2 * TURNS);
        cluster.restart(leader);
        let leader = cluster.leader();
        cluster.cut_off(leader);
        cluster.leader_but(&[leader]);
        cluster.heal();
        turns(3 * TURNS);
    });
}
