//! What holds for the modelled server whatever is done to it, in any order.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use onelock::Kind;
use onelock::machine::model::{Model, ModelReply, Value};
use onelock::machine::{Claim, Key, NodeSet, Op, Outcome, Reply, naming};
use proptest::prelude::*;

/// One thing that happens to the server, and how long after the one before.
#[derive(Clone, Debug)]
struct Step {
    /// At least a microsecond: two scripts of a real server never see the same one.
    after_us: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Ask(Op),
    Foreign { key: Key, value: Value, ttl_ms: u64 },
    Del(Key),
    Evict(Key),
    EvictFence(Key),
    Flush,
    Crash { keep_data: bool },
}

const UUID: &str = "6f1d2c8e-0b1a-4c55-9e11-2a7f3b9c0d42";
const START_US: u64 = 1_700_000_000_000_000;

fn keys() -> impl Strategy<Value = Key> {
    prop_oneof![Just(&b"a"[..]), Just(&b"a{b}"[..]), Just(&b"\x00\xff"[..])].prop_map(Key::from)
}

fn claims() -> impl Strategy<Value = Claim> {
    (keys(), 0..3, prop_oneof![Just(Kind::Mutex), Just(Kind::Reentrant)]).prop_map(|(key, number, kind)| {
        let token = match kind {
            Kind::Mutex => format!("onelock1:{number}"),
            _ => format!("{UUID}:{number}"),
        };
        Claim { kind, key, token: token.into() }
    })
}

fn ttls() -> impl Strategy<Value = u64> {
    prop_oneof![1..20u64, 10_000..60_000u64]
}

fn ops() -> impl Strategy<Value = Op> {
    let fences = prop_oneof![4 => (1_000..3_000_000u64).prop_map(Some), 1 => Just(None)];
    let infos = prop_oneof![Just(None), Just(Some("onelock1:info".into()))];
    prop_oneof![
        4 => (claims(), ttls(), fences, infos)
            .prop_map(|(claim, ttl_ms, fence_ttl_ms, info)| Op::Acquire { claim, ttl_ms, fence_ttl_ms, info }),
        2 => (claims(), claims(), ttls(), prop_oneof![Just(None), Just(Some("onelock1:other".into()))])
            .prop_map(|(claim, other, ttl_ms, info)| {
                let from = if claim.kind == other.kind { other.token } else { claim.token.clone() };
                Op::Attach { claim, from, ttl_ms, info }
            }),
        2 => prop::collection::vec((claims(), ttls()), 1..4).prop_map(|holds| Op::Renew { holds }),
        1 => (claims(), 1..5u64, ttls()).prop_map(|(claim, count, ttl_ms)| Op::SetCount { claim, count, ttl_ms }),
        2 => claims().prop_map(|claim| Op::Release { claim }),
        1 => (claims(), ttls()).prop_map(|(claim, rest_ms)| Op::Retain { claim, nodes: NodeSet::ALL, rest_ms }),
        1 => claims().prop_map(|claim| Op::Undo { claim, nodes: NodeSet::ALL, quiet: true }),
        1 => (claims(), 1..5_000_000_000u64, 1_000..3_000_000u64)
            .prop_map(|(claim, fence, fence_ttl_ms)| Op::WriteBack { claim, fence, fence_ttl_ms }),
        1 => keys().prop_map(|key| Op::Inspect { key }),
        1 => (keys(), any::<bool>()).prop_map(|(key, foreign)| Op::ForceRelease { key, foreign }),
    ]
}

fn foreign_values() -> impl Strategy<Value = Value> {
    let owner = |text: &[u8]| Value::Hash(vec![(Key::from(text), Key::from(&b"2"[..]))]);
    prop_oneof![
        Just(Value::Text(Key::from(&b"redis-py"[..]))),
        Just(Value::Text(Key::from(&b"onelock1:1"[..]))),
        Just(owner(b"d2719fd4-7f5c-4f0e-b1c8-2f7e5f0c5b3a:1")),
        Just(owner(format!("{UUID}:1").as_bytes())),
        Just(owner(b"sku")),
        Just(Value::List),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![
        20 => ops().prop_map(What::Ask),
        2 => (keys(), foreign_values(), ttls()).prop_map(|(key, value, ttl_ms)| What::Foreign { key, value, ttl_ms }),
        1 => keys().prop_map(What::Del),
        1 => keys().prop_map(What::Evict),
        2 => keys().prop_map(What::EvictFence),
        1 => Just(What::Flush),
        1 => any::<bool>().prop_map(|keep_data| What::Crash { keep_data }),
    ];
    let after = prop_oneof![4 => 1..3u64, 2 => 1..5_000u64, 1 => 1..20_000_000u64];
    prop::collection::vec((after, what).prop_map(|(after_us, what)| Step { after_us, what }), 1..60)
}

/// Runs the steps; `look` sees the server before and after each operation of ours.
fn run(steps: &[Step], mut look: impl FnMut(u64, &Model, &Op, &ModelReply, &Model)) -> (Model, u64) {
    let (mut model, mut now_us) = (Model::new(), START_US);
    for step in steps {
        now_us += step.after_us;
        match &step.what {
            What::Ask(op) => {
                let before = model.clone();
                let reply = model.apply(now_us, op);
                look(now_us, &before, op, &reply, &model);
            }
            What::Foreign { key, value, ttl_ms } => model.set_foreign(now_us, key, value.clone(), Some(*ttl_ms)),
            What::Del(key) => _ = model.del(now_us, key),
            What::Evict(key) => _ = model.evict(now_us, key),
            What::EvictFence(key) => _ = model.evict_fence(now_us, key),
            What::Flush => model.flush(),
            What::Crash { keep_data } => model.crash(*keep_data),
        }
    }
    (model, now_us)
}

fn reply(reply: &ModelReply) -> &Reply {
    match &reply.outcome {
        Outcome::Applied(reply) => reply,
        other => panic!("the model itself never fails: {other:?}"),
    }
}

/// Whether the claim is what the server shows as the holder.
fn holds(model: &Model, now_us: u64, claim: &Claim) -> bool {
    model.holder_of(now_us, &claim.key) == Some((claim.kind, claim.token.clone().into()))
}

/// The live keys with their values, and the time that each has left.
fn state(model: &Model, now_us: u64) -> BTreeMap<Key, (Value, u64)> {
    model.live(now_us).into_iter().map(|live| (live.key, (live.value, live.ttl_left_ms.unwrap()))).collect()
}

/// The values alone.
fn values(model: &Model, now_us: u64) -> BTreeMap<Key, Value> {
    state(model, now_us).into_iter().map(|(key, (value, _))| (key, value)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fencing_tokens_grow_over_every_loss(mut steps in steps()) {
        // among several servers none of them is right by itself: what is written back may be ahead of, or behind, its own
        steps.retain(|step| !matches!(step.what, What::Ask(Op::WriteBack { .. })));
        let mut highest: BTreeMap<Key, u64> = BTreeMap::new();
        run(&steps, |now_us, before, op, answer, _| {
            let (Op::Acquire { claim, fence_ttl_ms: Some(_), .. }, Reply::Granted { fence, again }) = (op, reply(answer))
            else { return };
            let fence = fence.unwrap();
            let known = highest.entry(claim.key.clone()).or_default();
            let kept = *again && fence == *known;
            assert!(kept || (fence > *known && fence >= now_us), "{fence} after {known}, again: {again}");
            // a hold whose token the server still knows keeps it
            let remembered = match claim.kind {
                Kind::Mutex => before.fence_of(now_us, &claim.key),
                _ => None,
            };
            if let (true, Some(remembered)) = (*again, remembered) {
                assert_eq!(fence, remembered);
            }
            *known = fence;
        });
    }

    #[test]
    fn every_key_has_a_time_to_live(steps in steps()) {
        run(&steps, |now_us, _, _, _, after| {
            assert!(after.live(now_us).iter().all(|live| live.ttl_left_ms.is_some()));
        });
    }

    #[test]
    fn a_key_that_lost_its_time_to_live_gets_one_from_its_holder(op in ops(), value in foreign_values()) {
        let mut model = Model::new();
        let key: Key = Key::from(&b"a"[..]);
        model.set_foreign(START_US, &key, value, None);
        let before = model.clone();
        let touched = match (&op, reply(&model.apply(START_US, &op))) {
            (Op::Acquire { claim, .. }, Reply::Granted { again: true, .. })
            | (Op::SetCount { claim, .. }, Reply::Counted(true)) => claim.key == key,
            (Op::Renew { holds: renewed }, _) => renewed.iter().any(|(claim, _)| holds(&before, START_US, claim)),
            _ => false,
        };
        let endless = model.live(START_US).iter().any(|live| live.key == key && live.ttl_left_ms.is_none());
        prop_assert!(!(touched && endless));
    }

    #[test]
    fn only_an_acquire_creates_and_only_a_release_deletes(steps in steps()) {
        run(&steps, |now_us, before, op, _, after| {
            let (before, after) = (values(before, now_us), values(after, now_us));
            match op {
                Op::Acquire { .. } | Op::Enter { .. } | Op::Vote { .. } | Op::WriteBack { .. } => {
                    assert!(before.keys().all(|key| after.contains_key(key)));
                }
                Op::Release { .. } | Op::Undo { .. } | Op::ForceRelease { .. } => {
                    assert!(after.keys().all(|key| before.contains_key(key)));
                }
                Op::SetCount { .. } | Op::Retain { .. } | Op::Attach { .. } => assert!(before.keys().eq(after.keys())),
                Op::Renew { .. } | Op::Inspect { .. } => assert_eq!(before, after),
                Op::Downgrade { .. }
                | Op::AcquirePermits { .. }
                | Op::InspectPermits { .. }
                | Op::InspectQueue { .. }
                | Op::SetPermits { .. }
                | Op::ForceReleasePermits { .. }
                | Op::AcquireMany { .. }
                | Op::ReleaseMany { .. } => unreachable!("no step of these"),
            }
        });
    }

    #[test]
    fn several_at_once_are_each_alone_at_the_same_time_or_nothing(
        steps in steps(),
        claims in prop::collection::btree_map(keys(), (0..3u8, ttls()), 1..4),
        fenced in any::<bool>(),
    ) {
        let (before, now_us) = run(&steps, |_, _, _, _, _| ());
        let claims: Vec<(Claim, u64)> = claims
            .into_iter()
            .map(|(key, (number, ttl_ms))| {
                (Claim { kind: Kind::Mutex, key, token: format!("onelock1:{number}").into() }, ttl_ms)
            })
            .collect();
        let single = |(claim, ttl_ms): &(Claim, u64)| {
            let fence_ttl_ms = fenced.then(|| naming::fence_ttl_ms(*ttl_ms));
            Op::Acquire { claim: claim.clone(), ttl_ms: *ttl_ms, fence_ttl_ms, info: None }
        };
        let mut after = before.clone();
        let answer = after.apply(now_us, &Op::AcquireMany { claims: claims.clone(), fenced });
        let mut alone = before.clone();
        match reply(&answer) {
            Reply::Many(replies) => {
                for (claim, told) in claims.iter().zip(replies) {
                    let answer = alone.apply(now_us, &single(claim));
                    prop_assert_eq!(reply(&answer), told);
                }
            }
            Reply::RefusedAt { index, reply: told } => {
                let answer = before.clone().apply(now_us, &single(&claims[*index]));
                prop_assert_eq!(reply(&answer), &**told);
            }
            other => panic!("{other:?}"),
        }
        prop_assert_eq!(state(&after, now_us), state(&alone, now_us));
    }

    #[test]
    fn who_does_not_hold_changes_nothing(steps in steps()) {
        run(&steps, |now_us, before, op, answer, after| {
            let (unchanged, refused) = match (op, reply(answer)) {
                (Op::Release { claim } | Op::Retain { claim, .. } | Op::Undo { claim, .. }, Reply::Released(done)) =>
                    (!holds(before, now_us, claim), !done),
                (Op::WriteBack { claim, .. }, Reply::Written(done)) => (!holds(before, now_us, claim), done.is_none()),
                (Op::SetCount { claim, .. }, Reply::Counted(done)) =>
                    (claim.kind == Kind::Mutex || !holds(before, now_us, claim), !done),
                (Op::Renew { holds: renewed }, _) => {
                    let nobody = renewed.iter().all(|(claim, _)| !holds(before, now_us, claim));
                    (nobody, nobody)
                }
                (Op::Attach { claim, from, .. }, Reply::Gone | Reply::Granted { .. }) => {
                    let handed = Claim { token: from.clone(), ..claim.clone() };
                    let theirs = holds(before, now_us, claim) || holds(before, now_us, &handed);
                    (!theirs, *reply(answer) == Reply::Gone)
                }
                (Op::Inspect { .. }, _)
                | (_, Reply::Denied { .. } | Reply::WrongKind { .. } | Reply::Forced(false)) => (true, true),
                _ => (false, false),
            };
            assert_eq!(unchanged, refused, "{op:?} was answered {answer:?}");
            if unchanged {
                assert_eq!(state(before, now_us), state(after, now_us));
                assert_eq!(answer.announced, None);
            }
        });
    }

    #[test]
    fn an_attach_ends_the_token_that_was_handed_over_and_changes_nothing_else_of_the_hold(steps in steps()) {
        run(&steps, |now_us, before, op, answer, after| {
            let (Op::Attach { claim, from, .. }, Reply::Granted { fence, again }) = (op, reply(answer)) else { return };
            let handed = Claim { token: from.clone(), ..claim.clone() };
            assert!(holds(after, now_us, claim) && (*again || claim == &handed || !holds(after, now_us, &handed)));
            let mut third = after.clone();
            if claim != &handed {
                let late = Claim { token: format!("{}9", claim.token).into(), ..claim.clone() };
                let second = Op::Attach { claim: late, from: from.clone(), ttl_ms: 1, info: None };
                assert_eq!(reply(&third.apply(now_us, &second)), &Reply::Gone, "a proof that arrives twice");
            }
            assert_eq!(before.count_of(now_us, &claim.key), after.count_of(now_us, &claim.key));
            assert_eq!(before.fence_of(now_us, &claim.key), after.fence_of(now_us, &claim.key));
            let look = |model: &Model| match reply(&model.clone().apply(now_us, &Op::Inspect { key: claim.key.clone() })) {
                Reply::Inspected(Some(standing)) => standing.fence,
                other => panic!("{other:?}"),
            };
            // the tests' own tokens of a mutex begin as ours do
            assert_eq!((look(before), look(after)), (*fence, *fence));
        });
    }

    #[test]
    fn no_holder_s_time_is_ever_shortened(steps in steps()) {
        run(&steps, |now_us, before, op, _, after| {
            let (before, after) = (state(before, now_us), state(after, now_us));
            for (key, (_, left)) in &before {
                // counters are refreshed by each grant to what that grant asks for; who releases holds no longer
                if !matches!(op, Op::Retain { .. }) && !key.starts_with(naming::FENCE_WORD.as_bytes()) && let Some((_, later)) = after.get(key) {
                    assert!(later >= left, "{op:?} cut {left} ms to {later} ms");
                }
            }
        });
    }

    #[test]
    fn twice_is_as_good_as_once(steps in steps()) {
        run(&steps, |now_us, _, op, first, once| {
            let mut twice = once.clone();
            let second = twice.apply(now_us, op);
            assert_eq!(state(once, now_us), state(&twice, now_us), "{op:?}");
            let expected = match reply(first) {
                Reply::Granted { fence, .. } => Reply::Granted { fence: *fence, again: true },
                Reply::Released(_) => Reply::Released(false),
                Reply::Forced(_) => Reply::Forced(false),
                same => same.clone(),
            };
            assert_eq!(reply(&second), &expected);
            assert_eq!(second.announced, None, "waiters are told once");
        });
    }

    #[test]
    fn a_release_that_deleted_tells_the_waiters_of_its_kind(steps in steps()) {
        run(&steps, |now_us, before, op, answer, _| {
            let expected = match (op, reply(answer)) {
                (Op::Release { claim } | Op::Retain { claim, .. }, Reply::Released(true)) =>
                    Some((claim.kind, claim.key.clone())),
                (Op::ForceRelease { key, .. }, Reply::Forced(true)) =>
                    before.holder_of(now_us, key).map(|(kind, _)| (kind, key.clone())),
                _ => None,
            };
            assert_eq!(answer.announced, expected);
        });
    }

    #[test]
    fn compacting_is_not_noticed(steps in steps(), more in steps()) {
        let (mut kept, now_us) = run(&steps, |_, _, _, _, _| ());
        let mut compacted = kept.clone();
        compacted.compact(now_us);
        prop_assert!(compacted.len() <= kept.len());
        let mut now_us = now_us;
        for step in more {
            now_us += step.after_us;
            if let What::Ask(mut op) = step.what {
                // a hold without fencing shows the counter of an earlier one: the one thing that compacting changes
                if let Op::Acquire { fence_ttl_ms, .. } = &mut op {
                    fence_ttl_ms.get_or_insert(1_000);
                }
                prop_assert_eq!(kept.apply(now_us, &op), compacted.apply(now_us, &op));
            }
        }
    }
}

#[test]
fn memory_is_bounded_by_what_is_alive() {
    let mut model = Model::new();
    for number in 0..100_000u64 {
        let key = Key::from(number.to_be_bytes().as_slice());
        let claim = Claim { kind: Kind::Mutex, key, token: "onelock1:1".into() };
        let op = Op::Acquire { claim, ttl_ms: 10, fence_ttl_ms: Some(20), info: None };
        model.apply(START_US + number * 1_000, &op);
        // 11 locks and 21 counters are alive at any time
        assert!(model.len() <= 257, "{} keys", model.len());
    }
}

#[test]
fn a_key_lives_through_its_last_millisecond() {
    let mut model = Model::new();
    let claim = Claim { kind: Kind::Reentrant, key: Key::from(&b"a"[..]), token: format!("{UUID}:1").into() };
    model.apply(START_US, &Op::Acquire { claim: claim.clone(), ttl_ms: 10, fence_ttl_ms: None, info: None });
    assert_eq!(model.count_of(START_US + 10_999, &claim.key), Some(1));
    assert_eq!(model.live(START_US + 10_999)[0].ttl_left_ms, Some(0));
    assert_eq!(model.count_of(START_US + 11_000, &claim.key), None);
}

#[test]
fn a_counter_ahead_of_the_clock_outlives_compacting() {
    let mut model = Model::new();
    let claim = Claim { kind: Kind::Mutex, key: Key::from(&b"a"[..]), token: "onelock1:1".into() };
    let mut grants = (0..3).map(|_| {
        let acquire = Op::Acquire { claim: claim.clone(), ttl_ms: 10, fence_ttl_ms: Some(20), info: None };
        let granted = model.apply(START_US, &acquire);
        model.apply(START_US, &Op::Release { claim: claim.clone() });
        model.compact(START_US);
        match reply(&granted) {
            Reply::Granted { fence, .. } => fence.unwrap() - START_US,
            other => panic!("{other:?}"),
        }
    });
    assert!(grants.by_ref().eq(0..3));
    drop(grants);
    model.compact(START_US + 3);
    assert!(model.is_empty());
}
