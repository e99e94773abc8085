//! Who comes next: clients that wait in turn, and a server that has forgotten all of them.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use onelock::{ErrorKind, Kind, Release};
use onelock_tests::face::{Client, Face, Lease, block_on, on_both};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SLACK, SOON, ms};
use onelock_tests::wait::wait_until;

use super::{holder, left, place_lasts_ms, queue};

const CLIENTS: usize = 6;
const TURNS: usize = 8;

fn client(server: &Server, face: Face) -> Client {
    Client::build(face, onelock::Client::builder(), &server.url()).unwrap()
}

/// Each client waits again as soon as it has released: whoever has waited longest gets it, every time.
#[test]
fn whoever_has_waited_longest_is_next() {
    on_both(|face| {
        let server = Server::valkey();
        let mut lease = client(&server, face).lock_of(Kind::Fair, "x").acquire().unwrap();
        let (sender, granted) = mpsc::channel::<(usize, Lease)>();
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (client, sender) = (client(&server, face), sender.clone());
                scope.spawn(move || {
                    for _ in 0..TURNS {
                        let lease = client.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap();
                        sender.send((number, lease.clone())).unwrap();
                        wait_until(SOON, "its release", || !lease.is_held());
                    }
                });
            }
            let (mut turns, mut holding, mut checked) = ([TURNS; CLIENTS], CLIENTS, 0);
            for _ in 0..CLIENTS * TURNS {
                let waiting = (0..CLIENTS).filter(|number| turns[*number] > 0 && *number != holding).count();
                wait_until(SOON, "all others to wait", || queue(&server, "x").len() == waiting);
                let head = queue(&server, "x").into_iter().next();
                // on a busy machine its place may be over when the lock is released
                let lasts_ms = head.as_ref().and_then(|head| place_lasts_ms(&server, "x", head));
                lease.released();
                (holding, lease) = granted.recv_timeout(SOON).unwrap();
                turns[holding] -= 1;
                if lasts_ms.is_some_and(|left| left > 350) {
                    assert_eq!(Some(lease.token()), head.as_deref());
                    checked += 1;
                }
            }
            assert!(checked > TURNS, "{checked}");
            lease.released();
        });
        wait_until(SOON, "nothing to be left", || left(&server, "x").is_empty());
    });
}

/// A server that was restarted without data has no queue: everybody comes back, and gets it once.
#[test]
fn a_server_that_has_forgotten_the_queue_serves_everybody_all_the_same() {
    on_both(|face| {
        let server = Server::valkey();
        let lease = client(&server, face).lock_of(Kind::Fair, "x").acquire().unwrap();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let client = client(&server, face);
                    scope.spawn(move || {
                        let lease = client.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap();
                        let fence = lease.fence();
                        std::thread::sleep(Duration::from_millis(20));
                        assert!(lease.is_held());
                        lease.released();
                        fence
                    })
                })
                .collect();
            wait_until(SOON, "the queue", || queue(&server, "x").len() == 4);
            server.kill();
            server.restart();
            let mut fences: Vec<u64> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
            fences.sort_unstable();
            fences.dedup();
            assert!(fences.len() == 4 && fences[0] > lease.fence());
        });
        lease.released();
        wait_until(SOON, "nothing to be left", || left(&server, "x").is_empty() && holder(&server, "x").is_none());
    });
}

/// The server's clock is set back and forward with a queue: places that seem to be over come back, and everybody gets it.
#[test]
fn f77_a_server_whose_clock_is_set_serves_everybody() {
    for step in [-15, 15, -3600] {
        let server = Server::builder(Flavor::Valkey91).clock().start();
        let lease = client(&server, Face::Async).lock_of(Kind::Fair, "x").acquire().unwrap();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let client = client(&server, Face::Async);
                    scope.spawn(move || client.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap().released())
                })
                .collect();
            wait_until(SOON, "the queue", || queue(&server, "x").len() == 4);
            server.set_clock(step);
            let begun = Instant::now();
            lease.released();
            for waiter in waiters {
                waiter.join().unwrap();
            }
            assert!(begun.elapsed() < ms(1000) + SLACK, "{step}: {:?}", begun.elapsed());
        });
        wait_until(SOON, "nothing to be left", || left(&server, "x").is_empty());
    }
}

/// Tasks of one client that take turns, one of which had to wait for another client once: the lock is not left lying.
#[test]
fn the_waiters_of_one_client_hand_it_over_without_a_pause() {
    let server = Server::valkey();
    let per_kind = [Kind::Mutex, Kind::Fair].map(|kind| {
        let Client::Async(client) = client(&server, Face::Async) else { unreachable!("it is async") };
        let theirs = self::client(&server, Face::Async).lock_of(kind, kind.as_str()).acquire().unwrap();
        block_on(async {
            let until = Instant::now() + ms(800);
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let lock = client.lock_of(kind, kind.as_str());
                    tokio::spawn(async move {
                        let mut turns = 0;
                        while Instant::now() < until {
                            lock.acquire().await.unwrap().release().await.unwrap();
                            turns += 1;
                        }
                        turns
                    })
                })
                .collect();
            tokio::task::block_in_place(|| {
                wait_until(SOON, "all to wait", || client.stats().waiting == 8);
                std::thread::scope(|scope| scope.spawn(|| theirs.released()).join().unwrap());
            });
            let mut turns = 0;
            for task in tasks {
                turns += task.await.unwrap();
            }
            turns
        })
    });
    assert!(per_kind[1] * 4 > per_kind[0], "turns of a mutex and of a fair lock: {per_kind:?}");
}

/// A server that is full takes nobody new, and hands over to those who wait.
#[test]
fn f82_a_full_server_hands_the_lock_over() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        let (other, next) = (client(&server, Face::Async), client(&server, Face::Async));
        let lease = client(&server, Face::Async).lock_of(Kind::Fair, "x").acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| next.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap());
            wait_until(SOON, "its place", || queue(&server, "x").len() == 1);
            server.config_set("maxmemory", "1");
            let place = queue(&server, "x");
            assert_eq!(other.lock_of(Kind::Fair, "x").refusal(ms(0)), ErrorKind::Busy);
            assert_eq!(lease.released(), Release::Released);
            let lease = waiter.join().unwrap();
            assert_eq!((lease.token(), lease.is_held()), (place[0].as_str(), true));
            assert_eq!(lease.released(), Release::Released);
            assert_eq!(other.lock_of(Kind::Fair, "x").refusal(ms(100)), ErrorKind::ServerRefused);
            server.config_set("maxmemory", "0");
            assert_eq!(other.lock_of(Kind::Fair, "x").acquire_within(SOON).unwrap().released(), Release::Released);
        });
        assert!(left(&server, "x").is_empty());
    }
}
