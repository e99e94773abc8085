//! The model of a server answers as the real ones do: the same random operations, the same replies.

use onelock::machine::model::Model;
use onelock::machine::{Jitter, Kind, Op, Outcome, Renewal, Reply};
use onelock_tests::servers::{Server, all_flavors};

use crate::asker::{Asker, Way, claim, key};

/// Times to live are so long that nothing expires and so far apart that remaining times can be told from each other.
const TTLS: [u64; 3] = [100_000, 200_000, 300_000];

fn pick<T: Copy>(jitter: &mut Jitter, from: &[T]) -> T {
    from[jitter.below(from.len() as u64) as usize]
}

fn random_op(jitter: &mut Jitter) -> Op {
    let kind = pick(jitter, &[Kind::Mutex, Kind::Reentrant]);
    let name = pick(jitter, &["a", "{b}c", "d{"]);
    let tokens = match kind {
        Kind::Mutex => ["onelock1:00000000000000000000000000000001", "somebody else's"],
        _ => ["ffffffff-ffff-4fff-bfff-ffffffffffff:1", "ffffffff-ffff-4fff-bfff-ffffffffffff:2"],
    };
    let claim = claim(kind, name, pick(jitter, &tokens));
    let ttl_ms = pick(jitter, &TTLS);
    match jitter.below(23) {
        0..=6 => {
            let fence_ttl_ms = pick(jitter, &[None, Some(900_000), Some(900_000)]);
            let info = pick(jitter, &[None, Some(""), Some("i")]).map(Into::into);
            Op::Acquire { claim, ttl_ms, fence_ttl_ms, info }
        }
        7..=9 => Op::Renew { holds: vec![(claim.clone(), ttl_ms), (claim, 5)] },
        10..=12 => Op::SetCount { claim, count: jitter.below(5) + 1, ttl_ms },
        13..=15 => Op::Release { claim },
        16..=18 => Op::Inspect { key: key(name) },
        19..=21 => Op::Attach { claim, from: pick(jitter, &tokens).into(), ttl_ms, info: None },
        _ => Op::ForceRelease { key: key(name), foreign: jitter.below(2) == 0 },
    }
}

/// A reply without what the two clocks make different: tokens drawn from them become their rank, times are rounded.
fn comparable(reply: Reply, fences: &mut Vec<u64>) -> Reply {
    let mut rank = |fence: Option<u64>| {
        fence.map(|fence| {
            let at = fences.iter().position(|seen| *seen == fence).unwrap_or_else(|| {
                fences.push(fence);
                fences.len() - 1
            });
            at as u64
        })
    };
    let round = |ttl: Option<u64>| ttl.map(|ttl| (ttl + 50_000) / 100_000);
    match reply {
        Reply::Granted { fence, again } => Reply::Granted { fence: rank(fence), again },
        Reply::Denied { ttl_left_ms, announces } => Reply::Denied { ttl_left_ms: round(ttl_left_ms), announces },
        Reply::Inspected(Some(mut standing)) => {
            standing.fence = rank(standing.fence);
            standing.ttl_left_ms = round(standing.ttl_left_ms);
            Reply::Inspected(Some(standing))
        }
        other => other,
    }
}

#[test]
fn the_model_answers_as_real_servers_do() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        let asker = Asker::new(&server.url(), Way::Blocking);
        let (mut kinds, mut lost) = (std::collections::BTreeMap::<String, u32>::new(), 0);
        for seed in 0..20 {
            server.cmd(&["FLUSHALL"]);
            let (mut model, mut jitter) = (Model::new(), Jitter::new(seed));
            let (mut theirs, mut ours) = (Vec::new(), Vec::new());
            for step in 0..200 {
                let op = random_op(&mut jitter);
                // a release does not tell the clock, nor does the plain command for a mutex without fencing
                let (seconds, us): (u64, u64) = redis::from_redis_value(server.cmd(&["TIME"])).unwrap();
                let answer = asker.answer(&op);
                let at = match op {
                    Op::Release { .. } | Op::Acquire { fence_ttl_ms: None, .. } => seconds * 1_000_000 + us,
                    _ => answer.server_time_us.unwrap_or_else(|| panic!("{answer:?}")),
                };
                let (Outcome::Applied(real), Outcome::Applied(modelled)) =
                    (answer.outcome, model.apply(at, &op).outcome)
                else {
                    panic!("seed {seed}, step {step}: {op:?}");
                };
                *kinds.entry(format!("{real:?}").split(['{', '(', ' ']).next().unwrap().to_owned()).or_default() += 1;
                lost += u32::from(matches!(&real, Reply::Renewed(all) if all[0] == Renewal::NotMine));
                let (real, modelled) = (comparable(real, &mut theirs), comparable(modelled, &mut ours));
                assert_eq!(real, modelled, "{flavor:?}, seed {seed}, step {step}: {op:?}");
            }
        }
        assert_eq!(kinds.len(), 9, "every reply was seen: {kinds:?}");
        assert!(kinds.values().all(|count| *count > 20) && lost > 20, "{kinds:?}");
    }
}
