//! Nonsense is refused before any request. Nothing listens where these clients would go, and they answer all the same.

use std::time::Duration;

use onelock::{ClientBuilder, Error, ErrorKind, Grade, Kind, Owner};
use onelock_tests::face::{Client, on_both};
use onelock_tests::servers::Port;
use onelock_tests::stage::{SOON, Stage, fails, ms, quick, timed};

type Change = fn(ClientBuilder) -> ClientBuilder;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[test]
fn options_of_a_client_are_checked_when_it_is_made() {
    on_both(|face| {
        let wrong: [(&str, Change); 14] = [
            ("prefix", |it| it.prefix(vec![b'x'; 513])),
            ("label", |it| it.label("x".repeat(129))),
            ("label", |it| it.label("two\nlines")),
            ("ttl", |it| it.ttl(ms(9))),
            ("ttl", |it| it.ttl(YEAR + ms(1))),
            ("drift_factor", |it| it.drift_factor(f64::NAN)),
            ("drift_factor", |it| it.drift_factor(0.51)),
            ("min_validity", |it| it.min_validity(YEAR)),
            ("min_hold", |it| it.min_hold(Duration::MAX)),
            ("max_hold", |it| it.max_hold(Duration::ZERO)),
            ("lock_delay", |it| it.lock_delay(Duration::MAX)),
            ("connect_timeout", |it| it.connect_timeout(Duration::ZERO)),
            ("close_timeout", |it| it.close_timeout(Duration::MAX)),
            ("min_fencing_grade", |it| it.fencing(false).min_fencing_grade(Grade::ClockBounded)),
        ];
        for (word, option) in wrong {
            let result = Client::build(face, option(quick()), "redis://127.0.0.1:1/").map(drop);
            let error = fails(result, ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
        let limits = quick().prefix([b'x'; 512]).label("x".repeat(128)).ttl(YEAR).drift_factor(0.5);
        assert!(Client::build(face, limits, "redis://127.0.0.1:1/").is_ok());
    });
}

#[test]
fn addresses_are_checked_when_the_client_is_made() {
    on_both(|face| {
        let wrong = [
            "localhost",
            "localhost:6379",
            "http://localhost/",
            "redis://host:notaport/",
            "redis://host:99999/",
            "redis://host/notanumber",
            "redis://host/0?no_such_option=1",
            "redis://host/0?protocol=resp9",
            "redis://user:%ff@host/",
            "unix://",
        ];
        for address in wrong {
            let result = Client::build(face, quick(), address);
            assert!(result.is_err(), "{address}");
            let error = fails(result.map(drop), ErrorKind::InvalidArgument);
            assert!(!error.to_string().contains("%ff"), "{error}");
        }
        let error = fails(Client::build(face, quick(), "mongodb://host/").map(drop), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("redis://"), "it names what would do: {error}");
        for good in [
            "redis://h",
            "valkey://h:1/2",
            "redis://u:p@[::1]:6379/0?protocol=resp2",
            "unix:///tmp/x?db=1",
            "memory://",
        ] {
            assert!(Client::build(face, quick(), good).is_ok(), "{good}");
        }
    });
}

#[test]
fn locks_are_checked_when_they_are_used() {
    on_both(|face| {
        let port = Port::reserve();
        let client = Client::build(face, quick(), &format!("redis://127.0.0.1:{}/", port.number())).unwrap();
        let refused = |what: &str, result: Result<(), Error>| {
            let error = fails(result, ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(what), "{what}: {error}");
        };
        let owner = Owner::new();
        let (took, ()) = timed(|| {
            refused("owner", client.lock("a").owner(&owner).acquire().map(drop));
            refused("owner", client.lock("a").owner(&owner).try_acquire().map(drop));
            refused("owner", client.lock("a").owner(&owner).attach("proof").map(drop));
            refused("empty", client.lock("").acquire().map(drop));
            refused("513", client.reentrant_lock([0; 513]).acquire().map(drop));
            refused("ttl", client.lock("a").ttl(ms(9)).acquire().map(drop));
            refused("ttl", client.lock("a").ttl(YEAR * 2).is_locked().map(drop));
            refused("wait", client.lock("a").acquire_within(YEAR + ms(1)).map(drop));
            refused("min_validity", client.lock("a").min_validity(ms(30_000)).acquire().map(drop));
            refused("proof", client.lock("a").attach("").map(drop));
            refused("proof", client.lock("a").attach("onelock1:xyz").map(drop));
            refused("proof", client.lock("a").attach(&"f".repeat(100_000)).map(drop));
            refused("proof", client.reentrant_lock("a").attach(&format!("onelock1:{:032x}", 7)).map(drop));
            refused("empty", client.inspect("").map(drop));
            refused("empty", client.force_release("").map(drop));
        });
        assert!(took < SOON / 2, "{took:?}");
        assert_eq!(client.stats().commands_sent, 0);
    });
}

#[test]
fn extensions_are_checked_before_any_request() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        // or it would look at the server in its own time
        client.check().unwrap();
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let lease = client.lock_of(kind, "a").min_validity(ms(50)).auto_renew(false).acquire().unwrap();
            stage.proxy.pause();
            let (asked, left) = (client.stats().commands_sent, lease.remaining());
            for ttl in [Duration::ZERO, ms(9), ms(40), YEAR + ms(1), Duration::MAX] {
                let error = fails(lease.extend(ttl), ErrorKind::InvalidArgument);
                assert_eq!(error.lock_name(), Some("a"), "{error}");
            }
            assert_eq!(client.stats().commands_sent, asked);
            assert!(lease.is_held() && lease.remaining() <= left);
            stage.proxy.resume();
            lease.extend(ms(40_000)).unwrap();
            lease.released();
        }
    });
}

#[test]
fn without_an_address_the_variable_is_named() {
    // no test of this program sets the variable
    assert!(std::env::var_os(onelock::URL_VARIABLE).is_none(), "unset ONELOCK_URL to run this");
    on_both(|face| {
        let error = fails(Client::build(face, quick(), "").map(drop), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("ONELOCK_URL"), "{error}");
    });
}
