//! The atomic word of a lease, under every interleaving of its users: `core/src/machine/lease.rs` is compiled here with the
//! atomics of a model checker.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop at once")]
#![allow(missing_docs, dead_code, unreachable_pub, reason = "the file of the core is compiled as it is")]

/// What `lease.rs` takes from its room.
mod machine {
    pub(crate) use onelock::machine::Time;

    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    }
}

#[path = "../../core/src/machine/lease.rs"]
mod lease;

use loom::sync::Arc;
use loom::thread;

use lease::{BeginRelease, LeaseState, LossReason, Phase};
use machine::Time;

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn explore(body: impl Fn(&Arc<LeaseState>) + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let cell = Arc::new(LeaseState::new());
        assert!(cell.grant(at(100)));
        body(&cell);
    });
}

/// Runs on a thread of its own: a watcher on the main thread would see fewer interleavings.
fn beside<T: 'static>(cell: &Arc<LeaseState>, work: impl FnOnce(&LeaseState) -> T + 'static) -> thread::JoinHandle<T> {
    let cell = cell.clone();
    thread::spawn(move || work(&cell))
}

#[test]
fn a_loss_has_one_reason_for_everybody() {
    explore(|cell| {
        let losers = [beside(cell, |cell| cell.lose(LossReason::MaxHold)), beside(cell, |cell| cell.lapse(at(200)))];
        let watcher = beside(cell, |cell| (cell.loss(), cell.loss()));
        let lost: Vec<bool> = losers.into_iter().map(|loser| loser.join().unwrap()).collect();
        let (first, second) = watcher.join().unwrap();
        let end = cell.loss();
        assert_eq!(lost.iter().filter(|lost| **lost).count(), 1, "lost once");
        assert_eq!(end, Some(if lost[0] { LossReason::MaxHold } else { LossReason::Expired }));
        assert!(first.is_none_or(|first| second == Some(first)), "{first:?}, then {second:?}");
        assert!(second.is_none_or(|second| end == Some(second)), "{second:?}, then {end:?}");
    });
}

#[test]
fn a_release_and_a_loss_exclude_each_other_and_nothing_revives() {
    explore(|cell| {
        let release = beside(cell, |cell| cell.begin_release(at(50)));
        let loser = beside(cell, |cell| cell.lose(LossReason::Taken));
        let renew = beside(cell, |cell| cell.confirm(at(60), at(300)));
        let (gave, lost) = (release.join().unwrap(), loser.join().unwrap());
        renew.join().unwrap();
        match (gave, lost) {
            (BeginRelease::Held, false) => assert_eq!((cell.phase(), cell.loss()), (Phase::Releasing, None)),
            (BeginRelease::Lost, true) => {
                assert_eq!((cell.phase(), cell.loss()), (Phase::LostAndReleased, Some(LossReason::Taken)));
            }
            other => panic!("{other:?}"),
        }
        assert!(!cell.is_held(at(60)) && !cell.confirm(at(61), at(900)));
    });
}

#[test]
fn the_answer_to_a_release_and_a_close_tell_one_loss() {
    explore(|cell| {
        let release =
            beside(cell, |cell| cell.begin_release(at(50)) == BeginRelease::Held && cell.finish_release(false, at(60)));
        let close = beside(cell, |cell| cell.lose(LossReason::Closed));
        let (found_gone, closed) = (release.join().unwrap(), close.join().unwrap());
        assert!(found_gone ^ closed, "told once: {found_gone}, {closed}");
        assert_eq!(cell.loss(), Some(if closed { LossReason::Closed } else { LossReason::Taken }));
    });
}

#[test]
fn a_lease_is_handed_away_or_released() {
    explore(|cell| {
        let detach = beside(cell, |cell| cell.detach(at(10)));
        let extend = beside(cell, |cell| {
            let before = cell.deadline();
            cell.confirm(at(10), at(500));
            assert!(cell.deadline() >= before, "the deadline went back");
        });
        let gave = cell.begin_release(at(11));
        extend.join().unwrap();
        assert!(detach.join().unwrap() ^ (gave == BeginRelease::Held));
    });
}
