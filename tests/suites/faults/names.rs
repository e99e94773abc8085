//! Names, durations and numbers at their limits.

use std::time::Duration;

use onelock::{ErrorKind, Kind, Release};
use onelock_tests::face::{Client, everywhere, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::scripts;
use onelock_tests::servers::Port;
use onelock_tests::stage::{SOON, Stage, fails, ms, quick, quick_once, timed};
use onelock_tests::wait::wait_until;

const KINDS: [Kind; 2] = [Kind::Mutex, Kind::Reentrant];

fn strange_names() -> Vec<Vec<u8>> {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let mut names: Vec<Vec<u8>> =
        ["{}", "{", "}", "{}x", "a{b}c", "a{b", "a}b{c}", "{{a}}", " ", "\r\n", "'\"\\", "lock:*?[a]", "ключ", "🔒"]
            .map(|name| name.as_bytes().to_vec())
            .to_vec();
    names.extend([all_bytes, vec![0], b"a\0b".to_vec(), vec![0xff, 0xfe], vec![b'x'; 512], vec![0xc3; 512]]);
    names
}

/// The part of a key that decides its slot in a cluster.
fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    match key[open + 1..].iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(length) => &key[open + 1..open + 1 + length],
    }
}

#[test]
fn f46_any_bytes_are_a_name_and_stand_on_the_server_as_they_are() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client_with(face, quick().request_timeout(ms(8000)));
        for (name, kind) in strange_names().iter().flat_map(|name| KINDS.map(|kind| (name, kind))) {
            let lock = client.lock_of(kind, name);
            let lease = lock.acquire().unwrap();
            assert!(stage.exists(name), "byte for byte: {}", name.escape_ascii());
            assert!(lock.try_acquire().unwrap().is_none());
            assert_eq!(client.inspect(name).unwrap().unwrap().fencing_token, lease.fencing_token());
            lease.extend(ms(60_000)).unwrap();
            let error = fails(lock.acquire_within(Duration::ZERO), ErrorKind::Busy);
            assert_eq!(error.lock_name(), Some(name.escape_ascii().to_string().as_str()));
            assert!(error.to_string().is_ascii() && !error.to_string().contains('\n'), "{error}");
            assert_eq!(lease.released(), Release::Released);
            assert!(!stage.exists(name));
        }
        let keys = stage.server.cmd(&["KEYS", "*"]);
        let redis::Value::Array(keys) = keys else { panic!("{keys:?}") };
        assert_eq!(keys.len(), strange_names().len(), "one counter for each name and nothing else");
    });
}

#[test]
fn f46_companions_stay_in_the_slot_of_their_lock() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        for (name, kind) in strange_names().iter().flat_map(|name| KINDS.map(|kind| (name, kind))) {
            client.lock_of(kind, name).acquire().unwrap().released();
            let takes = if kind == Kind::Mutex { scripts::acquire() } else { scripts::acquire_reentrant() };
            let sent = stage.requests(&takes).pop().unwrap();
            let (key, companion) = (&sent.args[3], &sent.args[4]);
            assert_eq!(key, name);
            // an empty tag counts for nothing, and then no companion can share the slot by its name alone
            if tag(name) != name.as_slice() || !name.contains(&b'{') && !name.contains(&b'}') {
                assert_eq!(tag(companion), tag(key), "{}", companion.escape_ascii());
            }
        }
    });
}

#[test]
fn f46_waiters_of_strange_names_are_woken() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client_with(face, quick().request_timeout(ms(8000)));
        for (name, kind) in strange_names().iter().flat_map(|name| KINDS.map(|kind| (name, kind))) {
            let subscriptions = || stage.server.int(&["EVAL", "return #redis.call('PUBSUB', 'CHANNELS')", "0"]);
            quick_once(ms(900), &name.escape_ascii().to_string(), || {
                let lease = stage.rival(face).lock_of(kind, name).acquire().unwrap();
                let took = std::thread::scope(|scope| {
                    let waiter = scope.spawn(|| client.lock_of(kind, name).acquire_within(SOON).unwrap());
                    wait_until(SOON, "the waiter to listen", || subscriptions() == 1);
                    let (took, _) = timed(|| {
                        lease.released();
                        waiter.join().unwrap().released()
                    });
                    took
                });
                wait_until(SOON, "the subscription to end", || subscriptions() == 0);
                took
            });
        }
    });
}

#[test]
fn f46_empty_and_overlong_names_are_refused_before_any_request() {
    on_both(|face| {
        let port = Port::reserve();
        let client = Client::build(face, quick(), &format!("redis://127.0.0.1:{}/", port.number())).unwrap();
        for name in [vec![], vec![b'x'; 513], vec![0; 1 << 20]] {
            for kind in KINDS {
                fails(client.lock_of(kind, &name).acquire(), ErrorKind::InvalidArgument);
                fails(client.lock_of(kind, &name).try_acquire(), ErrorKind::InvalidArgument);
                fails(client.lock_of(kind, &name).is_locked(), ErrorKind::InvalidArgument);
            }
            fails(client.inspect(&name), ErrorKind::InvalidArgument);
            let error = fails(client.force_release(&name), ErrorKind::InvalidArgument);
            assert!(error.to_string().len() < 4096, "{} bytes of message", error.to_string().len());
        }
        assert_eq!(client.stats().commands_sent, 0);
    });
}

#[test]
fn f47_durations_out_of_bounds_are_refused_before_any_request() {
    on_both(|face| {
        let port = Port::reserve();
        let client = Client::build(face, quick(), &format!("redis://127.0.0.1:{}/", port.number())).unwrap();
        let lock = || client.lock("a");
        let year = Duration::from_secs(365 * 24 * 3600);
        let bad = [
            lock().ttl(Duration::ZERO),
            lock().ttl(Duration::from_nanos(1)),
            lock().ttl(Duration::from_micros(9999)),
            lock().ttl(year + ms(1)),
            lock().ttl(Duration::MAX),
            lock().lock_delay(Duration::MAX),
            lock().min_validity(ms(30_000)),
            lock().min_validity(Duration::MAX),
            lock().min_hold(Duration::MAX),
            lock().max_hold(Duration::ZERO),
            lock().max_hold(Duration::MAX),
        ];
        for lock in bad {
            let (took, error) = timed(|| fails(lock.acquire_within(SOON), ErrorKind::InvalidArgument));
            assert!(took < SOON / 2 && error.lock_name() == Some("a"), "{took:?} {error}");
        }
        for wait in [year + ms(1), Duration::MAX] {
            fails(lock().acquire_within(wait), ErrorKind::InvalidArgument);
        }
        let options: [fn(onelock::ClientBuilder) -> onelock::ClientBuilder; 8] = [
            |builder| builder.ttl(Duration::ZERO),
            |builder| builder.drift_factor(f64::NAN),
            |builder| builder.drift_factor(-0.1),
            |builder| builder.drift_factor(f64::INFINITY),
            |builder| builder.connect_timeout(Duration::ZERO),
            |builder| builder.request_timeout(Duration::MAX),
            |builder| builder.close_timeout(Duration::MAX),
            |builder| builder.unreachable_limit(Duration::ZERO),
        ];
        for option in options {
            let result = Client::build(face, option(quick()), "redis://127.0.0.1:1/").map(drop);
            fails(result, ErrorKind::InvalidArgument);
        }
        assert_eq!(client.stats().commands_sent, 0);
    });
}

#[test]
fn f47_the_shortest_and_the_longest_lease_are_exact() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client(face);
        for kind in KINDS {
            let year_ms = 365 * 24 * 3600 * 1000;
            let long = client.lock_of(kind, "long").ttl(ms(year_ms)).lock_delay(ms(year_ms)).acquire().unwrap();
            assert!((2 * year_ms - 60_000..=2 * year_ms).contains(&stage.pttl("long").cast_unsigned()));
            assert!(long.remaining() > ms(year_ms / 100 * 98));
            assert_eq!(long.released(), Release::Released);
            // fractions are rounded up, never down: the server keeps it at least as long as the holder believes
            let lock = client.lock_of(kind, "fraction").ttl(Duration::from_micros(60_000_400)).auto_renew(false);
            let lease = lock.acquire().unwrap();
            assert!((50_000..=60_001).contains(&stage.pttl("fraction")));
            assert_eq!(lease.released(), Release::Released);
            let sent = stage.requests(&Match::any().with_arg("fraction"));
            assert!(sent.iter().any(|it| it.has_arg("60001")), "{sent:?}");
        }
        // ten milliseconds are a lease, too: granted or honestly too late, never a lock that lasts
        let lock = client.lock("short").ttl(ms(10)).auto_renew(false);
        if let Ok(lease) = lock.acquire_within(ms(2000)) {
            assert!(lease.remaining() < ms(10));
        }
        wait_until(SOON, "it to be gone", || !stage.exists("short"));
    });
}

#[test]
fn f48_tokens_are_exact_to_the_last_digit_and_below_two_to_the_53() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let client = stage.client(face);
        // ahead of the clock, so that each grant adds one; numbers that Lua would print as 1.7e+15
        for start in [1_900_000_000_000_007_u64, 4_503_599_627_370_497, 9_007_199_254_740_900] {
            for kind in KINDS {
                let name = format!("{kind:?}:{start}");
                let counter = format!("onelock_fence:{{{name}}}");
                stage.server.cmd(&["SET", &counter, &start.to_string(), "PX", "900000"]);
                for step in 1..=5 {
                    let lease = client.lock_of(kind, &name).acquire().unwrap();
                    assert_eq!(lease.fence(), start + step);
                    assert_eq!(stage.server.text(&["GET", &counter]), (start + step).to_string());
                    assert_eq!(client.inspect(&name).unwrap().unwrap().fencing_token, Some(start + step));
                    assert_eq!(lease.released(), Release::Released);
                }
            }
        }
        // from the clock: microseconds, which are above ten to the 14
        let lease = client.lock("clock").acquire().unwrap();
        assert!(lease.fence() > 1_700_000_000_000_000 && lease.fence() < 1 << 53);
        assert_eq!(stage.server.text(&["GET", "onelock_fence:{clock}"]), lease.fence().to_string());
        // what no counter of ours can be is not believed
        for rubbish in ["", "abc", "-5", "1e300", "99999999999999999999", "1.5"] {
            stage.server.cmd(&["SET", "onelock_fence:{rubbish}", rubbish]);
            let lease = client.lock("rubbish").acquire().unwrap();
            assert!(lease.fence() > 1_700_000_000_000_000 && lease.fence() < 1 << 53, "{rubbish}");
            assert!(stage.pttl("onelock_fence:{rubbish}") > 0);
            assert_eq!(lease.released(), Release::Released);
        }
    });
}
