//! What was asked for: other threads, any bytes, inspection, force, fencing tokens.

use onelock::{Kind, LossReason, Owner, Release};
use onelock_tests::face::{everywhere, on_both};
use onelock_tests::stage::{SOON, Stage, ms, quick, quick_once, timed};
use onelock_tests::wait::wait_until;

#[test]
fn r40_a_lease_may_move_between_threads() {
    on_both(|face| {
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let stage = Stage::valkey();
            let client = stage.client(face);
            let lock = client.lock_of(kind, "a");
            let lease = std::thread::scope(|scope| scope.spawn(|| lock.acquire().unwrap()).join().unwrap());
            assert!(lease.is_held());
            let lease = std::thread::scope(|scope| {
                let extend = move || {
                    lease.extend(ms(40_000)).unwrap();
                    lease
                };
                scope.spawn(extend).join().unwrap()
            });
            let release = std::thread::scope(|scope| scope.spawn(move || lease.released()).join().unwrap());
            assert_eq!(release, Release::Released);
        }
    });
}

#[test]
fn r41_names_and_proofs_are_bytes_everywhere() {
    on_both(|face| {
        let stage = Stage::valkey();
        let (client, other) = (stage.client(face), stage.client(face));
        for name in [&b"plain"[..], b"\xff\xfe\0\x80", "\u{e9}".as_bytes(), b"a:b,c%d"] {
            for kind in [Kind::Mutex, Kind::Reentrant] {
                let lease = client.lock_of(kind, name).acquire().unwrap();
                assert!(other.lock_of(kind, name).try_acquire().unwrap().is_none(), "the same lock");
                let fence = lease.fence();
                let proof = lease.detach().unwrap();
                assert!(proof.is_ascii());
                let adopted = other.lock_of(kind, name).attach(&proof).unwrap();
                assert_eq!(adopted.fence(), fence);
                assert!(adopted.is_held() && !lease.is_held());
                assert_eq!(adopted.released(), Release::Released);
                assert!(!stage.exists(name));
            }
        }
        let text = client.lock("name").acquire().unwrap();
        assert!(client.lock(b"name").try_acquire().unwrap().is_none(), "text and bytes are one name");
        drop(text);
    });
}

#[test]
fn r49_inspect_tells_who_holds_it_and_force_frees_it() {
    everywhere(|flavor, face| {
        let stage = Stage::new(flavor);
        let labelled = quick().label("nightly, job: 100%").inspectable(true);
        let client = stage.client_with(face, labelled);
        let watcher = stage.rival(face);
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let mut names = (0..).map(|number| format!("{kind:?} {number}"));
            quick_once(ms(900), "woken", || {
                let name = names.next().unwrap();
                let owner = Owner::new();
                let lock = client.lock_of(kind, &name).ttl(ms(20_000)).renew_every(ms(300));
                let lock = if kind == Kind::Reentrant { lock.owner(&owner) } else { lock };
                let lease = lock.acquire().unwrap();
                let inner = (kind == Kind::Reentrant).then(|| lock.acquire().unwrap());

                let seen = watcher.inspect(&name).unwrap().unwrap();
                let who = seen.owner.unwrap();
                assert_eq!((who.label.as_str(), who.pid), ("nightly, job: 100%", std::process::id()));
                assert_eq!(who.host, hostname());
                let now_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
                assert!(who.since_ms <= now_ms && now_ms - who.since_ms < 60_000, "{} {now_ms}", who.since_ms);
                assert_eq!((seen.kind, seen.hold_count), (kind, if inner.is_some() { 2 } else { 1 }));
                assert_eq!(seen.fencing_token, lease.fencing_token());
                assert!(seen.ttl_left.is_some_and(|left| left > ms(15_000) && left <= ms(20_000)));

                let took = std::thread::scope(|scope| {
                    let waiter = scope.spawn(|| watcher.lock_of(kind, &name).acquire_within(SOON).unwrap());
                    wait_until(SOON, "the waiter", || watcher.stats().waiting == 1);
                    let (took, next) = timed(|| {
                        assert!(watcher.force_release(&name).unwrap());
                        waiter.join().unwrap()
                    });
                    assert!(next.fence() > lease.fence());
                    assert_eq!(lease.wait_lost(SOON / 2), Some(LossReason::Taken), "by the next renewal");
                    lease.released();
                    assert!(next.is_held());
                    assert_eq!(next.released(), Release::Released);
                    took
                });
                drop(inner);
                assert_eq!(watcher.inspect(&name).unwrap(), None);
                assert!(!watcher.force_release(&name).unwrap(), "nothing was there");
                took
            });
        }
    });
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn r52_fencing_tokens_grow_over_expiry_release_and_force() {
    on_both(|face| {
        for kind in [Kind::Mutex, Kind::Reentrant] {
            let stage = Stage::valkey();
            let client = stage.client_with(face, quick().request_timeout(ms(5000)));
            let owner = Owner::new();
            let mut last = 0;
            for round in 0..1000 {
                let lock = client.lock_of(kind, "a").ttl(ms(20)).auto_renew(false);
                let short = round % 100 == 99;
                let lock = if short { lock } else { lock.ttl(ms(30_000)) };
                let lock = if kind == Kind::Reentrant { lock.owner(&owner) } else { lock };
                let lease = lock.acquire_within(SOON).unwrap();
                assert!(lease.fence() > last, "{} after {last}", lease.fence());
                last = lease.fence();
                match round % 4 {
                    0 if !short => drop(client.force_release("a").unwrap()),
                    1 if !short => drop(stage.server.cmd(&["DEL", "a"])),
                    2 if !short && kind == Kind::Reentrant => {
                        let inner = lock.acquire().unwrap();
                        assert_eq!(inner.fence(), last, "re-entry keeps the token of the outermost hold");
                        inner.released();
                    }
                    _ if short => wait_until(SOON, "it to run out", || !lease.is_held() && !stage.exists("a")),
                    _ => {}
                }
                lease.released();
            }
        }
    });
}
