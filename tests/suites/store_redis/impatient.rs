//! Callers that are in a hurry, or slow to say whether they want to go on: what that means for the others on a connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use onelock::machine::{Answer, Kind, Outcome};
use onelock::store::redis::{RedisOptions, RedisStore};
use onelock::store::{Interrupt, Store, Uninterrupted};
use onelock_tests::proxy::Match;
use onelock_tests::stage::{SOON, Stage};
use onelock_tests::wait::wait_until;

use crate::asker::{Asker, LONG, Way, acquire, claim, now};

const TOKEN: &str = "onelock1:00000000000000000000000000000001";

fn patient() -> RedisOptions {
    RedisOptions { connect_timeout: LONG, request_timeout: LONG, share_from: 1, ..RedisOptions::default() }
}

fn about(name: &str) -> Match {
    Match::command("EVALSHA").with_arg(name)
}

/// Somebody whose answer takes as long as the gate is closed: the lock of an interpreter that another thread has.
#[derive(Default)]
struct Gate {
    asked: AtomicBool,
    open: AtomicBool,
}

impl Interrupt for Gate {
    fn interrupted(&self) -> bool {
        self.asked.store(true, Ordering::SeqCst);
        while !self.open.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        false
    }
}

/// A thread that takes what it is told, one name after the other.
struct Worker<'a> {
    names: Sender<(String, &'a (dyn Interrupt + Sync))>,
    answers: Receiver<Answer>,
}

impl<'a> Worker<'a> {
    fn start<'scope>(scope: &'scope thread::Scope<'scope, '_>, store: &'scope RedisStore) -> Worker<'a>
    where
        'a: 'scope,
    {
        let (names, tasks) = channel::<(String, &'a (dyn Interrupt + Sync))>();
        let (done, answers) = channel();
        scope.spawn(move || {
            for (name, interrupt) in tasks {
                let op = acquire(&claim(Kind::Mutex, &name, TOKEN));
                let _ = done.send(store.call_blocking(&op, now() + LONG, interrupt));
            }
        });
        Worker { names, answers }
    }

    fn begin(&self, name: &str, interrupt: &'a (dyn Interrupt + Sync)) {
        self.names.send((name.to_owned(), interrupt)).unwrap();
    }

    fn end(&self) -> Answer {
        self.answers.recv_timeout(SOON).expect("an answer in time")
    }
}

#[test]
fn a_thread_that_is_slow_to_say_whether_it_goes_on_keeps_nobody_waiting() {
    let stage = Stage::valkey();
    let store = RedisStore::new(&stage.proxy.url(), patient()).unwrap();
    let gate = Gate::default();
    thread::scope(|scope| {
        let workers: Vec<Worker<'_>> = (0..8).map(|_| Worker::start(scope, &store)).collect();
        // two of them share a connection, since there are fewer of these
        let way = |at: usize| {
            let name = format!("warm {at}");
            workers[at].begin(&name, &Uninterrupted);
            workers[at].end();
            stage.proxy.wait_requests(&about(&name), 1)[0].connection
        };
        let ways: Vec<usize> = (0..workers.len()).map(way).collect();
        let second = (1..ways.len()).find(|at| ways[..*at].contains(&ways[*at])).expect("they share");
        let first = ways.iter().position(|way| *way == ways[second]).unwrap();

        let held = stage.proxy.on(about("slow")).once().hold_reply();
        workers[first].begin("slow", &gate);
        wait_until(SOON, "the question whether it goes on", || gate.asked.load(Ordering::SeqCst));
        workers[second].begin("quick", &Uninterrupted);
        stage.proxy.wait_requests(&about("quick"), 1);
        held.release();
        let answer = workers[second].answers.recv_timeout(SOON);
        gate.open.store(true, Ordering::SeqCst);
        assert!(matches!(answer.expect("the reply is there, and nobody reads it").outcome, Outcome::Applied(_)));
        assert!(matches!(workers[first].end().outcome, Outcome::Applied(_)));
        drop(workers);
    });
}

#[test]
fn a_reply_that_nobody_waited_for_is_no_silence() {
    const LIMIT: Duration = Duration::from_secs(2);
    const HURRY: Duration = Duration::from_millis(50);
    let stage = Stage::valkey();
    let options = RedisOptions { connect_timeout: LONG, request_timeout: LIMIT, ..RedisOptions::default() };
    let asker = Asker::with(&stage.proxy.url(), Way::Async, options);
    let op = |name: &str| acquire(&claim(Kind::Mutex, name, TOKEN));
    let hurried = |name: &str| {
        let held = stage.proxy.on(about(name)).once().hold_reply();
        let answer = asker.answer_within(&op(name), HURRY);
        assert!(matches!(answer.outcome, Outcome::Indeterminate(_)), "{answer:?}");
        held.wait_hits(1);
        held.release();
        answer.connection
    };
    asker.reply(&op("warm"));
    let begun = Instant::now();
    let before = hurried("a");
    // the reply has come long ago when the next one is in a hurry
    wait_until(SOON, "more than the limit of a request", || begun.elapsed() > LIMIT + HURRY);
    hurried("b");
    asker.reply(&op("c"));
    assert_eq!(asker.answer(&op("d")).connection, before, "the connection was given up for a silence that was none");
    assert_eq!(asker.store_stats().reconnects, 0);
}
