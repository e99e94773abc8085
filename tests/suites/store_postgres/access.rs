//! Who may what, and which server: users, passwords, standbys; and what the errors say.

use std::sync::Once;

use onelock::{ErrorKind, Grade, Release};
use onelock_tests::face::{Client, Face, block_on, on_both};
use onelock_tests::postgres::Postgres;
use onelock_tests::stage::{SOON, fails, ms, unhurried};
use onelock_tests::wait::wait_until;

use crate::place::{Table, is_free, server};

/// A user who is no superuser, with these rights on the table.
fn user(table: &Table, rights: &str) -> String {
    let user = format!("{}_user", table.name);
    table.session.run(&format!("CREATE USER {user}"));
    if !rights.is_empty() {
        table.session.run(&format!("GRANT {rights} ON {} TO {user}", table.name));
    }
    server().url_of(&user, &format!("table={}", table.name))
}

#[test]
fn a_user_needs_four_rights_on_the_table_and_no_more() {
    on_both(|face| {
        let table = Table::new();
        assert!(is_free(&table.client(face), "a"));
        let url = user(&table, "SELECT, INSERT, UPDATE, DELETE");
        let (client, other) =
            (Client::build(face, unhurried(), &url).unwrap(), Client::build(face, unhurried(), &url).unwrap());
        let lease = client.lock("a").ttl(ms(2000)).acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.lock("a").acquire_within(SOON).unwrap());
            wait_until(SOON, "the waiter", || other.stats().waiting == 1);
            std::thread::sleep(ms(2300));
            assert!(lease.is_held());
            assert_eq!(lease.released(), Release::Released);
            assert_eq!(waiter.join().unwrap().released(), Release::Released);
        });
        let lease = client.lock("a").acquire().unwrap();
        let attached = other.lock("a").attach(&lease.detach().unwrap()).unwrap();
        assert!(other.force_release("a").unwrap() && client.inspect("a").unwrap().is_none());
        assert_eq!(client.listing("*").unwrap().len(), 0);
        drop(attached);
        assert_eq!(client.check().unwrap().grade, Grade::ClockBounded, "fsync is off");
        client.close();
        other.close();
    });
}

static REVOKED: Once = Once::new();

#[test]
fn what_a_user_may_not_is_named_with_what_to_do() {
    on_both(|face| {
        let table = Table::new();
        let ask = |url: &str, kind: ErrorKind, words: &[&str]| {
            let client = Client::build(face, unhurried(), url).unwrap();
            let error = fails(client.lock("a").try_acquire(), kind).to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
            client.close();
        };
        // no table, and nobody to make it
        // once: the server refuses two of these at a time
        REVOKED.call_once(|| table.session.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC"));
        let url = user(&table, "");
        ask(&url, ErrorKind::NotPermitted, &["permission denied", &table.name, "CREATE TABLE IF NOT EXISTS"]);
        let expects = format!("{}&ddl=expect", table.url());
        ask(&expects, ErrorKind::ServerRefused, &["ddl=expect", "CREATE TABLE IF NOT EXISTS", &table.name]);
        // a table, and too few rights
        assert!(is_free(&table.client(face), "a"));
        ask(&url, ErrorKind::NotPermitted, &["permission denied", &table.name]);
        table.session.run(&format!("GRANT SELECT, INSERT ON {} TO {}_user", table.name, table.name));
        ask(&url, ErrorKind::NotPermitted, &["permission denied", "SELECT, INSERT, UPDATE and DELETE on the table"]);
        // a table of somebody else
        table.session.run(&format!("ALTER TABLE {} RENAME COLUMN owner TO person", table.name));
        ask(&table.url(), ErrorKind::ServerRefused, &["owner"]);
        let missing = table.url().replace("/postgres?", "/nowhere?");
        ask(&missing, ErrorKind::InvalidArgument, &["nowhere", "does not exist"]);
    });
}

#[test]
fn passwords_are_checked_and_never_shown() {
    let table = Table::new();
    let (name, tls) = (format!("{}_secret", table.name), format!("{}_tls", table.name));
    table.session.run(&format!("CREATE USER {name} SUPERUSER PASSWORD 'hunter2'; CREATE USER {tls}"));
    let file = table.session.one("SHOW hba_file");
    let rules = std::fs::read_to_string(&file).unwrap();
    let lines = format!("host all {name} 127.0.0.1/32 scram-sha-256\nhostssl all {tls} 127.0.0.1/32 trust\n");
    // one that is not listed is refused
    std::fs::write(&file, format!("{lines}host all {tls} 127.0.0.1/32 reject\n{rules}")).unwrap();
    table.session.run("SELECT pg_reload_conf()");
    let url = |user_info: &str| format!("postgres://{user_info}@127.0.0.1:{}/postgres", server().port());
    let asks = |user: &str| fails(Client::connect(Face::Async, unhurried(), &url(user)), ErrorKind::AuthFailed);
    wait_until(SOON, "the new rules", || Client::connect(Face::Async, unhurried(), &url(&name)).is_err());
    for face in Face::ALL {
        let client = Client::connect(face, unhurried(), &url(&format!("{name}:hunter2"))).unwrap();
        assert!(is_free(&client, "a"));
        client.close();
        let error = fails(Client::connect(face, unhurried(), &url(&format!("{name}:hunter3"))), ErrorKind::AuthFailed);
        let text = format!("{error} {error:?}");
        assert!(text.contains("password authentication failed") && !text.contains("hunter"), "{text}");
        let error = fails(Client::connect(face, unhurried(), &url(&tls)), ErrorKind::AuthFailed);
        let text = error.to_string();
        assert!(text.contains("pg_hba.conf") && text.contains("sslmode=require"), "{text}");
    }
    assert!(asks(&name).to_string().contains("no password"));
}

#[test]
fn a_standby_is_passed_by_and_a_promoted_one_used() {
    let first = Postgres::with(&["fsync=on"]);
    let url = |ports: &[u16]| {
        let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("postgres://postgres@{}/postgres", hosts.join(","))
    };
    let alone = Client::build(Face::Async, unhurried(), &url(&[first.port()])).unwrap();
    assert_eq!(alone.check().unwrap().grade, Grade::Strict);
    let second = first.standby();
    wait_until(SOON, "the standby to be seen", || alone.check().unwrap().grade == Grade::BestEffort);
    assert!(alone.check().unwrap().dangers.iter().any(|danger| danger.contains("(replicas)")));
    alone.close();
    for face in Face::ALL {
        let standby = Client::build(face, unhurried(), &url(&[second.port()])).unwrap();
        let error = fails(standby.lock("a").try_acquire(), ErrorKind::ReadOnly);
        assert!(error.to_string().contains("standby"), "{error}");
        standby.close();
    }
    let clients = Face::ALL.map(|face| Client::build(face, unhurried(), &url(&[second.port(), first.port()])).unwrap());
    for client in &clients {
        assert!(is_free(client, "a"));
    }
    let count = || second.session().one("SELECT count(*) FROM onelock_locks");
    wait_until(SOON, "the standby to follow", || count() == "1");
    first.kill();
    second.promote();
    for client in &clients {
        client.lock("a").acquire_within(SOON).unwrap().released();
        client.close();
    }
}

#[test]
fn a_diagnosis_goes_step_by_step() {
    let table = Table::new();
    let steps = |url: &str| block_on(async { unhurried().build(url).unwrap().diagnose("a").await.unwrap() }).findings;
    let good = steps(&table.url());
    let names: Vec<&str> = good.iter().map(|finding| finding.step).collect();
    let all = ["tcp", "user", "role", "version", "persistence", "replicas", "permission", "round trip", "notify"];
    assert!(all.iter().all(|step| names.contains(step)), "{names:?}");
    assert!(good.iter().all(|finding| finding.error.is_none()), "{good:?}");
    let nobody = server().url_of("nobody_at_all", "");
    let encrypted = server().url("sslmode=require");
    for (url, step) in [(nobody.as_str(), "user"), ("postgres://u@127.0.0.1:1/d", "tcp"), (encrypted.as_str(), "tls")] {
        let found = steps(url);
        assert_eq!(found.iter().find(|finding| finding.error.is_some()).unwrap().step, step, "{found:?}");
    }
    wait_until(SOON, "the connections to end", || table.connections().is_empty());
}
