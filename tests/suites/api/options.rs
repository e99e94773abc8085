//! Lock delay, prefix, fencing, grades, labels, ways to reach a server, and what `stats` counts.

use std::time::{Duration, Instant};

use onelock::{ErrorKind, Grade, Kind, LossReason, Release};
use onelock_tests::face::{Client, everywhere, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::servers::{Flavor, Server};
use onelock_tests::stage::{SLACK, SOON, Stage, fails, ms, quick, quick_once, timed, unhurried};
use onelock_tests::wait::wait_until;

#[test]
fn lock_delay_holds_others_off_after_an_unclean_end_only() {
    on_both(|face| {
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let stage = Stage::valkey();
            let (client, next) = (stage.client(face), stage.rival(face));
            let lock = client.lock_of(kind, "a").ttl(ms(300)).lock_delay(ms(2000)).auto_renew(false);
            let start = Instant::now();
            let lease = lock.acquire().unwrap();
            assert!((301..=2300).contains(&stage.pttl("a")), "{}", stage.pttl("a"));
            assert!(lease.remaining() <= ms(300), "the holder believes the ttl only");
            assert_eq!(lease.wait_lost(SOON), Some(LossReason::Expired));
            assert!(next.lock_of(kind, "a").try_acquire().unwrap().is_none(), "not yet");
            let theirs = next.lock_of(kind, "a").acquire_within(SOON).unwrap();
            let after = start.elapsed();
            assert!(after >= ms(2250) && after < ms(2300) + SLACK * 2, "{after:?}");
            theirs.released();
            lease.released();
            let lease = lock.acquire().unwrap();
            assert_eq!(lease.released(), Release::Released);
            assert!(next.lock_of(kind, "a").try_acquire().unwrap().is_some(), "a clean end: at once");
        }
    });
}

#[test]
fn a_prefix_is_on_the_server_and_nowhere_else() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client_with(face, quick().prefix(b"app\xff{x}:"));
        let lease = client.lock("a").acquire().unwrap();
        assert!(stage.exists(b"app\xff{x}:a") && !stage.exists("a"));
        assert!(stage.exists(b"onelock_fence:app\xff{x}:a"), "companions carry it, too");
        let error = fails(client.lock("a").acquire_within(ms(0)), ErrorKind::Busy);
        assert_eq!(error.lock_name(), Some("a"));
        assert_eq!(client.inspect("a").unwrap().unwrap().fencing_token, lease.fencing_token());
        assert!(client.lock("a").is_locked().unwrap());
        // the same name without the prefix is another lock
        assert!(stage.client(face).lock("a").try_acquire().unwrap().is_some());
        assert!(client.force_release("a").unwrap());
        assert!(!stage.exists(b"app\xff{x}:a"));
    });
}

#[test]
fn without_fencing_there_is_no_token_and_no_companion() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client_with(face, quick().fencing(false));
        assert_eq!(client.check().unwrap().grade, Grade::None);
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let lease = client.lock_of(kind, "a").acquire().unwrap();
            assert_eq!(lease.fencing_token(), None);
            assert_eq!(client.inspect("a").unwrap().unwrap().fencing_token, None);
            assert_eq!(stage.server.int(&["DBSIZE"]), 1);
            lease.extend(ms(40_000)).unwrap();
            assert_eq!(lease.released(), Release::Released);
        }
        // one lock alone can have it off, too
        let client = stage.client(face);
        assert_eq!(client.lock("b").fencing(false).acquire().unwrap().fencing_token(), None);
        assert!(client.lock("c").acquire().unwrap().fencing_token().is_some());
    });
}

#[test]
fn a_grade_that_is_demanded_is_checked_before_anything_is_granted() {
    everywhere(|flavor, face| {
        let plain = Server::start(flavor);
        let evicting = Server::builder(flavor).config("maxmemory-policy", "allkeys-lru").start();
        let strict = Server::builder(flavor).aof("always").start();
        let demand = |grade| unhurried().min_fencing_grade(grade);
        let cases = [
            (&plain, Grade::ClockBounded, None),
            (&plain, Grade::Strict, Some("appendonly")),
            (&evicting, Grade::BestEffort, None),
            (&evicting, Grade::ClockBounded, Some("maxmemory-policy")),
            (&strict, Grade::Strict, None),
        ];
        for (server, grade, why_not) in cases {
            let connected = Client::connect(face, demand(grade), &server.url());
            let lazily = Client::build(face, demand(grade), &server.url()).unwrap();
            match why_not {
                None => {
                    let facts = connected.unwrap().check().unwrap();
                    assert!(facts.grade >= grade, "{facts:?}");
                    let lease = lazily.lock("a").try_acquire().unwrap().expect("it is free");
                    assert_eq!(lease.released(), Release::Released);
                }
                Some(word) => {
                    let error = fails(connected.map(drop), ErrorKind::Unsupported);
                    assert!(error.to_string().contains(word), "{word}: {error}");
                    // a client that was not connected finds out at its first acquire
                    fails(lazily.lock("a").try_acquire(), ErrorKind::Unsupported);
                    assert_eq!(server.int(&["EXISTS", "a"]), 0);
                }
            }
        }
    });
}

#[test]
fn what_a_store_lacks_is_refused_before_any_io() {
    on_both(|face| {
        // nobody listens there, and nobody is asked
        for url in ["redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "memory://"] {
            let error = fails(Client::build(face, quick().min_replicas(1), url).map(drop), ErrorKind::Unsupported);
            let store = url.split("://").next().unwrap();
            assert!(error.to_string().contains(&format!("{store}:// has no min_replicas; it has ")), "{error}");
            assert!(error.to_string().contains("lock_delay"), "{error}");
            assert!(Client::build(face, quick().min_replicas(0), url).is_ok());
        }
        assert!(Client::build(face, quick().min_replicas(1), "redis://127.0.0.1:1").is_ok());
    });
}

#[test]
fn a_label_shows_in_the_list_of_clients() {
    everywhere(|flavor, face| {
        let server = Server::start(flavor);
        let client =
            Client::connect(face, quick().request_timeout(ms(2000)).label("checkout-7"), &server.url()).unwrap();
        let _lease = client.lock("a").acquire().unwrap();
        assert!(server.text(&["CLIENT", "LIST"]).contains("name=checkout-7"));
        // a label that the server does not take is no reason to fail
        let client =
            Client::connect(face, quick().request_timeout(ms(2000)).label("with space"), &server.url()).unwrap();
        assert!(client.lock("b").try_acquire().unwrap().is_some());
    });
}

#[test]
fn a_socket_in_the_file_system_and_tls_are_ways_to_a_server() {
    on_both(|face| {
        let server = Server::builder(Flavor::Redis70).tls().start();
        let (files, port) = server.tls().unwrap();
        let patient = || onelock::Client::builder().request_timeout(SOON).connect_timeout(SOON);
        let works = |client: &Client| {
            let lease = client.lock("a").acquire().unwrap();
            assert!(client.lock("a").try_acquire().unwrap().is_none());
            assert_eq!(lease.released(), Release::Released);
        };
        works(&Client::connect(face, patient(), &server.unix_url()).unwrap());
        works(&Client::connect(face, patient().ca_file(&files.ca), &server.tls_url()).unwrap());
        let with_certificate = patient().ca_file(&files.ca).client_certificate(&files.client_cert, &files.client_key);
        works(&Client::connect(face, with_certificate, &server.tls_url()).unwrap());
        works(&Client::connect(face, patient().tls_insecure(true), &server.tls_url()).unwrap());
        // an authority that nobody told us to believe
        let error = fails(Client::connect(face, patient(), &server.tls_url()).map(drop), ErrorKind::Unavailable);
        assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
        // plain text where TLS is spoken, and the reverse
        let plain = format!("redis://127.0.0.1:{port}/");
        fails(Client::connect(face, quick(), &plain).map(drop), ErrorKind::Unavailable);
        let wrong = server.url().replace("redis://", "rediss://");
        fails(Client::connect(face, quick().tls_insecure(true), &wrong).map(drop), ErrorKind::Unavailable);
    });
}

#[test]
fn a_database_is_selected_on_every_connection() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = Client::build(face, quick(), &stage.proxy.url_with("", "/3")).unwrap();
        let lease = client.lock("a").acquire().unwrap();
        assert!(stage.server.info("keyspace").contains_key("db3") && !stage.exists("a"));
        stage.proxy.cut_all();
        lease.extend(ms(40_000)).unwrap();
        assert!(stage.client(face).lock("a").try_acquire().unwrap().is_some(), "another database, another lock");
        assert!(matches!(lease.released(), Release::Released | Release::Unconfirmed));
        let none = Client::build(face, quick(), &stage.proxy.url_with("", "/99999")).unwrap();
        fails(none.lock("a").try_acquire(), ErrorKind::InvalidArgument);
    });
}

#[test]
fn stats_count_what_happened_and_return_to_zero() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        assert_eq!(client.stats(), onelock::Stats::default(), "nothing yet, no connection either");
        assert_eq!(stage.proxy.connections(), 0);
        let held = client.lock("a").ttl(ms(20_000)).renew_every(ms(20)).acquire().unwrap();
        assert!(client.lock("a").try_acquire().unwrap().is_none());
        fails(client.lock("a").acquire_within(ms(20)), ErrorKind::Timeout);
        fails(client.lock("").acquire(), ErrorKind::InvalidArgument);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "one waiter", || client.stats().waiting == 1);
            assert_eq!(client.stats().held, 1);
            // while it waits
            let renewals = client.stats().renewals;
            wait_until(SOON, "renewals", || client.stats().renewals >= renewals + 3);
            held.released();
            let second = waiter.join().unwrap();
            stage.server.cmd(&["DEL", "a"]);
            assert!(second.extend(ms(1000)).is_err());
            second.released();
        });
        wait_until(SOON, "clean-up", || client.stats().cleaning == 0);
        let stats = client.stats();
        assert_eq!((stats.held, stats.waiting, stats.cleaning), (0, 0, 0));
        assert_eq!((stats.acquired, stats.busy, stats.timeouts, stats.lost), (2, 1, 1, 1));
        assert_eq!((stats.released, stats.cancelled, stats.failed), (1, 0, 0), "a lost lease is not released");
        assert_eq!((stats.wait.count, stats.hold.count), (2, 2));
        assert!(stats.wait.quantile(1.0) >= ms(20) && stats.hold.quantile(0.1) > Duration::ZERO);
        assert!(stats.commands_sent as usize <= stage.requests(&Match::any()).len() && stats.commands_sent > 6);
        assert_eq!(stats.reconnects, 0);
    });
}

#[test]
fn a_named_memory_store_is_shared_in_the_process_and_a_nameless_one_is_not() {
    on_both(|face| {
        let new = |url: &str| Client::connect(face, quick(), url).unwrap();
        let name = format!("memory://options-{face:?}");
        let (one, two, own) = (new(&name), new(&name), new("memory://"));
        quick_once(ms(900), "woken", || {
            let lease = one.lock("a").acquire().unwrap();
            assert!(two.lock("a").try_acquire().unwrap().is_none());
            assert!(own.lock("a").try_acquire().unwrap().is_some());
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| two.lock("a").acquire_within(SOON).unwrap());
                wait_until(SOON, "the waiter", || two.stats().waiting == 1);
                let (took, next) = timed(|| {
                    lease.released();
                    waiter.join().unwrap()
                });
                assert!(next.fence() > lease.fence());
                next.released();
                took
            })
        });
    });
}
