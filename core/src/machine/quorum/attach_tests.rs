#![allow(clippy::unwrap_used)]
use super::quorum_tests::{at, claim, granted, quorum, refused, said, silence, young};
use super::*;
use crate::error::ErrorKind;
use crate::machine::Reply;

fn attach() -> Op {
    Op::Attach { claim: claim(), from: "onelock1:1".into(), ttl_ms: 10_000, info: None }
}

/// An attach with these answers, one after the other; nodes beyond the list stay silent.
fn attached(quorum: &mut Quorum, answers: &[Answer]) -> Outcome<Reply> {
    let (mut round, send) = quorum.begin(at(0), 100, &attach());
    assert_eq!((send.nodes, send.op), (NodeSet::first(quorum.len()), attach()));
    for (node, answer) in answers.iter().enumerate() {
        assert_eq!(round.answered(quorum, at(1), node, answer), None);
    }
    round.conclude(quorum, at(2)).outcome
}

#[test]
fn who_exchanged_the_token_on_a_majority_has_the_hold() {
    let gone = || said(Reply::Gone);
    let ours = |fence| Outcome::Applied(Reply::Granted { fence, again: false });
    let none = || said(Reply::Granted { fence: None, again: false });
    let mut three = quorum(3);
    assert_eq!(attached(&mut three, &[granted(5), granted(5)]), ours(Some(5)));
    assert_eq!(attached(&mut three, &[granted(5), gone(), granted(5)]), ours(Some(5)));
    assert_eq!(attached(&mut three, &[none(), none(), gone()]), ours(None), "a hold without fencing");
    assert_eq!(attached(&mut three, &[gone(), gone(), refused()]), Outcome::Applied(Reply::Gone));
    let split = |outcome| match outcome {
        Outcome::Applied(Reply::Split { failure, may_still_arrive, .. }) => {
            (failure.map(|failure| failure.kind), may_still_arrive)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(split(attached(&mut three, &[granted(5), gone(), gone()])), (None, false), "somebody was before us");
    assert_eq!(split(attached(&mut three, &[gone(), gone(), silence()])), (None, true));
    let failed = (Some(ErrorKind::NoQuorum), false);
    assert_eq!(split(attached(&mut three, &[granted(5), gone(), refused()])), failed);
    assert!(matches!(attached(&mut three, &[gone(), refused(), refused()]), Outcome::NotApplied(_)));
    // a node in quarantine has no say
    three.on_connected(at(0), 0, Some(&young()));
    assert_eq!(split(attached(&mut three, &[granted(5), granted(5), refused()])), failed);
}

/// Every pattern of three and five nodes that two attach at once: never both.
#[test]
fn of_two_who_attach_with_one_proof_at_most_one_has_a_majority() {
    for nodes in [3, 5] {
        for pattern in 0..3_usize.pow(nodes) {
            let first_there = |node: u32| pattern / 3_usize.pow(node) % 3;
            let says = |who: usize| -> Vec<Answer> {
                (0..nodes)
                    .map(|node| match first_there(node) {
                        0 => refused(),
                        first if first == who => granted(5),
                        _ => said(Reply::Gone),
                    })
                    .collect()
            };
            let has = |who| {
                let outcome = attached(&mut quorum(nodes as usize), &says(who));
                matches!(outcome, Outcome::Applied(Reply::Granted { .. }))
            };
            assert!(!(has(1) && has(2)), "{pattern}");
        }
    }
}

#[test]
fn an_attach_keeps_the_token_that_a_majority_agrees_on_and_never_goes_below_it() {
    let mut three = quorum(3);
    // a node that was given the hold again is further on: the others agree, so nobody is told anything
    let (mut round, _) = three.begin(at(0), 1, &attach());
    assert_eq!(round.answered(&mut three, at(1), 2, &granted(9)), None);
    assert_eq!(round.answered(&mut three, at(1), 0, &granted(5)), None);
    assert_eq!(round.status(&three), RoundStatus::Wait, "the third may agree with either");
    assert_eq!(round.answered(&mut three, at(1), 1, &granted(5)), None);
    assert_eq!(round.status(&three), RoundStatus::Over);
    let kept = Outcome::Applied(Reply::Granted { fence: Some(5), again: false });
    assert_eq!(round.conclude(&mut three, at(2)).outcome, kept);
    // one of those two is away: the highest, once a majority has acknowledged it
    for (answers, token) in
        [([granted(9), granted(5)], 9), ([said(Reply::Granted { fence: None, again: false }), granted(5)], 5)]
    {
        let (mut round, _) = three.begin(at(0), 1, &attach());
        round.answered(&mut three, at(1), 0, &answers[0]);
        round.answered(&mut three, at(1), 1, &answers[1]);
        let send = round.answered(&mut three, at(1), 2, &refused()).unwrap();
        assert!(matches!(send.op, Op::WriteBack { fence, .. } if fence == token));
        assert_eq!((send.nodes.count(), round.status(&three)), (1, RoundStatus::Wait));
        let told = send.nodes.iter().next().unwrap();
        round.answered(&mut three, at(2), told, &said(Reply::Written(Some(token))));
        let told = Outcome::Applied(Reply::Granted { fence: Some(token), again: false });
        assert_eq!(round.conclude(&mut three, at(3)).outcome, told);
    }
}

#[test]
fn a_node_that_a_repeated_attach_does_not_reach_is_owed_the_release() {
    let mut three = quorum(3);
    // exchanged everywhere, and two replies are lost
    assert!(matches!(attached(&mut three, &[silence(), silence(), granted(5)]), Outcome::Applied(Reply::Split { .. })));
    let again = || said(Reply::Granted { fence: Some(5), again: true });
    assert!(matches!(attached(&mut three, &[refused(), again(), again()]), Outcome::Applied(Reply::Granted { .. })));
    let (mut round, _) = three.begin(at(3), 1, &Op::Release { claim: claim() });
    for (node, answer) in [refused(), said(Reply::Released(true)), said(Reply::Released(true))].iter().enumerate() {
        round.answered(&mut three, at(4), node, answer);
    }
    match round.conclude(&mut three, at(5)).outcome {
        Outcome::Applied(Reply::PartlyReleased { found: true, outstanding, .. }) => {
            assert_eq!(outstanding, NodeSet::NONE.with(0));
        }
        other => panic!("{other:?}"),
    }
}
