//! The server fixture itself: what other tests take for granted about it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use onelock_tests::resp::{Connection, text};
use onelock_tests::servers::{Flavor, Server, all_flavors, state};
use onelock_tests::wait::wait_until;
use redis::Value;

use common::ping_over_tls;

const SOON: Duration = Duration::from_secs(20);

#[test]
fn every_flavor_is_the_version_that_its_name_says() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        let info = server.info("server");
        let version = info.get("valkey_version").unwrap_or(&info["redis_version"]);
        let promised = flavor.program().rsplit('-').next().unwrap();
        assert!(version.starts_with(promised), "{} is {version}", flavor.program());
        assert_eq!(info["process_id"], server.pid().to_string());
        assert_eq!(server.cmd(&["SET", "a", "1"]), Value::Okay);
        assert_eq!(server.text(&["GET", "a"]), "1");
        assert_eq!(server.text(&["DEBUG", "SLEEP", "0"]), "OK");
    }
}

#[test]
fn a_client_reaches_it_by_its_url() {
    let server = Server::builder(Flavor::Valkey91).password("secret").start();
    let mut client = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let pong: String = redis::cmd("PING").query(&mut client).unwrap();
    assert_eq!(pong, "PONG");
    let stranger = redis::Client::open(server.url_with("", "/")).unwrap();
    let refused = stranger.get_connection().and_then(|mut it| redis::cmd("PING").query::<String>(&mut it));
    assert!(refused.unwrap_err().to_string().contains("Authentication required"));
    let mut client = redis::Client::open(server.url_with(":secret", "/3")).unwrap().get_connection().unwrap();
    let info: String = redis::cmd("CLIENT").arg("INFO").query(&mut client).unwrap();
    assert!(info.contains(" db=3 "), "{info}");
}

#[test]
fn users_are_held_to_their_rules_with_and_without_an_acl_file() {
    for flavor in all_flavors() {
        let builder = Server::builder(flavor).user("app", "on >pw ~app:* +@all -@dangerous").user("default", "off");
        let server = if flavor == Flavor::Redis62 { builder.acl_file() } else { builder }.start();
        let mut client = Connection::port(server.port()).unwrap();
        assert_eq!(text(&client.cmd(&["PING"]).unwrap()), "-NOAUTH Authentication required.");
        assert_eq!(client.cmd(&["AUTH", "app", "pw"]).unwrap(), Value::Okay);
        assert_eq!(client.cmd(&["SET", "app:1", "x"]).unwrap(), Value::Okay);
        assert!(text(&client.cmd(&["SET", "other", "x"]).unwrap()).starts_with("-NOPERM"));
        assert!(text(&client.cmd(&["FLUSHALL"]).unwrap()).starts_with("-NOPERM"));
        server.cmd(&["FLUSHALL"]);
    }
}

#[test]
fn data_survives_a_kill_only_with_an_append_only_file() {
    for flavor in all_flavors() {
        let durable = Server::builder(flavor).aof("always").start();
        let forgetful = Server::start(flavor);
        for server in [&durable, &forgetful] {
            let (port, pid) = (server.port(), server.pid());
            server.cmd(&["SET", "a", "1"]);
            server.restart();
            assert_eq!(server.port(), port);
            assert_ne!(server.pid(), pid);
            wait_until(SOON, "the data to be loaded", || server.try_cmd(&["EXISTS", "a"]).is_ok());
        }
        assert_eq!(durable.text(&["GET", "a"]), "1");
        assert_eq!(forgetful.cmd(&["GET", "a"]), Value::Nil);
    }
}

#[test]
fn a_stopped_server_answers_only_after_it_may_run_on() {
    let server = Server::valkey();
    let mut client = Connection::port(server.port()).unwrap();
    server.stop();
    client.send(&["PING"]).unwrap();
    client.limit(Some(Duration::from_millis(50))).unwrap();
    assert!(client.read().is_err());
    server.cont();
    client.limit(Some(SOON)).unwrap();
    assert_eq!(text(&client.read().unwrap()), "PONG");
}

#[test]
fn a_killed_server_refuses_connections_and_a_dropped_one_is_gone() {
    let server = Server::valkey();
    let mut client = Connection::port(server.port()).unwrap();
    server.kill();
    assert!(client.cmd(&["PING"]).is_err());
    assert!(Connection::port(server.port()).is_err());
    server.restart();
    assert_eq!(server.text(&["PING"]), "PONG");
    let (pid, folder) = (server.pid(), server.folder().to_owned());
    server.stop();
    drop(server);
    assert_eq!(state(pid), None);
    assert!(!folder.exists());
}

#[test]
fn it_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(Server::valkey).join().unwrap();
    assert_eq!(server.text(&["PING"]), "PONG");
}

#[test]
fn the_fixture_survives_the_killing_of_its_connection_and_a_full_house() {
    let server = Server::builder(Flavor::Valkey91).config("maxclients", "3").start();
    let old = server.int(&["CLIENT", "ID"]);
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"]);
    assert!(server.int(&["CLIENT", "ID"]) > old);
    let _first = Connection::port(server.port()).unwrap();
    let _second = Connection::port(server.port()).unwrap();
    let mut third = Connection::port(server.port()).unwrap();
    assert!(String::from_utf8(third.read_to_end().unwrap()).unwrap().contains("max number of clients"));
    assert_eq!(server.text(&["PING"]), "PONG");
}

#[test]
fn monitor_tells_what_clients_sent_and_what_scripts_did() {
    let server = Server::valkey();
    let monitor = server.monitor();
    let mut client = Connection::port(server.port()).unwrap();
    client.cmd(&["EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", "k", "v w"]).unwrap();
    server.cmd(&["PING"]);
    let sent = monitor.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].is("EVAL"));
    let inside: Vec<_> = monitor.seen().into_iter().filter(|line| line.source == "lua").collect();
    assert_eq!(inside.len(), 1);
    assert_eq!(inside[0].args, ["SET", "k", "v w"]);
    monitor.clear();
    assert_eq!(monitor.count("EVAL"), 0);
    assert_eq!(monitor.seen(), []);
}

#[test]
fn tls_is_spoken_on_the_second_port_with_a_certificate_of_its_own() {
    let server = Server::builder(Flavor::Redis70).tls().start();
    let (tls, port) = server.tls().unwrap();
    assert_eq!(ping_over_tls(port, &tls.ca, "127.0.0.1").unwrap(), "+PONG\r\n");
    assert_eq!(ping_over_tls(port, &tls.ca, "localhost").unwrap(), "+PONG\r\n");
    let elsewhere = Server::builder(Flavor::Redis70).tls_for(&["elsewhere.test"]).start();
    let (other, port) = elsewhere.tls().unwrap();
    let wrong_name = ping_over_tls(port, &other.ca, "localhost").unwrap_err();
    assert!(wrong_name.to_string().contains("not valid for name"), "{wrong_name}");
    let stranger = ping_over_tls(port, &tls.ca, "elsewhere.test").unwrap_err();
    assert!(stranger.to_string().contains("invalid peer certificate"), "{stranger}");
}

/// Set for a copy of this test program that is to start a server and be killed.
const CHILD: &str = "ONELOCK_TEST_CHILD";

#[test]
fn it_dies_with_a_test_process_that_is_killed() {
    let note = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "starts_a_server_and_waits_to_be_killed"])
        .env(CHILD, note.path())
        .spawn()
        .unwrap();
    let read = || std::fs::read_to_string(note.path()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    wait_until(SOON, "the other process to start its server", || read().len() == 2);
    let (pid, folder) = (read()[0].parse().unwrap(), read()[1].clone());
    assert!(state(pid).is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(SOON, "its server to be gone", || matches!(state(pid), None | Some('Z')));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The other half of the test above; does nothing when it is run by itself.
#[test]
fn starts_a_server_and_waits_to_be_killed() {
    if let Some(note) = std::env::var_os(CHILD) {
        let server = Server::valkey();
        server.stop();
        std::fs::write(note, format!("{}\n{}\n", server.pid(), server.folder().display())).unwrap();
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn many_start_at_once_and_each_is_quick() {
    let start = Instant::now();
    let servers: Vec<_> = (0..8).map(|_| std::thread::spawn(Server::valkey)).collect();
    let servers: Vec<_> = servers.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut ports: Vec<_> = servers.iter().map(Server::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 8);
    // A generous bound: it catches a fixture that waits in steps, not a busy machine.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
