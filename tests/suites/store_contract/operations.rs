//! Single operations: what each does, that it may be repeated, and how it ends.

use std::time::{Duration, Instant};

use onelock::machine::{Claim, Op, Outcome, Time, quorum::NodeSet};
use onelock::store::{Interrupt, Scan};
use onelock::{ErrorKind, Kind};
use onelock_tests::face::block_on;
use onelock_tests::wait::wait_until;

use crate::asker::{Asker, LONG, Seen, TTL, Way, acquire, claim, every_way, now, release};

fn renew(claims: &[&Claim], ttl_ms: u64) -> Op {
    Op::Renew { holds: claims.iter().map(|claim| ((*claim).clone(), ttl_ms)).collect() }
}

fn held_for(asker: &Asker, claim: &Claim) -> Option<(u64, Option<u64>)> {
    match asker.ask(&Op::Inspect { key: claim.key.clone() }) {
        Seen::Inspected(found) => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lock_has_one_holder_until_it_is_released() {
    every_way("one-holder", |place, asker, kind, name| {
        let other = Asker { store: place.store(), way: asker.way };
        let (mine, theirs) = (claim(kind, name, 1), claim(kind, name, 2));
        assert_eq!(held_for(asker, &mine), None);
        let before = now();
        let answer = asker.answer(&acquire(&mine, TTL));
        assert!(before <= answer.sent_at && answer.sent_at <= answer.received_at && answer.received_at <= now());
        assert!(matches!(answer.outcome, Outcome::Applied(_)), "{answer:?}");
        for asker in [asker, &other] {
            assert!(asker.is_refused(&theirs));
            assert_eq!(asker.ask(&release(&theirs)), Seen::Released(false));
            let (count, left) = held_for(asker, &mine).unwrap();
            assert!(count == 1 && left.is_none_or(|left| left <= TTL && left > TTL / 2), "{left:?}");
        }
        assert_eq!(asker.ask(&release(&mine)), Seen::Released(true));
        assert_eq!(asker.ask(&release(&mine)), Seen::Released(false), "again");
        assert_eq!(held_for(&other, &mine), None);
        other.take(&theirs, TTL);
        assert!(asker.is_refused(&mine));
        assert_eq!(other.ask(&release(&theirs)), Seen::Released(true));
    });
}

#[test]
fn a_resent_acquire_is_the_same_grant_and_a_release_the_end_of_it() {
    every_way("resent", |_, asker, kind, name| {
        let mine = claim(kind, name, 1);
        let fence = asker.take(&mine, TTL);
        let again = asker.ask(&acquire(&mine, TTL));
        if asker.store.capabilities().store == "redlock" {
            // another majority may have answered, and one of its servers may have a higher number
            assert!(matches!(again, Seen::Granted(token) if token >= fence), "{again:?} after {fence:?}");
        } else {
            assert_eq!(again, Seen::Granted(fence));
        }
        assert_eq!(asker.ask(&release(&mine)), Seen::Released(true));
        assert_eq!(asker.ask(&renew(&[&mine], TTL)), Seen::Renewed(vec![false]), "nothing is created");
        assert_eq!(held_for(asker, &mine), None);
    });
}

#[test]
fn fencing_tokens_grow_however_a_hold_ends() {
    every_way("fencing", |_, asker, kind, name| {
        let mut last = None;
        for number in 1..4 {
            let mine = claim(kind, name, number);
            let fence = asker.take(&mine, TTL);
            assert!(fence > last || !asker.store.capabilities().fencing, "{fence:?} after {last:?}");
            last = fence;
            if number == 2 && asker.store.capabilities().force_release {
                let force = Op::ForceRelease { key: mine.key.clone(), foreign: false };
                assert_eq!(asker.ask(&force), Seen::Forced(true));
                assert_eq!(asker.ask(&force), Seen::Forced(false), "again");
                assert_eq!(asker.ask(&renew(&[&mine], TTL)), Seen::Renewed(vec![false]));
            } else {
                assert_eq!(asker.ask(&release(&mine)), Seen::Released(true));
            }
        }
        let mine = claim(kind, name, 9);
        let without = Op::Acquire { claim: mine.clone(), ttl_ms: TTL, fence_ttl_ms: None, info: None };
        assert_eq!(asker.ask(&without), Seen::Granted(None));
        assert_eq!(asker.ask(&release(&mine)), Seen::Released(true));
    });
}

#[test]
fn a_hold_ends_with_its_ttl_and_a_renewal_moves_the_end() {
    every_way("ttl", |_, asker, kind, name| {
        let ttl = asker.store.capabilities().ttl_min.max(Duration::from_millis(400));
        let ttl_ms = ttl.as_millis() as u64;
        let (kept, ends) = (claim(kind, &format!("{name} kept"), 1), claim(kind, &format!("{name} ends"), 1));
        let begun = Instant::now();
        asker.take(&ends, ttl_ms);
        asker.take(&kept, ttl_ms);
        assert_eq!(asker.ask(&renew(&[&kept], TTL)), Seen::Renewed(vec![true]));
        assert_eq!(asker.ask(&renew(&[&kept], 1)), Seen::Renewed(vec![true]), "never shortened");
        let next = claim(kind, &format!("{name} ends"), 2);
        wait_until(LONG, "the end of the hold", || !asker.is_refused(&next));
        assert!(begun.elapsed() >= ttl, "{:?}", begun.elapsed());
        assert_eq!(asker.ask(&renew(&[&ends], TTL)), Seen::Renewed(vec![false]));
        assert_eq!(asker.ask(&release(&ends)), Seen::Released(false));
        let stranger = claim(kind, &format!("{name} kept"), 2);
        assert!(asker.is_refused(&stranger));
        // one verdict for each, where the keys can be asked together at all
        if asker.store.shard(&kept.key) == asker.store.shard(&ends.key) {
            let batch = renew(&[&ends, &kept, &stranger], TTL);
            assert_eq!(asker.ask(&batch), Seen::Renewed(vec![false, true, false]));
        }
        assert_eq!(asker.ask(&release(&kept)), Seen::Released(true));
    });
}

#[test]
fn an_undo_takes_back_what_may_have_been_granted() {
    every_way("undo", |place, asker, kind, name| {
        let (mine, theirs) = (claim(kind, name, 1), claim(kind, name, 2));
        let undo = |claim: &Claim| Op::Undo { claim: claim.clone(), nodes: NodeSet::ALL, quiet: true };
        assert_eq!(asker.ask(&undo(&mine)), Seen::Released(false), "nothing was there");
        asker.take(&mine, TTL);
        assert_eq!(asker.ask(&undo(&theirs)), Seen::Released(false), "somebody else's");
        assert_eq!(asker.ask(&undo(&mine)), Seen::Released(true));
        assert_eq!(asker.ask(&undo(&mine)), Seen::Released(false), "again");
        // an acquire whose caller is gone: its answer is lost, and an undo is good for it
        let late = claim(kind, name, 3);
        block_on(async {
            let call = asker.store.call(acquire(&late, TTL), now() + LONG);
            let _ = tokio::time::timeout(Duration::from_micros(50), call).await;
        });
        asker.ask(&undo(&late));
        let other = Asker { store: place.store(), way: asker.way };
        wait_until(LONG, "the lock to be free", || {
            asker.ask(&undo(&late));
            !other.is_refused(&theirs)
        });
    });
}

#[test]
fn a_count_is_set_not_added() {
    every_way("count", |_, asker, kind, name| {
        if kind != Kind::Reentrant {
            return;
        }
        let (mine, theirs) = (claim(kind, name, 1), claim(kind, name, 2));
        let set = |claim: &Claim, count| Op::SetCount { claim: claim.clone(), count, ttl_ms: TTL };
        assert_eq!(asker.ask(&set(&mine, 2)), Seen::Counted(false), "nothing is created");
        asker.take(&mine, TTL);
        for _ in 0..2 {
            assert_eq!(asker.ask(&set(&mine, 3)), Seen::Counted(true));
            assert_eq!(held_for(asker, &mine).unwrap().0, 3);
        }
        assert_eq!(asker.ask(&set(&theirs, 2)), Seen::Counted(false));
        assert_eq!(asker.ask(&release(&mine)), Seen::Released(true), "whatever the count");
    });
}

#[test]
fn an_attach_exchanges_the_token_once() {
    every_way("attach", |place, asker, kind, name| {
        if !asker.store.capabilities().attach {
            return; // refused above the store: `lacking`
        }
        let other = Asker { store: place.store(), way: asker.way };
        let [old, new, late] = [1, 2, 3].map(|number| claim(kind, name, number));
        let attach = |claim: &Claim, from: &Claim| Op::Attach {
            claim: claim.clone(),
            from: from.token.clone(),
            ttl_ms: TTL,
            info: None,
        };
        let undone = |claim: &Claim| other.ask(&Op::Undo { claim: claim.clone(), nodes: NodeSet::ALL, quiet: true });
        let gone = |claim: &Claim, from: &Claim| {
            let seen = other.ask(&attach(claim, from));
            undone(claim);
            matches!(seen, Seen::Gone | Seen::Refused)
        };
        assert!(gone(&new, &old), "nothing is created");
        let fence = asker.take(&old, TTL);
        assert_eq!(other.ask(&attach(&new, &old)), Seen::Granted(fence));
        assert_eq!(other.ask(&attach(&new, &old)), Seen::Granted(fence), "resent");
        assert!(gone(&late, &old), "a token attaches once");
        assert_eq!(asker.ask(&release(&old)), Seen::Released(false));
        assert_eq!(asker.ask(&renew(&[&old], TTL)), Seen::Renewed(vec![false]));
        assert_eq!(other.ask(&release(&new)), Seen::Released(true));
    });
}

#[test]
fn a_key_stays_behind_its_hold_for_its_shortest_time() {
    every_way("retain", |_, asker, kind, name| {
        if !asker.store.capabilities().min_hold {
            return; // refused above the store: `lacking`
        }
        let (mine, theirs) = (claim(kind, name, 1), claim(kind, name, 2));
        asker.take(&mine, TTL);
        let begun = Instant::now();
        let retain = Op::Retain { claim: mine.clone(), nodes: NodeSet::ALL, rest_ms: 300 };
        assert_eq!(asker.ask(&retain), Seen::Released(true));
        assert_eq!(asker.ask(&renew(&[&mine], TTL)), Seen::Renewed(vec![false]));
        wait_until(LONG, "the end of the shortest time", || !asker.is_refused(&theirs));
        assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    });
}

#[test]
fn another_kind_of_lock_is_not_let_in() {
    every_way("kinds", |_, asker, kind, name| {
        let mine = claim(kind, name, 1);
        asker.take(&mine, TTL);
        for other in asker.store.capabilities().kinds.iter().filter(|other| **other != kind) {
            if !crate::asker::KINDS.contains(other) {
                continue; // made of other operations: their own suites
            }
            let seen = asker.try_to_take(&claim(*other, name, 2));
            assert!(matches!(seen, Seen::WrongKind | Seen::Refused), "{other:?}: {seen:?}");
        }
        assert_eq!(asker.ask(&release(&mine)), Seen::Released(true));
    });
}

#[test]
fn what_stands_is_listed() {
    every_way("list", |_, asker, kind, name| {
        if !asker.store.capabilities().list {
            return; // refused above the store: `lacking`
        }
        let mine = claim(kind, name, 1);
        asker.take(&mine, TTL);
        let listed = |pattern: &str| {
            let (mut found, mut cursor) = (Vec::new(), None);
            loop {
                let scan = Scan { pattern: pattern.as_bytes().to_vec(), count: 10, cursor };
                let step = block_on(asker.store.scan(scan, now() + LONG)).unwrap();
                found.extend(step.keys);
                cursor = step.next;
                if cursor.is_none() {
                    return found;
                }
            }
        };
        assert!(listed(&format!("{name}*")).contains(&mine.key));
        assert!(!listed("elsewhere*").contains(&mine.key));
        assert_eq!(asker.ask(&release(&mine)), Seen::Released(true));
        assert!(!listed(&format!("{name}*")).contains(&mine.key));
        let foreign = Scan { pattern: b"*".to_vec(), count: 10, cursor: Some("no cursor".to_owned()) };
        let failure = block_on(asker.store.scan(foreign, now() + LONG)).unwrap_err();
        assert_eq!(failure.kind, ErrorKind::InvalidArgument, "{failure:?}");
    });
}

#[test]
fn a_call_ends_in_its_time_and_after_the_close_at_once() {
    every_way("ends", |place, asker, kind, name| {
        let mine = claim(kind, name, 1);
        let begun = Instant::now();
        asker.answer_until(&acquire(&mine, TTL), now());
        asker.answer_until(&acquire(&mine, TTL), Time::from_nanos(1));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let closed = Asker { store: place.store(), way: asker.way };
        closed.take(&claim(kind, &format!("{name} closed"), 1), TTL);
        closed.store.close();
        closed.store.close();
        for op in [acquire(&mine, TTL), release(&mine), renew(&[&mine], TTL)] {
            match closed.answer(&op).outcome {
                Outcome::NotApplied(failure) => assert_eq!(failure.kind, ErrorKind::Closed, "{failure:?}"),
                other => panic!("{}: {other:?}", op.name()),
            }
        }
        assert_eq!(block_on(closed.store.facts(now() + LONG)).unwrap_err().kind, ErrorKind::Closed);
        // another client of the same place is not touched
        assert!(asker.is_refused(&claim(kind, &format!("{name} closed"), 2)));
    });
}

#[test]
fn an_interrupted_call_returns() {
    struct Always;
    impl Interrupt for Always {
        fn interrupted(&self) -> bool {
            true
        }
    }
    every_way("interrupted", |_, asker, kind, name| {
        if asker.way == Way::Async {
            return; // there the future is dropped: `an_undo_takes_back_what_may_have_been_granted`
        }
        let begun = Instant::now();
        let answer = asker.store.call_blocking(&acquire(&claim(kind, name, 1), TTL), now() + LONG, &Always);
        assert!(begun.elapsed() < Duration::from_secs(5), "{answer:?} after {:?}", begun.elapsed());
    });
}

#[test]
fn a_store_says_where_and_what_it_is() {
    every_way("facts", |place, asker, _, _| {
        let facts = block_on(asker.store.facts(now() + LONG)).unwrap();
        assert!(!facts.server.is_empty() && !asker.store.address().is_empty(), "{facts:?}");
        let capabilities = asker.store.capabilities();
        // several addresses name the stores that vote
        let named = place.url.starts_with(capabilities.store) || place.url.contains(' ');
        assert!(named && !capabilities.kinds.is_empty());
        assert!(capabilities.ttl_min < capabilities.ttl_max);
    });
}
