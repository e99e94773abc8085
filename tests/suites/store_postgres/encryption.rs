//! TLS, and who logs in: what `sslmode` asks for, certificates that change, and credentials that a provider gives.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use onelock::{Credentials, ErrorKind};
use onelock_tests::face::{Client, on_both};
use onelock_tests::postgres::Postgres;
use onelock_tests::servers::Tls;
use onelock_tests::stage::{SOON, fails, ms, unhurried};
use onelock_tests::wait::wait_until;

use crate::place::{is_free, server};

/// A server that speaks TLS as `localhost`, and what its users must do.
static ENCRYPTED: LazyLock<(Postgres, Tls)> = LazyLock::new(|| {
    let (server, tls) = Postgres::encrypted(&["localhost"]);
    let session = server.session();
    session.run("CREATE USER plain SUPERUSER; CREATE USER tls SUPERUSER; CREATE USER client SUPERUSER");
    session.run("CREATE USER asked SUPERUSER PASSWORD 'first'");
    let file = session.one("SHOW hba_file");
    let rules = std::fs::read_to_string(&file).unwrap();
    let lines = "hostnossl all plain 127.0.0.1/32 trust\nhostssl all plain 127.0.0.1/32 reject\n\
                 hostssl all tls 127.0.0.1/32 trust\nhost all tls 127.0.0.1/32 reject\n\
                 hostssl all client 127.0.0.1/32 cert\nhost all client 127.0.0.1/32 reject\n\
                 host all asked 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(&file, format!("{lines}{rules}")).unwrap();
    session.run("SELECT pg_reload_conf()");
    wait_until(SOON, "the new rules", || {
        onelock_tests::postgres::Session::connect(server.port(), "tls", None).is_err()
    });
    (server, tls)
});

fn url(user: &str, host: &str, query: &str) -> String {
    format!("postgres://{user}@{host}:{}/postgres?table=t_{user}&{query}", ENCRYPTED.0.port())
}

/// Whether the connections of this user are encrypted.
fn is_encrypted(user: &str) -> bool {
    let text = format!(
        "SELECT bool_and(ssl), count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = '{user}'"
    );
    let found = ENCRYPTED.0.session().one(&text);
    assert!(found.ends_with("|t"), "{user} is not connected");
    found.starts_with('t')
}

#[test]
fn every_mode_does_what_libpq_does() {
    let (_, tls) = &*ENCRYPTED;
    let ca = format!("sslrootcert={}", tls.ca.display());
    // an authority that has signed nothing here
    let other = Postgres::encrypted(&["localhost"]);
    let wrong = format!("sslrootcert={}", other.1.ca.display());
    on_both(|face| {
        let with =
            |user: &str, host: &str, query: &str| Client::build(face, unhurried(), &url(user, host, query)).unwrap();
        for (user, host, query, encrypted) in [
            ("postgres", "127.0.0.1", String::new(), Some(true)),
            ("postgres", "127.0.0.1", "sslmode=disable".to_owned(), Some(false)),
            ("postgres", "127.0.0.1", "sslmode=allow".to_owned(), Some(false)),
            ("postgres", "127.0.0.1", "sslmode=prefer".to_owned(), Some(true)),
            ("postgres", "127.0.0.1", "sslmode=require".to_owned(), Some(true)),
            // by the server's rules
            ("plain", "127.0.0.1", "sslmode=prefer".to_owned(), Some(false)),
            ("tls", "127.0.0.1", "sslmode=allow".to_owned(), Some(true)),
            ("tls", "127.0.0.1", "sslmode=prefer".to_owned(), Some(true)),
            // the certificate is for localhost
            ("tls", "127.0.0.1", format!("sslmode=verify-ca&{ca}"), Some(true)),
            ("tls", "127.0.0.1", format!("sslmode=require&{ca}"), Some(true)),
            ("tls", "localhost", format!("sslmode=verify-full&{ca}"), Some(true)),
            ("tls", "localhost", ca.clone(), Some(true)),
            ("tls", "127.0.0.1", format!("sslmode=verify-full&{ca}"), None),
            ("tls", "127.0.0.1", ca.clone(), None),
            ("tls", "localhost", format!("sslmode=verify-full&{wrong}"), None),
            ("tls", "127.0.0.1", format!("sslmode=verify-ca&{wrong}"), None),
            ("tls", "127.0.0.1", format!("sslmode=require&{wrong}"), None),
            ("tls", "localhost", "sslmode=verify-full".to_owned(), None),
        ] {
            // one after the other: the server tells users apart, not clients
            static ONE: Mutex<()> = Mutex::new(());
            let _one = ONE.lock().unwrap();
            let client = with(user, host, &query);
            if let Some(encrypted) = encrypted {
                assert!(is_free(&client, "a"), "{query}");
                if user == "postgres" {
                    let ssl = "SELECT bool_and(ssl)::text FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                               WHERE application_name = 'onelock' AND usename = 'postgres'";
                    assert_eq!(ENCRYPTED.0.session().one(ssl), encrypted.to_string(), "{query}");
                } else {
                    assert_eq!(is_encrypted(user), encrypted, "{user} {query}");
                }
            } else {
                let error = fails(client.lock("a").try_acquire(), ErrorKind::Unavailable).to_string();
                assert!(error.contains("TLS failed") && error.contains("certificate"), "{query}: {error}");
            }
            client.close();
            let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onelock'";
            wait_until(SOON, "the connections to end", || ENCRYPTED.0.session().one(left) == "0");
        }
        // a server without, and a user who must have it
        let plain = Client::build(face, unhurried(), &server().url("sslmode=require")).unwrap();
        let error = fails(plain.lock("a").try_acquire(), ErrorKind::Unavailable).to_string();
        assert!(error.contains("does not speak TLS"), "{error}");
        plain.close();
        let without = with("tls", "127.0.0.1", "sslmode=disable");
        let error = fails(without.lock("a").try_acquire(), ErrorKind::AuthFailed).to_string();
        assert!(error.contains("pg_hba.conf") && error.contains("sslmode=require"), "{error}");
        without.close();
    });
}

#[test]
fn certificates_of_clients_and_files_that_change() {
    let (_, tls) = &*ENCRYPTED;
    let folder = tempfile::tempdir().unwrap();
    on_both(|face| {
        let authority = folder.path().join(format!("{face:?}.crt"));
        // nothing that could be believed
        std::fs::write(&authority, std::fs::read(&tls.client_cert).unwrap()).unwrap();
        let query = format!(
            "sslmode=verify-full&sslrootcert={}&sslcert={}&sslkey={}",
            authority.display(),
            tls.client_cert.display(),
            tls.client_key.display()
        );
        let client = Client::build(face, unhurried(), &url("client", "localhost", &query)).unwrap();
        fails(client.lock(format!("{face:?}")).try_acquire(), ErrorKind::Unavailable);
        std::fs::copy(&tls.ca, &authority).unwrap();
        assert!(is_free(&client, &format!("{face:?}")), "the files are read anew");
        assert!(is_encrypted("client"));
        client.close();
        // without one of its own
        let query = format!("sslmode=verify-full&sslrootcert={}", tls.ca.display());
        let client = Client::build(face, unhurried(), &url("client", "localhost", &query)).unwrap();
        let error = fails(client.lock("a").try_acquire(), ErrorKind::AuthFailed).to_string();
        assert!(error.contains("certificate"), "{error}");
        client.close();
    });
}

#[test]
fn a_credentials_provider_is_asked_for_each_new_connection() {
    let (server, _) = &*ENCRYPTED;
    let session = server.session();
    for face in onelock_tests::face::Face::ALL {
        session.run("ALTER USER asked PASSWORD 'first'");
        let (asked, word) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new("first")));
        let provider = {
            let (asked, word) = (asked.clone(), word.clone());
            move || {
                asked.fetch_add(1, Ordering::Relaxed);
                Ok::<_, String>(Credentials::new("asked", *word.lock().unwrap()))
            }
        };
        let address = format!("postgres://127.0.0.1:{}/postgres?table=t_asked", server.port());
        let client = Client::build(face, unhurried().credentials(provider), &address).unwrap();
        let lease = client.lock("a").ttl(ms(60_000)).acquire().unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // the password changes; so does what the provider says
        session.run("ALTER USER asked PASSWORD 'second'");
        *word.lock().unwrap() = "second";
        session.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'asked'");
        assert!(client.lock("b").acquire_within(SOON).is_ok());
        assert!(asked.load(Ordering::Relaxed) >= 2);
        lease.released();
        client.close();
        // what it says is no use, or it says nothing
        let wrong = || Ok::<_, String>(Credentials::new("asked", "hunter2"));
        let client = Client::build(face, unhurried().credentials(wrong), &address).unwrap();
        let error = fails(client.lock("a").try_acquire(), ErrorKind::AuthFailed).to_string();
        assert!(!error.contains("hunter2"), "{error}");
        client.close();
        let broken = || Err::<Credentials, _>("no token today");
        let client = Client::build(face, unhurried().credentials(broken), &address).unwrap();
        let error = fails(client.lock("a").try_acquire(), ErrorKind::Unavailable).to_string();
        assert!(error.contains("the credentials provider failed: no token today"), "{error}");
        client.close();
    }
    let both = unhurried().credentials(|| Ok::<_, String>(Credentials::password("x")));
    let error = fails(both.build("postgres://u:hunter2@h/d"), ErrorKind::InvalidArgument).to_string();
    assert!(error.contains("the option credentials") && !error.contains("hunter2"), "{error}");
}
