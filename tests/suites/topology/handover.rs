//! The moment of a hand-over in which the old master is a replica already and the Sentinels still name it.

use std::thread;

use onelock::{ErrorKind, Release};
use onelock_tests::face::{Client, Face};
use onelock_tests::servers::Flavor;
use onelock_tests::stage::{SOON, fails, ms, quick};
use onelock_tests::topology::Directed;
use onelock_tests::wait::wait_until;

/// Longer than a hand-over takes, also on a busy machine.
fn patient() -> onelock::ClientBuilder {
    onelock::Client::builder().connect_timeout(SOON).request_timeout(SOON)
}

#[test]
fn whoever_meets_the_old_master_goes_on_with_the_new_one_within_the_call() {
    let group = Directed::start(Flavor::Valkey91);
    let clients = Face::ALL.map(|face| Client::build(face, patient(), &group.url()).unwrap());
    for client in &clients {
        assert_eq!(client.lock("a").acquire().unwrap().released(), Release::Released);
    }
    let held: Vec<_> =
        clients.iter().enumerate().map(|(at, client)| client.lock(format!("held {at}")).acquire().unwrap()).collect();
    let inside = clients.iter().enumerate().map(|(at, client)| client.lock(format!("inside {at}")).acquire().unwrap());
    let inside: Vec<_> = inside.collect();
    let before = group.refused(0);
    group.demote(0);
    thread::scope(|scope| {
        for (at, client) in clients.iter().enumerate() {
            let (held, inside) = (&held[at], &inside[at]);
            scope.spawn(move || assert!(client.lock(format!("tried {at}")).try_acquire().unwrap().is_some()));
            scope.spawn(move || held.extend(ms(60_000)).unwrap());
            scope.spawn(move || assert_eq!(inside.released(), Release::Released));
            scope.spawn(move || assert!(client.inspect("nobody's").unwrap().is_none()));
        }
        wait_until(SOON, "refusals", || group.refused(0) > before);
        group.name(1);
    });
    for held in &held {
        assert_eq!(held.released(), Release::Released);
    }
}

#[test]
fn a_group_without_a_master_is_unavailable() {
    let group = Directed::start(Flavor::Valkey91);
    let limits = || quick().connect_timeout(ms(1000)).request_timeout(ms(1000));
    let clients = Face::ALL.map(|face| Client::build(face, limits(), &group.url()).unwrap());
    for client in &clients {
        assert_eq!(client.lock("a").acquire().unwrap().released(), Release::Released);
    }
    let held = clients[0].lock("held").ttl(ms(60_000)).acquire().unwrap();
    group.demote(0);
    for (face, client) in Face::ALL.into_iter().zip(&clients) {
        let error = client.lock("a").try_acquire().map(drop).unwrap_err();
        assert!(error.to_string().contains("is a replica"), "{face:?}: {error}");
        for error in [
            error,
            client.lock("a").acquire_within(ms(100)).map(drop).unwrap_err(),
            client.inspect("a").map(drop).unwrap_err(),
            client.force_release("held").map(drop).unwrap_err(),
            client.check().map(drop).unwrap_err(),
            fails(Client::connect(face, limits(), &group.url()), ErrorKind::Unavailable),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{face:?}: {error}");
        }
    }
    group.name(1);
    assert_eq!(held.released(), Release::Released);
}
