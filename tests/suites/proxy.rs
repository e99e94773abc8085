//! The fault proxy itself: each fault does what its name says, to a raw client in front of a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use onelock_tests::proxy::{Cut, Fate, Match, Proxy};
use onelock_tests::resp::{Connection, encode, text};
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::wait::wait_until;
use redis::Value;

use common::ping_over_tls;

const SOON: Duration = Duration::from_secs(20);
const MOMENT: Duration = Duration::from_millis(40);

struct Bench {
    proxy: Proxy,
    server: Server,
}

impl Bench {
    fn new() -> Self {
        let server = Server::valkey();
        Self { proxy: Proxy::start(&server), server }
    }

    fn client(&self) -> Connection {
        Connection::port(self.proxy.port()).unwrap()
    }

    fn value(&self, key: &str) -> String {
        self.server.text(&["GET", key])
    }

    /// Waits until the server has set the key.
    fn wait_value(&self, key: &str, value: &str) {
        wait_until(SOON, "the write to reach the server", || self.value(key) == value);
    }
}

fn ask(client: &mut Connection, args: &[&str]) -> String {
    text(&client.cmd(args).unwrap())
}

/// Asserts that nothing comes for a moment, and then may wait longer again.
fn assert_silent(client: &mut Connection) {
    client.limit(Some(MOMENT)).unwrap();
    let error = client.read_frame().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    client.limit(Some(SOON)).unwrap();
}

fn end_of(client: &mut Connection) -> ErrorKind {
    client.read_frame().as_ref().map_err(Error::kind).unwrap_err()
}

#[test]
fn without_rules_everything_passes_and_is_logged() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(ask(&mut client, &["SET", "a", "1"]), "OK");
    client.send_raw(&[encode(&["GET", "a"]), encode(&["GET", "b"]), b"PING\r\n".to_vec()].concat()).unwrap();
    assert_eq!([text(&client.read().unwrap()), text(&client.read().unwrap())], ["1", "(nil)"]);
    assert_eq!(text(&client.read().unwrap()), "PONG");
    let passed = bench.proxy.passed();
    assert_eq!(passed.len(), 4);
    assert!(passed[0].is("set") && passed[0].has_arg("a") && !passed[0].has_arg("SET"));
    assert_eq!(passed[0].reply.as_deref(), Some(&b"+OK\r\n"[..]));
    for request in &passed {
        assert_eq!((request.fate, request.connection), (Fate::Forwarded, 0));
        wait_until(SOON, "the delivery to be noted", || {
            bench.proxy.passed().iter().all(|it| it.delivered_ns.is_some())
        });
    }
    assert!(passed.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
    assert_eq!(bench.proxy.connections(), 1);
    assert_eq!(bench.proxy.open_connections(), [0]);
    drop(client);
    wait_until(SOON, "the close to be seen", || bench.proxy.open_connections().is_empty());
    wait_until(SOON, "the server to see it", || !bench.server.text(&["CLIENT", "LIST"]).contains("laddr=127.0.0.1"));
}

#[test]
fn a_dropped_reply_is_applied_and_nothing_follows_it_on_that_connection() {
    let bench = Bench::new();
    let fault = bench.proxy.on(Match::command("set").with_arg("a")).once().drop_reply();
    let mut client = bench.client();
    assert_eq!(ask(&mut client, &["SET", "b", "0"]), "OK");
    client.send(&["SET", "a", "1"]).unwrap();
    fault.wait_hits(1);
    assert_eq!(bench.value("a"), "1");
    client.send(&["SET", "c", "2"]).unwrap();
    bench.wait_value("c", "2");
    assert_silent(&mut client);
    let mut second = bench.client();
    assert_eq!(ask(&mut second, &["SET", "a", "3"]), "OK");
    assert_eq!(fault.hits(), 1);
    let lost = &bench.proxy.requests(&Match::command("SET").with_arg("a"))[0];
    assert!(lost.reply.is_some() && lost.delivered_ns.is_none());
}

#[test]
fn a_swallowed_request_takes_what_follows_with_it() {
    let bench = Bench::new();
    let fault = bench.proxy.on(Match::any().containing("ell")).once().swallow();
    let mut client = bench.client();
    client.send(&["SET", "a", "hello"]).unwrap();
    client.send(&["SET", "b", "2"]).unwrap();
    assert_silent(&mut client);
    assert_eq!(fault.hits(), 1);
    assert_eq!([bench.value("a"), bench.value("b")], ["(nil)", "(nil)"]);
    assert!(bench.proxy.passed().iter().all(|request| request.fate == Fate::Lost));
    assert_eq!(ask(&mut bench.client(), &["SET", "a", "hello"]), "OK");
}

#[test]
fn a_held_request_reaches_the_server_after_its_client_has_gone() {
    let bench = Bench::new();
    let fault = bench.proxy.on(Match::command("SET")).once().hold();
    let mut client = bench.client();
    client.send(&["SET", "a", "ghost"]).unwrap();
    client.send(&["SET", "b", "behind it"]).unwrap();
    fault.wait_hits(1);
    assert_silent(&mut client);
    drop(client);
    let mut second = bench.client();
    assert_eq!(ask(&mut second, &["SET", "a", "live"]), "OK");
    assert_eq!(bench.value("a"), "live");
    assert_eq!(bench.proxy.passed()[0].fate, Fate::Waiting);
    fault.release();
    bench.wait_value("a", "ghost");
    bench.wait_value("b", "behind it");
}

#[test]
fn a_held_request_survives_a_cut_and_can_be_discarded() {
    for discard in [false, true] {
        let bench = Bench::new();
        let fault = bench.proxy.on(Match::command("SET")).once().hold();
        let mut client = bench.client();
        client.send(&["SET", "a", "1"]).unwrap();
        fault.wait_hits(1);
        bench.proxy.cut_all();
        assert_eq!(end_of(&mut client), ErrorKind::ConnectionReset);
        if discard {
            fault.discard();
            wait_until(SOON, "it to be lost", || bench.proxy.passed()[0].fate == Fate::Lost);
            assert_eq!(bench.value("a"), "(nil)");
        } else {
            fault.release();
            bench.wait_value("a", "1");
        }
    }
}

#[test]
fn held_and_delayed_replies_come_late_and_in_order() {
    let bench = Bench::new();
    let held = bench.proxy.on(Match::command("SET")).once().hold_reply();
    let mut client = bench.client();
    client.send(&["SET", "a", "1"]).unwrap();
    client.send(&["GET", "a"]).unwrap();
    held.wait_hits(1);
    assert_eq!(bench.value("a"), "1");
    assert_silent(&mut client);
    held.release();
    assert_eq!([text(&client.read().unwrap()), text(&client.read().unwrap())], ["OK", "1"]);

    let delayed = bench.proxy.on(Match::command("PING")).once().delay_reply(MOMENT);
    let start = Instant::now();
    client.send(&["PING"]).unwrap();
    client.send(&["GET", "a"]).unwrap();
    assert_eq!([text(&client.read().unwrap()), text(&client.read().unwrap())], ["PONG", "1"]);
    assert!(start.elapsed() >= MOMENT);
    assert_eq!(delayed.hits(), 1);

    let late = bench.proxy.on(Match::command("SET")).after(1).once().delay(MOMENT);
    assert_eq!(ask(&mut client, &["SET", "a", "2"]), "OK");
    let start = Instant::now();
    assert_eq!(ask(&mut client, &["SET", "a", "3"]), "OK");
    assert!(start.elapsed() >= MOMENT);
    assert_eq!(late.hits(), 1);
}

#[test]
fn cuts_happen_where_they_are_asked_for() {
    let bench = Bench::new();
    for (how, expected) in [(Cut::Reset, ErrorKind::ConnectionReset), (Cut::Close, ErrorKind::UnexpectedEof)] {
        let set = || bench.proxy.on(Match::command("SET")).once();

        let fault = set().cut_before(how);
        let mut client = bench.client();
        client.send(&["SET", "before", "1"]).unwrap();
        assert_eq!(end_of(&mut client), expected);
        fault.wait_hits(1);
        assert_eq!(bench.value("before"), "(nil)");

        // Often, because the server's reply would like to come first.
        for round in (1..=30).map(|round: u32| round.to_string()) {
            let fault = set().cut_after_forward(how);
            let mut client = bench.client();
            client.send(&["SET", "forward", &round]).unwrap();
            assert_eq!(end_of(&mut client), expected);
            fault.wait_hits(1);
            bench.wait_value("forward", &round);
        }

        let fault = set().cut_instead_of_reply(how);
        let mut client = bench.client();
        client.send(&["SET", "instead", "1"]).unwrap();
        assert_eq!(end_of(&mut client), expected);
        fault.wait_hits(1);
        assert_eq!(bench.value("instead"), "1");

        let fault = set().cut_after_reply(how);
        let mut client = bench.client();
        client.send(&["SET", "after", "1"]).unwrap();
        // A reset may overtake the reply on its way up to the reader; an orderly end may not.
        if how == Cut::Close {
            assert_eq!(text(&client.read().unwrap()), "OK");
            assert_eq!(end_of(&mut client), expected);
        }
        fault.wait_hits(1);
        let request = bench.proxy.requests(&Match::command("SET").with_arg("after")).pop().unwrap();
        assert!(request.delivered_ns.is_some());
        bench.server.cmd(&["FLUSHALL"]);
    }
}

#[test]
fn a_single_connection_or_all_can_be_cut_and_clients_may_come_back() {
    let bench = Bench::new();
    let (mut first, mut second) = (bench.client(), bench.client());
    assert_eq!(ask(&mut first, &["PING"]), "PONG");
    assert_eq!(ask(&mut second, &["PING"]), "PONG");
    bench.proxy.cut(0, Cut::Reset);
    assert_eq!(end_of(&mut first), ErrorKind::ConnectionReset);
    assert_eq!(ask(&mut second, &["PING"]), "PONG");
    assert_eq!(bench.proxy.open_connections(), [1]);
    bench.proxy.cut_all();
    assert_eq!(end_of(&mut second), ErrorKind::ConnectionReset);
    assert_eq!(ask(&mut bench.client(), &["PING"]), "PONG");
    assert_eq!(bench.proxy.connections(), 3);
}

#[test]
fn a_pause_is_a_black_hole_that_gives_back_what_fell_in() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(ask(&mut client, &["PING"]), "PONG");
    bench.proxy.pause();
    let mut late = bench.client();
    late.send(&["SET", "late", "1"]).unwrap();
    client.send(&["SET", "a", "1"]).unwrap();
    assert_silent(&mut client);
    assert_silent(&mut late);
    assert_eq!([bench.value("a"), bench.value("late")], ["(nil)", "(nil)"]);
    bench.proxy.resume();
    assert_eq!([text(&client.read().unwrap()), text(&late.read().unwrap())], ["OK", "OK"]);

    bench.proxy.pause_replies();
    client.send(&["SET", "a", "2"]).unwrap();
    bench.wait_value("a", "2");
    assert_silent(&mut client);
    bench.proxy.resume();
    assert_eq!(text(&client.read().unwrap()), "OK");

    bench.proxy.pause_requests();
    client.send(&["SET", "a", "3"]).unwrap();
    assert_silent(&mut client);
    assert_eq!(bench.value("a"), "2");
    bench.proxy.heal();
    assert_eq!(text(&client.read().unwrap()), "OK");
}

#[test]
fn refusing_leaves_open_connections_alone() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(ask(&mut client, &["PING"]), "PONG");
    bench.proxy.refuse();
    let refused = Connection::port(bench.proxy.port()).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask(&mut client, &["PING"]), "PONG");
    bench.proxy.admit();
    assert_eq!(ask(&mut bench.client(), &["PING"]), "PONG");
}

#[test]
fn it_stays_in_front_of_a_server_that_comes_back() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(ask(&mut client, &["PING"]), "PONG");
    bench.server.kill();
    assert!(matches!(end_of(&mut client), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset));
    let unserved = Connection::port(bench.proxy.port()).and_then(|mut it| it.cmd(&["PING"]));
    assert!(unserved.is_err());
    bench.server.restart();
    assert_eq!(ask(&mut bench.client(), &["PING"]), "PONG");
}

#[test]
fn answers_of_its_own_come_in_turn() {
    let bench = Bench::new();
    let junk = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    bench.proxy.on(Match::command("GET")).once().answer(b"-LOADING of the proxy's own\r\n");
    bench.proxy.on(Match::command("GET")).once().replace_reply(b"$5\r\nother\r\n");
    bench.proxy.on(Match::command("ECHO")).answer(junk);
    let mut client = bench.client();
    client.send_raw(&[encode(&["SET", "a", "1"]), encode(&["GET", "a"]), encode(&["GET", "a"])].concat()).unwrap();
    let replies: Vec<_> = (0..3).map(|_| text(&client.read().unwrap())).collect();
    assert_eq!(replies, ["OK", "-LOADING of the proxy's own", "other"]);
    assert_eq!(ask(&mut client, &["GET", "a"]), "1");
    client.send(&["ECHO", "x"]).unwrap();
    client.limit(Some(MOMENT)).unwrap();
    assert!(client.read_to_end().is_err(), "the connection stays open");
    let passed = bench.proxy.requests(&Match::command("ECHO"));
    assert_eq!((passed[0].fate, passed[0].reply.is_none()), (Fate::Answered, true));
    assert!(bench.server.info("commandstats").keys().all(|name| name != "cmdstat_echo"));
}

#[test]
fn a_doubled_request_runs_twice_and_is_answered_once() {
    let bench = Bench::new();
    let fault = bench.proxy.on(Match::command("INCR")).once().duplicate();
    let mut client = bench.client();
    client.send_raw(&[encode(&["INCR", "n"]), encode(&["GET", "n"])].concat()).unwrap();
    assert_eq!(client.read().unwrap(), Value::Int(1));
    assert_eq!(text(&client.read().unwrap()), "2");
    assert_eq!(fault.hits(), 1);
}

#[test]
fn slow_links_are_slow_and_split_replies_arrive_whole() {
    let bench = Bench::new();
    let mut client = bench.client();
    let value = "x".repeat(400);
    assert_eq!(ask(&mut client, &["SET", "a", &value]), "OK");

    bench.proxy.latency(MOMENT);
    let start = Instant::now();
    client.send_raw(&encode(&["PING"]).repeat(100)).unwrap();
    for _ in 0..100 {
        assert_eq!(text(&client.read().unwrap()), "PONG");
    }
    let taken = start.elapsed();
    assert!(taken >= MOMENT * 2 && taken < MOMENT * 100, "a latency is no rate: {taken:?}");
    bench.proxy.heal();

    bench.proxy.rate(Some(4000));
    let start = Instant::now();
    assert_eq!(ask(&mut client, &["GET", "a"]), value);
    assert!(start.elapsed() >= Duration::from_millis(100));
    bench.proxy.rate(None);

    bench.proxy.split_replies(true);
    let start = Instant::now();
    assert_eq!(ask(&mut client, &["GET", "a"]), value);
    assert!(start.elapsed() >= Duration::from_millis(8));
}

#[test]
fn published_messages_are_told_from_replies_under_both_protocols() {
    for hello in ["2", "3"] {
        let bench = Bench::new();
        let lost = bench.proxy.on(Match::push("message").with_arg("second")).once().drop_reply();
        let mut client = bench.client();
        assert!(!ask(&mut client, &["HELLO", hello]).starts_with('-'));
        client.send(&["SUBSCRIBE", "c1", "c2"]).unwrap();
        for _ in 0..2 {
            assert!(format!("{:?}", client.read().unwrap()).to_lowercase().contains("subscribe"));
        }
        for message in ["first", "second", "third"] {
            bench.server.cmd(&["PUBLISH", "c1", message]);
        }
        let messages = [client.read().unwrap(), client.read().unwrap()].map(|value| format!("{value:?}"));
        assert!(messages[0].contains("'first'") || messages[0].contains("first"), "{messages:?}");
        assert!(messages[1].contains("third"), "{messages:?}");
        lost.wait_hits(1);
        // A dropped confirmation silences the connection, as any dropped reply does.
        bench.proxy.on(Match::command("UNSUBSCRIBE")).once().drop_reply().hits();
        client.send(&["UNSUBSCRIBE"]).unwrap();
        client.send(&["PING"]).unwrap();
        assert_silent(&mut client);
        let passed = bench.proxy.passed();
        assert_eq!(passed.iter().filter(|request| request.delivered_ns.is_some()).count(), 2, "{passed:?}");
        wait_until(SOON, "the reply to PING", || {
            let reply = bench.proxy.passed().pop().unwrap().reply;
            reply.is_some_and(|reply| reply.to_ascii_lowercase().windows(4).any(|part| part == b"pong"))
        });
    }
}

#[test]
fn each_confirmation_belongs_to_its_own_subscription() {
    let bench = Bench::new();
    let mut client = bench.client();
    client.send_raw(&[encode(&["SUBSCRIBE", "a", "b"]), encode(&["SUBSCRIBE", "c"])].concat()).unwrap();
    client.send_raw(&[encode(&["UNSUBSCRIBE"]), encode(&["UNSUBSCRIBE", "d"])].concat()).unwrap();
    for _ in 0..7 {
        client.read_frame().unwrap();
    }
    let replies: Vec<_> = bench.proxy.passed().into_iter().map(|request| request.reply.unwrap()).collect();
    // The last confirmation stays in the log.
    assert_eq!(replies[0], b"*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n");
    assert_eq!(replies[1], b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:3\r\n");
    assert!(replies[2].ends_with(b":0\r\n"));
    assert_eq!(replies[3], b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nd\r\n:0\r\n");
}

#[test]
fn scripts_are_known_by_text_and_by_hash() {
    let bench = Bench::new();
    let script = "return ARGV[1]";
    let calls = bench.proxy.on(Match::script(script)).watch();
    let mut client = bench.client();
    let hash = ask(&mut client, &["SCRIPT", "LOAD", script]);
    assert_eq!(ask(&mut client, &["EVAL", script, "0", "x"]), "x");
    assert_eq!(ask(&mut client, &["EVALSHA", &hash, "0", "y"]), "y");
    assert_eq!(ask(&mut client, &["EVAL", "return 1", "0"]), "1");
    assert_eq!(calls.hits(), 2);
    calls.remove();
    assert_eq!(ask(&mut client, &["EVALSHA", &hash, "0", "z"]), "z");
    assert_eq!(calls.hits(), 2);
}

#[test]
fn bytes_that_are_not_the_protocol_pass_as_they_are() {
    let server = Server::builder(Flavor::Redis70).tls().start();
    let (tls, port) = server.tls().unwrap();
    let proxy = Proxy::to(port);
    assert_eq!(ping_over_tls(proxy.port(), &tls.ca, "localhost").unwrap(), "+PONG\r\n");
    proxy.split_replies(true);
    assert_eq!(ping_over_tls(proxy.port(), &tls.ca, "localhost").unwrap(), "+PONG\r\n");
}

#[test]
fn a_dropped_proxy_leaves_nothing_open() {
    let bench = Bench::new();
    let mut client = bench.client();
    let held = bench.proxy.on(Match::command("SET")).hold();
    client.send(&["SET", "a", "1"]).unwrap();
    held.wait_hits(1);
    let Bench { proxy, server } = bench;
    let port = proxy.port();
    drop(proxy);
    assert_eq!(end_of(&mut client), ErrorKind::ConnectionReset);
    assert_eq!(Connection::port(port).err().map(|error| error.kind()), Some(ErrorKind::ConnectionRefused));
    wait_until(SOON, "the server to see it", || !server.text(&["CLIENT", "LIST"]).contains("laddr=127.0.0.1"));
    assert_eq!(server.text(&["GET", "a"]), "(nil)");
}
