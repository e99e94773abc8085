//! The ways of callers without a runtime: the pool, dead connections in it, the shared one, and interruption.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use onelock::machine::{Answer, Claim, Kind, Outcome, Reply};
use onelock::store::redis::{RedisOptions, RedisStore};
use onelock::store::{Interrupt, Store, Uninterrupted};
use onelock_tests::servers::{Server, all_flavors};
use onelock_tests::stage::quick_once;
use onelock_tests::wait::wait_until;

use crate::asker::{Asker, LONG, Way, acquire, claim, now, release};

const TOKEN: &str = "onelock1:00000000000000000000000000000001";
/// An interrupt is seen after a tenth of a second on a machine that is not busy, and a silent server is borne for [`LONG`].
const PROMPT: Duration = LONG.checked_div(4).unwrap();

#[derive(Default)]
struct Flag(AtomicBool);

impl Interrupt for Flag {
    fn interrupted(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Raises the flag while `call` waits; returns what it answered and how long it took from there.
fn interrupt<T>(call: impl FnOnce(&Flag) -> T) -> (T, Duration) {
    let (flag, done) = (Flag::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let raised = scope.spawn(|| {
            // long enough that the caller waits in the network by then
            std::thread::sleep(Duration::from_millis(200));
            assert!(!done.load(Ordering::SeqCst));
            flag.0.store(true, Ordering::SeqCst);
            Instant::now()
        });
        let answer = call(&flag);
        done.store(true, Ordering::SeqCst);
        let ended = Instant::now();
        (answer, ended.saturating_duration_since(raised.join().unwrap()))
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
            assert_ne!(answer.connection, 0, "the clock watch tells connections apart");
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
    assert!(took < PROMPT, "{took:?}");
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
    assert!(took < PROMPT, "{took:?}");
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

fn release_on_dead_connections(server: &Server, asker: &Asker, mine: &Claim) {
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    // it may or may not have been noticed before something was sent; either way the next one works
    match asker.answer(&release(mine)).outcome {
        Outcome::Applied(Reply::Released(true)) => {}
        Outcome::Indeterminate(_) => assert_eq!(asker.reply(&release(mine)), Reply::Released(true)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_that_died_just_now_is_never_an_answer() {
    let server = Server::valkey();
    let asker = Asker::new(&server.url(), Way::Blocking);
    let mine = claim(Kind::Mutex, "a", TOKEN);
    for _ in 0..20 {
        asker.reply(&acquire(&mine));
        release_on_dead_connections(&server, &asker, &mine);
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

/// The last fencing token of a lock, by which replies are told apart.
fn last_fence(server: &Server, number: usize) -> Option<u64> {
    server.text(&["GET", &format!("onelock_fence:{{lock {number}}}")]).parse().ok()
}

/// One lock, once.
fn grant(server: &Server, asker: &Asker, number: usize) {
    let mine = claim(Kind::Mutex, &format!("lock {number}"), TOKEN);
    let reply = asker.reply(&acquire(&mine));
    let Reply::Granted { again: false, fence, .. } = reply else { panic!("{number}: {reply:?}") };
    assert_eq!(fence, last_fence(server, number), "{number}");
    assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
}

#[test]
fn many_threads_share_three_connections() {
    const THREADS: usize = 24;
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        let asker = Asker::new(&server.url(), Way::Sharing);
        let monitor = server.monitor();
        let all_here = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (server, asker, all_here) = (&server, &asker, &all_here);
                scope.spawn(move || {
                    grant(server, asker, thread);
                    // by now each place has its connection
                    all_here.wait();
                    (0..50).for_each(|_| grant(server, asker, thread));
                });
            }
        });
        assert_eq!(asker.store_stats().reconnects, 0);
        let sources: Vec<_> =
            monitor.sent().into_iter().filter(|seen| seen.is("EVALSHA")).map(|seen| seen.source).collect();
        let late: BTreeSet<_> = sources[sources.len() - THREADS * 50 * 2..].iter().collect();
        assert_eq!(late.len(), 3, "{late:?}");
    }
}

#[test]
fn a_sharing_caller_gets_another_connection_when_one_is_lost() {
    let server = Server::valkey();
    let asker = Asker::new(&server.url(), Way::Sharing);
    let mine = claim(Kind::Mutex, "a", TOKEN);
    asker.reply(&acquire(&mine));
    assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
    let before = connections(&server);
    for _ in 0..20 {
        asker.reply(&acquire(&mine));
        release_on_dead_connections(&server, &asker, &mine);
        assert_eq!(connections(&server), before);
    }
    assert_eq!(asker.store_stats().reconnects, 20);
}

/// So many threads on at most three connections, each with a lock of its own.
const TOGETHER: usize = 9;

/// All call at the same time, while the server is stopped. `then` is told when all wait, and given their flags; the answers,
/// in the order of the threads.
fn together(server: &Server, asker: &Asker, then: impl FnOnce(&[Flag], &dyn Fn(usize) -> bool)) -> Vec<Answer> {
    let flags: Vec<Flag> = (0..TOGETHER).map(|_| Flag::default()).collect();
    let (ready, stopped) = (Barrier::new(TOGETHER + 1), Barrier::new(TOGETHER + 1));
    std::thread::scope(|scope| {
        let calls: Vec<_> = flags
            .iter()
            .enumerate()
            .map(|(number, flag)| {
                let (ready, stopped) = (&ready, &stopped);
                scope.spawn(move || {
                    let mine = claim(Kind::Mutex, &format!("lock {number}"), TOKEN);
                    // where it will go there is a connection
                    grant(server, asker, number);
                    ready.wait();
                    stopped.wait();
                    asker.blocking(&acquire(&mine), LONG, flag)
                })
            })
            .collect();
        ready.wait();
        let before = asker.store_stats().commands_sent;
        server.stop();
        stopped.wait();
        wait_until(LONG, "all to be sent", || asker.store_stats().commands_sent == before + TOGETHER as u64);
        then(&flags, &|number| calls[number].is_finished());
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn when_whoever_reads_for_all_goes_another_one_reads() {
    let server = Server::valkey();
    let asker = Asker::with(&server.url(), Way::Sharing, patient());
    // the one who stays is another one each time, so it is seldom the one who reads
    for stays in 0..TOGETHER {
        let answers = together(&server, &asker, |flags, ended| {
            for number in (0..TOGETHER).filter(|number| *number != stays) {
                flags[number].0.store(true, Ordering::SeqCst);
                wait_until(LONG, "one to go", || ended(number));
            }
            server.cont();
        });
        for (number, answer) in answers.into_iter().enumerate() {
            match answer.outcome {
                Outcome::Applied(Reply::Granted { again: false, fence, .. }) if number == stays => {
                    assert_eq!(fence, last_fence(&server, number), "{number}");
                }
                Outcome::Indeterminate(failure) if number != stays => {
                    assert!(failure.detail.contains("interrupted"), "{failure:?}");
                }
                other => panic!("{number} of {stays}: {other:?}"),
            }
            // what was sent is carried out, and its reply is nobody's
            let mine = claim(Kind::Mutex, &format!("lock {number}"), TOKEN);
            wait_until(LONG, "it to be executed", || server.int(&["EXISTS", &format!("lock {number}")]) == 1);
            assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
        }
    }
    assert_eq!(asker.store_stats().reconnects, 0);
}

#[test]
fn a_shared_connection_that_is_lost_is_lost_for_all() {
    let server = Server::valkey();
    let asker = Asker::with(&server.url(), Way::Sharing, patient());
    let answers = together(&server, &asker, |_, _| server.kill());
    let mut indeterminate = 0;
    for answer in answers {
        match answer.outcome {
            Outcome::Indeterminate(failure) => {
                assert!(!failure.detail.contains("in time"), "{failure:?}");
                indeterminate += 1;
            }
            // it was about to be sent, and no other connection could be made
            Outcome::NotApplied(failure) => assert!(!failure.detail.contains("in time"), "{failure:?}"),
            Outcome::Applied(reply) => panic!("{reply:?}"),
        }
    }
    assert!(indeterminate > 0, "one at least was under way");
}

#[test]
fn a_sharing_caller_is_interrupted_and_limited_like_any_other() {
    let server = Server::valkey();
    let asker = Asker::with(&server.url(), Way::Sharing, patient());
    let mine = claim(Kind::Mutex, "a", TOKEN);
    asker.reply(&acquire(&mine));
    server.stop();
    let (answer, took) = interrupt(|flag| asker.blocking(&release(&mine), LONG, flag));
    assert!(took < PROMPT, "{took:?}");
    let Outcome::Indeterminate(failure) = answer.outcome else { panic!("{answer:?}") };
    assert!(failure.detail.contains("interrupted"), "{failure:?}");
    let started = Instant::now();
    let answer = asker.answer_within(&acquire(&mine), Duration::from_millis(120));
    assert!(matches!(answer.outcome, Outcome::Indeterminate(_)), "{answer:?}");
    assert!(started.elapsed() >= Duration::from_millis(120), "{:?}", started.elapsed());
    assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
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
    asker.reply(&acquire(&mine));
    assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
    // a request of its own limit would take a second
    quick_once(Duration::from_millis(900), "the end of the connection", || {
        server.stop();
        let started = Instant::now();
        let answer = asker.answer(&acquire(&mine));
        let took = started.elapsed();
        assert!(matches!(answer.outcome, Outcome::Indeterminate(_)), "{answer:?}");
        assert!(took >= Duration::from_millis(300), "{took:?}");
        server.cont();
        // with the same token on a new connection
        let again = || asker.answer(&acquire(&mine)).outcome;
        wait_until(LONG, "the grant", || matches!(again(), Outcome::Applied(Reply::Granted { .. })));
        assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
        took
    });
}
