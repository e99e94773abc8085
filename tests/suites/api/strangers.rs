//! Addresses that lead somewhere else than meant, and servers that lack something: the message says what to change.

use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, everywhere, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SOON, Stage, fails, ms, quick};
use onelock_tests::topology::{GROUP, Several};
use onelock_tests::wait::wait_until;

#[test]
fn tls_where_there_is_none_and_none_where_there_is() {
    let server = Server::builder(Flavor::Redis70).tls().start();
    let (_, tls_port) = server.tls().unwrap();
    on_both(|face| {
        let plain = format!("redis://127.0.0.1:{tls_port}");
        let error = fails(Client::connect(face, quick(), &plain), ErrorKind::Unavailable).to_string();
        assert!(error.contains("rediss://"), "{error}");
        // what a server makes of the first words of TLS depends on chance: it answers, hangs up, or waits for their end
        for _ in 0..6 {
            let encrypted = format!("rediss://127.0.0.1:{}?tls_insecure=1", server.port());
            let error = fails(Client::connect(face, quick(), &encrypted), ErrorKind::Unavailable).to_string();
            assert!(error.contains("redis:// instead of rediss://"), "{error}");
        }
    });
}

#[test]
fn a_sentinel_is_not_taken_for_a_server() {
    let server = Server::valkey();
    let line = format!("monitor {GROUP} 127.0.0.1 {} 1", server.port());
    let sentinel = Server::builder(Flavor::Valkey91).sentinel().config("sentinel", &line).start();
    on_both(|face| {
        for query in ["", "?protocol=resp2"] {
            let url = format!("redis://127.0.0.1:{}{query}", sentinel.port());
            let error = fails(Client::connect(face, quick(), &url), ErrorKind::InvalidArgument).to_string();
            assert!(error.contains("Sentinel") && error.contains("redis+sentinel://"), "{error}");
            let client = Client::build(face, quick(), &url).unwrap();
            fails(client.lock("a").acquire(), ErrorKind::InvalidArgument);
        }
    });
}

#[test]
fn who_hangs_up_at_the_first_command_may_be_a_proxy() {
    on_both(|face| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        // as Twemproxy does with a command that it does not know
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                // each on its own: one that says nothing keeps no other waiting
                std::thread::spawn(move || {
                    let mut connection = connection;
                    let _ = connection.read(&mut [0; 4096]);
                });
            }
        });
        let error = fails(Client::connect(face, quick(), &url), ErrorKind::Unavailable).to_string();
        assert!(error.contains("Twemproxy") && error.contains("rediss://"), "{error}");
    });
}

#[test]
fn a_server_without_evalsha_is_sent_the_text_and_one_without_either_is_told_of() {
    everywhere(|flavor, face| {
        let some = Server::builder(flavor).config("rename-command", "EVALSHA \"\"").start();
        let client = Client::connect(face, quick(), &some.url()).unwrap();
        let lease = client.lock("a").acquire().unwrap();
        assert!(client.lock("a").try_acquire().unwrap().is_none());
        lease.extend(ms(40_000)).unwrap();
        assert_eq!(lease.released(), Release::Released);
        let none = Server::builder(flavor)
            .config("rename-command", "EVALSHA \"\"")
            .config("rename-command", "EVAL \"\"")
            .start();
        let client = Client::connect(face, quick(), &none.url()).unwrap();
        let error = fails(client.lock("a").acquire(), ErrorKind::ServerRefused).to_string();
        assert!(error.contains("must offer EVAL"), "{error}");
    });
}

#[test]
fn a_password_with_a_slash_in_it_is_explained_and_not_shown() {
    on_both(|face| {
        for url in [
            "redis://user:12/hunter2@h:6379/0",
            "redis://:p@ss/hunter2@h",
            "redis://:hunter2/x@h",
            "rediss://:p@s/hunter2@h",
            "redis+sentinel://:p/hunter2@h1,h2/group",
            "redis+cluster://:p/hunter2@h1,h2",
            "redlock://:p/hunter2@h1,h2,h3",
        ] {
            let error = fails(Client::build(face, quick(), url), ErrorKind::InvalidArgument).to_string();
            assert!(error.contains("%2F") && !error.contains("hunter2"), "{url}: {error}");
        }
        // an @ alone can be told apart
        assert!(Client::build(face, quick(), "redis://:p@ss@h").is_ok());
    });
}

#[test]
fn a_quarantine_names_the_option_that_ends_it() {
    on_both(|face| {
        let several = Several::start(Flavor::Valkey91, 3);
        let client = Client::build(face, quick(), &several.url("")).unwrap();
        let error = fails(client.lock("a").acquire_within(ms(50)), ErrorKind::NoQuorum).to_string();
        assert!(error.contains("option quarantine") && error.contains("quarantine_ms=0"), "{error}");
    });
}

#[test]
fn what_a_server_says_cannot_command_a_terminal() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let rule = stage.proxy.on(Match::command("EVALSHA")).answer("-ERR \x1b]0;owned\x07 \u{9b}31m\x08\r\n");
        let error = fails(client.lock("a").acquire_within(ms(50)), ErrorKind::ServerRefused);
        for text in [error.to_string(), format!("{error:?}"), error.causes().join("")] {
            assert!(!text.contains(char::is_control), "{text:?}");
        }
        assert!(error.to_string().contains("owned"), "{error}");
        rule.remove();
    });
}

#[test]
fn a_fencing_token_that_is_rounded_elsewhere_is_no_grant() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let reply = |fence: u64| format!("*3\r\n:1700000000000000\r\n:0\r\n:{fence}\r\n");
        let good = stage.proxy.on(Match::command("EVALSHA")).once().replace_reply(reply((1 << 53) - 1));
        let lease = client.lock("a").ttl(Duration::from_secs(60)).acquire().unwrap();
        good.wait_hits(1);
        assert_eq!(lease.fence(), (1 << 53) - 1);
        lease.released();
        let bad = stage.proxy.on(Match::command("EVALSHA").with_arg("b")).times(3).replace_reply(reply(1 << 53));
        let result = client.lock("b").ttl(ms(2000)).acquire_within(ms(1)).map(|lease| lease.fence());
        assert!(result.as_ref().is_err() || result.as_ref().is_ok_and(|fence| *fence < 1 << 53), "{result:?}");
        bad.remove();
        wait_until(SOON, "what was not believed to be released", || !stage.exists("b"));
    });
}
