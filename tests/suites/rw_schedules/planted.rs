//! Servers that do one thing wrong, and what has to be said of each.

use onelock::machine::model::{Live, Model, ModelReply, Value};
use onelock::machine::{Claim, Key, Kind, Op, Outcome, QueueEntry, Renewal, Reply, naming};

use crate::Answering;
use crate::world::NAME;

fn lock(model: &Model, now_us: u64) -> Option<Live> {
    model.live(now_us).into_iter().find(|live| *live.key == *NAME)
}

fn decimal(number: u64) -> Key {
    number.to_string().into_bytes().into()
}

/// The request of an acquire as a single try.
fn a_try(claim: &Claim, ttl_ms: u64) -> Op {
    let entry = QueueEntry { client: onelock::machine::ClientTag(99), window_ms: 0, place: None, listens: true };
    Op::Enter { claim: claim.clone(), ttl_ms, fence_ttl_ms: 60_000, info: None, entry }
}

fn is_denied(answer: &ModelReply) -> bool {
    matches!(answer.outcome, Outcome::Applied(Reply::Denied { .. } | Reply::Queued { .. }))
}

fn is_granted(answer: &ModelReply) -> bool {
    matches!(answer.outcome, Outcome::Applied(Reply::Granted { .. }))
}

pub(crate) const PLANTED: &[(&str, &str, Answering)] = &[
    ("a reader is admitted beside a writer", "believe", |model, now_us, op, dice| {
        if let Op::Enter { claim, ttl_ms, .. } = op
            && claim.kind == Kind::Read
            && dice % 4 == 0
        {
            // on a server where nobody is
            let mut other = Model::new();
            let later = model.fence_of(now_us, NAME).unwrap_or(0).max(now_us) + 1;
            other.set_foreign(now_us, &naming::fence_key(NAME), Value::Text(decimal(later)), Some(60_000));
            model.set_foreign(now_us, &naming::fence_key(NAME), Value::Text(decimal(later + 1)), Some(60_000));
            return other.apply(now_us, &a_try(claim, *ttl_ms));
        }
        model.apply(now_us, op)
    }),
    ("a writer is admitted beside a live reader", "thrown out", |model, now_us, op, dice| {
        let answer = model.apply(now_us, op);
        let writer = matches!(op, Op::Enter { claim, .. } if claim.kind == Kind::Write);
        if writer && is_denied(&answer) && dice % 4 == 0 {
            model.del(now_us, NAME);
            return model.apply(now_us, op);
        }
        answer
    }),
    ("a renewal makes anew what is gone", "makes none", |model, now_us, op, _| {
        let answer = model.apply(now_us, op);
        if let (Op::Renew { holds }, Outcome::Applied(Reply::Renewed(verdicts))) = (op, &answer.outcome)
            && verdicts[0] == Renewal::NotMine
            && is_granted(&model.apply(now_us, &a_try(&holds[0].0, holds[0].1)))
        {
            return ModelReply { outcome: Outcome::Applied(Reply::Renewed(vec![Renewal::Renewed])), ..answer };
        }
        answer
    }),
    ("a downgrade releases, then reads", "for a moment", |model, now_us, op, _| match op {
        Op::Downgrade { claim, ttl_ms, .. } => {
            let released = model.apply(now_us, &Op::Release { claim: claim.clone() });
            let claim = Claim { kind: Kind::Read, ..claim.clone() };
            let answer = model.apply(now_us, &a_try(&claim, *ttl_ms));
            let outcome = if is_denied(&answer) { Outcome::Applied(Reply::Gone) } else { answer.outcome };
            ModelReply { outcome, ..released }
        }
        op => model.apply(now_us, op),
    }),
    ("a dead reader keeps writers out for longer than its ttl", "kept out", |model, now_us, op, _| {
        let left = lock(model, now_us).and_then(|live| live.ttl_left_ms);
        let answer = model.apply(now_us, op);
        if matches!(op, Op::Release { .. } | Op::Undo { .. })
            && let (Some(left), Some(live)) = (left, lock(model, now_us))
        {
            model.set_foreign(now_us, NAME, live.value, Some(left.max(live.ttl_left_ms.unwrap_or(0))));
        }
        answer
    }),
    ("the fencing token of a writer does not grow", "fencing token", |model, now_us, op, _| {
        let mut answer = model.apply(now_us, op);
        if let (Op::Enter { claim, .. }, Outcome::Applied(Reply::Granted { fence: Some(fence), again: false })) =
            (op, &mut answer.outcome)
            && claim.kind == Kind::Write
        {
            *fence = *fence / 1_000_000 * 1_000_000;
        }
        answer
    }),
    ("a downgrade keeps the fencing token", "fencing token", |model, now_us, op, _| {
        let before = match lock(model, now_us).map(|live| live.value) {
            Some(value) => {
                value.field(b"onelock_fence").and_then(|text| std::str::from_utf8(&text[1..]).ok()?.parse().ok())
            }
            None => None,
        };
        let mut answer = model.apply(now_us, op);
        if let (Op::Downgrade { .. }, Some(before), Outcome::Applied(Reply::Granted { fence, again: false })) =
            (op, before, &mut answer.outcome)
        {
            *fence = Some(before);
        }
        answer
    }),
    ("a late copy of a release releases whoever is there", "thrown out", |model, now_us, op, _| {
        let answer = model.apply(now_us, op);
        if matches!(op, Op::Release { .. } | Op::Undo { .. })
            && matches!(answer.outcome, Outcome::Applied(Reply::Released(false)))
        {
            model.del(now_us, NAME);
        }
        answer
    }),
    ("the last reader's leave is anybody's", "thrown out", |model, now_us, op, _| {
        let answer = model.apply(now_us, op);
        if matches!(op, Op::Release { claim } if claim.kind == Kind::Read)
            && matches!(answer.outcome, Outcome::Applied(Reply::Released(true)))
        {
            model.del(now_us, NAME);
        }
        answer
    }),
    ("what is kept of a reader is still the reader's", "renewed", |model, now_us, op, _| {
        let answer = model.apply(now_us, op);
        if let (Op::Retain { claim, rest_ms, .. }, Outcome::Applied(Reply::Released(true))) = (op, &answer.outcome) {
            let timeout = naming::timeout_key(NAME, &claim.token);
            if model.live(now_us).iter().any(|live| *live.key == *timeout) {
                model.set_foreign(now_us, &timeout, Value::Text(decimal(1)), Some(*rest_ms));
            }
        }
        answer
    }),
    ("a late request of a writer that reads by now takes a place", "waits to write", |model, now_us, op, _| {
        let answer = model.apply(now_us, op);
        if let Op::Enter { claim, .. } = op
            && claim.kind == Kind::Write
            && model.live(now_us).iter().any(|live| *live.key == *naming::timeout_key(NAME, &claim.token))
        {
            let places = [(Key::from(claim.token.as_bytes()), now_us)].into_iter().collect();
            model.set_foreign(now_us, &naming::queue_key(NAME), Value::Sorted(places), Some(3_000));
        }
        answer
    }),
];
