//! Read/write locks on real servers: what arrives late, what is never answered, and what stays after a release.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop at once, with its message")]

use std::sync::atomic::{AtomicBool, Ordering};

use onelock::{Error, ErrorKind, Kind, LossReason, Release};
use onelock_tests::face::{Client, Lease, Lock, block_on, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::servers::Server;
use onelock_tests::stage::{SOON, Stage, fails, ms, unhurried};

fn sides(client: &Client) -> [Lock; 2] {
    [Kind::Read, Kind::Write].map(|kind| client.lock_of(kind, "x"))
}

fn downgrade(lease: &Lease) -> Result<(), Error> {
    match lease {
        Lease::Async(lease) => block_on(lease.downgrade()),
        Lease::Blocking(lease) => lease.downgrade(),
    }
}

fn of(verb: &str) -> Match {
    Match::script(scripts::RW_LOCK).with_arg(verb)
}

/// Sends once more what a client sent before, as a network does that lost the first copy for a while.
fn arrives_again(stage: &Stage, matching: &Match) {
    let passed = stage.requests(matching);
    assert!(!passed.is_empty(), "nothing of this kind was sent");
    for one in passed {
        stage.server.cmd(&one.args);
    }
}

fn ends_at(server: &Server) -> i64 {
    server.int(&["PEXPIRETIME", "x"])
}

#[test]
fn a_late_request_to_write_of_who_reads_by_now_keeps_nobody_out() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (one, rival) = (stage.client_with(face, unhurried()), stage.rival(face));
        for (verb, wait) in [("enter", SOON), ("try", ms(0))] {
            let lease = sides(&one)[1].acquire_within(wait).unwrap();
            downgrade(&lease).unwrap();
            arrives_again(&stage, &of(verb));
            assert!(!stage.exists("onelock_queue:{x}"), "the reader waits to write");
            let beside = sides(&rival)[0].try_acquire().unwrap().expect("a reader beside a reader");
            assert_eq!(beside.released(), Release::Released);
            assert_eq!(lease.released(), Release::Released);
            arrives_again(&stage, &of("downgrade"));
            sides(&rival)[1].try_acquire().unwrap().expect("nobody is there").released();
        }
    });
}

#[test]
fn a_reader_that_stays_after_its_release_is_not_renewed_by_a_late_copy() {
    on_both(|face| {
        let stage = Stage::valkey();
        let [read, write] = sides(&stage.client_with(face, unhurried()));
        let rival = stage.rival(face);
        let lease = read.min_hold(ms(20_000)).ttl(ms(60_000)).acquire_within(SOON).unwrap();
        lease.extend(ms(60_000)).unwrap();
        assert_eq!(lease.released(), Release::Released);
        let end = ends_at(&stage.server);
        for late in [Match::script(scripts::RENEW), of("retain"), of("read")] {
            arrives_again(&stage, &late);
            assert_eq!(ends_at(&stage.server), end, "kept for longer");
        }
        // nor is it released before its time
        stage.server.cmd(
            &stage.requests(&of("retain"))[0]
                .args
                .iter()
                .map(|arg| if arg == b"retain" { b"leave".to_vec() } else { arg.clone() })
                .collect::<Vec<_>>(),
        );
        assert_eq!(ends_at(&stage.server), end);
        assert_eq!(write.refusal(ms(0)), ErrorKind::Busy);
        // it is nobody's, beside one that reads
        let beside = sides(&rival)[0].clone().ttl(ms(10_000)).auto_renew(false).acquire_within(SOON).unwrap();
        let seen = rival.inspect("x").unwrap().unwrap();
        assert_eq!((seen.kind, seen.hold_count), (Kind::Read, 1));
        assert_eq!(beside.released(), Release::Released);
        let seen = rival.inspect("x").unwrap().unwrap();
        assert_eq!((seen.kind, seen.hold_count), (Kind::Read, 0));
    });
}

#[test]
fn readers_get_in_between_writers_whose_keys_stay_after_their_release() {
    on_both(|face| {
        let server = Server::valkey();
        let client = || Client::build(face, unhurried(), &server.url()).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (client, over) = (client(), &over);
                scope.spawn(move || {
                    let write = sides(&client)[1].clone().min_hold(ms(80));
                    while !over.load(Ordering::SeqCst) {
                        write.acquire_within(SOON * 3).unwrap().released();
                    }
                });
            }
            let read = sides(&client())[0].clone();
            let met: Vec<_> = (0..4).map(|_| read.acquire_within(SOON).map(|lease| lease.released())).collect();
            over.store(true, Ordering::SeqCst);
            for one in met {
                one.unwrap();
            }
        });
    });
}

#[test]
fn who_may_not_set_a_time_to_live_leaves_nothing_for_ever() {
    on_both(|face| {
        let server = Server::valkey();
        server.cmd(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-pexpire"]);
        let client = Client::build(face, unhurried(), &server.url_with("app:secret", "")).unwrap();
        for lock in sides(&client) {
            assert_eq!(lock.refusal(ms(0)), ErrorKind::NotPermitted);
            let redis::Value::Array(keys) = server.cmd(&["KEYS", "*"]) else { panic!("no list") };
            for key in keys.iter().map(onelock_tests::resp::text) {
                assert!(server.int(&["PTTL", &key]) >= 0, "{key} stays for ever");
            }
        }
    });
}

#[test]
fn a_downgrade_without_an_answer_is_asked_for_again() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client_with(face, unhurried().request_timeout(ms(2000)));
        let [read, write] = sides(&client).map(|lock| lock.ttl(ms(120_000)));
        let lease = write.acquire_within(SOON).unwrap();
        let fence = lease.fence();
        let silent = stage.proxy.on(of("downgrade")).drop_reply();
        fails(downgrade(&lease), ErrorKind::Unavailable);
        // the server may have it as either: whoever attached it would have to know
        let error = fails(lease.detach(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("downgrade() again"), "{error}");
        assert!(lease.is_held());
        silent.remove();
        downgrade(&lease).unwrap();
        assert!(lease.fence() > fence);
        let lease = read.attach(&lease.detach().unwrap()).unwrap();
        assert!(lease.is_held());
        lease.released();
    });
}

#[test]
fn what_is_lost_or_released_is_not_downgraded() {
    on_both(|face| {
        let stage = Stage::valkey();
        let write = sides(&stage.client_with(face, unhurried()))[1].clone();
        let lease = write.acquire_within(SOON).unwrap();
        lease.released();
        fails(downgrade(&lease), ErrorKind::NotHeld);
        let lease = write.acquire_within(SOON).unwrap();
        assert!(stage.rival(face).force_release("x").unwrap());
        let error = downgrade(&lease).unwrap_err();
        assert_eq!((error.kind(), lease.loss()), (ErrorKind::Lost, Some(LossReason::Taken)));
        assert!(!stage.exists("x"), "made anew");
    });
}

#[test]
fn readers_are_listed_with_their_lock_alone() {
    on_both(|face| {
        let server = Server::valkey();
        let client = Client::build(face, unhurried().inspectable(true), &server.url()).unwrap();
        let leases: Vec<_> = (0..3).map(|_| sides(&client)[0].acquire_within(SOON).unwrap()).collect();
        let braces = client.lock_of(Kind::Read, "{a}b").acquire_within(SOON).unwrap();
        let foreign = "d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:57:write:rwlock_timeout:x";
        server.cmd(&["SET", foreign, "1", "PX", "60000"]);
        server.cmd(&["SET", "{x}:d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:57:rwlock_timeout:12", "1", "PX", "60000"]);
        let entries = client.listing("*").unwrap();
        let mut names: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        names.sort();
        assert_eq!(names, [foreign, "x", "{a}b"]);
        let x = entries.iter().find(|entry| entry.name == b"x").unwrap();
        assert_eq!(x.inspection.hold_count, 3);
        for lease in leases.into_iter().chain([braces]) {
            assert_eq!(lease.released(), Release::Released);
        }
    });
}

#[test]
fn a_foreign_reader_who_entered_several_times_stays_until_its_last_end() {
    on_both(|face| {
        let server = Server::valkey();
        let read = sides(&Client::build(face, unhurried(), &server.url()).unwrap())[0].clone();
        let java = "d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:57";
        let timeout = |n: u8| format!("{{x}}:{java}:rwlock_timeout:{n}");
        server.cmd(&["HSET", "x", "mode", "read", java, "3"]);
        server.cmd(&["PEXPIRE", "x", "60000"]);
        for (n, left) in [(1, "5000"), (3, "40000")] {
            server.cmd(&["SET", &timeout(n), "1", "PX", left]);
        }
        // our own phase, and one that dies in it
        let dead = read.clone().ttl(ms(50_000)).acquire_within(SOON).unwrap();
        let lease = read.acquire_within(SOON).unwrap();
        server.cmd(&["DEL", &format!("{{x}}:{}:rwlock_timeout:1", dead.token())]);
        server.cmd(&["ZADD", "onelock_readers:{x}", "1", dead.token()]);
        assert_eq!(lease.released(), Release::Released);
        let left = server.int(&["PTTL", "x"]);
        assert!((1..=40_000).contains(&left), "{left}");
        assert_eq!(server.int(&["PEXPIRETIME", "x"]), server.int(&["PEXPIRETIME", &timeout(3)]));
        assert_eq!(server.int(&["HEXISTS", "x", dead.token()]), 0, "the dead one is gone");
        // and when all of them are over, so is the lock
        server.cmd(&["DEL", &timeout(1), &timeout(3)]);
        read.acquire_within(SOON).unwrap().released();
        assert_eq!(server.int(&["EXISTS", "x"]), 0);
    });
}
