//! Who may connect, and a look at a cluster step by step.

use std::sync::atomic::{AtomicU32, Ordering};

use onelock::store::{Credentials, Severity};
use onelock::{ErrorKind, Release};
use onelock_tests::etcd::Etcd;
use onelock_tests::face::{Client, block_on, on_both};
use onelock_tests::stage::{SOON, fails, quick, unhurried};
use onelock_tests::wire::Wire;

use crate::place::{Place, SERVER};

fn with_users() -> Etcd {
    let server = Etcd::start();
    for arguments in [&["user", "add", "root:sesame"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
    {
        server.ctl(arguments);
    }
    server
}

#[test]
fn a_credentials_provider_is_asked_for_each_connection_and_again_when_it_is_refused() {
    let server = with_users();
    on_both(|face| {
        let asked = std::sync::Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let options = unhurried().credentials(move || {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            Ok::<_, std::io::Error>(Credentials::new("root", if first { "old" } else { "sesame" }))
        });
        let client = Client::build(face, options, &server.url("")).unwrap();
        assert_eq!(client.lock(format!("{face:?}")).acquire_within(SOON).unwrap().released(), Release::Released);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let options = unhurried().credentials(|| Err::<Credentials, _>(std::io::Error::other("the vault is shut")));
        let refused = Client::build(face, options, &server.url("")).unwrap();
        let error = fails(refused.lock("a").try_acquire(), ErrorKind::Unavailable).to_string();
        assert!(error.contains("the vault is shut"), "{error}");
        client.close();
        refused.close();
    });
}

#[test]
fn a_look_step_by_step_tells_what_it_is_worth() {
    let (server, place) = (with_users(), Place::new());
    let wire = Wire::to(SERVER.port());
    let look = |url: &str| {
        block_on(async { unhurried().connect_timeout(SOON).build(url).unwrap().diagnose("app:").await.unwrap() })
            .findings
    };
    let user = format!("etcd://root:sesame@127.0.0.1:{}", server.port());
    for url in [place.url_at(wire.port()), user] {
        let found = look(&url);
        for name in ["tcp", "user", "permission", "round trip"] {
            let step = found.iter().find(|finding| finding.step == name).unwrap_or_else(|| panic!("{name}: {found:?}"));
            assert_eq!(step.severity, Severity::Passed, "{step:?}");
        }
    }
    // it asks for no key but that of the lock that it takes
    let key = format!("{}app:onelock-doctor", place.namespace);
    let sent = String::from_utf8_lossy(&wire.sent_bytes()).into_owned();
    let (own, all) = (sent.matches(&key).count(), sent.matches("onelock-doctor").count());
    assert!(own >= 10 && own == all, "{own} of {all}");
    assert!(place.keys("").is_empty(), "nothing is left there");
    let found = look(&format!("etcd://root:wr0ng@127.0.0.1:{}", server.port()));
    assert_eq!((found.len(), found[0].step, found[0].error), (1, "user", Some(ErrorKind::AuthFailed)), "{found:?}");
    let nowhere = block_on(async { quick().build("etcd://127.0.0.1:1").unwrap().diagnose("").await.unwrap() });
    let found = nowhere.findings;
    assert_eq!((found.len(), found[0].step, found[0].error), (1, "tcp", Some(ErrorKind::Unavailable)), "{found:?}");
}
