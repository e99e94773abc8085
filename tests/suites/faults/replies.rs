//! Requests and replies that are lost, late, doubled or cut into pieces: exactly one grant, exactly one release.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onelock::{ErrorKind, Kind, Owner, Release};
use onelock_tests::face::{self, block_on, on_both};
use onelock_tests::proxy::{Cut, Match, Passed};
use onelock_tests::scripts;
use onelock_tests::stage::{SOON, Stage, fails, ms, promised, timed};
use onelock_tests::wait::wait_until;
use redis::Value;

const KINDS: [Kind; 2] = [Kind::Mutex, Kind::Reentrant];
const CUTS: [Cut; 2] = [Cut::Reset, Cut::Close];

fn acquires(kind: Kind) -> Match {
    if kind == Kind::Mutex { scripts::acquire() } else { scripts::acquire_reentrant() }
}

/// The numbers in the reply that the server gave.
fn numbers(passed: &Passed) -> Vec<i64> {
    let reply = passed.reply.as_deref().expect("a reply");
    let Value::Array(items) = redis::parse_redis_value(reply).unwrap() else { panic!("{}", reply.escape_ascii()) };
    let number = |item| if let Value::Int(number) = item { number } else { panic!("{}", reply.escape_ascii()) };
    items.into_iter().map(number).collect()
}

#[test]
fn f03_reply_lost_to_an_acquire_is_one_grant() {
    on_both(|face| {
        for (kind, cut) in KINDS.into_iter().flat_map(|kind| CUTS.map(|cut| (kind, cut))) {
            let stage = Stage::valkey();
            let client = stage.client(face);
            let fault = stage.proxy.on(acquires(kind)).once().cut_instead_of_reply(cut);
            let lease = client.lock_of(kind, "a").try_acquire().unwrap().expect("the resend is granted");
            assert_eq!(fault.hits(), 1);
            let sent = stage.requests(&acquires(kind));
            assert_eq!(sent.len(), 2, "{sent:?}");
            assert_eq!(sent[0].args, sent[1].args, "the same token, the same terms");
            let (first, second) = (numbers(&sent[0]), numbers(&sent[1]));
            assert_eq!((first[1], second[1]), (0, 1), "granted, then \"yours already\"");
            assert_eq!(first[2], second[2], "the same fencing token");
            assert_eq!(lease.fence(), first[2].cast_unsigned());
            assert!(lease.is_held() && client.stats().acquired == 1);
            assert_eq!(lease.released(), Release::Released);
            stage.wait_clean(&client, "a", SOON);
        }
    });
}

#[test]
fn f03_reply_lost_to_a_renewal_changes_nothing() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let jeopardy = Arc::new(AtomicUsize::new(0));
        let count = jeopardy.clone();
        let lock = client.lock("a").ttl(ms(6000)).renew_every(ms(100)).on_lost(|reason| panic!("{reason:?}"));
        let lock = lock.on_jeopardy(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let lease = lock.acquire().unwrap();
        stage.proxy.on(scripts::renew()).once().cut_instead_of_reply(Cut::Reset).wait_hits(1);
        stage.proxy.wait_requests(&scripts::renew(), 3);
        wait_until(SOON, "a renewal to be confirmed", || client.stats().renewals >= 2);
        assert!(lease.is_held());
        assert_eq!(jeopardy.load(Ordering::Relaxed), 1);
        assert_eq!(lease.released(), Release::Released);
        stage.wait_clean(&client, "a", SOON);
        assert_eq!(client.stats().lost, 0);
    });
}

#[test]
fn f03_reply_lost_to_a_release_is_unconfirmed_and_finished_in_the_background() {
    on_both(|face| {
        for (kind, cut) in KINDS.into_iter().flat_map(|kind| CUTS.map(|cut| (kind, cut))) {
            let stage = Stage::valkey();
            let client = stage.client(face);
            let lease = client.lock_of(kind, "a").acquire().unwrap();
            stage.proxy.on(scripts::release()).once().cut_instead_of_reply(cut);
            let (took, release) = timed(|| lease.released());
            assert_eq!(release, Release::Unconfirmed);
            assert!(took < promised(ms(0)), "{took:?}");
            assert!(!lease.is_held());
            assert_eq!(lease.released(), Release::AlreadyReleased);
            stage.wait_clean(&client, "a", SOON);
            assert!(stage.requests(&scripts::release()).len() >= 2, "asked again in the background");
            assert!(client.lock_of(kind, "a").try_acquire().unwrap().is_some());
        }
    });
}

#[test]
fn f03_reply_lost_to_an_extension_is_asked_for_once_more() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = client.lock("a").ttl(ms(5000)).auto_renew(false).acquire().unwrap();
        stage.proxy.on(scripts::renew()).once().cut_instead_of_reply(Cut::Reset);
        lease.extend(ms(60_000)).unwrap();
        assert!(lease.remaining() > ms(50_000));
        assert!((50_000..=60_000).contains(&stage.pttl("a")));
        // lost both times: unknown, so neither a success nor a loss, and the deadline stays
        let before = lease.remaining();
        stage.proxy.on(scripts::renew()).times(2).cut_instead_of_reply(Cut::Reset);
        let error = fails(lease.extend(ms(90_000)), ErrorKind::Unavailable);
        assert_eq!(error.lock_name(), Some("a"));
        assert!(lease.is_held() && lease.remaining() <= before);
        assert_eq!(lease.released(), Release::Released);
    });
}

#[test]
fn f03_reply_lost_to_an_attach_is_one_hold() {
    on_both(|face| {
        for (kind, cut) in KINDS.into_iter().flat_map(|kind| CUTS.map(|cut| (kind, cut))) {
            let stage = Stage::valkey();
            let (client, rival) = (stage.client(face), stage.rival(face));
            let lease = rival.lock_of(kind, "a").acquire().unwrap();
            let proof = lease.detach().unwrap();
            let fault = stage.proxy.on(scripts::attach()).once().cut_instead_of_reply(cut);
            let attached = client.lock_of(kind, "a").attach(&proof).unwrap();
            assert_eq!(fault.hits(), 1);
            let sent = stage.requests(&scripts::attach());
            assert_eq!(sent.len(), 2, "{sent:?}");
            assert_eq!(sent[0].args, sent[1].args, "the same new token");
            let (first, second) = (numbers(&sent[0]), numbers(&sent[1]));
            assert_eq!((first[1], second[1]), (0, 1), "exchanged, then \"yours already\"");
            assert_eq!((attached.fence(), second[2].cast_unsigned()), (lease.fence(), lease.fence()));
            fails(rival.lock_of(kind, "a").attach(&proof), ErrorKind::Lost);
            assert!(attached.is_held());
            let seen = rival.inspect("a").unwrap().unwrap();
            assert_eq!((seen.hold_count, seen.fencing_token), (1, attached.fencing_token()));
            if kind == Kind::Mutex {
                assert_eq!(stage.server.text(&["GET", "a"]), attached.token());
            } else {
                assert_eq!(stage.server.int(&["HEXISTS", "a", attached.token()]), 1);
            }
            assert_eq!(attached.released(), Release::Released);
            stage.wait_clean(&client, "a", SOON);
        }
    });
}

#[test]
fn f04_request_lost_of_an_attach_is_sent_again() {
    on_both(|face| {
        for kind in KINDS {
            let stage = Stage::valkey();
            let client = stage.client(face);
            let proof = stage.rival(face).lock_of(kind, "a").acquire().unwrap().detach().unwrap();
            stage.proxy.on(scripts::attach()).once().swallow();
            let (took, attached) = timed(|| client.lock_of(kind, "a").attach(&proof).unwrap());
            assert!(took < promised(ms(0)), "{took:?}");
            let sent = stage.requests(&scripts::attach());
            assert_eq!((sent.len(), numbers(&sent[1])[1]), (2, 0), "{sent:?}");
            assert_eq!(attached.released(), Release::Released);
            stage.wait_clean(&client, "a", SOON);
        }
    });
}

#[test]
fn f06_attach_that_gave_up_is_undone_however_late_its_copies_come() {
    on_both(|face| {
        for kind in KINDS {
            let stage = Stage::valkey();
            let (client, rival) = (stage.client(face), stage.rival(face));
            let proof = rival.lock_of(kind, "a").ttl(ms(60_000)).acquire().unwrap().detach().unwrap();
            let held = stage.proxy.on(scripts::attach()).hold();
            let lock = client.lock_of(kind, "a").ttl(ms(20_000));
            fails(lock.attach(&proof), ErrorKind::Unavailable);
            stage.proxy.wait_requests(&scripts::release(), 1);
            assert!(stage.exists("a"), "the undo touches nothing but its own token");
            let waiting = rival.lock_of(kind, "a").try_acquire().unwrap();
            assert!(waiting.is_none(), "it is still that of whoever comes with the proof");
            held.release();
            wait_until(ms(15_000), "the late copies to be undone", || {
                stage.requests(&scripts::attach()).iter().all(|it| it.reply.is_some()) && !stage.exists("a")
            });
            fails(rival.lock_of(kind, "a").attach(&proof), ErrorKind::Lost);
            assert!(rival.lock_of(kind, "a").try_acquire().unwrap().is_some(), "free for others");
        }
    });
}

#[test]
fn f03_reply_lost_to_a_re_entry_counts_once() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lock = client.reentrant_lock("a").owner(&Owner::new());
        let outer = lock.acquire().unwrap();
        let count_on_server = || {
            let pairs = stage.server.text(&["EVAL", "return redis.call('HVALS', KEYS[1])[1]", "1", "a"]);
            pairs.parse::<u64>().unwrap()
        };
        stage.proxy.on(scripts::set_count()).once().cut_instead_of_reply(Cut::Reset);
        let inner = lock.acquire().unwrap();
        assert_eq!((inner.hold_count(), count_on_server()), (2, 2));
        stage.proxy.on(scripts::set_count()).once().cut_instead_of_reply(Cut::Reset);
        inner.released();
        assert_eq!((outer.hold_count(), count_on_server()), (1, 1));
        assert_eq!(inner.released(), Release::AlreadyReleased);
        assert_eq!(outer.hold_count(), 1);
        assert_eq!(outer.released(), Release::Released);
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn f03_reply_lost_to_a_forced_release_is_asked_for_once_more() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = stage.rival(face).lock("a").acquire().unwrap();
        stage.proxy.on(Match::script(scripts::FORCE_RELEASE)).once().cut_instead_of_reply(Cut::Reset);
        client.force_release("a").unwrap();
        assert!(!stage.exists("a"));
        assert_eq!(lease.released(), Release::AlreadyExpired);
    });
}

#[test]
fn f04_request_lost_ends_in_exactly_one_grant() {
    on_both(|face| {
        for kind in KINDS {
            let stage = Stage::valkey();
            let client = stage.client(face);
            stage.proxy.on(acquires(kind)).once().swallow();
            let (took, lease) = timed(|| client.lock_of(kind, "a").acquire_within(ms(1000)).unwrap());
            assert!(took < promised(ms(1000)), "{took:?}");
            let sent = stage.requests(&acquires(kind));
            assert_eq!(sent.len(), 2, "{sent:?}");
            assert_eq!(sent[0].args, sent[1].args);
            assert_eq!(numbers(&sent[1])[1], 0, "the second copy was the first that arrived");
            assert!(client.lock_of(kind, "a").try_acquire().unwrap().is_none());
            assert_eq!(lease.released(), Release::Released);
            stage.wait_clean(&client, "a", SOON);
        }
    });
}

#[test]
fn f04_request_lost_of_a_release_is_sent_again() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = client.lock("a").acquire().unwrap();
        stage.proxy.on(scripts::release()).once().swallow();
        let (took, release) = timed(|| lease.released());
        assert_eq!(release, Release::Unconfirmed);
        assert!(took < promised(ms(0)), "{took:?}");
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn f06_late_copy_after_a_release_is_believed_by_nobody_and_ends_with_its_ttl() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let ttl = ms(3000);
        let held = stage.proxy.on(scripts::acquire()).once().hold();
        let lease = client.lock("a").ttl(ttl).acquire_within(SOON).unwrap();
        assert_eq!(lease.released(), Release::Released);
        assert!(!stage.exists("a"));
        held.release();
        wait_until(SOON, "the old copy to arrive", || stage.exists("a"));
        let (took, next) = timed(|| client.lock("a").ttl(ttl).acquire_within(SOON).unwrap());
        assert!(took < ttl * 2, "free after one ttl, not after {took:?}");
        assert!(!lease.is_held() && next.is_held() && next.fence() > lease.fence());
        assert_eq!(lease.released(), Release::AlreadyReleased);
        assert!(next.is_held() && stage.exists("a"));
    });
}

#[test]
fn f06_late_copy_after_giving_up_is_undone_before_its_ttl() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        // every copy is held back, so the acquire gives up; then all arrive at once
        let held = stage.proxy.on(scripts::acquire()).hold();
        fails(client.lock("a").ttl(ms(20_000)).acquire_within(ms(300)), ErrorKind::Unavailable);
        assert!(client.stats().cleaning >= 1);
        stage.proxy.wait_requests(&scripts::release(), 1);
        let copies = stage.requests(&scripts::acquire()).len();
        assert!((2..=6).contains(&copies), "{copies}");
        held.release();
        wait_until(ms(15_000), "the late copies to be undone", || {
            stage.requests(&scripts::acquire()).iter().all(|it| it.reply.is_some()) && !stage.exists("a")
        });
        assert!(stage.rival(face).lock("a").try_acquire().unwrap().is_some(), "free for others long before the ttl");
    });
}

#[test]
fn f06_doubled_requests_do_nothing_twice() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        stage.proxy.on(Match::command("EVALSHA")).duplicate();
        let owner = Owner::new();
        for kind in KINDS {
            let lock = client.lock_of(kind, format!("{kind:?}")).ttl(ms(3000)).renew_every(ms(20));
            let lock = if kind == Kind::Reentrant { lock.owner(&owner) } else { lock };
            let lease = lock.acquire().unwrap();
            if kind == Kind::Reentrant {
                let inner = lock.acquire().unwrap();
                assert_eq!((inner.hold_count(), inner.fence()), (2, lease.fence()));
                assert_eq!(inner.released(), Release::Released);
                assert_eq!(lease.hold_count(), 1);
            }
            let fence = lease.fence();
            let lease = lock.attach(&lease.detach().unwrap()).unwrap();
            assert_eq!(lease.fence(), fence);
            stage.proxy.wait_requests(&scripts::renew(), 2);
            lease.extend(ms(5000)).unwrap();
            assert!(lease.is_held());
            assert_eq!(lease.released(), Release::Released);
            stage.wait_clean(&client, format!("{kind:?}"), SOON);
        }
        assert_eq!(client.stats().lost, 0);
    });
}

#[test]
fn f07_replies_byte_by_byte_are_understood() {
    on_both(|face| {
        let stage = Stage::valkey();
        stage.proxy.split_replies(true);
        let client = stage.client_with(face, onelock::Client::builder().request_timeout(SOON));
        client.check().unwrap();
        let first = client.lock("a").acquire().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("a").acquire_within(SOON).unwrap());
            stage.proxy.wait_requests(&Match::command("SUBSCRIBE"), 1);
            wait_until(SOON, "the second refusal", || client.stats().waiting == 1);
            assert_eq!(first.released(), Release::Released);
            let second = waiter.join().unwrap();
            assert!(second.is_held() && second.fence() > first.fence());
            assert_eq!(client.inspect("a").unwrap().unwrap().fencing_token, second.fencing_token());
            assert_eq!(second.released(), Release::Released);
        });
        stage.wait_clean(&client, "a", SOON);
    });
}

#[test]
fn f07_many_replies_in_one_segment_find_their_callers() {
    let stage = Stage::valkey();
    let client = onelock::Client::new(&stage.proxy.url()).unwrap();
    block_on(async { client.lock("warm").acquire().await.unwrap().release().await.unwrap() });
    stage.proxy.pause_replies();
    let fences = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..60)
            .map(|n| {
                let lock = client.lock(format!("many:{n}"));
                scope.spawn(move || block_on(async { lock.try_acquire().await.unwrap().unwrap() }))
            })
            .collect();
        wait_until(SOON, "all to be carried out", || {
            let sent = stage.requests(&scripts::acquire().containing("many:"));
            sent.len() == 60 && sent.iter().all(|it| it.reply.is_some())
        });
        stage.proxy.resume();
        calls.into_iter().map(|call| call.join().unwrap()).collect::<Vec<_>>()
    });
    for lease in &fences {
        let counter = format!("onelock_fence:{{{}}}", std::str::from_utf8(lease.name()).unwrap());
        assert_eq!(stage.server.text(&["GET", &counter]), lease.fencing_token().unwrap().to_string());
    }
    drop(fences);
    let client = face::Client::Async(client);
    stage.wait_clean(&client, "many:0", SOON);
}
