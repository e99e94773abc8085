//! Read/write locks on real servers: readers and writers in a storm, readers that die, neither side that starves, Redisson's
//! holds beside ours, and losses.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop at once, with its message")]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onelock::machine::Jitter;
use onelock::{ErrorKind, Kind, LossReason, Owner, Release};
use onelock_tests::face::{Client, Face, Lock, block_on, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, Stage, ms};
use onelock_tests::topology::Cluster;
use onelock_tests::wait::wait_until;

/// A thread of Redisson's.
const JAVA: &str = "d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:57";

fn client(server: &Server, face: Face) -> Client {
    Client::build(face, onelock::Client::builder(), &server.url()).unwrap()
}

fn sides(client: &Client) -> [Lock; 2] {
    [Kind::Read, Kind::Write].map(|kind| client.lock_of(kind, "x"))
}

/// Which keys of the lock are there, but for the fencing counter.
fn left(server: &Server) -> Vec<String> {
    let redis::Value::Array(keys) = server.cmd(&["KEYS", "*"]) else { panic!("no list") };
    keys.iter().map(onelock_tests::resp::text).filter(|key| !key.starts_with("onelock_fence")).collect()
}

/// What readers and writers see of each other.
#[derive(Default)]
struct Inside {
    /// How many read; -1000 and less: somebody writes.
    readers: AtomicI64,
    written: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    most: AtomicI64,
}

impl Inside {
    fn read(&self, fence: u64, body: impl FnOnce()) {
        let before = self.readers.fetch_add(1, Ordering::SeqCst);
        assert!(before >= 0, "a reader beside a writer");
        assert!(self.written.load(Ordering::SeqCst) < fence, "a reader with the token of an earlier time");
        self.most.fetch_max(before + 1, Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
        body();
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    fn write(&self, fence: u64, body: impl FnOnce()) {
        assert_eq!(self.readers.fetch_sub(1000, Ordering::SeqCst), 0, "a writer beside somebody");
        assert!(self.written.swap(fence, Ordering::SeqCst) < fence, "{fence} after a higher one");
        self.writes.fetch_add(1, Ordering::SeqCst);
        body();
        self.readers.fetch_add(1000, Ordering::SeqCst);
    }
}

/// One thread that reads and writes, gives up, downgrades and drops, until the time is over.
fn play(client: &Client, inside: &Inside, until: Instant, seed: u64) {
    let mut dice = Jitter::new(seed);
    let [read, write] = sides(client).map(|lock| lock.ttl(ms(6000)));
    while Instant::now() < until {
        let writes = dice.below(3) == 0;
        let lock = if writes { &write } else { &read };
        let lease = match dice.below(4) {
            0 => lock.try_acquire().ok().flatten(),
            1 => lock.acquire_within(ms(dice.below(60))).ok(),
            _ => Some(lock.acquire_within(SOON).unwrap()),
        };
        let Some(lease) = lease else { continue };
        let pause = Duration::from_micros(dice.below(2500));
        let body = || {
            std::thread::sleep(pause);
            assert!(lease.is_held());
        };
        if writes {
            inside.write(lease.fence(), body);
            if dice.below(4) == 0 {
                let before = lease.fence();
                match &lease {
                    onelock_tests::face::Lease::Async(lease) => block_on(lease.downgrade()).unwrap(),
                    onelock_tests::face::Lease::Blocking(lease) => lease.downgrade().unwrap(),
                }
                assert!(lease.fence() > before);
                inside.read(lease.fence(), || std::thread::sleep(pause));
            }
        } else {
            inside.read(lease.fence(), body);
        }
        if dice.below(3) == 0 {
            drop(lease);
            continue;
        }
        // one of which a message told is short until it is renewed: its release may come too late on a busy machine
        let (begun, left) = (Instant::now(), lease.remaining());
        let release = lease.released();
        assert!(release != Release::AlreadyExpired || begun.elapsed() > left, "{left:?} were left");
    }
}

fn storm(stage: &Stage, url: &str, cuts: bool) {
    let clients: Vec<Client> = [Face::Async, Face::Async, Face::Blocking, Face::Blocking]
        .map(|face| Client::build(face, onelock::Client::builder(), url).unwrap())
        .into();
    let (inside, until) = (Inside::default(), Instant::now() + ms(3000));
    std::thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            for task in 0..4 {
                let inside = &inside;
                scope.spawn(move || play(client, inside, until, number as u64 * 4 + task));
            }
        }
        while cuts && Instant::now() + ms(700) < until {
            std::thread::sleep(ms(300));
            stage.proxy.cut_all();
        }
    });
    let (reads, writes) = (inside.reads.load(Ordering::SeqCst), inside.writes.load(Ordering::SeqCst));
    assert!(reads > 20 && writes > 5, "it was no storm: {reads} reads, {writes} writes");
    let [_, write] = sides(&clients[0]);
    write.acquire_within(SOON).unwrap().released();
    wait_until(SOON, "nothing to be left but notes", || left(&stage.server).iter().all(|key| key.contains("waiters")));
}

#[test]
fn most_give_up_at_any_moment() {
    let stage = Stage::valkey();
    storm(&stage, &stage.server.url(), false);
}

#[test]
fn all_requests_are_doubled() {
    let stage = Stage::valkey();
    drop(stage.proxy.on(Match::script(scripts::RW_LOCK)).duplicate());
    storm(&stage, &stage.proxy.url(), false);
}

#[test]
fn all_connections_are_cut_again_and_again() {
    let stage = Stage::valkey();
    storm(&stage, &stage.proxy.url(), true);
}

#[test]
fn neither_side_starves() {
    on_both(|face| {
        let server = Server::valkey();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writes in [0, 1] {
                for _ in 0..3 {
                    let (client, over) = (client(&server, face), &over);
                    scope.spawn(move || {
                        let lock = sides(&client)[writes].clone();
                        while !over.load(Ordering::SeqCst) {
                            let lease = lock.acquire_within(SOON).unwrap();
                            std::thread::sleep(ms(10));
                            lease.released();
                        }
                    });
                }
            }
            // each side gets in, again and again, though the others never pause
            for turn in 0..6 {
                let lock = sides(&client(&server, face))[turn % 2].clone();
                lock.acquire_within(SOON).unwrap().released();
            }
            over.store(true, Ordering::SeqCst);
        });
    });
}

#[test]
fn a_dead_reader_keeps_writers_out_for_its_own_ttl_only() {
    on_both(|face| {
        let server = Server::valkey();
        let (dead, alive, writer) = (client(&server, face), client(&server, face), client(&server, face));
        let long = sides(&alive)[0].clone().ttl(ms(60_000)).acquire().unwrap();
        let short = sides(&dead)[0].clone().ttl(ms(1500)).auto_renew(false).acquire().unwrap();
        let begun = Instant::now();
        assert_eq!(long.released(), Release::Released);
        let lease = sides(&writer)[1].acquire_within(SOON).unwrap();
        assert!(!short.is_held(), "it entered while a reader was inside");
        assert!(begun.elapsed() < ms(30_000), "{:?}", begun.elapsed());
        assert_eq!(short.released(), Release::AlreadyExpired);
        assert!(lease.is_held());
        lease.released();
    });
}

#[test]
fn a_reader_whose_timeout_key_is_gone_has_lost_its_lease() {
    on_both(|face| {
        let server = Server::valkey();
        let (one, other) = (client(&server, face), client(&server, face));
        let lease = sides(&one)[0].clone().renew_every(ms(150)).acquire().unwrap();
        let kept = sides(&other)[0].clone().renew_every(ms(150)).acquire().unwrap();
        server.cmd(&["DEL", &format!("{{x}}:{}:rwlock_timeout:1", lease.token())]);
        wait_until(SOON, "the loss", || !lease.is_held());
        assert_eq!(lease.loss(), Some(LossReason::Taken));
        assert!(kept.is_held());
        assert_eq!(kept.released(), Release::Released);
    });
}

#[test]
fn redissons_holds_are_respected_and_ours_have_its_form() {
    on_both(|face| {
        let server = Server::valkey();
        let ours = client(&server, face);
        let [read, write] = sides(&ours);
        // one of its readers, as its script writes it
        server.cmd(&["HSET", "x", "mode", "read", JAVA, "1"]);
        server.cmd(&["PEXPIRE", "x", "30000"]);
        server.cmd(&["SET", &format!("{{x}}:{JAVA}:rwlock_timeout:1"), "1", "PX", "30000"]);
        assert_eq!(write.refusal(ms(0)), ErrorKind::Busy);
        let lease = read.acquire().unwrap();
        let token = lease.token();
        assert_eq!(server.text(&["HGET", "x", token]), "1");
        assert_eq!(server.text(&["HGET", "x", "mode"]), "read");
        assert!(server.text(&["HGET", "x", "onelock_fence"]).starts_with('t'), "no number, or it is taken for a count");
        assert_eq!(server.text(&["GET", &format!("{{x}}:{token}:rwlock_timeout:1")]), "1");
        assert_eq!(lease.released(), Release::Released);
        assert_eq!(server.text(&["HGET", "x", JAVA]), "1", "its hold stays");
        assert!(server.int(&["PTTL", "x"]) > 20_000);
        server.cmd(&["DEL", "x", &format!("{{x}}:{JAVA}:rwlock_timeout:1")]);
        // its writer
        server.cmd(&["HSET", "x", "mode", "write", &format!("{JAVA}:write"), "1"]);
        server.cmd(&["PEXPIRE", "x", "30000"]);
        assert_eq!((read.refusal(ms(0)), write.refusal(ms(0))), (ErrorKind::Busy, ErrorKind::Busy));
        server.cmd(&["DEL", "x"]);
        let lease = write.acquire_within(SOON).unwrap();
        assert_eq!(server.text(&["HGET", "x", &format!("{}:write", lease.token())]), "1");
        lease.released();
    });
}

#[test]
fn handed_over_cancelled_and_refused_as_other_kinds_are() {
    on_both(|face| {
        let server = Server::valkey();
        let (one, other) = (client(&server, face), client(&server, face));
        for (side, lock) in sides(&one).into_iter().enumerate() {
            let lease = lock.acquire_within(SOON).unwrap();
            let proof = lease.detach().unwrap();
            let wrong = sides(&other)[1 - side].attach(&proof).map(drop).unwrap_err();
            assert_eq!(wrong.kind(), ErrorKind::Lost, "a proof of the other side");
            let lease = sides(&other)[side].attach(&proof).unwrap();
            assert!(sides(&other)[side].attach(&proof).is_err(), "it attaches once");
            lease.extend(ms(50_000)).unwrap();
            assert!(lock.is_locked().unwrap());
            assert!(!sides(&one)[1 - side].is_locked().unwrap());
            assert!(one.force_release("x").unwrap());
            assert_eq!(lease.released(), Release::AlreadyExpired);
        }
        let owner = Owner::new();
        let [read, write] = sides(&one).map(|lock| lock.owner(&owner));
        let lease = read.acquire_within(SOON).unwrap();
        let begun = Instant::now();
        assert_eq!(write.refusal(ms(60_000)), ErrorKind::WouldDeadlock);
        assert!(begun.elapsed() < ms(30_000));
        lease.released();
        for name in ["redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"] {
            let client = Client::build(face, onelock::Client::builder(), name).unwrap();
            for lock in sides(&client) {
                let error = lock.acquire().map(drop).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains("one server that decides"), "{error}");
            }
        }
    });
}

#[test]
fn in_a_cluster() {
    let cluster = Cluster::start(Flavor::Valkey91);
    on_both(|face| {
        let name = cluster.name_on(0, if face == Face::Async { "a" } else { "b" });
        let clients = [(); 2].map(|()| Client::build(face, onelock::Client::builder(), &cluster.url()).unwrap());
        std::thread::scope(|scope| {
            for client in &clients {
                let name = &name;
                scope.spawn(move || {
                    for turn in 0..20 {
                        let kind = if turn % 2 == 0 { Kind::Read } else { Kind::Write };
                        client.lock_of(kind, name).acquire_within(SOON).unwrap().released();
                    }
                });
            }
        });
    });
}
