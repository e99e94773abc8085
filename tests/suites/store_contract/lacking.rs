//! What a store has works, and what it lacks is `Unsupported`, before any I/O, with the store's name and what it has.

use onelock::{ErrorKind, Grade, Kind, LossReason, Owner, Release};
use onelock_tests::face::Client;
use onelock_tests::stage::{SOON, fails, ms};
use onelock_tests::wait::wait_until;

use crate::place::{Place, on_both};

/// The result of something that the store can do, or nothing: then it was refused as it should be.
fn if_able<T>(place: &Place, able: bool, wanted: &str, result: Result<T, onelock::Error>) -> Option<T> {
    if able {
        return Some(result.unwrap_or_else(|error| panic!("{wanted} on {}: {error}", place.name)));
    }
    let error = fails(result, ErrorKind::Unsupported);
    let store = place.store().capabilities().store;
    assert!(error.to_string().contains(&format!("{store}:// has no {wanted}; it has ")), "{error}");
    None
}

#[test]
fn every_kind_of_lock() {
    on_both("every-kind", |place, face| {
        let capabilities = place.store().capabilities();
        for kind in Kind::ALL {
            // each its own, which has sent nothing yet
            let client = place.client(face);
            let lock = client.lock_of(kind, kind.as_str());
            let able = capabilities.kinds.contains(&kind);
            let sent = client.stats().commands_sent;
            if_able(place, able, kind.as_str(), lock.validate());
            if let Some(lease) = if_able(place, able, kind.as_str(), lock.acquire()) {
                assert_eq!(lease.fencing_token().is_some(), capabilities.fencing && kind != Kind::Semaphore);
                assert_eq!(lease.released(), Release::Released);
            } else {
                if_able(place, able, kind.as_str(), lock.try_acquire());
                if_able(place, able, kind.as_str(), lock.is_locked());
                assert_eq!(client.stats().commands_sent, sent, "before any I/O");
            }
            client.close();
        }
        let client = place.client(face);
        if capabilities.kinds.contains(&Kind::Reentrant) {
            let lock = client.reentrant_lock("entered").owner(&Owner::new());
            let (outer, inner) = (lock.acquire().unwrap(), lock.acquire().unwrap());
            assert_eq!(inner.hold_count(), 2);
            assert_eq!((inner.released(), outer.released()), (Release::Released, Release::Released));
        }
        client.close();
    });
}

#[test]
fn handing_a_hold_over() {
    on_both("hand-over", |place, face| {
        let (client, other) = (place.client(face), place.client(face));
        let able = place.store().capabilities().attach;
        let lease = client.lock("a").acquire().unwrap();
        let Some(proof) = if_able(place, able, "attach", lease.detach()) else {
            assert!(lease.is_held(), "a refused detach changes nothing");
            if_able(place, able, "attach", other.lock("a").attach(lease.token()));
            return;
        };
        let attached = other.lock("a").attach(&proof).unwrap();
        assert_eq!(attached.fencing_token(), lease.fencing_token());
        fails(client.lock("a").attach(&proof), ErrorKind::Lost);
        assert!(attached.is_held() && !lease.is_held());
        assert_eq!(attached.released(), Release::Released);
        client.close();
        other.close();
    });
}

#[test]
fn taking_a_lock_away_and_listing_it() {
    on_both("operator", |place, face| {
        let (client, other) = (place.client(face), place.client(face));
        let capabilities = place.store().capabilities();
        let lease = client.lock("a").renew_every(ms(20)).acquire().unwrap();
        assert!(other.lock("a").is_locked().unwrap());
        let seen = other.inspect("a").unwrap().unwrap();
        assert_eq!((seen.kind, seen.fencing_token), (Kind::Mutex, lease.fencing_token()));
        if let Some(found) = if_able(place, capabilities.list, "list", other.listing("a*")) {
            assert_eq!(found.iter().map(|entry| entry.name.as_slice()).collect::<Vec<_>>(), [b"a"]);
        }
        if_able(place, capabilities.list, "list", other.list("a*", 10, None));
        if_able(place, capabilities.force_release, "force_release", other.force_release_foreign("none"));
        if if_able(place, capabilities.force_release, "force_release", other.force_release("a")) == Some(true) {
            // found at the next renewal
            assert_eq!(lease.wait_lost(SOON), Some(LossReason::Taken));
            assert_eq!(lease.released(), Release::AlreadyExpired);
            // a renewal that was under way may have given it back to one member of a majority
            if ["redlock", "mixture"].contains(&place.name.as_str()) {
                wait_until(SOON, "what is left is undone", || !other.force_release("a").unwrap());
            } else {
                assert!(!other.force_release("a").unwrap(), "again");
            }
        } else {
            assert!(!capabilities.force_release && lease.is_held());
        }
        client.close();
        other.close();
    });
}

#[test]
fn options_about_the_key() {
    on_both("key-options", |place, face| {
        let (client, other) = (place.client(face), place.client(face));
        let capabilities = place.store().capabilities();
        let retained = client.lock("retained").min_hold(ms(4000));
        if_able(place, capabilities.min_hold, "min_hold", retained.validate());
        if let Some(lease) = if_able(place, capabilities.min_hold, "min_hold", retained.acquire()) {
            assert_eq!(lease.released(), Release::Released);
            assert!(other.lock("retained").try_acquire().unwrap().is_none(), "it stays");
            other.lock("retained").acquire_within(SOON).unwrap().released();
        }
        let delayed =
            client.lock("delayed").ttl(capabilities.ttl_min.max(ms(200))).lock_delay(ms(4000)).auto_renew(false);
        if_able(place, capabilities.lock_delay, "lock_delay", delayed.validate());
        if let Some(lease) = if_able(place, capabilities.lock_delay, "lock_delay", delayed.acquire()) {
            assert_eq!(lease.wait_lost(SOON), Some(LossReason::Expired));
            assert!(other.lock("delayed").try_acquire().unwrap().is_none(), "it outlives the lease");
            other.lock("delayed").acquire_within(SOON).unwrap().released();
        }
        client.close();
        other.close();
    });
}

#[test]
fn options_of_a_client() {
    on_both("client-options", |place, face| {
        let capabilities = place.store().capabilities();
        let build = |options| Client::build(face, options, &place.url);
        if_able(place, capabilities.min_replicas, "min_replicas", build(place.options().min_replicas(1)));
        let graded = place.options().min_fencing_grade(Grade::BestEffort);
        if let Some(client) = if_able(place, capabilities.fencing, "min_fencing_grade", build(graded)) {
            assert!(client.check().unwrap().grade >= Grade::BestEffort);
            client.close();
        }
        if_able(place, capabilities.lock_delay, "lock_delay", build(place.options().lock_delay(ms(1))));
        if_able(place, capabilities.min_hold, "min_hold", build(place.options().min_hold(ms(1))));
        let without = build(place.options().fencing(false)).unwrap();
        assert_eq!(without.check().unwrap().grade, Grade::None);
        let lease = without.lock("a").acquire().unwrap();
        assert_eq!(lease.fencing_token(), None);
        assert_eq!(lease.released(), Release::Released);
        without.close();
    });
}

#[test]
fn lengths_of_a_lease() {
    on_both("ttl-limits", |place, face| {
        let client = place.client(face);
        let capabilities = place.store().capabilities();
        for ttl in [capabilities.ttl_min, capabilities.ttl_max] {
            client.lock("a").ttl(ttl).validate().unwrap();
        }
        for ttl in [capabilities.ttl_min / 2, capabilities.ttl_max + ms(1)] {
            let lock = client.lock("a").ttl(ttl);
            let error = fails(lock.acquire(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("ttl is "), "{error}");
        }
        let lease = client.lock("a").acquire().unwrap();
        fails(lease.extend(capabilities.ttl_max + ms(1)), ErrorKind::InvalidArgument);
        assert!(lease.is_held());
        lease.released();
        wait_until(SOON, "nothing held", || client.stats().held == 0);
        client.close();
    });
}
