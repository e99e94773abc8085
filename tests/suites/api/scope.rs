//! The forms that run a body. (That the body's error comes through is r07, that a lost lock is left at once r08.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onelock::{Error, ErrorKind};
use onelock_tests::face::{self, block_on};
use onelock_tests::stage::{SOON, Stage, fails, ms, quick};
use onelock_tests::wait::wait_until;

/// Tells when it is dropped.
struct Canary(Arc<AtomicBool>);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_value_of_the_body_comes_back_and_the_lock_is_released() {
    let stage = Stage::valkey();
    let blocking = quick().build_blocking(&stage.proxy.url()).unwrap();
    let value = blocking.lock("a").with(|lease| {
        assert!(lease.is_held() && stage.exists("a"));
        Ok::<_, Error>(7)
    });
    assert_eq!((value.unwrap(), stage.exists("a")), (7, false));
    let client = quick().build(&stage.proxy.url()).unwrap();
    let value = block_on(client.lock("a").with(|lease| async move {
        assert!(lease.is_held());
        tokio::task::yield_now().await;
        Ok::<_, Error>(8)
    }));
    assert_eq!((value.unwrap(), stage.exists("a")), (8, false));
}

#[test]
fn a_loss_cancels_the_body() {
    let stage = Stage::valkey();
    let client = quick().build(&stage.proxy.url()).unwrap();
    let dropped = Arc::new(AtomicBool::new(false));
    let canary = Canary(dropped.clone());
    let (started, finished) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (start, finish) = (started.clone(), finished.clone());
    let result = block_on(async {
        let lock = client.lock("a").ttl(ms(20_000)).renew_every(ms(50));
        let run = tokio::spawn(async move {
            let body = |_| async move {
                let _canary = canary;
                start.store(true, Ordering::Relaxed);
                tokio::time::sleep(SOON * 10).await;
                finish.store(true, Ordering::Relaxed);
                Ok::<_, Error>(())
            };
            lock.with(body).await
        });
        tokio::task::block_in_place(|| {
            wait_until(SOON, "the body to begin", || started.load(Ordering::Relaxed));
            stage.server.cmd(&["DEL", "a"]);
        });
        run.await.unwrap()
    });
    let error = fails(result, ErrorKind::Lost);
    assert_eq!(error.lock_name(), Some("a"));
    assert!(dropped.load(Ordering::Relaxed) && !finished.load(Ordering::Relaxed));
}

#[test]
fn a_body_that_ended_well_in_a_lost_lock_is_lost() {
    let stage = Stage::valkey();
    let blocking = quick().build_blocking(&stage.proxy.url()).unwrap();
    let result = blocking.lock("a").ttl(ms(20_000)).renew_every(ms(30)).with(|lease| {
        stage.server.cmd(&["DEL", "a"]);
        wait_until(SOON, "the loss", || !lease.is_held());
        Ok::<_, Error>(7)
    });
    fails(result, ErrorKind::Lost);
    // a fixed lease that ran out, noticed by nobody but the clock
    let result = blocking.lock("a").ttl(ms(60)).auto_renew(false).with(|lease| {
        let until = std::time::Instant::now() + ms(80);
        wait_until(SOON, "more than the ttl", || std::time::Instant::now() > until);
        let _ = lease;
        Ok::<_, Error>(7)
    });
    fails(result, ErrorKind::Lost);
    let client = quick().build(&stage.proxy.url()).unwrap();
    let result = block_on(client.lock("a").ttl(ms(60)).auto_renew(false).with(|_| async {
        std::thread::sleep(ms(80));
        Ok::<_, Error>(7)
    }));
    fails(result, ErrorKind::Lost);
}

#[test]
fn a_body_may_give_the_lock_back_itself() {
    let stage = Stage::valkey();
    let blocking = quick().build_blocking(&stage.proxy.url()).unwrap();
    let value = blocking.lock("a").with(|lease| {
        lease.release()?;
        assert!(!stage.exists("a"));
        Ok::<_, Error>(7)
    });
    assert_eq!(value.unwrap(), 7);
    let client = quick().build(&stage.proxy.url()).unwrap();
    let value = block_on(client.lock("a").with(|lease| async move {
        lease.release().await?;
        Ok::<_, Error>(7)
    }));
    assert_eq!(value.unwrap(), 7);
}

#[test]
fn a_body_that_panics_or_is_dropped_leaves_nothing_held() {
    let stage = Stage::valkey();
    let blocking = quick().build_blocking(&stage.proxy.url()).unwrap();
    let lock = blocking.lock("a");
    let panicked =
        std::thread::spawn(move || lock.with(|_| -> Result<(), Error> { panic!("a mistake of the user's") }));
    assert!(panicked.join().is_err());
    wait_until(SOON, "it to be released", || !stage.exists("a"));

    let client = quick().build(&stage.proxy.url()).unwrap();
    block_on(async {
        for panics in [true, false] {
            let lock = client.lock("b");
            let inside = Arc::new(AtomicBool::new(false));
            let entered = inside.clone();
            let run = tokio::spawn(async move {
                let body = |_| async move {
                    entered.store(true, Ordering::Relaxed);
                    assert!(!panics, "a mistake of the user's");
                    std::future::pending::<Result<(), Error>>().await
                };
                lock.with(body).await
            });
            tokio::task::block_in_place(|| wait_until(SOON, "the body", || inside.load(Ordering::Relaxed)));
            run.abort();
            assert!(run.await.is_err());
        }
    });
    stage.wait_clean(&face::Client::Async(client), "b", SOON);
}

#[test]
fn a_body_may_wait_for_a_while_or_not_at_all() {
    let stage = Stage::valkey();
    let blocking = quick().build_blocking(&stage.proxy.url()).unwrap();
    let client = quick().build(&stage.proxy.url()).unwrap();
    let lock = blocking.lock("a");
    assert_eq!(lock.with_within(SOON, |_| Ok::<_, Error>(1)).unwrap(), 1);
    assert_eq!(lock.try_with(|lease| Ok::<_, Error>(lease.is_held())).unwrap(), Some(true));
    let held = blocking.lock("a").acquire().unwrap();
    let never = |_: &onelock::blocking::Lease| -> Result<(), Error> { panic!("it is held by somebody else") };
    fails(lock.with_within(ms(20), never), ErrorKind::Timeout);
    assert_eq!(lock.try_with(never).unwrap(), None);
    block_on(async {
        let lock = client.lock("a");
        let never = |_| async { panic!("it is held by somebody else") };
        fails(lock.with_within(ms(20), never).await as Result<(), Error>, ErrorKind::Timeout);
        assert_eq!((lock.try_with(never).await as Result<Option<()>, Error>).unwrap(), None);
        held.release().unwrap();
        assert_eq!(lock.with_within(SOON, |_| async { Ok::<_, Error>(2) }).await.unwrap(), 2);
        assert_eq!(lock.try_with(|_| async { Ok::<_, Error>(3) }).await.unwrap(), Some(3));
    });
    wait_until(SOON, "it to be released", || !stage.exists("a"));
}
