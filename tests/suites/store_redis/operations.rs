//! Every operation and every reply, on every server.

use onelock::machine::{InspectedKey, Kind, Op, Renewal, Reply};
use onelock_tests::servers::{Server, all_flavors};

use crate::asker::{Asker, FENCE_TTL, TTL, WAYS, acquire, attach, claim, key, now, release, renew};

const KINDS: [Kind; 2] = [Kind::Mutex, Kind::Reentrant];

/// A token as this library makes them; `n` tells them apart.
fn token(kind: Kind, n: u8) -> String {
    match kind {
        Kind::Mutex => format!("onelock1:{n:032x}"),
        _ => format!("ffffffff-ffff-4fff-bfff-ffffffffffff:{n}"),
    }
}

/// Runs a test on every server, every way, on a key of its own.
fn everywhere(test: impl Fn(&Server, &Asker, &str)) {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        for way in WAYS {
            let asker = Asker::new(&server.url(), way);
            for name in ["plain", "{tag}:x", "odd{name", "\u{e9}\0 x"] {
                server.cmd(&["FLUSHALL"]);
                test(&server, &asker, name);
            }
        }
    }
}

fn pttl(server: &Server, name: &str) -> i64 {
    server.int(&["PTTL", name])
}

fn fence_name(name: &str) -> String {
    if name.contains('{') { format!("onelock_fence:{name}") } else { format!("onelock_fence:{{{name}}}") }
}

#[test]
fn a_lock_is_taken_once_and_released_once() {
    everywhere(|server, asker, name| {
        for kind in KINDS {
            let (mine, other) = (claim(kind, name, &token(kind, 1)), claim(kind, name, &token(kind, 2)));
            let before = now();
            let answer = asker.answer(&acquire(&mine));
            assert!(before <= answer.sent_at && answer.sent_at < answer.received_at && answer.received_at <= now());
            assert!(answer.server_time_us.is_some_and(|us| us > 1_700_000_000_000_000), "{answer:?}");
            assert!(matches!(pttl(server, name), 50_000..=60_000));
            match asker.reply(&acquire(&other)) {
                Reply::Denied { ttl_left_ms: Some(50_000..=60_000), announces: true } => {}
                reply => panic!("{reply:?}"),
            }
            assert_eq!(asker.reply(&release(&other)), Reply::Released(false));
            assert_eq!(server.int(&["EXISTS", name]), 1);
            assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
            assert_eq!(asker.reply(&release(&mine)), Reply::Released(false));
            assert_eq!(server.int(&["EXISTS", name]), 0);
        }
    });
}

#[test]
fn a_resent_acquire_is_the_same_grant() {
    everywhere(|server, asker, name| {
        for kind in KINDS {
            let mine = claim(kind, name, &token(kind, 1));
            let fence = asker.fence(&acquire(&mine));
            server.cmd(&["PEXPIRE", name, "5000"]);
            assert_eq!(asker.reply(&acquire(&mine)), Reply::Granted { fence: Some(fence), again: true });
            assert!(pttl(server, name) > 50_000, "refreshed");
            server.cmd(&["PEXPIRE", name, "900000"]);
            assert_eq!(asker.reply(&acquire(&mine)), Reply::Granted { fence: Some(fence), again: true });
            assert!(pttl(server, name) > 800_000, "never shortened");
            server.cmd(&["PERSIST", name]);
            asker.reply(&acquire(&mine));
            assert!(matches!(pttl(server, name), 50_000..=60_000), "never without end");
            asker.reply(&release(&mine));
        }
    });
}

#[test]
fn an_attach_exchanges_the_token_and_leaves_the_rest_of_the_hold() {
    everywhere(|server, asker, name| {
        for kind in KINDS {
            let [old, new, late] = [1, 2, 3].map(|n| claim(kind, name, &token(kind, n)));
            assert_eq!(asker.reply(&attach(&new, &old)), Reply::Gone, "nothing is created");
            assert_eq!(server.int(&["DBSIZE"]), 0);
            let info = Some("onelock1:former".into());
            let fence =
                asker.fence(&Op::Acquire { claim: old.clone(), ttl_ms: TTL, fence_ttl_ms: Some(FENCE_TTL), info });
            if kind == Kind::Reentrant {
                asker.reply(&Op::SetCount { claim: old.clone(), count: 2, ttl_ms: TTL });
            }
            server.cmd(&["PEXPIRE", name, "5000"]);
            let exchanged = |again| Reply::Granted { fence: Some(fence), again };
            assert_eq!(asker.reply(&attach(&new, &old)), exchanged(false));
            assert!(matches!(pttl(server, name), 50_000..=60_000), "as long as the new holder asks");
            assert_eq!(server.text(&["GET", &fence_name(name)]), fence.to_string());
            server.cmd(&["PEXPIRE", name, "900000"]);
            assert_eq!(asker.reply(&attach(&new, &old)), exchanged(true), "sent again");
            assert!(pttl(server, name) > 800_000, "never shortened");
            assert_eq!(asker.reply(&attach(&late, &old)), Reply::Gone, "a proof attaches once");
            let Reply::Inspected(Some(standing)) = asker.reply(&Op::Inspect { key: key(name) }) else { panic!() };
            assert_eq!((standing.holder, standing.fence), (new.token.as_bytes().to_vec(), Some(fence)));
            assert_eq!((standing.count, standing.info), (if kind == Kind::Reentrant { 2 } else { 1 }, None));
            assert_eq!(asker.reply(&release(&old)), Reply::Released(false));
            assert_eq!(asker.reply(&renew(&old, TTL)), Reply::Renewed(vec![Renewal::NotMine]));
            let info =
                Op::Attach { claim: late.clone(), from: new.token.clone(), ttl_ms: 1, info: Some("onelock1:i".into()) };
            assert_eq!(asker.reply(&info), exchanged(false));
            assert!(pttl(server, name) > 800_000, "never shortened");
            if kind == Kind::Reentrant {
                assert_eq!(server.text(&["HGET", name, "onelock_info"]), "onelock1:i");
            }
            // a counter that was lost is not made up
            server.cmd(&["DEL", &fence_name(name)]);
            server.cmd(&["PERSIST", name]);
            let known = if kind == Kind::Reentrant { Some(fence) } else { None };
            assert_eq!(asker.reply(&attach(&old, &late)), Reply::Granted { fence: known, again: false });
            assert!(matches!(pttl(server, name), 50_000..=60_000), "never without end");
            assert_eq!(server.int(&["DBSIZE"]), 1);
            assert_eq!(asker.reply(&release(&old)), Reply::Released(true));
        }
    });
}

#[test]
fn fencing_tokens_grow_whatever_happens_to_the_counter() {
    everywhere(|server, asker, name| {
        for kind in KINDS {
            server.cmd(&["FLUSHALL"]);
            let counter = fence_name(name);
            let grant = |n| asker.fence(&acquire(&claim(kind, name, &token(kind, n))));
            let free = || server.cmd(&["DEL", name]);
            let first = grant(1);
            assert!(first > 1_700_000_000_000_000, "from the server's clock: {first}");
            assert_eq!(server.text(&["GET", &counter]), first.to_string(), "every digit");
            assert!(matches!(pttl(server, &counter), 604_700_000..=604_800_000));
            free();
            // ahead of the clock: one more than before
            server.cmd(&["SET", &counter, "9007199254740000"]);
            assert_eq!(grant(2), 9_007_199_254_740_001);
            assert_eq!(server.text(&["GET", &counter]), "9007199254740001");
            // gone, unreadable, of another type, past what can be counted: from the clock
            for broken in [
                &["DEL", &counter][..],
                &["SET", &counter, "a"],
                &["SET", &counter, "1e15"],
                &["SET", &counter, "0"],
                &["SET", &counter, "9007199254740991"],
            ] {
                free();
                server.cmd(broken);
                let fence = grant(3);
                assert!((first + 1..9_000_000_000_000_000).contains(&fence), "{broken:?}: {fence}");
                assert_eq!(server.text(&["GET", &counter]), fence.to_string());
            }
            free();
            server.cmd(&["DEL", &counter]);
            server.cmd(&["RPUSH", &counter, "a"]);
            assert!(grant(4) > first);
            asker.reply(&Op::ForceRelease { key: key(name), foreign: false });
        }
    });
}

#[test]
fn a_fence_lost_while_held_is_drawn_anew_and_kept() {
    everywhere(|server, asker, name| {
        for kind in KINDS {
            let mine = claim(kind, name, &token(kind, 1));
            let fence = asker.fence(&acquire(&mine));
            server.cmd(&["DEL", &fence_name(name)]);
            if kind == Kind::Reentrant {
                assert_eq!(asker.fence(&acquire(&mine)), fence, "the hash still knows it");
                server.cmd(&["HDEL", name, "onelock_fence"]);
            }
            let again = asker.fence(&acquire(&mine));
            assert!(again > fence);
            assert_eq!(server.text(&["GET", &fence_name(name)]), again.to_string());
            assert_eq!(asker.fence(&acquire(&mine)), again);
            asker.reply(&release(&mine));
        }
    });
}

#[test]
fn without_fencing_there_is_no_companion() {
    everywhere(|server, asker, name| {
        for kind in KINDS {
            let mine = claim(kind, name, &token(kind, 1));
            let op = Op::Acquire { claim: mine.clone(), ttl_ms: TTL, fence_ttl_ms: None, info: Some("i".into()) };
            assert_eq!(asker.reply(&op), Reply::Granted { fence: None, again: false });
            assert_eq!(asker.reply(&op), Reply::Granted { fence: None, again: true });
            assert_eq!(server.int(&["DBSIZE"]), 1);
            asker.reply(&release(&mine));
        }
    });
}

#[test]
fn the_hash_is_what_redisson_expects() {
    everywhere(|server, asker, name| {
        let mine = claim(Kind::Reentrant, name, &token(Kind::Reentrant, 1));
        let op = Op::Acquire {
            claim: mine.clone(),
            ttl_ms: TTL,
            fence_ttl_ms: Some(FENCE_TTL),
            info: Some("onelock1:info".into()),
        };
        let fence = asker.fence(&op);
        assert_eq!(server.text(&["HGET", name, &*mine.token]), "1");
        assert_eq!(server.text(&["HGET", name, "onelock_fence"]), fence.to_string());
        assert_eq!(server.text(&["HGET", name, "onelock_info"]), "onelock1:info");
        assert_eq!(server.int(&["HLEN", name]), 3);
        // a hold of Redisson's own
        asker.reply(&release(&mine));
        server.cmd(&["HSET", name, "d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:7", "2"]);
        server.cmd(&["PEXPIRE", name, "30000"]);
        match asker.reply(&op) {
            Reply::Denied { ttl_left_ms: Some(20_000..=30_000), announces: true } => {}
            reply => panic!("{reply:?}"),
        }
        assert_eq!(server.text(&["HGET", name, "d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:7"]), "2");
    });
}

#[test]
fn counts_are_set_and_verified() {
    everywhere(|server, asker, name| {
        let mine = claim(Kind::Reentrant, name, &token(Kind::Reentrant, 1));
        let set = |count, ttl_ms| asker.reply(&Op::SetCount { claim: mine.clone(), count, ttl_ms });
        assert_eq!(set(2, TTL), Reply::Counted(false));
        assert_eq!(server.int(&["EXISTS", name]), 0, "nothing is created");
        asker.reply(&acquire(&mine));
        assert_eq!(set(2, 900_000), Reply::Counted(true));
        assert_eq!(server.text(&["HGET", name, &*mine.token]), "2");
        assert_eq!(set(1, 5), Reply::Counted(true));
        assert!(pttl(server, name) > 800_000, "never shortened");
        server.cmd(&["DEL", name]);
        server.cmd(&["SET", name, "x"]);
        assert_eq!(set(1, TTL), Reply::Counted(false));
    });
}

#[test]
fn a_batch_renews_each_by_itself() {
    everywhere(|server, asker, name| {
        let names: Vec<String> = (0..5).map(|n| format!("{{{n}}}{name}")).collect();
        let mutex = claim(Kind::Mutex, &names[0], &token(Kind::Mutex, 1));
        let reentrant = claim(Kind::Reentrant, &names[1], &token(Kind::Reentrant, 1));
        let gone = claim(Kind::Mutex, &names[2], &token(Kind::Mutex, 1));
        let stolen = claim(Kind::Mutex, &names[3], &token(Kind::Mutex, 1));
        let changed = claim(Kind::Reentrant, &names[4], &token(Kind::Reentrant, 1));
        asker.reply(&acquire(&mutex));
        asker.reply(&acquire(&reentrant));
        server.cmd(&["SET", &names[3], "somebody else"]);
        server.cmd(&["RPUSH", &names[4], "a list"]);
        let holds =
            [&mutex, &gone, &reentrant, &stolen, &changed, &mutex].map(|claim| (claim.clone(), 900_000)).to_vec();
        let [renewed, lost] = [Renewal::Renewed, Renewal::NotMine];
        let expected = [&renewed, &lost, &renewed, &lost, &lost, &renewed].map(Clone::clone).to_vec();
        assert_eq!(asker.reply(&Op::Renew { holds }), Reply::Renewed(expected));
        assert!(pttl(server, &names[0]) > 800_000 && pttl(server, &names[1]) > 800_000);
        assert_eq!(server.int(&["EXISTS", &names[2]]), 0, "never created again");
        assert_eq!(pttl(server, &names[3]), -1, "somebody else's is left alone");
        assert_eq!(asker.reply(&renew(&mutex, 5)), Reply::Renewed(vec![Renewal::Renewed]));
        assert!(pttl(server, &names[0]) > 800_000, "never shortened");
        server.cmd(&["PERSIST", &names[0]]);
        asker.reply(&renew(&mutex, TTL));
        assert!(matches!(pttl(server, &names[0]), 50_000..=60_000), "never without end");
    });
}

/// What to put under a key, and what it is called.
const OTHERS: [(&[&str], &str); 7] = [
    (&["RPUSH"], "list"),
    (&["SADD"], "set"),
    (&["ZADD", "1"], "zset"),
    (&["HSET", "mode"], "hash"),
    (&["HSET", "sku"], "hash"),
    (&["HSET", "java:1"], "hash"),
    (&["HSET", "f5a1c6a2-7d4b-4f0e-9d7c-0a4b3c2d1e0f:1", "1", "sku"], "hash"),
];

#[test]
fn what_is_no_lock_of_the_kind_is_named_and_left_alone() {
    everywhere(|server, asker, name| {
        let put = |words: &[&str]| {
            server.cmd(&["DEL", name]);
            let mut command = vec![words[0], name];
            command.extend(&words[1..]);
            command.push("write");
            server.cmd(&command);
        };
        for kind in KINDS {
            let mine = claim(kind, name, &token(kind, 1));
            let wrong = |found: &str| Reply::WrongKind { found: found.into() };
            for (words, found) in OTHERS {
                put(words);
                let before = server.cmd(&["DUMP", name]);
                assert_eq!(asker.reply(&acquire(&mine)), wrong(found));
                assert_eq!(asker.reply(&release(&mine)), Reply::Released(false));
                let other = claim(kind, name, &token(kind, 2));
                assert_eq!(asker.reply(&attach(&other, &mine)), Reply::Gone);
                let theirs = claim(kind, name, "f5a1c6a2-7d4b-4f0e-9d7c-0a4b3c2d1e0f:1");
                assert_eq!(asker.reply(&attach(&other, &theirs)), Reply::Gone, "an owner in what is no lock");
                assert_eq!(asker.reply(&renew(&mine, TTL)), Reply::Renewed(vec![Renewal::NotMine]));
                assert_eq!(asker.reply(&Op::ForceRelease { key: key(name), foreign: false }), wrong(found));
                let Reply::Inspected(Some(standing)) = asker.reply(&Op::Inspect { key: key(name) }) else { panic!() };
                assert_eq!((standing.kind, standing.ttl_left_ms), (Err(found.to_owned()), None));
                assert_eq!(server.cmd(&["DUMP", name]), before, "{words:?}");
                assert_eq!(server.int(&["DBSIZE"]), 1, "no fencing counter either");
            }
        }
        put(&["SET"]);
        let reentrant = claim(Kind::Reentrant, name, &token(Kind::Reentrant, 1));
        assert_eq!(asker.reply(&acquire(&reentrant)), Reply::WrongKind { found: "string".into() });
        assert_eq!(
            asker.reply(&Op::ForceRelease { key: key(name), foreign: false }),
            Reply::WrongKind { found: "string".into() }
        );
        let forced = Op::ForceRelease { key: key(name), foreign: true };
        assert_eq!(asker.reply(&forced), Reply::Forced(true), "whoever is sure");
        put(&["HSET", "f5a1c6a2-7d4b-4f0e-9d7c-0a4b3c2d1e0f:7"]);
        let mutex = claim(Kind::Mutex, name, &token(Kind::Mutex, 1));
        assert_eq!(asker.reply(&acquire(&mutex)), Reply::WrongKind { found: "hash".into() });
    });
}

#[test]
fn foreign_mutexes_do_not_announce() {
    everywhere(|server, asker, name| {
        server.cmd(&["SET", name, "a redis-py token"]);
        let mine = claim(Kind::Mutex, name, &token(Kind::Mutex, 1));
        assert_eq!(asker.reply(&acquire(&mine)), Reply::Denied { ttl_left_ms: None, announces: false });
    });
}

#[test]
fn inspection_shows_who_holds_it() {
    everywhere(|server, asker, name| {
        let look = || asker.reply(&Op::Inspect { key: key(name) });
        assert_eq!(look(), Reply::Inspected(None));
        let mutex = claim(Kind::Mutex, name, &token(Kind::Mutex, 1));
        let fence = asker.fence(&acquire(&mutex));
        let Reply::Inspected(Some(InspectedKey { ttl_left_ms: Some(ttl), ref holder, .. })) = look() else { panic!() };
        assert!(matches!(ttl, 50_000..=60_000));
        assert_eq!(holder, mutex.token.as_bytes());
        server.cmd(&["PERSIST", name]);
        let mut expected = InspectedKey {
            kind: Ok(Kind::Mutex),
            holder: mutex.token.as_bytes().to_vec(),
            count: 1,
            ttl_left_ms: None,
            fence: Some(fence),
            info: None,
        };
        assert_eq!(look(), Reply::Inspected(Some(expected.clone())));
        let foreign = "x".repeat(5000);
        server.cmd(&["SET", name, &foreign]);
        expected = InspectedKey { holder: foreign.as_bytes()[..4096].to_vec(), fence: None, ..expected };
        assert_eq!(look(), Reply::Inspected(Some(expected)), "another's token is not ours, and it is cut");
        server.cmd(&["DEL", name]);
        let mine = claim(Kind::Reentrant, name, &token(Kind::Reentrant, 1));
        let info = Some("onelock1:i".into());
        let op = Op::Acquire { claim: mine.clone(), ttl_ms: TTL, fence_ttl_ms: Some(FENCE_TTL), info };
        let fence = asker.fence(&op);
        asker.reply(&Op::SetCount { claim: mine.clone(), count: 3, ttl_ms: TTL });
        server.cmd(&["PERSIST", name]);
        let expected = InspectedKey {
            kind: Ok(Kind::Reentrant),
            holder: mine.token.as_bytes().to_vec(),
            count: 3,
            ttl_left_ms: None,
            fence: Some(fence),
            info: Some(b"onelock1:i".to_vec()),
        };
        assert_eq!(look(), Reply::Inspected(Some(expected)));
    });
}

#[test]
fn force_takes_it_from_anybody() {
    everywhere(|server, asker, name| {
        let force = || asker.reply(&Op::ForceRelease { key: key(name), foreign: false });
        assert_eq!(force(), Reply::Forced(false));
        for kind in KINDS {
            asker.reply(&acquire(&claim(kind, name, &token(kind, 1))));
            assert_eq!(force(), Reply::Forced(true));
            assert_eq!(server.int(&["EXISTS", name]), 0);
        }
    });
}

#[test]
fn a_forgotten_script_is_sent_again() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        for way in WAYS {
            let asker = Asker::new(&server.url(), way);
            let monitor = server.monitor();
            let sent = asker.store_stats().commands_sent;
            let mine = claim(Kind::Mutex, "a", &token(Kind::Mutex, 1));
            for round in 1..=3 {
                server.cmd(&["SCRIPT", "FLUSH"]);
                asker.fence(&acquire(&mine));
                assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
                assert_eq!((monitor.count("EVALSHA"), monitor.count("EVAL")), (4 * round - 2, 2 * round));
                asker.fence(&acquire(&mine));
                assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
                assert_eq!((monitor.count("EVALSHA"), monitor.count("EVAL")), (4 * round, 2 * round));
            }
            assert_eq!(asker.store_stats().commands_sent - sent, 18);
        }
    }
}
