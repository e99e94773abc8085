#![allow(clippy::unwrap_used)]
use super::*;
use crate::error::ErrorKind;
use crate::machine::{Failure, Kind, Outcome, Renewal, Reply};

pub(super) fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

pub(super) fn quorum(nodes: usize) -> Quorum {
    Quorum::new((0..nodes).map(|node| format!("node{node}")).collect(), Rules::default())
}

pub(super) fn claim() -> Claim {
    Claim { kind: Kind::Mutex, key: b"a".as_slice().into(), token: "onelock1:0".into() }
}

fn acquire() -> Op {
    Op::Acquire { claim: claim(), ttl_ms: 10_000, fence_ttl_ms: Some(60_000), info: None }
}

fn answer(outcome: Outcome<Reply>) -> Answer {
    Answer { sent_at: at(0), received_at: at(1), connection: 1, server_time_us: None, outcome }
}

pub(super) fn said(reply: Reply) -> Answer {
    answer(Outcome::Applied(reply))
}

pub(super) fn granted(fence: u64) -> Answer {
    said(Reply::Granted { fence: Some(fence), again: false })
}

fn taken(holder: u64, left: u64) -> Answer {
    said(Reply::Taken { ttl_left_ms: Some(left), announces: true, holder })
}

pub(super) fn refused() -> Answer {
    answer(Outcome::NotApplied(Failure::transient(ErrorKind::Unavailable, "connection refused")))
}

pub(super) fn silence() -> Answer {
    answer(Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, "no reply in time")))
}

/// Runs an acquire with these answers, one after the other; nodes beyond the list stay silent.
fn vote(quorum: &mut Quorum, answers: &[Answer]) -> (QuorumRound, Option<Outcome<Reply>>) {
    let (mut round, send) = quorum.begin(at(0), 100, &acquire());
    assert_eq!(send.nodes, NodeSet::first(quorum.len()));
    for (node, answer) in answers.iter().enumerate() {
        if round.status(quorum) == RoundStatus::Over {
            break;
        }
        assert_eq!(round.answered(quorum, at(1), node, answer), None);
    }
    let outcome = (round.status(quorum) != RoundStatus::Wait).then(|| round.conclude(quorum, at(2)).outcome);
    (round, outcome)
}

/// What a node can say to an acquire.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Grants,
    Taken,
    Refuses,
    Silent,
}

const SAYS: [Says; 4] = [Says::Grants, Says::Taken, Says::Refuses, Says::Silent];

/// Every pattern of votes of one to seven nodes, told in order: the lock is granted if and only if a majority granted
/// it, as early as that is certain, and whatever may have been taken otherwise has to be released.
#[test]
fn every_pattern_of_votes() {
    for nodes in 1..=7_usize {
        let majority = nodes / 2 + 1;
        for pattern in 0..4_usize.pow(nodes as u32) {
            let says: Vec<Says> = (0..nodes).map(|node| SAYS[pattern >> (2 * node) & 3]).collect();
            let mut quorum = quorum(nodes);
            let (mut round, _) = quorum.begin(at(0), 100, &acquire());
            let (mut grants, mut told) = (0, 0);
            for (node, says) in says.iter().enumerate() {
                let answer = match says {
                    Says::Grants => granted(100),
                    Says::Taken => taken(7, 500),
                    Says::Refuses => refused(),
                    Says::Silent => silence(),
                };
                round.answered(&mut quorum, at(1), node, &answer);
                told += 1;
                grants += usize::from(*says == Says::Grants);
                let certain = grants >= majority || grants + nodes - told < majority;
                assert_eq!(round.status(&quorum) != RoundStatus::Wait, certain, "{says:?} after {told}");
                if certain {
                    break;
                }
            }
            let all = told == nodes;
            let heard = &says[..told];
            let maybe = !all || heard.contains(&Says::Silent) || grants > 0;
            let contest = heard.iter().filter(|says| matches!(says, Says::Taken | Says::Grants)).count() >= majority
                && heard.contains(&Says::Taken);
            match round.conclude(&mut quorum, at(2)).outcome {
                Outcome::Applied(Reply::Granted { fence, .. }) => {
                    assert!(grants >= majority && fence == Some(100), "{says:?}");
                }
                Outcome::Applied(Reply::Denied { .. }) => assert!(grants < majority && !maybe && contest, "{says:?}"),
                Outcome::Applied(Reply::Split { failure, may_still_arrive, .. }) => {
                    assert!(grants < majority, "{says:?}");
                    assert_eq!(failure.is_none(), contest, "{says:?}");
                    assert_eq!(may_still_arrive, !all || heard.contains(&Says::Silent), "{says:?}");
                }
                Outcome::NotApplied(failure) => {
                    assert!(grants < majority && !maybe && !contest, "{says:?}");
                    assert_eq!((failure.kind, failure.nodes.len()), (ErrorKind::NoQuorum, nodes));
                }
                other => panic!("{says:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn counters_that_disagree_cost_one_more_round_and_the_token_is_acknowledged() {
    let mut quorum = quorum(3);
    let (mut round, _) = quorum.begin(at(0), 1, &acquire());
    assert_eq!(round.answered(&mut quorum, at(1), 0, &granted(5)), None);
    let send = round.answered(&mut quorum, at(1), 1, &granted(9)).unwrap();
    assert_eq!(send.nodes, NodeSet::NONE.with(0));
    assert!(matches!(send.op, Op::WriteBack { fence: 9, .. }));
    assert_eq!(round.status(&quorum), RoundStatus::Wait);
    // a third node is further still: the token rises, and what was acknowledged no longer counts
    let send = round.answered(&mut quorum, at(1), 2, &granted(12)).unwrap();
    assert_eq!(send.nodes, NodeSet::NONE.with(0).with(1));
    assert_eq!(
        round.answered(&mut quorum, at(2), 0, &said(Reply::Written(Some(9)))).map(|send| send.nodes),
        Some(NodeSet::NONE.with(0))
    );
    assert_eq!(round.answered(&mut quorum, at(2), 1, &said(Reply::Written(Some(12)))), None);
    assert_eq!(round.status(&quorum), RoundStatus::Over);
    let done = round.conclude(&mut quorum, at(3));
    assert_eq!(done.outcome, Outcome::Applied(Reply::Granted { fence: Some(12), again: false }));
    assert_eq!(done.sent_at, at(0), "the deadline counts from the first request");
    // and the next proposal is above it
    let (_, send) = quorum.begin(at(4), 1, &acquire());
    assert!(matches!(send.op, Op::Vote { fence: Some(fence), .. } if fence.base == 13));
}

#[test]
fn a_node_that_lost_the_lock_meanwhile_acknowledges_nothing() {
    let mut quorum = quorum(3);
    let (mut round, _) = quorum.begin(at(0), 1, &acquire());
    round.answered(&mut quorum, at(1), 0, &granted(5));
    round.answered(&mut quorum, at(1), 1, &granted(9)).unwrap();
    round.answered(&mut quorum, at(1), 2, &taken(7, 100));
    round.answered(&mut quorum, at(2), 0, &said(Reply::Written(None)));
    assert_eq!(round.status(&quorum), RoundStatus::Over);
    assert!(matches!(round.conclude(&mut quorum, at(2)).outcome, Outcome::Applied(Reply::Split { .. })));
}

#[test]
fn a_split_vote_is_a_tie_and_a_majority_holder_is_not() {
    let tie = |answers: &[Answer]| match vote(&mut quorum(answers.len()), answers).1 {
        Some(Outcome::Applied(Reply::Split { tie, failure: None, ttl_left_ms, .. })) => (tie, ttl_left_ms),
        other => panic!("{other:?}"),
    };
    assert!(tie(&[granted(100), taken(1, 50), taken(2, 90)]).0);
    // the second of the two that are needed ends the wait: one is free already
    assert_eq!(tie(&[granted(100), taken(1, 50), taken(1, 90)]), (false, Some(50)));
    assert!(tie(&[granted(100), granted(100), taken(1, 50), taken(1, 90), taken(2, 20)]).0);
    assert_eq!(tie(&[granted(100), taken(1, 70), taken(1, 90), taken(1, 60), taken(2, 80)]), (false, Some(70)));
    let held = vote(&mut quorum(3), &[taken(1, 50), taken(1, 90), taken(1, 70)]).1;
    let denied = Reply::Denied { ttl_left_ms: Some(70), announces: true };
    assert_eq!(held, Some(Outcome::Applied(denied)));
}

#[test]
fn too_few_nodes_are_named_one_by_one() {
    let (_, outcome) = vote(&mut quorum(3), &[granted(100), refused(), refused()]);
    let Some(Outcome::Applied(Reply::Split { failure: Some(failure), may_still_arrive: false, .. })) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(failure.kind, ErrorKind::NoQuorum);
    assert!(failure.transient);
    assert_eq!(failure.nodes, ["node0: granted", "node1: connection refused", "node2: connection refused"]);
    let password = || answer(Outcome::NotApplied(Failure::lasting(ErrorKind::AuthFailed, "WRONGPASS")));
    let (_, outcome) = vote(&mut quorum(3), &[password(), password(), refused()]);
    let Some(Outcome::NotApplied(failure)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((failure.kind, failure.transient), (ErrorKind::AuthFailed, false));
}

pub(super) fn young() -> ServerRun {
    ServerRun { run_id: [1; 40], uptime: Duration::from_secs(3), keeps_data: false, data: None }
}

#[test]
fn a_quarantined_node_does_not_vote_and_is_given_the_lock_all_the_same() {
    let mut quorum = quorum(3);
    quorum.on_connected(at(0), 0, Some(&young()));
    let (_, outcome) = vote(&mut quorum, &[granted(100), granted(100), refused()]);
    let Some(Outcome::Applied(Reply::Split { failure: Some(failure), .. })) = outcome else { panic!("{outcome:?}") };
    assert!(failure.nodes[0].contains("quarantine"), "{failure:?}");
    let (_, outcome) = vote(&mut quorum, &[granted(100), granted(100), granted(100)]);
    assert!(matches!(outcome, Some(Outcome::Applied(Reply::Granted { .. }))));
    assert_eq!(quorum.quarantine(), Duration::from_secs(60));
    quorum.begin(at(0), 1, &Op::Acquire { claim: claim(), ttl_ms: 50_000, fence_ttl_ms: None, info: None });
    assert_eq!(quorum.quarantine(), Duration::from_secs(100), "twice the longest lease");
}

fn renew() -> Op {
    Op::Renew { holds: vec![(claim(), 10_000)] }
}

fn renewed(verdict: Renewal) -> Answer {
    said(Reply::Renewed(vec![verdict]))
}

/// A renewal with these answers: the verdict, and the nodes that are given the hold again.
fn renewal(quorum: &mut Quorum, answers: &[Answer], released_meanwhile: bool) -> (Renewal, Vec<usize>) {
    let (mut round, _) = quorum.begin(at(0), 1, &renew());
    for (node, answer) in answers.iter().enumerate() {
        round.answered(quorum, at(1), node, answer);
    }
    if released_meanwhile {
        quorum.begin(at(1), 1, &Op::Release { claim: claim() });
    }
    let outcome = round.conclude(quorum, at(2)).outcome;
    let Outcome::Applied(Reply::Renewed(verdicts)) = outcome else { panic!("{outcome:?}") };
    let seeds = round.repairs(quorum, at(2), 1);
    round.end(quorum);
    (verdicts[0].clone(), seeds.into_iter().map(|(_, node, _)| node).collect())
}

#[test]
fn a_renewal_needs_a_majority_and_gives_the_hold_back_to_who_lost_it() {
    let (yes, gone) = (|| renewed(Renewal::Renewed), || renewed(Renewal::NotMine));
    let mut three = quorum(3);
    assert_eq!(renewal(&mut three, &[yes(), yes(), yes()], false), (Renewal::Renewed, vec![]));
    assert_eq!(renewal(&mut three, &[yes(), gone(), yes()], false), (Renewal::Renewed, vec![1]));
    three.repair_ended(&claim(), 1, &granted(100));
    assert_eq!(renewal(&mut three, &[yes(), gone(), yes()], true), (Renewal::Renewed, vec![]), "it was released");
    assert_eq!(renewal(&mut three, &[yes(), gone(), gone()], false), (Renewal::NotMine, vec![]));
    let (failed, seeds) = renewal(&mut three, &[yes(), gone(), refused()], false);
    assert!(matches!(failed, Renewal::Failed(text) if text.contains("node2: connection refused")));
    assert!(seeds.is_empty(), "one node is no majority");
    // a node in quarantine cannot confirm
    three.on_connected(at(0), 0, Some(&young()));
    assert!(matches!(renewal(&mut three, &[yes(), yes(), refused()], false).0, Renewal::Failed(_)));
}

fn release(quorum: &mut Quorum, answers: &[Answer]) -> Outcome<Reply> {
    let (mut round, _) = quorum.begin(at(0), 1, &Op::Release { claim: claim() });
    for (node, answer) in answers.iter().enumerate() {
        round.answered(quorum, at(1), node, answer);
    }
    round.conclude(quorum, at(2)).outcome
}

#[test]
fn a_release_is_done_when_a_majority_is_free_and_the_rest_is_owed() {
    let (found, gone) = (|| said(Reply::Released(true)), || said(Reply::Released(false)));
    let mut three = quorum(3);
    let done = |found| Outcome::Applied(Reply::Released(found));
    let partly = |found, node| {
        let outstanding = NodeSet::NONE.with(node);
        Outcome::Applied(Reply::PartlyReleased { found, outstanding, may_still_arrive: false })
    };
    assert_eq!(release(&mut three, &[found(), found(), found()]), done(true));
    assert_eq!(release(&mut three, &[found(), found(), gone()]), done(true));
    assert_eq!(release(&mut three, &[found(), gone(), gone()]), done(false), "it had no majority any more");
    assert_eq!(release(&mut three, &[found(), found(), silence()]), partly(true, 2));
    assert_eq!(release(&mut three, &[found(), silence(), gone()]), partly(true, 1));
    assert!(matches!(release(&mut three, &[found(), silence(), silence()]), Outcome::Indeterminate(_)));
    assert!(matches!(release(&mut three, &[refused(), refused(), refused()]), Outcome::NotApplied(_)));
    // a node that never got the acquire owes nothing
    vote(&mut three, &[refused(), granted(100), granted(100)]);
    assert_eq!(release(&mut three, &[refused(), found(), found()]), done(true));
    // one that is just being given the hold again does, whatever it says
    renewal(&mut three, &[renewed(Renewal::Renewed), renewed(Renewal::NotMine), renewed(Renewal::Renewed)], false);
    let outstanding = NodeSet::NONE.with(1);
    let expected = Outcome::Applied(Reply::PartlyReleased { found: true, outstanding, may_still_arrive: true });
    assert_eq!(release(&mut three, &[found(), gone(), found()]), expected);
}

/// A vote of which only two of three were heard; the third was sent it on connection 7.
fn granted_by_two(quorum: &mut Quorum) {
    let (mut round, _) = quorum.begin(at(0), 100, &acquire());
    round.sending(2, 7);
    for node in [0, 1] {
        round.answered(quorum, at(1), node, &granted(100));
    }
    assert!(matches!(round.conclude(quorum, at(2)).outcome, Outcome::Applied(Reply::Granted { .. })));
}

#[test]
fn a_node_that_granted_and_was_told_the_token_twice_in_vain_is_owed_the_release() {
    let mut three = quorum(3);
    let (mut round, _) = three.begin(at(0), 50, &acquire());
    assert_eq!(round.answered(&mut three, at(1), 2, &granted(100)), None);
    let first = round.answered(&mut three, at(1), 0, &granted(200)).unwrap();
    assert_eq!(first.nodes, NodeSet::NONE.with(2));
    let second = round.answered(&mut three, at(1), 1, &granted(300)).unwrap();
    assert_eq!(second.nodes, NodeSet::NONE.with(0).with(2));
    round.answered(&mut three, at(2), 2, &silence());
    round.answered(&mut three, at(2), 2, &refused());
    round.answered(&mut three, at(2), 0, &said(Reply::Written(Some(300))));
    assert!(matches!(round.conclude(&mut three, at(3)).outcome, Outcome::Applied(Reply::Granted { .. })));
    let outstanding = Outcome::Applied(Reply::PartlyReleased {
        found: true,
        outstanding: NodeSet::NONE.with(2),
        may_still_arrive: false,
    });
    let found = || said(Reply::Released(true));
    assert_eq!(release(&mut three, &[found(), found(), refused()]), outstanding);
}

#[test]
fn a_node_that_may_still_carry_the_acquire_out_is_not_believed_to_be_free() {
    let (found, gone) = (|| said(Reply::Released(true)), || said(Reply::Released(false)));
    let outstanding = Outcome::Applied(Reply::PartlyReleased {
        found: true,
        outstanding: NodeSet::NONE.with(2),
        may_still_arrive: true,
    });
    let done = Outcome::Applied(Reply::Released(true));
    for (last, connection, expected) in [
        (gone(), 8, &outstanding),
        (gone(), 0, &outstanding),
        (silence(), 7, &outstanding),
        // what came behind the vote on the same connection was carried out behind it
        (gone(), 7, &done),
        (found(), 8, &done),
    ] {
        let mut three = quorum(3);
        granted_by_two(&mut three);
        let (mut round, _) = three.begin(at(3), 1, &Op::Release { claim: claim() });
        round.sending(2, connection);
        for (node, answer) in [found(), found(), last].iter().enumerate() {
            round.answered(&mut three, at(4), node, answer);
        }
        assert_eq!(round.conclude(&mut three, at(5)).outcome, *expected, "connection {connection}");
        // once is enough: the rest is cleanup's
        assert_eq!(release(&mut three, &[found(), found(), gone()]), done);
    }
    // given the hold a second time, it may get it a second time
    let mut three = quorum(3);
    granted_by_two(&mut three);
    renewal(&mut three, &[renewed(Renewal::Renewed), renewed(Renewal::Renewed), renewed(Renewal::NotMine)], false);
    three.repair_ended(&claim(), 2, &granted(100));
    assert_eq!(release(&mut three, &[found(), found(), found()]), outstanding);
    // and whether it got it is not known when it did not say so
    let mut three = quorum(3);
    renewal(&mut three, &[renewed(Renewal::Renewed), renewed(Renewal::Renewed), renewed(Renewal::NotMine)], false);
    three.repair_ended(&claim(), 2, &silence());
    assert_eq!(release(&mut three, &[found(), found(), found()]), outstanding);
}

#[test]
fn a_node_that_was_being_given_the_hold_again_when_it_was_taken_away_is_owed() {
    let mut three = quorum(3);
    renewal(&mut three, &[renewed(Renewal::Renewed), renewed(Renewal::Renewed), renewed(Renewal::NotMine)], false);
    let (mut round, _) = three.begin(at(3), 1, &Op::Release { claim: claim() });
    three.repair_ended(&claim(), 2, &granted(100));
    for (node, found) in [true, true, false].into_iter().enumerate() {
        round.answered(&mut three, at(4), node, &said(Reply::Released(found)));
    }
    let outstanding = Outcome::Applied(Reply::PartlyReleased {
        found: true,
        outstanding: NodeSet::NONE.with(2),
        may_still_arrive: true,
    });
    assert_eq!(round.conclude(&mut three, at(5)).outcome, outstanding);
}

#[test]
fn mere_completeness_is_waited_for_only_where_it_comes_soon() {
    let mut three = quorum(3);
    let found = || said(Reply::Released(true));
    let (mut round, _) = three.begin(at(0), 1, &Op::Release { claim: claim() });
    round.answered(&mut three, at(1), 0, &found());
    assert_eq!(round.status(&three), RoundStatus::Wait);
    round.answered(&mut three, at(1), 1, &found());
    assert!(matches!(round.status(&three), RoundStatus::Until(until) if until < at(10)));
    round.conclude(&mut three, at(4));
    // it is known to be silent now
    let (mut round, _) = three.begin(at(5), 1, &Op::Release { claim: claim() });
    round.answered(&mut three, at(6), 0, &found());
    round.answered(&mut three, at(6), 1, &found());
    assert_eq!(round.status(&three), RoundStatus::Over);
}

#[test]
fn an_inspection_shows_what_a_majority_sees() {
    let standing = |holder: &str, fence, left| {
        said(Reply::Inspected(Some(crate::machine::InspectedKey {
            kind: Ok(Kind::Mutex),
            holder: holder.as_bytes().to_vec(),
            count: 1,
            ttl_left_ms: Some(left),
            fence: Some(fence),
            info: None,
        })))
    };
    let mut three = quorum(3);
    let mut look = |answers: &[Answer]| {
        let (mut round, _) = three.begin(at(0), 1, &Op::Inspect { key: b"a".as_slice().into() });
        for (node, answer) in answers.iter().enumerate() {
            round.answered(&mut three, at(1), node, answer);
        }
        round.conclude(&mut three, at(2)).outcome
    };
    let seen = look(&[standing("x", 5, 100), standing("x", 9, 300), standing("x", 5, 200)]);
    let Outcome::Applied(Reply::Inspected(Some(standing_now))) = seen else { panic!("{seen:?}") };
    assert_eq!((standing_now.fence, standing_now.ttl_left_ms), (Some(5), Some(200)));
    let free = || said(Reply::Inspected(None));
    assert_eq!(look(&[standing("x", 5, 100), free(), free()]), Outcome::Applied(Reply::Inspected(None)));
    assert_eq!(look(&[standing("x", 5, 100), standing("y", 5, 100), free()]), Outcome::Applied(Reply::Inspected(None)));
    assert!(matches!(look(&[standing("x", 5, 100), refused(), refused()]), Outcome::Indeterminate(_)));
    let Outcome::Indeterminate(why) = look(&[standing("x", 5, 100), free(), refused()]) else { panic!() };
    assert_eq!(why.detail, "held on 1 of the 2 nodes that answered; 2 of 3 decide");
    assert!(why.nodes[0].ends_with(": held") && why.nodes[1].ends_with(": free"), "{:?}", why.nodes);
}
