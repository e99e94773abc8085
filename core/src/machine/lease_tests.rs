//! Tests of one granted hold. They stand apart, for `tests/suites/loom_lease.rs` compiles `lease.rs` too.

use super::Time;
use super::lease::{BeginRelease, LeaseState, LossReason, Phase};

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn held(until_ms: u64) -> LeaseState {
    let cell = LeaseState::new();
    assert!(cell.grant(at(until_ms)));
    cell
}

#[test]
fn the_first_look_after_the_deadline_loses_the_lease_and_nothing_revives_it() {
    let cell = held(100);
    assert!(cell.is_held(at(99)));
    assert!(!cell.is_held(at(100)));
    assert_eq!(cell.loss(), Some(LossReason::Expired));
    assert!(!cell.confirm(at(100), at(500)));
    assert!(!cell.is_held(at(50)));
    assert!(!cell.lose(LossReason::Taken), "lost once, for one reason");
}

#[test]
fn a_late_confirmation_makes_it_lost() {
    let cell = held(100);
    assert!(!cell.confirm(at(101), at(500)));
    assert_eq!(cell.phase(), Phase::Lost);
}

#[test]
fn the_deadline_moves_only_forward() {
    let cell = held(100);
    assert!(cell.confirm(at(10), at(300)));
    assert!(cell.confirm(at(20), at(200)));
    assert_eq!(cell.deadline(), at(300));
}

#[test]
fn releasing_twice_sends_once() {
    let cell = held(100);
    assert_eq!(cell.begin_release(at(1)), BeginRelease::Held);
    assert!(!cell.is_held(at(1)));
    assert_eq!(cell.begin_release(at(1)), BeginRelease::NotHeld);
    assert!(!cell.confirm(at(2), at(900)), "a renewal in flight is ignored on arrival");
    assert!(!cell.finish_release(true, at(2)));
    assert_eq!(cell.phase(), Phase::Released);
}

#[test]
fn a_lost_lease_is_cleaned_up_once() {
    let cell = held(100);
    assert!(cell.lose(LossReason::MaxHold));
    assert_eq!(cell.begin_release(at(1)), BeginRelease::Lost);
    assert_eq!(cell.begin_release(at(1)), BeginRelease::NotHeld);
    assert_eq!(cell.loss(), Some(LossReason::MaxHold), "the reason stays");
}

#[test]
fn a_detached_lease_holds_and_sends_nothing() {
    let cell = held(100);
    assert!(cell.detach(at(5)));
    assert!(!cell.is_held(at(5)) && !cell.detach(at(5)));
    assert_eq!(cell.begin_release(at(6)), BeginRelease::NotHeld);
    assert!(!held(100).detach(at(100)));
}

#[test]
fn a_release_that_finds_the_hold_gone_before_its_deadline_is_a_loss() {
    let cell = held(100);
    assert_eq!(cell.begin_release(at(50)), BeginRelease::Held);
    assert!(cell.finish_release(false, at(60)));
    assert_eq!((cell.phase(), cell.loss()), (Phase::LostAndReleased, Some(LossReason::Taken)));
    assert!(!cell.finish_release(false, at(61)), "told once");
    // after the deadline the server has let it expire, as it should
    let cell = held(100);
    assert_eq!(cell.begin_release(at(99)), BeginRelease::Held);
    assert!(!cell.finish_release(false, at(100)));
    assert_eq!((cell.phase(), cell.loss()), (Phase::Expired, None));
}

#[test]
fn each_reason_is_kept_beside_the_deadline() {
    use LossReason as R;
    for reason in [R::Expired, R::Taken, R::MaxHold, R::ClockAnomaly, R::Closed] {
        let cell = held(100);
        assert!(cell.loss().is_none() && cell.lose(reason) && !cell.lose(R::Expired));
        assert_eq!((cell.loss(), cell.deadline()), (Some(reason), at(100)));
        assert_eq!(cell.begin_release(at(1)), BeginRelease::Lost);
        assert_eq!((cell.loss(), cell.deadline()), (Some(reason), at(100)), "the reason stays");
    }
}
