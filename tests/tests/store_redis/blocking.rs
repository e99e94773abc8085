//! The way of callers without a runtime: the pool, dead connections in it, and interruption.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onelock::backend::redis::{RedisOptions, RedisStore};
use onelock::backend::{Interrupt, Store, Uninterrupted};
use onelock::machine::{Kind, Outcome, Reply};
use onelock_tests::servers::{Server, all_flavors};
use onelock_tests::wait::wait_until;

use crate::asker::{Asker, LONG, Way, acquire, claim, now, release};

const TOKEN: &str = "onelock1:00000000000000000000000000000001";

struct Flag(AtomicBool);

impl Interrupt for Flag {
    fn interrupted(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Raises the flag while `call` waits; returns what it answered and how long it took from there.
fn interrupt<T: Send>(call: impl FnOnce(&Flag) -> T + Send) -> (T, Duration) {
    let flag = Flag(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| call(&flag));
        // long enough that the caller waits in the network by then
        std::thread::sleep(Duration::from_millis(200));
        assert!(!call.is_finished());
        let raised = Instant::now();
        flag.0.store(true, Ordering::SeqCst);
        (call.join().unwrap(), raised.elapsed())
    })
}

fn patient() -> RedisOptions {
    RedisOptions { connect_timeout: LONG, request_timeout: LONG, ..RedisOptions::default() }
}

#[test]
fn no_runtime_is_needed_and_a_connection_serves_one_caller_after_the_other() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        let store = RedisStore::new(&server.url(), RedisOptions::default()).unwrap();
        let monitor = server.monitor();
        let mine = claim(Kind::Mutex, "a", TOKEN);
        for _ in 0..10 {
            let answer = store.call_blocking(&acquire(&mine), now() + LONG, &Uninterrupted);
            assert!(matches!(answer.outcome, Outcome::Applied(Reply::Granted { .. })), "{answer:?}");
            assert_eq!(answer.connection, 0);
            let answer = store.call_blocking(&release(&mine), now() + LONG, &Uninterrupted);
            assert_eq!(answer.outcome, Outcome::Applied(Reply::Released(true)));
        }
        assert_eq!(monitor.count("HELLO"), 1);
        assert_eq!(store.stats().reconnects, 0);
    }
}

#[test]
fn an_interrupted_request_may_have_happened_and_ends_its_connection() {
    let server = Server::valkey();
    let asker = Asker::with(&server.url(), Way::Blocking, patient());
    let mine = claim(Kind::Mutex, "a", TOKEN);
    asker.reply(&acquire(&mine));
    server.stop();
    let (answer, took) = interrupt(|flag| asker.blocking(&release(&mine), LONG, flag));
    assert!(took < Duration::from_millis(100), "{took:?}");
    let Outcome::Indeterminate(failure) = answer.outcome else { panic!("{answer:?}") };
    assert!(failure.detail.contains("interrupted"), "{failure:?}");
    server.cont();
    // on a new connection, so the late reply to the abandoned request is nobody's
    assert_eq!(asker.reply(&acquire(&claim(Kind::Mutex, "b", TOKEN))), {
        let fence = server.text(&["GET", "onelock_fence:{b}"]).parse().ok();
        Reply::Granted { fence, again: false }
    });
    assert_eq!(asker.store_stats().reconnects, 1);
}

#[test]
fn an_interrupt_ends_connecting_too() {
    // takes connections and says nothing
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", silent.local_addr().unwrap());
    let asker = Asker::with(&url, Way::Blocking, patient());
    let (answer, took) = interrupt(|flag| asker.blocking(&acquire(&claim(Kind::Mutex, "a", TOKEN)), LONG, flag));
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert!(matches!(answer.outcome, Outcome::NotApplied(_)), "{answer:?}");
}

#[test]
fn a_connection_that_died_while_idle_is_replaced_unseen() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        let asker = Asker::new(&server.url(), Way::Blocking);
        let mine = claim(Kind::Mutex, "a", TOKEN);
        for round in 1..=2 {
            asker.reply(&acquire(&mine));
            let idle_since = now();
            server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            wait_until(LONG, "more than a second", || now().since(idle_since) > Duration::from_millis(1100));
            assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
            assert_eq!(asker.store_stats().reconnects, round);
        }
    }
}

#[test]
fn a_connection_that_died_just_now_is_never_an_answer() {
    let server = Server::valkey();
    let asker = Asker::new(&server.url(), Way::Blocking);
    let mine = claim(Kind::Mutex, "a", TOKEN);
    for _ in 0..20 {
        asker.reply(&acquire(&mine));
        server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        // it may or may not have been noticed before something was sent; either way the next one works
        match asker.answer(&release(&mine)).outcome {
            Outcome::Applied(Reply::Released(true)) => {}
            Outcome::Indeterminate(_) => assert_eq!(asker.reply(&release(&mine)), Reply::Released(true)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn many_threads_at_once() {
    let server = Server::valkey();
    let store = Arc::new(RedisStore::new(&server.url(), RedisOptions::default()).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..24 {
            let store = store.clone();
            scope.spawn(move || {
                let mine = claim(Kind::Mutex, &format!("lock {thread}"), TOKEN);
                for _ in 0..50 {
                    let answer = store.call_blocking(&acquire(&mine), now() + LONG, &Uninterrupted);
                    assert!(
                        matches!(answer.outcome, Outcome::Applied(Reply::Granted { again: false, .. })),
                        "{answer:?}"
                    );
                    let answer = store.call_blocking(&release(&mine), now() + LONG, &Uninterrupted);
                    assert_eq!(answer.outcome, Outcome::Applied(Reply::Released(true)));
                }
            });
        }
    });
    // 16 are kept, and there is the fixture's own
    wait_until(LONG, "surplus connections to be closed", || {
        server.info("clients")["connected_clients"].parse::<u32>().unwrap() <= 17
    });
    assert_eq!(store.stats().reconnects, 0);
    drop(store);
    wait_until(LONG, "the others to be closed", || server.info("clients")["connected_clients"] == "1");
}
