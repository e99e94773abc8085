//! Who waits: marked, and told, whatever becomes of other rows.

use std::time::{Duration, Instant};

use onelock::Release;
use onelock_tests::face::{Face, on_both};
use onelock_tests::stage::{SOON, ms, quick_once, unhurried};
use onelock_tests::wait::wait_until;

use crate::place::{Table, server};

#[test]
fn a_row_that_is_locked_delays_no_wake_up_of_another_lock() {
    on_both(|face| quick_once(ms(500), "told", || late_marks(face)));
}

/// How long the two waiters, the slower of them, wait after the release.
fn late_marks(face: Face) -> Duration {
    let table = Table::new();
    let holder = table.client(face);
    let waiting = table.client_with(face, unhurried());
    let stuck = holder.lock("stuck").ttl(ms(60_000)).acquire().unwrap();
    let lease = holder.lock("other").ttl(ms(60_000)).acquire().unwrap();
    let stranger = server().session();
    stranger.run(&format!("BEGIN; SELECT * FROM {} WHERE name = 'stuck' FOR UPDATE", table.name));
    let took = std::thread::scope(|scope| {
        let first = scope.spawn(|| waiting.lock("stuck").acquire_within(SOON).unwrap());
        wait_until(SOON, "the waiter", || waiting.stats().waiting == 1);
        std::thread::sleep(ms(500));
        let second = scope.spawn(|| waiting.lock("other").acquire_within(SOON).unwrap());
        let marked = |name: &str| {
            !table.rows(&format!("SELECT 1 FROM TABLE WHERE name = '{name}' AND waited_us > 0")).is_empty()
        };
        wait_until(SOON, "the mark", || marked("other"));
        // its looks become rare, so that only a message is as fast
        std::thread::sleep(ms(1500));
        let begun = Instant::now();
        assert_eq!(lease.released(), Release::Released);
        second.join().unwrap().released();
        let took = begun.elapsed();
        // the late mark is made up for
        stranger.run("ROLLBACK");
        wait_until(SOON, "the late mark", || marked("stuck"));
        let begun = Instant::now();
        assert_eq!(stuck.released(), Release::Released);
        first.join().unwrap().released();
        took.max(begun.elapsed())
    });
    holder.close();
    waiting.close();
    took
}
