//! Who may connect: TLS, users and passwords, forked children, and what is no memcached.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use onelock::store::{Credentials, Severity};
use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, Face, block_on, on_both};
use onelock_tests::memcached::Memcached;
use onelock_tests::servers::spawn;
use onelock_tests::stage::{SOON, fails, quick, unhurried};
use onelock_tests::wire::Wire;

use crate::place::{at, client, client_at, is_free, item, server};

#[test]
fn over_tls_the_certificate_counts() {
    on_both(|face| {
        let (server, tls) = Memcached::encrypted(&["127.0.0.1"]);
        let url = format!("memcacheds://127.0.0.1:{}", server.port());
        let build = |options: onelock::ClientBuilder, url: &str| Client::build(face, options, url).unwrap();
        let trusting = build(unhurried().ca_file(&tls.ca), &url);
        assert_eq!(trusting.lock("a").acquire_within(SOON).unwrap().released(), Release::Released);
        assert_eq!(
            build(unhurried().tls_insecure(true), &url).lock("a").acquire().unwrap().released(),
            Release::Released
        );
        let error = fails(build(unhurried(), &url).lock("a").try_acquire(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("TLS failed"), "{error}");
        // one that speaks TLS only, spoken to without
        fails(build(quick(), &at(server.port())).lock("a").try_acquire(), ErrorKind::Unavailable);
    });
}

#[test]
fn a_user_and_a_password_that_are_wrong_or_missing_are_refused() {
    on_both(|face| {
        let server = Memcached::with_user("bob", "open-sesame");
        let url = |user: &str| format!("memcached://{user}127.0.0.1:{}", server.port());
        let build = |url: &str| Client::build(face, unhurried(), url).unwrap();
        let good = build(&url("bob:open%2Dsesame@"));
        assert_eq!(good.lock("a").acquire_within(SOON).unwrap().released(), Release::Released);
        for user in ["bob:wrong@", "eve:open%2Dsesame@", ""] {
            let error = fails(build(&url(user)).lock("a").try_acquire(), ErrorKind::AuthFailed);
            assert!(!error.to_string().contains("wrong") && !error.to_string().contains("sesame"), "{error}");
        }
        // a provider that is asked again when its first answer is refused
        let asked = std::sync::atomic::AtomicU32::new(0);
        let options = unhurried().credentials(move || {
            let first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            let password = if first { "old" } else { "open-sesame" };
            Ok::<_, std::io::Error>(Credentials::new("bob", password))
        });
        let provided = Client::build(face, options, &url("")).unwrap();
        assert_eq!(provided.lock("a").acquire_within(SOON).unwrap().released(), Release::Released);
        // a password is sent to nobody who does not ask for it: such a server would keep it as an item
        let open = Memcached::start();
        let careless = build(&format!("memcached://bob:secret@127.0.0.1:{}", open.port()));
        assert_eq!(careless.lock("a").acquire_within(SOON).unwrap().released(), Release::Released);
        assert_eq!(open.stat("total_items"), 1, "the lock and nothing else");
    });
}

#[test]
fn what_is_no_memcached_or_an_old_one_is_told() {
    for (told, kind) in [
        (&["ERROR"][..], ErrorKind::Unsupported),
        (&["HTTP/1.1 400 Bad Request"], ErrorKind::Unavailable),
        (&["MN", "VERSION 1.5.22", "ERROR"], ErrorKind::Unsupported),
        // one that numbers no items, and does not say so
        (&["MN", "VERSION 1.6.38", "STAT evictions on\r\nEND", "VA 1 c0 t30\r\nx"], ErrorKind::Unsupported),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // the look at the server in the background may make a connection of its own: each hears the same
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                    for reply in told {
                        if lines.next().is_some() {
                            let _ = (&stream).write_all(format!("{reply}\r\n").as_bytes());
                        }
                    }
                    // until the client hangs up
                    lines.for_each(drop);
                });
            }
        });
        // what is told once and for all needs no limit
        let options = if kind == ErrorKind::Unsupported { unhurried() } else { quick() };
        let client = Client::build(Face::Blocking, options, &at(port)).unwrap();
        fails(client.lock("a").try_acquire(), kind);
        client.close();
    }
}

/// Without numbers every compare of the server says yes: a late release would delete the next holder's item.
#[test]
fn a_server_that_numbers_no_items_is_refused_before_anything_is_written() {
    on_both(|face| {
        let server = Memcached::with(&["-C"]);
        let client = client_at(face, "numbers", unhurried(), &server.url());
        let error = fails(client.lock("a").try_acquire(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("-C"), "{error}");
        fails(client.force_release("a"), ErrorKind::Unsupported);
        assert_eq!(server.stat("total_items"), 0);
        client.close();
    });
}

#[test]
fn options_for_tls_with_an_address_without_it_are_refused() {
    for options in [unhurried().ca_file("/ca"), unhurried().tls_insecure(true)] {
        let error = fails(Client::build(Face::Blocking, options, "memcached://h"), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("memcacheds://"), "{error}");
    }
}

#[test]
fn a_look_step_by_step_asks_for_no_item_of_others() {
    let wire = Wire::to(server().port());
    let client = block_on(async { unhurried().build(&at(wire.port())) }).unwrap();
    let found = block_on(client.diagnose("")).unwrap();
    assert!(found.findings.iter().any(|finding| finding.step == "round trip"), "{found:?}");
    let key = item("onelock-doctor");
    for line in wire.sent().lines().filter(|line| ["mg", "ms", "md"].iter().any(|word| line.starts_with(word))) {
        assert_eq!(line.split(' ').nth(1), Some(key.as_str()), "{line}");
    }
}

#[test]
fn a_look_step_by_step_tells_what_it_is_worth() {
    let client = block_on(async { unhurried().build(&server().url()) }).unwrap();
    let found = block_on(client.diagnose("app:")).unwrap();
    let step = |name: &str| found.findings.iter().find(|finding| finding.step == name).unwrap();
    for name in ["tcp", "user", "version", "permission", "round trip"] {
        assert_eq!(step(name).severity, Severity::Passed, "{:?}", step(name));
    }
    assert_eq!(step("eviction").severity, Severity::Warning);
    assert!(step("persistence").detail.contains("restart"), "{:?}", step("persistence"));
    assert_eq!(found.grade, onelock::Grade::None);
    let nowhere = block_on(async { quick().build(&at(1)) }).unwrap();
    let found = block_on(nowhere.diagnose("")).unwrap();
    assert_eq!((found.findings.len(), found.findings[0].step), (1, "tcp"));
    assert_eq!(found.findings[0].error, Some(ErrorKind::Unavailable));
}

fn fork(what: &str) {
    let client = Client::build(Face::Blocking, unhurried(), &server().url()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onelock-forker"));
    command.args([what, &server().url()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = spawn(command).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "look\n", "it has ended");
        assert!(client.lock("a").try_acquire().unwrap().is_none(), "the parent has it");
        child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}; see its messages above");
    assert!(is_free(&client, "a"));
}

#[test]
fn a_forked_child_leaves_the_connections_of_its_parent_alone() {
    // one after the other: both lock the same name
    fork("blocking");
    fork("async");
    client(Face::Blocking, "forks").close();
}
