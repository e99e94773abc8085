//! Detach and attach: handing a hold to another client or process.

use onelock::{ErrorKind, Kind, LossReason, Owner, Release};
use onelock_tests::face::{Face, on_both};
use onelock_tests::scripts;
use onelock_tests::stage::{SOON, Stage, fails, ms};
use onelock_tests::wait::wait_until;

const KINDS: [Kind; 2] = [Kind::Mutex, Kind::Reentrant];

#[test]
fn the_new_holder_goes_on_with_the_same_hold() {
    on_both(|face| {
        for kind in KINDS {
            let stage = Stage::valkey();
            let (old, new) = (stage.client(face), stage.client(face));
            let lease =
                old.lock_of(kind, "a").ttl(ms(30_000)).on_lost(|reason| panic!("{reason:?}")).acquire().unwrap();
            let proof = lease.detach().unwrap();
            assert!(!lease.is_held() && lease.remaining().is_zero() && lease.loss().is_none());
            assert_eq!(old.stats().held, 0);
            fails(lease.extend(ms(1000)), ErrorKind::NotHeld);
            fails(lease.detach(), ErrorKind::NotHeld);
            assert_eq!(lease.released(), Release::AlreadyReleased);
            drop(lease);
            assert!(stage.exists("a"), "nothing was sent");
            assert!(stage.requests(&scripts::release()).is_empty());

            let adopted = new.lock_of(kind, "a").ttl(ms(3000)).renew_every(ms(30)).attach(&proof).unwrap();
            assert!(adopted.is_held() && adopted.remaining() <= ms(3000));
            assert_eq!((adopted.hold_count(), new.stats().held), (1, 1));
            let fence = new.inspect("a").unwrap().unwrap().fencing_token;
            assert_eq!(adopted.fencing_token(), fence);
            stage.proxy.wait_requests(&scripts::renew(), 3);
            adopted.extend(ms(40_000)).unwrap();
            assert_eq!(adopted.released(), Release::Released);
            stage.wait_clean(&new, "a", SOON);
            fails(new.lock_of(kind, "a").attach(&proof), ErrorKind::Lost);
        }
    });
}

#[test]
fn between_the_faces_and_back() {
    let stage = Stage::valkey();
    let (asynchronous, blocking) = (stage.client(Face::Async), stage.client(Face::Blocking));
    for kind in KINDS {
        let lease = asynchronous.lock_of(kind, "a").acquire().unwrap();
        let fence = lease.fence();
        let lease = blocking.lock_of(kind, "a").attach(&lease.detach().unwrap()).unwrap();
        let lease = asynchronous.lock_of(kind, "a").attach(&lease.detach().unwrap()).unwrap();
        assert_eq!(lease.fence(), fence);
        assert_eq!(lease.released(), Release::Released);
    }
}

#[test]
fn a_proof_that_came_too_late_or_is_of_another_lock_is_lost() {
    on_both(|face| {
        for kind in KINDS {
            let stage = Stage::valkey();
            let client = stage.client(face);
            let proof = client.lock_of(kind, "a").acquire().unwrap().detach().unwrap();
            fails(client.lock_of(kind, "b").attach(&proof), ErrorKind::Lost);
            assert!(client.lock_of(kind, "a").try_acquire().unwrap().is_none(), "still held, by nobody here");
            stage.server.cmd(&["DEL", "a"]);
            let theirs = client.lock_of(kind, "a").acquire().unwrap();
            fails(client.lock_of(kind, "a").attach(&proof), ErrorKind::Lost);
            assert!(theirs.is_held());
            let theirs = theirs.detach().unwrap();
            // nobody attaches: it ends with its ttl
            stage.server.cmd(&["PEXPIRE", "a", "30"]);
            wait_until(SOON, "it to end", || !stage.exists("a"));
            fails(client.lock_of(kind, "a").attach(&theirs), ErrorKind::Lost);
        }
    });
}

#[test]
fn what_is_not_held_or_held_twice_cannot_be_handed_over() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let owner = Owner::new();
        let lock = client.reentrant_lock("a").owner(&owner);
        let (outer, inner) = (lock.acquire().unwrap(), lock.acquire().unwrap());
        fails(outer.detach(), ErrorKind::InvalidArgument);
        inner.released();
        let proof = outer.detach().unwrap();
        // the owner of this name holds nothing here any more
        assert!(lock.try_acquire().unwrap().is_none());
        let adopted = lock.attach(&proof).unwrap();
        assert_eq!(lock.acquire().unwrap().hold_count(), 2, "and enters again what it attached");
        fails(lock.attach(&proof), ErrorKind::InvalidArgument);
        assert!(adopted.is_held());

        let lost = client.lock("lost").renew_every(ms(20)).acquire().unwrap();
        stage.server.cmd(&["DEL", "lost"]);
        assert_eq!(lost.wait_lost(SOON), Some(LossReason::Taken));
        fails(lost.detach(), ErrorKind::Lost);
    });
}

#[test]
fn a_proof_that_arrives_twice_attaches_once() {
    on_both(|face| {
        for kind in KINDS {
            let stage = Stage::valkey();
            let (old, one, other) = (stage.client(face), stage.client(face), stage.client(face));
            let lease = old.lock_of(kind, "a").acquire().unwrap();
            let fence = lease.fencing_token();
            let proof = lease.detach().unwrap();
            let attached = one.lock_of(kind, "a").attach(&proof).unwrap();
            assert_ne!(attached.token(), proof, "the hold has another token now");
            assert_eq!(attached.fencing_token(), fence);
            // delivered once more, to whomever
            for client in [&other, &one, &old] {
                fails(client.lock_of(kind, "a").attach(&proof), ErrorKind::Lost);
            }
            assert_eq!(lease.released(), Release::AlreadyReleased, "the former handle has nothing to release");
            attached.extend(ms(20_000)).unwrap();
            assert!(attached.is_held() && stage.exists("a"));
            // the proof of the new hold is its own
            let next = attached.detach().unwrap();
            assert_ne!(next, proof);
            let attached = other.lock_of(kind, "a").attach(&next).unwrap();
            assert_eq!(attached.released(), Release::Released);
            stage.wait_clean(&other, "a", SOON);
        }
    });
}

#[test]
fn of_many_who_get_the_same_proof_at_once_one_attaches() {
    for kind in KINDS {
        let stage = Stage::valkey();
        let clients: Vec<_> =
            (0..8).map(|n| stage.client(if n % 2 == 0 { Face::Async } else { Face::Blocking })).collect();
        for _ in 0..10 {
            let proof = clients[0].lock_of(kind, "a").acquire().unwrap().detach().unwrap();
            let attached: Vec<_> = std::thread::scope(|scope| {
                let attach = |client: &onelock_tests::face::Client| client.lock_of(kind, "a").attach(&proof);
                let calls: Vec<_> = clients.iter().map(|client| scope.spawn(move || attach(client))).collect();
                calls.into_iter().filter_map(|call| call.join().unwrap().ok()).collect()
            });
            assert_eq!(attached.len(), 1);
            assert_eq!(attached[0].released(), Release::Released);
        }
    }
}
