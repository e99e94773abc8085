//! What was written is gone: evicted, flushed, deleted, lost in a crash. The holder learns of it by its next renewal, and
//! the next fencing token is higher.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use onelock::{Grade, Kind, LossReason, Release};
use onelock_tests::face::{Face, Lease, everywhere, on_both};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, Stage, ms, unhurried};
use onelock_tests::wait::wait_until;

const KINDS: [Kind; 2] = [Kind::Mutex, Kind::Reentrant];
const PERIOD: Duration = ms(200);

/// Holds a lock, destroys what the server knows, and expects the loss within about one renewal period, told once.
fn expect_loss(stage: &Stage, face: Face, kind: Kind, destroy: impl FnOnce()) {
    let client = stage.client(face);
    let (told, heard) = channel();
    let lock = client.lock_of(kind, "a").ttl(ms(20_000)).renew_every(PERIOD);
    let lock = lock.on_lost(move |reason| told.send(reason).unwrap());
    let lease = lock.acquire().unwrap();
    destroy();
    let since = Instant::now();
    assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
    assert!(since.elapsed() < ms(10_000), "by a renewal, and not by its end: {:?}", since.elapsed());
    assert!(!lease.is_held() && lease.remaining().is_zero());
    assert_eq!(heard.recv_timeout(SOON), Ok(LossReason::Taken));
    assert_eq!(lease.released(), Release::AlreadyExpired);
    assert!(heard.recv_timeout(ms(50)).is_err(), "told once");
    let next = next_lease(&client.lock_of(kind, "a"), &lease);
    assert_eq!(next.released(), Release::Released);
    stage.wait_clean(&client, "a", SOON);
    assert_eq!(client.stats().lost, 1);
}

/// The next holder, whose token is higher and whom the old handle does not touch.
fn next_lease(lock: &onelock_tests::face::Lock, old: &Lease) -> Lease {
    let next = lock.acquire_within(SOON).unwrap();
    assert!(next.fence() > old.fence(), "{} after {}", next.fence(), old.fence());
    assert_eq!(old.released(), Release::AlreadyReleased);
    assert!(next.is_held());
    next
}

#[test]
fn f36_eviction_is_warned_of_at_connect_and_found_by_the_next_renewal() {
    everywhere(|flavor, face| {
        for policy in ["allkeys-random", "volatile-ttl"] {
            let stage = Stage::with(Server::builder(flavor).config("maxmemory-policy", policy).start());
            let facts = stage.client_with(face, unhurried()).check().unwrap();
            assert_eq!(facts.grade, Grade::BestEffort);
            let warned = facts.warnings.iter().any(|it| it.contains("maxmemory-policy") && it.contains(policy));
            assert!(warned, "{:?}", facts.warnings);
            expect_loss(&stage, face, Kind::Mutex, || {
                stage.server.config_set("maxmemory", "1");
                wait_until(SOON, "the lock to be evicted", || {
                    let _ = stage.server.try_cmd(&["SET", "filler", "x", "PX", "900000"]);
                    !stage.exists("a")
                });
                stage.server.config_set("maxmemory", "0");
            });
        }
    });
}

#[test]
fn f37_flushall_and_del_are_found_by_the_next_renewal() {
    everywhere(|flavor, face| {
        for kind in KINDS {
            for command in [&["FLUSHALL"][..], &["DEL", "a"], &["PEXPIRE", "a", "1"], &["RENAME", "a", "b"]] {
                let stage = Stage::new(flavor);
                expect_loss(&stage, face, kind, || drop(stage.server.cmd(command)));
            }
        }
    });
}

#[test]
fn f37_a_lock_that_another_took_meanwhile_is_lost_and_left_alone() {
    on_both(|face| {
        for kind in KINDS {
            let stage = Stage::valkey();
            let rival = stage.rival(face).lock_of(kind, "a");
            let theirs = std::sync::Mutex::new(None);
            let client = stage.client(face);
            let lease = client.lock_of(kind, "a").ttl(ms(20_000)).renew_every(PERIOD).acquire().unwrap();
            stage.server.cmd(&["DEL", "a"]);
            *theirs.lock().unwrap() = Some(rival.try_acquire().unwrap().unwrap());
            assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
            assert_eq!(lease.released(), Release::AlreadyExpired);
            wait_until(SOON, "clean-up", || client.stats().cleaning == 0);
            let theirs = theirs.into_inner().unwrap().unwrap();
            assert!(theirs.fence() > lease.fence() && theirs.is_held() && stage.exists("a"));
            assert_eq!(theirs.released(), Release::Released);
        }
    });
}

#[test]
fn f38_killed_without_persistence_the_lock_is_lost_and_tokens_still_grow() {
    everywhere(|flavor, face| {
        for kind in KINDS {
            let stage = Stage::new(flavor);
            let facts = stage.client_with(face, unhurried()).check().unwrap();
            assert!(facts.warnings.iter().any(|it| it.contains("appendonly")), "{:?}", facts.warnings);
            expect_loss(&stage, face, kind, || stage.server.restart());
        }
    });
}

#[test]
fn f39_killed_with_aof_always_nothing_is_lost() {
    everywhere(|flavor, face| {
        let server = Server::builder(flavor).aof("always").start();
        let stage = Stage::with(server);
        let client = stage.client_with(face, unhurried());
        assert_eq!(client.check().unwrap().grade, Grade::Strict);
        let leases = KINDS.map(|kind| {
            let lock = client.lock_of(kind, format!("{kind:?}")).ttl(ms(20_000)).renew_every(PERIOD);
            lock.on_lost(|reason| panic!("{reason:?}")).acquire().unwrap()
        });
        stage.server.restart();
        let renewals = client.stats().renewals;
        wait_until(SOON, "renewals after the restart", || client.stats().renewals >= renewals + 4);
        for lease in &leases {
            assert!(lease.is_held());
            // a thread's own connection may have died with the old process
            assert!(matches!(lease.released(), Release::Released | Release::Unconfirmed));
        }
        wait_until(SOON, "both to be released", || !stage.exists("Mutex") && !stage.exists("Reentrant"));
        let again = client.lock("Mutex").acquire().unwrap();
        assert!(again.fence() > leases[0].fence());
        assert_eq!(client.stats().lost, 0);
    });
}

#[test]
fn f38_what_a_waiter_waits_for_may_vanish_in_a_crash() {
    on_both(|face| {
        let stage = Stage::new(Flavor::Valkey91);
        let client = Arc::new(stage.client(face));
        let holder = stage.rival(face);
        let lease = holder.lock("a").acquire().unwrap();
        let waiter = {
            let client = client.clone();
            std::thread::spawn(move || client.lock("a").acquire_within(ms(20_000)).unwrap())
        };
        wait_until(SOON, "the waiter", || client.stats().waiting == 1);
        stage.server.restart();
        let next = waiter.join().unwrap();
        assert!(next.is_held() && next.fence() > lease.fence());
    });
}
