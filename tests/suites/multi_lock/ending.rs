//! How they end: one loss is the loss of the whole.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use onelock::{ErrorKind, LossReason, Owner, Release};
use onelock_tests::face::{MultiLock, block_on, on_both};
use onelock_tests::stage::{SOON, Stage, fails, ms};
use onelock_tests::wait::wait_until;

#[test]
fn the_first_loss_loses_all_and_is_told_once() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let (sender, told) = channel();
        let described = sender.clone();
        let several = MultiLock::of(["a", "b", "c"].map(|name| client.lock(name).ttl(ms(3000)).renew_every(ms(150))));
        let several = several.on_lost(move |reason| described.send(("described", reason)).unwrap());
        let lease = several.acquire().unwrap();
        lease.on_lost(move |reason| sender.send(("lease", reason)).unwrap());
        stage.server.cmd(&["DEL", "b"]);
        assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
        assert!(!lease.is_held() && lease.remaining().is_zero());
        assert_eq!(lease.loss(), Some(LossReason::Taken));
        fails(lease.extend(ms(1000)), ErrorKind::Lost);
        let mut heard = [told.recv_timeout(SOON).unwrap(), told.recv_timeout(SOON).unwrap()];
        heard.sort_unstable_by_key(|(whose, _)| *whose);
        assert_eq!(heard, [("described", LossReason::Taken), ("lease", LossReason::Taken)]);
        // the others are not renewed any more: they end with their ttl
        assert_eq!(client.stats().held, 0);
        wait_until(SOON, "the others to end", || !stage.exists("a") && !stage.exists("c"));
        assert_eq!(lease.released(), Release::AlreadyExpired);
        assert!(told.recv_timeout(ms(50)).is_err(), "once each");
        assert_eq!(client.stats().lost, 1);
        // late listeners are told at once
        let (sender, told) = channel();
        lease.on_lost(move |reason| sender.send(reason).unwrap());
        assert_eq!(told.recv_timeout(SOON), Ok(LossReason::Taken));
    });
}

#[test]
fn after_a_loss_a_release_frees_the_others_at_once() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = client.multi_lock(["a", "b"]).acquire().unwrap();
        stage.server.cmd(&["DEL", "b"]);
        fails(lease.extend(Duration::from_secs(40)), ErrorKind::Lost);
        assert_eq!(lease.loss(), Some(LossReason::Taken));
        assert!(stage.exists("a"), "the holder may still be at work");
        assert_eq!(lease.released(), Release::AlreadyExpired);
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn a_release_that_finds_one_gone_is_a_loss() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = client.multi_lock(["a", "b"]).acquire().unwrap();
        let (sender, told) = channel();
        lease.on_lost(move |reason| sender.send(reason).unwrap());
        stage.server.cmd(&["DEL", "a"]);
        assert_eq!(lease.released(), Release::AlreadyExpired);
        assert_eq!(told.recv_timeout(SOON), Ok(LossReason::Taken));
        assert_eq!(lease.loss(), Some(LossReason::Taken));
        stage.wait_clean(&client, "b", SOON);
    });
}

#[test]
fn an_outer_hold_of_the_same_owner_outlives_the_whole() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let audit = client.reentrant_lock("audit").owner(&Owner::new());
        let outer = audit.acquire().unwrap();
        let several = MultiLock::of([client.lock("a"), audit.clone()]);
        let lease = several.acquire().unwrap();
        assert_eq!(outer.hold_count(), 2);
        assert_eq!(lease.released(), Release::Released);
        assert_eq!(outer.hold_count(), 1);
        let lease = several.acquire().unwrap();
        stage.server.cmd(&["DEL", "a"]);
        fails(lease.extend(Duration::from_secs(40)), ErrorKind::Lost);
        assert!(!lease.is_held() && outer.is_held(), "only the whole is lost");
        lease.released();
        assert!(outer.is_held());
        outer.extend(Duration::from_secs(40)).unwrap();
        assert_eq!(outer.released(), Release::Released);
        assert!(!stage.exists("audit"));
    });
}

#[test]
fn what_becomes_of_an_outer_hold_after_the_release_is_not_told() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let audit = client.reentrant_lock("audit").ttl(ms(600)).owner(&Owner::new());
        let outer = audit.acquire().unwrap();
        let (sender, told) = channel();
        let several = MultiLock::of([client.lock("a"), audit.clone()]);
        let whole = |whose: &'static str| {
            let (lease, sender) = (several.acquire().unwrap(), sender.clone());
            lease.on_lost(move |_| sender.send(whose).unwrap());
            lease
        };
        let released = whole("released");
        assert_eq!(released.released(), Release::Released);
        drop(whole("dropped"));
        wait_until(SOON, "the dropped one to be gone", || outer.hold_count() == 1);
        let held = whole("held");
        stage.server.cmd(&["DEL", "audit"]);
        assert_eq!(outer.wait_lost(SOON), Some(LossReason::Taken));
        assert_eq!(held.wait_lost(SOON), Some(LossReason::Taken));
        assert_eq!(told.recv_timeout(SOON), Ok("held"));
        assert_eq!(released.loss(), None);
        drop((released, held, several, sender));
        let nobody = Err(RecvTimeoutError::Disconnected);
        assert_eq!(told.recv_timeout(SOON), nobody, "nobody else is told, and nothing is kept for it");
    });
}

#[test]
fn a_client_that_closes_takes_the_whole_with_it() {
    on_both(|face| {
        let (here, there) = (Stage::valkey(), Stage::valkey());
        let (client, other) = (here.client(face), there.client(face));
        let lease = MultiLock::of([client.lock("a"), other.lock("b")]).acquire().unwrap();
        client.close();
        assert_eq!(lease.wait_lost(SOON), Some(LossReason::Closed));
        assert!(!lease.is_held() && !here.exists("a"));
        assert_eq!(other.stats().held, 0, "the other client does not renew its member any more");
        assert_eq!(lease.released(), Release::AlreadyExpired);
        there.wait_clean(&other, "b", SOON);

        // and a waiting one ends with the error
        let theirs = there.rival(face).lock("z").acquire().unwrap();
        std::thread::scope(|scope| {
            let several = other.multi_lock(["a", "z"]);
            let waiter = scope.spawn(move || several.acquire().map(drop).unwrap_err());
            wait_until(SOON, "it waits", || other.stats().waiting == 1 && there.exists("a"));
            other.close();
            assert_eq!(waiter.join().unwrap().kind(), ErrorKind::Closed);
        });
        assert!(!there.exists("a"));
        theirs.released();
    });
}

#[test]
fn a_detached_one_is_taken_over_member_by_member() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = client.multi_lock(["b", "a"]).acquire().unwrap();
        let proofs = lease.detach().unwrap();
        assert!(!lease.is_held() && lease.loss().is_none());
        assert_eq!(lease.released(), Release::AlreadyReleased);
        let rival = stage.rival(face);
        let proofs: Vec<&str> = proofs.lines().collect();
        let leases: Vec<_> =
            ["b", "a"].iter().zip(&proofs).map(|(name, proof)| rival.lock(name).attach(proof).unwrap()).collect();
        assert_eq!((proofs.len(), leases.len()), (2, 2));
        for lease in leases {
            assert_eq!(lease.released(), Release::Released);
        }
        let audit = client.reentrant_lock("audit").owner(&Owner::new());
        let outer = audit.acquire().unwrap();
        let lease = MultiLock::of([client.lock("a"), audit]).acquire().unwrap();
        fails(lease.detach(), ErrorKind::InvalidArgument);
        assert!(lease.is_held() && outer.is_held(), "nothing was detached");
    });
}

#[test]
fn the_time_left_is_that_of_the_member_that_ends_first() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let short = client.lock("b").ttl(ms(700)).auto_renew(false);
        let lease = MultiLock::of([client.lock("a"), short]).acquire().unwrap();
        assert!(lease.remaining() <= ms(700));
        assert_eq!(lease.wait_lost(SOON), Some(LossReason::Expired));
        let start = Instant::now();
        lease.released();
        assert!(start.elapsed() < SOON);
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn a_body_ends_with_the_first_loss() {
    let stage = Stage::valkey();
    let client = onelock::Client::new(&stage.server.url()).unwrap();
    let several = onelock::MultiLock::new(["a", "b"].map(|name| client.lock(name).renew_every(ms(150))));
    let result: Result<(), onelock::Error> = block_on(several.with(|_| async {
        stage.server.cmd(&["DEL", "b"]);
        std::future::pending().await
    }));
    fails(result, ErrorKind::Lost);
    let blocking = onelock::blocking::Client::new(&stage.server.url()).unwrap();
    let result = blocking.multi_lock(["c", "d"]).with(|lease| {
        stage.server.cmd(&["DEL", "d"]);
        assert!(lease.is_held());
        Ok::<_, onelock::Error>(())
    });
    fails(result, ErrorKind::Lost);
    assert_eq!(blocking.multi_lock(["c", "d"]).try_with(|_| Ok::<_, onelock::Error>(7)).unwrap(), Some(7));
}
