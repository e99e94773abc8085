//! Many who acquire overlapping sets at once: everybody gets on, nobody overlaps, and nothing is left.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use onelock_tests::face::{Client, MultiLock, on_both};
use onelock_tests::stage::{SOON, Stage};
use onelock_tests::wait::wait_until;

const FORKS: usize = 5;
const MEALS: usize = 12;

/// Five at a table, each with two forks in the order that suits its hands, and some who want three.
#[test]
fn dining_philosophers_all_eat() {
    on_both(|face| {
        let stage = Stage::valkey();
        let used: [AtomicI64; FORKS] = Default::default();
        let highest: Mutex<HashMap<usize, u64>> = Mutex::default();
        let clients: Vec<Client> = (0..4).map(|_| stage.rival(face)).collect();
        std::thread::scope(|scope| {
            for seat in 0..8_usize {
                let client = &clients[seat % clients.len()];
                let mut forks: Vec<usize> = (0..2 + seat / 5).map(|step| (seat + step) % FORKS).collect();
                if seat % 2 == 0 {
                    forks.reverse();
                }
                let (used, highest) = (&used, &highest);
                scope.spawn(move || {
                    let several = MultiLock::of(forks.iter().map(|fork| {
                        // some forks are locks of the other kind
                        let name = format!("fork {fork}");
                        if fork % 2 == 0 { client.lock(name) } else { client.reentrant_lock(name) }
                    }));
                    for _ in 0..MEALS {
                        let lease = several.acquire_within(Duration::from_secs(120)).unwrap();
                        for fork in &forks {
                            assert_eq!(used[*fork].fetch_add(1, Ordering::SeqCst), 0, "fork {fork} in two hands");
                            let token = lease.fencing_token_of(&format!("fork {fork}")).unwrap();
                            let before = highest.lock().unwrap().insert(*fork, token);
                            assert!(before < Some(token), "tokens of fork {fork} grow");
                        }
                        for fork in &forks {
                            used[*fork].fetch_sub(1, Ordering::SeqCst);
                        }
                        assert!(lease.is_held());
                        lease.released();
                    }
                });
            }
        });
        for fork in 0..FORKS {
            wait_until(SOON, "every fork to lie on the table", || !stage.exists(format!("fork {fork}")));
        }
        for client in &clients {
            let stats = client.stats();
            assert_eq!((stats.held, stats.waiting, stats.cleaning, stats.lost), (0, 0, 0, 0));
        }
    });
}

/// Some give up after a short wait; the others get on all the same.
#[test]
fn who_loses_patience_takes_nothing_along() {
    on_both(|face| {
        let stage = Stage::valkey();
        let clients: Vec<Client> = (0..3).map(|_| stage.rival(face)).collect();
        std::thread::scope(|scope| {
            for seat in 0..6_usize {
                let client = &clients[seat % clients.len()];
                let several = client.multi_lock([seat % 3, (seat + 1) % 3].map(|fork| format!("fork {fork}")));
                scope.spawn(move || {
                    let mut eaten = 0;
                    while eaten < MEALS {
                        let wait = if seat < 3 { Duration::from_millis(1) } else { Duration::from_secs(120) };
                        match several.acquire_within(wait) {
                            Ok(lease) => {
                                lease.released();
                                eaten += 1;
                            }
                            Err(error) => assert!(seat < 3 && error.is_not_acquired(), "{error}"),
                        }
                    }
                });
            }
        });
        for fork in 0..3 {
            wait_until(SOON, "every fork to lie on the table", || !stage.exists(format!("fork {fork}")));
        }
    });
}
