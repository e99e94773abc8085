//! The server says no: failing to persist, no replicas, no permission, no such protocol, another type under the name.

use std::time::{Duration, Instant};

use onelock::{Error, ErrorKind, Kind, LossReason, Release};
use onelock_tests::face::{Client, Face, everywhere, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{REQUEST, SLACK, SOON, Stage, fails, ms, promised, quick, quick_once, timed, unhurried};
use onelock_tests::wait::wait_until;

const KINDS: [Kind; 2] = [Kind::Mutex, Kind::Reentrant];

/// Makes a server refuse every write because its last snapshot failed.
fn fail_to_persist(server: &Server) {
    // a folder stands where the snapshot should go
    std::fs::create_dir_all(server.folder().join("dump.rdb/in the way")).unwrap();
    server.config_set("save", "3600 1");
    server.cmd(&["BGSAVE"]);
    wait_until(SOON, "the snapshot to fail", || server.info("persistence")["rdb_last_bgsave_status"] == "err");
}

/// While the server refuses writes: an acquire says so, a holder keeps its lease until the deadline, a release is
/// finished as soon as the server lets it.
fn expect_refusal(stage: &Stage, face: Face, word: &str, refuse: impl FnOnce(), allow: impl FnOnce()) {
    let client = stage.client(face);
    let short = client.lock("short").ttl(ms(6000)).acquire().unwrap();
    let released = client.lock("released").ttl(ms(30_000)).acquire().unwrap();
    refuse();
    for kind in KINDS {
        let before = stage.requests(&Match::any()).len();
        let (took, result) = timed(|| client.lock_of(kind, "new").acquire_within(ms(300)));
        let error = fails(result, ErrorKind::ServerRefused);
        assert!(error.to_string().contains(word), "{error}");
        assert!(took < promised(ms(300)), "{took:?}");
        assert!(stage.requests(&Match::any()).len() - before < 30);
    }
    let error = fails(short.extend(ms(60_000)), ErrorKind::ServerRefused);
    assert!(error.to_string().contains(word) && short.is_held(), "{error}");
    let since = Instant::now();
    assert_eq!(released.released(), Release::Unconfirmed);
    assert!(!released.is_held() && since.elapsed() < REQUEST + SLACK);
    assert_eq!(short.wait_lost(SOON), Some(LossReason::Expired));
    assert!(stage.exists("released"), "still refused");
    assert!(stage.requests(&scripts::release()).len() < 60);
    allow();
    wait_until(SOON, "the release to be finished long before the ttl", || !stage.exists("released"));
    assert_eq!(short.released(), Release::AlreadyExpired);
    assert!(client.lock("new").acquire_within(SOON).unwrap().is_held());
}

#[test]
fn f18_misconf_is_named_and_the_holder_loses_at_its_deadline() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let server = &stage.server;
        let allow = || server.config_set("stop-writes-on-bgsave-error", "no");
        expect_refusal(&stage, face, "MISCONF", || fail_to_persist(server), allow);
    });
}

#[test]
fn f19_noreplicas_is_named_and_the_holder_loses_at_its_deadline() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let set = |count| stage.server.config_set("min-replicas-to-write", count);
        expect_refusal(&stage, face, "NOREPLICAS", || set("1"), || set("0"));
    });
}

fn with_user(flavor: Flavor, rules: &str) -> Stage {
    Stage::with(Server::builder(flavor).user("app", &format!("on >secret-word {rules}")).start())
}

fn as_app(stage: &Stage, face: Face) -> Client {
    Client::build(face, quick(), &stage.proxy.url_with("app:secret-word", "/")).unwrap()
}

#[test]
fn f20_without_channel_permission_releases_succeed_and_waiters_poll() {
    everywhere(|flavor, face| {
        let stage = with_user(flavor, "~* resetchannels +@all");
        let (client, other) = (as_app(&stage, face), as_app(&stage, face));
        for kind in KINDS {
            let name = format!("{kind:?}");
            let lease = client.lock_of(kind, &name).acquire().unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| other.lock_of(kind, &name).acquire_within(SOON).unwrap());
                wait_until(SOON, "the waiter to be refused", || other.stats().waiting == 1);
                assert_eq!(lease.released(), Release::Released, "published or not, it is released");
                let (took, next) = timed(|| waiter.join().unwrap());
                assert!(took < ms(15_000), "by the safety poll, and not by the end of the lease: {took:?}");
                assert_eq!(next.released(), Release::Released);
            });
            stage.wait_clean(&client, &name, SOON);
        }
    });
}

/// What an acquire is refused with, once and for good: no retry, no secret, nothing left.
fn denied(stage: &Stage, client: &Client, name: &str, kind: ErrorKind) -> Error {
    let before = stage.requests(&Match::any()).len();
    let (took, result) = timed(|| client.lock(name).acquire_within(SOON));
    let error = fails(result, kind);
    assert!(took < SOON / 2, "no reason to wait: {took:?}");
    let asked = stage.requests(&Match::any()).len() - before;
    assert!(asked <= 12, "{asked} requests");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(!error.is_retryable() && error.lock_name() == Some(name), "{error}");
    assert!(!stage.exists(name));
    error
}

#[test]
fn f21_missing_permissions_are_named_and_not_retried() {
    everywhere(|flavor, face| {
        // each with what the message must name
        let lacking = [
            ("~* &* +@all -evalsha -eval", "eval"),
            ("~* &* +@all -@scripting", "eval"),
            ("~* &* +@all -set", "set"),
            ("~other:* &* +@all", "key"),
        ];
        for (rules, word) in lacking {
            let stage = with_user(flavor, rules);
            let error = denied(&stage, &as_app(&stage, face), "a", ErrorKind::NotPermitted);
            // older servers do not say which command it was inside a script
            let mute = word == "set" && matches!(flavor, Flavor::Redis62 | Flavor::Redis70);
            assert!(mute || error.to_string().to_lowercase().contains(word), "{rules}: {error}");
        }
        // neither may a half-made hold be left where a later command of the script is refused
        let stage = with_user(flavor, "~* &* +@all -pexpire");
        let client = as_app(&stage, face);
        fails(client.reentrant_lock("a").acquire_within(SOON), ErrorKind::NotPermitted);
        assert!(!stage.exists("a"), "no lock that lasts for ever");
    });
}

#[test]
fn f21_wrong_and_missing_passwords_are_told_apart_from_trouble() {
    everywhere(|flavor, face| {
        let stage = Stage::with(Server::builder(flavor).password("top-secret/@:%word").start());
        for userinfo in ["", ":wrong-secret", "nobody:wrong-secret"] {
            let client = Client::build(face, quick(), &stage.proxy.url_with(userinfo, "/")).unwrap();
            denied(&stage, &client, "a", ErrorKind::AuthFailed);
            let error = fails(client.check(), ErrorKind::AuthFailed);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let good = stage.proxy.url_with(":top-secret%2F%40%3A%25word", "/");
        let client = Client::connect(face, quick(), &good).unwrap();
        let lease = client.lock("a").acquire().unwrap();
        assert_eq!(lease.released(), Release::Released);
    });
}

#[test]
fn f21_a_user_who_is_locked_out_meanwhile_loses_at_the_deadline() {
    everywhere(|flavor, face| {
        let stage = with_user(flavor, "~* &* +@all");
        let client = as_app(&stage, face);
        let lease = client.lock("a").ttl(ms(1200)).acquire().unwrap();
        stage.server.cmd(&["ACL", "SETUSER", "app", "-@all"]);
        fails(client.lock("b").try_acquire(), ErrorKind::NotPermitted);
        fails(lease.extend(ms(60_000)), ErrorKind::NotPermitted);
        assert!(lease.is_held(), "unknown is not lost");
        assert_eq!(lease.wait_lost(SOON), Some(LossReason::Expired));
        let renewals = stage.requests(&scripts::renew()).len();
        assert!((1..40).contains(&renewals), "{renewals}");
        stage.server.cmd(&["ACL", "SETUSER", "app", "+@all"]);
        assert!(client.lock("b").try_acquire().unwrap().is_some(), "and is back at once");
    });
}

#[test]
fn f22_another_type_under_the_name_is_wrong_kind_and_left_untouched() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let makers: [(&str, &[&str]); 9] = [
            ("list", &["RPUSH", "a", "x"]),
            ("set", &["SADD", "a", "x"]),
            ("zset", &["ZADD", "a", "1", "x"]),
            ("stream", &["XADD", "a", "1-1", "f", "x"]),
            ("hash", &["HSET", "a", "mode", "write", "x", "1"]),
            ("string", &["SET", "a", "x"]),
            ("string", &["SET", "a", "onelock1:0123456789abcdef0123456789abcdef"]),
            ("hash", &["HSET", "a", "sku", "5"]),
            ("hash", &["HSET", "a", "f5a1c6a2-7d4b-4f0e-9d7c-0a4b3c2d1e0f:42", "1"]),
        ];
        let client = stage.client(face);
        for (found, maker) in makers {
            stage.server.cmd(&["FLUSHALL"]);
            stage.server.cmd(maker);
            let dump = || stage.server.cmd(&["DUMP", "a"]);
            let before = dump();
            for kind in KINDS {
                // a foreign holder of the same kind is no mistake
                let (mutex, hash) = (found == "string", maker[2].ends_with(":42"));
                let expected = match kind {
                    Kind::Mutex if mutex => ErrorKind::Timeout,
                    Kind::Reentrant if hash => ErrorKind::Timeout,
                    _ => ErrorKind::WrongKind,
                };
                let error = fails(client.lock_of(kind, "a").acquire_within(ms(100)), expected);
                if expected == ErrorKind::WrongKind {
                    assert!(error.to_string().contains(found), "{found}: {error}");
                    let error = fails(client.lock_of(kind, "a").is_locked(), ErrorKind::WrongKind);
                    assert_eq!(error.lock_name(), Some("a"));
                }
            }
            if found != "string" && !maker[2].ends_with(":42") {
                fails(client.inspect("a"), ErrorKind::WrongKind);
                fails(client.force_release_foreign("a"), ErrorKind::WrongKind);
            }
            if !maker[2].starts_with("onelock1:") && !maker[2].ends_with(":42") {
                let error = fails(client.force_release("a"), ErrorKind::WrongKind);
                assert_eq!(error.to_string().contains("foreign"), found == "string", "{error}");
            }
            assert_eq!(dump(), before, "{found} untouched");
        }
    });
}

#[test]
fn f35_servers_and_users_without_hello_are_spoken_to_in_resp2() {
    everywhere(|flavor, face| {
        for how in ["no permission", "unknown command", "asked for"] {
            quick_once(ms(900), &format!("{how}: woken, not polled"), || woken_in_resp2(flavor, face, how));
        }
    });
}

/// How long a waiter with such a server or user has to wait after the release.
fn woken_in_resp2(flavor: Flavor, face: Face, how: &str) -> Duration {
    let stage = with_user(flavor, if how == "no permission" { "~* &* +@all -hello" } else { "~* &* +@all" });
    if how == "unknown command" {
        stage.proxy.on(Match::command("HELLO")).answer("-ERR unknown command 'HELLO'\r\n");
    }
    let tail = if how == "asked for" { "/?protocol=resp2" } else { "/" };
    let client = Client::connect(face, unhurried(), &stage.proxy.url_with("app:secret-word", tail)).unwrap();
    let first = client.lock("a").acquire().unwrap();
    let took = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
        stage.proxy.wait_requests(&Match::command("SUBSCRIBE"), 1);
        wait_until(SOON, "the second look", || stage.requests(&scripts::acquire()).len() >= 3);
        assert_eq!(first.released(), Release::Released);
        let (took, second) = timed(|| waiter.join().unwrap());
        assert_eq!(second.released(), Release::Released);
        took
    });
    stage.wait_clean(&client, "a", SOON);
    took
}

#[test]
fn f35_a_push_between_replies_is_nobodys_reply() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        client.lock("warm").acquire().unwrap().released();
        let pushes = b">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n>3\r\n+message\r\n$9\r\nelsewhere\r\n$1\r\n0\r\n";
        let busy = b"*4\r\n:1700000000000000\r\n:2\r\n:900\r\n:1\r\n";
        stage.proxy.on(scripts::acquire()).replace_reply([&pushes[..], busy].concat());
        assert!(client.lock("a").try_acquire().unwrap().is_none(), "the reply behind the pushes is the one");
        assert!(client.lock("b").try_acquire().unwrap().is_none());
        stage.proxy.heal();
        assert!(client.lock("c").try_acquire().unwrap().is_some());
    });
}
