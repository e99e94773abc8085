//! Servers that refuse, each for its own reason: what was not done, what still works, and what is said about it.

use onelock::ErrorKind;
use onelock::machine::{Failure, Kind, Op, Renewal, Reply};
use onelock_tests::resp::Connection;
use onelock_tests::servers::{Server, all_flavors};
use onelock_tests::wait::wait_until;

use crate::asker::{Asker, LONG, TTL, WAYS, acquire, attach, claim, release, renew};

const MUTEX: &str = "onelock1:00000000000000000000000000000001";
const OWNER: &str = "ffffffff-ffff-4fff-bfff-ffffffffffff:1";

fn both() -> [(Kind, &'static str); 2] {
    [(Kind::Mutex, MUTEX), (Kind::Reentrant, OWNER)]
}

fn is(failure: &Failure, kind: ErrorKind, transient: bool, word: &str) {
    assert_eq!((failure.kind, failure.transient), (kind, transient), "{failure:?}");
    assert!(failure.detail.contains(word), "{failure:?}");
    assert!(!failure.detail.contains("user_script"), "{failure:?}");
}

#[test]
fn out_of_memory_stops_new_locks_and_no_old_ones() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        for way in WAYS {
            let asker = Asker::new(&server.url(), way);
            for (kind, token) in both() {
                server.config_set("maxmemory", "0");
                let held = claim(kind, "held", token);
                let fence = asker.fence(&acquire(&held));
                server.config_set("maxmemory", "1");
                let wanted = claim(kind, "wanted", token);
                is(&asker.refusal(&acquire(&wanted)), ErrorKind::ServerRefused, false, "OOM");
                let unfenced = Op::Acquire { claim: wanted, ttl_ms: TTL, fence_ttl_ms: None, info: None };
                is(&asker.refusal(&unfenced), ErrorKind::ServerRefused, false, "OOM");
                assert_eq!(server.int(&["EXISTS", "wanted", "onelock_fence:{wanted}"]), 0);
                assert_eq!(asker.reply(&acquire(&held)), Reply::Granted { fence: Some(fence), again: true });
                assert_eq!(asker.reply(&renew(&held, TTL)), Reply::Renewed(vec![Renewal::Renewed]));
                if kind == Kind::Reentrant {
                    let set = Op::SetCount { claim: held.clone(), count: 2, ttl_ms: TTL };
                    assert_eq!(asker.reply(&set), Reply::Counted(true));
                }
                let next = claim(kind, "held", &token.replace('1', "2"));
                assert_eq!(asker.reply(&attach(&next, &held)), Reply::Granted { fence: Some(fence), again: false });
                assert_eq!(asker.reply(&release(&next)), Reply::Released(true));
            }
        }
    }
}

#[test]
fn an_attach_that_may_not_write_leaves_the_hold_whole() {
    for flavor in all_flavors() {
        for (kind, token) in both() {
            let writes =
                if kind == Kind::Mutex { vec!["-set", "-pexpire"] } else { vec!["-hset", "-hdel -del", "-pexpire"] };
            for write in writes {
                let server = Server::builder(flavor).user("app", &format!("on >pw ~* &* +@all {write}")).start();
                let (mine, next) = (claim(kind, "a", token), claim(kind, "a", &token.replace('1', "2")));
                for way in WAYS {
                    let full = Asker::new(&server.url(), way);
                    let fence = full.fence(&acquire(&mine));
                    let before = server.cmd(&["DUMP", "a"]);
                    let asker = Asker::new(&server.url_with("app:pw", "/"), way);
                    is(&asker.refusal(&attach(&next, &mine)), ErrorKind::NotPermitted, false, "");
                    assert_eq!(server.cmd(&["DUMP", "a"]), before, "{kind:?} {write}");
                    assert_eq!(full.reply(&attach(&next, &mine)), Reply::Granted { fence: Some(fence), again: false });
                    assert_eq!(full.reply(&release(&next)), Reply::Released(true));
                }
            }
        }
    }
}

#[test]
fn a_release_needs_no_permission_to_publish() {
    for flavor in all_flavors() {
        let server = Server::builder(flavor).user("app", "on >pw ~* resetchannels +@all").start();
        for way in WAYS {
            let asker = Asker::new(&server.url_with("app:pw", "/"), way);
            for (kind, token) in both() {
                let mine = claim(kind, "a", token);
                asker.reply(&acquire(&mine));
                assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
                assert_eq!(server.int(&["EXISTS", "a"]), 0);
                asker.reply(&acquire(&mine));
                assert_eq!(
                    asker.reply(&Op::ForceRelease { key: mine.key.clone(), foreign: false }),
                    Reply::Forced(true)
                );
            }
        }
    }
}

#[test]
fn a_missing_permission_is_named_and_leaves_nothing_behind() {
    for flavor in all_flavors() {
        let server = Server::builder(flavor)
            .user("nothing", "on >pw ~* &* +@all -eval -evalsha")
            .user("elsewhere", "on >pw ~other:* ~onelock_fence:* &* +@all")
            .user("reader", "on >pw ~* &* +@all -set -hset")
            .user("eternal", "on >pw ~* &* +@all -pexpire")
            .start();
        for way in WAYS {
            for (user, word) in [("nothing", "evalsha"), ("elsewhere", "NOPERM"), ("reader", ""), ("eternal", "")] {
                let asker = Asker::new(&server.url_with(&format!("{user}:pw"), "/"), way);
                for (kind, token) in both() {
                    if user == "eternal" && kind == Kind::Mutex {
                        continue; // SET with PX needs no PEXPIRE
                    }
                    let mine = claim(kind, "a", token);
                    is(&asker.refusal(&acquire(&mine)), ErrorKind::NotPermitted, false, word);
                    assert_eq!(server.int(&["EXISTS", "a"]), 0, "{flavor:?} {user}");
                }
            }
            // one hold alone, and one among others: the driver asks each by itself after this
            let asker = Asker::new(&server.url_with("elsewhere:pw", "/"), way);
            let good = claim(Kind::Mutex, "other:a", MUTEX);
            asker.reply(&acquire(&good));
            let bad = claim(Kind::Mutex, "a", MUTEX);
            let batch = Op::Renew { holds: vec![(good.clone(), TTL), (bad.clone(), TTL)] };
            is(&asker.refusal(&batch), ErrorKind::NotPermitted, false, "");
            is(&asker.refusal(&renew(&bad, TTL)), ErrorKind::NotPermitted, false, "");
            assert_eq!(asker.reply(&renew(&good, TTL)), Reply::Renewed(vec![Renewal::Renewed]));
        }
    }
}

#[test]
fn wrong_credentials_are_told_from_a_missing_server() {
    for flavor in all_flavors() {
        let server = Server::builder(flavor).password("secret").start();
        for way in WAYS {
            for tail in ["/", "/?protocol=resp2", "/?protocol=resp3"] {
                for credentials in ["", ":hunter2", "nobody:hunter2"] {
                    let asker = Asker::new(&server.url_with(credentials, tail), way);
                    let failure = asker.refusal(&acquire(&claim(Kind::Mutex, "a", MUTEX)));
                    is(&failure, ErrorKind::AuthFailed, false, "");
                    assert!(!failure.detail.contains("hunter2"), "{failure:?}");
                }
                let asker = Asker::new(&server.url_with(":secret", tail), way);
                asker.fence(&acquire(&claim(Kind::Mutex, tail, MUTEX)));
                assert_eq!(asker.reply(&release(&claim(Kind::Mutex, tail, MUTEX))), Reply::Released(true));
            }
        }
    }
}

#[test]
fn replicas_are_never_asked() {
    for flavor in all_flavors() {
        let (master, server) = (Server::start(flavor), Server::start(flavor));
        master.cmd(&["SET", "held", "somebody else"]);
        for way in WAYS {
            for tail in ["/", "/?protocol=resp2"] {
                server.cmd(&["REPLICAOF", "NO", "ONE"]);
                let asker = Asker::new(&server.url_with("", tail), way);
                let mine = claim(Kind::Mutex, "a", MUTEX);
                asker.reply(&acquire(&mine));
                asker.reply(&release(&mine));
                // demoted under a living connection: the write is refused …
                server.cmd(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
                is(&asker.refusal(&acquire(&mine)), ErrorKind::ReadOnly, true, "");
                // … and the next connection is not even used
                is(&asker.refusal(&acquire(&mine)), ErrorKind::ReadOnly, true, "locks are taken on its master");
                // not even where the replica would say "somebody else holds it" without complaint
                wait_until(LONG, "replication", || server.int(&["EXISTS", "held"]) == 1);
                let held = claim(Kind::Mutex, "held", MUTEX);
                is(&asker.refusal(&acquire(&held)), ErrorKind::ReadOnly, true, "locks are taken on its master");
                server.cmd(&["REPLICAOF", "NO", "ONE"]);
                asker.fence(&acquire(&mine));
                asker.reply(&release(&mine));
            }
        }
    }
}

#[test]
fn a_server_that_wants_replicas_refuses_to_write() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        for way in WAYS {
            let asker = Asker::new(&server.url(), way);
            for (kind, token) in both() {
                let mine = claim(kind, "a", token);
                asker.reply(&acquire(&mine));
                server.config_set("min-replicas-to-write", "1");
                for op in [
                    acquire(&claim(kind, "b", token)),
                    attach(&claim(kind, "a", token), &mine),
                    renew(&mine, TTL),
                    release(&mine),
                ] {
                    is(&asker.refusal(&op), ErrorKind::ServerRefused, false, "NOREPLICAS");
                }
                server.config_set("min-replicas-to-write", "0");
                assert_eq!(asker.reply(&release(&mine)), Reply::Released(true));
            }
        }
    }
}

#[test]
fn a_busy_server_is_only_busy() {
    for flavor in all_flavors() {
        let server = Server::builder(flavor).config("lua-time-limit", "20").start();
        for way in WAYS {
            let asker = Asker::new(&server.url(), way);
            let mine = claim(Kind::Mutex, "a", MUTEX);
            asker.reply(&acquire(&mine));
            let mut hog = Connection::port(server.port()).unwrap();
            hog.send(&["EVAL", "while true do end", "0"]).unwrap();
            wait_until(LONG, "the script to be noticed", || server.try_cmd(&["PING"]).is_err());
            is(&asker.refusal(&renew(&mine, TTL)), ErrorKind::ServerRefused, true, "BUSY");
            server.cmd(&["SCRIPT", "KILL"]);
            hog.read().unwrap();
            assert_eq!(asker.reply(&release(&mine)), Reply::Released(true), "over the same connection");
            assert_eq!(asker.store_stats().reconnects, 0);
        }
    }
}

#[test]
fn a_full_server_is_unavailable_for_now() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        for way in WAYS {
            // the fixture's own connection is the only one that fits
            server.config_set("maxclients", "1");
            wait_until(LONG, "the connections of before to be gone", || {
                server.info("clients")["connected_clients"] == "1"
            });
            let asker = Asker::new(&server.url(), way);
            let mine = claim(Kind::Mutex, "a", MUTEX);
            is(&asker.refusal(&acquire(&mine)), ErrorKind::Unavailable, true, "max number of clients");
            server.config_set("maxclients", "100");
            asker.reply(&acquire(&mine));
            asker.reply(&release(&mine));
        }
    }
}

#[test]
fn a_loading_server_is_only_loading() {
    for flavor in all_flavors() {
        let server = Server::builder(flavor).aof("everysec").config("key-load-delay", "250").start();
        // five seconds, also for a busy machine; a loading server looks up every thousand keys
        server.cmd(&["EVAL", "for n = 1, 20000 do redis.call('SET', 'key ' .. n, 'x') end", "0"]);
        for way in WAYS {
            let asker = Asker::new(&server.url(), way);
            let mine = claim(Kind::Mutex, "a", MUTEX);
            server.restart();
            is(&asker.refusal(&acquire(&mine)), ErrorKind::ServerRefused, true, "LOADING");
        }
    }
}
