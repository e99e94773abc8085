#![allow(clippy::unwrap_used)]
use super::*;
use crate::error::ErrorKind;
use crate::machine::{Failure, Kind};

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn guarded(name: &str, terms: &Terms, now: Time) -> Guarded {
    let cell = Arc::new(LeaseState::new());
    cell.grant(terms.deadline(now, terms.ttl));
    Guarded {
        claim: Claim { kind: Kind::Mutex, key: name.as_bytes().into(), token: "onelock1:0".into() },
        state: cell,
        terms: Arc::new(terms.clone()),
        ttl: terms.ttl,
    }
}

fn terms(ttl_ms: u64) -> Terms {
    Terms { ttl: Duration::from_millis(ttl_ms), ..Terms::default() }
}

fn dog() -> Watchdog {
    Watchdog::new(Duration::from_secs(1), Jitter::new(7))
}

fn only_round(alarms: Vec<Alarm>) -> RenewalRound {
    let mut alarms = alarms;
    assert_eq!(alarms.len(), 1, "{alarms:?}");
    match alarms.remove(0) {
        Alarm::Renew(round) => round,
        other => panic!("expected a renewal, got {other:?}"),
    }
}

fn answer(sent: u64, outcome: Outcome<Reply>) -> Answer {
    Answer { sent_at: at(sent), received_at: at(sent + 1), connection: 1, server_time_us: None, outcome }
}

fn renewed(n: usize) -> Outcome<Reply> {
    Outcome::Applied(Reply::Renewed(vec![Renewal::Renewed; n]))
}

fn no_reply() -> Outcome<Reply> {
    Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, "no reply"))
}

#[test]
fn renews_at_a_third_and_moves_the_deadline_by_the_send() {
    let mut dog = dog();
    let lease = guarded("a", &terms(3000), at(0));
    let cell = lease.state.clone();
    let wake = dog.arm(at(0), 1, lease);
    assert!(wake >= at(950) && wake <= at(1000), "{wake:?}");
    assert!(dog.poll(at(900)).is_empty());
    let round = only_round(dog.poll(wake));
    assert_eq!(round.limit, Duration::from_millis(500));
    assert!(dog.poll(wake).is_empty(), "in flight once");
    assert!(dog.renewed(at(1400), &round, &answer(1000, renewed(1))).is_empty());
    assert_eq!(cell.deadline(), Time::from_nanos((at(1000 + 3000 - 32).as_nanos()) & !7));
    assert!(dog.wake_at() > at(1400) && dog.wake_at() <= at(2000), "fixed rate, not from the reply");
}

#[test]
fn due_renewals_gather_into_batches_of_at_most_128() {
    let mut dog = dog();
    let terms = terms(10_000);
    for id in 0..1000 {
        dog.arm(at(0), id, guarded(&id.to_string(), &terms, at(0)));
    }
    let mut calls = 0;
    let mut renewed_count = 0;
    let mut now = at(0);
    while renewed_count < 1000 {
        now = dog.wake_at();
        for alarm in dog.poll(now) {
            let Alarm::Renew(round) = alarm else { panic!("{alarm:?}") };
            assert!(round.ids.len() <= BATCH_MAX);
            calls += 1;
            renewed_count += round.ids.len();
            dog.renewed(now, &round, &answer(now.as_nanos() / 1_000_000, renewed(round.ids.len())));
        }
    }
    assert!(now <= at(3334));
    assert!(calls <= 12, "{calls} calls for 1000 leases");
}

#[test]
fn an_unknown_outcome_changes_no_deadline_and_is_retried_inside_the_lease() {
    let mut dog = dog();
    let lease = guarded("a", &terms(3000), at(0));
    let cell = lease.state.clone();
    let deadline = cell.deadline();
    let wake = dog.arm(at(0), 1, lease);
    let round = only_round(dog.poll(wake));
    assert_eq!(dog.renewed(at(1500), &round, &answer(1000, no_reply())), vec![Alarm::Jeopardy(1)]);
    assert_eq!(cell.deadline(), deadline);
    let wake = dog.wake_at();
    assert!(wake > at(1500) && wake < at(1600), "retried soon: {wake:?}");
    let round = only_round(dog.poll(wake));
    assert!(dog.renewed(wake, &round, &answer(1550, renewed(1))).is_empty());
    assert!(cell.deadline() > deadline);
}

#[test]
fn without_an_answer_it_is_lost_at_the_deadline_and_told_once() {
    let mut dog = dog();
    let lease = guarded("a", &terms(3000), at(0));
    let cell = lease.state.clone();
    dog.arm(at(0), 1, lease);
    let round = only_round(dog.poll(at(1000)));
    assert_eq!(dog.wake_at(), cell.deadline(), "the deadline is watched while a renewal is in flight");
    assert_eq!(dog.poll(cell.deadline()), vec![Alarm::Lost(1, LossReason::Expired)]);
    assert!(dog.renewed(at(4000), &round, &answer(1000, renewed(1))).is_empty(), "a late reply revives nothing");
    assert!(dog.is_empty() && !cell.is_held(at(4000)));
}

#[test]
fn not_mine_is_lost_at_once() {
    let mut dog = dog();
    dog.arm(at(0), 1, guarded("a", &terms(3000), at(0)));
    let round = only_round(dog.poll(at(1000)));
    let verdict = Outcome::Applied(Reply::Renewed(vec![Renewal::NotMine]));
    assert_eq!(dog.renewed(at(1001), &round, &answer(1000, verdict)), vec![Alarm::Lost(1, LossReason::Taken)]);
}

#[test]
fn what_is_renewed_does_not_outlive_max_hold_by_much() {
    let mut dog = dog();
    let terms = Terms { max_hold: Some(Duration::from_secs(20)), ..terms(30_000) };
    dog.arm(at(0), 1, guarded("a", &terms, at(0)));
    let round = only_round(dog.poll(at(10_000)));
    assert!((10_100..10_200).contains(&round.holds[0].1), "{round:?}");
    dog.renewed(at(10_001), &round, &answer(10_000, renewed(1)));
    assert_eq!(dog.poll(at(20_000)), vec![Alarm::Lost(1, LossReason::MaxHold)]);
}

#[test]
fn max_hold_ends_a_healthy_lease() {
    let mut dog = dog();
    let terms = Terms { max_hold: Some(Duration::from_millis(1500)), ..terms(3000) };
    dog.arm(at(0), 1, guarded("a", &terms, at(0)));
    let round = only_round(dog.poll(at(1000)));
    dog.renewed(at(1001), &round, &answer(1000, renewed(1)));
    assert_eq!(dog.wake_at(), at(1500));
    assert_eq!(dog.poll(at(1500)), vec![Alarm::Lost(1, LossReason::MaxHold)]);
}

#[test]
fn a_fixed_lease_is_never_renewed() {
    let mut dog = dog();
    let terms = Terms { auto_renew: false, ..terms(3000) };
    let lease = guarded("a", &terms, at(0));
    let deadline = lease.state.deadline();
    assert_eq!(dog.arm(at(0), 1, lease), deadline);
    assert_eq!(dog.poll(deadline), vec![Alarm::Lost(1, LossReason::Expired)]);
}

#[test]
fn a_released_lease_leaves_the_schedule_without_a_word() {
    let mut dog = dog();
    let lease = guarded("a", &terms(3000), at(0));
    let cell = lease.state.clone();
    dog.arm(at(0), 1, lease);
    let round = only_round(dog.poll(at(1000)));
    cell.begin_release(at(1100));
    dog.disarm(1);
    assert_eq!(dog.wake_at(), Time::MAX);
    assert!(dog.renewed(at(1200), &round, &answer(1000, renewed(1))).is_empty());
}

#[test]
fn one_bad_key_never_spoils_the_batch_and_a_refused_batch_is_split() {
    let mut dog = dog();
    dog.arm(at(0), 1, guarded("a", &terms(3000), at(0)));
    dog.arm(at(0), 2, guarded("b", &terms(3000), at(0)));
    let round = only_round(dog.poll(at(1000)));
    assert_eq!(round.ids.len(), 2);
    let refusal = Outcome::NotApplied(Failure::lasting(ErrorKind::NotPermitted, "no permission for key b"));
    assert!(dog.renewed(at(1001), &round, &answer(1000, refusal)).is_empty());
    let alone = dog.poll(at(1001));
    assert_eq!(alone.len(), 2, "each by itself: {alone:?}");
}

#[test]
fn a_jump_of_the_servers_clock_ends_or_renews() {
    let mut dog = dog();
    dog.arm(at(0), 1, guarded("a", &terms(3000), at(0)));
    let fixed = Terms { auto_renew: false, ..terms(60_000) };
    let lease = guarded("b", &fixed, at(0));
    let cell = lease.state.clone();
    let before = cell.deadline();
    dog.arm(at(0), 2, lease);
    let alarms = dog.clock_jumped(at(10), &reading(1, 9, 10), Duration::from_secs(20));
    assert_eq!(alarms, vec![Alarm::Lost(1, LossReason::ClockAnomaly)]);
    assert_eq!(cell.deadline(), Time::from_nanos((before - Duration::from_secs(20)).as_nanos() & !7));
    dog.arm(at(10), 3, guarded("c", &terms(3000), at(10)));
    assert!(
        dog.clock_jumped(at(11), &reading(1, 9, 10), Duration::from_secs(20))
            .iter()
            .all(|alarm| !matches!(alarm, Alarm::Lost(3, _)))
    );
}

/// A reply that tells of the server's clock.
fn reading(connection: u64, sent: u64, received: u64) -> Answer {
    let outcome = Outcome::Applied(Reply::Released(true));
    Answer { sent_at: at(sent), received_at: at(received), connection, server_time_us: None, outcome }
}

#[test]
fn a_jump_spares_only_what_was_surely_confirmed_after_it() {
    let jump = Duration::from_secs(20);
    let lost = vec![Alarm::Lost(1, LossReason::ClockAnomaly)];
    // put under guard after the reading was asked for, but the acquire had been sent before
    let mut dog = dog();
    dog.arm(at(101), 1, guarded("a", &terms(3000), at(90)));
    assert_eq!(dog.clock_jumped(at(200), &reading(1, 100, 200), jump), lost);
    // sent after the reading was asked for, but on a connection of its own: which came first is not known
    dog.arm(at(130), 1, guarded("a", &terms(3000), at(120)));
    assert_eq!(dog.clock_jumped(at(200), &reading(1, 100, 200), jump), lost);
    // sent when the reading had been seen
    dog.arm(at(210), 1, guarded("a", &terms(3000), at(201)));
    assert_eq!(dog.clock_jumped(at(211), &reading(1, 100, 200), jump), vec![]);
    // renewed behind it on the same connection; and by the very request that tells
    let round = only_round(dog.poll(at(1300)));
    let renewed = Outcome::Applied(Reply::Renewed(vec![Renewal::Renewed]));
    dog.renewed(at(1301), &round, &answer(1300, renewed));
    assert_eq!(dog.clock_jumped(at(1302), &reading(1, 1299, 1302), jump), vec![]);
    assert_eq!(dog.clock_jumped(at(1302), &reading(1, 1300, 1301), jump), vec![]);
    assert_eq!(dog.clock_jumped(at(1302), &reading(2, 1299, 1302), jump), lost);
}

#[test]
fn an_extended_lease_is_renewed_with_the_longer_ttl() {
    let mut dog = dog();
    dog.arm(at(0), 1, guarded("a", &terms(3000), at(0)));
    dog.extended(at(10), at(9), 1, Duration::from_secs(9));
    let wake = dog.wake_at();
    assert!(wake > at(2800) && wake <= at(2988), "{wake:?}");
}

#[test]
fn a_short_extension_does_not_put_the_next_renewal_off() {
    let mut dog = dog();
    dog.arm(at(0), 1, guarded("a", &terms(3000), at(0)));
    let due = dog.wake_at();
    for ms in [100, 500, 900] {
        dog.extended(at(ms), at(ms), 1, Duration::from_millis(50));
    }
    assert_eq!(dog.wake_at(), due);
    dog.extended(at(900), at(900), 1, Duration::from_secs(3));
    assert!(dog.wake_at() > due, "a whole lease does");
}

#[test]
fn a_round_is_split_by_shard_and_nothing_is_lost() {
    let hold = |name: &str| (Claim { kind: Kind::Mutex, key: name.as_bytes().into(), token: name.into() }, 5);
    let names = ["a1", "b1", "a2", "c1", "b2"];
    let round = RenewalRound {
        ids: (0..5).collect(),
        holds: names.iter().map(|name| hold(name)).collect(),
        ttls: (0..5).map(Duration::from_secs).collect(),
        limit: Duration::from_millis(7),
    };
    assert_eq!(round.clone().split(|_| 3), std::slice::from_ref(&round));
    let parts = round.clone().split(|key| u32::from(key[0]));
    assert_eq!(parts.iter().map(|part| part.ids.clone()).collect::<Vec<_>>(), [vec![0, 2], vec![1, 4], vec![3]]);
    for part in parts {
        assert_eq!(part.limit, round.limit);
        for (at, id) in part.ids.iter().enumerate() {
            assert_eq!(part.holds[at], round.holds[*id as usize]);
            assert_eq!(part.ttls[at], round.ttls[*id as usize]);
        }
    }
}

#[test]
fn a_renewal_is_over_with_the_lease_and_leaves_the_others_their_time() {
    let mut dog = dog();
    for (id, name) in [(1, "a"), (2, "b")] {
        dog.arm(at(0), id, guarded(name, &terms(3000), at(0)));
    }
    let round = only_round(dog.poll(at(1000)));
    assert_eq!(round.ids.len(), 2);
    dog.arm(at(1800), 3, guarded("c", &terms(3000), at(1800)));
    dog.renewed(at(2700), &round, &answer(2600, no_reply()));
    let rounds = dog.poll(at(2900)).into_iter().map(|alarm| only_round(vec![alarm]));
    let mut limits: Vec<_> = rounds.map(|round| (round.ids.len(), round.ids.contains(&3), round.limit)).collect();
    limits.sort();
    let left = Time::from_nanos(at(3000 - 32).as_nanos() & !63).since(at(2900));
    assert_eq!(limits, [(1, true, Duration::from_millis(500)), (2, false, left)]);
}

/// A lease of 30 s of which a message told: 500 ms are left to its deadline.
fn told(dog: &mut Watchdog, id: LeaseId, now: u64) -> (Arc<LeaseState>, Time) {
    let lease = guarded(&id.to_string(), &terms(30_000), at(now));
    let cell = Arc::new(LeaseState::new());
    cell.grant(at(now + 500));
    let wake = dog.arm_told(at(now), id, Guarded { state: cell.clone(), ..lease }, at(now - 92));
    (cell, wake)
}

#[test]
fn a_told_lease_is_renewed_soon_and_a_lost_reply_does_not_cost_it() {
    let mut dog = dog();
    let (cell, wake) = told(&mut dog, 1, 1000);
    assert_eq!(wake, at(1020));
    assert!(dog.poll(at(1019)).is_empty(), "not even when the schedule is looked at");
    let round = only_round(dog.poll(wake));
    assert_eq!((round.limit, round.ttls[0]), (Duration::from_millis(240), Duration::from_secs(30)));
    assert_eq!(dog.renewed(at(1260), &round, &answer(1020, no_reply())), [Alarm::Jeopardy(1)]);
    let next = dog.wake_at();
    assert!(next <= at(1300), "{next:?}");
    let round = only_round(dog.poll(next));
    assert!(round.limit >= Duration::from_millis(100), "{:?}", round.limit);
    assert!(dog.renewed(at(1310), &round, &answer(1300, renewed(1))).is_empty());
    assert_eq!(cell.deadline(), at(1300 + 30_000 - 302));
    let next = dog.wake_at();
    assert!(next >= at(9_000), "from then on it is a lease like any other: {next:?}");
}

#[test]
fn a_told_lease_that_is_not_renewed_ends_with_its_place() {
    let mut dog = dog();
    let (cell, wake) = told(&mut dog, 1, 1000);
    let _lost = dog.poll(wake);
    assert_eq!(dog.poll(at(1500)), [Alarm::Lost(1, LossReason::Expired)]);
    assert_eq!(cell.loss(), Some(LossReason::Expired));
}

#[test]
fn a_clock_jump_that_an_answer_shows_concerns_told_leases_too() {
    let mut dog = dog();
    let (cell, _) = told(&mut dog, 1, 1000);
    let jump = Duration::from_millis(300);
    // the request of the place was sent when this had been received
    let before = Answer { sent_at: at(850), received_at: at(900), ..answer(850, renewed(0)) };
    assert!(dog.clock_jumped(at(1005), &before, jump).is_empty());
    assert_eq!(cell.deadline(), at(1500));
    // sent after the request of the place, and before the message came
    let seen = Answer { sent_at: at(950), received_at: at(990), ..answer(950, renewed(0)) };
    assert!(dog.clock_jumped(at(1005), &seen, jump).is_empty());
    assert_eq!(cell.deadline(), at(1200));
}

#[test]
fn a_told_lease_that_leaves_the_schedule_before_its_first_renewal_is_known() {
    let mut dog = dog();
    let (_cell, wake) = told(&mut dog, 1, 1000);
    let round = only_round(dog.poll(wake));
    assert!(dog.disarm(1), "its renewal is under way, and not confirmed");
    assert!(!dog.disarm(1), "it has left");
    let (_cell, _) = told(&mut dog, 2, 1000);
    let again = only_round(dog.poll(at(1020)));
    assert_eq!((round.ids, &again.ids), (vec![1], &vec![2]));
    dog.renewed(at(1030), &again, &answer(1020, renewed(1)));
    assert!(!dog.disarm(2), "it is a lease like any other");
}
