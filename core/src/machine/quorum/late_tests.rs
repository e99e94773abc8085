//! Renewals whose last answer comes when their caller has gone on.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::error::ErrorKind;
use crate::machine::{Failure, Kind, Renewal, Reply};

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn three() -> Quorum {
    Quorum::new((0..3).map(|node| format!("node{node}")).collect(), Rules::default())
}

fn claim() -> Claim {
    Claim { kind: Kind::Mutex, key: b"a".as_slice().into(), token: "onelock1:0".into() }
}

fn said(at_ms: u64, reply: Reply) -> Answer {
    let outcome = Outcome::Applied(reply);
    Answer { sent_at: at(at_ms), received_at: at(at_ms), connection: 1, server_time_us: None, outcome }
}

fn verdict(verdict: Renewal) -> Answer {
    said(1, Reply::Renewed(vec![verdict]))
}

fn yes() -> Answer {
    verdict(Renewal::Renewed)
}

fn gone() -> Answer {
    verdict(Renewal::NotMine)
}

fn silence() -> Answer {
    let outcome = Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, "no reply in time"));
    Answer { outcome, ..yes() }
}

/// A renewal that began at this time and was concluded by two of three.
fn renewed_by_two(quorum: &mut Quorum, now: u64, two: &[Answer; 2]) -> QuorumRound {
    let (mut round, _) = quorum.begin(at(now), 1, &Op::Renew { holds: vec![(claim(), 10_000)] });
    for (node, answer) in two.iter().enumerate() {
        round.answered(quorum, at(now + 1), node, answer);
    }
    let concluded = round.conclude(quorum, at(now + 4));
    assert!(matches!(concluded.outcome, Outcome::Applied(Reply::Renewed(_))));
    assert!(round.repairs(quorum, at(now + 4), 1).is_empty());
    assert_eq!(round.late_nodes(), NodeSet::NONE.with(2));
    round
}

/// The third answers at this time: to whom the hold is given again, and for how long.
fn late(quorum: &mut Quorum, round: &mut QuorumRound, now: u64, answer: &Answer) -> Vec<(usize, u64)> {
    round.answered(quorum, at(now), 2, answer);
    let seeds = round.repairs(quorum, at(now), 1);
    let told = |(_, node, op): (Claim, usize, Op)| match op {
        Op::Vote { ttl_ms, .. } => (node, ttl_ms),
        other => panic!("{other:?}"),
    };
    seeds.into_iter().map(told).collect()
}

#[test]
fn a_node_that_answers_late_is_not_silent_and_gets_its_hold_back_for_the_rest_of_the_lease() {
    let mut quorum = three();
    let mut round = renewed_by_two(&mut quorum, 0, &[yes(), yes()]);
    assert!(quorum.responsive().has(2), "its time is not up");
    assert_eq!(late(&mut quorum, &mut round, 150, &gone()), [(2, 9850)]);
    assert!(quorum.responsive().has(2) && quorum.is_repair_wanted(&claim()));
    assert!(round.repairs(&mut quorum, at(151), 1).is_empty(), "once");
    assert!(round.late_nodes().is_empty());
    quorum.repair_ended(&claim(), 2, &said(152, Reply::Granted { fence: Some(9), again: false }));
    round.end(&mut quorum);
    assert!(quorum.renewing.is_empty() && quorum.repairing.is_empty() && quorum.unanswered.is_empty());
    // one that does not answer at all is silent
    let mut round = renewed_by_two(&mut quorum, 1000, &[yes(), yes()]);
    assert_eq!(late(&mut quorum, &mut round, 1200, &silence()), []);
    assert!(!quorum.responsive().has(2));
}

#[test]
fn a_late_answer_tells_its_nodes_time() {
    let mut quorum = three();
    for (now, server_ms) in [(1000, 50_000), (2000, 71_000)] {
        let mut round = renewed_by_two(&mut quorum, now, &[yes(), yes()]);
        let answer = Answer { server_time_us: Some(server_ms * 1000), ..said(now + 150, Reply::Renewed(vec![])) };
        late(&mut quorum, &mut round, now + 150, &answer);
        round.end(&mut quorum);
    }
    assert!(quorum.ineligible_for(at(2200), 2).is_some(), "twenty seconds ahead");
}

#[test]
fn what_is_over_is_not_given_again() {
    // released, undone, or told to be over while the last answer is under way
    let ends: [fn(&mut Quorum); 4] = [
        |quorum| drop(quorum.begin(at(10), 1, &Op::Release { claim: claim() })),
        |quorum| drop(quorum.begin(at(10), 1, &Op::Undo { claim: claim(), nodes: NodeSet::ALL, quiet: false })),
        |quorum| drop(quorum.begin(at(10), 1, &Op::Retain { claim: claim(), nodes: NodeSet::ALL, rest_ms: 5 })),
        |quorum| quorum.hold_ended(&claim()),
    ];
    for end in ends {
        let mut quorum = three();
        let mut round = renewed_by_two(&mut quorum, 0, &[yes(), yes()]);
        end(&mut quorum);
        assert_eq!(late(&mut quorum, &mut round, 20, &gone()), []);
        // whatever else of it was under way, or ends meanwhile
        let mut first = renewed_by_two(&mut quorum, 0, &[yes(), yes()]);
        assert_eq!(late(&mut quorum, &mut first, 21, &gone()), []);
        first.end(&mut quorum);
        round.end(&mut quorum);
        assert!(quorum.renewing.is_empty());
    }
    // another renewal found it lost
    let mut quorum = three();
    let mut round = renewed_by_two(&mut quorum, 0, &[yes(), yes()]);
    let mut other = renewed_by_two(&mut quorum, 5, &[gone(), gone()]);
    assert_eq!(late(&mut quorum, &mut round, 20, &gone()), []);
    assert_eq!(late(&mut quorum, &mut other, 20, &gone()), []);
    // its time is up, or nearly so
    let mut quorum = three();
    let mut round = renewed_by_two(&mut quorum, 0, &[yes(), yes()]);
    assert_eq!(late(&mut quorum, &mut round, 9_900, &gone()), []);
    // nobody listens any more
    let mut quorum = three();
    let mut round = renewed_by_two(&mut quorum, 0, &[yes(), yes()]);
    round.end(&mut quorum);
    assert!(round.late_nodes().is_empty());
    assert_eq!(late(&mut quorum, &mut round, 20, &gone()), []);
}

#[test]
fn what_ends_between_the_late_answer_and_the_request_is_not_sent_and_what_was_sent_is_owed() {
    let mut quorum = three();
    let mut round = renewed_by_two(&mut quorum, 0, &[yes(), yes()]);
    assert_eq!(late(&mut quorum, &mut round, 20, &gone()).len(), 1);
    let (mut release, _) = quorum.begin(at(21), 1, &Op::Release { claim: claim() });
    assert!(!quorum.is_repair_wanted(&claim()));
    for (node, found) in [true, true, false].into_iter().enumerate() {
        release.answered(&mut quorum, at(22), node, &said(22, Reply::Released(found)));
    }
    let outstanding = NodeSet::NONE.with(2);
    let expected = Outcome::Applied(Reply::PartlyReleased { found: true, outstanding, may_still_arrive: true });
    assert_eq!(release.conclude(&mut quorum, at(23)).outcome, expected);
}

#[test]
fn a_majority_that_comes_too_late_for_the_holder_gives_nothing_again() {
    let mut quorum = three();
    let mut round = renewed_by_two(&mut quorum, 0, &[yes(), gone()]);
    assert_eq!(late(&mut quorum, &mut round, 20, &yes()), []);
}

#[test]
fn a_node_that_two_renewals_find_lacking_is_given_the_hold_by_one_of_them() {
    let mut quorum = three();
    let mut first = renewed_by_two(&mut quorum, 0, &[yes(), yes()]);
    let mut second = renewed_by_two(&mut quorum, 1, &[yes(), yes()]);
    assert_eq!(late(&mut quorum, &mut first, 20, &gone()).len(), 1);
    assert_eq!(late(&mut quorum, &mut second, 21, &gone()), []);
    first.end(&mut quorum);
    assert!(quorum.is_renewed(&claim()), "the second is still listened to");
    second.end(&mut quorum);
    assert!(!quorum.is_renewed(&claim()));
}

#[test]
fn a_renewal_whose_caller_has_gone_gives_nothing_again() {
    for (concluded_at, repaired) in [(499, 1), (500, 0)] {
        let mut quorum = three();
        let (mut round, _) = quorum.begin(at(0), 1, &Op::Renew { holds: vec![(claim(), 10_000)] });
        round.limit(at(500));
        for (node, answer) in [yes(), yes(), gone()].iter().enumerate() {
            round.answered(&mut quorum, at(concluded_at), node, answer);
        }
        let concluded = round.conclude(&mut quorum, at(concluded_at));
        assert!(matches!(concluded.outcome, Outcome::Applied(Reply::Renewed(_))));
        assert_eq!(round.repairs(&mut quorum, at(concluded_at), 1).len(), repaired, "{concluded_at}");
        round.end(&mut quorum);
    }
}
