#![allow(clippy::unwrap_used)]
use super::*;
use crate::machine::{GrantNotice, PROMPT_ANSWERS};

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn machine(ttl_ms: u64, wait: Option<Duration>) -> Acquire {
    let terms = Terms { ttl: ms(ttl_ms), ..Terms::default() };
    Acquire::new(terms, AcquireLimits { wait, ..AcquireLimits::default() }, at(1000))
}

fn answer(sent: u64, received: u64, outcome: Outcome<Reply>) -> Answer {
    Answer { sent_at: at(sent), received_at: at(received), connection: 1, server_time_us: None, outcome }
}

fn granted() -> Outcome<Reply> {
    Outcome::Applied(Reply::Granted { fence: Some(5), again: false })
}

fn denied(left: Option<u64>, announces: bool) -> Outcome<Reply> {
    Outcome::Applied(Reply::Denied { ttl_left_ms: left, announces })
}

fn lost_reply() -> Outcome<Reply> {
    Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, "no reply"))
}

fn refused() -> Outcome<Reply> {
    Outcome::NotApplied(Failure::transient(ErrorKind::Unavailable, "connection refused"))
}

fn failure(step: Step) -> ErrorKind {
    match step {
        Step::Done(Verdict::Failed(failure)) => failure.kind,
        other => panic!("expected a failure, got {other:?}"),
    }
}

#[test]
fn the_deadline_counts_from_the_send() {
    let mut acquire = machine(1000, None);
    let mut jitter = Jitter::new(1);
    assert!(matches!(acquire.next(at(1000)), Step::Attempt { .. }));
    assert_eq!(acquire.answered(at(1400), &answer(1000, 1400, granted()), &mut jitter), Token::Keep);
    let verdict = Verdict::Granted { deadline: at(1000 + 1000 - 12), fence: Some(5), told: None };
    assert_eq!(acquire.next(at(1400)), Step::Done(verdict));
}

#[test]
fn a_late_grant_is_not_a_grant() {
    let mut acquire = machine(1000, Some(ms(5000)));
    let mut jitter = Jitter::new(1);
    acquire.next(at(1000));
    assert_eq!(acquire.answered(at(1990), &answer(1000, 1990, granted()), &mut jitter), Token::Retire);
    let Step::Sleep { until } = acquire.next(at(1990)) else { panic!("goes on waiting") };
    assert!(matches!(acquire.next(until), Step::Attempt { .. }));
}

#[test]
fn a_refused_try_is_one_attempt() {
    let mut acquire = machine(1000, Some(Duration::ZERO));
    let mut jitter = Jitter::new(1);
    assert!(matches!(acquire.next(at(1000)), Step::Attempt { .. }));
    acquire.answered(at(1001), &answer(1000, 1001, denied(Some(300), true)), &mut jitter);
    assert_eq!(failure(acquire.next(at(1001))), ErrorKind::Busy);
}

#[test]
fn after_a_refusal_it_subscribes_and_looks_again_before_it_sleeps() {
    let mut acquire = machine(1000, None);
    let mut jitter = Jitter::new(1);
    acquire.next(at(1000));
    acquire.answered(at(1001), &answer(1000, 1001, denied(Some(9000), true)), &mut jitter);
    assert!(matches!(acquire.next(at(1001)), Step::Watch { .. }));
    acquire.watch_confirmed();
    assert_eq!(acquire.next(at(1001)), Step::Sleep { until: at(1003) }, "two attempts without a reason are 2 ms apart");
    assert!(matches!(acquire.next(at(1003)), Step::Attempt { .. }));
    acquire.answered(at(1004), &answer(1003, 1004, denied(Some(9000), true)), &mut jitter);
    let Step::Sleep { until } = acquire.next(at(1004)) else { panic!("sleeps") };
    assert!(until >= at(1804) && until <= at(2004), "the safety poll");
    acquire.hint(at(1100), &mut jitter);
    assert!(matches!(acquire.next(at(1100)), Step::Attempt { .. }));
}

/// One who was refused at 1002 ms, and listens.
fn listening() -> Acquire {
    let (mut acquire, mut jitter) = (machine(1000, None), Jitter::new(1));
    acquire.next(at(1001));
    acquire.answered(at(1002), &answer(1001, 1002, denied(Some(9000), true)), &mut jitter);
    acquire.watch_confirmed();
    acquire
}

#[test]
fn a_message_lifts_the_pause_after_a_refusal() {
    let (mut acquire, mut jitter) = (listening(), Jitter::new(1));
    assert_eq!(acquire.next(at(1002)), Step::Sleep { until: at(1004) });
    acquire.hint(at(1002), &mut jitter);
    assert!(matches!(acquire.next(at(1002)), Step::Attempt { .. }));
    acquire.answered(at(1003), &answer(1002, 1003, denied(Some(9000), true)), &mut jitter);
    assert!(matches!(acquire.next(at(1003)), Step::Sleep { .. }));
    acquire.hint(at(1003), &mut jitter);
    assert!(matches!(acquire.next(at(1003)), Step::Attempt { .. }), "and the one after a message in vain");
}

#[test]
fn the_next_in_line_after_a_grant_waits_for_the_release_if_it_can_hear_it() {
    let (mut before, mut jitter) = (listening(), Jitter::new(1));
    before.hint(at(1002), &mut jitter);
    before.next(at(1002));
    before.answered(at(1003), &answer(1002, 1003, granted()), &mut jitter);
    let mut deaf = machine(1000, None);
    deaf.set_spacing(before.spacing());
    assert!(matches!(deaf.next(at(1003)), Step::Attempt { .. }));
    let mut next = machine(1000, None);
    next.set_spacing(before.spacing());
    next.watch_confirmed();
    assert_eq!(next.next(at(1003)), Step::Sleep { until: at(1005) });
    next.hint(at(1003), &mut jitter);
    assert!(matches!(next.next(at(1003)), Step::Attempt { .. }));
}

#[test]
fn a_storm_of_messages_makes_nobody_ask_without_bound() {
    let (mut acquire, mut jitter) = (listening(), Jitter::new(1));
    let (mut attempts, mut first_moment) = (0, 0);
    let mut now = at(1002);
    // a message every 50 us for a second, and the lock is never free
    while now < at(2002) {
        acquire.set_herd_backoff(HerdBackoff::default());
        acquire.hint(now, &mut jitter);
        if let Step::Attempt { .. } = acquire.next(now) {
            acquire.answered(now, &answer(1002, 1002, denied(Some(9000), true)), &mut jitter);
            attempts += 1;
            first_moment += u32::from(now < at(1003));
        }
        now = now + Duration::from_micros(50);
    }
    assert!(first_moment <= PROMPT_ANSWERS, "{first_moment} attempts in the first millisecond");
    assert!((100..=500 + PROMPT_ANSWERS).contains(&attempts), "{attempts} attempts in a second");
}

#[test]
fn who_ran_out_of_prompt_answers_answers_later_and_a_grant_makes_up_for_all() {
    let (mut acquire, mut jitter) = (listening(), Jitter::new(1));
    let until = loop {
        acquire.set_herd_backoff(HerdBackoff::default());
        acquire.hint(at(1002), &mut jitter);
        match acquire.next(at(1002)) {
            Step::Attempt { .. } => {
                acquire.answered(at(1002), &answer(1002, 1002, denied(Some(9000), true)), &mut jitter);
            }
            Step::Sleep { until } => break until,
            step => panic!("{step:?}"),
        }
    };
    assert!(until > at(1002) && until <= at(1002) + ATTEMPT_SPACING, "the message is not forgotten: {until:?}");
    assert!(matches!(acquire.next(until), Step::Attempt { .. }));
    let in_vain = acquire.spacing();
    acquire.answered(until, &answer(1003, 1004, granted()), &mut jitter);
    assert!(in_vain.next(true, true) > acquire.spacing().next(true, true));
}

#[test]
fn who_knows_of_rivals_steps_back_once_and_never_past_its_own_look() {
    let mut jitter = Jitter::new(1);
    let (mut stepped_back, mut at_once) = (0, 0);
    for _ in 0..200 {
        let mut acquire = machine(1000, None);
        acquire.set_herd_backoff(HerdBackoff::from_steps(4));
        acquire.next(at(1000));
        acquire.watch_confirmed();
        acquire.answered(at(1001), &answer(1000, 1001, denied(Some(9000), true)), &mut jitter);
        acquire.hint(at(1100), &mut jitter);
        let Step::Sleep { until } = acquire.next(at(1100)) else {
            at_once += 1;
            // lost again: it expects more rivals
            acquire.answered(at(1101), &answer(1100, 1101, denied(Some(9000), true)), &mut jitter);
            assert_eq!(acquire.herd_backoff(), HerdBackoff::from_steps(5));
            continue;
        };
        stepped_back += 1;
        assert!(until > at(1100) && until <= at(1102), "a moment, not more: {until:?}");
        // further messages don't put it off, nor call it back
        acquire.hint(until, &mut jitter);
        assert!(matches!(acquire.next(until), Step::Attempt { .. }));
        acquire.answered(until, &answer(1102, 1103, granted()), &mut jitter);
        assert_eq!(acquire.herd_backoff(), HerdBackoff::from_steps(2));
    }
    assert!(stepped_back > 100 && at_once > 20, "{stepped_back} and {at_once}");
}

#[test]
fn who_loses_among_many_stays_away_for_a_while_and_then_looks() {
    let mut jitter = Jitter::new(1);
    let mut absences = 0;
    for _ in 0..200 {
        let mut acquire = machine(1000, None);
        acquire.set_herd_backoff(HerdBackoff::from_steps(5));
        acquire.next(at(1000));
        acquire.watch_confirmed();
        acquire.answered(at(1001), &answer(1000, 1001, denied(Some(9000), true)), &mut jitter);
        assert!(acquire.away_until() <= at(1001), "there are some rivals, but not many");
        acquire.hint(at(1100), &mut jitter);
        let Step::Attempt { .. } = acquire.next(at(1100)) else { continue };
        acquire.answered(at(1101), &answer(1100, 1101, denied(Some(9000), true)), &mut jitter);
        let until = acquire.away_until();
        assert!(until >= at(1106) && until <= at(1126), "{until:?}");
        // with no message it sleeps as it would have
        let Step::Sleep { until: asleep } = acquire.next(at(1102)) else { panic!("sleeps") };
        assert!(asleep > at(2000));
        // what is said meanwhile is looked after when it is over, once
        acquire.hint(at(1103), &mut jitter);
        acquire.hint(at(1104), &mut jitter);
        let Step::Sleep { until: asleep } = acquire.next(at(1104)) else { panic!("sleeps") };
        assert_eq!(asleep, until);
        assert!(matches!(acquire.next(until), Step::Attempt { .. }));
        acquire.answered(until, &answer(1126, 1127, granted()), &mut jitter);
        assert_eq!(acquire.herd_backoff(), HerdBackoff::from_steps(4));
        absences += 1;
    }
    assert!(absences > 20, "{absences}");
}

#[test]
fn the_holders_remaining_time_bounds_the_sleep() {
    let mut acquire = machine(1000, None);
    let mut jitter = Jitter::new(1);
    acquire.next(at(1000));
    acquire.watch_confirmed();
    acquire.answered(at(1001), &answer(1000, 1001, denied(Some(100), true)), &mut jitter);
    let Step::Sleep { until } = acquire.next(at(1001)) else { panic!("sleeps") };
    assert!(until > at(1101) && until <= at(1110));
}

#[test]
fn a_holder_that_announces_nothing_is_polled() {
    let mut acquire = machine(1000, None);
    let mut jitter = Jitter::new(1);
    acquire.next(at(1000));
    acquire.answered(at(1001), &answer(1000, 1001, denied(None, false)), &mut jitter);
    let Step::Sleep { until } = acquire.next(at(1001)) else { panic!("sleeps") };
    assert!(until >= at(1051) && until <= at(1151));
}

#[test]
fn a_lost_reply_is_asked_for_once_more_even_by_a_try() {
    let mut acquire = machine(1000, Some(Duration::ZERO));
    let mut jitter = Jitter::new(1);
    acquire.next(at(1000));
    assert_eq!(acquire.answered(at(2000), &answer(1000, 2000, lost_reply()), &mut jitter), Token::Keep);
    let Step::Attempt { until } = acquire.next(at(2000)) else { panic!("resends") };
    assert_eq!(until, acquire.hard_limit(), "bounded by wait + connect + 2 requests");
    acquire.answered(at(3000), &answer(2000, 3000, lost_reply()), &mut jitter);
    assert_eq!(failure(acquire.next(at(3000))), ErrorKind::Unavailable);
}

#[test]
fn a_server_that_is_away_is_tried_again_within_the_wait_only() {
    let mut acquire = machine(1000, Some(ms(500)));
    let mut jitter = Jitter::new(1);
    let mut now = at(1000);
    let mut attempts = 0;
    let kind = loop {
        match acquire.next(now) {
            Step::Attempt { .. } => {
                attempts += 1;
                let reply = answer(now.as_nanos() / 1_000_000, 0, refused());
                acquire.answered(now, &reply, &mut jitter);
            }
            Step::Sleep { until } => now = until,
            step => break failure(step),
        }
    };
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!((3..20).contains(&attempts), "{attempts} attempts in 500 ms");
    assert_eq!(now, at(1500));
}

#[test]
fn without_a_bound_it_gives_up_an_unreachable_server_after_thirty_seconds() {
    let mut acquire = machine(1000, None);
    let mut jitter = Jitter::new(1);
    let mut now = at(1000);
    let kind = loop {
        match acquire.next(now) {
            Step::Attempt { .. } => {
                acquire.answered(now, &answer(0, 0, refused()), &mut jitter);
            }
            Step::Sleep { until } => now = until,
            step => break failure(step),
        }
    };
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!(now >= at(31_000) && now < at(33_000));
}

#[test]
fn a_lasting_failure_ends_it_at_once() {
    let mut acquire = machine(1000, None);
    acquire.next(at(1000));
    let refusal = Outcome::NotApplied(Failure::lasting(ErrorKind::NotPermitted, "no permission for evalsha"));
    acquire.answered(at(1001), &answer(1000, 1001, refusal), &mut Jitter::new(1));
    assert_eq!(failure(acquire.next(at(1001))), ErrorKind::NotPermitted);
}

#[test]
fn a_new_head_keeps_its_distance_but_is_never_kept_from_its_first_attempt() {
    let mut acquire = machine(1000, Some(ms(1)));
    let mut spacing = Spacing::default();
    spacing.refused(at(1000), false);
    acquire.set_spacing(spacing);
    assert_eq!(acquire.next(at(1000)), Step::Sleep { until: at(1001) });
    assert!(matches!(acquire.next(at(1001)), Step::Attempt { .. }));
}

#[test]
fn a_grant_ends_the_servers_absence_for_the_next_in_line() {
    let mut acquire = machine(1000, None);
    let mut jitter = Jitter::new(1);
    acquire.next(at(1000));
    acquire.answered(at(1001), &answer(1000, 1001, refused()), &mut jitter);
    assert_eq!(acquire.unreachable_since(), Some(at(1001)));
    acquire.answered(at(1101), &answer(1100, 1101, granted()), &mut jitter);
    assert_eq!(acquire.unreachable_since(), None);
}

#[test]
fn the_wait_ends_in_timeout_and_never_late() {
    let mut acquire = machine(1000, Some(ms(300)));
    let mut jitter = Jitter::new(1);
    acquire.next(at(1000));
    acquire.watch_confirmed();
    acquire.answered(at(1001), &answer(1000, 1001, denied(Some(9000), true)), &mut jitter);
    assert_eq!(acquire.next(at(1001)), Step::Sleep { until: at(1300) });
    assert_eq!(failure(acquire.next(at(1300))), ErrorKind::Timeout);
}

#[test]
fn a_grant_of_which_too_little_is_left_is_not_handed_out() {
    let terms = Terms { min_validity: ms(300), ..Terms { ttl: ms(1000), ..Terms::default() } };
    let acquire = Acquire::new(terms.clone(), AcquireLimits::default(), at(0));
    let deadline = terms.deadline(at(0), terms.ttl);
    assert!(acquire.is_worth_handing_out(at(688), deadline));
    assert!(!acquire.is_worth_handing_out(at(689), deadline), "in time, and less than min_validity left");
    let careless = machine(1000, None);
    assert!(careless.is_worth_handing_out(at(987), deadline) && !careless.is_worth_handing_out(at(988), deadline));
}

#[test]
fn an_acquire_that_yields_makes_its_first_attempt_all_the_same() {
    for (wait, asks_at) in
        [(None, at(1000) + YIELD), (Some(Duration::from_micros(100)), at(1000) + Duration::from_micros(100))]
    {
        let mut acquire = machine(1000, wait);
        acquire.yield_first(at(1000));
        assert!(acquire.is_yielding());
        assert_eq!(acquire.next(at(1000)), Step::Sleep { until: asks_at });
        acquire.hint(at(1000), &mut Jitter::new(1));
        assert!(
            matches!(acquire.next(at(1000)), Step::Sleep { .. }),
            "no message of another release makes it ask sooner"
        );
        // also when it wakes up late
        assert!(matches!(acquire.next(at(1005)), Step::Attempt { .. }));
        assert!(!acquire.is_yielding());
    }
}

/// A message about this token.
fn notice(token: &str, number: u64) -> GrantNotice {
    GrantNotice { token: token.into(), number, server_us: 1_700_000_000_000_500 }
}

/// An acquire that sleeps at its place; asked at 1000, and its horizon is 50.
fn at_its_place(limits: AcquireLimits) -> (Acquire, Jitter) {
    let terms = Terms { ttl: ms(30_000), ..Terms::default() };
    let (mut acquire, mut jitter) = (Acquire::new(terms, limits, at(1000)), Jitter::new(1));
    acquire.watch_confirmed();
    acquire.set_route(ROUTE);
    acquire.next(at(1000));
    let queued = Reply::Queued { place: 1, ahead: 0, look_in_ms: None, unheard: false, horizon: Some(50) };
    let answer = Answer {
        server_time_us: Some(1_700_000_000_000_000),
        connection: 1,
        ..answer(1000, 1001, Outcome::Applied(queued))
    };
    acquire.answered(at(1001), &answer, &mut jitter);
    assert!(matches!(acquire.next(at(1001)), Step::Sleep { .. }));
    (acquire, jitter)
}

const ROUTE: Route = Route { subscription: 1, clock_jumps: 0 };

#[test]
fn a_message_that_tells_its_grant_ends_an_acquire() {
    let (mut acquire, _) = at_its_place(AcquireLimits::default());
    assert!(acquire.told(at(1002), &notice("t", 51), "t", ROUTE));
    let granted = Verdict::Granted { deadline: at(1592), fence: Some(51), told: Some(at(1000)) };
    assert_eq!(acquire.next(at(1002)), Step::Done(granted));
    assert!(!acquire.told(at(1003), &notice("t", 52), "t", ROUTE), "one grant is believed once");
}

#[test]
fn any_other_message_is_a_reason_to_ask() {
    let (acquire, jitter) = at_its_place(AcquireLimits::default());
    let replicas = AcquireLimits { believes_messages: false, ..AcquireLimits::default() };
    let another = Route { subscription: 2, ..ROUTE };
    for (mut acquire, token, number, route) in [
        (acquire.clone(), "another", 51, ROUTE),
        (acquire.clone(), "t", 50, ROUTE),
        (acquire.clone(), "t", 51, another),
        (at_its_place(replicas).0, "t", 51, ROUTE),
    ] {
        assert!(!acquire.told(at(1002), &notice(token, number), "t", route));
        acquire.hint(at(1002), &mut jitter.clone());
        assert!(matches!(acquire.next(at(1002)), Step::Attempt { .. }), "{token} {number}");
    }
}

#[test]
fn what_was_answered_counts_for_nobody_who_goes_on_at_the_place_and_after_no_other_answer() {
    let (acquire, mut jitter) = at_its_place(AcquireLimits::default());
    let mut heir = machine(30_000, None);
    heir.take_place(acquire.place());
    assert!(!heir.told(at(1002), &notice("t", 51), "t", ROUTE));
    let mut lost = acquire.clone();
    lost.answered(at(1100), &answer(1050, 1100, lost_reply()), &mut jitter);
    assert!(lost.told(at(1102), &notice("t", 51), "t", ROUTE), "no answer takes nothing back");
    let mut late = acquire.clone();
    let unconfirmed = Outcome::Applied(Reply::Unconfirmed(lost_reply().failure().unwrap().clone()));
    assert_eq!(late.answered(at(1100), &answer(1050, 1100, unconfirmed), &mut jitter), Token::Retire);
    assert!(!late.told(at(1102), &notice("t", 51), "t", ROUTE));
    let mut refused = acquire;
    let denied = Outcome::Applied(Reply::Denied { ttl_left_ms: Some(5), announces: true });
    refused.answered(at(1100), &answer(1050, 1100, denied), &mut jitter);
    assert!(!refused.told(at(1102), &notice("t", 51), "t", ROUTE));
}
