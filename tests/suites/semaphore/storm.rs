//! Many tasks of several clients on one semaphore, most of which give up: never more hold than there are permits, whoever stays
//! gets its own, a large request too, and nothing is left.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use onelock::Release;
use onelock::machine::Jitter;
use onelock_tests::face::block_on;
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::stage::{SOON, Stage, ms};
use onelock_tests::wait::wait_until;

const PERMITS: i64 = 4;
const TTL: Duration = ms(6000);
const LASTS: Duration = ms(2500);
const TASKS: u64 = 3;

/// What the holders see.
#[derive(Default)]
struct Inside {
    held: AtomicI64,
    grants: AtomicI64,
    large: AtomicI64,
}

impl Inside {
    fn enter(&self, count: i64) {
        let held = self.held.fetch_add(count, Ordering::SeqCst) + count;
        assert!(held <= PERMITS, "{held} are held");
        self.grants.fetch_add(1, Ordering::SeqCst);
        self.large.fetch_add(count / PERMITS, Ordering::SeqCst);
    }

    fn leave(&self, count: i64) {
        self.held.fetch_sub(count, Ordering::SeqCst);
    }
}

async fn task(client: &onelock::Client, inside: &Inside, until: Instant, seed: u64) {
    let mut dice = Jitter::new(seed);
    while Instant::now() < until {
        let count = 1 + dice.below(4);
        let semaphore = client.semaphore("x", PERMITS as u32).count(count as u32).ttl(TTL);
        let lease = match dice.below(6) {
            0 => semaphore.try_acquire().await.ok().flatten(),
            1 => semaphore.acquire_within(ms(dice.below(40))).await.ok(),
            2 | 3 => tokio::time::timeout(ms(dice.below(60)), semaphore.acquire()).await.ok().map(Result::unwrap),
            _ => Some(semaphore.acquire_within(SOON).await.unwrap()),
        };
        let Some(lease) = lease else { continue };
        inside.enter(count.cast_signed());
        tokio::time::sleep(Duration::from_micros(dice.below(2500))).await;
        assert!(lease.is_held());
        inside.leave(count.cast_signed());
        match dice.below(3) {
            0 => drop(lease),
            1 => drop(tokio::time::timeout(Duration::from_micros(dice.below(500)), lease.release()).await),
            // one of which a message told is short until it is renewed: its release may come too late on a busy machine
            _ => {
                let (begun, left) = (Instant::now(), lease.remaining());
                let release = lease.release().await.unwrap();
                assert!(release != Release::AlreadyExpired || begun.elapsed() > left, "{left:?} were left");
            }
        }
    }
}

/// What happens to the messages meanwhile.
#[derive(PartialEq)]
enum Fault {
    None,
    /// All connections are cut, again and again.
    Cuts,
    /// Each request is carried out twice.
    Doubled,
    /// A round trip takes so long that many give up with a request under way.
    Slow,
}

fn storm(fault: &Fault) {
    let stage = Stage::valkey();
    match fault {
        Fault::Doubled => drop(stage.proxy.on(Match::script(scripts::SEMAPHORE)).duplicate()),
        Fault::Slow => stage.proxy.latency(ms(15)),
        Fault::None | Fault::Cuts => {}
    }
    let clients = [(); 4].map(|()| onelock::Client::builder().build(&stage.proxy.url()).unwrap());
    let (inside, until) = (Inside::default(), Instant::now() + LASTS);
    std::thread::scope(|scope| {
        let inside = &inside;
        for (number, client) in clients.iter().enumerate() {
            for task_number in 0..TASKS {
                let seed = number as u64 * TASKS + task_number;
                scope.spawn(move || block_on(task(client, inside, until, seed)));
            }
        }
        while *fault == Fault::Cuts && Instant::now() + ms(700) < until {
            std::thread::sleep(ms(300));
            stage.proxy.cut_all();
        }
    });
    let (grants, large) = (inside.grants.load(Ordering::SeqCst), inside.large.load(Ordering::SeqCst));
    assert!(grants > 40 && large > 2, "it was no storm: {grants} grants, {large} of all permits");
    for client in &clients {
        wait_until(SOON, "nothing to be held or undone", || {
            let stats = client.stats();
            (stats.cleaning, stats.held, stats.waiting) == (0, 0, 0)
        });
    }
    // a place that was entered late, and nobody's any more, is forgotten by whoever comes
    let rival = onelock::blocking::Client::connect(&stage.server.url()).unwrap();
    rival.semaphore("x", PERMITS as u32).acquire_many_within(4, SOON).unwrap().release().unwrap();
    let keys = ["onelock_queue:{x}", "onelock_waiters:{x}", "{x}:timeout"];
    wait_until(SOON, "nothing to be left", || keys.iter().all(|key| stage.server.int(&["EXISTS", key]) == 0));
    assert_eq!(stage.server.text(&["GET", "x"]), PERMITS.to_string());
}

#[test]
fn f51_most_give_up_at_any_moment() {
    storm(&Fault::None);
}

#[test]
fn f08_most_give_up_and_messages_take_their_time() {
    storm(&Fault::Slow);
}

#[test]
fn f06_most_give_up_and_all_requests_are_doubled() {
    storm(&Fault::Doubled);
}

#[test]
fn f31_most_give_up_and_all_connections_are_cut_again_and_again() {
    storm(&Fault::Cuts);
}
