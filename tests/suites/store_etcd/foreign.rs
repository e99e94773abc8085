//! What stands among the keys of a lock and is none: it is told, and left untouched.

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::stage::{SOON, fails, ms, unhurried};
use onelock_tests::wait::wait_until;

use crate::place::{Place, SERVER, is_free};

#[test]
fn a_key_of_another_program_is_no_lock_and_stays() {
    on_both(|face| {
        let place = Place::new();
        let client = place.client(face);
        let key = format!("{}job/config", place.namespace);
        SERVER.ctl(&["put", &key, "hunter2"]);
        for error in [
            fails(client.lock("job").try_acquire(), ErrorKind::WrongKind),
            fails(client.lock("job").acquire_within(SOON), ErrorKind::WrongKind),
            fails(client.reentrant_lock("job").acquire_within(SOON), ErrorKind::WrongKind),
            fails(client.force_release("job"), ErrorKind::WrongKind),
            fails(client.inspect("job"), ErrorKind::WrongKind),
        ] {
            let text = error.to_string();
            assert!(text.contains("key of another program") && !text.contains("hunter2"), "{text}");
        }
        assert!(client.listing("*").unwrap().is_empty());
        wait_until(SOON, "cleanup", || client.stats().cleaning == 0);
        assert_eq!(place.keys("job/"), [&*key], "nothing was added, nothing was taken away");
        assert!(client.force_release_foreign("job").unwrap());
        assert!(place.keys("job/").is_empty() && is_free(&client, "job"));
        // one with a lease, whose name is no number of one; and one with such a name and no lease
        for (name, with_lease) in [("leader", true), ("c0ffee", false)] {
            let key = format!("{}job/{name}", place.namespace);
            if with_lease {
                let told = SERVER.ctl(&["lease", "grant", "100"]);
                let lease = told.split(' ').nth(1).unwrap();
                SERVER.ctl(&["put", "--lease", lease, &key, "x"]);
            } else {
                SERVER.ctl(&["put", &key, "x"]);
            }
            fails(client.lock("job").try_acquire(), ErrorKind::WrongKind);
            SERVER.ctl(&["del", &key]);
        }
        client.close();
    });
}

#[test]
fn what_a_service_registered_under_a_number_is_not_taken_by_force() {
    let place = Place::new();
    let client = place.client(Face::Async);
    let key = format!("{}services/cafe01", place.namespace);
    let told = SERVER.ctl(&["lease", "grant", "100"]);
    SERVER.ctl(&["put", "--lease", told.split(' ').nth(1).unwrap(), &key, "10.0.0.7:80"]);
    fails(client.force_release("services"), ErrorKind::WrongKind);
    assert_eq!(place.keys("services/"), [&*key]);
    assert!(client.force_release_foreign("services").unwrap());
    assert!(place.keys("services/").is_empty());
    client.close();
}

#[test]
fn an_undo_leaves_the_lease_alone_that_somebody_else_gave_the_key() {
    let place = Place::new();
    let client = place.client(Face::Async);
    let lease = client.lock("job").ttl(ms(60_000)).acquire().unwrap();
    let keys = place.keys("job/");
    let told = SERVER.ctl(&["lease", "grant", "100"]);
    let foreign = told.split(' ').nth(1).unwrap();
    let other = format!("{}other", place.namespace);
    SERVER.ctl(&["put", "--lease", foreign, &other, "x"]);
    SERVER.ctl(&["put", "--lease", foreign, &keys[0], "x"]);
    let _ = lease.release();
    client.close();
    assert_eq!(place.keys("other"), [&*other], "it hung on the same lease");
}

#[test]
fn behind_ones_own_key_it_harms_nobody() {
    on_both(|face| {
        let place = Place::new();
        let (client, other) = (place.client(face), place.client(face));
        let lease = client.lock("job").ttl(ms(2000)).acquire().unwrap();
        SERVER.ctl(&["put", &format!("{}job/config", place.namespace), "x"]);
        fails(other.lock("job").acquire_within(SOON), ErrorKind::WrongKind);
        assert!(lease.is_held() && client.inspect("job").unwrap().is_some());
        assert_eq!(lease.released(), Release::Released);
        client.close();
        other.close();
    });
}

#[test]
fn raw_names_are_paths_and_a_lock_below_another_is_told() {
    let place = Place::new();
    let raw = Client::build(Face::Blocking, unhurried(), &place.url("names=raw")).unwrap();
    let lease = raw.lock("job/part").acquire().unwrap();
    assert!(place.keys("job/part/").len() == 1 && raw.listing("job/*").unwrap().len() == 1);
    fails(raw.lock("job").try_acquire(), ErrorKind::WrongKind);
    fails(raw.force_release("job"), ErrorKind::WrongKind);
    assert!(lease.is_held());
    assert_eq!(lease.released(), Release::Released);
    assert!(is_free(&raw, "job"));
    // with names that are escaped they are two
    let escaped = place.client(Face::Blocking);
    let lease = escaped.lock("job/part").acquire().unwrap();
    assert!(is_free(&escaped, "job"));
    assert_eq!(lease.released(), Release::Released);
    raw.close();
    escaped.close();
}
