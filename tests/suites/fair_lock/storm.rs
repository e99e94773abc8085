//! Many tasks and threads of several clients on one fair lock, most of which give up: two never hold at once, whoever stays
//! gets it, and nothing is left.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::machine::Jitter;
use onelock::{Kind, Release};
use onelock_tests::face::{Client, Face, block_on};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::stage::{SOON, Stage, ms};
use onelock_tests::wait::wait_until;

use super::left;

const TTL: Duration = ms(6000);
const LASTS: Duration = ms(3000);
const TASKS: u64 = 4;

/// What the holders of the lock see.
#[derive(Default)]
struct Inside {
    held: AtomicBool,
    fence: AtomicU64,
    grants: AtomicU64,
}

impl Inside {
    /// Somebody holds it from here on; the same body as [`Inside::leave`] in between.
    fn enter(&self, fence: u64) {
        assert!(!self.held.swap(true, Ordering::SeqCst), "two hold it");
        assert!(self.fence.swap(fence, Ordering::SeqCst) < fence, "{fence} after a higher one");
        self.grants.fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self) {
        assert!(self.held.swap(false, Ordering::SeqCst));
    }
}

async fn task(client: &onelock::Client, inside: &Inside, until: Instant, seed: u64) -> u64 {
    let mut dice = Jitter::new(seed);
    let lock = client.fair_lock("x").ttl(TTL);
    let mut granted = 0;
    while Instant::now() < until {
        let lease = match dice.below(6) {
            0 => lock.try_acquire().await.ok().flatten(),
            1 => lock.acquire_within(ms(dice.below(40))).await.ok(),
            2 | 3 => tokio::time::timeout(ms(dice.below(60)), lock.acquire()).await.ok().map(Result::unwrap),
            _ => Some(lock.acquire_within(SOON).await.unwrap()),
        };
        let Some(lease) = lease else { continue };
        granted += 1;
        inside.enter(lease.fencing_token().unwrap());
        tokio::time::sleep(Duration::from_micros(dice.below(2500))).await;
        assert!(lease.is_held());
        inside.leave();
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
    granted
}

fn thread(client: &onelock::blocking::Client, inside: &Inside, until: Instant, seed: u64) -> u64 {
    let mut dice = Jitter::new(seed);
    let lock = client.fair_lock("x").ttl(TTL);
    let mut granted = 0;
    while Instant::now() < until {
        let lease = match dice.below(4) {
            0 => lock.try_acquire().ok().flatten(),
            1 | 2 => lock.acquire_within(ms(dice.below(60))).ok(),
            _ => Some(lock.acquire_within(SOON).unwrap()),
        };
        let Some(lease) = lease else { continue };
        granted += 1;
        inside.enter(lease.fencing_token().unwrap());
        std::thread::sleep(Duration::from_micros(dice.below(2500)));
        assert!(lease.is_held());
        inside.leave();
        if dice.below(2) == 0 {
            drop(lease);
            continue;
        }
        let (begun, left) = (Instant::now(), lease.remaining());
        let release = lease.release().unwrap();
        assert!(release != Release::AlreadyExpired || begun.elapsed() > left, "{left:?} were left");
    }
    granted
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
        Fault::Doubled => drop(stage.proxy.on(Match::script(scripts::FAIR_LOCK)).duplicate()),
        Fault::Slow => stage.proxy.latency(ms(15)),
        Fault::None | Fault::Cuts => {}
    }
    let clients: Vec<Client> = [Face::Async, Face::Async, Face::Async, Face::Blocking, Face::Blocking]
        .map(|face| Client::build(face, onelock::Client::builder(), &stage.proxy.url()).unwrap())
        .into();
    let (inside, until) = (Inside::default(), Instant::now() + LASTS);
    std::thread::scope(|scope| {
        let inside = &inside;
        let workers: Vec<_> = clients
            .iter()
            .enumerate()
            .flat_map(|(number, client)| (0..TASKS).map(move |task| (number as u64 * TASKS + task, client)))
            .map(|(seed, client)| {
                scope.spawn(move || match client {
                    Client::Async(client) => block_on(task(client, inside, until, seed)),
                    Client::Blocking(client) => thread(client, inside, until, seed),
                })
            })
            .collect();
        while *fault == Fault::Cuts && Instant::now() + ms(700) < until {
            std::thread::sleep(ms(300));
            stage.proxy.cut_all();
        }
        let granted: Vec<u64> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        for (client, granted) in granted.chunks(TASKS as usize).enumerate() {
            assert!(granted.iter().sum::<u64>() > 0, "client {client} never got it: {granted:?}");
        }
    });
    assert!(inside.grants.load(Ordering::SeqCst) > 40, "it was no storm");
    for client in &clients {
        stage.wait_clean(client, "x", SOON);
    }
    let lease = clients[0].lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap();
    lease.released();
    // a place that was entered late, and nobody's any more, is forgotten by whoever comes
    wait_until(SOON, "nothing to be left", || left(&stage.server, "x").is_empty());
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
