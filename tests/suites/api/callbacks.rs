//! Being told of a loss or of jeopardy.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use onelock::{LossReason, Release};
use onelock_tests::face::on_both;
use onelock_tests::proxy::Cut;
use onelock_tests::scripts;
use onelock_tests::stage::{SOON, Stage, ms};
use onelock_tests::wait::wait_until;

#[test]
fn a_loss_is_told_once_to_everyone_in_order_on_a_thread_of_its_own() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let (tell, told) = channel();
        let said = |what: &'static str| {
            let tell = tell.clone();
            move |reason: LossReason| {
                let thread = std::thread::current().name().unwrap_or_default().to_owned();
                tell.send((what, reason, thread)).unwrap();
            }
        };
        let lock = client.lock("a").ttl(ms(10_000)).renew_every(ms(50)).on_lost(said("lock"));
        let lease = lock.acquire().unwrap();
        lease.on_lost(said("first"));
        lease.on_lost(said("second"));
        stage.server.cmd(&["DEL", "a"]);
        for what in ["lock", "first", "second"] {
            let (who, reason, thread) = told.recv_timeout(SOON).unwrap();
            assert_eq!((who, reason, thread.as_str()), (what, LossReason::Taken, "onelock-callback"));
        }
        // whoever asks later is told at once
        lease.on_lost(said("late"));
        assert_eq!(told.recv_timeout(SOON).unwrap().0, "late");
        assert_eq!(lease.released(), Release::AlreadyExpired);
        // the lock's callback stays for the next lease, and a release is no loss
        let next = lock.acquire().unwrap();
        assert_eq!(next.released(), Release::Released);
        let next = lock.acquire().unwrap();
        next.on_lost(said("dropped"));
        drop(next);
        wait_until(SOON, "the dropped one to be released", || !stage.exists("a"));
        assert!(told.try_recv().is_err());
    });
}

#[test]
fn jeopardy_is_told_while_the_lease_is_valid() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let (tell, told) = channel();
        let lock = client.lock("a").ttl(ms(6000)).renew_every(ms(50)).on_lost(|reason| panic!("{reason:?}"));
        let lease = lock.acquire().unwrap();
        lease.on_jeopardy(move || tell.send(()).unwrap());
        for _ in 0..2 {
            // three tries in vain are one round that was missed
            stage.proxy.on(scripts::renew()).times(3).cut_before(Cut::Reset).wait_hits(3);
            told.recv_timeout(SOON).unwrap();
            assert!(lease.is_held());
            let renewals = client.stats().renewals;
            wait_until(SOON, "it to be renewed again", || client.stats().renewals > renewals);
        }
        assert!(told.try_recv().is_err(), "once for each");
        assert!(client.stats().renewals_missed >= 6);
        assert_eq!(lease.released(), Release::Released);
    });
}

#[test]
fn a_callback_that_panics_or_takes_its_time_harms_nobody() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let bad = client.lock("bad").ttl(ms(10_000)).renew_every(ms(20)).acquire().unwrap();
        let good = client.lock("good").ttl(ms(10_000)).renew_every(ms(20)).acquire().unwrap();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let (tell, told) = channel();
        bad.on_lost(|_| panic!("a mistake of the user's"));
        let waits = gate.clone();
        bad.on_lost(move |_| {
            let _open = waits.lock().unwrap();
            tell.send(()).unwrap();
        });
        stage.server.cmd(&["DEL", "bad"]);
        wait_until(SOON, "the loss", || !bad.is_held());
        // while it hangs, renewal, losses and releases go on
        let renewals = client.stats().renewals;
        wait_until(SOON, "renewals", || client.stats().renewals > renewals + 5);
        let another = client.lock("another").acquire().unwrap();
        assert_eq!(another.released(), Release::Released);
        assert!(good.is_held() && told.try_recv().is_err());
        drop(closed);
        told.recv_timeout(SOON).expect("the callback behind the one that panicked");
        let (tell, told) = channel();
        good.on_lost(move |reason| tell.send(reason).unwrap());
        stage.server.cmd(&["DEL", "good"]);
        assert_eq!(told.recv_timeout(SOON), Ok(LossReason::Taken));
    });
}

#[test]
fn a_callback_may_use_the_library() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lock = client.lock("a").ttl(ms(10_000)).renew_every(ms(20));
        let lease = lock.acquire().unwrap();
        let (tell, told) = channel();
        let (inside, handle) = (client.clone(), lease.clone());
        lease.on_lost(move |_| {
            let released = handle.released();
            let next = inside.lock("b").acquire_within(SOON).unwrap();
            tell.send((released, next.is_held(), next.released())).unwrap();
        });
        stage.server.cmd(&["DEL", "a"]);
        assert_eq!(told.recv_timeout(SOON), Ok((Release::AlreadyExpired, true, Release::Released)));
    });
}

#[test]
fn waiting_for_a_loss_ends_with_it_or_with_the_limit() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = client.lock("a").ttl(ms(10_000)).renew_every(ms(20)).acquire().unwrap();
        assert_eq!(lease.wait_lost(ms(50)), None);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lease.wait_lost(SOON));
            stage.server.cmd(&["DEL", "a"]);
            assert_eq!(waiting.join().unwrap(), Some(LossReason::Taken));
        });
        let start = Instant::now();
        assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken), "also later");
        assert!(start.elapsed() < SOON / 2);
        // a released lease is never lost
        let lease = client.lock("b").acquire().unwrap();
        lease.released();
        assert_eq!((lease.wait_lost(ms(50)), lease.loss()), (None, None));
    });
}
