//! The cleanup queue.

use super::*;
use crate::machine::{Failure, Kind, Reply};

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn undo(uncertainty: Uncertainty) -> PendingUndo {
    let claim = Claim { kind: Kind::Mutex, key: b"a".as_slice().into(), token: "onelock1:0".into() };
    PendingUndo::new(claim, Duration::from_secs(1), uncertainty)
}

fn reply(connection: u64) -> Answer {
    let outcome = Outcome::Applied(Reply::Released(true));
    Answer { sent_at: at(0), received_at: at(0), connection, server_time_us: None, outcome }
}

fn silence() -> Answer {
    let outcome = Outcome::Indeterminate(Failure::transient(ErrorKind::Unavailable, "no reply"));
    Answer { sent_at: at(0), received_at: at(0), connection: 1, server_time_us: None, outcome }
}

#[test]
fn the_same_ordered_connection_needs_one_answer() {
    let mut queue = CleanupQueue::new(Jitter::new(1));
    let id = queue.take(at(5), undo(Uncertainty::Ordered(3)));
    assert_eq!(queue.wake_at(), at(5));
    assert_eq!(queue.poll(at(5)).len(), 1);
    assert!(queue.answered(at(6), id, &reply(3)));
    assert!(queue.is_empty() && queue.wake_at() == Time::MAX);
}

#[test]
fn on_another_connection_it_is_repeated_for_one_ttl_after_the_first_answer() {
    let mut queue = CleanupQueue::new(Jitter::new(1));
    let id = queue.take(at(0), undo(Uncertainty::Ordered(3)));
    let mut sends = 0;
    let mut now = at(0);
    while !queue.is_empty() {
        now = queue.wake_at();
        if queue.poll(now).is_empty() {
            continue;
        }
        sends += 1;
        if sends <= 2 {
            assert!(!queue.answered(now, id, &silence()));
        } else {
            queue.answered(now, id, &reply(4));
        }
        assert_eq!(queue.is_answered(), sends > 2, "what is left is in case of a late copy");
    }
    assert!(now >= at(1000) && now <= at(1200), "{now:?}");
    assert!((5..40).contains(&sends), "{sends}");
}

#[test]
fn a_node_that_is_slow_at_a_repetition_prolongs_nothing() {
    let mut queue = CleanupQueue::new(Jitter::new(1));
    let id = queue.take(at(0), undo(Uncertainty::MayStillArrive));
    assert_eq!(queue.poll(at(0)).len(), 1);
    // all have answered
    assert!(!queue.answered(at(1), id, &reply(0)));
    let outstanding = NodeSet::NONE.with(1);
    let partly = Reply::PartlyReleased { found: false, outstanding, may_still_arrive: false };
    let partly = Answer { outcome: Outcome::Applied(partly), ..reply(0) };
    let mut now = at(1);
    while !queue.is_empty() {
        now = queue.wake_at();
        for (id, _) in queue.poll(now) {
            queue.answered(now, id, &partly);
        }
    }
    assert!(now >= at(1001) && now <= at(1200), "{now:?}");
}

#[test]
fn a_confirmed_grant_needs_one_answer_and_is_not_chased_past_its_ttl() {
    let mut queue = CleanupQueue::new(Jitter::new(1));
    let id = queue.take(at(0), undo(Uncertainty::Confirmed));
    let mut now = at(0);
    while !queue.is_empty() {
        now = queue.wake_at();
        for (id, _) in queue.poll(now) {
            queue.answered(now, id, &silence());
        }
    }
    assert!(now <= at(1000), "{now:?}");
    let id2 = queue.take(at(0), undo(Uncertainty::Confirmed));
    assert_ne!(id, id2);
    queue.poll(at(0));
    assert!(queue.answered(at(1), id2, &reply(9)));
}

#[test]
fn a_server_that_refuses_to_write_is_asked_again_until_the_key_ends() {
    let mut queue = CleanupQueue::new(Jitter::new(1));
    let id = queue.take(at(0), undo(Uncertainty::Confirmed));
    let misconf = Outcome::NotApplied(Failure::lasting(ErrorKind::ServerRefused, "MISCONF"));
    let refusal = Answer { outcome: misconf, ..reply(1) };
    assert_eq!(queue.poll(at(0)).len(), 1);
    assert!(!queue.answered(at(1), id, &refusal));
    let again = queue.wake_at();
    assert!(again < at(100), "{again:?}");
    assert_eq!(queue.poll(again).len(), 1);
    assert!(queue.answered(at(1000), id, &refusal), "by then the key has ended by itself");
}

#[test]
fn nodes_that_did_not_answer_are_gone_on_with_and_doubt_with_all() {
    let partly = |outstanding, may_still_arrive| {
        let outcome = Outcome::Applied(Reply::PartlyReleased { found: false, outstanding, may_still_arrive });
        Answer { outcome, ..reply(0) }
    };
    let asked = |sends: Vec<(UndoId, Op)>| -> Vec<NodeSet> {
        let nodes = |op| if let Op::Undo { nodes, .. } = op { nodes } else { NodeSet::ALL };
        sends.into_iter().map(|(_, op)| nodes(op)).collect()
    };
    let two = NodeSet::NONE.with(2);
    for (uncertainty, parts) in
        [(Uncertainty::Confirmed, 1), (Uncertainty::MayStillArrive, 2), (Uncertainty::Ordered(3), 2)]
    {
        let mut queue = CleanupQueue::new(Jitter::new(1));
        let id = queue.take(at(0), undo(uncertainty));
        assert_eq!(asked(queue.poll(at(0))), [NodeSet::ALL]);
        assert!(!queue.answered(at(1), id, &partly(two, false)));
        assert_eq!(queue.len(), parts, "{uncertainty:?}");
        let again = asked(queue.poll(at(200)));
        assert!(again.contains(&two) && again.len() == parts, "{again:?}");
        assert!(parts == 1 || again.contains(&NodeSet::ALL.but(two)));
        assert_eq!(queue.answered(at(201), id, &reply(0)), parts == 1, "{uncertainty:?}");
    }
}

#[test]
fn a_node_that_was_not_heard_of_is_asked_past_the_ttl_of_what_the_others_confirmed() {
    let partly = Outcome::Applied(Reply::PartlyReleased {
        found: true,
        outstanding: NodeSet::NONE.with(2),
        may_still_arrive: false,
    });
    let quorum = Outcome::Indeterminate(Failure::transient(ErrorKind::NoQuorum, "two of three are away"));
    for first in [partly, quorum] {
        let mut queue = CleanupQueue::new(Jitter::new(1));
        let id = queue.take(at(0), undo(Uncertainty::Confirmed));
        assert_eq!(queue.poll(at(0)).len(), 1);
        assert!(!queue.answered(at(1), id, &Answer { outcome: first, ..reply(0) }));
        let mut last = at(0);
        while !queue.is_empty() {
            let now = queue.wake_at();
            for (id, _) in queue.poll(now) {
                last = now;
                queue.answered(now, id, &silence());
            }
        }
        assert!(last >= at(2000) && last <= at(3000) + UNANSWERED_LIMIT, "{last:?}");
    }
}

#[test]
fn what_has_to_stay_is_left_standing_for_the_rest_and_deleted_after_it() {
    let claim = undo(Uncertainty::Confirmed).claim;
    let rest = |op: &Op| if let Op::Retain { rest_ms, .. } = op { Some(*rest_ms) } else { None };
    assert_eq!(rest(&release_op(at(100), claim.clone(), at(350))), Some(250));
    assert_eq!(release_op(at(350), claim.clone(), at(350)), Op::Release { claim });
    let mut queue = CleanupQueue::new(Jitter::new(1));
    queue.take(at(0), PendingUndo { stays_until: at(300), ..undo(Uncertainty::MayStillArrive) });
    let mut rests = Vec::new();
    while !queue.is_empty() {
        let now = queue.wake_at();
        for (id, op) in queue.poll(now) {
            assert_eq!(rest(&op).is_some(), now < at(300), "{now:?}");
            rests.extend(rest(&op).map(|rest| at(rest) + now.since(Time::ZERO)));
            queue.answered(now, id, &reply(9));
        }
    }
    assert!(rests.len() > 1 && rests.iter().all(|end| (at(300)..=at(301)).contains(end)), "{rests:?}");
}

#[test]
fn a_lasting_refusal_ends_it() {
    let mut queue = CleanupQueue::new(Jitter::new(1));
    let id = queue.take(at(0), undo(Uncertainty::MayStillArrive));
    queue.poll(at(0));
    let outcome = Outcome::NotApplied(Failure::lasting(ErrorKind::NotPermitted, "no"));
    assert!(queue.answered(at(1), id, &Answer { outcome, ..reply(1) }));
}

#[test]
fn what_is_confirmed_and_what_is_given_up_is_told_once() {
    let mut queue = CleanupQueue::new(Jitter::new(1));
    let id = queue.take(at(0), undo(Uncertainty::Confirmed));
    assert_eq!(queue.poll(at(0)).len(), 1);
    assert!(queue.ended().is_empty(), "it is under way");
    assert!(queue.answered(at(1), id, &reply(1)));
    assert_eq!((queue.ended().len(), queue.ended().len()), (1, 0));
    // never answered: its key ends by itself
    let id = queue.take(at(10), undo(Uncertainty::Confirmed));
    let mut now = at(10);
    while !queue.is_empty() {
        for _ in queue.poll(now) {
            queue.answered(now, id, &silence());
        }
        now = queue.wake_at();
    }
    assert_eq!(queue.ended(), [undo(Uncertainty::Confirmed).claim]);
}
