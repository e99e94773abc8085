//! The ways of callers without a runtime: the pool, dead connections in it, the shared one, and interruption.

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

fn connections(server: &Server) -> u32 {
    server.info("clients")["connected_clients"].parse().unwrap()
}

#[test]
fn many_threads_share_the_connection_of_tasks() {
    let server = Server::valkey();
    // the ninth and later ones share: with 24 at once there are at most eight connections of their own
    let options = RedisOptions { share_from: 9, ..RedisOptions::default() };
    let asker = Arc::new(Asker::with(&server.url(), Way::Sharing, options));
    let monitor = server.monitor();
    // from here on the server knows both scripts
    let first = claim(Kind::Mutex, "first", TOKEN);
    asker.reply(&acquire(&first));
    asker.reply(&release(&first));
    let before = asker.store_stats().commands_sent;
    std::thread::scope(|scope| {
        for thread in 0..24 {
            let asker = asker.clone();
            scope.spawn(move || {
                let mine = claim(Kind::Mutex, &format!("lock {thread}"), TOKEN);
                for _ in 0..50 {
                    assert!(matches!(asker.reply(&acquire(&mine)), Reply::Granted { again: false, .. }));
                    assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
                }
            });
        }
    });
    assert_eq!(asker.store_stats().commands_sent - before, 24 * 50 * 2);
    assert!(monitor.count("HELLO") <= 8, "{}", monitor.count("HELLO"));
}

#[test]
fn a_sharing_caller_needs_no_connection_of_its_own_while_there_is_one() {
    let server = Server::valkey();
    let asker = Asker::new(&server.url(), Way::Sharing);
    let before = connections(&server);
    let mine = claim(Kind::Mutex, "a", TOKEN);
    asker.reply(&acquire(&mine));
    assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
    assert_eq!(connections(&server), before);
    // without it, the caller makes its own, and is none the wiser
    let number = asker.store.connection();
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    wait_until(LONG, "the end of the connection to be noticed", || asker.store.connection() != number);
    asker.reply(&acquire(&mine));
    assert_eq!(connections(&server), before);
    assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
}

#[test]
fn a_sharing_caller_is_interrupted_and_limited_like_any_other() {
    let server = Server::valkey();
    let asker = Asker::with(&server.url(), Way::Sharing, patient());
    let mine = claim(Kind::Mutex, "a", TOKEN);
    asker.reply(&acquire(&mine));
    server.stop();
    let (answer, took) = interrupt(|flag| asker.blocking(&release(&mine), LONG, flag));
    assert!(took < Duration::from_millis(100), "{took:?}");
    let Outcome::Indeterminate(failure) = answer.outcome else { panic!("{answer:?}") };
    assert!(failure.detail.contains("interrupted"), "{failure:?}");
    let started = Instant::now();
    let answer = asker.answer_within(&acquire(&mine), Duration::from_millis(120));
    assert!(matches!(answer.outcome, Outcome::Indeterminate(_)), "{answer:?}");
    assert!(started.elapsed() >= Duration::from_millis(120), "{:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_millis(400), "{:?}", started.elapsed());
    server.cont();
    // the replies to the abandoned requests are nobody's: each later one gets its own
    wait_until(LONG, "both to be executed", || server.int(&["EXISTS", "a"]) == 1);
    assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
    assert_eq!(asker.reply(&release(&mine)), Reply::Released(false));
    assert_eq!(asker.store_stats().reconnects, 0);
}

#[test]
fn a_frozen_server_ends_the_shared_connection_for_all_callers() {
    let server = Server::valkey();
    let options = RedisOptions { request_timeout: Duration::from_millis(300), ..RedisOptions::default() };
    let asker = Asker::with(&server.url(), Way::Sharing, options);
    let mine = claim(Kind::Mutex, "a", TOKEN);
    server.stop();
    let started = Instant::now();
    let answer = asker.answer(&acquire(&mine));
    assert!(matches!(answer.outcome, Outcome::Indeterminate(_)), "{answer:?}");
    assert!((300..600).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());
    server.cont();
    // with the same token on a new connection
    assert!(matches!(asker.reply(&acquire(&mine)), Reply::Granted { .. }));
    assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
}
