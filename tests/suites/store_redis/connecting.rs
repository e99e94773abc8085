//! Ways to a server, and servers that can't be reached.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use onelock::machine::{Grade, Kind, Outcome, Reply};
use onelock::store::Store;
use onelock::store::redis::RedisOptions;
use onelock::{ErrorKind, machine::Failure};
use onelock_tests::proxy::{Cut, Match, Proxy};
use onelock_tests::servers::{Flavor, Server, all_flavors};
use onelock_tests::stage::quick_once;
use onelock_tests::wait::wait_until;

use crate::asker::{Asker, LONG, WAYS, Way, acquire, claim, now, release};

const TOKEN: &str = "onelock1:00000000000000000000000000000001";

fn lock() -> onelock::machine::Claim {
    claim(Kind::Mutex, "a", TOKEN)
}

/// Takes the lock and releases it.
fn works(asker: &Asker) {
    asker.fence(&acquire(&lock()));
    assert_eq!(asker.reply(&release(&lock())), Reply::Released(true));
}

/// The failure of an acquire that finds no connection, and how long it took.
fn unreachable(url: &str, way: Way, limit: Duration) -> (Failure, Duration) {
    let options = RedisOptions { connect_timeout: limit, ..RedisOptions::default() };
    let asker = Asker::with(url, way, options);
    let start = Instant::now();
    let failure = asker.refusal(&acquire(&lock()));
    (failure, start.elapsed())
}

#[test]
fn protocols() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        let monitor = server.monitor();
        for way in WAYS {
            for (tail, hello) in [("/?protocol=resp2", false), ("/?protocol=resp3", true), ("/", true)] {
                monitor.clear();
                works(&Asker::new(&server.url_with("", tail), way));
                assert_eq!(monitor.count("HELLO") > 0, hello, "{tail}");
            }
        }
        drop(monitor);
        let old = Server::builder(flavor).config("rename-command", "HELLO \"\"").password("secret").start();
        for way in WAYS {
            works(&Asker::new(&old.url(), way));
            let asker = Asker::new(&old.url_with(":secret", "/?protocol=resp3"), way);
            let failure = asker.refusal(&acquire(&lock()));
            assert!(failure.detail.contains("HELLO") && !failure.detail.contains("secret"), "{failure:?}");
        }
    }
}

#[test]
fn sockets_databases_and_names() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        for way in WAYS {
            works(&Asker::new(&server.unix_url(), way));
            let asker = Asker::new(&format!("{}?db=3", server.unix_url()), way);
            asker.reply(&acquire(&lock()));
            let options = RedisOptions { client_name: Some("billing".into()), ..RedisOptions::default() };
            let third = Asker::with(&server.url_with("", "/3"), way, options);
            assert!(matches!(third.reply(&acquire(&claim(Kind::Mutex, "a", "x"))), Reply::Denied { .. }));
            assert!(server.text(&["CLIENT", "LIST"]).contains("name=billing"));
            works(&Asker::new(&server.url_with("", "/2"), way));
            asker.reply(&release(&lock()));
            let nowhere = Asker::new(&server.url_with("", "/99"), way);
            let failure = nowhere.refusal(&acquire(&lock()));
            assert_eq!((failure.kind, failure.transient), (ErrorKind::InvalidArgument, false), "{failure:?}");
            assert!(failure.detail.contains("99"), "{failure:?}");
            // a name that the server won't have is no reason to fail
            let options = RedisOptions { client_name: Some("two words".into()), ..RedisOptions::default() };
            works(&Asker::with(&server.url(), way, options));
        }
    }
}

#[test]
fn tls() {
    use ErrorKind::{InvalidArgument, Unavailable};
    let server = Server::builder(Flavor::Redis70).tls().start();
    let other = Server::builder(Flavor::Redis70).tls_for(&["example.org"]).config("tls-auth-clients", "yes").start();
    let (files, _) = server.tls().unwrap();
    let (others, _) = other.tls().unwrap();
    let trust = |files: &onelock_tests::servers::Tls| RedisOptions {
        ca_file: Some(files.ca.clone()),
        ..RedisOptions::default()
    };
    for way in WAYS {
        works(&Asker::with(&server.tls_url(), way, trust(files)));
        works(&Asker::new(&format!("{}?ca_file={}&protocol=resp2", server.tls_url(), files.ca.display()), way));
        works(&Asker::new(&format!("{}?tls_insecure=1", server.tls_url()), way));
        let known = RedisOptions {
            cert_file: Some(others.client_cert.clone()),
            key_file: Some(others.client_key.clone()),
            tls_insecure: true,
            ..RedisOptions::default()
        };
        works(&Asker::with(&other.tls_url(), way, known));

        let refused = |url: &str, options, kind, word: &str| {
            let failure = Asker::with(url, way, options).refusal(&acquire(&lock()));
            assert_eq!(failure.kind, kind, "{failure:?}");
            assert!(failure.detail.contains(word), "{failure:?}");
            failure.transient
        };
        assert!(!refused(&server.tls_url(), trust(others), Unavailable, "invalid peer certificate"));
        assert!(!refused(&other.tls_url(), trust(others), Unavailable, "not valid for name"));
        let missing = RedisOptions { ca_file: Some("/no/such/file".into()), ..RedisOptions::default() };
        assert!(!refused(&server.tls_url(), missing, InvalidArgument, "/no/such/file"));
        let key_for_authority = RedisOptions { ca_file: Some(files.client_key.clone()), ..RedisOptions::default() };
        assert!(!refused(&server.tls_url(), key_for_authority, InvalidArgument, "no certificate"));
        let anonymous = RedisOptions { tls_insecure: true, ..RedisOptions::default() };
        refused(&other.tls_url(), anonymous, Unavailable, "");
        let plain = server.tls_url().replace("rediss", "redis");
        refused(&plain, RedisOptions::default(), Unavailable, "");
        let impatient = RedisOptions { connect_timeout: Duration::from_millis(500), ..trust(files) };
        refused(&server.url().replace("redis", "rediss"), impatient, Unavailable, "");
    }
}

#[test]
fn nobody_listens() {
    let port = onelock_tests::servers::Port::reserve();
    for way in WAYS {
        for url in [format!("redis://127.0.0.1:{}", port.number()), "unix:///no/such/socket".to_owned()] {
            let (failure, took) = unreachable(&url, way, LONG);
            assert_eq!((failure.kind, failure.transient), (ErrorKind::Unavailable, true), "{failure:?}");
            assert!(took < LONG / 2, "told at once: {took:?}");
        }
        let (failure, took) = unreachable("redis://no-such-host.invalid", way, Duration::from_millis(700));
        assert_eq!((failure.kind, failure.transient), (ErrorKind::Unavailable, true), "{failure:?}");
        assert!(took < LONG / 2, "{took:?}");
    }
}

#[test]
fn a_black_hole_ends_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", silent.local_addr().unwrap());
    for way in WAYS {
        // without these limits a connection may take two seconds
        let (least, most) = (Duration::from_millis(300), Duration::from_millis(1800));
        quick_once(most, "the limit of a connection", || {
            let (failure, took) = unreachable(&url, way, least);
            assert_eq!((failure.kind, failure.transient), (ErrorKind::Unavailable, true), "{failure:?}");
            assert!(took >= least, "{took:?}");
            took
        });
        quick_once(most, "the limit of a call", || {
            let asker = Asker::new(&url, way);
            let start = Instant::now();
            let answer = asker.answer_within(&acquire(&lock()), least);
            assert!(matches!(answer.outcome, Outcome::NotApplied(_)), "{answer:?}");
            assert!(start.elapsed() >= least, "{:?}", start.elapsed());
            start.elapsed()
        });
    }
}

/// Answers every connection with `words`, again and again if `endless`.
fn peer(words: &'static [u8], endless: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            while stream.write_all(words).is_ok() && endless {}
        }
    });
    url
}

#[test]
fn what_is_no_server_of_ours_is_recognised() {
    let peers = [
        peer(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", false),
        peer(b"$", true),
        peer(b"+a line without an end ", true),
        peer(b"", false),
    ];
    for way in WAYS {
        for url in &peers {
            let (failure, took) = unreachable(url, way, Duration::from_secs(3));
            assert_eq!(failure.kind, ErrorKind::Unavailable, "{failure:?}");
            assert!(took < Duration::from_secs(3) + LONG / 2, "{took:?}");
        }
        let (failure, _) = unreachable(&peers[0], way, LONG);
        assert!(failure.detail.contains("does not speak the Redis protocol"), "{failure:?}");
    }
}

#[test]
fn a_frozen_server_leaves_it_open_and_is_asked_anew_afterwards() {
    // a request of its own limit would take a second
    for way in WAYS {
        quick_once(Duration::from_millis(900), "the end of the connection", || {
            let server = Server::valkey();
            let options = RedisOptions { request_timeout: Duration::from_millis(300), ..RedisOptions::default() };
            let asker = Asker::with(&server.url(), way, options);
            works(&asker); // the server knows the scripts from now on
            asker.reply(&acquire(&lock()));
            server.stop();
            let start = Instant::now();
            let answer = asker.answer(&release(&lock()));
            assert!(matches!(answer.outcome, Outcome::Indeterminate(_)), "{answer:?}");
            let took = start.elapsed();
            assert!(took >= Duration::from_millis(300), "{took:?}");
            server.cont();
            // what was sent to the frozen server is carried out after all
            wait_until(LONG, "the late release", || server.int(&["EXISTS", "a"]) == 0);
            works(&asker);
            assert_eq!(asker.store_stats().reconnects, 1);
            took
        });
    }
}

#[test]
fn a_caller_in_a_hurry_does_not_end_the_connection_of_the_others() {
    let server = Server::valkey();
    let asker = Asker::new(&server.url(), Way::Async);
    works(&asker);
    server.stop();
    let answer = asker.answer_within(&acquire(&lock()), Duration::from_millis(50));
    assert!(matches!(answer.outcome, Outcome::Indeterminate(_)), "{answer:?}");
    server.cont();
    // the undo goes down the same connection, so it can't overtake the acquire
    let undo = asker.answer(&release(&lock()));
    assert_eq!(undo.outcome, Outcome::Applied(Reply::Released(true)));
    assert_eq!((answer.connection, undo.connection, asker.store.connection()), (1, 1, 1));
}

#[test]
fn connections_are_numbered() {
    let server = Server::valkey();
    let asker = Asker::new(&server.url(), Way::Async);
    assert_eq!(asker.store.connection(), 1, "that of the next one");
    for number in 1..=3 {
        assert_eq!(asker.answer(&acquire(&lock())).connection, number);
        assert_eq!(asker.answer(&release(&lock())).connection, number);
        assert_eq!(asker.store.connection(), number);
        server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        wait_until(LONG, "the loss to be noticed", || asker.store.connection() == number + 1);
    }
    assert_eq!(asker.store_stats().reconnects, 2);
}

#[test]
fn refused_connections_are_not_tried_in_a_hot_loop() {
    let server = Server::valkey();
    let proxy = Proxy::start(&server);
    let asker = Asker::new(&proxy.url(), Way::Async);
    works(&asker);
    // every connection is cut as soon as it is made
    let rule = proxy.on(Match::command("HELLO")).cut_before(Cut::Reset);
    proxy.cut_all();
    let start = Instant::now();
    let mut failures = 0;
    // on a busy machine an attempt takes longer
    while start.elapsed() < Duration::from_secs(1) || failures < 3 {
        if matches!(asker.answer(&acquire(&lock())).outcome, Outcome::NotApplied(_)) {
            failures += 1;
        }
        assert!(start.elapsed() < LONG, "{failures} attempts");
    }
    assert!(f64::from(failures) < 20.0 * start.elapsed().as_secs_f64(), "{failures} in {:?}", start.elapsed());
    rule.remove();
    works(&asker);
}

#[test]
fn lost_and_mangled_replies() {
    let server = Server::valkey();
    for way in WAYS {
        let proxy = Proxy::start(&server);
        let options = RedisOptions { request_timeout: Duration::from_millis(400), ..RedisOptions::default() };
        let asker = Asker::with(&proxy.url(), way, options);
        works(&asker);
        let call = || Match::command("EVALSHA");
        let open = |what: &str| {
            let answer = asker.answer(&acquire(&lock()));
            assert!(matches!(answer.outcome, Outcome::Indeterminate(_)), "{what}: {answer:?}");
            assert!(answer.sent_at < answer.received_at && now() > answer.received_at);
            let again = asker.reply(&acquire(&lock()));
            assert!(matches!(again, Reply::Granted { fence: Some(_), .. }), "{what}: {again:?}");
            assert_eq!(asker.reply(&release(&lock())), Reply::Released(true), "{what}");
        };
        for how in [Cut::Reset, Cut::Close] {
            proxy.on(call()).once().cut_before(how);
            open("lost request");
            proxy.on(call()).once().cut_instead_of_reply(how);
            open("lost reply");
        }
        proxy.on(call()).once().drop_reply();
        open("silence");
        for bytes in [&b"+OK\r\n"[..], b"*1\r\n:5\r\n", b"*3\r\n:5\r\n:9\r\n:1\r\n", b"HTTP/1.1 200 OK\r\n"] {
            proxy.on(call()).once().replace_reply(bytes);
            open(&bytes.escape_ascii().to_string());
        }
        proxy.split_replies(true);
        works(&asker);
    }
}

#[test]
fn a_reply_too_many_is_never_taken_for_the_next_one() {
    let server = Server::valkey();
    for way in WAYS {
        let proxy = Proxy::start(&server);
        let asker = Asker::new(&proxy.url(), way);
        works(&asker);
        // "granted" twice in answer to one request
        let granted = "*3\r\n:1785000000000000\r\n:0\r\n:1785000000000000\r\n".repeat(2);
        proxy.on(Match::command("EVALSHA")).once().answer(granted);
        let _ = asker.answer(&acquire(&lock()));
        server.cmd(&["SET", "a", "somebody else"]);
        match asker.answer(&acquire(&lock())).outcome {
            Outcome::Applied(Reply::Denied { .. }) | Outcome::Indeterminate(_) => {}
            other => panic!("{way:?}: {other:?}"),
        }
        assert!(matches!(asker.reply(&acquire(&lock())), Reply::Denied { .. }));
        server.cmd(&["DEL", "a"]);
    }
}

/// Messages of a server that nobody asked for, in front of the reply to one of two requests under way.
fn interleaved(push: &[u8]) -> (Vec<Outcome<Reply>>, u64) {
    let server = Server::valkey();
    let proxy = Proxy::start(&server);
    let asker = Asker::new(&proxy.url_with("", "/?protocol=resp3"), Way::Async);
    let (one, two) = (claim(Kind::Mutex, "one", TOKEN), claim(Kind::Mutex, "two", TOKEN));
    for mine in [&one, &two] {
        asker.reply(&acquire(mine));
        asker.reply(&release(mine));
    }
    server.cmd(&["SET", "two", "somebody else"]);
    // what the server says to both, so that both replies leave together behind the push
    let granted = b"*3\r\n:1785000000000000\r\n:0\r\n:1785000000000000\r\n";
    let denied = b"*4\r\n:1785000000000000\r\n:2\r\n:9\r\n:1\r\n";
    let first = proxy.on(Match::command("EVALSHA").with_arg("one")).once();
    first.answer([push, granted].concat());
    proxy.on(Match::command("EVALSHA").with_arg("two")).once().answer(denied);
    let (until, store) = (now() + LONG, &asker.store);
    let outcomes = asker.runtime.block_on(async {
        let (one, two) = tokio::join!(store.call(acquire(&one), until), store.call(acquire(&two), until));
        vec![one.outcome, two.outcome]
    });
    (outcomes, asker.store_stats().reconnects)
}

#[test]
fn a_push_is_never_taken_for_a_reply() {
    for harmless in
        [&b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n0\r\n"[..], b">2\r\n+invalidate\r\n_\r\n", b">1\r\n+news\r\n"]
    {
        let (outcomes, _) = interleaved(harmless);
        assert!(matches!(outcomes[0], Outcome::Applied(Reply::Granted { .. })), "{outcomes:?}");
        assert!(matches!(outcomes[1], Outcome::Applied(Reply::Denied { .. })), "{outcomes:?}");
    }
    // the server ends a subscription that there never was: the second request must not get the first one's grant
    for word in ["unsubscribe", "subscribe", "sunsubscribe"] {
        let (outcomes, _) = interleaved(format!(">3\r\n${}\r\n{word}\r\n$1\r\nx\r\n:0\r\n", word.len()).as_bytes());
        assert!(!matches!(outcomes[1], Outcome::Applied(Reply::Granted { .. })), "{word}: {outcomes:?}");
        assert!(!matches!(outcomes[0], Outcome::Applied(Reply::Denied { .. })), "{word}: {outcomes:?}");
    }
}

#[test]
fn a_reply_without_end_ends_the_connection() {
    let server = Server::valkey();
    for way in WAYS {
        let proxy = Proxy::start(&server);
        let options = RedisOptions { request_timeout: LONG, ..RedisOptions::default() };
        let asker = Asker::with(&proxy.url(), way, options);
        works(&asker);
        let endless = [b"+".to_vec(), vec![b'a'; 4 << 20]].concat();
        proxy.on(Match::command("EVALSHA")).once().replace_reply(endless);
        let start = Instant::now();
        let answer = asker.answer(&acquire(&lock()));
        assert!(matches!(answer.outcome, Outcome::Indeterminate(_)), "{answer:?}");
        assert!(start.elapsed() < LONG, "by its length, not by its time: {:?}", start.elapsed());
        assert!(matches!(asker.reply(&acquire(&lock())), Reply::Granted { .. }));
        asker.reply(&release(&lock()));
    }
}

#[test]
fn hurried_callers_together_notice_silence() {
    let server = Server::valkey();
    let options = RedisOptions { request_timeout: Duration::from_millis(400), ..RedisOptions::default() };
    let asker = Asker::with(&server.url(), Way::Async, options);
    works(&asker);
    server.stop();
    let start = Instant::now();
    // none of them waits as long as a request may take
    while asker.store.connection() == 1 {
        let answer = asker.answer_within(&acquire(&lock()), Duration::from_millis(50));
        assert!(!matches!(answer.outcome, Outcome::Applied(_)), "{answer:?}");
        assert!(start.elapsed() < LONG, "the dead connection is still in use");
    }
    assert!(start.elapsed() >= Duration::from_millis(400), "too early: {:?}", start.elapsed());
    server.cont();
    asker.reply(&acquire(&lock()));
    assert_eq!(asker.store.connection(), 2);
}

#[test]
fn a_closed_store_says_so() {
    let server = Server::valkey();
    for way in WAYS {
        let asker = Asker::new(&server.url(), way);
        works(&asker);
        asker.store.close();
        let failure = asker.refusal(&acquire(&lock()));
        assert_eq!((failure.kind, failure.transient), (ErrorKind::Closed, false));
        wait_until(LONG, "connections to be closed", || server.info("clients")["connected_clients"] == "1");
    }
}

#[test]
fn what_the_server_says_about_itself() {
    for flavor in all_flavors() {
        let server = Server::builder(flavor).aof("always").user("app", "on >pw ~* &* +@all -info -config").start();
        let facts = |url: &str| {
            let asker = Asker::new(url, Way::Async);
            asker.runtime.block_on(asker.store.facts(now() + LONG)).unwrap()
        };
        let strict = facts(&server.url());
        assert_eq!((strict.grade, &strict.warnings[..]), (Grade::Strict, &[][..]));
        let (name, version) = strict.server.split_once(' ').unwrap();
        let program = flavor.program();
        assert!(
            program.starts_with(name) && version.starts_with(program.rsplit('-').next().unwrap()),
            "{}",
            strict.server
        );
        server.config_set("appendfsync", "everysec");
        assert_eq!(facts(&server.url()).grade, Grade::ClockBounded);
        server.config_set("maxmemory-policy", "volatile-lru");
        let evicting = facts(&server.url());
        assert_eq!(evicting.grade, Grade::BestEffort);
        assert!(evicting.warnings[0].contains("volatile-lru"), "{:?}", evicting.warnings);
        let unknown = facts(&server.url_with("app:pw", "/"));
        assert_eq!((unknown.grade, unknown.warnings.len()), (Grade::BestEffort, 1));
    }
}
