//! Unit and property tests of `multi`.

use super::*;

fn id(key: &str, kind: Kind, address: &str, store: usize) -> MemberId {
    MemberId { key: key.as_bytes().into(), kind, address: address.into(), store, count: 1, owner: None }
}

fn lock(key: &str) -> MemberId {
    id(key, Kind::Mutex, "redis://a", 0)
}

fn given(placed: &[PlacedMember]) -> Vec<usize> {
    placed.iter().map(|placed| placed.given).collect()
}

#[test]
fn the_order_is_that_of_key_kind_and_address_whatever_the_caller_says() {
    let members =
        [lock("b"), lock("a"), id("a", Kind::Reentrant, "redis://b", 1), id("a", Kind::Mutex, "redis://c", 2)];
    let placed = arrange(&members).unwrap();
    assert_eq!(given(&placed), [1, 3, 2, 0]);
    let classes: Vec<usize> = placed.iter().map(|placed| placed.class).collect();
    assert_eq!(classes, [0, 0, 2, 3], "two members that differ in the store only are one class");
}

#[test]
fn a_member_counts_once_and_two_kinds_of_one_name_are_refused() {
    assert_eq!(given(&arrange(&[lock("a"), lock("b"), lock("a")]).unwrap()), [0, 1]);
    assert_eq!(arrange(&[]), Err(MemberFault::Nothing));
    let kinds = [lock("b"), id("a", Kind::Reentrant, "redis://a", 0), lock("a")];
    assert_eq!(arrange(&kinds), Err(MemberFault::TwoKinds(1, 2)));
    // one lock, but not the same of it
    let two = MemberId { count: 2, ..id("s", Kind::Semaphore, "redis://a", 0) };
    let permits = [id("s", Kind::Semaphore, "redis://a", 0), lock("b"), two.clone()];
    assert_eq!(arrange(&permits), Err(MemberFault::TwoWays(0, 2)));
    assert_eq!(given(&arrange(&[two.clone(), two]).unwrap()), [0]);
    let owned = |owner: &str| MemberId { owner: Some(Owner::named(owner)), ..id("r", Kind::Reentrant, "redis://a", 0) };
    assert_eq!(arrange(&[owned("one"), owned("two")]), Err(MemberFault::TwoWays(0, 1)));
    assert_eq!(arrange(&[owned("one"), owned("one")]).unwrap().len(), 1);
    let many: Vec<MemberId> = (0..33).map(|number| lock(&format!("lock {number}"))).collect();
    assert_eq!(arrange(&many), Err(MemberFault::TooMany(33)));
    assert_eq!(arrange(&many[..32]).unwrap().len(), 32);
}

/// Every list of members, in every order: the same sequence of keys comes out.
#[test]
fn the_order_does_not_depend_on_the_list() {
    let mut jitter = Jitter::new(7);
    for _ in 0..2000 {
        let mut members: Vec<MemberId> = (0..=jitter.below(6))
            .map(|_| {
                let store = jitter.below(3) as usize;
                id(["a", "ab", "b", "c"][jitter.below(4) as usize], Kind::Mutex, ["x", "y", "z"][store], store)
            })
            .collect();
        let sequence = |members: &[MemberId]| -> Vec<MemberId> {
            arrange(members).unwrap().iter().map(|placed| members[placed.given].clone()).collect()
        };
        let before = sequence(&members);
        for at in (1..members.len()).rev() {
            members.swap(at, jitter.below(at as u64 + 1) as usize);
        }
        assert_eq!(sequence(&members), before);
        assert!(before.windows(2).all(|pair| (&pair[0].key, &pair[0].address) < (&pair[1].key, &pair[1].address)));
    }
}

const GRACE: Duration = Duration::from_millis(700);

fn machine(members: &[MemberId], wait: Option<Duration>) -> MultiAcquire {
    MultiAcquire::new(&arrange(members).unwrap(), wait, GRACE, Time::ZERO)
}

const HELD: MemberLook = MemberLook { left: Duration::from_secs(20), needed: Duration::from_millis(300), fixed: false };

#[test]
fn one_after_the_other_with_what_is_left_of_the_wait() {
    let mut jitter = Jitter::new(1);
    let mut multi = machine(&[lock("a"), lock("b")], Some(Duration::from_millis(100)));
    let enter = |member, ms| MultiStep::Enter { member, wait: Some(Duration::from_millis(ms)) };
    assert_eq!(multi.next(Time::ZERO, &mut jitter), enter(0, 100));
    multi.entered();
    assert_eq!(multi.next(Time::from_millis(30), &mut jitter), enter(1, 70));
    assert_eq!(multi.next(Time::from_millis(500), &mut jitter), enter(1, 1), "no single try");
    assert!(!multi.not_entered(Time::from_millis(500), ErrorKind::Timeout, &mut jitter));
    multi.entered();
    assert_eq!(multi.next(Time::ZERO, &mut jitter), MultiStep::Look);
    assert_eq!(multi.looked(Time::ZERO, &[HELD, HELD]), MultiStep::HandOut);
}

#[test]
fn a_single_try_tries_each_and_begins_nothing_anew() {
    let mut jitter = Jitter::new(1);
    let mut multi = machine(&[lock("a"), lock("b")], Some(Duration::ZERO));
    assert_eq!(multi.next(Time::ZERO, &mut jitter), MultiStep::Enter { member: 0, wait: Some(Duration::ZERO) });
    multi.entered();
    assert!(!multi.not_entered(Time::ZERO, ErrorKind::Busy, &mut jitter));
    multi.lost(Time::ZERO);
    assert_eq!(multi.next(Time::ZERO, &mut jitter), MultiStep::GiveUp(GiveUpReason::LostInTry));
}

#[test]
fn a_loss_while_waiting_releases_everything_and_begins_at_the_first() {
    let mut jitter = Jitter::new(1);
    let mut multi = machine(&[lock("a"), lock("b"), lock("c")], None);
    multi.entered();
    multi.entered();
    multi.lost(Time::from_millis(9));
    assert_eq!(multi.next(Time::from_millis(9), &mut jitter), MultiStep::Release { until: Time::from_millis(9) });
    multi.released();
    assert_eq!(multi.next(Time::from_millis(9), &mut jitter), MultiStep::Enter { member: 0, wait: None });
}

#[test]
fn holding_while_waiting_is_limited_only_where_the_order_may_be_disputed() {
    let mut jitter = Jitter::new(1);
    let twins = [id("a", Kind::Mutex, "redis://one", 0), id("a", Kind::Mutex, "redis://two", 1)];
    let mut multi = machine(&twins, None);
    assert_eq!(multi.next(Time::ZERO, &mut jitter), MultiStep::Enter { member: 0, wait: None }, "nothing is held yet");
    multi.entered();
    let MultiStep::Enter { member: 1, wait: Some(most) } = multi.next(Time::ZERO, &mut jitter) else { panic!() };
    assert!((HOLD_MIN..=HOLD_MAX).contains(&most));
    let late = Time::ZERO + most;
    assert!(multi.not_entered(late, ErrorKind::Timeout, &mut jitter), "it begins anew");
    let MultiStep::Release { until } = multi.next(late, &mut jitter) else { panic!() };
    assert!(until.since(late) <= PAUSE_MAX);
    multi.released();
    multi.entered();
    multi.next(late, &mut jitter);
    assert!(!multi.not_entered(late, ErrorKind::Unavailable, &mut jitter), "a fault is the end of it");

    let mut brief = machine(&twins, Some(Duration::from_secs(1)));
    brief.entered();
    brief.next(Time::ZERO, &mut jitter);
    assert!(!brief.not_entered(Time::from_millis(1000), ErrorKind::Timeout, &mut jitter), "the caller's wait ended");
}

#[test]
fn what_has_too_little_left_is_renewed_before_the_handing_out() {
    let low = MemberLook { left: Duration::from_millis(100), ..HELD };
    let fixed = MemberLook { fixed: true, ..HELD };
    let gone = MemberLook { left: Duration::ZERO, ..HELD };
    let entered = || {
        let mut multi = machine(&[lock("a"), lock("b"), lock("c")], None);
        (0..3).for_each(|_| multi.entered());
        multi
    };
    let mut multi = entered();
    assert_eq!(multi.looked(Time::ZERO, &[low, HELD, fixed]), MultiStep::Renew(vec![0, 2]));
    assert_eq!(multi.looked(Time::ZERO, &[HELD, HELD, fixed]), MultiStep::HandOut, "a fixed one is renewed once");
    assert_eq!(entered().looked(Time::ZERO, &[HELD, gone, HELD]), MultiStep::Release { until: Time::ZERO });
    let mut slow = entered();
    for _ in 0..RENEWALS_MAX {
        assert_eq!(slow.looked(Time::ZERO, &[low, HELD, HELD]), MultiStep::Renew(vec![0]));
    }
    assert_eq!(slow.looked(Time::ZERO, &[low, HELD, HELD]), MultiStep::Release { until: Time::ZERO });
}

#[test]
fn it_ends_in_time_however_slow_the_members_are_and_however_often_one_is_lost() {
    let mut jitter = Jitter::new(1);
    let three = [lock("a"), lock("b"), lock("c")];
    for wait in [Duration::ZERO, Duration::from_millis(100)] {
        let mut slow = machine(&three, Some(wait));
        let limit = Time::ZERO + wait + GRACE;
        assert_eq!(slow.hard_limit(), limit);
        slow.entered();
        assert!(matches!(slow.next(limit - Duration::from_millis(1), &mut jitter), MultiStep::Enter { member: 1, .. }));
        assert_eq!(slow.next(limit, &mut jitter), MultiStep::GiveUp(GiveUpReason::TooSlow));
        (0..2).for_each(|_| slow.entered());
        let low = MemberLook { left: Duration::from_millis(1), ..HELD };
        assert_eq!(slow.looked(limit, &[low, HELD, HELD]), MultiStep::GiveUp(GiveUpReason::TooSlow));
    }
    // within its wait it begins anew, after that it does not
    let wait = Duration::from_millis(100);
    let mut multi = machine(&three, Some(wait));
    (0..3).for_each(|_| multi.entered());
    let gone = MemberLook { left: Duration::ZERO, ..HELD };
    let early = Time::from_millis(99);
    assert_eq!(multi.looked(early, &[gone, HELD, HELD]), MultiStep::Release { until: early });
    multi.released();
    (0..3).for_each(|_| multi.entered());
    let late = Time::ZERO + wait;
    assert_eq!(multi.looked(late, &[gone, HELD, HELD]), MultiStep::GiveUp(GiveUpReason::LostTooLate));
    assert_eq!(multi.next(late, &mut jitter), MultiStep::GiveUp(GiveUpReason::LostTooLate));
    let kinds = [GiveUpReason::LostInTry, GiveUpReason::LostTooLate, GiveUpReason::TooSlow].map(GiveUpReason::kind);
    assert_eq!(kinds, [ErrorKind::Busy, ErrorKind::Timeout, ErrorKind::Unavailable]);
}

#[test]
fn while_acquiring_a_member_is_renewed_and_its_limit_does_not_count() {
    let (max_hold, min_hold) = (Some(Duration::from_secs(2)), Duration::from_secs(1));
    let terms = Terms { auto_renew: false, max_hold, min_hold, ..Terms::default() };
    let meanwhile = terms_while_acquiring(&terms);
    assert!(meanwhile.auto_renew && meanwhile.max_hold.is_none());
    assert!(meanwhile.min_hold.is_zero(), "an acquire that fails leaves nothing");
    assert_eq!(meanwhile.ttl, terms.within_max_hold().ttl);
}

#[test]
fn the_worst_release_and_the_first_loss_count() {
    use Release::{AlreadyExpired, AlreadyReleased, Released, Unconfirmed};
    assert_eq!(worst_release(Released, AlreadyExpired), AlreadyExpired);
    assert_eq!(worst_release(Unconfirmed, AlreadyExpired), Unconfirmed);
    assert_eq!(worst_release(AlreadyReleased, Released), Released);
    let loss = SharedLoss::default();
    assert_eq!((loss.reason(), loss.note(LossReason::Taken)), (None, LossReason::Taken));
    assert_eq!(loss.note(LossReason::Expired), LossReason::Taken);
}

fn outcome(reply: Reply) -> Outcome<Reply> {
    Outcome::Applied(reply)
}

fn lost() -> Outcome<Reply> {
    Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, "no reply"))
}

fn taken(count: usize) -> Outcome<Reply> {
    outcome(Reply::Many(vec![Reply::Granted { fence: None, again: false }; count]))
}

fn refused(reply: Reply) -> Outcome<Reply> {
    outcome(Reply::RefusedAt { index: 1, reply: Box::new(reply) })
}

fn at_once(wait: Option<Duration>) -> MultiAcquire {
    let order = [PlacedMember { given: 0, class: 0 }, PlacedMember { given: 1, class: 1 }];
    MultiAcquire::new(&order, wait, GRACE, Time::ZERO).at_once()
}

#[test]
fn all_at_once_comes_first_and_only_once() {
    let mut jitter = Jitter::new(1);
    let mut multi = at_once(None);
    assert_eq!(multi.next(Time::ZERO, &mut jitter), MultiStep::TakeAll { until: Time::ZERO + GRACE });
    assert_eq!(multi.took_all(Time::ZERO, &taken(2)), AllAtOnce::Held);
    assert_eq!((multi.held(), multi.next(Time::ZERO, &mut jitter)), (2, MultiStep::Look));
    // what begins anew goes one after the other: it may wait for one while it holds another
    multi.lost(Time::ZERO);
    assert!(matches!(multi.next(Time::ZERO, &mut jitter), MultiStep::Release { .. }));
    multi.released();
    assert_eq!(multi.next(Time::ZERO, &mut jitter), MultiStep::Enter { member: 0, wait: None });
}

#[test]
fn what_is_not_answered_is_asked_again_a_few_times() {
    let mut jitter = Jitter::new(1);
    let mut multi = at_once(None);
    for expected in [AllAtOnce::Again, AllAtOnce::Again, AllAtOnce::Separately] {
        assert!(matches!(multi.next(Time::ZERO, &mut jitter), MultiStep::TakeAll { .. }));
        assert_eq!(multi.took_all(Time::ZERO, &lost()), expected);
    }
    assert!(matches!(multi.next(Time::ZERO, &mut jitter), MultiStep::Enter { member: 0, .. }));
    // not beyond the end of the whole
    let mut multi = at_once(Some(Duration::ZERO));
    assert_eq!(multi.took_all(Time::ZERO + GRACE, &lost()), AllAtOnce::Separately);
}

#[test]
fn a_refusal_ends_a_try_and_makes_others_go_one_after_the_other() {
    let denied = || refused(Reply::Denied { ttl_left_ms: Some(70), announces: true });
    let AllAtOnce::Refused(1, failure) = at_once(Some(Duration::ZERO)).took_all(Time::ZERO, &denied()) else {
        panic!("one try is over")
    };
    assert_eq!(failure.kind, ErrorKind::Busy);
    assert!(failure.detail.contains("another 70 ms"), "{}", failure.detail);
    for wait in [None, Some(Duration::from_secs(1))] {
        assert_eq!(at_once(wait).took_all(Time::ZERO, &denied()), AllAtOnce::Separately);
    }
    // each by itself says it best: another kind, a server that would not, a reply that tells too little
    let kind = refused(Reply::WrongKind { found: "list".to_owned() });
    let never = Outcome::NotApplied(Failure::lasting(ErrorKind::NotPermitted, "NOPERM"));
    for outcome in [kind, never, taken(1), outcome(Reply::Gone)] {
        assert_eq!(at_once(Some(Duration::ZERO)).took_all(Time::ZERO, &outcome), AllAtOnce::Separately);
    }
}
